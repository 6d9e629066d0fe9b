//! Answers put together from events.

use crate::{chat::ChatApi, samples};

fn check(events: &[&str]) -> Result<String, String> {
    samples::read(&ChatApi::default(), events)
}

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

fn end(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

fn all(deltas: &[&str], reason: &str) -> Result<String, String> {
    let mut events: Vec<String> = deltas.iter().map(|d| delta(d)).collect();
    events.push(end(reason));
    check(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn deltas_become_text_reasoning_and_calls() {
    let cases: [(&[&str], &str, &str); 11] = [
        (
            &[r#"{"role":"assistant","content":""}"#, r#"{"content":"a"}"#, r#"{"content":"b"}"#],
            "stop",
            "ab;end",
        ),
        (&[r#"{"reasoning_content":"x"}"#, r#"{"content":"a"}"#], "stop", "(x);a;end"),
        (&[r#"{"reasoning":"x","reasoning_content":"x","content":"a"}"#], "stop", "(x);a;end"),
        (&[r#"{"refusal":"I won't"}"#], "stop", "I won't;refusal"),
        (&[r#"{"content":"cut"}"#], "length", "cut;length"),
        (
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}},{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#,
                r#"{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}"#,
            ],
            "tool_calls",
            "a:f{};b:g{};tool_calls",
        ),
        // Some say `stop` after calls, give whole calls the same number, or no number and no id.
        (
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}]}"#,
            ],
            "stop",
            "a:f{};b:f{};tool_calls",
        ),
        (
            &[r#"{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}"#],
            "stop",
            "call_3_0:f{};tool_calls",
        ),
        // Half a call is none.
        (
            &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}]}"#],
            "length",
            "length-1",
        ),
        (
            &[
                r#"{"content":"no"}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
            ],
            "content_filter",
            "no;filter-1",
        ),
        // The second of two calls with one id gets an id of its own.
        (
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
            ],
            "stop",
            "a:f{};a_1:f{};tool_calls",
        ),
    ];
    for (deltas, reason, expected) in cases {
        assert_eq!(all(deltas, reason), Ok(expected.to_owned()), "{deltas:?}");
    }
}

#[test]
fn what_is_no_answer_is_a_fault() {
    for (events, expected) in [
        (
            &["{"][..],
            "it sent an event that is not valid: EOF while parsing an object at line 1 column 1 (again)",
        ),
        (&[r#"{"choices":[{"delta":{"content":"a"}}]}"#], "not whole"),
        (&[], "not whole"),
        (&["[DONE]"], "its answer is empty"),
        (&[r#"{"choices":[{"finish_reason":"stop"}]}"#], "its answer is empty"),
        (
            &[r#"{"choices":[{"finish_reason":"eos"}]}"#],
            "its answer ended for a reason that drupe does not know: `eos`",
        ),
        (
            &[r#"{"error":{"message":"overloaded","code":503}}"#],
            "503 Service Unavailable: overloaded (again)",
        ),
        (&[r#"{"error":{"message":"no","code":401}}"#], "401 Unauthorized: no"),
        (&[r#"{"choices":[{"finish_reason":"error"}]}"#], "it broke its answer off: `error` (again)"),
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]},"finish_reason":"stop"}]}"#,
                "[DONE]",
            ],
            "it asked for a tool without naming it",
        ),
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}"#,
                "[DONE]",
            ],
            "its answer ended among tool calls without a reason to stop",
        ),
    ] {
        assert_eq!(check(events), Err(expected.to_owned()));
    }
}

#[test]
fn a_flood_of_calls_is_refused() {
    let events: Vec<String> =
        (0..1_000).map(|n| delta(&format!(r#"{{"tool_calls":[{{"index":{n},"id":"i{n}"}}]}}"#))).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    assert_eq!(check(&events), Err("it asked for too many tool calls at once (again)".to_owned()));
}

#[test]
fn usage_is_read_with_and_without_details() {
    for (usage, expected) in [
        (
            r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}"#,
            [10, 4, 5, 2],
        ),
        (r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":3}"#, [10, 3, 5, 0]),
        (r#"{"prompt_tokens":1,"prompt_tokens_details":null}"#, [1, 0, 0, 0]),
    ] {
        let event = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        assert_eq!(samples::usage(&ChatApi::default(), &[&event]), Some(expected));
    }
}
