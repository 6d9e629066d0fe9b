//! Requests as they go out.

use drupe_extension_api::{Format, ModelParameters, OutputSpec};
use serde_json::{Value, json};

use super::*;
use crate::{
    messages::MessagesApi,
    samples::{self, body, facts, refused},
    settings::{Endpoint, Thinking as How},
};

fn cached() -> Value {
    json!({"type": "ephemeral"})
}

#[test]
fn a_transcript_is_written_as_providers_read_it() {
    let items = json!([{"at": 0, "type": "thinking", "thinking": "hm", "signature": "s"}]);
    let tool_use = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    assert_eq!(
        body(
            &MessagesApi::at(&Endpoint::default()),
            &facts("m"),
            &samples::transcript(Some(("kind:p/m", items.clone())))
        ),
        json!({
            "model": "m",
            "stream": true,
            "max_tokens": 100,
            "system": [{"type": "text", "text": "be brief", "cache_control": cached()}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi \"you\""}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "so"},
                    tool_use("c1", "kv_dot_get", json!({"b": 1, "a": 2})),
                    tool_use("c2", "x", json!({"invalid": "{broken"})),
                    tool_use("c3", "y", json!({})),
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "red"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": true},
                    {"type": "tool_result", "tool_use_id": "c3", "content": "(empty)"},
                    {"type": "text", "text": "go on", "cache_control": cached()},
                ]},
            ],
            "tools": [{
                "name": "kv_dot_get", "description": "does kv.get",
                "input_schema": {"type": "object", "properties": {}}, "cache_control": cached(),
            }],
        })
    );
    let others = body(
        &MessagesApi::at(&Endpoint::default()),
        &facts("m"),
        &samples::transcript(Some(("kind:p/other", items))),
    );
    assert!(!others.to_string().contains("signature"), "{others}");
}

#[test]
fn tools_that_are_offered_no_more_are_still_named() {
    let mut request = samples::transcript(None);
    request.tools = Arc::default();
    let extra = [("tool_choice".to_owned(), json!({"type": "any"}))].into_iter().collect();
    request.parameters = Arc::new(ModelParameters { extra, ..Default::default() });
    let text = samples::written(&MessagesApi::at(&Endpoint::default()), &facts("m"), &request);
    assert_eq!(text.matches("tool_choice").count(), 1, "{text}");
    let written = body(&MessagesApi::at(&Endpoint::default()), &facts("m"), &request);
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    assert_eq!(written.get("tools"), Some(&json!([tool("kv_dot_get"), tool("x"), tool("y")])));
    assert_eq!(written.pointer("/tool_choice/type"), Some(&json!("none")));
}

#[test]
fn ids_of_other_providers_are_written_so_that_the_api_takes_them() {
    let mut request = samples::transcript(None);
    let mut messages: Vec<_> = request.messages.iter().map(|m| (**m).clone()).collect();
    for message in &mut messages {
        match message {
            Message::Assistant { tool_calls, .. } => "a:b".clone_into(&mut tool_calls[0].call_id),
            Message::Tool { call_id, .. } if call_id == "c1" => "a:b".clone_into(call_id),
            _ => {}
        }
    }
    request.messages = Arc::new(messages.into_iter().map(Arc::new).collect());
    let written = body(&MessagesApi::at(&Endpoint::default()), &facts("m"), &request);
    assert_eq!(written.pointer("/messages/1/content/1/id"), Some(&json!("call_a_b")));
    assert_eq!(written.pointer("/messages/2/content/0/tool_use_id"), Some(&json!("call_a_b")));
}

