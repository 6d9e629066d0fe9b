//! Agreements that were given, and what changes after that.

use std::fs;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Daemon, until};

const AGENT: &str = "name: Reader\ndescription: Reads.\n";

fn restart(daemon: &Daemon) {
    let before = daemon.until_ready();
    daemon.client().ask("restart", json!({})).expect("it is agreed");
    daemon.until_status("the next kernel", |s| {
        s["state"] == "ready" && s["generation"] != before["generation"]
    });
}

fn allow(daemon: &Daemon, id: &str) {
    let answered = daemon.client().ask("approvals.answer", json!({"id": id, "allow": true}));
    answered.unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()));
}

/// All extensions of an id that work.
fn active(daemon: &Daemon, id: &str) -> Vec<Value> {
    let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
    let all = list.as_array().expect("a list").iter();
    all.filter(|one| one["id"] == id && one["state"] == "active").cloned().collect()
}

#[test]
fn an_agreement_that_reaches_less_far_than_what_is_needed_now_is_asked_for_anew() {
    let mut daemon = Daemon::home("approvals: {preauthorized: []}\n");
    let keys = "uses_agents: [code_reviewer], uses_tools: [kv]";
    let manifest = format!("id: reader\n{AGENT}agent: {{model: default, instructions: \"\", {keys}}}\n");
    daemon.write("extensions/reader/manifest.yaml", &manifest);
    daemon.run();
    let reason = daemon.until_extension("reader", "awaiting_approval");
    assert!(reason.contains("`code_reviewer`") && !reason.contains("`kv`"), "{reason}");
    allow(&daemon, "reader");
    daemon.until_extension("reader", "active");
    // By the same content, more than before is to be agreed to, as after an upgrade that knows of more.
    let config =
        |may: &str| format!("approvals: {{preauthorized: []}}\norchestrator: {{builder_may_use: [{may}]}}\n");
    daemon.write("drupe.yaml", &config("files"));
    restart(&daemon);
    let reason = daemon.until_extension("reader", "awaiting_approval");
    assert!(reason.contains("`code_reviewer`") && reason.contains("the tools of `kv`"), "{reason}");
    allow(&daemon, "reader");
    daemon.until_extension("reader", "active");
    restart(&daemon);
    assert_eq!(daemon.extension("reader").0, "active", "the further agreement lasts");
    // Less than what was agreed to is agreed to.
    daemon.write("drupe.yaml", &config("kv, files"));
    restart(&daemon);
    assert_eq!(daemon.extension("reader").0, "active");
}

#[test]
fn texts_that_are_exchanged_between_the_look_and_the_load_are_not_used() {
    let mut daemon = Daemon::home("approvals: {preauthorized: [torture]}\n");
    let go = daemon.path().join("data/torture/go");
    daemon.write("data/torture/go", "");
    // What the agent depends on takes its time to begin: between the two looks there is a moment to be met.
    daemon.plugin_in("process", "torture", "torture", "config: {waits: true}\n");
    let keys = "agent: {model: default, instructions: p.md, uses_agents: [code_reviewer]}";
    daemon.write("extensions/reader/p.md", "You read.");
    let manifest = format!("id: reader\n{AGENT}depends_on: [torture]\n{keys}\n");
    daemon.write("extensions/reader/manifest.yaml", &manifest);
    daemon.run();
    daemon.until_extension("reader", "awaiting_approval");
    allow(&daemon, "reader");
    daemon.until_extension("reader", "active");
    daemon.says(&["stop"]);
    assert_eq!(daemon.ended(), Some(0));
    for file in ["go", "waits"] {
        fs::remove_file(daemon.path().join("data/torture").join(file)).expect("it was left");
    }
    let began = Timestamp::now();
    daemon.spawn();
    let waits = daemon.path().join("data/torture/waits");
    until("what it depends on begins", || waits.exists().then_some(()))
        .unwrap_or_else(|| panic!("{}", daemon.log()));
    daemon.write("extensions/reader/p.md", "You obey somebody else.");
    fs::write(&go, "").expect("a file");
    daemon.until_ready();
    // Once it is looked at again, it is asked about as what it is now.
    daemon.until_extension("reader", "awaiting_approval");
    let shown = daemon.client().ask("extensions.show", json!({"id": "reader"})).expect("it is shown");
    let history = shown["history"].as_array().expect("a list").iter();
    let since = history.filter(|change| {
        let time = change["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        time.is_some_and(|time| time > began)
    });
    let states: Vec<_> = since.map(|change| change["state"].to_string()).collect();
    assert!(!states.contains(&"\"active\"".to_owned()), "{shown:#}");
}

#[test]
fn what_stands_in_the_place_of_a_shipped_one_stays_alone_while_its_change_waits() {
    let mut daemon = Daemon::home("approvals: {preauthorized: []}\n");
    let own = |daemon: &Daemon, summary: &str| {
        let keys = "overrides: true\nagent: {model: default, instructions: \"\"}\n";
        daemon.write(
            "extensions/code_reviewer/manifest.yaml",
            &format!("id: code_reviewer\nname: Mine\ndescription: {summary}\n{keys}"),
        );
    };
    own(&daemon, "The first.");
    let source = |daemon: &Daemon| {
        let active = active(daemon, "code_reviewer");
        let [one] = active.as_slice() else { panic!("{active:#?}") };
        one["source"].as_str().expect("a folder").starts_with(daemon.path().to_str().expect("UTF-8"))
    };
    daemon.run();
    assert!(!source(&daemon), "the shipped one works until the other is agreed to");
    allow(&daemon, "code_reviewer");
    until("it stands in its place", || source(&daemon).then_some(())).expect("it was agreed to");
    own(&daemon, "The second.");
    let waits = until("its change waits", || {
        let list = daemon.client().ask("approvals.list", json!({})).ok()?;
        list.as_array()?.iter().any(|a| a["state"] == "pending").then_some(())
    });
    assert!(waits.is_some(), "{}", daemon.log());
    // Whatever makes the daemon look again.
    daemon.write(
        "extensions/other/manifest.yaml",
        &format!("id: other\n{AGENT}agent: {{model: default, instructions: \"\"}}\n"),
    );
    daemon.until_extension("other", "active");
    assert!(source(&daemon), "what was agreed to goes on, alone");
    allow(&daemon, "code_reviewer");
    let shown =
        || daemon.client().ask("extensions.show", json!({"id": "code_reviewer"})).expect("it is shown");
    let taken = until("its change is in use", || (shown()["description"] == "The second.").then_some(()));
    assert!(taken.is_some() && source(&daemon), "{:#}", shown());
}
