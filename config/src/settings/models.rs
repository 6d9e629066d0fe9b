//! `models`: providers, names for their models, and what is known of them.
//!
//! Which keys are present decides here what needs no configuration. Which model a name stands for does not: that
//! is for whoever asks the models.

use std::collections::BTreeMap;

use super::{Origin, ProviderConfig, ProviderKind, keys::PROFILE, read::Reader};
use crate::{
    Overlay,
    catalogue::{ModelProfile, model_catalogue},
    fields::Fields,
};

/// The provider that needs nothing and is always there.
const OFFLINE: &str = "offline";

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

impl ModelsConfig {
    fn only_offline(&self) -> bool {
        self.providers.values().all(|provider| provider.kind == ProviderKind::Offline)
    }
}

/// Whether the provider's name alone says which model is meant.
fn has_default_model(name: &str, provider: &ProviderConfig) -> bool {
    match provider.kind {
        ProviderKind::OpenaiChat => {
            provider.default_model.is_some() || model_catalogue().provider(name).is_some()
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
    origins: &mut BTreeMap<String, Origin>,
) {
    // The operator's own provider comes first where nothing says which model is the default.
    let configured = models.providers.iter().find(|(name, provider)| has_default_model(name, provider));
    let configured = configured.map(|(name, _)| name.clone());
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
