//! The request's body.
//!
//! Written in one pass from borrowed parts. The list of tools is the same for each step of a run, so its JSON is
//! made once for each list and then copied in as it is.

use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use drupe_agent::ModelRequest;
use drupe_extension_api::{
    Format, Message, ModelParameters, OutputSpec, Reasoning, ToolCallRequest, ToolSpec,
};
use serde::{
    Serialize, Serializer,
    de::IgnoredAny,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{Value, json, value::RawValue};

use super::dialect::Dialect;

/// Lists kept: one for each agent that is at work, roughly.
const KEPT_TOOL_LISTS: usize = 64;
/// What a tool's name may not hold on the wire, and what stands for it there.
const DOT: (char, &str) = ('.', "_dot_");

/// Keys that this module writes and no `extra` may.
const RESERVED: [&str; 6] = ["model", "messages", "stream", "stream_options", "tools", "n"];

/// Whether a server of this dialect can be asked so; else what is in the way.
pub(super) fn check(parameters: &ModelParameters, dialect: Dialect) -> Result<(), String> {
    let extra = &parameters.extra;
    let taken = [
        ("temperature", parameters.temperature.is_some()),
        ("top_p", parameters.top_p.is_some()),
        (dialect.seed(), parameters.seed.is_some()),
        ("stop", !parameters.stop.is_empty()),
        ("reasoning_effort", parameters.reasoning.is_some()),
        ("max_tokens", true),
        ("max_completion_tokens", true),
    ];
    if let Some(key) = RESERVED.iter().find(|key| extra.contains_key(**key)) {
        return Err(format!("`extra` must not set `{key}`"));
    }
    if let Some((key, _)) = taken.iter().find(|(key, set)| *set && extra.contains_key(*key)) {
        return Err(format!("`extra` sets `{key}`, which has a parameter of its own"));
    }
    if parameters.temperature.is_some_and(|t| !(0.0..=2.0).contains(&t)) {
        return Err("`temperature` must be from 0 to 2".to_owned());
    }
    if parameters.top_p.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
        return Err("`top_p` must be from 0 to 1".to_owned());
    }
    if parameters.stop.len() > dialect.max_stops() {
        return Err(format!("it takes at most {} texts in `stop`", dialect.max_stops()));
    }
    Ok(())
}

/// The body for `model`.
pub(super) fn write(
    model: &str,
    request: &ModelRequest,
    tools: Option<&RawValue>,
    dialect: Dialect,
) -> Result<Vec<u8>, serde_json::Error> {
    let text: usize = request.messages.iter().map(|m| length(m)).sum();
    let mut out = Vec::with_capacity(1024 + request.system.len() + text + tools.map_or(0, |t| t.get().len()));
    serde_json::to_writer(&mut out, &Body { model, request, tools, dialect })?;
    Ok(out)
}

fn length(message: &Message) -> usize {
    64 + match message {
        Message::User { content } | Message::Tool { content, .. } => content.len(),
        Message::Assistant { content, tool_calls, .. } => {
            content.len() + tool_calls.iter().map(|c| 96 + c.arguments.len()).sum::<usize>()
        }
    }
}

struct Body<'a> {
    model: &'a str,
    request: &'a ModelRequest,
    tools: Option<&'a RawValue>,
    dialect: Dialect,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.request;
        let parameters = &request.parameters;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", self.model)?;
        map.serialize_entry("stream", &true)?;
        map.serialize_entry("stream_options", &json!({"include_usage": true}))?;
        // Before the messages: what stays the same from step to step is what a provider can cache.
        if let Some(tools) = self.tools {
            map.serialize_entry("tools", tools)?;
        }
        map.serialize_entry("messages", &Messages(request, self.dialect))?;
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
        if let Some(reasoning) = parameters.reasoning {
            map.serialize_entry("reasoning_effort", effort(reasoning))?;
        }
        if !parameters.stop.is_empty() {
            map.serialize_entry("stop", &parameters.stop)?;
        }
        let format = request.output.as_deref().and_then(|output| response_format(output, self.dialect));
        if let Some(format) = format.filter(|_| !parameters.extra.contains_key("response_format")) {
            map.serialize_entry("response_format", &format)?;
        }
        for (key, value) in &parameters.extra {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

fn effort(reasoning: Reasoning) -> &'static str {
    match reasoning {
        Reasoning::None => "none",
        Reasoning::Low => "low",
        Reasoning::Medium => "medium",
        Reasoning::High => "high",
    }
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

struct Messages<'a>(&'a ModelRequest, Dialect);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(request, dialect) = self;
        let mut list = serializer.serialize_seq(None)?;
        if !request.system.is_empty() {
            list.serialize_element(&Entry::System { content: &request.system })?;
        }
        for message in &request.messages {
            list.serialize_element(&entry(message, *dialect))?;
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

fn entry(message: &Message, dialect: Dialect) -> Entry<'_> {
    match message {
        Message::User { content } => Entry::User { content },
        Message::Tool { call_id, content, .. } => Entry::Tool { tool_call_id: call_id, content },
        Message::Assistant { content, reasoning, tool_calls } => Entry::Assistant {
            content,
            reasoning_content: reasoning.as_deref().filter(|_| dialect.returns_reasoning()),
            tool_calls: (!tool_calls.is_empty()).then_some(Calls(tool_calls)),
        },
    }
}

