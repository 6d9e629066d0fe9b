//! The request's body, written in one pass from borrowed parts.

use std::{borrow::Cow, sync::Arc};

use drupe_agent::ModelRequest;
use drupe_extension_api::{Format, Image, Message, OutputSpec, ToolSpec};
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::wire::{
    Facts, Names, ToolList,
    images::{DETAIL, DataUrl},
    items,
    parameters::{effort, further},
    text::{Arguments, Parameters, json_only, room},
};

/// The API refuses a smaller bound.
const LEAST_OUTPUT_TOKENS: u32 = 16;

pub(super) fn write(model: &Facts, request: &ModelRequest, tools: &ToolList) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(room(request, tools));
    serde_json::to_writer(&mut out, &Body { model, request, tools })?;
    Ok(out)
}

struct Body<'a> {
    model: &'a Facts,
    request: &'a ModelRequest,
    tools: &'a ToolList,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.request;
        let parameters = &request.parameters;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", &self.model.model)?;
        map.serialize_entry("stream", &true)?;
        map.serialize_entry("store", &false)?;
        if self.seals() {
            map.serialize_entry("include", &["reasoning.encrypted_content"])?;
        }
        if let Some(tools) = &self.tools.json {
            map.serialize_entry("tools", tools)?;
        }
        if !request.system.is_empty() {
            map.serialize_entry("instructions", &*request.system)?;
        }
        map.serialize_entry("input", &Input(self))?;
        map.serialize_entry("max_output_tokens", &request.max_output_tokens.max(LEAST_OUTPUT_TOKENS))?;
        if let Some(temperature) = parameters.temperature {
            map.serialize_entry("temperature", &temperature)?;
        }
        if let Some(top_p) = parameters.top_p {
            map.serialize_entry("top_p", &top_p)?;
        }
        if let Some(effort) = effort(self.model, parameters) {
            map.serialize_entry("reasoning", &Reasoning { effort })?;
        }
        let format = request.output.as_deref().and_then(format);
        if let Some(format) = format.filter(|_| !parameters.extra.contains_key("text")) {
            map.serialize_entry("text", &TextOptions { format })?;
        }
        for (key, value) in further(parameters, self.tools.json.is_some()) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl Body<'_> {
    /// Whether to ask for sealed reasoning. Models that do not reason refuse to be asked; where nobody says what a
    /// model is, OpenAI's families that do not are known by name.
    fn seals(&self) -> bool {
        let plain = ["gpt-3", "gpt-4", "chatgpt-"];
        self.model.reasoning.unwrap_or_else(|| !plain.iter().any(|start| self.model.model.starts_with(start)))
    }
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
}

#[derive(Serialize)]
struct TextOptions<'a> {
    format: OutputFormat<'a>,
}

/// Not strict: strictness forbids schemas that agents use, and the loop checks the answer anyway.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OutputFormat<'a> {
    JsonObject,
    JsonSchema { name: &'static str, schema: &'a Value, strict: bool },
}

fn format(output: &OutputSpec) -> Option<OutputFormat<'_>> {
    match (&output.format, &output.schema) {
        (Format::Json, Some(schema)) => {
            Some(OutputFormat::JsonSchema { name: "answer", schema, strict: false })
        }
        (Format::Json, None) => Some(OutputFormat::JsonObject),
        (Format::Text | Format::Markdown, _) => None,
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a str>,
    },
    FunctionCall {
        call_id: &'a str,
        name: Cow<'a, str>,
        arguments: Arguments<'a>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Output<'a>,
    },
}

/// What a tool gave: a text, or a list with its pictures.
#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: &'a str },
    InputImage { image_url: DataUrl<'a>, detail: &'static str },
}

impl<'a> Output<'a> {
    fn of(text: &'a str, images: &'a [Image]) -> Self {
        if images.is_empty() {
            return Self::Text(text);
        }
        let image = |image| Part::InputImage { image_url: DataUrl(image), detail: DETAIL };
        Self::Parts([Part::InputText { text }].into_iter().chain(images.iter().map(image)).collect())
    }
}

/// Reasoning as it came. Without its seal the provider would look for it at its own side, where nothing is kept.
#[derive(Serialize)]
struct Sealed<'a> {
    r#type: &'static str,
    id: &'a Value,
    summary: &'a Value,
    encrypted_content: &'a Value,
}

struct Input<'a>(&'a Body<'a>);

impl Serialize for Input<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Body { request, tools, .. } = self.0;
        let mut list = serializer.serialize_seq(None)?;
        // A JSON answer without a schema is refused where nothing in the input speaks of JSON.
        let output = request.output.as_deref().filter(|output| output.schema.is_none());
        if let Some(content) = &json_only(output) {
            list.serialize_element(&Item::Message { role: "developer", content, phase: None })?;
        }
        // A model that does not reason takes no reasoning either.
        let origin = self.0.seals().then_some(&*self.0.model.origin);
        let kept = |message| origin.map_or(&[][..], |origin| items::of(message, origin));
        for message in request.messages.iter() {
            match &**message {
                Message::User { content } => {
                    list.serialize_element(&Item::Message { role: "user", content, phase: None })?;
                }
                Message::Tool { call_id, content, images, .. } => {
                    let output = Output::of(content, images);
                    list.serialize_element(&Item::FunctionCallOutput { call_id, output })?;
                }
                Message::Assistant { .. } => answer(&mut list, message, kept(message), &tools.names)?,
            }
        }
        list.end()
    }
}

fn answer<L: SerializeSeq>(
    list: &mut L,
    message: &Message,
    kept: &[Value],
    names: &Names,
) -> Result<(), L::Error> {
    let Message::Assistant { content, tool_calls, .. } = message else { return Ok(()) };
    sealed(list, kept, 0)?;
    if !content.is_empty() {
        // What came in several messages is one text here, and what was said last is what it is.
        let phase = items::before(kept, 0).filter_map(|item| item.get("phase")?.as_str()).last();
        list.serialize_element(&Item::Message { role: "assistant", content, phase })?;
    }
    for (n, call) in tool_calls.iter().enumerate() {
        sealed(list, kept, n + 1)?;
        list.serialize_element(&Item::FunctionCall {
            call_id: &call.call_id,
            name: names.wire(&call.name),
            arguments: Arguments(&call.arguments),
        })?;
    }
    Ok(())
}

fn sealed<L: SerializeSeq>(list: &mut L, kept: &[Value], at: usize) -> Result<(), L::Error> {
    for item in items::before(kept, at).filter(|item| item.get("encrypted_content").is_some()) {
        list.serialize_element(&Sealed {
            r#type: "reasoning",
            id: &item["id"],
            summary: &item["summary"],
            encrypted_content: &item["encrypted_content"],
        })?;
    }
    Ok(())
}

pub(super) fn tools(specs: &[Arc<ToolSpec>], names: &Names) -> serde_json::Result<Box<RawValue>> {
    #[derive(Serialize)]
    struct Tool<'a> {
        r#type: &'static str,
        name: Cow<'a, str>,
        description: &'a str,
        parameters: Parameters<'a>,
        /// Left out it would be true.
        strict: bool,
    }
    let tool = |spec: &'_ Arc<ToolSpec>| {
        to_raw_value(&Tool {
            r#type: "function",
            name: names.wire(spec.name.as_str()),
            description: &spec.description,
            parameters: Parameters(&spec.input_schema),
            strict: false,
        })
    };
    to_raw_value(&specs.iter().map(tool).collect::<Result<Vec<_>, _>>()?)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
