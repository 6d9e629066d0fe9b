//! Messages with buttons, as blocks of the service. Pure.
//!
//! Forms as in <https://docs.slack.dev/reference/block-kit/blocks>, read on 2026-11-27: a message has at most 50 blocks, a button's value at most
//! 2000 characters and its text 75.

use drupe_channel::{Button, ButtonStyle, parts};
use serde_json::{Value, json};

use crate::text::{LONGEST_SECTION, escaped, units};

/// A text above buttons; nothing where there are none, which takes those away that a message has.
pub fn with_buttons(text: &str, buttons: &[Button]) -> Value {
    if buttons.is_empty() {
        return json!([]);
    }
    let section = |part: &&str| json!({"type": "section", "text": {"type": "mrkdwn", "text": escaped(part), "verbatim": true}});
    let mut blocks: Vec<Value> = parts(text, LONGEST_SECTION, units).iter().map(section).collect();
    blocks.push(json!({"type": "actions", "elements": buttons.iter().map(button).collect::<Vec<_>>()}));
    blocks.into()
}

fn button(Button { label, value, style }: &Button) -> Value {
    // Ids of the actions of one block differ.
    let mut button = json!({"type": "button", "text": {"type": "plain_text", "text": label}, "value": value, "action_id": value});
    match style {
        ButtonStyle::Plain => {}
        ButtonStyle::Primary => button["style"] = "primary".into(),
        ButtonStyle::Danger => button["style"] = "danger".into(),
    }
    button
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_above_buttons_fits_its_sections_and_calls_nobody() {
        let long = format!("<!channel> {}", "words & more ".repeat(280));
        let button = |label, style| Button { label, value: format!("{label} q1"), style };
        let blocks =
            with_buttons(&long, &[button("Stop", ButtonStyle::Plain), button("Allow", ButtonStyle::Primary)]);
        let (buttons, sections) = blocks.as_array().and_then(|all| all.split_last()).expect("blocks");
        assert_eq!((buttons["type"].as_str(), sections.len()), (Some("actions"), 2));
        assert_eq!(
            (&buttons["elements"][0]["style"], &buttons["elements"][1]["style"]),
            (&Value::Null, &json!("primary"))
        );
        for section in sections {
            let text = section["text"]["text"].as_str().expect("a text");
            assert!(text.len() <= LONGEST_SECTION && !text.contains('<'), "{text}");
        }
        assert_eq!(with_buttons("x", &[]), json!([]));
    }
}
