//! From a model's name to the model.
//!
//! Everything that can be wrong with a name, a key or a parameter is said here, when an agent is loaded, and not
//! when it is first asked.

mod embedding;
mod inspect;
mod script_cache;
mod search;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use drupe_agent::{EmbeddingModel, Model, ModelProfile, budget::UnknownPrice, model::Price};
use drupe_extension_api::{DefinitionLimits, ModelParameters};
use drupe_redact::Redactor;
use reqwest::Url;

use crate::{
    chat::ChatApi,
    error::ModelsError,
    error::Unusable,
    gate::Gate,
    gemini::GeminiApi,
    listed::Listed,
    messages::MessagesApi,
    offline::OfflineSource,
    preferred::Preferred,
    responses::ResponsesApi,
    retry::{Chain, Link},
    scripted::{Script, ScriptedSource},
    settings::{CatalogueEntry, Endpoint, ModelsSettings, ProfileSettings, ProviderKind, ProviderSettings},
    source::{self, Source},
    wire::{Api, Facts, WireProvider, WireSource},
};
pub use inspect::{Figure, FigureOrigin, Lists, Target};
use script_cache::ScriptCache;
pub use search::names_script;

/// Assumed of a model of which nothing is known: what small local models have, so that nothing overflows.
const CONTEXT_WINDOW: u64 = 32_768;
/// Likewise.
const MAX_OUTPUT_TOKENS: u32 = 4_096;
/// An answer of rules has no natural bound; this one never binds.
const OFFLINE_WINDOW: u64 = 1_000_000;
const FREE: Price = Price::flat(0.0, 0.0, 0.0);
/// Below all that is said of a model that runs here. Cached input is left out, so that it follows a price that is
/// set for other input.
const COSTS_NOTHING: ProfileSettings = ProfileSettings {
    context_window: None,
    max_output_tokens: None,
    input_usd: Some(0.0),
    cached_usd: None,
    cache_write_usd: None,
    output_usd: Some(0.0),
    long_prompts: None,
    tools: None,
    reasoning: None,
    efforts: None,
    thinking: None,
    sampling: None,
    images: None,
};

pub struct Resolved {
    /// The model: all that were named, in order.
    pub model: Arc<dyn Model>,
    /// What the operator should know: substitutions and models left out. Empty where all is as it was written.
    pub diagnostics: Vec<String>,
}

/// Who named a model. The path of a script is a file that is read: only the operator may name one, whose aliases and
/// providers may lead to one for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// `drupe.yaml`, or a message that came over the control socket.
    Operator,
    /// A manifest, or what an extension hands over.
    Extension,
}

/// All models that can be reached.
pub struct Models {
    settings: ModelsSettings,
    providers: BTreeMap<String, Arc<Provider>>,
    offline: Link,
    /// Scripts by path. A script that is named twice goes on where it was.
    scripts: Mutex<ScriptCache>,
    redactor: Redactor,
    /// What makes vectors of texts.
    embedding: Option<Arc<dyn EmbeddingModel>>,
}

struct Provider {
    settings: ProviderSettings,
    gate: Arc<Gate>,
    backend: Backend,
    /// Whose models the catalogue has for it.
    shipped_as: String,
    /// The catalogue's models of this provider, to suggest one for a misspelled name.
    known: Arc<[String]>,
    /// What it said of its own models, once it was asked.
    listed: Arc<Listed>,
}

enum Backend {
    Wire(Arc<WireProvider>),
    Scripted(Arc<Script>),
    Offline,
}

impl Models {
    /// Checks all settings. Opens no connection, and reads nothing but certificate and script files.
    pub fn new(settings: ModelsSettings) -> Result<Self, ModelsError> {
        let mut providers = BTreeMap::new();
        for provider in &settings.providers {
            let built = Arc::new(Provider::new(provider.clone(), &settings)?);
            if providers.insert(provider.name.clone(), built).is_some() {
                let reason = Unusable("is configured twice".to_owned());
                return Err(ModelsError::Provider { provider: provider.name.clone(), reason });
            }
        }
        let offline = Link {
            source: Arc::new(OfflineSource::new(offline_profile("offline/offline"))),
            gate: free_gate("offline"),
        };
        let (scripts, redactor) = (Mutex::default(), Redactor::default());
        let mut models = Self { settings, providers, offline, scripts, redactor, embedding: None };
        models.embedding = models.make_embedding()?;
        Ok(models)
    }

