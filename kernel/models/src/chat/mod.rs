//! Providers that speak Chat Completions: OpenAI, and the many servers that took over its form.
//!
//! The wire code is ours: [`body`] writes the request, [`frames`] splits the byte stream into events, [`answer`]
//! puts the events together, [`fault`] judges what went wrong, [`exchange`] joins them to one HTTP request. What
//! differs between servers is in [`dialect`] and nowhere else. Nothing here retries.

mod dialect;

mod body;

mod frames;

mod content;

mod answer;

mod fault;

mod client;

mod exchange;

use std::sync::Arc;

use drupe_agent::{ModelEvent, ModelProfile, ModelRequest};
use drupe_extension_api::ModelParameters;
use futures_util::stream::BoxStream;

use crate::source::{Broken, Source};

pub(crate) use client::ChatProvider;

/// One model of a [`ChatProvider`].
pub(crate) struct ChatSource {
    provider: Arc<ChatProvider>,
    /// The model's name as the provider knows it.
    model: String,
    profile: ModelProfile,
}

impl ChatProvider {
    pub(crate) fn model(self: &Arc<Self>, model: &str, profile: ModelProfile) -> ChatSource {
        ChatSource { provider: Arc::clone(self), model: model.to_owned(), profile }
    }
}

impl Source for ChatSource {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn supports(&self, parameters: &ModelParameters) -> Result<(), String> {
        body::check(parameters, self.provider.dialect)
    }

    fn attempt(&self, request: Arc<ModelRequest>) -> BoxStream<'static, Result<ModelEvent, Broken>> {
        exchange::start(Arc::clone(&self.provider), &self.model, &self.profile.name, &request)
    }
}
