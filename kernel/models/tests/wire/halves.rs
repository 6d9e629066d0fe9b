//! Characters that two events share.

use serde_json::{Value, json};

use crate::{
    door::{KINDS, Kind, ask, model, request},
    script::{self, Part, Stop, events},
    server::Server,
};

/// Events in which the two halves of a character stand where `¤` and `§` do.
fn halved(kind: Kind, parts: &[Part], stop: Stop) -> Vec<String> {
    let half = |event: String| event.replace('¤', "\\ud83d").replace('§', "\\ude00");
    events(kind, parts, stop).into_iter().map(half).collect()
}

async fn played(kind: Kind, parts: &[Part], stop: Stop) -> String {
    let server = Server::start(vec![script::stream(&halved(kind, parts, stop))]).await;
    ask(&model(kind, &server), request(0)).await.0
}

#[tokio::test]
async fn a_character_that_two_events_share_is_put_together() {
    for kind in KINDS {
        let text = [Part::Say("a¤"), Part::Say("§b")];
        assert_eq!(played(kind, &text, Stop::End).await, "a😀b end/7,2,5", "{}", kind.name());
        let reasoned = [Part::Think("h¤"), Part::Think("§m"), Part::Say("so")];
        assert_eq!(played(kind, &reasoned, Stop::End).await, "h😀m so end/7,2,5", "{}", kind.name());
        // Cut in the middle, which is between the halves.
        let call = [Part::Call("a", "f", r#"{"k":"¤§aaaa"}"#)];
        let words = played(kind, &call, Stop::Calls).await;
        let arguments = words.strip_prefix("a:f").and_then(|rest| rest.strip_suffix(" tool_calls/7,2,5"));
        let arguments: Value = serde_json::from_str(arguments.unwrap_or(&words)).unwrap();
        assert_eq!(arguments, json!({"k": "😀aaaa"}), "{}", kind.name());
    }
}

#[tokio::test]
async fn half_a_character_that_stays_alone_costs_nothing_else() {
    for kind in KINDS {
        for (text, expected) in [
            ([Part::Say("a¤"), Part::Say("b")], "a\u{fffd}b end/7,2,5"),
            ([Part::Say("a"), Part::Say("§b")], "a\u{fffd}b end/7,2,5"),
            ([Part::Say("a"), Part::Say("b¤")], "ab\u{fffd} end/7,2,5"),
        ] {
            assert_eq!(played(kind, &text, Stop::End).await, expected, "{}", kind.name());
        }
        let call = [Part::Call("a", "f", r#"{"k":"aaaa§¤"}"#)];
        assert!(played(kind, &call, Stop::Calls).await.contains('\u{fffd}'), "{}", kind.name());
    }
}
