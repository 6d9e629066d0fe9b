//! A transcript as the Messages API reads it: turns of the user and of the assistant, one after the other.
//!
//! Results of tools are the user's, and must come before anything else that the user says in the same turn.

use std::{borrow::Cow, sync::Arc};

use drupe_agent::ModelRequest;
use drupe_extension_api::{Image, ImageType, Message, ToolCallRequest, ToolStatus};
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::Value;

use super::body::{CACHED, Cached};
use crate::wire::{Facts, Names, images::Base64, items, text::Object};

/// What stands for a text without any: the API takes no empty ones.
const EMPTY: &str = "(empty)";

pub(super) struct Messages<'a> {
    pub(super) model: &'a Facts,
    pub(super) request: &'a ModelRequest,
    pub(super) names: &'a Names,
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let messages = self.request.messages.as_slice();
        let mut list = serializer.serialize_seq(None)?;
        let mut from = 0;
        while from < messages.len() {
            let assistant = is_answer(&messages[from]);
            let length = messages[from..].iter().take_while(|m| is_answer(m) == assistant).count();
            let group = &messages[from..from + length];
            from += length;
            if assistant && group.iter().all(|m| is_nothing(m)) {
                continue;
            }
            let last = from == messages.len();
            let role = if assistant { "assistant" } else { "user" };
            list.serialize_element(&Turn { role, content: Content { group, from: self, last } })?;
        }
        list.end()
    }
}

fn is_answer(message: &Message) -> bool {
    matches!(message, Message::Assistant { .. })
}

fn is_nothing(message: &Message) -> bool {
    matches!(message, Message::Assistant { content, tool_calls, .. } if content.trim().is_empty() && tool_calls.is_empty())
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Content<'a>,
}

struct Content<'a> {
    group: &'a [Arc<Message>],
    from: &'a Messages<'a>,
    /// Nothing follows: the whole of it is what the next request begins with.
    last: bool,
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        // The results first, whatever was said in between.
        let is_result = |m: &&Arc<Message>| matches!(***m, Message::Tool { .. });
        let results = self.group.iter().filter(is_result);
        let rest = self.group.iter().filter(|m| !is_result(m));
        let end = self.group.len() - 1;
        for (n, message) in results.chain(rest).enumerate() {
            let cache_control = (self.last && n == end).then_some(CACHED);
            match &**message {
                Message::User { content } => {
                    list.serialize_element(&Block::Text { text: shown(content), cache_control })?;
                }
                Message::Tool { call_id, status, content, images, .. } => {
                    list.serialize_element(&Block::ToolResult {
                        tool_use_id: id(call_id),
                        content: Given::of(shown(content), images),
                        is_error: *status != ToolStatus::Ok,
                        cache_control,
                    })?;
                }
                Message::Assistant { .. } => answer(&mut list, message, self.from)?,
            }
        }
        list.end()
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cached>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Object<'a>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Given<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cached>,
    },
}

/// What a tool gave: a text, or a list with its pictures.
#[derive(Serialize)]
#[serde(untagged)]
enum Given<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    Image { source: ImageSource<'a> },
}

#[derive(Serialize)]
struct ImageSource<'a> {
    r#type: &'static str,
    media_type: ImageType,
    data: Base64<'a>,
}

impl<'a> Given<'a> {
    fn of(text: &'a str, images: &'a [Image]) -> Self {
        if images.is_empty() {
            return Self::Text(text);
        }
        let image = |image: &'a Image| {
            let (media_type, data) = (image.media_type, Base64(image));
            Part::Image { source: ImageSource { r#type: "base64", media_type, data } }
        };
        Self::Parts(images.iter().map(image).chain([Part::Text { text }]).collect())
    }
}

fn answer<L: SerializeSeq>(list: &mut L, message: &Message, from: &Messages<'_>) -> Result<(), L::Error> {
    let Message::Assistant { content, tool_calls, .. } = message else { return Ok(()) };
    let kept = items::of(message, &from.model.origin);
    thoughts(list, kept, 0)?;
    if !content.trim().is_empty() {
        list.serialize_element(&Block::Text { text: content, cache_control: None })?;
    }
    for (n, ToolCallRequest { call_id, name, arguments }) in tool_calls.iter().enumerate() {
        thoughts(list, kept, n + 1)?;
        let (name, input) = (from.names.wire(name), Object(arguments));
        list.serialize_element(&Block::ToolUse { id: id(call_id), name, input })?;
    }
    Ok(())
}

fn thoughts<L: SerializeSeq>(list: &mut L, kept: &[Value], at: usize) -> Result<(), L::Error> {
    for item in items::before(kept, at) {
        list.serialize_element(&Thought(item))?;
    }
    Ok(())
}

/// A block of thinking as it came.
struct Thought<'a>(&'a Value);

impl Serialize for Thought<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for key in ["type", "thinking", "signature", "data"] {
            if let Some(value) = self.0.get(key) {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

fn shown(text: &str) -> &str {
    if text.trim().is_empty() { EMPTY } else { text }
}

/// The API takes letters, digits, `_` and `-`; an answer of another provider may have other ids.
fn id(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !id.is_empty() && id.chars().all(fits) {
        true => Cow::Borrowed(id),
        false => Cow::Owned(format!("call_{}", id.replace(|c| !fits(c), "_"))),
    }
}
