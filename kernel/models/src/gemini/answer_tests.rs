//! Answers put together from events; the plain ones are among the fixtures.

use crate::{gemini::GeminiApi, samples};

fn check(events: &[&str]) -> Result<String, String> {
    samples::read(&GeminiApi, events)
}

fn parts(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}}}}]}}"#)
}

fn end(reason: &str) -> String {
    format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#)
}

#[test]
fn signatures_and_ids_are_kept_with_the_parts_that_bear_them() {
    let call = r#"{"functionCall":{"name":"f","args":{"k": 1}},"thoughtSignature":"s"}"#;
    let own = r#"{"functionCall":{"name":"g","id":"own"}}"#;
    for (deltas, expected) in [
        (
            &[call, own][..],
            r#"call_3_0:f{"k": 1};own:g{};[{"at":1,"thoughtSignature":"s"},{"at":2,"id":"own"}];tool_calls"#,
        ),
        (
            &[r#"{"text":"a"}"#, r#"{"text":"","thoughtSignature":"t"}"#],
            r#"a;[{"at":0,"thoughtSignature":"t"}];end"#,
        ),
        (&[r#"{"text":"h","thought":true,"thoughtSignature":"t"}"#, r#"{"text":"a"}"#], "(h);a;end"),
    ] {
        let mut events: Vec<String> = deltas.iter().map(|delta| parts(delta)).collect();
        events.push(end("STOP"));
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        assert_eq!(check(&events), Ok(expected.to_owned()));
    }
}

#[test]
fn what_is_no_answer_is_a_fault() {
    let text = parts(r#"{"text":"a"}"#);
    for (events, expected) in [
        (&[text.as_str()][..], "not whole"),
        (&[&end("STOP")], "its answer is empty"),
        (&[&text, &end("MALFORMED_FUNCTION_CALL")], "it broke its answer off: `MALFORMED_FUNCTION_CALL`"),
        (&[&text, &end("MALFORMED_RESPONSE")], "it broke its answer off: `MALFORMED_RESPONSE`"),
        (&[&text, &end("LATER")], "its answer ended for a reason that drupe does not know: `LATER`"),
        (&[&text, &end("OTHER")], "it broke its answer off: `OTHER` (again)"),
        (
            &[r#"{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}"#],
            "503 Service Unavailable: busy (again)",
        ),
    ] {
        assert_eq!(check(events), Err(expected.to_owned()));
    }
    for reason in
        ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "MODEL_ARMOR"]
    {
        assert_eq!(check(&[&text, &end(reason)]), Ok("a;filter".to_owned()), "{reason}");
        assert_eq!(check(&[&end(reason)]), Ok("filter".to_owned()), "{reason}");
    }
    assert_eq!(check(&[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#]), Ok("filter".to_owned()));
}

#[test]
fn counts_grow_whatever_the_events_leave_out() {
    let counts = |counts: &str| format!(r#"{{"usageMetadata":{{{counts}}}}}"#);
    let most = u64::MAX;
    for (events, expected) in [
        (
            [
                counts(r#""promptTokenCount":9,"cachedContentTokenCount":4,"thoughtsTokenCount":3"#),
                counts(r#""promptTokenCount":9,"candidatesTokenCount":5"#),
            ],
            [9, 4, 8, 3],
        ),
        (
            [
                counts(r#""promptTokenCount":9,"candidatesTokenCount":5"#),
                counts(r#""promptTokenCount":9,"candidatesTokenCount":1,"toolUsePromptTokenCount":1"#),
            ],
            [10, 0, 5, 0],
        ),
        (
            [
                counts(&format!(r#""promptTokenCount":{most},"toolUsePromptTokenCount":{most}"#)),
                counts(&format!(r#""candidatesTokenCount":{most},"thoughtsTokenCount":{most}"#)),
            ],
            [most, 0, most, most],
        ),
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        assert_eq!(samples::usage(&GeminiApi, &events), Some(expected), "{events:?}");
    }
}
