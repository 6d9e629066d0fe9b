//! The shipped catalogue of models: whose a bare name is, how much it holds, what it takes, what it costs, and where each
//! of these figures is from.
//!
//! `models.profiles` of `drupe.yaml` overrides the figures.

use std::{collections::BTreeMap, sync::OnceLock};

use serde::{Deserialize, Serialize};

use crate::{LongPrompts, ModelProfile, ProviderKind, Thinking};
use drupe_extension_api::Reasoning;

const TEXT: &str = include_str!("../models.yaml");

/// Models and providers that ship.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The day on which figures were last looked up, as `YYYY-MM-DD`.
    pub looked_up: String,
    /// Providers that a key alone configures, in order of preference.
    pub providers: Vec<CatalogueProvider>,
    families: Vec<Family>,
    sources: BTreeMap<String, CatalogueSource>,
    models: Vec<Model>,
    embeddings: Vec<EmbeddingPrice>,
}

/// What a model takes that makes vectors of texts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingPrice {
    pub name: String,
    /// Whose it is, one of [`Catalogue::providers`].
    pub provider: String,
    /// US dollars for a million tokens of texts.
    pub input_usd: f64,
    source: Vec<String>,
}

/// A provider that needs no configuration beside its key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueProvider {
    /// Its name in `provider/model`.
    pub name: String,
    /// The protocol that it speaks by itself.
    pub kind: ProviderKind,
    /// The variable that holds its key.
    pub key: String,
    /// Another variable that may hold it where the first is absent.
    #[serde(default)]
    pub other_key: Option<String>,
    /// Where it is reached, up to and with the version.
    pub base_url: String,
    /// The variable that names another address.
    #[serde(default)]
    pub address: Option<String>,
    /// The models where nobody says which: the first is taken that the provider has.
    pub preferred: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueSource {
    /// The day on which it was looked at.
    pub day: String,
    pub of: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    name: String,
    provider: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    name: String,
    provider: String,
    context_window: Option<u32>,
    max_output_tokens: Option<u32>,
    input_usd: Option<f64>,
    cached_usd: Option<f64>,
    cache_write_usd: Option<f64>,
    output_usd: Option<f64>,
    long_prompts: Option<LongPrompts>,
    efforts: Option<Vec<Reasoning>>,
    thinking: Option<Thinking>,
    #[serde(default = "yes")]
    tools: bool,
    #[serde(default = "yes")]
    sampling: bool,
    #[serde(default = "yes")]
    images: bool,
    retires: Option<String>,
    source: Vec<String>,
}

/// What nearly every model can do is said of those that cannot.
fn yes() -> bool {
    true
}

/// What the catalogue knows about a name.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueEntry<'a> {
    /// A name of [`Catalogue::providers`].
    pub provider: &'a str,
    /// Size, prices and abilities; nothing is known of a family.
    pub profile: ModelProfile,
    /// The day from which the provider answers no more under this name, where it is announced.
    pub retires: Option<&'a str>,
    /// Where the figures are from; empty for a family.
    pub sources: Vec<&'a CatalogueSource>,
}

impl Catalogue {
    /// Every model by its name, and every family by the beginning of its names with `*` at its end.
    pub fn entries(&self) -> impl Iterator<Item = (&str, CatalogueEntry<'_>)> {
        let families = self.families.iter().map(|family| {
            let profile = ModelProfile::default();
            let entry =
                CatalogueEntry { provider: &family.provider, profile, retires: None, sources: Vec::new() };
            (family.name.as_str(), entry)
        });
        self.models.iter().map(|model| (model.name.as_str(), self.entry(model))).chain(families)
    }

    fn entry<'a>(&'a self, model: &'a Model) -> CatalogueEntry<'a> {
        let profile = ModelProfile {
            context_window: model.context_window,
            max_output_tokens: model.max_output_tokens,
            input_usd: model.input_usd,
            cached_usd: model.cached_usd,
            cache_write_usd: model.cache_write_usd,
            output_usd: model.output_usd,
            long_prompts: model.long_prompts,
            tools: Some(model.tools),
            reasoning: model.efforts.as_ref().map(|efforts| !efforts.is_empty()),
            efforts: model.efforts.clone().filter(|efforts| !efforts.is_empty()),
            thinking: model.thinking,
            sampling: Some(model.sampling),
            images: Some(model.images),
        };
        CatalogueEntry {
            provider: &model.provider,
            profile,
            retires: model.retires.as_deref(),
            sources: model.source.iter().filter_map(|source| self.sources.get(source)).collect(),
        }
    }

    /// The models that make vectors of texts.
    pub fn embeddings(&self) -> &[EmbeddingPrice] {
        &self.embeddings
    }

