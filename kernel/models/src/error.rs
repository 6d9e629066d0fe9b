//! Why there is no model: everything that is said before a model is asked.

/// Why there is no model for a name, or no [`Models`](crate::Models) for the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelsError {
    /// A provider's settings cannot work.
    #[error("provider `{provider}`: {reason}")]
    Provider {
        /// The provider.
        provider: String,
        /// What is wrong.
        reason: String,
    },
    /// The model's provider exists but lacks something.
    #[error("model `{model}` needs provider `{provider}`, which is not configured{}", variable.as_ref().map(|v| format!(": set {v}")).unwrap_or_default())]
    NotConfigured {
        /// As it was written.
        model: String,
        /// Whose model it is.
        provider: String,
        /// What to set.
        variable: Option<String>,
    },
    /// No provider has this name.
    #[error("model `{model}`: there is no provider `{provider}` (there are: {known})")]
    UnknownProvider {
        /// As it was written.
        model: String,
        /// The part before the `/`.
        provider: String,
        /// The names of those that exist.
        known: String,
    },
    /// Neither an alias, nor a provider with a default model, nor in the catalogue.
    #[error("model `{model}` is not in the catalogue: write `provider/model`")]
    UnknownModel {
        /// As it was written.
        model: String,
    },
    /// Aliases that stand for each other.
    #[error("alias `{alias}` stands for itself")]
    AliasLoop {
        /// One of them.
        alias: String,
    },
    /// No model was named, and there is no default one.
    #[error(
        "no model is named and there is no default: set the alias `default` or a provider's default model"
    )]
    NoDefault,
    /// The provider cannot do what is asked for.
    #[error("model `{model}` cannot do this: {what}")]
    Unsupported {
        /// `provider/model`.
        model: String,
        /// What it cannot.
        what: String,
    },
    /// A scripted model's file cannot be used.
    #[error("{0}")]
    Script(String),
}