#[test]
fn every_parameter_reaches_the_provider_under_its_name_or_is_refused() {
    let parameters = ModelParameters {
        temperature: Some(0.5),
        stop: vec!["END".to_owned()],
        extra: [("service_tier".to_owned(), json!("auto"))].into_iter().collect(),
        ..ModelParameters::default()
    };
    assert_eq!(refused(&MessagesApi::at(&Endpoint::default()), &facts("m"), &parameters), "");
    let mut request = samples::request(Vec::new(), Vec::new(), parameters);
    request.output =
        Some(Arc::new(OutputSpec { format: Format::Json, schema: Some(json!({"type": "object"})) }));
    let written = body(&MessagesApi::at(&Endpoint::default()), &facts("m"), &request);
    for (key, value) in [
        ("/temperature", json!(0.5)),
        ("/stop_sequences", json!(["END"])),
        ("/service_tier", json!("auto")),
        ("/system/1/cache_control", cached()),
    ] {
        assert_eq!(written.pointer(key), Some(&value), "{key}");
    }
    assert!(written.pointer("/system/0/cache_control").is_none());
    let words = written.pointer("/system/1/text").and_then(Value::as_str).unwrap_or_default();
    assert!(words.ends_with(r#"{"type":"object"}"#), "{words}");
    let (temperature, top_p, reasoning) = (Some(0.5), Some(0.5), Some(Reasoning::High));
    for (parameters, part) in [
        (ModelParameters { seed: Some(1), ..Default::default() }, "`seed`: the Messages API has no such"),
        (ModelParameters { temperature: Some(1.5), ..Default::default() }, "from 0 to 1"),
        (ModelParameters { temperature, top_p, ..Default::default() }, "one of them"),
        (ModelParameters { temperature, reasoning, ..Default::default() }, "where it reasons"),
        (ModelParameters { reasoning, max_output_tokens: Some(2_000), ..Default::default() }, "2048 or more"),
    ] {
        let text = refused(&MessagesApi::at(&Endpoint::default()), &older(), &parameters);
        assert!(text.contains(part), "{text}");
    }
}

/// A model that is told by a number of tokens.
fn older() -> Facts {
    Facts { thinking: Some(How::Budget), ..facts("m") }
}

#[test]
fn thinking_has_what_the_answer_leaves_it_and_does_not_begin_in_the_middle_of_a_turn() {
    let budget = |reasoning, tokens: u32, messages: &[Message]| {
        let parameters = ModelParameters { reasoning: Some(reasoning), ..Default::default() };
        let mut request = samples::request(messages.to_vec(), Vec::new(), parameters);
        request.max_output_tokens = tokens;
        body(&MessagesApi::at(&Endpoint::default()), &older(), &request)
            .pointer("/thinking/budget_tokens")
            .and_then(Value::as_u64)
    };
    let first = [Message::User { content: "hi".to_owned() }];
    for (reasoning, tokens, expected) in [
        (Reasoning::None, 64_000, None),
        (Reasoning::Low, 64_000, Some(2_048)),
        (Reasoning::High, 64_000, Some(24_576)),
        (Reasoning::High, 4_096, Some(3_072)),
        (Reasoning::High, 2_047, None),
    ] {
        assert_eq!(budget(reasoning, tokens, &first), expected, "{reasoning:?} {tokens}");
    }
    let items = json!([{"at": 0, "type": "thinking", "thinking": "hm", "signature": "s"}]);
    for (items, expected) in [(None, None), (Some(("kind:p/m", items)), Some(2_048))] {
        let transcript = samples::transcript(items);
        let messages: Vec<_> = transcript.messages[..5].iter().map(|m| (**m).clone()).collect();
        assert_eq!(budget(Reasoning::Low, 64_000, &messages), expected);
    }
}

#[test]
fn newer_models_think_adaptively_within_an_effort_and_are_told_so_in_the_middle_of_a_turn_too() {
    let sent = |thinking: Option<How>, reasoning: Option<Reasoning>| {
        let mut request = samples::transcript(None);
        request.parameters = Arc::new(ModelParameters { reasoning, ..Default::default() });
        let written =
            body(&MessagesApi::at(&Endpoint::default()), &Facts { thinking, ..facts("m") }, &request);
        (written.get("thinking").cloned(), written.pointer("/output_config/effort").cloned())
    };
    let adaptive = Some(json!({"type": "adaptive", "display": "summarized"}));
    let off = |kind: &str| Some(json!({"type": kind}));
    for thinking in
        [None, Some(How::Adaptive { between_tools: false }), Some(How::Adaptive { between_tools: true })]
    {
        let least = if thinking == Some(How::Adaptive { between_tools: true }) {
            "between_tools"
        } else {
            "disabled"
        };
        assert_eq!(sent(thinking, Some(Reasoning::High)), (adaptive.clone(), Some(json!("high"))));
        assert_eq!(sent(thinking, Some(Reasoning::Low)), (adaptive.clone(), Some(json!("low"))));
        assert_eq!(sent(thinking, Some(Reasoning::None)), (off(least), None));
        assert_eq!(sent(thinking, None), (None, None));
    }
}

#[test]
fn what_the_api_takes_depends_on_its_version() {
    let at = |version: &str| {
        let headers = [("Anthropic-Version".to_owned(), version.to_owned())].into();
        MessagesApi::at(&Endpoint { headers, ..Endpoint::default() })
    };
    let warm = ModelParameters { temperature: Some(1.0), ..Default::default() };
    assert_eq!(refused(&at("2023-06-01"), &facts("m"), &warm), "");
    let text = refused(&at("2026-10-21"), &facts("m"), &warm);
    assert!(text.contains("from version 2026-10-21 on"), "{text}");
    assert_eq!(refused(&at("2026-10-21"), &facts("m"), &ModelParameters::default()), "");
}