    /// What is known of a model: of itself, or of the one that it is a snapshot of.
    pub fn model(&self, name: &str) -> Option<CatalogueEntry<'_>> {
        let named = self.models.iter().find(|model| model.name == name);
        let found = named.or_else(|| self.models.iter().find(|model| is_snapshot(name, &model.name)))?;
        Some(self.entry(found))
    }

    pub fn provider(&self, name: &str) -> Option<&CatalogueProvider> {
        self.providers.iter().find(|provider| provider.name == name)
    }

    pub fn of_kind(&self, kind: ProviderKind) -> Option<&CatalogueProvider> {
        self.providers.iter().find(|provider| provider.kind == kind)
    }
}

/// Whether `name` is a snapshot of `model`: its name with a day or a number of three digits behind it.
pub fn is_snapshot(name: &str, model: &str) -> bool {
    let Some(mark) = name.strip_prefix(model).and_then(|rest| rest.strip_prefix('-')) else { return false };
    let form: String = mark.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    matches!(form.as_str(), "000" | "00000000" | "0000-00-00")
}

/// The catalogue that ships with this release.
pub fn model_catalogue() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| {
        serde_yaml::from_str(TEXT).expect("the embedded catalogue never changes, and a test reads all of it")
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn is_day(text: &str) -> bool {
        text.len() == 10 && is_snapshot(&format!("x-{text}"), "x")
    }

    #[test]
    fn the_shipped_catalogue_is_consistent_and_every_figure_has_a_source_and_a_day() {
        let catalogue = model_catalogue();
        assert!(is_day(&catalogue.looked_up));
        assert!(catalogue.sources.values().all(|source| is_day(&source.day) && !source.of.is_empty()));
        for model in &catalogue.models {
            let name = &model.name;
            let entry = catalogue.entry(model);
            assert!(catalogue.provider(&model.provider).is_some(), "{name} has no provider");
            assert!(!name.contains('*'), "{name} stands for more than one model");
            assert!(!model.source.is_empty() && entry.sources.len() == model.source.len(), "{name}");
            assert!(model.retires.as_deref().is_none_or(is_day), "{name}");
            assert!(model.max_output_tokens <= model.context_window.or(Some(u32::MAX)), "{name}");
            assert_eq!(model.input_usd.is_some(), model.output_usd.is_some(), "{name} has half a price");
            assert!(model.cached_usd <= model.input_usd && model.input_usd <= model.output_usd, "{name}");
            assert!(model.cache_write_usd.is_none_or(|write| Some(write) >= model.input_usd), "{name}");
            let dearer = |long: LongPrompts| long.above > 0 && long.input >= 1.0 && long.output >= 1.0;
            assert!(model.long_prompts.is_none_or(dearer), "{name}");
            let told = model.efforts.as_ref().is_some_and(|efforts| !efforts.is_empty());
            assert!(!told || model.thinking.is_some(), "nobody says how {name} is told how much to reason");
            assert_eq!(catalogue.models.iter().filter(|other| other.name == *name).count(), 1, "{name}");
        }
        for model in &catalogue.embeddings {
            assert!(catalogue.provider(&model.provider).is_some() && model.input_usd > 0.0, "{}", model.name);
            assert!(!model.source.is_empty(), "{}", model.name);
            assert!(
                model.source.iter().all(|source| catalogue.sources.contains_key(source)),
                "{}",
                model.name
            );
        }
        for family in &catalogue.families {
            let (start, owner) = (family.name.strip_suffix('*').unwrap(), &family.provider);
            let mut own = catalogue.models.iter().filter(|model| model.name.starts_with(start));
            assert!(own.all(|model| model.provider == *owner), "{}", family.name);
        }
    }

    #[test]
    fn no_model_that_is_preferred_is_going_or_lacks_a_figure() {
        let catalogue = model_catalogue();
        for provider in &catalogue.providers {
            assert!(provider.preferred.len() > 1, "{}", provider.name);
            for name in &provider.preferred {
                let entry = catalogue.model(name).unwrap();
                assert_eq!((entry.provider, entry.retires), (provider.name.as_str(), None), "{name}");
                let ModelProfile { context_window, max_output_tokens, input_usd, .. } = entry.profile;
                assert!(
                    context_window.is_some() && max_output_tokens.is_some() && input_usd.is_some(),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn an_entry_stands_for_snapshots_of_one_model_and_for_no_other_version() {
        let catalogue = model_catalogue();
        for name in [
            "gpt-5.4-mini",
            "gpt-5.4-mini-2026-03-17",
            "claude-haiku-4-5-20251001",
            "gemini-2.5-flash-lite-001",
        ] {
            assert!(catalogue.model(name).is_some(), "{name}");
        }
        for name in [
            "gpt-5.9",
            "gpt-5-turbo",
            "gpt-5.4-mini-fast",
            "claude-opus-4-9",
            "claude-opus-4",
            "claude-opus-6",
            "gpt-5-",
            "gpt-5-1",
            "gemini-2.5-flash-preview-09-2025",
        ] {
            assert!(catalogue.model(name).is_none(), "{name}");
        }
    }
}
