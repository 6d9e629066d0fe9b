//! The request's body, written in one pass from borrowed parts.

use std::{borrow::Cow, sync::Arc};

use drupe_agent::ModelRequest;
use drupe_extension_api::{Format, Message, OutputSpec, ToolCallRequest, ToolSpec};
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use super::dialect::Dialect;
use crate::wire::{
    Facts, Names, ToolList,
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
        if self.dialect.asks_for_usage() {
            map.serialize_entry("stream_options", &StreamOptions { include_usage: true })?;
        }
        // Before the messages: what stays the same from step to step is what a provider can cache.
        if let Some(tools) = &self.tools.json {
            map.serialize_entry("tools", tools)?;
        }
        map.serialize_entry("messages", &Messages(self))?;
        map.serialize_entry(self.dialect.max_tokens(), &request.max_output_tokens)?;
        if let Some(temperature) = parameters.temperature {
            map.serialize_entry("temperature", &temperature)?;
        }
        if let Some(top_p) = parameters.top_p {
            map.serialize_entry("top_p", &top_p)?;
        }
        if let Some(seed) = parameters.seed {
            map.serialize_entry(self.dialect.seed(), &seed)?;
        }
        if let Some(effort) = effort(self.model, parameters) {
            map.serialize_entry("reasoning_effort", effort)?;
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
        (Format::Json, Some(schema)) if dialect.json_schema() => Some(json!({
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
        let in_words = |output: &&OutputSpec| output.schema.is_none() || !dialect.json_schema();
        if let Some(content) = &json_only(request.output.as_deref().filter(in_words)) {
            list.serialize_element(&Entry::System { content })?;
        }
        for message in request.messages.iter() {
            list.serialize_element(&entry(message, *dialect, &tools.names))?;
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
    Assistant {
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_calls: Option<Calls<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

fn entry<'a>(message: &'a Message, dialect: Dialect, names: &'a Names) -> Entry<'a> {
    match message {
        Message::User { content } => Entry::User { content },
        Message::Tool { call_id, content, .. } => Entry::Tool { tool_call_id: call_id, content },
        Message::Assistant { content, reasoning, tool_calls, .. } => Entry::Assistant {
            content,
            reasoning_content: reasoning.as_deref().filter(|_| dialect.returns_reasoning()),
            tool_calls: (!tool_calls.is_empty()).then_some(Calls(tool_calls, names)),
        },
    }
}

struct Calls<'a>(&'a [ToolCallRequest], &'a Names);

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Call<'a> {
            id: &'a str,
            r#type: &'static str,
            function: Function<'a>,
        }
        #[derive(Serialize)]
        struct Function<'a> {
            name: Cow<'a, str>,
            arguments: Arguments<'a>,
        }
        serializer.collect_seq(self.0.iter().map(|call| Call {
            id: &call.call_id,
            r#type: "function",
            function: Function { name: self.1.wire(&call.name), arguments: Arguments(&call.arguments) },
        }))
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
