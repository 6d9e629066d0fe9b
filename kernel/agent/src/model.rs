//! What the loop asks of a language model.

mod dispatch;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use drupe_extension_api::{
    AgentId, FailureClass, Message, ModelParameters, OfflineRule, OutputSpec, ProviderItems, ToolCallRequest,
    ToolSpec, Usage,
};
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};

pub use dispatch::Dispatch;

/// A model, reachable through some provider.
///
/// An implementation retries what is worth retrying, falls back where it has a list, and stays within
/// [`ModelRequest::timeout_ms`]; the loop never repeats a request by itself. Dropping the stream closes the
/// request.
pub trait Model: Send + Sync {
    /// What is known of the model before it is asked. Called once a step.
    fn profile(&self) -> &ModelProfile;

    /// Its models as `provider/model`, in the order in which they are asked.
    fn names(&self) -> Vec<&str> {
        vec![self.profile().name.as_str()]
    }

    /// What that one of its models takes, as `provider/model`; none where that is not known. Called for each attempt.
    fn price_of(&self, _model: &str) -> Option<Price> {
        self.profile().price
    }

    /// One of its models whose price is not known; none where all prices are.
    fn unpriced(&self) -> Option<&str> {
        let profile = self.profile();
        profile.price.is_none().then_some(profile.name.as_str())
    }

    /// The models of its list, each as one of its own; none where it is one model.
    fn members(&self) -> Vec<Arc<dyn Model>> {
        Vec::new()
    }

    /// What of these parameters it cannot do, in words; none where it can do all.
    fn unsupported(&self, _parameters: &ModelParameters) -> Option<String> {
        None
    }

    /// Asks it. The stream ends after [`ModelEvent::Done`] or [`ModelEvent::Failed`], of which there is exactly one.
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent>;
}

/// What is known of a model before it is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelProfile {
    /// `provider/model`; of a list the first, which is asked first.
    pub name: String,
    /// Tokens that request and answer may have together.
    pub context_window: u64,
    /// Tokens that one answer may have.
    pub max_output_tokens: u32,
    /// US dollars for a million input, cached and output tokens: the highest that is known, none where none is.
    pub price: Option<Price>,
    /// Whether it can call tools. One that cannot is asked without any.
    pub tools: bool,
    /// Whether it reads pictures. One that does not is told of them in words.
    pub images: bool,
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Input that the provider had not cached.
    pub input: f64,
    /// Input from the provider's cache.
    pub cached: f64,
    /// Input that the provider put into its cache.
    pub written: f64,
    /// Output.
    pub output: f64,
    /// What requests with long prompts cost instead.
    pub long: Option<LongPrompts>,
}

/// A dearer price of requests whose prompts are long, for all tokens of such a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongPrompts {
    /// Tokens of the request above which it holds.
    pub above: u64,
    /// How many times the price of input, from the cache and into it, too.
    pub input: f64,
    /// How many times the price of output.
    pub output: f64,
}

impl Price {
    /// A price that is the same for all requests, with nothing on top for what goes into the provider's cache.
    pub const fn flat(input: f64, cached: f64, output: f64) -> Self {
        Self { input, cached, written: input, output, long: None }
    }

    /// What `usage` costs.
    pub fn cost(&self, usage: &Usage) -> f64 {
        let known = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
        let fresh = usage.input_tokens.saturating_sub(known);
        let input = fresh as f64 * self.input
            + usage.cached_tokens as f64 * self.cached
            + usage.cache_write_tokens as f64 * self.written;
        let output = usage.output_tokens as f64 * self.output;
        let long = self.long.filter(|long| usage.input_tokens > long.above);
        let (more_input, more_output) = long.map_or((1.0, 1.0), |long| (long.input, long.output));
        (input * more_input + output * more_output) / 1_000_000.0
    }

    /// What a million tokens of the answer to a request of so many tokens cost.
    pub fn output_after(&self, input_tokens: u64) -> f64 {
        self.output * self.long.filter(|long| input_tokens > long.above).map_or(1.0, |long| long.output)
    }

    /// The higher of two, part by part.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        let long = match (self.long, other.long) {
            (Some(a), Some(b)) => Some(LongPrompts {
                above: a.above.min(b.above),
                input: a.input.max(b.input),
                output: a.output.max(b.output),
            }),
            (a, b) => a.or(b),
        };
        Self {
            input: self.input.max(other.input),
            cached: self.cached.max(other.cached),
            written: self.written.max(other.written),
            output: self.output.max(other.output),
            long,
        }
    }
}

/// One request. All parts are shared, so that making it copies nothing.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// Whose run asks.
    pub agent: Arc<AgentCard>,
    /// The system prompt.
    pub system: Arc<str>,
    /// The transcript.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The tools on offer, sorted by name. The same list for each step of a run, until it looks up deferred ones.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Tools that the system prompt names and whose schemas are not sent, sorted by name. They may be called.
    pub deferred: Arc<[Arc<ToolSpec>]>,
    /// How the model is asked.
    pub parameters: Arc<ModelParameters>,
    /// Whether it is to reason as little as it lets itself be told, where `parameters` say nothing of that.
    pub sparing: bool,
    /// The most tokens that the answer may have.
    pub max_output_tokens: u32,
    /// What bounds the answers of further attempts as well.
    pub room: Room,
    /// Whether the present attempt was sent, and to which model: of one that was not, nothing is charged.
    pub dispatch: Dispatch,
    /// The form of the answer.
    pub output: Option<Arc<OutputSpec>>,
    /// Time for all attempts together, in milliseconds.
    pub timeout_ms: u64,
    /// Repetitions after a failure that is worth one.
    pub max_retries: u32,
}

