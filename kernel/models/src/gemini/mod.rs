//! Google's Gemini API.

mod body;

mod content;

mod answer;

use std::sync::Arc;

use drupe_agent::ModelRequest;
use drupe_extension_api::{ImageType, ModelParameters, Reasoning, ToolSpec};
use serde_json::{Value, value::RawValue};

use crate::{
    error::Unsupported,
    wire::{Api, Facts, Names, Reader, Takes, ToolList, parameters::refuse},
};

const RESERVED: &[&str] =
    &["contents", "systemInstruction", "system_instruction", "tools", "generation_config"];

/// The least budget for thoughts that all its models take.
const LEAST_THINKING: u32 = 512;
/// What an answer needs beside its thoughts.
const LEAST_ANSWER: u32 = 1_024;

pub(crate) struct GeminiApi;

impl Api for GeminiApi {
    fn kind(&self) -> &'static str {
        "gemini"
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    /// Without `alt=sse` the answer is one list of JSON, which is whole only at its end.
    fn path(&self, model: &str) -> (String, Option<&'static str>) {
        let folder = if model.contains('/') { "" } else { "models/" };
        (format!("/{folder}{model}:streamGenerateContent"), Some("alt=sse"))
    }

    fn list(&self) -> (&'static str, Option<&'static str>) {
        ("/models", Some("pageSize=1000"))
    }

    fn takes(&self, _: &Facts) -> Takes {
        Takes {
            api: "the Gemini API",
            temperature: 0.0..=2.0,
            seed: Some("seed"),
            stop: Some(("stopSequences", 5)),
            reasoning: "thinkingConfig",
            sampling: ["temperature", "topP"],
            reserved: RESERVED,
        }
    }

    fn check(&self, model: &Facts, parameters: &ModelParameters) -> Result<(), Unsupported> {
        // The name is part of the address.
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_./@".contains(c);
        if !model.model.chars().all(fits)
            || model.model.split('/').any(|part| matches!(part, "" | "." | ".."))
        {
            return refuse(
                "its name holds what no model's name can: use letters, digits, `-`, `_` and `.`".to_owned(),
            );
        }
        if parameters.seed.is_some_and(|seed| i32::try_from(seed).is_err()) {
            return refuse(format!("`seed` must be no more than {} for the Gemini API", i32::MAX));
        }
        let room = parameters.max_output_tokens.unwrap_or(u32::MAX).min(model.max_output_tokens);
        let reasons = parameters.reasoning.is_some_and(|r| r != Reasoning::None);
        if reasons && !body::has_levels(model) && room < LEAST_THINKING + LEAST_ANSWER {
            return refuse(format!(
                "`reasoning` needs `max_output_tokens` of {} or more, which thoughts are a part of, and there are {room}",
                LEAST_THINKING + LEAST_ANSWER
            ));
        }
        match parameters.extra.get("generationConfig") {
            Some(value) if !value.is_object() => {
                refuse("`extra.generationConfig` must be an object".to_owned())
            }
            Some(value) => config(value, parameters),
            None => Ok(()),
        }
    }

    fn tools(&self, specs: &[Arc<ToolSpec>], names: &Names) -> serde_json::Result<Box<RawValue>> {
        body::tools(specs, names)
    }

    /// No GIF (ai.google.dev, "Image understanding", looked up on 2026-11-25).
    fn reads(&self, media_type: ImageType) -> bool {
        media_type != ImageType::Gif
    }

    fn body(&self, model: &Facts, request: &ModelRequest, tools: &ToolList) -> serde_json::Result<Vec<u8>> {
        body::write(model, request, tools)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(answer::Chunks::default())
    }
}

/// What `generationConfig` may hold beside what parameters put there.
fn config(further: &Value, parameters: &ModelParameters) -> Result<(), Unsupported> {
    let own = [
        ("maxOutputTokens", true),
        ("temperature", parameters.temperature.is_some()),
        ("topP", parameters.top_p.is_some()),
        ("seed", parameters.seed.is_some()),
        ("stopSequences", !parameters.stop.is_empty()),
        ("thinkingConfig", parameters.reasoning.is_some()),
    ];
    match own.iter().find(|(key, set)| *set && further.get(key).is_some()) {
        Some((key, _)) => {
            refuse(format!("`extra.generationConfig` sets `{key}`, which has a parameter of its own"))
        }
        None => Ok(()),
    }
}
