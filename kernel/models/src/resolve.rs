//! From a model's name to the model.
//!
//! Everything that can be wrong with a name, a key or a parameter is said here, when an agent is loaded, and not
//! when it is first asked.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use drupe_agent::{Model, ModelProfile, model::Price};
use drupe_extension_api::ModelParameters;

use crate::{
    breaker::Gate,
    chat::ChatProvider,
    error::ModelsError,
    offline::OfflineSource,
    retry::{Chain, Link},
    scripted::{Script, ScriptedSource},
    settings::{ModelsSettings, ProfileSettings, ProviderKind, ProviderSettings},
    source::{self, Source},
};

/// Assumed of a model of which nothing is known: what small local models have, so that nothing overflows.
const CONTEXT_WINDOW: u64 = 32_768;
/// Likewise.
const MAX_OUTPUT_TOKENS: u32 = 4_096;
/// An answer of rules has no natural bound; this one never binds.
const OFFLINE_WINDOW: u64 = 1_000_000;
const FREE: Price = Price { input: 0.0, cached: 0.0, output: 0.0 };

/// What names lead to.
pub struct Resolved {
    /// The model: all that were named, in order.
    pub model: Arc<dyn Model>,
    /// What the operator should know: substitutions and models left out. Empty where all is as it was written.
    pub diagnostics: Vec<String>,
}

/// All models that can be reached.
pub struct Models {
    settings: ModelsSettings,
    providers: BTreeMap<String, Arc<Provider>>,
    offline: Link,
    /// Scripts named by path, so that each keeps its place whoever names it.
    scripts: Mutex<HashMap<PathBuf, Link>>,
}

struct Provider {
    settings: ProviderSettings,
    gate: Arc<Gate>,
    backend: Backend,
}

enum Backend {
    Chat(Arc<ChatProvider>),
    Scripted(Arc<Script>),
    Offline,
}

impl Models {
    /// Checks all settings. Opens no connection, and reads nothing but certificate and script files.
    pub fn new(settings: ModelsSettings) -> Result<Self, ModelsError> {
        let mut providers = BTreeMap::new();
        for provider in &settings.providers {
            let built = Arc::new(Provider::new(provider.clone())?);
            if providers.insert(provider.name.clone(), built).is_some() {
                let reason = "is configured twice".to_owned();
                return Err(ModelsError::Provider { provider: provider.name.clone(), reason });
            }
        }
        let offline = Link {
            source: Arc::new(OfflineSource::new(offline_profile("offline/offline"))),
            gate: free_gate("offline"),
        };
        Ok(Self { settings, providers, offline, scripts: Mutex::new(HashMap::new()) })
    }

    /// The model for `names`, tried in order; no names mean the default model. See [`resolve_for`](Self::resolve_for).
    pub fn resolve(&self, names: &[String]) -> Result<Resolved, ModelsError> {
        self.resolve_for(names, &ModelParameters::default())
    }

    /// The model for `names` that can do what `parameters` ask for.
    ///
    /// With no provider configured every name leads to the offline model, with a diagnostic. A name whose provider
    /// is not configured leads to the fallback if there is one; else it is left out where other names remain, with
    /// a diagnostic, and is an error where none does. An unknown name is always an error.
    pub fn resolve_for(
        &self,
        names: &[String],
        parameters: &ModelParameters,
    ) -> Result<Resolved, ModelsError> {
        let mut search = Search {
            models: self,
            links: Vec::new(),
            diagnostics: Vec::new(),
            missing: None,
            trail: Vec::new(),
        };
        if names.is_empty() {
            search.add_default()?;
        }
        for name in names {
            search.add(name)?;
        }
        if search.links.is_empty()
            && let Some(error) = search.missing
        {
            return Err(error);
        }
        let chain = Chain::new(search.links).ok_or(ModelsError::NoDefault)?;
        chain.supports(parameters).map_err(|(model, what)| ModelsError::Unsupported { model, what })?;
        Ok(Resolved { model: Arc::new(chain), diagnostics: search.diagnostics })
    }

    /// What is known of the model that an answer names as `provider/model`. For the price of an answer of one of
    /// several models.
    pub fn profile(&self, name: &str) -> Option<ModelProfile> {
        let (provider, model) = name.split_once('/')?;
        if provider == "offline" {
            return Some(self.offline.source.profile().clone());
        }
        self.providers.get(provider).map(|p| self.profile_of(p, model))
    }

