//! The request's body, written in one pass from borrowed parts.

use std::{borrow::Cow, sync::Arc};

use drupe_agent::ModelRequest;
use drupe_extension_api::{Format, Image, Message, OutputSpec, ToolCallRequest, ToolSpec};
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use super::dialect::{Dialect, Effort, Returns};
use crate::wire::{
    Facts, Names, ToolList,
    images::{DETAIL, DataUrl},
    items,
    parameters::{effort, further},
    text::{Arguments, Parameters, json_only, room},
};

pub(super) fn write(
    model: &Facts,
    request: &ModelRequest,
    tools: &ToolList,
    dialect: Dialect,
) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(room(request, tools));
    serde_json::to_writer(&mut out, &Body { model, request, tools, dialect })?;
    Ok(out)
}

struct Body<'a> {
    model: &'a Facts,
    request: &'a ModelRequest,
    tools: &'a ToolList,
    dialect: Dialect,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.request;
        let parameters = &request.parameters;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", &self.model.model)?;
        map.serialize_entry("stream", &true)?;
        if self.dialect.asks_for_usage {
            map.serialize_entry("stream_options", &StreamOptions { include_usage: true })?;
        }
        // Before the messages: what stays the same from step to step is what a provider can cache.
        if let Some(tools) = &self.tools.json {
            map.serialize_entry("tools", tools)?;
        }
        map.serialize_entry("messages", &Messages(self))?;
        map.serialize_entry(self.dialect.max_tokens, &request.max_output_tokens)?;
        if let Some(temperature) = parameters.temperature {
            map.serialize_entry("temperature", &temperature)?;
        }
        if let Some(top_p) = parameters.top_p {
            map.serialize_entry("top_p", &top_p)?;
        }
        if let Some(seed) = parameters.seed {
            map.serialize_entry(self.dialect.seed, &seed)?;
        }
        if let Some(effort) = effort(self.model, parameters) {
            match self.dialect.effort {
                Effort::Word => map.serialize_entry(effort_key(self.dialect), effort)?,
                Effort::Object => {
                    map.serialize_entry(effort_key(self.dialect), &json!({"effort": effort}))?
                }
            }
        }
        if !parameters.stop.is_empty() {
            map.serialize_entry("stop", &parameters.stop)?;
        }
        let format = request.output.as_deref().and_then(|output| response_format(output, self.dialect));
        if let Some(format) = format.filter(|_| !parameters.extra.contains_key("response_format")) {
            map.serialize_entry("response_format", &format)?;
        }
        for (key, value) in further(parameters, self.tools.json.is_some()) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// Not strict: strictness forbids schemas that agents use, and the loop checks the answer anyway.
fn response_format(output: &OutputSpec, dialect: Dialect) -> Option<Value> {
    match (&output.format, &output.schema) {
        (Format::Json, Some(schema)) if dialect.json_schema => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": false},
        })),
        (Format::Json, _) => Some(json!({"type": "json_object"})),
        (Format::Text | Format::Markdown, _) => None,
    }
}

struct Messages<'a>(&'a Body<'a>);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Body { request, tools, dialect, .. } = self.0;
        let mut list = serializer.serialize_seq(None)?;
        if !request.system.is_empty() {
            list.serialize_element(&Entry::System { content: &request.system })?;
        }
        // A JSON answer without a schema is refused where nothing in the messages speaks of JSON.
        let in_words = |output: &&OutputSpec| output.schema.is_none() || !dialect.json_schema;
        if let Some(content) = &json_only(request.output.as_deref().filter(in_words)) {
            list.serialize_element(&Entry::System { content })?;
        }
        let mut before: Option<&Message> = None;
        let mut seen: Vec<Part<'_>> = Vec::new();
        for message in request.messages.iter() {
            if !matches!(**message, Message::Tool { .. }) && !seen.is_empty() {
                self.0.pictures(&mut list, &mut seen)?;
                before = None;
            }
            let after_tool = matches!(before, Some(Message::Tool { .. }));
            if after_tool && !dialect.user_after_tool && matches!(**message, Message::User { .. }) {
                list.serialize_element(&Entry::words(IN_BETWEEN))?;
            }
            list.serialize_element(&self.0.entry(message, &tools.names))?;
            if let Message::Tool { name, images, .. } = &**message
                && !images.is_empty()
            {
                seen.push(Part::Text { text: format!("(What the tool `{name}` shows:)") });
                seen.extend(images.iter().map(Part::of));
            }
            before = Some(message.as_ref());
        }
        if !seen.is_empty() {
            self.0.pictures(&mut list, &mut seen)?;
        }
        list.end()
    }
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Entry<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    /// The user's, with pictures: results of tools have none in this API.
    #[serde(rename = "user")]
    Pictures {
        content: &'a [Part<'a>],
    },
    Assistant {
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_details: Option<Details<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_calls: Option<Calls<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: String },
    ImageUrl { image_url: Picture<'a> },
}

