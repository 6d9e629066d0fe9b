use serde_json::{Value, json};

use super::*;

/// A turn that calls a model, a tool, and an agent, one attempt of whose model fails.
fn turn() -> TurnTrace {
    let usage = |input: u64, output: u64| json!({"input_tokens": input, "cached_tokens": 3, "output_tokens": output, "reasoning_tokens": 0});
    let node = |kind: &str, id: &str, name: &str, path: &[&str], started: &str, more: Value| {
        let mut node = json!({"kind": kind, "id": id, "name": name, "path": path,
            "started": format!("2026-03-01T10:00:{started}Z")});
        let more = more.as_object().expect("an object").clone();
        node.as_object_mut().expect("an object").extend(more);
        node
    };
    let main = &["orchestrator"][..];
    let both = &["orchestrator", "haiku"][..];
    let failed = node(
        "model",
        "i-2.1.0",
        "near/small",
        both,
        "03.0",
        json!({"elapsed_ms": 500, "outcome": "secret words", "class": "network", "usage": usage(0, 0)}),
    );
    let answered = node(
        "model",
        "i-2.1.1",
        "gemini/big/er",
        both,
        "03.5",
        json!({"elapsed_ms": 500, "outcome": "end", "usage": usage(7, 8), "cost_usd": 0.5}),
    );
    let remark = node("note", "s/9", "model_retry", both, "03.5", json!({"outcome": "an attempt failed"}));
    let child = node(
        "run",
        "i-2",
        "haiku",
        both,
        "02.9",
        json!({"elapsed_ms": 1_103, "outcome": "success", "nodes": [failed, remark, answered]}),
    );
    let agent = node(
        "tool",
        "e-2",
        "haiku",
        main,
        "02.9",
        json!({"elapsed_ms": 1_100, "outcome": "ok", "nodes": [child]}),
    );
    let tool = node(
        "tool",
        "e-1",
        "kv_get",
        main,
        "02.0",
        json!({"elapsed_ms": 4, "outcome": "error", "bytes_in": 12, "bytes_out": 34}),
    );
    let model = node(
        "model",
        "i-1.1.0",
        "near/small",
        main,
        "01.0",
        json!({"elapsed_ms": 900, "outcome": "tool_calls", "usage": usage(5, 6)}),
    );
    let vectors = node(
        "model",
        "i-1.0.1",
        "near/vectors",
        main,
        "01.0",
        json!({"elapsed_ms": 20, "outcome": "end", "usage": usage(2, 0)}),
    );
    let open = node("tool", "e-3", "shell_run", main, "04.1", json!({}));
    let root = node(
        "run",
        "i-1",
        "orchestrator",
        main,
        "01.0",
        json!({"elapsed_ms": 100, "outcome": "error", "class": "budget",
        "usage": usage(14, 14), "nodes": [vectors, model, tool, agent, open]}),
    );
    let spend =
        json!({"usage": usage(14, 14), "turns": 2, "tool_calls": 3, "invocations": 2, "elapsed_ms": 4_000});
    serde_json::from_value(json!({
        "session": "main", "turn": "0198c5f2-0000-7000-8000-00000000002a", "correlation_id": "c-1",
        "accepted": "2026-03-01T10:00:00.5Z", "started": "2026-03-01T10:00:01Z", "status": "error", "class": "budget",
        "spend": spend, "nodes": [root],
    }))
    .expect("a trace")
}

fn named<'a>(spans: &'a [OtlpSpan], name: &str) -> &'a OtlpSpan {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {spans:#?}"))
}

fn attribute(span: &OtlpSpan, key: &str) -> Value {
    let found = span.attributes.0.iter().find(|one| one.key == key);
    found.map_or(Value::Null, |one| serde_json::to_value(&one.value).expect("JSON"))
}