    /// Whether any provider can be asked at all, other than the offline model.
    pub fn configured(&self) -> bool {
        self.providers.values().any(|p| !matches!(p.backend, Backend::Offline))
    }

    fn link(&self, provider: &Provider, model: &str) -> Link {
        let profile = self.profile_of(provider, model);
        let source: Arc<dyn Source> = match &provider.backend {
            Backend::Chat(chat) => Arc::new(chat.model(model, profile)),
            Backend::Scripted(script) => Arc::new(ScriptedSource::new(Arc::clone(script), profile)),
            Backend::Offline => Arc::new(OfflineSource::new(profile)),
        };
        Link { source, gate: Arc::clone(&provider.gate) }
    }

    fn profile_of(&self, provider: &Provider, model: &str) -> ModelProfile {
        let name = format!("{}/{model}", provider.settings.name);
        let profiles = &self.settings.profiles;
        let said = [profiles.get(&name), profiles.get(model), self.catalogued(model).map(|(_, p)| p)];
        let first = |get: fn(&ProfileSettings) -> Option<u64>| said.iter().flatten().find_map(|p| get(p));
        let costs_nothing = !matches!(provider.backend, Backend::Chat(_));
        ModelProfile {
            context_window: first(|p| p.context_window).unwrap_or(CONTEXT_WINDOW),
            max_output_tokens: first(|p| p.max_output_tokens.map(u64::from))
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(MAX_OUTPUT_TOKENS),
            price: said.iter().flatten().find_map(|p| p.price).or(costs_nothing.then_some(FREE)),
            name,
        }
    }

    /// The catalogue's entry: the exact name, else the longest pattern.
    fn catalogued(&self, model: &str) -> Option<(&str, &ProfileSettings)> {
        let catalogue = &self.settings.catalogue;
        let fits = |key: &str| key.strip_suffix('*').is_some_and(|start| model.starts_with(start));
        catalogue
            .get(model)
            .or_else(|| {
                catalogue.iter().filter(|(key, _)| fits(key)).max_by_key(|(key, _)| key.len()).map(|(_, e)| e)
            })
            .map(|entry| (entry.provider.as_str(), &entry.profile))
    }

    fn script(&self, path: &Path) -> Result<Link, ModelsError> {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = scripts.get(path) {
            return Ok(link.clone());
        }
        let script = Arc::new(Script::read(path).map_err(|e| ModelsError::Script(e.to_string()))?);
        let file = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
        let profile = offline_profile(&format!("scripted/{file}"));
        let link =
            Link { source: Arc::new(ScriptedSource::new(script, profile)), gate: free_gate("scripted") };
        scripts.insert(path.to_owned(), link.clone());
        Ok(link)
    }
}

/// One walk from names to links.
struct Search<'a> {
    models: &'a Models,
    links: Vec<Link>,
    diagnostics: Vec<String>,
    /// The first name whose provider is not configured.
    missing: Option<ModelsError>,
    trail: Vec<String>,
}