    /// The same models, whose answers hold no secret that is known by then. The keys of all providers become known.
    #[must_use]
    pub fn redacting(self, redactor: &Redactor) -> Self {
        let endpoints = self.settings.providers.iter().filter_map(|provider| provider.kind.endpoint());
        redactor.learn(endpoints.flat_map(Endpoint::credentials));
        Self { redactor: redactor.clone(), ..self }
    }

    /// The model for `names`, tried in order; no names mean the default model. See [`resolve_for`](Self::resolve_for).
    pub fn resolve(&self, by: NamedBy, names: &[String]) -> Result<Resolved, ModelsError> {
        self.resolve_for(by, names, &ModelParameters::default(), &DefinitionLimits::default())
    }

    /// The model for `names` that can do what `parameters` ask for, and whose cost can be held within `limits`: where
    /// these or the operator bound it, each model of the list must have a known price.
    ///
    /// With no provider configured every name leads to the offline model, with a diagnostic. A name that leads
    /// nowhere, because its provider is not configured or nobody knows it, is left out where others remain, with a
    /// diagnostic; where none does the fallback stands in for them, with a diagnostic, or it is an error. Without
    /// a fallback a name that nobody knows is always an error. Repeated models are asked once.
    pub fn resolve_for(
        &self,
        by: NamedBy,
        names: &[String],
        parameters: &ModelParameters,
        limits: &DefinitionLimits,
    ) -> Result<Resolved, ModelsError> {
        let found = search::find(self, by, names)?;
        let links = found.links.into_iter().map(|(_, link)| link).collect();
        let chain = Chain::new(links).ok_or(ModelsError::NoDefault)?.redacting(self.redactor.clone());
        chain.supports(parameters).map_err(|(model, what)| ModelsError::Unsupported { model, what })?;
        if let Some(unknown) = chain.unpriced().and_then(|model| self.unknown_price(model, limits)) {
            return Err(ModelsError::UnknownPrice(unknown));
        }
        Ok(Resolved { model: Arc::new(chain), diagnostics: found.diagnostics })
    }

    /// Whether any provider can be asked at all, other than the offline model.
    pub fn configured(&self) -> bool {
        self.providers.values().any(|p| !matches!(p.backend, Backend::Offline))
    }

    /// The day on which the catalogue was last looked up.
    pub(crate) fn looked_up(&self) -> &str {
        &self.settings.looked_up
    }

    /// The cost limit that could not be held for a model without a price, if one was set.
    fn unknown_price(&self, model: &str, limits: &DefinitionLimits) -> Option<UnknownPrice> {
        let set = self.settings.cost_limit.clone();
        let set = set.map(|limit| UnknownPrice { limit, model: model.to_owned() });
        set.or_else(|| UnknownPrice::under(limits, model))
    }

    fn link(&self, provider: &Provider, model: &str) -> Link {
        let profile = || profile(provider, model, &self.said_of(provider, model));
        let source: Arc<dyn Source> = match &provider.backend {
            Backend::Wire(wire) => Arc::new(self.wired(provider, wire, model)),
            Backend::Scripted(script) => Arc::new(ScriptedSource::new(Arc::clone(script), profile())),
            Backend::Offline => Arc::new(OfflineSource::new(profile())),
        };
        Link { source, gate: Arc::clone(&provider.gate) }
    }

    fn wired(&self, provider: &Provider, wire: &Arc<WireProvider>, model: &str) -> WireSource {
        let said = self.said_of(provider, model);
        let profile = profile(provider, model, &said);
        let facts = Facts {
            model: model.to_owned(),
            origin: format!("{}:{}", wire.kind(), profile.name).into(),
            max_output_tokens: profile.max_output_tokens,
            reasoning: said.reasoning,
            efforts: said.efforts,
            thinking: said.thinking,
            sampling: said.sampling,
            images: profile.images,
        };
        wire.model(facts, profile, Arc::clone(&provider.known))
    }

