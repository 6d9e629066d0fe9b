//! `models`: which provider and model a name stands for.
//!
//! Resolving a name asks nobody: it is decided by the configuration, the shipped catalogue and which keys are
//! present. Whether the provider really has the model shows when it is asked.

use std::{collections::BTreeMap, fmt};

use super::{Origin, ProviderConfig, ProviderKind, keys::PROFILE, read::Reader};
use crate::{
    Overlay,
    catalogue::{ModelProfile, model_catalogue},
    fields::Fields,
};

/// The provider that needs nothing and is always there.
const OFFLINE: &str = "offline";
/// An alias that leads to itself is refused after so many steps.
const MAX_ALIASES: usize = 8;

/// Providers, aliases and prices.
#[derive(Debug, Clone, Default)]
pub struct ModelsConfig {
    /// Names for models; each stands for a list in order of preference.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// The model in place of one whose provider is missing.
    pub fallback: Option<String>,
    /// By name: those of the file, `openai` and `anthropic` where their keys are present, and `offline`.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Sizes and prices over the shipped ones, by `provider/model` or by the bare name.
    pub profiles: BTreeMap<String, ModelProfile>,
}

/// A model of a provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRef {
    /// A name of [`ModelsConfig::providers`].
    pub provider: String,
    /// As the provider calls it.
    pub model: String,
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// What a list of names stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// In order of preference; never empty.
    pub models: Vec<ModelRef>,
    /// What people should know: that the offline model or the fallback stands in.
    pub notes: Vec<String>,
}

/// A name that stands for no model here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownModel {
    /// The name.
    pub name: String,
    /// Why.
    pub reason: String,
    /// The next step.
    pub help: String,
}

impl fmt::Display for UnknownModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model `{}`: {}; {}", self.name, self.reason, self.help)
    }
}

impl std::error::Error for UnknownModel {}

impl ModelsConfig {
    /// What names stand for: an alias, `provider/model`, a provider alone, or a bare name of the catalogue. With
    /// no provider but the offline one, every name is the offline model, and a note says so.
    ///
    /// # Errors
    /// The first name whose provider is not configured, or that nobody knows, where no fallback is set.
    pub fn resolve(&self, names: &[String]) -> Result<Resolution, UnknownModel> {
        let mut resolution = Resolution { models: Vec::new(), notes: Vec::new() };
        for name in names {
            self.resolve_name(name, 0, &mut resolution)?;
        }
        if resolution.models.is_empty() {
            self.resolve_name("default", 0, &mut resolution)?;
        }
        let mut seen = std::collections::BTreeSet::new();
        resolution.models.retain(|model| seen.insert(model.clone()));
        Ok(resolution)
    }