impl Search<'_> {
    fn add_default(&mut self) -> Result<(), ModelsError> {
        let models = self.models;
        if models.settings.aliases.contains_key("default") {
            return self.add("default");
        }
        let first = models.settings.providers.iter().find_map(|p| Some((p, p.default_model.as_deref()?)));
        match first {
            Some((provider, model)) => self.add(&format!("{}/{model}", provider.name)),
            None if !models.configured() => self.offline("the default model"),
            None => Err(ModelsError::NoDefault),
        }
    }

    fn add(&mut self, name: &str) -> Result<(), ModelsError> {
        let models = self.models;
        if let Some(path) = name.strip_prefix("scripted:") {
            self.links.push(models.script(Path::new(path))?);
            return Ok(());
        }
        if let Some(targets) = models.settings.aliases.get(name) {
            return self.alias(name, targets);
        }
        if let Some(provider) = models.providers.get(name) {
            let offline = matches!(provider.backend, Backend::Offline).then_some("offline");
            let model = provider.settings.default_model.as_deref().or(offline);
            let model = model.ok_or_else(|| ModelsError::UnknownModel { model: name.to_owned() })?;
            self.links.push(models.link(provider, model));
            return Ok(());
        }
        if matches!(name, "offline" | "offline/offline") {
            self.links.push(models.offline.clone());
            return Ok(());
        }
        self.add_model(name)
    }

    fn alias(&mut self, name: &str, targets: &[String]) -> Result<(), ModelsError> {
        if self.trail.iter().any(|n| n == name) {
            return Err(ModelsError::AliasLoop { alias: name.to_owned() });
        }
        self.trail.push(name.to_owned());
        for target in targets {
            self.add(target)?;
        }
        self.trail.pop();
        Ok(())
    }

    /// `provider/model`, or a bare name by the catalogue. A bare name may hold a `/` itself.
    fn add_model(&mut self, name: &str) -> Result<(), ModelsError> {
        let models = self.models;
        let is_known = |p: &str| models.providers.contains_key(p) || models.settings.missing.contains_key(p);
        let found = match name.split_once('/') {
            Some((provider, model)) if is_known(provider) => Some((provider, model)),
            _ => models.catalogued(name).map(|(provider, _)| (provider, name)),
        };
        if let Some((provider, model)) = found
            && let Some(provider) = models.providers.get(provider)
        {
            self.links.push(models.link(provider, model));
            return Ok(());
        }
        if !models.configured() {
            return self.offline(name);
        }
        match (found, name.split_once('/')) {
            (Some((provider, _)), _) => self.absent(name, provider),
            (None, Some((provider, _))) => {
                let known: Vec<&str> = models.providers.keys().map(String::as_str).collect();
                let known = known.join(", ");
                Err(ModelsError::UnknownProvider {
                    model: name.to_owned(),
                    provider: provider.to_owned(),
                    known,
                })
            }
            (None, None) => Err(ModelsError::UnknownModel { model: name.to_owned() }),
        }
    }

    fn offline(&mut self, name: &str) -> Result<(), ModelsError> {
        self.diagnostics
            .push(format!("no model provider is configured: the offline model stands in for {name}"));
        // A list of names would be a list of the same model.
        if self.links.is_empty() {
            self.links.push(self.models.offline.clone());
        }
        Ok(())
    }

    fn absent(&mut self, name: &str, provider: &str) -> Result<(), ModelsError> {
        let variable = self.models.settings.missing.get(provider).cloned();
        let error =
            ModelsError::NotConfigured { model: name.to_owned(), provider: provider.to_owned(), variable };
        match &self.models.settings.fallback {
            Some(fallback) if !self.trail.iter().any(|n| n == "<fallback>") => {
                self.diagnostics.push(format!("{error}; `{fallback}` stands in for it"));
                self.trail.push("<fallback>".to_owned());
                self.add(fallback)?;
                self.trail.pop();
            }
            _ => {
                self.diagnostics.push(error.to_string());
                self.missing.get_or_insert(error);
            }
        }
        Ok(())
    }
}

impl Provider {
    fn new(settings: ProviderSettings) -> Result<Self, ModelsError> {
        let wrong = |reason: String| ModelsError::Provider { provider: settings.name.clone(), reason };
        if settings.name.is_empty() || settings.name.contains(['/', ':']) {
            return Err(wrong("the name must not be empty or hold `/` or `:`".to_owned()));
        }
        if settings.timeout_ms == 0 || settings.stall_timeout_ms == 0 || settings.concurrency == 0 {
            return Err(wrong("timeouts and concurrency must be above zero".to_owned()));
        }
        let backend = match &settings.kind {
            ProviderKind::OpenAiChat { .. } => {
                Backend::Chat(Arc::new(ChatProvider::new(&settings).map_err(wrong)?))
            }
            ProviderKind::Scripted { file } => {
                Backend::Scripted(Arc::new(Script::read(file).map_err(|e| wrong(e.to_string()))?))
            }
            ProviderKind::Offline => Backend::Offline,
        };
        let gate = Gate::new(&settings.name, settings.concurrency, source::milliseconds(settings.timeout_ms));
        Ok(Self { settings, gate, backend })
    }
}

fn offline_profile(name: &str) -> ModelProfile {
    let max_output_tokens = MAX_OUTPUT_TOKENS;
    ModelProfile {
        name: name.to_owned(),
        context_window: OFFLINE_WINDOW,
        max_output_tokens,
        price: Some(FREE),
    }
}

/// For models on this machine, which need no turn-taking.
fn free_gate(name: &str) -> Arc<Gate> {
    Gate::new(name, usize::MAX, Duration::from_secs(86_400))
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
