//! What all HTTP APIs of models have in common: one request, and its answer as a stream of events.
//!
//! [`exchange`] joins the request to its answer, over [`client`]'s pooled connections; [`embedding`] is another request, with its answer as a whole; [`sent`] tells when it goes out; [`frames`] splits the bytes
//! into events, [`halves`] joins characters that two events share, [`draft`] gathers what an API's reader found in them, [`fault`] judges what went wrong,
//! [`parameters`] refuses at load what an API cannot do, [`tools`] writes tool lists once, and [`names`] and
//! [`items`] carry what one side would not understand of the other. An [`Api`] adds the rest: where requests go,
//! what their body is, and how an event is read. Nothing here retries.

mod body;

mod client;

mod exchange;

mod frames;

mod halves;

mod sent;

mod listing;

mod embedding;

mod fault;

pub(crate) mod draft;
pub(crate) mod images;
pub(crate) mod items;
pub(crate) mod names;
pub(crate) mod parameters;
pub(crate) mod text;
pub(crate) mod tools;

use std::sync::Arc;

use drupe_agent::{ModelEvent, ModelProfile, ModelRequest};
use drupe_extension_api::{ImageType, ModelParameters, Reasoning, ToolSpec};
use futures_util::stream::BoxStream;
use reqwest::Url;
use serde_json::value::RawValue;

use crate::{
    error::Unsupported,
    settings::{Efforts, Thinking},
    source::{Broken, Progress, Source},
};

pub(crate) use client::WireProvider;
pub(crate) use draft::Draft;
pub(crate) use embedding::WireEmbedding;
pub(crate) use fault::{WireError, in_stream};
pub use listing::ListedModel;
pub(crate) use names::Names;
pub(crate) use parameters::Takes;
pub(crate) use tools::ToolList;

/// One way of speaking with models over HTTP. Holds what differs from server to server, and nothing of a request.
pub(crate) trait Api: Send + Sync {
    /// The kind's name in configuration.
    fn kind(&self) -> &'static str;

    /// The header that holds the key, and what stands before the key in it.
    fn key_header(&self) -> (&'static str, &'static str);

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Path behind the base address, and query, of requests to `model`.
    fn path(&self, model: &str) -> (String, Option<&'static str>);

    /// Path behind the base address, and query, of its list of models.
    fn list(&self) -> (&'static str, Option<&'static str>) {
        ("/models", None)
    }

    /// Path behind the base address of vectors of texts; none where it makes none.
    fn embeddings(&self) -> Option<&'static str> {
        None
    }

    /// The parameters that it takes for `model`; what it cannot do is refused when an agent is loaded.
    fn takes(&self, model: &Facts) -> Takes;

    /// What else stands in the way of such a request, for people.
    fn check(&self, _model: &Facts, _parameters: &ModelParameters) -> Result<(), Unsupported> {
        Ok(())
    }

    /// Whether models that read pictures read those.
    fn reads(&self, _media_type: ImageType) -> bool {
        true
    }

    /// The JSON of a tool list that is not empty. Called once a list.
    fn tools(&self, specs: &[Arc<ToolSpec>], names: &Names) -> serde_json::Result<Box<RawValue>>;

    /// The body of a request in which there are no pictures but those that the model reads.
    fn body(&self, model: &Facts, request: &ModelRequest, tools: &ToolList) -> serde_json::Result<Vec<u8>>;

    fn reader(&self) -> Box<dyn Reader>;
}

/// Reads the events of one answer.
pub(crate) trait Reader: Send {
    /// Takes the data of one event: what can be shown goes to `out`, all else to `draft`.
    fn take(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken>;

    /// Takes a whole answer in place of a stream, as the API gives it to those who ask for no stream.
    fn whole(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken>;
}

/// What an API's own code knows of the model that is asked.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The name that the provider knows it by.
    pub(crate) model: String,
    /// The kind and the full name. Parts of an answer that only this model understands are marked with it.
    pub(crate) origin: Arc<str>,
    /// Tokens that one answer may have.
    pub(crate) max_output_tokens: u32,
    pub(crate) reasoning: Option<bool>,
    /// The degrees of reasoning that it takes, where that is known.
    pub(crate) efforts: Option<Efforts>,
    /// How it is told how much to reason, where that is known.
    pub(crate) thinking: Option<Thinking>,
    /// Whether it takes temperature and nucleus sampling, where that is known.
    pub(crate) sampling: Option<bool>,
    pub(crate) images: bool,
}

impl Facts {
    /// The least reasoning that the model lets itself be told, where it is known to reason and which degrees it takes.
    pub(crate) fn least_reasoning(&self) -> Option<Reasoning> {
        let all = [Reasoning::None, Reasoning::Low, Reasoning::Medium, Reasoning::High];
        let efforts = self.efforts.filter(|_| self.reasoning != Some(false))?;
        all.into_iter().find(|effort| efforts.has(*effort))
    }
}

/// One model of a [`WireProvider`].
pub(crate) struct WireSource {
    provider: Arc<WireProvider>,
    facts: Facts,
    url: Url,
    profile: ModelProfile,
    /// Models that the provider is known to have, for whoever misspelled one.
    known: Arc<[String]>,
}

impl WireProvider {
    pub(crate) fn model(
        self: &Arc<Self>,
        facts: Facts,
        profile: ModelProfile,
        known: Arc<[String]>,
    ) -> WireSource {
        let url = self.url(&facts.model);
        WireSource { provider: Arc::clone(self), facts, url, profile, known }
    }
}

impl WireSource {
    /// The name that the provider knows it by.
    pub(crate) fn name(&self) -> &str {
        &self.facts.model
    }
}

impl Source for WireSource {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn supports(&self, parameters: &ModelParameters) -> Result<(), Unsupported> {
        let api = self.provider.api();
        parameters::check(&api.takes(&self.facts), &self.facts, parameters)?;
        api.check(&self.facts, parameters)
    }

    fn attempt(
        &self,
        request: Arc<ModelRequest>,
        progress: Arc<Progress>,
    ) -> BoxStream<'static, Result<ModelEvent, Broken>> {
        exchange::start(self, request, progress)
    }
}
