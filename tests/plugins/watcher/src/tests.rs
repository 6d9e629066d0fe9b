use std::fs;

use drupe_extension_api::testing::{Harness, block_on};
use serde_json::json;

use super::*;

fn call(point: HookPoint, agent: &str) -> HookCall {
    HookCall { point, facts: json!({"agent": agent, "tool": "kv_get"}) }
}

#[test]
fn the_hook_does_what_the_configuration_says_of_that_point_and_agent() {
    let config: Config = serde_json::from_value(json!({"hooks": [
        {"at": "before_tool", "agent": "keeper", "does": "block"},
        {"at": "before_tool", "tool": "kv_set", "does": "hang"},
        {"at": "turn_start", "does": "fail"},
    ]}))
    .expect("a configuration");
    for (point, agent, expected) in [
        (HookPoint::BeforeTool, "keeper", Some(Act::Block)),
        (HookPoint::BeforeTool, "other", None),
        (HookPoint::AfterTool, "keeper", None),
        (HookPoint::TurnStart, "other", Some(Act::Fail)),
    ] {
        assert_eq!(config.act(&call(point, agent)), expected, "{point:?} {agent}");
    }
}

#[test]
fn without_configuration_it_gives_no_context_and_only_emits() {
    let watcher = block_on(Harness::<Watcher>::start(json!({}))).expect("it starts");
    let params = json!({"topic": "told", "payload": {"a": 1}});
    assert_eq!(block_on(watcher.call("watcher_emit", params)), Ok("emitted".to_owned()));
    assert_eq!(watcher.host().emitted(), [("told".to_owned(), json!({"a": 1}))]);
    assert_eq!(block_on(watcher.context_for("hello")), Ok(None));
}

#[test]
fn what_a_hook_is_told_is_written_down() {
    let config = json!({"points": ["turn_start"], "context": {"text": "note", "priority": 3}});
    let watcher = block_on(Harness::<Watcher>::start(config)).expect("it starts");
    assert_eq!(block_on(watcher.hook(call(HookPoint::TurnStart, "a"))), Ok(HookVerdict::Continue));
    let line = fs::read_to_string(watcher.data_folder().join("hooks.jsonl")).expect("a line");
    assert!(line.starts_with(r#"{"point":"turn_start","facts":{"agent":"a""#), "{line}");
    let text = ContextText { text: "note".into(), priority: 3, untrusted: false };
    assert_eq!(block_on(watcher.context_for("hello")), Ok(Some(text)));
}
