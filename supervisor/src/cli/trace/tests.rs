//! Golden renderings of traces.

use serde_json::{Value, json};

use super::*;

fn node(kind: &str, name: &str, rest: Value) -> Value {
    let mut node = json!({
        "kind": kind, "id": format!("id-{name}"), "name": name, "path": [], "started": "2026-03-01T10:00:00Z",
    });
    for (key, value) in rest.as_object().expect("an object") {
        node[key] = value.clone();
    }
    node
}

fn trace(status: Value, nodes: Value) -> Value {
    json!({
        "session": "main", "turn": "t-1", "accepted": "2026-03-01T10:00:00Z", "started": "2026-03-01T10:00:01Z",
        "status": status, "nodes": nodes,
        "spend": {"usage": {"input_tokens": 2000, "output_tokens": 90}, "elapsed_ms": 12_300, "cost_usd": 0.0021},
    })
}

fn check(trace: Value, columns: Option<usize>, expected: &str) {
    let trace: TurnTrace = serde_json::from_value(trace).expect("a trace");
    let rendered = render(&[trace], false, columns);
    assert_eq!(rendered, expected, "\n{rendered}");
}

#[test]
fn what_went_wrong_bears_an_id_that_can_be_asked_about() {
    let failed = |name: &str| {
        let mut node = node("model", name, json!({"elapsed_ms": 1, "outcome": "`p/m`: 503 down"}));
        node["id"] = json!("i-0.1.1");
        node
    };
    let call = node(
        "tool",
        "t",
        json!({"elapsed_ms": 1, "outcome": "error", "nodes": [
            node("run", "sub", json!({"elapsed_ms": 1, "outcome": "error", "nodes": [failed("below")]})),
        ]}),
    );
    let root =
        node("run", "main", json!({"elapsed_ms": 1, "outcome": "error", "nodes": [failed("own"), call]}));
    let trace =
        serde_json::from_value(trace(json!("error"), json!([root, failed("nowhere")]))).expect("a trace");
    let text = render(&[trace], false, None);
    let ids: Vec<_> = text.lines().skip(3).filter_map(|line| line.split_whitespace().next_back()).collect();
    assert_eq!(ids, ["id-main", "id-main", "id-t", "id-sub", "id-sub", "t-1"], "{text}");
}

/// A run with an attempt that failed, a tool, and a sub-agent below the call that began it.
fn full() -> Value {
    let usage = |input: u64, output: u64| json!({"input_tokens": input, "output_tokens": output});
    let haiku = node(
        "run",
        "haiku",
        json!({"elapsed_ms": 5000, "outcome": "success", "usage": usage(100, 20), "nodes": [
            node("model", "offline/offline", json!({"elapsed_ms": 4900, "outcome": "end", "usage": usage(100, 20)})),
        ]}),
    );
    let root = node(
        "run",
        "orchestrator",
        json!({"elapsed_ms": 12_300, "outcome": "success", "usage": usage(2000, 90), "cost_usd": 0.0021, "nodes": [
            node("model", "openai/gpt-5", json!({"elapsed_ms": 90, "outcome": "`openai/gpt-5`: 503 Service Unavailable: overloaded", "usage": usage(0, 0)})),
            node("note", "model_retry", json!({"outcome": "the connection broke; asked again"})),
            node("model", "openai/gpt-5", json!({
                "elapsed_ms": 3100, "outcome": "tool_calls", "usage": usage(1900, 70), "cost_usd": 0.0021})),
            node("tool", "files_read", json!({
                "elapsed_ms": 12, "outcome": "ok", "bytes_in": 35, "bytes_out": 2150})),
            node("tool", "agent_haiku", json!({
                "elapsed_ms": 5010, "outcome": "ok", "bytes_in": 15, "bytes_out": 60, "nodes": [haiku]})),
            node("tool", "files_write", json!({"outcome": null, "bytes_in": 9})),
        ]}),
    );
    trace(json!("success"), json!([root]))
}

