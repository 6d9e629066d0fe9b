//! A transcript as the Gemini API reads it: contents of the user and of the model, each a list of parts.

use std::{borrow::Cow, sync::Arc};

use drupe_agent::ModelRequest;
use drupe_extension_api::{Image, ImageType, Message, ToolStatus};
use serde::{Serialize, Serializer, ser::SerializeSeq};
use serde_json::Value;

use super::body::has_levels;
use crate::wire::{Facts, Names, images::Base64, items, text::Object};

/// Stands for the signature of a call that another model made: a third-generation model takes none without one, and
/// this is the documented way of saying that there is none.
const UNSIGNED: &str = "skip_thought_signature_validator";

pub(super) struct Contents<'a> {
    pub(super) model: &'a Facts,
    pub(super) request: &'a ModelRequest,
    pub(super) names: &'a Names,
}

impl Serialize for Contents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let messages = self.request.messages.as_slice();
        let mut list = serializer.serialize_seq(None)?;
        // The answer whose calls the results belong to.
        let mut asked: &[Value] = &[];
        let mut from = 0;
        while let Some(message) = messages.get(from) {
            // All results of one answer stand in one content.
            let results =
                messages[from..].iter().take_while(|m| matches!(***m, Message::Tool { .. })).count();
            match &**message {
                Message::User { content } => {
                    list.serialize_element(&Content { role: "user", parts: [Part::text(content)] })?;
                }
                Message::Tool { .. } => {
                    let parts = Results { messages: &messages[from..from + results], from: self, asked };
                    list.serialize_element(&Content { role: "user", parts })?;
                }
                Message::Assistant { content, tool_calls, .. } => {
                    asked = items::of(message, &self.model.origin);
                    let parts = Answer { message, from: self };
                    if !content.is_empty() || !tool_calls.is_empty() {
                        list.serialize_element(&Content { role: "model", parts })?;
                    }
                }
            }
            from += results.max(1);
        }
        list.end()
    }
}

#[derive(Serialize)]
struct Content<P> {
    role: &'static str,
    parts: P,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<Reply<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<Inline<'a>>,
}

impl<'a> Part<'a> {
    fn text(text: &'a str) -> Self {
        Self { text: Some(text), ..Self::default() }
    }

    fn picture(image: &'a Image) -> Self {
        let inline = Inline { mime_type: image.media_type, data: Base64(image) };
        Self { inline_data: Some(inline), ..Self::default() }
    }
}

#[derive(Serialize)]
struct Call<'a> {
    /// Only where it is the provider's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: Cow<'a, str>,
    args: Object<'a>,
}

#[derive(Serialize)]
struct Reply<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: Cow<'a, str>,
    response: Outcome<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inline<'a> {
    mime_type: ImageType,
    data: Base64<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome<'a> {
    Output(&'a str),
    Error(&'a str),
}

fn kept<'a>(asked: &'a [Value], at: usize, key: &str) -> Option<&'a str> {
    items::before(asked, at).find_map(|item| item.get(key)?.as_str())
}

struct Answer<'a> {
    message: &'a Message,
    from: &'a Contents<'a>,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let Message::Assistant { content, tool_calls, .. } = self.message else { return list.end() };
        let asked = items::of(self.message, &self.from.model.origin);
        let signature = kept(asked, 0, "thoughtSignature");
        if !content.is_empty() || signature.is_some() {
            list.serialize_element(&Part { thought_signature: signature, ..Part::text(content) })?;
        }
        for (n, call) in tool_calls.iter().enumerate() {
            let unsigned = (n == 0 && has_levels(self.from.model)).then_some(UNSIGNED);
            let (id, name) = (kept(asked, n + 1, "id"), self.from.names.wire(&call.name));
            list.serialize_element(&Part {
                function_call: Some(Call { id, name, args: Object(&call.arguments) }),
                thought_signature: kept(asked, n + 1, "thoughtSignature").or(unsigned),
                ..Part::default()
            })?;
        }
        list.end()
    }
}

struct Results<'a> {
    messages: &'a [Arc<Message>],
    from: &'a Contents<'a>,
    asked: &'a [Value],
}

impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // From the third generation on they stand within the responses; models before it take them behind.
        let within = has_levels(self.from.model);
        let responses = self.messages.iter().enumerate().filter_map(|(n, message)| {
            let Message::Tool { name, status, content, images, .. } = &**message else { return None };
            let response = match status {
                ToolStatus::Ok => Outcome::Output(content),
                _ => Outcome::Error(content),
            };
            let parts = if within { images.iter().map(Part::picture).collect() } else { Vec::new() };
            let (id, name) = (kept(self.asked, n + 1, "id"), self.from.names.wire(name));
            Some(Part { function_response: Some(Reply { id, name, response, parts }), ..Part::default() })
        });
        let behind = self.messages.iter().filter(|_| !within).flat_map(|message| message.images());
        serializer.collect_seq(responses.chain(behind.map(Part::picture)))
    }
}
