//! Events of a session, and what an editor makes of the updates.

use super::*;

/// An event of the root's run, or of a sub-agent's.
fn event(depth: u32, kind: &str, data: Value) -> Event {
    serde_json::from_value(json!({
        "seq": 1, "time": "2026-03-01T10:00:00Z", "session": "s", "turn": "t1",
        "agent": { "id": "haiku", "invocation": "i-1", "depth": depth }, "kind": kind, "data": data,
    }))
    .expect("an event")
}

fn item(id: &str, kind: &str, output: &str) -> Value {
    json!({ "id": id, "type": kind, "output": { "text": output, "bytes": output.len() } })
}

struct Scene(Translation);

impl Scene {
    fn new() -> Self {
        let mut scene = Self(Translation::new("/project"));
        scene.takes("interaction.turn.started", json!({ "input": { "text": "go", "bytes": 2 } }));
        scene.takes("interaction.item.started", json!({ "item": { "id": "m", "type": "agent_message" } }));
        scene
    }

    fn takes(&mut self, kind: &str, data: Value) -> Vec<ShownPiece> {
        self.0.take(&event(0, kind, data))
    }

    fn streams(&mut self, delta: &str) -> Vec<ShownPiece> {
        self.takes("interaction.item.updated", json!({ "id": "m", "item": "agent_message", "delta": delta }))
    }

    fn ends(&mut self, text: &str) -> Vec<ShownPiece> {
        let item = item("m", "agent_message", text);
        self.takes("interaction.item.completed", json!({ "item": item, "outcome": "ok", "elapsed_ms": 1 }))
    }
}

fn chunk(text: &str, message: &str) -> Vec<ShownPiece> {
    vec![ShownPiece::Update(updates::chunk("agent_message_chunk", text, message))]
}

#[test]
fn a_message_is_sent_once_however_it_came() {
    let mut scene = Scene::new();
    assert_eq!(scene.streams("Hel"), chunk("Hel", "m"));
    assert_eq!(scene.ends("Hello"), chunk("lo", "m"), "what did not stream");
    assert_eq!(Scene::new().ends("Hello"), chunk("Hello", "m"), "nothing did");
    let mut scene = Scene::new();
    scene.streams("Hel");
    scene.takes("interaction.stream.skipped", Value::Null);
    assert_eq!(scene.streams("d!"), vec![], "a part before it is missing");
    assert_eq!(scene.ends("Hello, world!"), chunk("lo, world!", "m"));
}

#[test]
fn an_answer_that_begins_anew_is_another_message() {
    let mut scene = Scene::new();
    scene.streams("Par");
    let told = scene.takes("interaction.stream.reset", json!({ "id": "m", "reason": "it broke" }));
    assert!(matches!(&told[..], [ShownPiece::Notice { title, .. }] if title.contains("void")), "{told:?}");
    assert_eq!(scene.streams("In "), chunk("In ", "m#1"));
    assert_eq!(scene.ends("In France"), chunk("France", "m#1"));
}

#[test]
fn what_a_sub_agent_says_is_no_answer() {
    let mut scene = Scene::new();
    let data = json!({ "item": item("n", "agent_message", "hm"), "outcome": "ok", "elapsed_ms": 1 });
    let shown = scene.0.take(&event(1, "interaction.item.completed", data));
    let thought = updates::chunk("agent_thought_chunk", "haiku: hm", "n");
    assert_eq!(shown, vec![ShownPiece::Update(thought)]);
    let spend = json!({ "status": "success", "spend": {} });
    let ended = scene.takes("interaction.turn.completed", spend);
    assert!(matches!(&ended[..], [ShownPiece::Answer(_), ShownPiece::Ended(..)]), "it is read: {ended:?}");
}

#[test]
fn how_a_turn_ended_is_told_in_the_words_of_the_protocol() {
    let of = |status: &str, class: Value, limit: Option<&str>| TurnEnding {
        status: serde_json::from_value(json!(status)).expect("a status"),
        error: None,
        class: serde_json::from_value(class).expect("a class"),
        limit: limit.map(str::to_owned),
        spend: Spend::default(),
    };
    for (ending, reason) in [
        (of("success", Value::Null, None), Some("end_turn")),
        (of("refused", json!("refused"), None), Some("refusal")),
        (of("error", json!("cancelled"), None), Some("cancelled")),
        (of("error", json!("budget"), Some("max_turns")), Some("max_turn_requests")),
        (of("error", json!("budget"), Some("limits.day.max_tokens")), Some("max_tokens")),
        (of("error", json!("budget"), Some("max_cost_usd")), None),
        (of("error", json!("network"), None), None),
    ] {
        assert_eq!(ending.stop_reason(), reason, "{ending:?}");
    }
}

#[test]
fn a_plan_is_shown_with_how_far_it_is() {
    let mut scene = Scene::new();
    let plan = r#"{"items": [{"step": "a", "status": "done"}, {"step": "b", "status": "in_progress"}, {"step": "c"}]}"#;
    let data = json!({ "id": "p", "item": "todo_list", "delta": plan });
    let shown = scene.takes("interaction.item.updated", data);
    let [ShownPiece::Update(shown)] = &shown[..] else { panic!("{shown:?}") };
    let states: Vec<_> = shown["entries"].as_array().expect("entries").iter().map(|e| &e["status"]).collect();
    assert_eq!(states, ["completed", "in_progress", "pending"]);
}

#[test]
fn a_change_of_a_file_stays_shown_once_it_is_made() {
    for (outcome, replaced) in [("ok", false), ("error", true)] {
        let mut scene = Scene::new();
        let input = r#"{"path": "a.rs", "old": "x", "new": "y"}"#;
        let call = json!({
            "id": "e", "type": "file_change", "name": "files_edit", "input": { "text": input, "bytes": input.len() },
        });
        let begun = scene.takes("interaction.item.started", json!({ "item": call }));
        let [ShownPiece::Update(begun)] = &begun[..] else { panic!("{begun:?}") };
        assert_eq!(begun["content"][0]["type"], "diff", "{begun}");
        let item = item("e", "file_change", "edited");
        let data = json!({ "item": item, "outcome": outcome, "elapsed_ms": 1 });
        let ended = scene.takes("interaction.item.completed", data);
        let [ShownPiece::Update(ended)] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!(ended.get("content").is_some(), replaced, "{ended}");
    }
}