#[test]
fn a_tree_is_drawn_with_its_figures_below_each_other() {
    let expected = "\
turn t-1
success, 12 s, 2,090 tokens, $0.0021, accepted 2026-03-01 10:00 UTC
                           time  tokens, bytes     cost  outcome
@orchestrator              12 s          2,090  $0.0021  success
├─ openai/gpt-5           90 ms          0 → 0           `openai/gpt-5`: 503 Service Unavailable: overloaded  id-orchestrator
├─ · model_retry: the connection broke; asked again
├─ openai/gpt-5           3.1 s     1,900 → 70  $0.0021  tool_calls
├─ files_read             12 ms  35 B → 2.1 kB           ok
├─ agent_haiku            5.0 s    15 B → 60 B           ok
│  └─ @haiku              5.0 s            120        ?  success
│     └─ offline/offline  4.9 s       100 → 20        ?  end
└─ files_write                             9 B           runs
";
    check(full(), None, expected);
}

#[test]
fn a_narrow_terminal_cuts_names_and_remarks_and_keeps_the_figures() {
    let expected = "\
turn t-1
success, 12 s, 2,090 tokens, $0.0021, accepted 2026-03-01 10:00 UTC
                   time  tokens, bytes     cost  outcome
@orchestrator      12 s          2,090  $0.0021  success
├─ openai/gpt-5   90 ms          0 → 0           `openai/gpt-5`: 503 Service Unavailable: overloaded  id-orchestrator
├─ · model_retry: the connection broke; a…
├─ openai/gpt-5   3.1 s     1,900 → 70  $0.0021  tool_calls
├─ files_read     12 ms  35 B → 2.1 kB           ok
├─ agent_haiku    5.0 s    15 B → 60 B           ok
│  └─ @haiku      5.0 s            120        ?  success
│     └─ offlin…  4.9 s       100 → 20        ?  end
└─ files_write                     9 B           runs
";
    check(full(), Some(42), expected);
}

#[test]
fn turns_that_wait_run_or_fail_say_so() {
    let line = |trace: Value, expected: &str| {
        let trace: TurnTrace = serde_json::from_value(trace).expect("a trace");
        assert_eq!(render(&[trace], false, None).lines().nth(1), Some(expected));
    };
    let spent = "12 s, 2,090 tokens, $0.0021, accepted 2026-03-01 10:00 UTC";
    line(trace(Value::Null, json!([])), &format!("it runs: {spent}"));
    let mut failed = trace(json!("error"), json!([]));
    failed["class"] = json!("budget");
    line(failed, &format!("error (budget), {spent}"));
    let mut waits = trace(Value::Null, json!([]));
    waits["started"] = Value::Null;
    line(waits, "it waits, accepted 2026-03-01 10:00 UTC");
}

#[test]
fn what_went_wrong_stands_out_and_what_went_well_does_not() {
    let check = |kind: &str, outcome: Value, expected| {
        let node = node(kind, "x", json!({"outcome": outcome, "elapsed_ms": 1}));
        let node: TraceNode = serde_json::from_value(node).expect("a node");
        assert_eq!(style(&node), expected, "{kind} {outcome:?}");
    };
    check("tool", json!("ok"), Style::Plain);
    check("tool", json!("error"), Style::Bad);
    check("tool", json!("outcome_unknown"), Style::Bad);
    check("tool", json!("refused"), Style::Warning);
    check("tool", json!("cancelled"), Style::Warning);
    check("run", json!("success"), Style::Plain);
    check("run", json!("error"), Style::Bad);
    for answered in ["end", "tool_calls", "length", "filter"] {
        check("model", json!(answered), Style::Plain);
    }
    check("model", Value::Null, Style::Plain);
    check("model", json!("`openai/gpt-5`: 503 Service Unavailable: overloaded"), Style::Bad);
    check("model", json!("the stream stalled for 30 s"), Style::Bad);
    check("model", json!("interrupted"), Style::Bad);
    check("model", json!("it was cancelled"), Style::Bad);
}

#[test]
fn what_others_wrote_cannot_command_the_terminal() {
    let evil = node("tool", "a\u{1b}[2Jb", json!({"outcome": "x\u{1b}[31m\ny", "elapsed_ms": 1}));
    let text = render(
        &[serde_json::from_value(trace(json!("success"), json!([evil]))).expect("a trace")],
        false,
        None,
    );
    assert!(!text.contains('\u{1b}') && text.contains("x[31m y"), "{text}");
}

#[test]
fn that_there_may_be_other_turns_is_said_of_a_session_alone() {
    let trace: TurnTrace = serde_json::from_value(trace(json!("success"), json!([]))).expect("a trace");
    let traces = [trace];
    assert!(others(&traces, "main").is_some_and(|said| said.contains("--turn") && said.contains("--all")));
    assert_eq!(others(&traces, "t-1"), None);
    assert_eq!(others(&[], "main"), None);
}
