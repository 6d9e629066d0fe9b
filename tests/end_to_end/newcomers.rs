//! Extensions that take names of others, or add more to the requests of others than anybody could read: they fail, they
//! are told why, and everybody else goes on.

use std::{fs::OpenOptions, io::Write as _};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, offered},
};

const HAIKU: &str = "id: haiku\nname: Haiku\ndescription: Writes haikus.\nagent: {model: default, instructions: You write haikus.}\n";

/// A daemon with an agent of the home, what `prepare` adds, and a model that calls the tool that the user's message names.
fn daemon(prepare: impl FnOnce(&Daemon)) -> (ModelServer, Daemon) {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&format!("{}approvals: {{preauthorized: all}}\n", server.config()));
    daemon.write("extensions/haiku/manifest.yaml", HAIKU);
    prepare(&daemon);
    daemon.run();
    (server, daemon)
}

fn plugin(daemon: &Daemon, id: &str, tool: &Value) {
    let config = json!({"prefix": id, "tools": [tool]});
    daemon.plugin(id, "faulty", &format!("config: {config}\n"));
}

fn announce(daemon: &Daemon, id: &str, tool: &Value) -> String {
    let tools = json!({"tools": [tool]});
    daemon.turn("s", &format!("{id}_announce {tools}"))["content"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_tool_cannot_take_the_name_of_an_agent_or_of_a_core_tool_at_boot() {
    // Their ids come before and after those of the agents.
    let taken = [
        ("aaa", "agent_code_reviewer", "code_reviewer"),
        ("aab", "agent_builder_agent", "builder_agent"),
        ("aac", "agent_haiku", "haiku"),
        ("zza", "Agent-Haiku", "haiku"),
        ("aad", "read_output", "read_output"),
        ("aae", "search_tools", "search_tools"),
        ("zzb", "Refuse", "refuse"),
        ("aaf", "kv_get", "kv"),
        ("aag", "kv-get", "kv"),
    ];
    let (server, daemon) = daemon(|daemon| {
        for (id, tool, _) in taken {
            plugin(daemon, id, &json!({"name": tool}));
            // Each with a content of its own.
            let library = OpenOptions::new().append(true).open(daemon.library(id));
            library.and_then(|mut library| library.write_all(id.as_bytes())).expect("a library");
        }
    });
    for (id, tool, owner) in taken {
        let (state, reason) = daemon.extension(id);
        assert!(
            state == "failed" && reason.contains(tool) && reason.contains(owner),
            "{id}: {state}: {reason}"
        );
    }
    for agent in ["code_reviewer", "builder_agent", "haiku", "kv"] {
        assert_eq!(daemon.extension(agent).0, "active", "{agent}");
    }
    daemon.turn("s", "hello");
    let tools = offered(&server.requests()[0]);
    for name in ["agent_code_reviewer", "agent_builder_agent", "agent_haiku", "kv_get"] {
        assert_eq!(tools.iter().filter(|tool| *tool == name).count(), 1, "{name}: {tools:?}");
    }
}

#[test]
fn a_tool_cannot_take_a_name_in_a_running_daemon_either() {
    let (_server, daemon) = daemon(|daemon| plugin(daemon, "later", &json!({"name": "later_more"})));
    for (tool, owner) in [
        ("agent_code_reviewer", "code_reviewer"),
        ("agent_builder_agent", "builder_agent"),
        ("agent_haiku", "haiku"),
        ("handoff_haiku", "haiku"),
        ("update_plan", "update_plan"),
        ("kv_get", "kv"),
        ("kv.get", "kv"),
    ] {
        let said = announce(&daemon, "later", &json!({"name": tool}));
        assert!(said.contains(tool) && said.contains(owner), "{tool}: {said}");
    }
    for id in ["code_reviewer", "builder_agent", "haiku", "kv", "later"] {
        assert_eq!(daemon.extension(id).0, "active", "{id}");
    }
    assert_eq!(daemon.turn("s", "later_more {}")["content"], "answered by later_more");
    assert_eq!(announce(&daemon, "later", &json!({"name": "later_else"})), "announced");
}

#[test]
fn the_one_that_was_there_first_keeps_its_name_also_over_a_restart() {
    let (_server, daemon) = daemon(|daemon| plugin(daemon, "words", &json!({"name": "words_count"})));
    assert_eq!(daemon.extension("words").0, "active");
    // Sorted by id it would come first.
    plugin(&daemon, "aaa", &json!({"name": "words_count"}));
    let refused = |daemon: &Daemon| {
        let reason = daemon.until_extension("aaa", "failed");
        assert!(reason.contains("words_count") && reason.contains("`words`"), "{reason}");
        assert_eq!(daemon.extension("words").0, "active");
        assert_eq!(daemon.turn("s", "words_count {}")["content"], "answered by words_count");
    };
    refused(&daemon);
    daemon.says(&["restart"]);
    daemon.until_ready();
    refused(&daemon);
}

#[test]
fn what_is_too_large_to_be_offered_fails_alone_and_the_turns_of_others_go_on() {
    let large = [
        ("large_text", json!({"name": "large_text_a", "instructions": 6 << 20}), "`instructions`"),
        ("large_words", json!({"name": "large_words_a", "description": 5 << 20}), "the description"),
        ("large_keys", json!({"name": "large_keys_a", "keys": 200_000}), "bytes long"),
        ("large_choice", json!({"name": "large_choice_a", "schema": {"anyOf": [{}]}}), "`anyOf`"),
    ];
    let (server, daemon) = daemon(|daemon| {
        for (id, tool, _) in &large {
            plugin(daemon, id, tool);
        }
        plugin(daemon, "later", &json!({"name": "later_more"}));
        let long = "x".repeat(20_000);
        daemon.write(
            "extensions/wordy/manifest.yaml",
            &HAIKU.replace("Writes haikus.", &format!("{long}.")).replace("haiku", "wordy"),
        );
    });
    for (id, _, says) in &large {
        let reason = daemon.until_extension(id, "failed");
        assert!(reason.contains(says) && reason.contains(id), "{id}: {reason}");
    }
    let (state, reason) = daemon.extension("wordy");
    assert!(state == "failed" && reason.contains("16384"), "{state}: {reason}");
    assert_eq!(daemon.turn("other", "later_more {}")["status"], "success");
    for (_, tool, says) in &large {
        let said = announce(&daemon, "later", tool);
        assert!(said.contains(says), "{said}");
        assert_eq!(daemon.turn("other", "later_more {}")["status"], "success", "after {says}");
    }
    let longest = server.requests().iter().map(|request| request.to_string().len()).max();
    assert!(longest.is_some_and(|bytes| bytes < 200_000), "{longest:?}");
}

#[test]
fn tools_that_would_fill_half_of_what_the_model_reads_are_brought_on_demand() {
    let tools: Vec<Value> =
        (0..12).map(|n| json!({"name": format!("wide_{n}"), "description": 8_000})).collect();
    let (server, daemon) = daemon(|daemon| {
        let config = json!({"prefix": "wide", "tools": tools});
        daemon.plugin("wide", "faulty", &format!("config: {config}\n"));
    });
    assert_eq!(daemon.extension("wide").0, "active");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let offered = offered(&server.requests()[0]);
    assert!(offered.iter().any(|tool| tool == "search_tools"), "{offered:?}");
    assert!(offered.iter().all(|tool| !tool.starts_with("wide_")), "{offered:?}");
    let shown = daemon.json(&["ext", "show", "wide", "--json"]);
    let one =
        shown["sizes"].as_array().and_then(|all| all.iter().find(|one| one["tool"] == "wide_3").cloned());
    assert!(one.is_some_and(|one| one["bytes"].as_u64().is_some_and(|bytes| bytes > 8_000)), "{shown}");
    let shown = daemon.json(&["agent", "show", "orchestrator", "--json"]);
    let one =
        shown["sizes"].as_array().and_then(|all| all.iter().find(|one| one["tool"] == "wide_3").cloned());
    assert!(one.is_some_and(|one| one["on_demand"] == true && one["extension"] == "wide"), "{shown}");
}
