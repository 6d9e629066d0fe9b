//! What [`Models`](crate::Models) is made from: plain data, already parsed and free of references to the environment.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use drupe_agent::{LongPrompts, model::Price};
use drupe_extension_api::Reasoning;
use drupe_redact::names_a_secret;

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
    /// The shipped table of models, by bare name. A key stands for a model and its snapshots; one that ends in `*` says
    /// of all names that begin so whose they are, and is asked last.
    pub catalogue: BTreeMap<String, CatalogueEntry>,
    /// The model that makes vectors of texts, as `provider/model`.
    pub embedding: Option<String>,
    /// US dollars for a million tokens of such models, by `provider/model` of the catalogue.
    pub embeddings: BTreeMap<String, f64>,
    /// The day on which the catalogue was last looked up, as `YYYY-MM-DD`.
    pub looked_up: String,
    /// The key of a cost limit that the operator set for everything; then no model is taken whose price is not known.
    pub cost_limit: Option<String>,
    /// Providers that could be configured and are not, each with the variable that it lacks, in order of preference.
    pub missing: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// The part of a model's name before the first `/`.
    pub name: String,
    pub kind: ProviderKind,
    /// Time of one attempt, from the request to the end of the answer, in milliseconds.
    pub timeout_ms: u64,
    /// Time without a byte after which an attempt is given up, in milliseconds.
    pub stall_timeout_ms: u64,
    /// Requests at the same time; further ones wait.
    pub concurrency: usize,
    /// The model meant where the provider's name alone is given.
    pub default_model: Option<String>,
    /// Where there is no default model: of these, the first that the provider's own list of models has.
    pub preferred: Vec<String>,
}

impl ProviderSettings {
    /// A provider without bounds. Which there are by default is said where configuration is read, and nowhere else.
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self {
            name: name.into(),
            kind,
            timeout_ms: u64::MAX,
            stall_timeout_ms: u64::MAX,
            concurrency: usize::MAX,
            default_model: None,
            preferred: Vec::new(),
        }
    }
}

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
    Scripted { file: PathBuf },
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
    /// How a server of Chat Completions speaks; none where its address says so.
    pub dialect: Option<String>,
}

impl ProviderKind {
    /// The server that it asks, where there is one.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::OpenAi(endpoint)
            | Self::OpenAiChat(endpoint)
            | Self::Anthropic(endpoint)
            | Self::Gemini(endpoint) => Some(endpoint),
            Self::Scripted { .. } | Self::Offline => None,
        }
    }
}

impl Endpoint {
    /// The key, and those headers whose names say that they hold one: others may say what stands in many texts.
    pub(crate) fn credentials(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.iter().filter(|(name, _)| names_a_secret(name));
        let headers = headers.map(|(_, value)| value.as_str());
        self.api_key.as_deref().into_iter().chain(headers)
    }
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
    /// US dollars for a million input tokens.
    pub input_usd: Option<f64>,
    /// US dollars for a million input tokens that the provider had cached. Without it the price of other input holds.
    pub cached_usd: Option<f64>,
    /// US dollars for a million input tokens that the provider puts into its cache. Without it the price of other input holds.
    pub cache_write_usd: Option<f64>,
    /// US dollars for a million output tokens.
    pub output_usd: Option<f64>,
    /// What requests with long prompts cost.
    pub long_prompts: Option<LongPrompts>,
    /// Whether the model can call tools; yes by default.
    pub tools: Option<bool>,
    /// Whether the model can be told how much to reason. If this is not known, the request says it and the model may refuse.
    pub reasoning: Option<bool>,
    /// The degrees of reasoning that the model takes. If they are not known, the request may hold any of them.
    pub efforts: Option<Efforts>,
    /// How the model is told how much to reason. If this is not known, as the newest models of its provider are.
    pub thinking: Option<Thinking>,
    /// Whether the model takes temperature and nucleus sampling. If this is not known, the request holds them.
    pub sampling: Option<bool>,
    /// Whether the model reads pictures. If this is not known, it is told of them in words.
    pub images: Option<bool>,
}

impl ProfileSettings {
    /// This, and what it leaves out from `below`.
    pub(crate) fn or(self, below: Self) -> Self {
        Self {
            context_window: self.context_window.or(below.context_window),
            max_output_tokens: self.max_output_tokens.or(below.max_output_tokens),
            input_usd: self.input_usd.or(below.input_usd),
            cached_usd: self.cached_usd.or(below.cached_usd),
            cache_write_usd: self.cache_write_usd.or(below.cache_write_usd),
            output_usd: self.output_usd.or(below.output_usd),
            long_prompts: self.long_prompts.or(below.long_prompts),
            tools: self.tools.or(below.tools),
            reasoning: self.reasoning.or(below.reasoning),
            efforts: self.efforts.or(below.efforts),
            thinking: self.thinking.or(below.thinking),
            sampling: self.sampling.or(below.sampling),
            images: self.images.or(below.images),
        }
    }

    /// None unless both input and output are known: half a price would count as a small one.
    pub(crate) fn price(&self) -> Option<Price> {
        let (input, output) = self.input_usd.zip(self.output_usd)?;
        Some(Price {
            input,
            cached: self.cached_usd.unwrap_or(input),
            written: self.cache_write_usd.unwrap_or(input),
            output,
            long: self.long_prompts,
        })
    }
}

/// Degrees of reasoning that a model takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Efforts {
    none: bool,
    low: bool,
    medium: bool,
    high: bool,
}

impl Efforts {
    /// Whether it takes this one.
    pub fn has(self, effort: Reasoning) -> bool {
        match effort {
            Reasoning::None => self.none,
            Reasoning::Low => self.low,
            Reasoning::Medium => self.medium,
            Reasoning::High => self.high,
        }
    }

    /// The words for those that it takes.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [(self.none, "none"), (self.low, "low"), (self.medium, "medium"), (self.high, "high")];
        all.into_iter().filter_map(|(has, name)| has.then_some(name))
    }
}

impl FromIterator<Reasoning> for Efforts {
    fn from_iter<I: IntoIterator<Item = Reasoning>>(efforts: I) -> Self {
        let mut all = Self::default();
        for effort in efforts {
            match effort {
                Reasoning::None => all.none = true,
                Reasoning::Low => all.low = true,
                Reasoning::Medium => all.medium = true,
                Reasoning::High => all.high = true,
            }
        }
        all
    }
}

/// How a model is told how much to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    Effort,
    /// By a number of tokens.
    Budget,
    Level,
    /// Anthropic's adaptive thinking, with an effort.
    Adaptive {
        /// Whether the least is to think between tools alone, and not at all.
        between_tools: bool,
    },
}

/// What the shipped table says of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CatalogueEntry {
    /// The provider meant where the model is named alone.
    pub provider: String,
    pub profile: ProfileSettings,
    /// The day from which the provider answers no more under this name, as `YYYY-MM-DD`, where it is announced.
    pub retires: Option<String>,
}
