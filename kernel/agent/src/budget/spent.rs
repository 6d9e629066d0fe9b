//! What was used, as sums that can be added and taken apart.

use std::ops::AddAssign;

use drupe_extension_api::{Spend, Usage};
use serde::{Deserialize, Serialize};

/// What a run, or a part of it, has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Tokens by kind.
    pub usage: Usage,
    /// US dollars of the tokens whose price is known.
    pub usd: f64,
    /// Whether there are others, so that `usd` is no sum.
    pub unpriced: bool,
    /// Tokens of model calls whose end was never seen. They count as used.
    pub lost_tokens: u64,
    /// US dollars that those may have cost.
    pub lost_usd: f64,
    /// Steps of the loop.
    pub turns: u32,
    /// Tool calls.
    pub tool_calls: u32,
    /// Runs of agents.
    pub invocations: u32,
}

impl Spent {
    /// Tokens, and what they cost; no cost stands for an unknown price.
    pub fn of(usage: Usage, cost_usd: Option<f64>) -> Self {
        let unpriced = cost_usd.is_none() && usage.total() > 0;
        Self { usage, usd: cost_usd.unwrap_or(0.0), unpriced, ..Self::default() }
    }

    /// A model call whose end was never seen.
    pub fn lost(tokens: u64, usd: f64) -> Self {
        Self { lost_tokens: tokens, lost_usd: usd, ..Self::default() }
    }

    /// So many tool calls.
    pub fn calls(tool_calls: u32) -> Self {
        Self { tool_calls, ..Self::default() }
    }

    /// One step of the loop.
    pub fn step() -> Self {
        Self { turns: 1, ..Self::default() }
    }

    /// One run.
    pub fn run() -> Self {
        Self { invocations: 1, ..Self::default() }
    }

    /// Of this, what the sum of a caller that ended does not hold: model calls whose end was never seen and, where it has
    /// no cost since some price is unknown, the known cost.
    #[must_use]
    pub fn beyond(&self, sum: &Spend) -> Self {
        let usd = if sum.cost_usd.is_none() { self.usd } else { 0.0 };
        Self { usd, ..Self::lost(self.lost_tokens, self.lost_usd) }
    }

    /// All tokens that count as used.
    pub fn tokens(&self) -> u64 {
        self.usage.total().saturating_add(self.lost_tokens)
    }

    /// All US dollars that count as used.
    pub fn dollars(&self) -> f64 {
        self.usd + self.lost_usd
    }

    /// As responses and records tell it: without what was lost, and without time.
    pub fn told(&self) -> Spend {
        Spend {
            usage: self.usage,
            turns: self.turns,
            tool_calls: self.tool_calls,
            invocations: self.invocations,
            cost_usd: (!self.unpriced).then_some(self.usd),
            elapsed_ms: 0,
        }
    }

    /// Takes a part out. What no token stands for any more costs nothing, so that sums of parts leave no rest.
    pub(super) fn take(&mut self, part: &Self) {
        let Usage { input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens } =
            part.usage;
        let of = &mut self.usage;
        of.input_tokens = of.input_tokens.saturating_sub(input_tokens);
        of.cached_tokens = of.cached_tokens.saturating_sub(cached_tokens);
        of.cache_write_tokens = of.cache_write_tokens.saturating_sub(cache_write_tokens);
        of.output_tokens = of.output_tokens.saturating_sub(output_tokens);
        of.reasoning_tokens = of.reasoning_tokens.saturating_sub(reasoning_tokens);
        self.lost_tokens = self.lost_tokens.saturating_sub(part.lost_tokens);
        let rest = |tokens: u64, usd: f64| if tokens == 0 { 0.0 } else { usd.max(0.0) };
        self.usd = rest(self.usage.total(), self.usd - part.usd);
        self.lost_usd = rest(self.lost_tokens, self.lost_usd - part.lost_usd);
        self.turns = self.turns.saturating_sub(part.turns);
        self.tool_calls = self.tool_calls.saturating_sub(part.tool_calls);
        self.invocations = self.invocations.saturating_sub(part.invocations);
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.usage += other.usage;
        self.usd += other.usd;
        self.unpriced |= other.unpriced;
        self.lost_tokens = self.lost_tokens.saturating_add(other.lost_tokens);
        self.lost_usd += other.lost_usd;
        self.turns += other.turns;
        self.tool_calls += other.tool_calls;
        self.invocations += other.invocations;
    }
}

impl std::iter::Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

impl From<Spend> for Spent {
    /// What a run that ended is recorded to have spent.
    fn from(spend: Spend) -> Self {
        let Spend { usage, turns, tool_calls, invocations, cost_usd, elapsed_ms: _ } = spend;
        Self { turns, tool_calls, invocations, ..Self::of(usage, cost_usd) }
    }
}
