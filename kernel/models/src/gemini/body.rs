//! The request's body, written in one pass from borrowed parts.

use std::{borrow::Cow, sync::Arc};

use drupe_agent::ModelRequest;
use drupe_extension_api::{Format, Reasoning, ToolSpec};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::{LEAST_ANSWER, content::Contents};
use crate::{
    settings,
    wire::{
        Facts, Names, ToolList,
        parameters::further,
        text::{Parameters, json_only, room},
    },
};

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
        let mut map = serializer.serialize_map(None)?;
        let form = self.form();
        let wanted = (self.tools.json.is_some()).then(|| json_only(request.output.as_deref())).flatten();
        if !request.system.is_empty() || wanted.is_some() {
            let system = (!request.system.is_empty()).then_some(&*request.system);
            let parts: Vec<Part<'_>> =
                system.into_iter().chain(wanted.as_deref()).map(|text| Part { text }).collect();
            map.serialize_entry("systemInstruction", &System { parts })?;
        }
        if let Some(tools) = &self.tools.json {
            map.serialize_entry("tools", tools)?;
        }
        map.serialize_entry("contents", &Contents { model: self.model, request, names: &self.tools.names })?;
        map.serialize_entry("generationConfig", &Config { body: self, form })?;
        let extra = further(&request.parameters, self.tools.json.is_some());
        for (key, value) in extra.filter(|(key, _)| *key != "generationConfig") {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'a> Body<'a> {
    /// The form of the answer, and its schema. Models refuse to be bound to JSON where they may also call tools;
    /// they are told in words then.
    fn form(&self) -> Option<Option<&'a Value>> {
        let output = self.request.output.as_deref()?;
        (output.format == Format::Json && self.tools.json.is_none()).then_some(output.schema.as_ref())
    }
}

#[derive(Serialize)]
struct System<'a> {
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    text: &'a str,
}

struct Config<'a> {
    body: &'a Body<'a>,
    form: Option<Option<&'a Value>>,
}

impl Serialize for Config<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Body { model, request, .. } = self.body;
        let parameters = &request.parameters;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("maxOutputTokens", &request.max_output_tokens)?;
        if let Some(temperature) = parameters.temperature {
            map.serialize_entry("temperature", &temperature)?;
        }
        if let Some(top_p) = parameters.top_p {
            map.serialize_entry("topP", &top_p)?;
        }
        if let Some(seed) = parameters.seed {
            map.serialize_entry("seed", &seed)?;
        }
        if !parameters.stop.is_empty() {
            map.serialize_entry("stopSequences", &parameters.stop)?;
        }
        if let Some(thinking) = parameters.reasoning.and_then(|reasoning| thinking(model, request, reasoning))
        {
            map.serialize_entry("thinkingConfig", &thinking)?;
        }
        let further = parameters.extra.get("generationConfig").and_then(Value::as_object);
        let sets = |key: &str| further.is_some_and(|further| further.contains_key(key));
        if let Some(schema) = self.form.filter(|_| !sets("responseMimeType")) {
            map.serialize_entry("responseMimeType", "application/json")?;
            if let Some(schema) = schema {
                map.serialize_entry("responseJsonSchema", schema)?;
            }
        }
        for (key, value) in further.into_iter().flatten() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Thinking {
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
}

/// A number of tokens for thoughts is taken from the bound on the answer: thoughts count against it.
fn thinking(model: &Facts, request: &ModelRequest, reasoning: Reasoning) -> Option<Thinking> {
    if model.reasoning == Some(false) {
        return None;
    }
    let (level, wanted) = match reasoning {
        Reasoning::None => ("minimal", 0),
        Reasoning::Low => ("low", 2_048),
        Reasoning::Medium => ("medium", 8_192),
        Reasoning::High => ("high", 24_576),
    };
    let most = request.max_output_tokens;
    let budget = wanted.min(most.saturating_sub(LEAST_ANSWER).max(most / 2));
    let levels = has_levels(model);
    Some(Thinking {
        include_thoughts: reasoning != Reasoning::None,
        thinking_level: levels.then_some(level),
        thinking_budget: (!levels).then_some(budget),
    })
}

/// Up to the second generation thinking is measured in tokens, from the third on it has levels.
pub(super) fn has_levels(model: &Facts) -> bool {
    let short = model.model.rsplit('/').next().unwrap_or_default();
    match model.thinking {
        Some(how) => how == settings::Thinking::Level,
        None => !["gemini-1", "gemini-2"].iter().any(|old| short.starts_with(old)),
    }
}

pub(super) fn tools(specs: &[Arc<ToolSpec>], names: &Names) -> serde_json::Result<Box<RawValue>> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Tools {
        function_declarations: Vec<Box<RawValue>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Function<'a> {
        name: Cow<'a, str>,
        description: &'a str,
        /// JSON Schema as it is; `parameters` would be a dialect of it that refuses most keywords.
        parameters_json_schema: Parameters<'a>,
    }
    let function = |spec: &'_ Arc<ToolSpec>| {
        to_raw_value(&Function {
            name: names.wire(spec.name.as_str()),
            description: &spec.description,
            parameters_json_schema: Parameters(&spec.input_schema),
        })
    };
    let function_declarations = specs.iter().map(function).collect::<Result<Vec<_>, _>>()?;
    to_raw_value(&[Tools { function_declarations }])
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