    /// One of the models that are preferred where a provider is named alone.
    fn preferred(&self, provider: &Provider) -> Option<Link> {
        let Backend::Wire(wire) = &provider.backend else { return None };
        let models = self.all_preferred(provider, wire).collect();
        let listed = Arc::clone(&provider.listed);
        let source = Preferred::new(&provider.settings.name, Arc::clone(wire), listed, models)?;
        Some(Link { source: Arc::new(source), gate: Arc::clone(&provider.gate) })
    }

    fn all_preferred<'a>(
        &'a self,
        provider: &'a Provider,
        wire: &'a Arc<WireProvider>,
    ) -> impl Iterator<Item = WireSource> + 'a {
        provider.settings.preferred.iter().map(|model| self.wired(provider, wire, model))
    }

    /// All that is said of a model, the operator's words first.
    fn said_of(&self, provider: &Provider, model: &str) -> ProfileSettings {
        let layers = self.layers(provider, model).map(|(_, said)| said);
        layers.reduce(ProfileSettings::or).unwrap_or_default()
    }

    /// Who says something of a model, and what, the operator first.
    fn layers(
        &self,
        provider: &Provider,
        model: &str,
    ) -> impl Iterator<Item = (FigureOrigin, ProfileSettings)> {
        let profiles = &self.settings.profiles;
        let set = |name: &str| profiles.get(name).map(|said| (FigureOrigin::Profile(name.to_owned()), *said));
        let catalogued = self.catalogued(model, Some(&provider.shipped_as));
        let layers = [
            set(&format!("{}/{model}", provider.settings.name)),
            set(model),
            catalogued.map(|(name, entry)| (FigureOrigin::Catalogue(name.to_owned()), entry.profile)),
            (!matches!(provider.backend, Backend::Wire(_))).then_some((FigureOrigin::Here, COSTS_NOTHING)),
        ];
        layers.into_iter().flatten()
    }

    /// Whether neither the operator nor the catalogue says how much it holds or what it costs.
    fn knows_nothing_of(&self, provider: &Provider, model: &str) -> bool {
        let said = self.said_of(provider, model);
        said.context_window.is_none() && said.max_output_tokens.is_none() && said.price().is_none()
    }

    /// The catalogue's entry: of the model, else of the one that it is a snapshot of, else of the family with the longest
    /// beginning. `of` leaves only one provider's: a name is
    /// no promise that two providers run the same model, at the same price.
    fn catalogued(&self, model: &str, of: Option<&str>) -> Option<(&str, &CatalogueEntry)> {
        let fits = |key: &str| match key.strip_suffix('*') {
            Some(start) => model.starts_with(start),
            None => model == key || source::is_snapshot(model, key),
        };
        self.settings
            .catalogue
            .iter()
            .filter(|(key, entry)| fits(key) && of.is_none_or(|provider| entry.provider == provider))
            .max_by_key(|(key, _)| (!key.ends_with('*'), key.len()))
            .map(|(key, entry)| (key.as_str(), entry))
    }

    fn script(&self, path: &Path) -> Result<Link, ModelsError> {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = scripts.get(path) {
            return Ok(link);
        }
        let script = Arc::new(Script::read(path).map_err(|e| ModelsError::Script(e.to_string()))?);
        let file = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
        let profile = offline_profile(&format!("scripted/{file}"));
        let link =
            Link { source: Arc::new(ScriptedSource::new(script, profile)), gate: free_gate("scripted") };
        scripts.keep(path.to_owned(), link.clone());
        Ok(link)
    }
}

/// Makes what speaks with a server.
type NewApi = fn(&Endpoint, &Url) -> Result<Box<dyn Api>, Unusable>;

