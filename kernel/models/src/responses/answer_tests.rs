//! Answers put together from events; the plain ones are among the fixtures.

use crate::{responses::ResponsesApi, samples};

fn check(events: &[&str]) -> Result<String, String> {
    samples::read(&ResponsesApi, events)
}

const END: &str = r#"{"type":"response.completed","response":{"status":"completed"}}"#;
const TEXT: &str = r#"{"type":"response.output_text.delta","delta":"a"}"#;

fn reasoning(kind: &str, seal: &str) -> String {
    format!(
        r#"{{"type":"response.output_item.{kind}","output_index":0,"item":{{"type":"reasoning","id":"r","summary":[],"encrypted_content":{seal}}}}}"#
    )
}

#[test]
fn sealed_reasoning_is_kept_where_something_follows_it() {
    let (begin, end) = (reasoning("added", "null"), reasoning("done", "\"seal\""));
    let call = r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}"#;
    let kept = |at: usize| format!(r#"[{{"at":{at},"encrypted_content":"seal","id":"r","summary":[]}}];"#);
    let unsealed = reasoning("done", "null");
    for (events, expected) in [
        (&[&begin, &end, TEXT, END][..], format!("a;{}end", kept(0))),
        (&[&begin, &end, call, END], format!("c:f{{}};{}tool_calls", kept(0))),
        (&[TEXT, &begin, &end, call, END], format!("a;c:f{{}};{}tool_calls", kept(1))),
        (&[TEXT, &begin, &end, END], "a;end".to_owned()),
        (&[&begin, &unsealed, TEXT, END], "a;end".to_owned()),
    ] {
        assert_eq!(check(events), Ok(expected), "{events:?}");
    }
}

#[test]
fn what_is_no_answer_is_a_fault() {
    let open = r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"c","name":"f","arguments":""}}"#;
    let cut_off = open.replace("added", "done").replace(r#""call_id""#, r#""status":"incomplete","call_id""#);
    let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow"}}}"#;
    for (events, expected) in [
        (&[TEXT][..], "not whole"),
        (&[open, END], "it broke a tool call off"),
        (&[open, &cut_off, END], "it broke a tool call off"),
        (&[END], "its answer is empty"),
        (
            &[
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"later"}}}"#,
            ],
            "its answer ended for a reason that drupe does not know: `later`",
        ),
        (&[failed], "429 Too Many Requests: slow (again)"),
        (
            &[r#"{"type":"response.incomplete","response":{"status":"incomplete"}}"#],
            "it broke its answer off: `incomplete` (again)",
        ),
        (
            &[r#"{"type":"error","code":"insufficient_quota","message":"pay"}"#],
            "429 Too Many Requests (the account has no more credit or quota): pay",
        ),
        (
            &[r#"{"type":"response.output_text.delta","delta":{}}"#],
            "it sent an event that is not valid: invalid type: map",
        ),
    ] {
        let found = check(events).err().unwrap_or_default();
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn events_of_later_versions_are_passed_over() {
    let later = r#"{"type":"response.later","output_index":"x","delta":{},"item":[]}"#;
    assert_eq!(check(&[later, TEXT, END]), Ok("a;end".to_owned()));
}
