//! Anthropic's Messages API.
//!
//! A transcript's constant front is marked for the provider's cache, and thinking goes back, signed as it came, with
//! the answer that it led to.

mod body;

mod content;

mod answer;

use std::sync::Arc;

use drupe_agent::ModelRequest;
use drupe_extension_api::{ModelParameters, Reasoning, ToolSpec};
use serde_json::value::RawValue;

use crate::{
    error::Unsupported,
    settings::Endpoint,
    wire::{Api, Facts, Names, Reader, Takes, ToolList, parameters::refuse},
};

const RESERVED: &[&str] = &["model", "messages", "system", "stream", "tools", "max_tokens"];

/// The least that the API takes for thinking.
const LEAST_THINKING: u32 = 1_024;
/// What an answer needs beside its thinking.
const LEAST_ANSWER: u32 = 1_024;

/// The version that is spoken unless a header of the provider says another. The later one takes no sampling at all, not
/// even for models that have it, and changes nothing else that is used here; servers of others speak this one.
const VERSION: &str = "2023-06-01";
/// The version from which on `temperature` and `top_p` are refused.
const WITHOUT_SAMPLING: &str = "2026-10-21";

#[derive(Debug)]
pub(crate) struct MessagesApi {
    samples: bool,
}

impl MessagesApi {
    /// In the version that the provider's own headers name.
    pub(crate) fn at(endpoint: &Endpoint) -> Self {
        let named = endpoint.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("anthropic-version"));
        let version = named.map_or(VERSION, |(_, version)| version.trim());
        // Versions are days.
        Self { samples: version < WITHOUT_SAMPLING }
    }
}

impl Api for MessagesApi {
    fn kind(&self) -> &'static str {
        "anthropic"
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", VERSION)]
    }

    fn path(&self, _: &str) -> (String, Option<&'static str>) {
        ("/messages".to_owned(), None)
    }

    fn list(&self) -> (&'static str, Option<&'static str>) {
        ("/models", Some("limit=1000"))
    }

    fn takes(&self, _: &Facts) -> Takes {
        Takes {
            api: "the Messages API",
            temperature: 0.0..=1.0,
            seed: None,
            stop: Some(("stop_sequences", usize::MAX)),
            reasoning: "thinking",
            sampling: ["temperature", "top_p"],
            reserved: RESERVED,
        }
    }

    fn check(&self, model: &Facts, parameters: &ModelParameters) -> Result<(), Unsupported> {
        let sampling = parameters.temperature.is_some() || parameters.top_p.is_some();
        if sampling && !self.samples {
            return refuse(format!(
                "`temperature` and `top_p`: the API takes neither from version {WITHOUT_SAMPLING} on, which the header \
                 `anthropic-version` names: remove them, or the header"
            ));
        }
        if parameters.temperature.is_some() && parameters.top_p.is_some() {
            return refuse(
                "`temperature` and `top_p`: its models take one of them: remove the other".to_owned(),
            );
        }
        if !parameters.reasoning.is_some_and(|r| r != Reasoning::None) {
            return Ok(());
        }
        if sampling {
            let text =
                "`temperature` and `top_p` cannot be set where it reasons: remove them, or `reasoning`";
            return refuse(text.to_owned());
        }
        if body::is_adaptive(model) {
            let twice = parameters.extra.contains_key("output_config");
            let text =
                "`extra` sets `output_config`, which holds the effort of `reasoning`: remove one of them";
            return if twice { refuse(text.to_owned()) } else { Ok(()) };
        }
        let room = parameters.max_output_tokens.unwrap_or(u32::MAX).min(model.max_output_tokens);
        match room < LEAST_THINKING + LEAST_ANSWER {
            true => refuse(format!(
                "`reasoning` needs `max_output_tokens` of {} or more, and there are {room}",
                LEAST_THINKING + LEAST_ANSWER
            )),
            false => Ok(()),
        }
    }

    fn tools(&self, specs: &[Arc<ToolSpec>], names: &Names) -> serde_json::Result<Box<RawValue>> {
        body::tools(specs, names)
    }

    fn body(&self, model: &Facts, request: &ModelRequest, tools: &ToolList) -> serde_json::Result<Vec<u8>> {
        body::write(model, request, tools)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(answer::Events::default())
    }
}
