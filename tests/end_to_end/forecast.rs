//! `drupe ext check` says what a daemon then does: both over the same home, compared extension by extension.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Daemon, built};

/// An agent's manifest with these keys beside `id`, and in its `agent` section.
fn agent(id: &str, keys: &str, section: &str) -> String {
    let instructions = if section.contains("instructions") { "" } else { ", instructions: x" };
    format!(
        "id: {id}\nname: {id}\ndescription: Does it.\n{keys}agent: {{model: default, usage: x{instructions}{section}}}\n"
    )
}

/// A home in which most things are wrong, each in a way of its own.
fn home() -> Daemon {
    let daemon = Daemon::home(
        "approvals: {preauthorized: [nolib, lost, lost2, ring_a, ring_b, calls_a, calls_b, wants, takes, needs]}\n\
         extensions: {sized: {size: large}, sized_code: {size: large}}\n",
    );
    let long = "x".repeat(20_000);
    for (id, keys, section) in [
        ("fine", "", ""),
        ("syntax", "", ", instructions: p.jinja2"),
        ("filter", "", ", instructions: p.jinja2"),
        ("include", "", ", instructions: p.jinja2"),
        ("undefined", "", ", instructions: p.jinja2"),
        ("lost", "depends_on: [nobody]\n", ""),
        ("lost2", "depends_on: [lost]\n", ""),
        ("ring_a", "depends_on: [ring_b]\n", ""),
        ("ring_b", "depends_on: [ring_a]\n", ""),
        ("calls_a", "", ", uses_agents: [calls_b]"),
        ("calls_b", "", ", uses_agents: [calls_a]"),
        ("wants", "", ", uses_tools: [nothing]"),
        ("takes", "", ", tool_name: agent_fine"),
        ("needs", "", ", uses_agents: [takes]"),
        ("code-reviewer", "", ""),
        ("asks", "rights: [control]\n", ""),
        ("off", "enabled: false\n", ""),
        ("turned_off", "", ""),
        ("secret", "secrets: [NOBODY_HAS_THIS]\n", ""),
        ("core", "", ""),
        ("kv", "", ""),
        ("model", "", ", parameters: {temperature: 99}"),
        ("filters", "", ", input: {format: json, schema: {properties: {'filter[id]': {type: string}}}}"),
        ("arrays", "", ", input: {format: json, schema: {properties: {tags: {type: array}}}}"),
    ] {
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &agent(id, keys, section));
    }
    daemon.write("extensions/syntax/p.jinja2", "{% if %}");
    daemon.write("extensions/filter/p.jinja2", "{{ now | nonsense }}");
    daemon.write("extensions/include/p.jinja2", "{% include 'gone.md' %}");
    daemon.write("extensions/undefined/p.jinja2", "{{ nothing }}");
    daemon.write("extensions/nolib/manifest.yaml", "id: nolib\nname: x\nentrypoint: libnothing\n");
    daemon.write("extensions/unbuilt/manifest.yaml", "id: unbuilt\nname: x\nentrypoint: libunbuilt\n");
    let size = "config: {size: 1}\nconfig_schema: {type: object, properties: {size: {type: integer}}}\n";
    daemon.write("extensions/sized/manifest.yaml", &agent("sized", size, ""));
    let code = format!("id: sized_code\nname: x\nentrypoint: libsized_code\n{size}");
    daemon.write("extensions/sized_code/manifest.yaml", &code);
    daemon.write("extensions/many/manifest.yaml", &agent("many", "", ""));
    for folder in 0..65 {
        for file in 0..64 {
            daemon.write(&format!("extensions/many/{folder}/{file}"), "");
        }
    }
    daemon.write("extensions/wordy/manifest.yaml", &agent("wordy", "", "").replace("Does it.", &long));
    daemon.write("extensions/single.md", "---\ndescription: Does it.\nusage: x\n---\nDo it.\n");
    daemon.write("extensions/empty/README.md", "no manifest");
    daemon
}

