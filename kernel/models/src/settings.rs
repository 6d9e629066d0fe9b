//! What [`Models`](crate::Models) is made from: plain data, already parsed and free of references to the environment.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use drupe_agent::model::Price;

/// All providers, and how names lead to them.
#[derive(Debug, Clone, Default)]
pub struct ModelsSettings {
    /// The providers, each with a name of its own.
    pub providers: Vec<ProviderSettings>,
    /// Names that stand for others, such as `default`, `fast` and `strong`; each for a list that is tried in order.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// Taken where all that was named leads nowhere.
    pub fallback: Option<String>,
    /// What is known of models, by `provider/model` or by the model's bare name; goes before the catalogue.
    pub profiles: BTreeMap<String, ProfileSettings>,
    /// The shipped table of models, by bare name. A key that ends in `*` stands for all names that begin so; an
    /// exact key goes first, then the longest.
    pub catalogue: BTreeMap<String, CatalogueEntry>,
    /// The model of a provider that is named alone and has no `default_model`, by the provider's name.
    pub defaults: BTreeMap<String, String>,
    /// The key of a cost limit that the operator set for everything; then no model is taken whose price is not known.
    pub cost_limit: Option<String>,
    /// Providers that could be configured and are not, each with the variable that it lacks, in order of preference.
    pub missing: Vec<(String, String)>,
}

/// One provider.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// The part of a model's name before the first `/`.
    pub name: String,
    /// How it is reached.
    pub kind: ProviderKind,
    /// Time of one attempt, from the request to the end of the answer, in milliseconds.
    pub timeout_ms: u64,
    /// Time without a byte after which an attempt is given up, in milliseconds.
    pub stall_timeout_ms: u64,
    /// Requests at the same time; further ones wait.
    pub concurrency: usize,
    /// The model meant where the provider's name alone is given; goes before [`ModelsSettings::defaults`].
    pub default_model: Option<String>,
}

impl ProviderSettings {
    /// A provider with the default bounds: 10 minutes an attempt, 60 s without a byte, 64 requests at a time.
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self {
            name: name.into(),
            kind,
            timeout_ms: 600_000,
            stall_timeout_ms: 60_000,
            concurrency: 64,
            default_model: None,
        }
    }
}

/// How a provider is reached.
#[derive(Debug, Clone)]
pub enum ProviderKind {
    /// OpenAI's Responses API: `/responses`.
    OpenAi(Endpoint),
    /// Chat Completions, which OpenAI and many other servers speak: `/chat/completions`.
    OpenAiChat(Endpoint),
    /// Anthropic's Messages API: `/messages`.
    Anthropic(Endpoint),
    /// Google's Gemini API: `/models/…:streamGenerateContent`.
    Gemini(Endpoint),
    /// Answers from a file; see [`scripted`](crate::scripted).
    Scripted {
        /// The file.
        file: PathBuf,
    },
    /// No language model; see [`offline`](crate::offline).
    Offline,
}

/// An HTTP server, and what it wants to see.
#[derive(Clone, Default)]
pub struct Endpoint {
    /// Up to and without the path that the kind adds, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Sent in the header that the kind has for it; none for servers that want no key.
    pub api_key: Option<String>,
    /// Further headers of every request; they go before those that the kind sets.
    pub headers: BTreeMap<String, String>,
    /// PEM certificates trusted beside those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Keys and headers may be secret, and so may a part of the address: none is ever shown.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("api_key", &self.api_key.as_ref().map(|_| "[secret]"))
            .field("headers", &self.headers.keys())
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

/// What the operator or the catalogue says of a model. Each number that the operator leaves out comes from the
/// catalogue, so that one price can be corrected alone.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProfileSettings {
    /// Tokens that request and answer may have together.
    pub context_window: Option<u64>,
    /// Tokens that one answer may have.
    pub max_output_tokens: Option<u32>,
    /// US dollars for a million input tokens. What a provider writes into its cache counts as input at this price,
    /// which is a little less than some charge for it.
    pub input_usd: Option<f64>,
    /// US dollars for a million input tokens that the provider had cached; as other input where nobody says.
    pub cached_usd: Option<f64>,
    /// US dollars for a million output tokens.
    pub output_usd: Option<f64>,
    /// Whether the model can call tools; it can where nobody says otherwise.
    pub tools: Option<bool>,
    /// Whether the model can be told how much to reason. Where nobody says, it is told and may refuse.
    pub reasoning: Option<bool>,
    /// Whether the model takes temperature and nucleus sampling. Where nobody says, it is told and may refuse.
    pub sampling: Option<bool>,
}

impl ProfileSettings {
    /// This, and what it leaves out from `below`.
    pub(crate) fn or(self, below: Self) -> Self {
        Self {
            context_window: self.context_window.or(below.context_window),
            max_output_tokens: self.max_output_tokens.or(below.max_output_tokens),
            input_usd: self.input_usd.or(below.input_usd),
            cached_usd: self.cached_usd.or(below.cached_usd),
            output_usd: self.output_usd.or(below.output_usd),
            tools: self.tools.or(below.tools),
            reasoning: self.reasoning.or(below.reasoning),
            sampling: self.sampling.or(below.sampling),
        }
    }

    /// None unless both input and output are known: half a price would count as a small one.
    pub(crate) fn price(&self) -> Option<Price> {
        let (input, output) = self.input_usd.zip(self.output_usd)?;
        Some(Price { input, cached: self.cached_usd.unwrap_or(input), output })
    }
}

/// What the shipped table says of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueEntry {
    /// The provider meant where the model is named alone.
    pub provider: String,
    /// The model's numbers.
    pub profile: ProfileSettings,
}