    fn resolve_name(&self, name: &str, depth: usize, out: &mut Resolution) -> Result<(), UnknownModel> {
        if depth > MAX_ALIASES {
            return Err(unknown(name, "its alias leads in a circle", "correct `models.aliases`"));
        }
        if let Some(targets) = self.aliases.get(name) {
            for target in targets {
                self.resolve_name(target, depth + 1, out)?;
            }
            return Ok(());
        }
        match self.find(name) {
            Ok(model) => out.models.push(model),
            Err(_) if self.only_offline() => {
                out.models.push(offline());
                out.notes.push(format!(
                    "no model provider is configured, so the offline model stands in for `{name}`; \
                     set OPENAI_API_KEY or ANTHROPIC_API_KEY, or add a provider to `models.providers`"
                ));
            }
            Err(error) => match &self.fallback {
                Some(fallback) if fallback != name => {
                    out.notes.push(format!("{error}; `models.fallback` stands in: `{fallback}`"));
                    self.resolve_name(fallback, depth + 1, out)?;
                }
                _ => return Err(error),
            },
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<ModelRef, UnknownModel> {
        let catalogue = model_catalogue();
        if let Some((provider, model)) = name.split_once('/') {
            if self.providers.contains_key(provider) {
                return Ok(ModelRef { provider: provider.into(), model: model.into() });
            }
            return Err(missing_provider(name, provider));
        }
        if let Some(provider) = self.providers.get(name) {
            return match self.default_model(name, provider) {
                Some(model) => Ok(ModelRef { provider: name.into(), model }),
                None => Err(unknown(
                    name,
                    "this provider has no `default_model`",
                    "name a model: `provider/model`",
                )),
            };
        }
        match catalogue.lookup(name) {
            Some(entry) if self.providers.contains_key(entry.provider) => {
                Ok(ModelRef { provider: entry.provider.into(), model: name.into() })
            }
            Some(entry) => Err(missing_provider(name, entry.provider)),
            None if name == "default" => Err(unknown(
                name,
                "no provider says which model is its default",
                "set `models.aliases.default`, or `default_model` of a provider",
            )),
            None => Err(unknown(
                name,
                "neither an alias nor a model of the catalogue",
                "name its provider, too: `provider/model`",
            )),
        }
    }

    fn only_offline(&self) -> bool {
        self.providers.values().all(|provider| provider.kind == ProviderKind::Offline)
    }

    fn default_model(&self, name: &str, provider: &ProviderConfig) -> Option<String> {
        let built_in = match provider.kind {
            ProviderKind::OpenaiChat => {
                model_catalogue().provider(name).map(|known| known.default_model.clone())
            }
            ProviderKind::Offline => Some(OFFLINE.into()),
            // A script answers whatever it is called.
            ProviderKind::Scripted => Some("script".into()),
        };
        provider.default_model.clone().or(built_in)
    }

    /// Size and prices of a model: the configured values over the shipped ones. What nobody knows stays unknown.
    pub fn profile(&self, model: &ModelRef) -> ModelProfile {
        let shipped = model_catalogue().lookup(&model.model).filter(|entry| entry.provider == model.provider);
        let shipped = shipped.map(|entry| entry.profile.clone()).unwrap_or_default();
        let bare = self.profiles.get(&model.model).cloned().unwrap_or_default();
        let full = self.profiles.get(&model.to_string()).cloned().unwrap_or_default();
        full.over(&bare.over(&shipped))
    }
}

fn offline() -> ModelRef {
    ModelRef { provider: OFFLINE.into(), model: OFFLINE.into() }
}

fn unknown(name: &str, reason: &str, help: &str) -> UnknownModel {
    UnknownModel { name: name.into(), reason: reason.into(), help: help.into() }
}

fn missing_provider(name: &str, provider: &str) -> UnknownModel {
    let reason = format!("its provider `{provider}` is not configured");
    let help = match model_catalogue().provider(provider) {
        Some(known) => format!("define {} or add `models.providers.{provider}`", known.key),
        None => format!("add `models.providers.{provider}`"),
    };
    unknown(name, &reason, &help)
}

/// Adds what needs no configuration: the offline provider, those whose key is present, and `default`.
pub(super) fn add_implicit(
    models: &mut ModelsConfig,
    overlay: &Overlay,
    origins: &mut BTreeMap<String, Origin>,
) {
    // The operator's own provider comes first where nothing says which model is the default.
    let configured = models.providers.iter().find_map(|(name, provider)| {
        let usable = provider.kind != ProviderKind::Offline && models.default_model(name, provider).is_some();
        usable.then(|| name.clone())
    });
    let mut present = None;
    for known in &model_catalogue().providers {
        let Some(key) = overlay.get(&known.key) else { continue };
        if models.providers.contains_key(&known.name) {
            continue;
        }
        let provider = ProviderConfig {
            base_url: Some(known.base_url.clone()),
            api_key: Some(key.clone()),
            default_model: Some(known.default_model.clone()),
            ..ProviderConfig::new(ProviderKind::OpenaiChat)
        };
        for field in ["kind", "base_url", "api_key", "default_model"] {
            let key = format!("models.providers.{}.{field}", known.name);
            origins.insert(key, Origin::Environment(known.key.clone()));
        }
        models.providers.insert(known.name.clone(), provider);
        present.get_or_insert(known);
    }
    models.providers.entry(OFFLINE.into()).or_insert_with(|| ProviderConfig::new(ProviderKind::Offline));
    if !models.aliases.contains_key("default") {
        if configured.is_none()
            && let Some(known) = present
        {
            origins.insert("models.aliases.default".into(), Origin::Environment(known.key.clone()));
        }
        let target = configured.or(present.map(|known| known.name.clone()));
        let offline_only = models.only_offline();
        if let Some(name) = target.or(offline_only.then(|| OFFLINE.into())) {
            models.aliases.insert("default".into(), vec![name]);
        }
    }
}

impl Reader<'_> {
    pub(super) fn models(&mut self, fields: &Fields<'_>) -> ModelsConfig {
        let mut aliases = BTreeMap::new();
        for (name, field) in fields.entries("aliases") {
            let items = match &field.node.value {
                crate::tree::Yaml::List(list) => list.iter().collect(),
                _ => vec![field.node],
            };
            let mut targets = Vec::new();
            for node in items {
                targets.extend(self.expanded(&crate::fields::Field { node, path: field.path.clone() }));
            }
            if targets.is_empty() && !field.node.is_null() {
                let message = format!("`{}` stands for no model", field.path);
                self.faults.error("invalid_value", &field.node.at, &field.path, message).help("name a model");
            }
            aliases.insert(name.to_owned(), targets);
        }
        let models = ModelsConfig {
            aliases,
            fallback: self.text(fields, "fallback"),
            providers: self.providers(fields),
            profiles: fields
                .entries("profiles")
                .into_iter()
                .map(|(name, field)| {
                    (
                        name.to_owned(),
                        ModelProfile::read(Fields::new(Some(field.node), &PROFILE, &field.path)),
                    )
                })
                .collect(),
        };
        self.refuse_circles(fields, &models);
        models
    }

    fn refuse_circles(&mut self, fields: &Fields<'_>, models: &ModelsConfig) {
        for (name, field) in fields.entries("aliases") {
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
