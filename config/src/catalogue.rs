//! The shipped catalogue of models: whose a bare name is, how much it holds, what it costs.
//!
//! Prices are those of the day that `models.yaml` names; `models.profiles` of `drupe.yaml` overrides them.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::{ProviderKind, fields::Fields};

const TEXT: &str = include_str!("../models.yaml");

/// Models and providers that ship.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The day of the prices, as `YYYY-MM-DD`.
    pub prices_of: String,
    /// Providers that a key alone configures, in order of preference.
    pub providers: Vec<CatalogueProvider>,
    models: Vec<Model>,
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
    /// The model where nobody says which.
    pub default_model: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    /// A bare name; with `*` at the end, the beginning of one.
    name: String,
    provider: String,
    context_window: u32,
    max_output_tokens: u32,
    input_usd: f64,
    cached_usd: f64,
    output_usd: f64,
    #[serde(default = "yes")]
    tools: bool,
    #[serde(default)]
    reasoning: bool,
    #[serde(default = "yes")]
    sampling: bool,
}

/// What nearly every model can do is said of those that cannot.
fn yes() -> bool {
    true
}

impl Model {
    fn entry(&self) -> CatalogueEntry<'_> {
        let profile = ModelProfile {
            context_window: Some(self.context_window),
            max_output_tokens: Some(self.max_output_tokens),
            input_usd: Some(self.input_usd),
            cached_usd: Some(self.cached_usd),
            output_usd: Some(self.output_usd),
            tools: Some(self.tools),
            reasoning: Some(self.reasoning),
            sampling: Some(self.sampling),
        };
        CatalogueEntry { provider: &self.provider, profile }
    }
}

/// What the catalogue knows about a name.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueEntry<'a> {
    /// A name of [`Catalogue::providers`].
    pub provider: &'a str,
    /// Size, prices and abilities.
    pub profile: ModelProfile,
}

/// Size, prices and abilities of a model; what is unknown is absent, and never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ModelProfile {
    /// Tokens that it can hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// Tokens of its longest answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// US dollars for a million input tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_usd: Option<f64>,
    /// US dollars for a million input tokens that it remembers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_usd: Option<f64>,
    /// US dollars for a million output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_usd: Option<f64>,
    /// Whether it can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Whether it takes a degree of reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<bool>,
    /// Whether it takes a temperature and `top_p`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<bool>,
}

impl ModelProfile {
    pub(crate) fn read(fields: Fields<'_>) -> Self {
        let profile = Self {
            context_window: fields.integer("context_window"),
            max_output_tokens: fields.integer("max_output_tokens"),
            input_usd: fields.number("input_usd"),
            cached_usd: fields.number("cached_usd"),
            output_usd: fields.number("output_usd"),
            tools: fields.bool("tools"),
            reasoning: fields.bool("reasoning"),
            sampling: fields.bool("sampling"),
        };
        fields.done();
        profile
    }
}

impl Catalogue {
    /// Every listed name, or beginning of one with `*` at its end, and what is known about it.
    pub fn entries(&self) -> impl Iterator<Item = (&str, CatalogueEntry<'_>)> {
        self.models.iter().map(|model| (model.name.as_str(), model.entry()))
    }

    /// A provider by its name.
    pub fn provider(&self, name: &str) -> Option<&CatalogueProvider> {
        self.providers.iter().find(|provider| provider.name == name)
    }

    /// The provider whose own protocol this is.
    pub fn of_kind(&self, kind: ProviderKind) -> Option<&CatalogueProvider> {
        self.providers.iter().find(|provider| provider.kind == kind)
    }
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
    use super::*;

    #[test]
    fn the_shipped_catalogue_is_consistent() {
        let catalogue = model_catalogue();
        assert_eq!(catalogue.prices_of.len(), 10);
        for model in &catalogue.models {
            assert!(catalogue.provider(&model.provider).is_some(), "{} has no provider", model.name);
            assert!(model.max_output_tokens <= model.context_window, "{}", model.name);
            assert!(
                model.cached_usd <= model.input_usd && model.input_usd <= model.output_usd,
                "{}",
                model.name
            );
        }
        for provider in &catalogue.providers {
            let fits = |name: &str| match name.strip_suffix('*') {
                Some(beginning) => provider.default_model.starts_with(beginning),
                None => provider.default_model == name,
            };
            let mut owners = catalogue.entries().filter(|(name, _)| fits(name)).peekable();
            assert!(owners.peek().is_some(), "{} is not listed", provider.default_model);
            assert!(owners.all(|(_, entry)| entry.provider == provider.name), "{}", provider.default_model);
        }
    }
}
