//! Messages with buttons, as blocks of the service. Pure.
//!
//! Forms as in <https://docs.slack.dev/reference/block-kit/blocks>, read on 2026-11-27: a message has at most 50 blocks, a button's value at most
//! 2000 characters and its text 75.

use drupe_extension_api::prelude::*;
use serde_json::{Value, json};

use crate::text::{LONGEST_SECTION, escaped, parts};

/// What the button says to the bot that ends an answer which is being made.
pub const STOP: &str = "stop";

/// A question with its buttons, where its text says how it is answered. What they say is what a person would write.
pub fn question(message: &OutboundMessage, part: &str) -> Option<Value> {
    let OutboundMessage { kind, delivery: id, text, .. } = message;
    let says = |answer: &str| text.contains(&format!("`{answer}`"));
    let (allow, deny) = (format!("allow {id}"), format!("deny {id}"));
    if *kind != OutboundKind::Notice || !says(&allow) || !says(&deny) {
        return None;
    }
    let session = format!("{allow} session");
    let lasting = says(&session).then(|| button("Allow in this conversation", &session, None));
    let mut buttons = vec![button("Allow", &allow, Some("primary")), button("Deny", &deny, Some("danger"))];
    buttons.extend(lasting);
    Some(with_buttons(part, buttons))
}

/// A part of an answer that is being made, with a button that ends it.
pub fn preview(part: &str) -> Value {
    with_buttons(part, vec![button("Stop", STOP, None)])
}

fn with_buttons(text: &str, buttons: Vec<Value>) -> Value {
    let section = |part: &&str| json!({"type": "section", "text": {"type": "mrkdwn", "text": escaped(part), "verbatim": true}});
    let mut blocks: Vec<Value> = parts(text, LONGEST_SECTION).iter().map(section).collect();
    blocks.push(json!({"type": "actions", "elements": buttons}));
    blocks.into()
}

fn button(text: &str, value: &str, style: Option<&str>) -> Value {
    // Ids of the actions of one block differ.
    let mut button = json!({"type": "button", "text": {"type": "plain_text", "text": text}, "value": value, "action_id": value});
    if let Some(style) = style {
        button["style"] = style.into();
    }
    button
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: OutboundKind, text: &str) -> OutboundMessage {
        let session = SessionId::new("slack:person.U7").expect("an id");
        OutboundMessage { delivery: "q1".into(), kind, session, address: None, text: text.into(), file: None }
    }

    #[test]
    fn a_question_has_the_buttons_whose_answers_its_text_names() {
        let labels = |kind, text: &str| -> Vec<String> {
            let blocks = question(&message(kind, text), text);
            let actions = blocks.as_ref().and_then(|blocks| blocks.as_array()?.last()).cloned();
            let buttons = actions.iter().flat_map(|actions| actions["elements"].as_array().cloned());
            buttons
                .flatten()
                .map(|button| button["text"]["text"].as_str().expect("text").to_owned())
                .collect()
        };
        let (both, all) = ("`allow q1` or `deny q1`", "`allow q1`, `allow q1 session` or `deny q1`");
        assert_eq!(labels(OutboundKind::Notice, both), ["Allow", "Deny"]);
        assert_eq!(labels(OutboundKind::Notice, all), ["Allow", "Deny", "Allow in this conversation"]);
        assert!(labels(OutboundKind::Answer, all).is_empty(), "a model cannot make buttons");
        assert!(labels(OutboundKind::Notice, "`allow q2` or `deny q2`").is_empty());
    }

    #[test]
    fn what_stands_above_buttons_fits_its_sections_and_calls_nobody() {
        let long = format!("<!channel> {}", "words & more ".repeat(280));
        let blocks = preview(&long);
        let (buttons, sections) = blocks.as_array().and_then(|all| all.split_last()).expect("blocks");
        assert_eq!((buttons["type"].as_str(), sections.len()), (Some("actions"), 2));
        for section in sections {
            let text = section["text"]["text"].as_str().expect("a text");
            assert!(text.len() <= LONGEST_SECTION && !text.contains('<'), "{text}");
        }
    }
}
