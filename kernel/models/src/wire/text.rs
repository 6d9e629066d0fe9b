//! Pieces of JSON that are only looked at, and ways of writing it that need no tree in between.

use std::{borrow::Cow, sync::Arc};

use drupe_agent::ModelRequest;
use drupe_extension_api::{Format, Image, Message, OutputSpec};
use serde::{
    Deserialize, Serialize, Serializer,
    ser::{Error, SerializeMap},
};
use serde_json::{Value, value::RawValue};

use super::ToolList;

/// Text that is only looked at. A type of its own because serde borrows inside an `Option` for no other.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A schema of parameters. An object without `properties` is valid JSON Schema and refused by most providers.
pub(crate) struct Parameters<'a>(pub(crate) &'a Value);

impl Serialize for Parameters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(schema) = self.0 else { return self.0.serialize(serializer) };
        let mut map = serializer.serialize_map(None)?;
        if !schema.contains_key("type") {
            map.serialize_entry("type", "object")?;
        }
        for (key, value) in schema {
            map.serialize_entry(key, value)?;
        }
        if !schema.contains_key("properties") {
            map.serialize_entry("properties", &NOTHING)?;
        }
        map.end()
    }
}

/// `{}`.
pub(crate) const NOTHING: Nothing = Nothing {};

#[derive(Serialize)]
pub(crate) struct Nothing {}

/// The arguments of a call as an object, as the model wrote them. A call that is none, which never ran, goes back
/// wrapped: servers refuse the whole transcript for it.
pub(crate) struct Object<'a>(pub(crate) &'a str);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Invalid<'a> {
            invalid: &'a str,
        }
        let written = self.0.trim();
        match serde_json::from_str::<&RawValue>(written) {
            Ok(raw) if written.starts_with('{') => raw.serialize(serializer),
            _ if written.is_empty() => NOTHING.serialize(serializer),
            _ => Invalid { invalid: self.0 }.serialize(serializer),
        }
    }
}

/// The same, as a text that holds JSON.
pub(crate) fn arguments(written: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    match serde_json::from_str::<serde::de::IgnoredAny>(written) {
        Ok(_) => Ok(Cow::Borrowed(written)),
        Err(_) => serde_json::to_string(&Object(written)).map(Cow::Owned),
    }
}

/// About the bytes that a body takes, so that it is written without growing.
pub(crate) fn room(request: &ModelRequest, tools: &ToolList) -> usize {
    let part = |message: &Arc<Message>| match &**message {
        Message::User { content } | Message::Tool { content, .. } => content.len(),
        Message::Assistant { content, tool_calls, .. } => {
            content.len() + tool_calls.iter().map(|c| 96 + c.arguments.len()).sum::<usize>()
        }
    };
    let image = |image: &Image| 128 + image.bytes as usize / 3 * 4;
    let images = |message: &Message| message.images().iter().map(image).sum::<usize>();
    let text: usize = request.messages.iter().map(|message| 64 + part(message) + images(message)).sum();
    1024 + request.system.len() + text + tools.json.as_ref().map_or(0, |json| json.get().len())
}

/// Says in words that the answer is JSON, for where an API has no other way of saying it.
pub(crate) fn json_only(output: Option<&OutputSpec>) -> Option<String> {
    let output = output.filter(|output| output.format == Format::Json)?;
    let text = "Your answer is read by a program: answer with JSON alone, without a fence and without words around it.";
    Some(match &output.schema {
        Some(schema) => format!("{text} It must fit this JSON Schema:\n{schema}"),
        None => text.to_owned(),
    })
}

/// For a field that is [`arguments`].
pub(crate) struct Arguments<'a>(pub(crate) &'a str);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&arguments(self.0).map_err(S::Error::custom)?)
    }
}