/// The room for an answer. Whoever asks narrows it between two attempts, where the one that failed has used some.
#[derive(Debug, Clone)]
pub struct Room(Arc<AtomicU32>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(u32::MAX)))
    }
}

impl Room {
    /// From now on an answer has at most so many tokens.
    pub fn narrow(&self, max_output_tokens: u32) {
        self.0.fetch_min(max_output_tokens, Ordering::Relaxed);
    }

    /// The most tokens that an answer may have now.
    pub fn tokens(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ModelRequest {
    /// The request as the next attempt makes it.
    #[must_use]
    pub fn attempt(this: &Arc<Self>) -> Arc<Self> {
        match this.room.tokens() {
            room if room < this.max_output_tokens => {
                Arc::new(Self { max_output_tokens: room, ..Self::clone(this) })
            }
            _ => Arc::clone(this),
        }
    }
}

/// Who asks, for models that answer by rules.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentCard {
    /// The agent.
    pub id: AgentId,
    /// For people.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What the offline model does for it.
    pub offline: Vec<OfflineRule>,
    /// Whether a person talks to it directly.
    pub root: bool,
}

/// What a model's stream yields.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// More text of the answer.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// One whole tool call; never a part of one.
    ToolCall(ToolCallRequest),
    /// What the provider wants to get back with the next request; the last one counts.
    ProviderItems(ProviderItems),
    /// What the provider says of a filter or a refusal, for people. It comes before the end.
    Said(String),
    /// An attempt failed and another follows: all that came so far is void. The next one is made when the stream is
    /// asked for more, within the [`Room`] that there is by then.
    Retry {
        /// What failed.
        fault: ModelFault,
        /// The model of the failed attempt, as `provider/model`.
        model: String,
        /// The model of the attempt that follows.
        next: String,
        /// Tokens that the failed attempt is known to have cost.
        usage: Option<Usage>,
    },
    /// The answer is whole.
    Done {
        /// Tokens, where the provider reported them.
        usage: Option<Usage>,
        /// Why the model stopped.
        stop: StopReason,
        /// The model that answered, as `provider/model`.
        model: String,
    },
    /// There is no answer: the last attempt failed, too.
    Failed(ModelFault),
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was done.
    #[default]
    End,
    /// It wants tools to run.
    ToolCalls,
    /// The bound on output tokens cut the answer off.
    Length {
        /// Tool calls that the answer had begun. None of them is given out: the last may be half written.
        dropped_calls: u32,
    },
    /// The provider's filter cut the answer off.
    Filter {
        /// Tool calls that the answer had begun, dropped as with [`Length`](Self::Length).
        dropped_calls: u32,
    },
    /// The model declined the task; its words, where it gave any, are the text.
    Refusal {
        /// Tool calls that the answer had begun, dropped as with [`Length`](Self::Length).
        dropped_calls: u32,
    },
}

impl StopReason {
    /// Whether the answer is all that the model meant to say.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::End | Self::ToolCalls)
    }

    /// Tool calls that the answer had begun and that were dropped.
    pub fn dropped_calls(self) -> u32 {
        match self {
            Self::Length { dropped_calls }
            | Self::Filter { dropped_calls }
            | Self::Refusal { dropped_calls } => dropped_calls,
            Self::End | Self::ToolCalls => 0,
        }
    }

    /// The same, with so many more calls dropped.
    #[must_use]
    pub(crate) fn dropping(self, calls: u32) -> Self {
        match self {
            Self::Length { dropped_calls: n } => Self::Length { dropped_calls: n.saturating_add(calls) },
            Self::Filter { dropped_calls: n } => Self::Filter { dropped_calls: n.saturating_add(calls) },
            Self::Refusal { dropped_calls: n } => Self::Refusal { dropped_calls: n.saturating_add(calls) },
            whole => whole,
        }
    }

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::ToolCalls => "tool_calls",
            Self::Length { .. } => "length",
            Self::Filter { .. } => "filter",
            Self::Refusal { .. } => "refusal",
        }
    }
}

/// Why a model gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelFault {
    /// The kind of failure.
    pub class: FailureClass,
    /// What happened, naming provider and model.
    pub message: String,
    /// How long the provider asks to wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Whether another attempt may help.
    pub retriable: bool,
    /// Whether bytes of an answer had come: then the provider has worked, even where nothing of it can be shown.
    pub began: bool,
    /// Whether the provider certainly did no work: nothing was sent, or it refused the request.
    pub unused: bool,
    /// Tokens that the failed attempt is known to have cost, where it was the last.
    pub usage: Option<Usage>,
}

impl ModelFault {
    /// A fault that no repetition mends.
    pub fn fatal(class: FailureClass, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            class,
            message,
            retry_after_ms: None,
            retriable: false,
            began: false,
            unused: false,
            usage: None,
        }
    }

    /// A fault that may pass.
    pub fn transient(class: FailureClass, message: impl Into<String>) -> Self {
        Self { retriable: true, ..Self::fatal(class, message) }
    }

    /// The same, after bytes of an answer had come.
    #[must_use]
    pub fn began(self) -> Self {
        Self { began: true, unused: false, ..self }
    }

    /// The same, where the provider certainly did no work.
    #[must_use]
    pub fn unused(self) -> Self {
        Self { unused: !self.began, ..self }
    }

    /// The same, with what it is known to have cost.
    #[must_use]
    pub fn with_usage(self, usage: Option<Usage>) -> Self {
        Self { usage, ..self }
    }

    /// Whether nothing can have been used: the provider did no work, or turned the request away by its kind.
    pub fn used_nothing(&self) -> bool {
        use FailureClass::{Auth, Config, RateLimit};
        !self.began
            && self.usage.is_none()
            && (self.unused || matches!(self.class, Auth | Config | RateLimit))
    }
}
