//! Answers put together from events; the plain ones are among the fixtures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::{
    messages::MessagesApi,
    samples,
    settings::Endpoint,
    wire::{Api, Draft},
};

fn check(events: &[&str]) -> Result<String, String> {
    samples::read(&MessagesApi::at(&Endpoint::default()), events)
}

const TEXT: &str = r#"{"type":"content_block_start","index":9,"content_block":{"type":"text","text":"a"}}"#;
const STOP: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
const END: &str = r#"{"type":"message_stop"}"#;
const THINK: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"h","signature":""}}"#;
const MORE: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}"#;
const SIGN: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}"#;
const CLOSE: &str = r#"{"type":"content_block_stop","index":0}"#;
const CALL: &str = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"f","input":{"k": 1}}}"#;
const CLOSE_CALL: &str = r#"{"type":"content_block_stop","index":1}"#;

#[test]
fn signed_thinking_is_kept_where_something_follows_it() {
    let kept = |at: usize| format!(r#"[{{"at":{at},"signature":"s","thinking":"hm","type":"thinking"}}];"#);
    let hidden =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"d"}}"#;
    for (events, expected) in [
        (&[THINK, MORE, SIGN, CLOSE, TEXT, STOP][..], format!("(hm);a;{}end", kept(0))),
        (
            &[THINK, MORE, SIGN, CLOSE, CALL, CLOSE_CALL, STOP],
            format!("(hm);c:f{{\"k\": 1}};{}tool_calls", kept(0)),
        ),
        (&[TEXT, THINK, MORE, SIGN, CLOSE, STOP], "a;(hm);end".to_owned()),
        (&[THINK, MORE, CLOSE, TEXT, STOP], "(hm);a;end".to_owned()),
        (
            &[hidden, CLOSE, TEXT, STOP],
            r#"a;[{"at":0,"data":"d","type":"redacted_thinking"}];end"#.to_owned(),
        ),
    ] {
        assert_eq!(check(events), Ok(expected), "{events:?}");
    }
}

#[test]
fn what_is_no_answer_is_a_fault() {
    for (events, expected) in [
        (&[TEXT][..], "not whole"),
        (&[CALL, STOP], "it broke a tool call off"),
        (&[CALL, CLOSE_CALL, END], "its answer ended among tool calls without a reason to stop"),
        (&[STOP], "its answer is empty"),
        (&[THINK, MORE, SIGN, CLOSE, STOP], "it reasoned and then gave no answer"),
        (&["[DONE]"], "it sent an event that is not valid: expected value at line 1 column 2 (again)"),
        (
            &[r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#],
            "529 Overloaded: busy (again)",
        ),
        (
            &[r#"{"type":"error","error":{"type":"authentication_error","message":"no"}}"#],
            "401 Unauthorized: no",
        ),
    ] {
        assert_eq!(check(events), Err(expected.to_owned()));
    }
}

#[test]
fn input_counts_what_is_written_to_the_cache_and_what_is_read_from_it() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":4,"cache_creation_input_tokens":2,"cache_read_input_tokens":1,"output_tokens":1}}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#;
    assert_eq!(samples::usage(&MessagesApi::at(&Endpoint::default()), &[start, end]), Some([7, 1, 9, 0]));
    assert_eq!(samples::usage(&MessagesApi::at(&Endpoint::default()), &[start]), Some([7, 1, 1, 0]));
    let most = u64::MAX.to_string();
    let absurd = start.replace(":4", &format!(":{most}")).replace(":2", &format!(":{most}"));
    assert_eq!(samples::usage(&MessagesApi::at(&Endpoint::default()), &[&absurd]), Some([u64::MAX, 1, 1, 0]));
    let (mut reader, mut draft) = (MessagesApi::at(&Endpoint::default()).reader(), Draft::default());
    for event in [start, end] {
        reader.take(event, &mut draft, &mut Vec::new()).unwrap();
    }
    assert_eq!(draft.usage.map(|usage| usage.cache_write_tokens), Some(2));
}