#[test]
fn a_turn_is_one_tree_in_which_what_is_below_lies_within_what_is_above() {
    let spans = of(&turn(), &TurnTexts::default());
    assert_eq!(spans.len(), 10);
    let root = &spans[0];
    assert_eq!((root.name.as_str(), root.parent_span_id.as_str()), ("invoke_workflow turn", ""));
    assert_eq!(root.end_time_unix_nano - root.start_time_unix_nano, 4_500_000_000);
    for span in &spans[1..] {
        assert_eq!(span.trace_id, "0198c5f2000070008000000000 00002a".replace(' ', ""));
        let parent = spans.iter().find(|one| one.span_id == span.parent_span_id).expect("a parent");
        assert!(parent.start_time_unix_nano <= span.start_time_unix_nano, "{span:?}");
        assert!(parent.end_time_unix_nano >= span.end_time_unix_nano, "{span:?} in {parent:?}");
    }
    let parent = |name: &str| {
        let above = &named(&spans, name).parent_span_id;
        spans.iter().find(|span| span.span_id == *above).expect("a parent").name.clone()
    };
    assert_eq!(parent("invoke_agent orchestrator"), "invoke_workflow turn");
    assert_eq!(parent("execute_tool kv_get"), "invoke_agent orchestrator");
    assert_eq!(parent("execute_tool haiku"), "invoke_agent orchestrator");
    assert_eq!(parent("invoke_agent haiku"), "execute_tool haiku");
    assert_eq!(parent("chat big/er"), "invoke_agent haiku");
    assert_eq!(spans, of(&turn(), &TurnTexts::default()), "the same turn is the same trace");
    let ids: std::collections::BTreeSet<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    assert_eq!(ids.len(), spans.len());
}

#[test]
fn a_span_says_what_the_conventions_have_words_for() {
    let spans = of(&turn(), &TurnTexts::default());
    let model = named(&spans, "chat big/er");
    assert_eq!(model.kind, SpanKind::Client);
    for (key, value) in [
        (names::OPERATION, json!({"stringValue": "chat"})),
        (names::PROVIDER, json!({"stringValue": "gcp.gemini"})),
        (names::REQUEST_MODEL, json!({"stringValue": "big/er"})),
        (names::CONVERSATION, json!({"stringValue": "main"})),
        (names::AGENT, json!({"stringValue": "haiku"})),
        (names::INPUT_TOKENS, json!({"intValue": "7"})),
        (names::OUTPUT_TOKENS, json!({"intValue": "8"})),
        (names::CACHE_READ_TOKENS, json!({"intValue": "3"})),
        (names::REASONING_TOKENS, Value::Null),
        (names::FINISH_REASONS, json!({"arrayValue": {"values": [{"stringValue": "stop"}]}})),
        (own::COST_USD, json!({"doubleValue": 0.5})),
        (names::ERROR_TYPE, Value::Null),
    ] {
        assert_eq!(attribute(model, key), value, "{key}");
    }
    let tool = named(&spans, "execute_tool kv_get");
    assert_eq!(tool.kind, SpanKind::Internal);
    assert_eq!(attribute(tool, names::TOOL_CALL), json!({"stringValue": "e-1"}));
    assert_eq!(
        attribute(named(&spans, "embeddings vectors"), names::OPERATION),
        json!({"stringValue": "embeddings"})
    );
}

#[test]
fn what_failed_has_the_kind_of_its_failure_and_no_text_of_it() {
    let spans = of(&turn(), &TurnTexts::default());
    let kind = |name: &str| attribute(named(&spans, name), names::ERROR_TYPE);
    let small = spans.iter().filter(|span| span.name == "chat small").collect::<Vec<_>>();
    assert_eq!(attribute(small[0], names::ERROR_TYPE), Value::Null);
    assert_eq!(attribute(small[1], names::ERROR_TYPE), json!({"stringValue": "network"}));
    assert_eq!(kind("invoke_workflow turn"), json!({"stringValue": "budget"}));
    assert_eq!(kind("invoke_agent orchestrator"), json!({"stringValue": "budget"}));
    assert_eq!(kind("execute_tool kv_get"), json!({"stringValue": "error"}));
    assert_eq!(kind("execute_tool shell_run"), json!({"stringValue": "interrupted"}));
    assert_eq!(kind("invoke_agent haiku"), Value::Null);
    assert!(small[1].status.is_some() && small[0].status.is_none());
    let all = serde_json::to_string(&spans).expect("JSON");
    assert!(!all.contains("secret words") && !all.contains("an attempt failed"), "{all}");
    assert_eq!(named(&spans, "invoke_agent haiku").events[0].name, "model_retry");
}

#[test]
fn an_agent_that_outlives_the_call_that_began_it_does_not_make_that_longer() {
    let mut trace = turn();
    let call = &mut trace.nodes[0].nodes[3];
    call.elapsed_ms = Some(10);
    call.name = "spawn_agent".into();
    let spans = of(&trace, &TurnTexts::default());
    let call = named(&spans, "execute_tool spawn_agent");
    assert_eq!(call.end_time_unix_nano - call.start_time_unix_nano, 10_000_000);
    let (above, agent) = (named(&spans, "invoke_agent orchestrator"), named(&spans, "invoke_agent haiku"));
    assert!(agent.end_time_unix_nano > call.end_time_unix_nano);
    assert!(above.end_time_unix_nano >= agent.end_time_unix_nano);
}