#[derive(Serialize)]
struct Picture<'a> {
    url: DataUrl<'a>,
    detail: &'static str,
}

impl<'a> Part<'a> {
    fn of(image: &'a Image) -> Self {
        Self::ImageUrl { image_url: Picture { url: DataUrl(image), detail: DETAIL } }
    }
}

impl<'a> Entry<'a> {
    /// The model's, without anything beside them.
    fn words(content: &'a str) -> Self {
        Self::Assistant { content, reasoning_content: None, reasoning_details: None, tool_calls: None }
    }
}

impl<'a> Body<'a> {
    /// What the results of one answer show comes after all of them.
    fn pictures<L: SerializeSeq>(&self, list: &mut L, seen: &mut Vec<Part<'_>>) -> Result<(), L::Error> {
        if !self.dialect.user_after_tool {
            list.serialize_element(&Entry::words(IN_BETWEEN))?;
        }
        list.serialize_element(&Entry::Pictures { content: seen })?;
        seen.clear();
        Ok(())
    }

    fn entry(&self, message: &'a Message, names: &'a Names) -> Entry<'a> {
        let Dialect { returns, short_ids, .. } = self.dialect;
        match message {
            Message::User { content } => Entry::User { content },
            Message::Tool { call_id, content, .. } => {
                Entry::Tool { tool_call_id: id(call_id, short_ids), content }
            }
            Message::Assistant { content, reasoning, tool_calls, .. } => {
                let details = items::of(message, &self.model.origin);
                Entry::Assistant {
                    content,
                    reasoning_content: reasoning.as_deref().filter(|_| returns == Returns::Text),
                    reasoning_details: (returns == Returns::Details && !details.is_empty())
                        .then_some(Details(details)),
                    tool_calls: (!tool_calls.is_empty()).then_some(Calls {
                        calls: tool_calls,
                        names,
                        short_ids,
                    }),
                }
            }
        }
    }
}

/// Stands between the result of a tool and what the user says next, where these may not follow each other.
const IN_BETWEEN: &str = "(A message of the user comes in between.)";

/// The id of a call as the server takes it. One that does not fit is replaced by one that follows from it, so that a
/// call and its result go on to have the same.
fn id(id: &str, short: bool) -> Cow<'_, str> {
    const LENGTH: usize = 9;
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    if !short || (id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
        return Cow::Borrowed(id);
    }
    // FNV-1a: 64 bits, of which nine such digits hold 46. A transcript has far too few calls for two to meet.
    let mut rest = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let digits = std::iter::repeat_with(|| {
        let digit = DIGITS[(rest % 36) as usize];
        rest /= 36;
        char::from(digit)
    });
    Cow::Owned(digits.take(LENGTH).collect())
}

/// Parts of reasoning as they came.
struct Details<'a>(&'a [Value]);

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(items::Unplaced))
    }
}

struct Calls<'a> {
    calls: &'a [ToolCallRequest],
    names: &'a Names,
    short_ids: bool,
}

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Call<'a> {
            id: Cow<'a, str>,
            r#type: &'static str,
            function: Function<'a>,
        }
        #[derive(Serialize)]
        struct Function<'a> {
            name: Cow<'a, str>,
            arguments: Arguments<'a>,
        }
        serializer.collect_seq(self.calls.iter().map(|call| Call {
            id: id(&call.call_id, self.short_ids),
            r#type: "function",
            function: Function { name: self.names.wire(&call.name), arguments: Arguments(&call.arguments) },
        }))
    }
}

pub(super) fn effort_key(dialect: Dialect) -> &'static str {
    match dialect.effort {
        Effort::Word => "reasoning_effort",
        Effort::Object => "reasoning",
    }
}

pub(super) fn tools(specs: &[Arc<ToolSpec>], names: &Names) -> serde_json::Result<Box<RawValue>> {
    #[derive(Serialize)]
    struct Tool<'a> {
        r#type: &'static str,
        function: Function<'a>,
    }
    #[derive(Serialize)]
    struct Function<'a> {
        name: Cow<'a, str>,
        description: &'a str,
        parameters: Parameters<'a>,
    }
    let tool = |spec: &'_ Arc<ToolSpec>| {
        to_raw_value(&Tool {
            r#type: "function",
            function: Function {
                name: names.wire(spec.name.as_str()),
                description: &spec.description,
                parameters: Parameters(&spec.input_schema),
            },
        })
    };
    to_raw_value(&specs.iter().map(tool).collect::<Result<Vec<_>, _>>()?)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
