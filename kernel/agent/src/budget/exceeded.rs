//! What is said when a limit of a run stops work.

use drupe_extension_api::{AgentId, BudgetUse, LimitScope};

/// Which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `max_turns`.
    Turns,
    /// `max_tokens_per_invocation`.
    Tokens,
    /// `max_cost_usd`.
    Cost,
    /// A price is unknown where a cost limit holds.
    UnknownPrice,
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
            Self::UnknownPrice => "allow_unknown_price",
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
            Limit::UnknownPrice => write!(
                f,
                "agent `{agent}` has a cost limit (`max_cost_usd`), but the price of its model is unknown; set \
                 `allow_unknown_price: true` or give the price under `models.profiles`"
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