/// State and, where it does not work, reason of each.
fn states(list: &Value) -> BTreeMap<(String, String), (String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |one: &Value| {
        let place = text(if one["source"].is_null() { &one["file"] } else { &one["source"] });
        let state = text(&one["state"]);
        let reason = if state == "active" { String::new() } else { text(&one["reason"]) };
        ((text(&one["id"]), place), (state, reason))
    };
    list.as_array().expect("a list").iter().map(one).collect()
}

fn checked(daemon: &Daemon, path: &[&str]) -> Value {
    let arguments: Vec<&str> = ["ext", "check", "--json"].iter().chain(path).copied().collect();
    serde_json::from_slice(&daemon.drupe(&arguments).stdout).expect("JSON")
}

#[test]
fn what_the_check_says_is_what_the_daemon_does() {
    let mut daemon = home();
    let before = checked(&daemon, &[]);
    daemon.run();
    daemon.says(&["ext", "disable", "turned_off"]);
    daemon.until_extension("turned_off", "disabled");
    let real = states(&daemon.json(&["ext", "list", "--json"]));
    let report = checked(&daemon, &[]);
    let expected = states(&report["extensions"]);
    for (key, state) in &real {
        assert_eq!(expected.get(key), Some(state), "{key:?}");
    }
    assert_eq!(expected.len(), real.len(), "{expected:#?}");
    // Without a journal, nothing but what the operator said differs.
    for ((id, place), (state, _)) in states(&before["extensions"]) {
        let then = &real[&(id.clone(), place)].0;
        assert!(state == *then || id == "turned_off", "{id}: {state}, then {then}");
    }
    assert_eq!(report["ok"], false);
    // The check of one that is named sees no less.
    for (key @ (id, place), state) in &real {
        let report = checked(&daemon, &[place.as_str()]);
        assert_eq!(states(&report["extensions"]).get(key), Some(state), "{id}: {report:#}");
        let works = ["active", "awaiting_approval", "disabled"].contains(&state.0.as_str());
        assert_eq!(report["ok"], works, "{id}: {report:#}");
    }
    // And neither does the daemon's own, which is what the builder asks.
    let home = daemon.path().join("extensions").display().to_string();
    let mut client = daemon.client();
    for ((id, place), (state, reason)) in real.iter().filter(|((_, place), _)| place.starts_with(&home)) {
        let report = client.ask("extensions.check", json!({"path": place})).expect("a report");
        let said = report["reason"].as_str().unwrap_or_default();
        assert_eq!(
            (report["state"].as_str(), said),
            (Some(state.as_str()), reason.as_str()),
            "{id}: {report:#}"
        );
    }
    let passed = report["passed_over"].as_array().expect("a list");
    assert!(
        passed.iter().any(|one| one["path"].as_str().is_some_and(|p| p.ends_with("empty"))),
        "{passed:?}"
    );
    let state = |id: &str| {
        let one = real.iter().find(|((known, _), _)| known == id);
        one.map(|(_, state)| state.clone()).unwrap_or_default()
    };
    for (id, expected, says) in [
        ("fine", "active", ""),
        ("single", "active", ""),
        ("syntax", "failed", "p.jinja2"),
        ("filter", "failed", "nonsense"),
        ("include", "failed", "gone.md"),
        ("nolib", "failed", "libnothing"),
        ("unbuilt", "failed", "libunbuilt"),
        ("sized", "failed", "integer"),
        ("sized_code", "failed", "integer"),
        ("many", "failed", "4096"),
        ("lost", "failed", "nobody"),
        ("lost2", "skipped", "`lost`"),
        ("ring_a", "failed", "circle"),
        ("calls_b", "failed", "circle"),
        ("wants", "failed", "nothing"),
        ("takes", "failed", "agent_fine"),
        ("needs", "skipped", "takes"),
        ("code-reviewer", "failed", "code_reviewer"),
        ("asks", "awaiting_approval", "control"),
        ("off", "disabled", "enabled: false"),
        ("turned_off", "disabled", "ext disable"),
        ("secret", "failed", "NOBODY_HAS_THIS"),
        ("core", "failed", "kernel's own"),
        ("wordy", "failed", "16384"),
        ("filters", "failed", "filter[id]"),
        ("arrays", "failed", "without `items`"),
    ] {
        let (state, reason) = state(id);
        assert!(state == expected && reason.contains(says), "{id}: {state}: {reason}");
    }
}

