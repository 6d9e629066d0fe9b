//! Why there is no model: everything that is said before a model is asked.

use drupe_agent::budget::UnknownPrice;
use drupe_extension_api::MODEL_NAME;

/// Why there is no model for a name, or no [`Models`](crate::Models) for the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelsError {
    /// A provider's settings cannot work.
    #[error("provider `{provider}`: {reason}")]
    Provider { provider: String, reason: Unusable },
    /// A name that can be none.
    #[error("`{found}` is no name of a model: expected {MODEL_NAME}")]
    Name {
        /// The beginning of it, with nothing in it that acts or hides.
        found: String,
    },
    /// The model's provider is known but not configured.
    #[error("model `{model}` needs provider `{provider}`, which is not configured: {}", cure(provider, variable.as_deref()))]
    NotConfigured { model: String, provider: String, variable: Option<String> },
    #[error(
        "model `{model}`: there is no provider `{provider}`: add `models.providers.{provider}`, or use one of {known}"
    )]
    UnknownProvider {
        model: String,
        /// The part before the `/`.
        provider: String,
        /// The names of those that exist.
        known: String,
    },
    /// Neither an alias, nor a provider, nor in the catalogue.
    #[error(
        "model `{model}` is neither an alias nor in the catalogue: write `provider/model`, with one of the providers {known}"
    )]
    UnknownModel {
        model: String,
        /// The names of the providers that exist.
        known: String,
    },
    /// A provider is named alone, and nobody says which of its models is meant.
    #[error(
        "provider `{provider}` has no default_model: name a model, `{provider}/model`, or set \
         `models.providers.{provider}.default_model`"
    )]
    NoModel { provider: String },
    /// The model that is to make vectors of texts cannot.
    #[error("`models.embedding` names `{model}`, which makes no vectors: {reason}")]
    NoEmbeddings { model: String, reason: Unusable },
    /// A provider is named, and nothing stands behind its `/`.
    #[error("model `{model}` names provider `{provider}` and none of its models: write `{provider}/MODEL`")]
    NoName { model: String, provider: String },
    /// There is no model for a name, and none for the fallback either.
    #[error("{error}; nor is there a model for the fallback: {fallback}")]
    Fallback {
        /// What is wrong with the name.
        error: Box<ModelsError>,
        fallback: Box<ModelsError>,
    },
    #[error("alias `{alias}` stands for itself")]
    AliasLoop { alias: String },
    /// No model was named, and there is no default one.
    #[error(
        "no model is named and there is no default: set `models.aliases.default`, or the `default_model` of a provider"
    )]
    NoDefault,
    /// The provider cannot do what is asked for.
    #[error("model `{model}` cannot do this: {what}")]
    Unsupported {
        /// `provider/model`.
        model: String,
        what: Unsupported,
    },
    /// A cost limit was set that could not be held.
    #[error("{0}")]
    UnknownPrice(UnknownPrice),
    /// A file that only the operator may name.
    #[error(
        "model `{model}`: a script is a file, which only `drupe.yaml` and `drupe ask --model` may name; name an alias of \
         `models.aliases` that leads to it"
    )]
    NotTheirs { model: String },
    /// A scripted model's file cannot be used.
    #[error("{0}")]
    Script(String),
}

/// What a provider cannot do, and what to do instead: a part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub(crate) String);

/// Why a provider's settings cannot work: a part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub(crate) String);

/// What configures a provider: the variable of its key where one does, else an entry.
fn cure(provider: &str, variable: Option<&str>) -> String {
    let entry = format!("add `models.providers.{provider}`");
    variable.map_or_else(|| entry.clone(), |variable| format!("set {variable}, or {entry}"))
}