impl Provider {
    fn new(settings: ProviderSettings, all: &ModelsSettings) -> Result<Self, ModelsError> {
        let wrong = |reason: Unusable| ModelsError::Provider { provider: settings.name.clone(), reason };
        if settings.name.is_empty() || settings.name.contains(['/', ':']) {
            return Err(wrong(Unusable("the name must not be empty or hold `/` or `:`".to_owned())));
        }
        if settings.timeout_ms == 0 || settings.stall_timeout_ms == 0 || settings.concurrency == 0 {
            return Err(wrong(Unusable("timeouts and concurrency must be above zero".to_owned())));
        }
        let wire = |endpoint: &Endpoint, api: NewApi| {
            WireProvider::new(endpoint, settings.stall_timeout_ms, |url| api(endpoint, url))
                .map(|wire| Backend::Wire(Arc::new(wire)))
        };
        let backend = match &settings.kind {
            ProviderKind::OpenAiChat(endpoint) => {
                wire(endpoint, |endpoint, url| Ok(Box::new(ChatApi::at(endpoint, url)?)))
            }
            ProviderKind::OpenAi(endpoint) => wire(endpoint, |_, _| Ok(Box::new(ResponsesApi))),
            ProviderKind::Anthropic(endpoint) => {
                wire(endpoint, |endpoint, _| Ok(Box::new(MessagesApi::at(endpoint))))
            }
            ProviderKind::Gemini(endpoint) => wire(endpoint, |_, _| Ok(Box::new(GeminiApi))),
            ProviderKind::Scripted { file } => Script::read(file)
                .map(|script| Backend::Scripted(Arc::new(script)))
                .map_err(|e| Unusable(e.to_string())),
            ProviderKind::Offline => Ok(Backend::Offline),
        };
        let backend = backend.map_err(wrong)?;
        let gate = Gate::new(&settings.name, settings.concurrency, source::milliseconds(settings.timeout_ms));
        let shipped_as = shipped_as(&settings, all).to_owned();
        let known = known(all, &shipped_as);
        let listed = Listed::new(&settings.preferred);
        Ok(Self { gate, backend, shipped_as, known, listed, settings })
    }
}

/// The provider of the catalogue that a configured one is: its own name, or that of the vendor whose address it has.
/// A second account there has the same models at the same price.
fn shipped_as<'a>(provider: &'a ProviderSettings, all: &ModelsSettings) -> &'a str {
    let own = provider.name.as_str();
    if all.catalogue.values().any(|entry| entry.provider == own) {
        return own;
    }
    let (endpoint, host, vendor) = match &provider.kind {
        ProviderKind::OpenAi(endpoint) | ProviderKind::OpenAiChat(endpoint) => {
            (endpoint, "api.openai.com", "openai")
        }
        ProviderKind::Anthropic(endpoint) => (endpoint, "api.anthropic.com", "anthropic"),
        ProviderKind::Gemini(endpoint) => (endpoint, "generativelanguage.googleapis.com", "gemini"),
        ProviderKind::Scripted { .. } | ProviderKind::Offline => return own,
    };
    let url = Url::parse(endpoint.base_url.trim()).ok();
    if url.is_some_and(|url| url.host_str() == Some(host)) { vendor } else { own }
}

/// The catalogue's names of a provider's models.
fn known(settings: &ModelsSettings, provider: &str) -> Arc<[String]> {
    let own =
        settings.catalogue.iter().filter(|(name, entry)| entry.provider == provider && !name.ends_with('*'));
    own.map(|(name, _)| name.clone()).collect()
}

fn profile(provider: &Provider, model: &str, said: &ProfileSettings) -> ModelProfile {
    ModelProfile {
        name: format!("{}/{model}", provider.settings.name),
        context_window: said.context_window.unwrap_or(CONTEXT_WINDOW),
        max_output_tokens: said.max_output_tokens.unwrap_or(MAX_OUTPUT_TOKENS),
        price: said.price(),
        tools: said.tools.unwrap_or(true),
        images: said.images.unwrap_or(false),
    }
}

fn offline_profile(name: &str) -> ModelProfile {
    let max_output_tokens = MAX_OUTPUT_TOKENS;
    ModelProfile {
        name: name.to_owned(),
        context_window: OFFLINE_WINDOW,
        max_output_tokens,
        price: Some(FREE),
        tools: true,
        images: false,
    }
}

/// Whether that is the name of the model which follows rules, as a profile has it.
pub fn is_offline(name: &str) -> bool {
    name.split_once('/').is_some_and(|(provider, _)| provider == search::OFFLINE)
}

/// For models on this machine, which need no turn-taking.
fn free_gate(name: &str) -> Arc<Gate> {
    Gate::new(name, usize::MAX, Duration::from_secs(86_400))
}

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
