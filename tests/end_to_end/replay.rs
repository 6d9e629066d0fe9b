//! `drupe replay`: what was recorded gives the same again, what was altered is found, and two models stand side by side.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    text, until,
};

fn task(request: &Value) -> String {
    let (_, text) = latest(request);
    text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned()
}

fn agent(daemon: &Daemon, id: &str, prompt: &str, more: &str) {
    daemon.write(
        &format!("extensions/{id}/manifest.yaml"),
        &format!(
            "id: {id}\nname: {id}\ndescription: Works.\nagent:\n  model: default\n  instructions: {prompt}\n{more}"
        ),
    );
}

fn call(calls: &[(&str, Value)]) -> Say {
    Say::Call(calls.iter().map(|(name, params)| ((*name).to_owned(), params.clone())).collect())
}

/// The orchestrator does as it is told; agents write and keep.
fn model(request: &Value) -> Say {
    let system = request["messages"][0]["content"].as_str().unwrap_or_default();
    let (role, said) = latest(request);
    let task = task(request);
    let first = task.split(' ').next().unwrap_or_default();
    if system.contains("You are the poet.") {
        return match first {
            "weather" => call(&[("return_control", json!({"summary": "verses were made"}))]),
            _ => Say::Text(format!("poet: {task}")),
        };
    }
    if system.contains("You keep.") {
        return match role.as_str() {
            "user" => call(&[("kv_set", json!({"key": task, "value": "b"}))]),
            _ => Say::Text(format!("kept {said}")),
        };
    }
    match (role.as_str(), first) {
        ("user", "fan") => call(&[
            ("agent_keeper", json!({"task": "one"})),
            ("kv_set", json!({"key": "two", "value": "2"})),
            ("agent_keeper", json!({"task": "three"})),
        ]),
        ("user", "keep") => call(&[("kv_set", json!({"key": "a", "value": task}))]),
        ("user", "plan") => {
            call(&[("update_plan", json!({"items": [{"step": "look", "status": "done"}]})), ("kv_list", json!({}))])
        }
        ("user", "verse") => call(&[("handoff_poet", json!({"summary": "they like crabs"}))]),
        ("user", "skill") => call(&[("load_skill", json!({"name": "tidy"}))]),
        _ => Say::Text(format!("main: {said}")),
    }
}

fn scene(settings: &str) -> (ModelServer, Daemon) {
    let server = ModelServer::start(model);
    let mut daemon = Daemon::home(&(server.config() + settings));
    agent(&daemon, "keeper", "You keep.", "  uses_tools: [kv]\n");
    agent(&daemon, "poet", "You are the poet.", "  integration_mode: handoff\n");
    daemon.write("skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Keeps things tidy.\n---\nTidy up.\n");
    daemon.run();
    (server, daemon)
}

/// The replay of a session, which must find nothing.
fn the_same(daemon: &Daemon, session: &str) -> Value {
    let output = daemon.drupe(&["replay", session, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)));
    for turn in report["turns"].as_array().expect("a list") {
        assert_eq!(turn["verdict"], "same", "{turn:#}");
    }
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    report
}

#[test]
fn what_was_recorded_gives_the_same_again_without_a_model() {
    let (server, daemon) = scene("");
    for text in ["hello", "fan out", "keep this", "plan it", "skill please", "verse one", "more", "weather now", "bye"] {
        let turn = daemon.turn("s", text);
        assert_eq!(turn["status"], "success", "{text}: {turn}");
    }
    let turn = daemon.turn("s", "@keeper four");
    assert_eq!(turn["status"], "success", "{turn}");
    let asked = server.requests().len();
    let report = the_same(&daemon, "s");
    assert_eq!(server.requests().len(), asked, "no model is asked");
    let turns = report["turns"].as_array().expect("a list");
    assert_eq!(turns.len(), 10);
    let fan = &turns[1];
    assert_eq!((&fan["runs"], &fan["steps"], &fan["tool_calls"]), (&json!(3), &json!(6), &json!(5)), "{fan}");
    assert_eq!(turns[5]["runs"], 2, "both roots: {}", turns[5]);
    let shown = daemon.says(&["replay", "s", "--turn", "-1"]);
    assert!(shown.contains("the same, 1 run, 2 steps, 1 tool call") && shown.contains("1 the same, 0 with"), "{shown}");
}

/// Changes what the journal of a home that no daemon serves has.
fn alter(home: &Path, old: &str, new: &str) {
    let db = rusqlite::Connection::open(home.join("journal.db")).expect("a journal");
    let changed = db
        .execute("UPDATE log SET entries = replace(entries, ?1, ?2) WHERE instr(entries, ?1) > 0", (old, new))
        .expect("it is written");
    assert!(changed > 0, "`{old}` is in the journal");
}
