//! The model of a provider that nobody named: of those that the catalogue prefers, the first that the provider has.
//!
//! Which that is, is asked at the first use and not when a daemon starts: a start must not wait for anybody, nor fail
//! without a network. What the provider said is kept. Where it has no list, or could not be asked, the most preferred
//! model is; its own answer then says what is wrong.

use std::sync::Arc;

use drupe_agent::{ModelEvent, ModelFault, ModelProfile, ModelRequest, Price};
use drupe_extension_api::{FailureClass, ModelParameters};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::OnceCell;

use crate::{
    retry,
    source::{Broken, Progress, Source, is_snapshot},
    wire::{ListedModel, WireProvider, WireSource},
};

/// Names of what a provider has instead that go into a message.
const MOST_NAMED: usize = 8;

/// What a provider said of the models that it has; none where it has no list.
pub(crate) type Listed = Arc<OnceCell<Option<Vec<ListedModel>>>>;

/// Models in order of preference, of which one is asked.
pub(crate) struct Preferred {
    provider: Arc<WireProvider>,
    name: String,
    listed: Listed,
    models: Arc<[Arc<WireSource>]>,
    /// What holds for each of them, since any may be the one.
    profile: ModelProfile,
}

impl Preferred {
    /// None where there is no model.
    pub(crate) fn new(
        name: &str,
        provider: Arc<WireProvider>,
        listed: Listed,
        models: Vec<WireSource>,
    ) -> Option<Self> {
        let mut profile = models.first()?.profile().clone();
        models.iter().skip(1).for_each(|model| retry::narrow(&mut profile, model.profile()));
        let models = models.into_iter().map(Arc::new).collect();
        Some(Self { provider, name: name.to_owned(), listed, models, profile })
    }
}

impl Source for Preferred {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn price_of(&self, model: &str) -> Option<Option<Price>> {
        self.models.iter().find_map(|own| own.price_of(model))
    }

    /// One of them can: it is the one then.
    fn supports(&self, parameters: &ModelParameters) -> Result<(), String> {
        let mut said = self.models.iter().map(|model| model.supports(parameters));
        let first = said.next().unwrap_or(Ok(()));
        if first.is_ok() || said.any(|said| said.is_ok()) { Ok(()) } else { first }
    }

    fn attempt(
        &self,
        request: Arc<ModelRequest>,
        progress: Arc<Progress>,
    ) -> BoxStream<'static, Result<ModelEvent, Broken>> {
        let able = self.models.iter().filter(|model| model.supports(&request.parameters).is_ok());
        let able: Vec<_> = able.cloned().collect();
        let (provider, listed, name) =
            (Arc::clone(&self.provider), Arc::clone(&self.listed), self.name.clone());
        let chosen = async move {
            // What could not be asked for is asked for again next time.
            let list = listed.get_or_try_init(|| provider.list(&name)).await;
            match choose(&name, &able, list.ok().and_then(Option::as_deref)) {
                Ok(model) => model.attempt(request, progress),
                Err(fault) => stream::iter([Err(fault.into())]).boxed(),
            }
        };
        stream::once(chosen).flatten().boxed()
    }
}

/// The model of this name in a provider's list: itself, else one of its snapshots, else what servers with tags call it,
/// where the tag that nobody names is `latest` (Ollama's, as its API's description of 2026-11-23 has it).
pub(crate) fn listed<'a>(list: &'a [ListedModel], model: &str) -> Option<&'a ListedModel> {
    let is_latest = |name: &str| name.strip_suffix(":latest") == Some(model);
    let fits: [&dyn Fn(&str) -> bool; 3] =
        [&|name| name == model, &|name| is_snapshot(name, model), &is_latest];
    fits.iter().find_map(|fits| list.iter().find(|listed| fits(&listed.name)))
}

/// The first of `able` that `list` has.
pub(crate) fn choose(
    provider: &str,
    able: &[Arc<WireSource>],
    list: Option<&[ListedModel]>,
) -> Result<Arc<WireSource>, ModelFault> {
    let found = match list {
        Some(list) => able.iter().find(|model| listed(list, model.name()).is_some()),
        None => able.first(),
    };
    if let Some(model) = found {
        return Ok(Arc::clone(model));
    }
    let named = |names: &mut dyn Iterator<Item = &str>| {
        names.take(MOST_NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let preferred = named(&mut able.iter().map(|model| model.name()));
    let there = named(&mut list.unwrap_or_default().iter().map(|listed| listed.name.as_str()));
    let there = if there.is_empty() { "none".to_owned() } else { there };
    let text = format!(
        "provider `{provider}` has none of the models that are preferred where nobody names one ({preferred}): name one \
         with `models.aliases.default: {provider}/MODEL` or `models.providers.{provider}.default_model`; its list has \
         {there}"
    );
    Err(ModelFault::fatal(FailureClass::Config, text).unused())
}
