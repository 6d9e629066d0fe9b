//! What drupe is for: somebody asks for a new agent, and after a restart it is there.

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest, offered},
};

const WISH: &str = "create an agent called haiku that writes haikus";

/// Asks for the agent, waits for the restart that the builder requests, and uses what was made.
fn check(daemon: &Daemon) -> Value {
    let before = daemon.until_ready();
    let made = daemon.turn("wish", WISH);
    assert_eq!(made["status"], "success", "{made}\n{}", daemon.log());
    let after = daemon.until_status("a new kernel with the agent", |s| {
        s["state"] == "ready"
            && s["generation"] != before["generation"]
            && s["extensions"]
                .as_array()
                .is_some_and(|e| e.iter().any(|e| e["id"] == "haiku" && e["state"] == "active"))
    });
    assert_eq!(after["supervisor_pid"], before["supervisor_pid"]);
    assert!(after["exits"].as_array().is_some_and(|e| e.iter().all(|e| e["crash"] == false)), "{after}");
    let told = daemon.events("wish");
    let restarted =
        told.iter().find(|e| e["kind"] == "kernel.lifecycle" && e["data"]["state"] == "restarted");
    assert!(
        restarted.is_some_and(|e| e["data"]["reason"].as_str().is_some_and(|r| r.contains("haiku"))),
        "{told:?}"
    );
    made
}

fn agents_of(turn: &Value) -> Vec<&str> {
    let invocations = turn["invocations"].as_array().expect("a list");
    invocations.iter().map(|i| i["agent"].as_str().expect("an id")).collect()
}

#[test]
fn with_the_offline_model_the_builder_makes_an_agent_that_answers_after_the_restart() {
    let daemon = Daemon::start("");
    let made = check(&daemon);
    assert_eq!(agents_of(&made), ["orchestrator", "builder_agent", "builder_agent"], "{made}");
    let direct = daemon.turn("direct", "@haiku rust");
    assert_eq!((&direct["status"], agents_of(&direct)), (&json!("success"), vec!["haiku"]), "{direct}");
    assert!(
        direct["content"].as_str().is_some_and(|c| c.contains("rust") && c.contains("language model")),
        "{direct}"
    );
    let routed = daemon.turn("routed", "please write some haikus about autumn");
    assert_eq!(agents_of(&routed), ["orchestrator", "haiku"], "{routed}");
}

#[test]
fn over_the_real_wire_format_a_model_makes_an_agent_that_answers_after_the_restart() {
    let server = ModelServer::start(|request| {
        let tools = offered(request);
        let messages = request["messages"].as_array().expect("messages");
        let step = messages.iter().filter(|m| m["role"] == "assistant" && !m["tool_calls"].is_null()).count();
        let has = |name: &str| tools.iter().any(|t| t == name);
        let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
        let (role, text) = latest(request);
        if has("builder_draft") {
            return match step {
                0 => call("builder_draft", json!({"id": "haiku", "purpose": "writes haikus"})),
                1 => call(
                    "builder_patch",
                    json!({"id": "haiku", "file": "prompt.md", "find": "Do the task", "replace": "Do your task"}),
                ),
                2 => call("builder_check", json!({"id": "haiku"})),
                3 => call("builder_activate", json!({"id": "haiku"})),
                4 => call("builder_restart", json!({"reason": "haiku was made"})),
                _ => Say::Text("I made haiku.".into()),
            };
        }
        if role == "tool" {
            return Say::Text(format!("The agent said: {text}"));
        }
        if has("agent_haiku") && text.contains("haiku") {
            return call("agent_haiku", json!({"task": text}));
        }
        if has("agent_builder_agent") {
            return call("agent_builder_agent", json!({"task": text}));
        }
        Say::Text(format!("five seven five: {text}"))
    });
    let daemon = Daemon::start(&server.config());
    check(&daemon);
    let direct = daemon.turn("direct", "@haiku rust");
    assert_eq!(direct["content"], "five seven five: rust", "{direct}");
    let routed = daemon.turn("routed", "a haiku about autumn");
    assert_eq!(agents_of(&routed), ["orchestrator", "haiku"], "{routed}");
    assert!(routed["content"].as_str().is_some_and(|c| c.contains("five seven five")), "{routed}");
    let prompt =
        std::fs::read_to_string(daemon.path().join("extensions/haiku/prompt.md")).expect("the prompt");
    assert!(prompt.contains("Do your task"), "{prompt}");
}

#[test]
fn with_a_script_the_builder_makes_an_agent_that_answers_after_the_restart() {
    let daemon = Daemon::home(
        "models:\n  aliases: {default: script}\n  providers:\n    script: {kind: scripted, file: flow.yaml}\n",
    );
    daemon.write("flow.yaml", include_str!("../fixtures/make_haiku.yaml"));
    let mut daemon = daemon;
    daemon.run();
    check(&daemon);
    let direct = daemon.turn("direct", "@haiku rust");
    assert_eq!(direct["content"], "Old crab, silent shell", "{direct}");
}

#[test]
fn what_the_builder_makes_does_not_work_before_the_operator_agrees_to_what_it_brings() {
    let server = ModelServer::start(|request| {
        let step = request["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
        if !offered(request).iter().any(|t| t == "builder_draft") {
            return match step {
                0 => call("agent_builder_agent", json!({"task": "make a spy"})),
                _ => Say::Text(latest(request).1),
            };
        }
        let manifest = "id: spy\nname: Spy\ndescription: Spies.\nrights: [control]\nagent: {model: default, instructions: \"\"}\n";
        match step {
            0 => call("builder_write", json!({"id": "spy", "file": "manifest.yaml", "content": manifest})),
            1 => call("builder_write", json!({"id": "../kv", "file": "manifest.yaml", "content": manifest})),
            2 => call("builder_write", json!({"id": "spy", "file": "../../../drupe.yaml", "content": "x"})),
            3 => call("builder_activate", json!({"id": "spy"})),
            _ => Say::Text("It waits.".into()),
        }
    });
    let daemon = Daemon::start(&server.config());
    daemon.turn("s", "make a spy");
    let (state, reason) = daemon.extension("spy");
    assert!(state == "awaiting_approval" && reason.contains("the rights"), "{state}: {reason}");
    let agents = daemon.client().ask("agents.list", json!({})).expect("a list").to_string();
    assert!(!agents.contains("spy"), "{agents}");
    assert!(!daemon.path().join("data/kv/manifest.yaml").exists());
    let last = server.requests().into_iter().rfind(|r| offered(r).iter().any(|t| t == "builder_draft"));
    let results: Vec<String> = last.expect("the builder ran")["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|m| m["role"] == "tool")
        .map(|m| m["content"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(results[1].contains("not valid here"), "{results:?}");
    assert!(results[2].contains("no file that a draft can have"), "{results:?}");
    assert!(results[3].contains("rights") && results[3].contains("drupe approvals allow"), "{results:?}");
}
