//! Tells by its first bytes what the body of an answer is, and what to say of one that is no answer.

use serde::{Deserialize, de::IgnoredAny};

/// Types of what is no stream of events. Anything else is read as one: some servers name none.
const NO_EVENTS: [&str; 3] = ["text/plain", "text/html", "application/json"];
/// How a line of a stream of events begins.
const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

pub(super) enum Begins {
    Nothing,
    Events,
    Json,
    /// A page for people, as proxies and portals send it.
    Page,
    Else,
}

/// What the first bytes tell of a body that says it is of this type.
pub(super) fn begins_as(bytes: &[u8], kind: &str) -> Begins {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    match text.first() {
        None => Begins::Nothing,
        Some(b'{' | b'[') => Begins::Json,
        Some(b'<') if kind.is_empty() || of_no_events(kind) => Begins::Page,
        _ if !of_no_events(kind) => Begins::Events,
        _ if FIELDS.iter().any(|field| text.starts_with(field) || field.starts_with(text)) => Begins::Events,
        _ => Begins::Else,
    }
}

fn of_no_events(kind: &str) -> bool {
    NO_EVENTS.iter().any(|other| kind.starts_with(other))
}

/// What is said of a body that is no answer.
pub(super) fn no_answer(kind: &str) -> String {
    match kind.starts_with("application/json") {
        true => {
            "it answered with JSON that is neither an answer nor a stream of one (look at base_url and kind)"
                .to_owned()
        }
        false => {
            let kind = if kind.is_empty() { "something" } else { kind };
            format!("it answered with {kind} and not with a stream of events (look at base_url)")
        }
    }
}

/// Whether it is JSON whose end is missing.
pub(super) fn is_half(body: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(body).is_err_and(|error| error.is_eof())
}

/// Whether an event that could not be taken was the provider's own word of a fault.
pub(super) fn is_error(event: &str) -> bool {
    #[derive(Deserialize)]
    struct Event<'a> {
        error: Option<IgnoredAny>,
        response: Option<IgnoredAny>,
        #[serde(borrow, rename = "type")]
        kind: Option<super::text::Text<'a>>,
    }
    serde_json::from_str::<Event<'_>>(event).is_ok_and(|event| {
        let of_kind = event.kind.is_some_and(|kind| *kind == *"error");
        event.error.is_some() || event.response.is_some() || of_kind
    })
}

/// Words of the provider in one line that no terminal stumbles over, cut where they are long.
pub(super) fn saying(words: &str, longest: usize) -> String {
    let turns = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    let plain: String = words.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect();
    let mut plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = plain.char_indices().nth(longest) {
        plain.truncate(end);
        plain.push('…');
    }
    plain
}