#[test]
fn a_folder_beside_the_home_is_checked_as_if_it_lay_there() {
    let daemon = Daemon::home("");
    daemon.write("extensions/fine/manifest.yaml", &agent("fine", "", ""));
    daemon.write("drafts/one/manifest.yaml", &agent("one", "depends_on: [fine]\n", ""));
    daemon.write("other/fine/manifest.yaml", &agent("fine", "", ""));
    daemon.write("drafts/path/manifest.yaml", &agent("path", "", ", instructions: /etc/passwd"));
    let report = checked(&daemon, &["drafts"]);
    let states = states(&report["extensions"]);
    let one = |id: &str| {
        let found = states.iter().find(|((known, _), _)| known == id);
        found.map(|(_, state)| state.clone()).unwrap_or_else(|| panic!("no `{id}` in {report:#}"))
    };
    assert_eq!(states.len(), 2, "{report:#}");
    assert_eq!(one("one").0, "active");
    assert!(one("path").0 == "failed" && one("path").1.contains("seems to be a path"), "{report:#}");
    let report = checked(&daemon, &["other/fine"]);
    let of_two = &report["extensions"][0];
    let why = of_two["reason"].as_str().unwrap_or_default();
    assert!(of_two["state"] == "failed" && why.contains("remove one"), "{report:#}");
    let report = checked(&daemon, &["drafts/one"]);
    assert_eq!((&report["ok"], report["extensions"].as_array().map(Vec::len)), (&Value::Bool(true), Some(1)));
}

#[test]
fn a_check_that_loads_says_what_libraries_bring_and_where_one_lies_that_is_not_found() {
    let daemon = Daemon::home("approvals: {preauthorized: []}\n");
    daemon.plugin_in("process", "torture", "torture", "rights: [submit]\n");
    daemon.plugin_in("process", "aborts", "ctor_abort", "");
    daemon.write("extensions/unbuilt/manifest.yaml", "id: unbuilt\nname: x\nentrypoint: libunbuilt\n");
    let target = daemon.path().join("target");
    std::fs::create_dir_all(target.join("debug")).expect("a folder");
    std::fs::copy(built("torture"), target.join("debug/libunbuilt.so")).expect("it is built with the tests");
    let mut command = daemon.command(&["ext", "check", "--load", "--json", "extensions"]);
    let output = command.env("CARGO_TARGET_DIR", "target").output().expect("drupe runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let loaded = |id: &str| {
        let loaded = report["loaded"].as_array().and_then(|all| all.iter().find(|one| one["id"] == id));
        loaded.cloned().unwrap_or_default()
    };
    let torture = loaded("torture");
    let tools = torture["tools"].as_array().expect("tools");
    let waits = tools.iter().find(|tool| tool["tool"] == "torture_wait").expect("the tool");
    assert!(waits["bytes"].as_u64() > Some(20) && torture["fault"].is_null(), "{torture:#}");
    assert_eq!(torture["asks"], json!(["native code", "the rights submit"]), "{torture:#}");
    assert!(loaded("aborts")["fault"].to_string().contains("refused"), "{report:#}");
    assert!(loaded("unbuilt").is_null() && report["ok"] == false, "{report:#}");
    let said = crate::harness::text(&output.stderr);
    assert!(said.contains("target/debug/libunbuilt.so") && said.contains("CARGO_TARGET_DIR"), "{said}");
    let why = states(&report["extensions"]).into_iter().find(|((id, _), _)| id == "unbuilt");
    assert!(why.is_some_and(|(_, (_, why))| why.contains("target/release")), "{report:#}");
    // What was only looked at left nothing behind.
    assert!(!daemon.path().join("data/torture").exists());
}
