//! `models`: providers, names for their models, and what is known of them.
//!
//! Which keys are present decides here what needs no configuration. Which model a name stands for does not: that
//! is for whoever asks the models.

use std::collections::BTreeMap;

use super::{Config, ProviderConfig, ProviderKind, ValueOrigin, agents::MODEL, providers, read::Checks};
use crate::{
    Diagnostics, ModelProfile, Overlay, Secret,
    catalogue::{CatalogueProvider, model_catalogue},
    declare::keys,
    fields::Field,
    forms,
    profile::PROFILE,
    shape::{Shape, each_its_own},
    source::{At, Source, SourceOrigin},
};

/// The provider that needs nothing and is always there.
const OFFLINE: &str = "offline";
/// The host of OpenAI itself; those of its regions end so, too.
const OPENAI: &str = "api.openai.com";

keys! {
    /// Providers, aliases and prices.
    #[derive(Default)]
    pub struct ModelsConfig in MODELS("`models`") {
        /// Names for models, such as `default`; each stands for a list in order of preference.
        aliases (default): BTreeMap<String, Vec<String>> => Shape::Map { key: &forms::NAME, value: &MODEL };
        /// The model in place of one whose provider is missing.
        fallback: Option<String> => Shape::Text(&forms::MODEL);
        /// The model that makes vectors of texts, as `provider/model`; absent: there are none.
        embedding: Option<String> => Shape::Text(&forms::MODEL);
        /// Where models run, by name. Those whose keys are present and `offline` are added.
        providers (default): BTreeMap<String, ProviderConfig> =>
            Shape::Map { key: &forms::NAME, value: &Shape::Record(&providers::PROVIDER) };
        /// Sizes and prices over the shipped ones, by `provider/model` or by the bare name.
        profiles: BTreeMap<String, ModelProfile> = each_its_own() =>
            Shape::Map { key: &forms::NON_EMPTY, value: &Shape::Record(&PROFILE) };
    }
}

impl ModelsConfig {
    fn only_offline(&self) -> bool {
        self.providers.values().all(|provider| provider.kind == ProviderKind::Offline)
    }
}

impl Config {
    /// Every key of the configuration under which models are named, with the names that stand there.
    pub fn model_names(&self) -> Vec<(String, Vec<String>)> {
        let models = &self.models;
        let aliases = models.aliases.iter().map(|(name, to)| (format!("models.aliases.{name}"), to.clone()));
        let mut named: Vec<_> = aliases.collect();
        let own = |key: String, name: &String| (key, vec![name.clone()]);
        named.push(("orchestrator.model".to_owned(), self.orchestrator.models.clone()));
        named.push(("agents.defaults.model".to_owned(), self.agents.defaults.models.clone()));
        named.extend(models.fallback.iter().map(|name| own("models.fallback".to_owned(), name)));
        let defaults = models.providers.iter().filter(|(_, provider)| provider.default_model.is_some());
        named.extend(defaults.map(|(name, _)| own(format!("models.providers.{name}.default_model"), name)));
        named
    }
}

/// Whether the provider's name alone says which model is meant.
fn has_default_model(name: &str, provider: &ProviderConfig) -> bool {
    match provider.kind {
        ProviderKind::Openai | ProviderKind::OpenaiChat | ProviderKind::Anthropic | ProviderKind::Gemini => {
            let known = provider.catalogued && model_catalogue().provider(name).is_some();
            provider.default_model.is_some() || !provider.preferred.is_empty() || known
        }
        // The rules are the default where nothing else is, and never before anything else.
        ProviderKind::Offline => false,
        // A script answers whatever it is called.
        ProviderKind::Scripted => true,
    }
}

/// Adds what needs no configuration: the offline provider, those whose key is present, and `default`.
pub(super) fn add_implicit(
    models: &mut ModelsConfig,
    overlay: &Overlay,
    origins: &mut BTreeMap<String, ValueOrigin>,
    faults: &mut Diagnostics,
) {
    // The operator's own provider comes first where nothing says which model is the default.
    let configured = models.providers.iter().find(|(name, provider)| has_default_model(name, provider));
    let configured = configured.map(|(name, _)| name.clone());
    let mut present = None;
    for known in &model_catalogue().providers {
        if models.providers.contains_key(&known.name) {
            continue;
        }
        let Some((variable, key)) = key_of(known, overlay) else { continue };
        let mut provider = ProviderConfig { api_key: Some(key.clone()), ..ProviderConfig::new(known.kind) };
        let mut set = |field: &str, variable: &str| {
            let key = format!("models.providers.{}.{field}", known.name);
            origins.insert(key, ValueOrigin::Environment(variable.to_owned()));
        };
        for field in ["kind", "base_url", "api_key"] {
            set(field, variable);
        }
        if let Some((variable, text)) = other_address(known, overlay) {
            set("base_url", variable);
            move_to(&mut provider, variable, text, faults);
            if provider.kind != known.kind {
                set("kind", variable);
                if !models.aliases.contains_key("default") {
                    ask_for_a_model(&known.name, variable, faults);
                }
            }
        }
        if has_default_model(&known.name, &provider) {
            present.get_or_insert((known, variable));
        }
        models.providers.insert(known.name.clone(), provider);
    }
    models.providers.entry(OFFLINE.into()).or_insert_with(|| ProviderConfig::new(ProviderKind::Offline));
    if !models.aliases.contains_key("default") {
        if configured.is_none()
            && let Some((_, variable)) = present
        {
            origins.insert("models.aliases.default".into(), ValueOrigin::Environment(variable.to_owned()));
        }
        let target = configured.or(present.map(|(known, _)| known.name.clone()));
        let offline_only = models.only_offline();
        if let Some(name) = target.or(offline_only.then(|| OFFLINE.into())) {
            models.aliases.insert("default".into(), vec![name]);
        }
    }
}

