//! Chat Completions: OpenAI, and the many servers that took over its form.
//!
//! What differs between servers is in [`dialect`] and nowhere else.

mod dialect;

mod body;

mod content;

mod answer;

use std::sync::Arc;

use drupe_agent::ModelRequest;
use drupe_extension_api::ToolSpec;
use reqwest::Url;
use serde_json::value::RawValue;

use crate::{
    error::Unusable,
    settings::Endpoint,
    wire::{Api, Facts, Names, Reader, Takes, ToolList},
};
use dialect::Dialect;

/// Keys that are always set, and that no `extra` may.
const RESERVED: &[&str] =
    &["model", "messages", "stream", "stream_options", "tools", "n", "max_tokens", "max_completion_tokens"];

#[derive(Default)]
pub(crate) struct ChatApi {
    dialect: Dialect,
}

impl ChatApi {
    pub(crate) fn at(endpoint: &Endpoint, base: &Url) -> Result<Self, Unusable> {
        Ok(Self { dialect: Dialect::of(endpoint, base)? })
    }
}

impl Api for ChatApi {
    fn kind(&self) -> &'static str {
        "openai_chat"
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn path(&self, _: &str) -> (String, Option<&'static str>) {
        ("/chat/completions".to_owned(), None)
    }

    fn embeddings(&self) -> Option<&'static str> {
        Some("/embeddings")
    }

    fn takes(&self, _: &Facts) -> Takes {
        Takes {
            api: "Chat Completions",
            temperature: 0.0..=2.0,
            seed: Some(self.dialect.seed),
            stop: Some(("stop", self.dialect.max_stops)),
            reasoning: body::effort_key(self.dialect),
            sampling: ["temperature", "top_p"],
            reserved: RESERVED,
        }
    }

    fn tools(&self, specs: &[Arc<ToolSpec>], names: &Names) -> serde_json::Result<Box<RawValue>> {
        body::tools(specs, names)
    }

    fn body(&self, model: &Facts, request: &ModelRequest, tools: &ToolList) -> serde_json::Result<Vec<u8>> {
        body::write(model, request, tools, self.dialect)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(answer::Chunks::new(self.dialect))
    }
}
