//! What is said when a limit of a run stops work.

use drupe_extension_api::{AgentId, BudgetUse, DefinitionLimits, LimitScope};

/// Which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `max_turns`.
    Turns,
    /// `max_tokens_per_invocation`.
    Tokens,
    /// `max_cost_usd`.
    Cost,
    /// `max_tool_calls`.
    ToolCalls,
    /// `max_invocations`.
    Invocations,
    /// `time_budget_ms`.
    Time,
    /// `max_depth`.
    Depth,
}

impl Limit {
    /// The key that sets it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Turns => "max_turns",
            Self::Tokens => "max_tokens_per_invocation",
            Self::Cost => "max_cost_usd",
            Self::ToolCalls => "max_tool_calls",
            Self::Invocations => "max_invocations",
            Self::Time => "time_budget_ms",
            Self::Depth => "max_depth",
        }
    }

    /// How much of it a run has used.
    pub(crate) fn told(self, used: u64, allowed: u64) -> BudgetUse {
        BudgetUse { limit: self.key().into(), scope: LimitScope::Run, used, allowed, resets: None }
    }
}

/// A cost limit that was set cannot be kept, since nobody knows what a model costs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{limit}` is set, but the price of model `{model}` is not known: give it with `input_usd` and `output_usd` of \
     `models.profiles.{model}` (0 for a free model){}", if limit == Limit::Cost.key() { ", or set `allow_unknown_price: true`" } else { "" }
)]
pub struct UnknownPrice {
    /// The key that sets the limit.
    pub limit: String,
    /// The model, as `provider/model`.
    pub model: String,
}

impl UnknownPrice {
    /// That of a run with those limits, unless they allow it.
    pub fn under(limits: &DefinitionLimits, model: &str) -> Option<Self> {
        let binds = limits.max_cost_usd.is_some() && !limits.allow_unknown_price;
        binds.then(|| Self { limit: Limit::Cost.key().to_owned(), model: model.to_owned() })
    }
}

/// A model may not be asked under the cost limit of a run, since nobody knows its price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("agent `{agent}`: {unknown}")]
pub struct Unpriced {
    /// Whose limit it is.
    pub agent: AgentId,
    /// The limit, in millionths of a dollar.
    pub allowed: u64,
    /// Which limit and which model.
    pub unknown: UnknownPrice,
}

impl Unpriced {
    /// As events tell it: by the key that would let the model be asked.
    pub fn told(&self) -> BudgetUse {
        let (limit, allowed) = ("allow_unknown_price".into(), self.allowed);
        BudgetUse { limit, scope: LimitScope::Run, used: 0, allowed, resets: None }
    }
}

/// A limit that stops work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Exceeded {
    /// Which.
    pub limit: Limit,
    /// Whose.
    pub agent: AgentId,
    /// How much was used, in the limit's unit; for cost in millionths of a dollar.
    pub used: u64,
    /// How much is allowed.
    pub allowed: u64,
    /// Whether it would fit were nothing reserved for calls that run.
    pub held_up: bool,
}

impl Exceeded {
    /// As events tell it.
    pub fn told(&self) -> BudgetUse {
        self.limit.told(self.used, self.allowed)
    }
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, agent, used, allowed, .. } = self;
        match limit {
            Limit::Turns => {
                write!(f, "agent `{agent}` has used {used} of the {allowed} steps of `max_turns`")
            }
            Limit::Tokens => write!(
                f,
                "agent `{agent}` has used {used} of {allowed} tokens (`max_tokens_per_invocation`), and the next model \
                 call does not fit"
            ),
            Limit::Cost => write!(
                f,
                "agent `{agent}` has used ${:.4} of ${:.4} (`max_cost_usd`), and the next model call may cost more",
                *used as f64 / 1e6,
                *allowed as f64 / 1e6
            ),
            Limit::ToolCalls => {
                write!(f, "agent `{agent}` has used {used} of the {allowed} tool calls of `max_tool_calls`")
            }
            Limit::Invocations => {
                write!(f, "agent `{agent}` has begun {used} of the {allowed} runs of `max_invocations`")
            }
            Limit::Time => {
                write!(f, "agent `{agent}` has used {used} of {allowed} ms (`time_budget_ms`)")
            }
            Limit::Depth => write!(
                f,
                "agent `{agent}` would be deeper than `max_depth` allows (depth {used} of at most {allowed})"
            ),
        }
    }
}