/// The variable that holds the key of a provider, and the key. An empty one is what remains of one that was unset.
fn key_of<'a>(known: &'a CatalogueProvider, overlay: &'a Overlay) -> Option<(&'a str, &'a Secret)> {
    let names = [Some(&known.key), known.other_key.as_ref()];
    names.into_iter().flatten().find_map(|name| Some((name.as_str(), non_empty(overlay, name)?)))
}

fn other_address<'a>(known: &'a CatalogueProvider, overlay: &'a Overlay) -> Option<(&'a str, &'a str)> {
    let name = known.address.as_deref()?;
    Some((name, non_empty(overlay, name)?.expose()))
}

fn non_empty<'a>(overlay: &'a Overlay, name: &str) -> Option<&'a Secret> {
    overlay.get(name).filter(|value| !value.expose().trim().is_empty())
}

/// Whether a host, with a port or without, is OpenAI's.
fn is_openai(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    let name = name.to_ascii_lowercase();
    name == OPENAI || name.strip_suffix(OPENAI).is_some_and(|region| region.ends_with('.'))
}

/// What nobody can know of another server than the vendor's own.
fn ask_for_a_model(provider: &str, variable: &str, faults: &mut Diagnostics) {
    let source = Source::new(SourceOrigin::Environment(variable.to_owned()), String::new());
    let message = format!(
        "`{variable}` names another server than the vendor's own: which models it has, how much they hold and what they \
         cost is not known"
    );
    let help = format!(
        "set `models.aliases.default: {provider}/MODEL`, or configure `models.providers.{provider}` with its \
         `default_model`; sizes and prices go into `models.profiles`"
    );
    faults.warning("unknown_models", &At::start_of(&source), variable, message).help(help);
}

/// Puts a provider to the address that a variable names, as the vendors' own clients read it.
fn move_to(provider: &mut ProviderConfig, variable: &str, text: &str, faults: &mut Diagnostics) {
    let Some((url, host)) = providers::address(text.trim()) else {
        // Its text is not shown: it may hold a key.
        let source = Source::new(SourceOrigin::Environment(variable.to_owned()), String::new());
        let message =
            format!("`{variable}` is no address: expected `http://host` or `https://host`, without a key");
        faults
            .error("invalid_url", &At::start_of(&source), variable, message)
            .help("correct it, or unset it: the key would go to another address than you mean");
        return;
    };
    match provider.kind {
        // Others who speak like OpenAI speak Chat Completions, and few of them Responses. They have models of their own.
        ProviderKind::Openai if !is_openai(host) => {
            provider.kind = ProviderKind::OpenaiChat;
            provider.base_url = Some(url);
            provider.preferred.clear();
            provider.catalogued = false;
        }
        // This one is written without the version.
        ProviderKind::Anthropic if !url.ends_with("/v1") => provider.base_url = Some(format!("{url}/v1")),
        _ => provider.base_url = Some(url),
    }
}

impl Checks<'_> {
    pub(super) fn models(&mut self, section: &Field<'_>, models: &mut ModelsConfig) {
        for (name, field) in section.entries("aliases") {
            if models.aliases.get(name).is_some_and(Vec::is_empty) {
                let message = format!("`{}` stands for no model", field.path);
                self.faults.error("invalid_value", &field.node.at, &field.path, message).help("name a model");
            }
        }
        self.refuse_circles(section, models);
        for (name, field) in section.entries("providers") {
            if let Some(provider) = models.providers.remove(name) {
                models.providers.insert(name.to_owned(), self.provider(&field, provider));
            }
        }
        for profile in models.profiles.values_mut() {
            // Nothing is said by an empty list.
            profile.efforts = profile.efforts.take().filter(|efforts| !efforts.is_empty());
        }
    }

    fn refuse_circles(&mut self, section: &Field<'_>, models: &ModelsConfig) {
        for (name, field) in section.entries("aliases") {
            let mut reached: Vec<&str> = vec![name];
            let mut next = 0;
            let mut circle = false;
            while let Some(current) = reached.get(next).copied() {
                next += 1;
                for target in models.aliases.get(current).into_iter().flatten() {
                    circle |= target == name;
                    if !reached.contains(&target.as_str()) {
                        reached.push(target);
                    }
                }
            }
            if circle {
                let message = format!("the alias `{name}` leads to itself");
                self.faults
                    .error("alias_circle", &field.node.at, &field.path, message)
                    .help("let it name a model: `provider/model`");
            }
        }
    }
}
