//! The model of a provider that nobody named: of those that the catalogue prefers, the first that the provider has.
//!
//! Which that is, is asked at the first use and not when a daemon starts: a start must not wait for anybody, nor fail
//! without a network. Only that first use waits. What the provider said is [remembered](crate::listed) for a while, and is
//! asked anew beside requests that go on meanwhile. Where it has no list, or could not be asked, the most preferred model is;
//! its own answer then says what is wrong.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use drupe_agent::{ModelEvent, ModelFault, ModelProfile, ModelRequest, Price};
use drupe_extension_api::{FailureClass, ModelParameters};
use futures_util::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};

use crate::{
    error::Unsupported,
    listed::{Asking, Known, List, Listed, listed},
    retry,
    source::{Broken, Progress, Source},
    wire::{ListedModel, WireProvider, WireSource},
};

/// Names of what a provider has instead that go into a message.
const MOST_NAMED: usize = 8;

/// Models in order of preference, of which one is asked.
pub(crate) struct Preferred {
    provider: Arc<WireProvider>,
    name: String,
    listed: Arc<Listed>,
    models: Arc<[Arc<WireSource>]>,
    /// What holds for each of them, since any may be the one.
    profile: ModelProfile,
}

impl Preferred {
    /// None where there is no model.
    pub(crate) fn new(
        name: &str,
        provider: Arc<WireProvider>,
        listed: Arc<Listed>,
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
    fn supports(&self, parameters: &ModelParameters) -> Result<(), Unsupported> {
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
        let (provider, name) = (Arc::clone(&self.provider), self.name.clone());
        let known = self.listed.known(|| async move { provider.list(&name).await }.boxed());
        let name = self.name.clone();
        let chosen = async move {
            let choose = |list: &List| choose(&name, &able, list.as_ref().ok().and_then(Option::as_deref));
            let (chosen, asking) = match known {
                Known::Fresh(list) => (choose(&list), None),
                // Whoever could go on does not wait.
                Known::Old(list, asking) => match choose(&list) {
                    Ok(model) => (Ok(model), Some(asking)),
                    Err(_) => (choose(&*asking.await), None),
                },
                Known::Nothing(asking) => (choose(&*asking.await), None),
            };
            match (chosen, asking) {
                (Ok(model), None) => model.attempt(request, progress),
                (Ok(model), Some(asking)) => beside(asking, model.attempt(request, progress)),
                (Err(fault), _) => stream::iter([Err(fault.into())]).boxed(),
            }
        };
        stream::once(chosen).flatten().boxed()
    }
}

type Events = BoxStream<'static, Result<ModelEvent, Broken>>;

/// The events of a request, while an asking goes on beside it.
fn beside(asking: Asking, mut events: Events) -> Events {
    let mut asking = Some(asking);
    stream::poll_fn(move |cx: &mut Context<'_>| -> Poll<Option<_>> {
        if asking.as_mut().is_some_and(|asking| Pin::new(asking).poll(cx).is_ready()) {
            asking = None;
        }
        events.poll_next_unpin(cx)
    })
    .boxed()
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
