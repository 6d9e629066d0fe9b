//! OpenAI's Responses API, used without state: nothing is kept at the provider, the whole input goes out each time,
//! and reasoning comes back sealed and is returned with the answer that it led to.

mod body;

mod answer;

use std::sync::Arc;

use drupe_agent::ModelRequest;
use drupe_extension_api::ToolSpec;
use serde_json::value::RawValue;

use crate::wire::{Api, Facts, Names, Reader, Takes, ToolList};

const RESERVED: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "store",
    "background",
    "tools",
    "include",
    "previous_response_id",
    "conversation",
    "max_output_tokens",
];

pub(crate) struct ResponsesApi;

impl Api for ResponsesApi {
    fn kind(&self) -> &'static str {
        "openai"
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn path(&self, _: &str) -> (String, Option<&'static str>) {
        ("/responses".to_owned(), None)
    }

    fn embeddings(&self) -> Option<&'static str> {
        Some("/embeddings")
    }

    fn takes(&self, _: &Facts) -> Takes {
        Takes {
            api: "the Responses API",
            temperature: 0.0..=2.0,
            seed: None,
            stop: None,
            reasoning: "reasoning",
            sampling: ["temperature", "top_p"],
            reserved: RESERVED,
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
