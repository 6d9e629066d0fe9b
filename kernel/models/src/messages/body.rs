//! The request's body, written in one pass from borrowed parts.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use drupe_agent::ModelRequest;
use drupe_extension_api::{Message, ModelParameters, Reasoning, ToolSpec};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::{RawValue, to_raw_value};

use super::{LEAST_ANSWER, LEAST_THINKING, content::Messages};
use crate::{
    settings::Thinking as How,
    wire::{
        Facts, Names, ToolList, items,
        parameters::further,
        text::{Parameters, json_only, room},
    },
};

pub(super) fn write(model: &Facts, request: &ModelRequest, tools: &ToolList) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(room(request, tools));
    serde_json::to_writer(&mut out, &Body { model, request, tools })?;
    Ok(out)
}

/// Marks the end of a part that the next request has again.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Cached {
    r#type: &'static str,
}

pub(super) const CACHED: Cached = Cached { r#type: "ephemeral" };

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
        map.serialize_entry("max_tokens", &request.max_output_tokens)?;
        let former = if self.tools.json.is_none() { former(request, &self.tools.names) } else { Vec::new() };
        if let Some(tools) = &self.tools.json {
            map.serialize_entry("tools", tools)?;
        } else if !former.is_empty() {
            map.serialize_entry("tools", &former)?;
            map.serialize_entry("tool_choice", &Choice { r#type: "none" })?;
        }
        let wanted = json_only(request.output.as_deref());
        let texts = [&*request.system, wanted.as_deref().unwrap_or_default()];
        let texts: Vec<&str> = texts.into_iter().filter(|text| !text.trim().is_empty()).collect();
        let blocks = texts.iter().enumerate().map(|(n, text)| System {
            r#type: "text",
            text,
            cache_control: (n + 1 == texts.len()).then_some(CACHED),
        });
        let blocks: Vec<_> = blocks.collect();
        if !blocks.is_empty() {
            map.serialize_entry("system", &blocks)?;
        }
        map.serialize_entry("messages", &Messages { model: self.model, request, names: &self.tools.names })?;
        if let Some(temperature) = parameters.temperature {
            map.serialize_entry("temperature", &temperature)?;
        }
        if let Some(top_p) = parameters.top_p {
            map.serialize_entry("top_p", &top_p)?;
        }
        if !parameters.stop.is_empty() {
            map.serialize_entry("stop_sequences", &parameters.stop)?;
        }
        if let Some(thinking) = thinking(self.model, request) {
            map.serialize_entry("thinking", &thinking)?;
        }
        if let Some(effort) = effort(self.model, parameters).filter(|_| is_adaptive(self.model)) {
            map.serialize_entry("output_config", &OutputConfig { effort })?;
        }
        for (key, value) in further(parameters, self.tools.json.is_some()) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A tool without a schema.
#[derive(Serialize)]
struct Former<'a> {
    name: Cow<'a, str>,
    input_schema: Anything,
}

#[derive(Serialize)]
struct Anything {
    r#type: &'static str,
}

#[derive(Serialize)]
struct Choice {
    r#type: &'static str,
}

/// The tools that a transcript speaks of. A request that offers none has to name them all the same: the API takes no
/// calls of tools that it was not told of.
fn former<'a>(request: &'a ModelRequest, names: &'a Names) -> Vec<Former<'a>> {
    let calls = request.messages.iter().flat_map(|message| match &**message {
        Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    });
    let names: BTreeSet<Cow<'a, str>> = calls.map(|call| names.wire(&call.name)).collect();
    names.into_iter().map(|name| Former { name, input_schema: Anything { r#type: "object" } }).collect()
}

#[derive(Serialize)]
struct System<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Cached>,
}

/// How a model is told to think. What it thinks is sent in summary: newer models send none of it unless they are asked.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Adaptive { display: &'static str },
    BetweenTools,
    Disabled,
    Enabled { budget_tokens: u32 },
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

/// Whether the model decides by itself how much to think, within an effort: so do all but the older ones.
pub(super) fn is_adaptive(model: &Facts) -> bool {
    model.thinking.is_none_or(|how| matches!(how, How::Adaptive { .. }))
}

/// None where the model is to think as much as it does unasked.
fn thinking(model: &Facts, request: &ModelRequest) -> Option<Thinking> {
    let reasoning = request.parameters.reasoning.filter(|_| model.reasoning != Some(false))?;
    match model.thinking {
        Some(How::Budget) => budget(model, request, reasoning),
        Some(How::Adaptive { between_tools: true }) if reasoning == Reasoning::None => {
            Some(Thinking::BetweenTools)
        }
        _ if reasoning == Reasoning::None => Some(Thinking::Disabled),
        _ => Some(Thinking::Adaptive { display: "summarized" }),
    }
}

/// The effort within which the model thinks.
fn effort(model: &Facts, parameters: &ModelParameters) -> Option<&'static str> {
    match parameters.reasoning.filter(|_| model.reasoning != Some(false))? {
        Reasoning::None => None,
        Reasoning::Low => Some("low"),
        Reasoning::Medium => Some("medium"),
        Reasoning::High => Some("high"),
    }
}

/// Tokens for thinking, out of those for the answer. None where too few are left, and none in the middle of a turn
/// that began without: the API takes no thinking then.
fn budget(model: &Facts, request: &ModelRequest, reasoning: Reasoning) -> Option<Thinking> {
    let wanted = match reasoning {
        Reasoning::None => return None,
        Reasoning::Low => 2_048,
        Reasoning::Medium => 8_192,
        Reasoning::High => 24_576,
    };
    let budget_tokens = request.max_output_tokens.saturating_sub(LEAST_ANSWER).min(wanted);
    let own = |message: &Arc<Message>| matches!(**message, Message::User { .. });
    let turn =
        request.messages.iter().rposition(own).map_or(&request.messages[..], |at| &request.messages[at..]);
    let first = turn.iter().find(|message| matches!(***message, Message::Assistant { .. }));
    let goes_on =
        first.is_none_or(|answer| items::before(items::of(answer, &model.origin), 0).next().is_some());
    (goes_on && budget_tokens >= LEAST_THINKING).then_some(Thinking::Enabled { budget_tokens })
}

pub(super) fn tools(specs: &[Arc<ToolSpec>], names: &Names) -> serde_json::Result<Box<RawValue>> {
    #[derive(Serialize)]
    struct Tool<'a> {
        name: Cow<'a, str>,
        description: &'a str,
        input_schema: Parameters<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cached>,
    }
    let last = specs.len().saturating_sub(1);
    let tool = |(n, spec): (usize, &'_ Arc<ToolSpec>)| {
        to_raw_value(&Tool {
            name: names.wire(spec.name.as_str()),
            description: &spec.description,
            input_schema: Parameters(&spec.input_schema),
            cache_control: (n == last).then_some(CACHED),
        })
    };
    to_raw_value(&specs.iter().enumerate().map(tool).collect::<Result<Vec<_>, _>>()?)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
