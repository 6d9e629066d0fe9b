//! Schemas of answers that come with a message or from an agent's code. What they would cost is found out before anything
//! compiles them, sends them to a provider or records them.

use std::sync::Arc;

use drupe_agent::SystemClock;
use drupe_extension_api::{Format, OutputSpec, wire::Submit};
use drupe_journal::{Inbound, Origin, Storage, Store};
use serde_json::{Map, Value, json};

use crate::{
    harness::{Daemon, unique},
    retention::wait,
};

/// A schema that is small to write down and applies its last part two to the power of forty times.
fn exponential() -> Value {
    let mut parts: Map<String, Value> = (0..40)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/p{}", n + 1)});
            (format!("p{n}"), json!({"anyOf": [{"allOf": [next, false]}, {"allOf": [next, false]}]}))
        })
        .collect();
    parts.insert("p40".into(), json!({"type": "string"}));
    json!({"$ref": "#/$defs/p0", "$defs": parts})
}

/// Each with what is said of it.
fn hostile() -> Vec<(Value, &'static str)> {
    let costly: Vec<_> = (0..500).map(|_| json!({"pattern": r"^(\p{L}{50}){40}$"})).collect();
    let mut deep = json!({});
    for _ in 0..60 {
        deep = json!({"items": deep});
    }
    vec![
        (exponential(), "steps"),
        (json!({"anyOf": costly}), "pattern"),
        (json!({"pattern": "(?=a)b"}), "cannot be used"),
        (json!({"$ref": "https://example.com/a.json"}), "does not lead to a part"),
        (json!({"$ref": "file:///etc/passwd"}), "does not lead to a part"),
        (json!({"$dynamicRef": "#a"}), "$dynamicRef"),
        (json!({"type": "nothing"}), "nothing"),
        (json!({"description": "x".repeat(100_000)}), "100018 bytes"),
        (deep, "levels deep"),
        (json!("text"), "cannot be used"),
    ]
}

fn json_answer(schema: &Value) -> Value {
    json!({"format": "json", "schema": schema})
}

#[test]
fn a_message_with_a_schema_that_costs_too_much_or_is_none_is_refused_before_it_is_recorded() {
    let daemon = Daemon::start("");
    let before = daemon.until_ready();
    let mut client = daemon.client();
    for (schema, says) in hostile() {
        let id = unique();
        let submit = json!({"external_id": id, "session": id, "text": "hi", "output": json_answer(&schema)});
        let error = client.ask("turn.submit", submit).expect_err("it is refused");
        assert!(error.contains("\"invalid\"") && error.contains("the schema of the answer"), "{error}");
        assert!(error.contains(says), "{says}: {error}");
        assert!(client.ask("sessions.show", json!({"id": id})).is_err(), "nothing was recorded");
    }
    let id = unique();
    let unbound =
        json!({"external_id": id, "session": id, "text": "hi", "output": {"schema": {"type": "object"}}});
    let error = client.ask("turn.submit", unbound).expect_err("a schema that would not be kept is refused");
    assert!(error.contains("needs `format: json`"), "{error}");
    let plain = json!({"type": "object", "properties": {"answer": {"type": "string"}}});
    let usual = json!({"external_id": id, "session": id, "text": "hi", "output": json_answer(&plain)});
    let turn = client.ask("turn.submit", usual).expect("a usual one is taken in")["turn"].clone();
    assert_eq!(daemon.wait(turn.as_str().expect("a turn"))["status"], "success");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"], "{}", daemon.log());
}

#[test]
fn an_extension_hands_no_such_schema_in_and_runs_no_agent_with_one() {
    let mut daemon = Daemon::home("");
    daemon.plugin("post", "watcher", "rights: [submit]\nconfig: {prefix: post}\n");
    daemon.run();
    let before = daemon.until_ready();
    for (schema, says) in hostile().into_iter().filter(|(schema, _)| schema.to_string().len() < 8_000) {
        let output = json_answer(&schema);
        let send = json!({"session": "post:a", "text": "hi", "output": output});
        let told = daemon.turn("s", &format!("post_send {send}")).to_string();
        assert!(told.contains("0 taken in") && told.contains("the schema of the answer"), "{told}");
        assert!(told.contains(says), "{says}: {told}");
        let run = json!({"task": "hi", "definition": {"id": "post", "output": output}});
        let told = daemon.turn("s", &format!("post_run {run}")).to_string();
        assert!(told.contains("the schema of the answer") && told.contains(says), "{says}: {told}");
    }
    let run = json!({"task": "hi", "definition": {"id": "post", "output": {"format": "json", "schema": {}}}});
    let ran = daemon.turn("s", &format!("post_run {run}"));
    assert_eq!(ran["invocations"].as_array().map(Vec::len), Some(2), "a usual one runs: {ran}");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"], "{}", daemon.log());
}

#[test]
fn a_message_with_such_a_schema_that_an_earlier_release_took_in_ends_with_the_reason() {
    let mut daemon = Daemon::home("");
    let storage = Storage::Full(daemon.path().join("journal.db"));
    let store = Store::open(&storage, Arc::new(SystemClock), Arc::new(|_| ())).expect("a journal");
    let ask = Submit {
        output: Some(OutputSpec { format: Format::Json, schema: Some(exponential()) }),
        ..Submit::new("s".parse().expect("an id"), unique(), "hi")
    };
    let turn = wait(store.accept(Inbound::new(ask, Origin::OPERATOR))).expect("accepted").turn;
    drop(store);
    daemon.run();
    let ended = daemon.wait(turn.as_str());
    assert_eq!((&ended["status"], &ended["class"]), (&json!("error"), &json!("config")), "{ended}");
    assert!(ended.to_string().contains("steps"), "{ended}");
}