struct Calls<'a>(&'a [ToolCallRequest]);

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
            arguments: Cow<'a, str>,
        }
        serializer.collect_seq(self.0.iter().map(|call| Call {
            id: &call.call_id,
            r#type: "function",
            function: Function { name: wire_name(&call.name), arguments: arguments(&call.arguments) },
        }))
    }
}

/// As the model wrote them. Servers parse them again, and some refuse the whole transcript for one call that is
/// not JSON: such a call, which never ran, goes back wrapped.
fn arguments(written: &str) -> Cow<'_, str> {
    if written.trim().is_empty() {
        return Cow::Borrowed("{}");
    }
    match serde_json::from_str::<IgnoredAny>(written) {
        Ok(_) => Cow::Borrowed(written),
        Err(_) => Cow::Owned(json!({"invalid": written}).to_string()),
    }
}

/// Providers take no dots in names; ours may have them.
fn wire_name(name: &str) -> Cow<'_, str> {
    match name.contains(DOT.0) {
        true => Cow::Owned(name.replace(DOT.0, DOT.1)),
        false => Cow::Borrowed(name),
    }
}

/// The tool that a model means by `name`.
pub(super) fn own_name(name: String, tools: &[Arc<ToolSpec>]) -> String {
    if !name.contains(DOT.1) || tools.iter().any(|t| t.name.as_str() == name) {
        return name;
    }
    tools.iter().find(|t| wire_name(t.name.as_str()) == name).map_or(name, |t| t.name.as_str().to_owned())
}

/// The JSON of tool lists, by the identity of the list.
#[derive(Default)]
pub(super) struct ToolLists(Mutex<VecDeque<Written>>);

/// A list, and its JSON.
type Written = (Weak<[Arc<ToolSpec>]>, Arc<RawValue>);

impl ToolLists {
    /// None for an empty list, which servers refuse.
    pub(super) fn json(
        &self,
        tools: &Arc<[Arc<ToolSpec>]>,
    ) -> Result<Option<Arc<RawValue>>, serde_json::Error> {
        if tools.is_empty() {
            return Ok(None);
        }
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A weak reference keeps the address from being given to another list.
        let this = Arc::downgrade(tools);
        if let Some((_, json)) = lists.iter().find(|(list, _)| list.ptr_eq(&this)) {
            return Ok(Some(Arc::clone(json)));
        }
        let json: Arc<RawValue> =
            serde_json::value::to_raw_value(&tools.iter().map(|t| tool(t)).collect::<Vec<_>>())?.into();
        lists.retain(|(list, _)| list.strong_count() > 0);
        lists.truncate(KEPT_TOOL_LISTS - 1);
        lists.push_front((this, Arc::clone(&json)));
        Ok(Some(json))
    }
}

fn tool(spec: &ToolSpec) -> Value {
    let mut parameters = spec.input_schema.clone();
    // An object without `properties` is valid JSON Schema and refused by OpenAI.
    if let Value::Object(schema) = &mut parameters {
        schema.entry("type").or_insert_with(|| json!("object"));
        schema.entry("properties").or_insert_with(|| json!({}));
    }
    json!({
        "type": "function",
        "function": {"name": wire_name(spec.name.as_str()), "description": spec.description, "parameters": parameters},
    })
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
