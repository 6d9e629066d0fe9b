//! The limits as data, and what was counted so far.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScopeLimits {
    pub max_tokens: u64,
    /// US dollars, of models whose price is known; none for no bound.
    pub max_cost_usd: Option<f64>,
    /// Runs of agents, sub-agents included.
    pub max_invocations: u64,
}

impl ScopeLimits {
    /// No bound at all.
    pub fn unlimited() -> Self {
        Self { max_tokens: u64::MAX, max_cost_usd: None, max_invocations: u64::MAX }
    }
}

/// Bounds of everything that is counted beyond a single run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuotaLimits {
    /// Of everything, for a day.
    pub day: ScopeLimits,
    /// Of one conversation, for as long as it lives.
    pub session: ScopeLimits,
    /// Of one agent, for a day.
    pub agent: ScopeLimits,
    /// The part of a limit at which a warning is given, above 0 and up to 1.
    pub warn_at: f64,
}

impl QuotaLimits {
    /// No bound at all.
    pub fn unlimited() -> Self {
        let none = ScopeLimits::unlimited();
        Self { day: none, session: none, agent: none, warn_at: 1.0 }
    }
}

/// Bounds of what is used in the sessions of a named token, for a day.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLimits {
    /// The name of its sessions: those that have it and those below it count.
    pub sessions: String,
    pub all: ScopeLimits,
    /// Of those below one name in them: of one person for whom its bearer speaks.
    pub each: ScopeLimits,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counted {
    pub tokens: u64,
    /// US dollars, where the price is known.
    pub cost_usd: f64,
    pub invocations: u64,
}
