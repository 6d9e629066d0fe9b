//! The counters of one scope: what is used, what is reserved, and of what a warning was told.

use crate::{Counted, ScopeLimits};

/// Millionths of a US dollar in a dollar: costs are summed as whole numbers, so that sums do not drift.
const MICROS: f64 = 1_000_000.0;

/// What the three counters of a scope count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Tokens,
    Micros,
    Runs,
}

impl Unit {
    /// The last part of the key that bounds it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tokens => "max_tokens",
            Self::Micros => "max_cost_usd",
            Self::Runs => "max_invocations",
        }
    }

    /// The bound that `limits` set; the largest number for none.
    pub fn allowed(self, limits: &ScopeLimits) -> u64 {
        match self {
            Self::Tokens => limits.max_tokens,
            Self::Micros => limits.max_cost_usd.map_or(u64::MAX, micros),
            Self::Runs => limits.max_invocations,
        }
    }
}

/// US dollars in millionths; what is no amount counts nothing.
pub fn micros(usd: f64) -> u64 {
    (usd * MICROS).round() as u64
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    used: u64,
    reserved: u64,
    told: bool,
}

impl Meter {
    /// Of what was used before. Where that passed the mark already, the warning was told then.
    fn of(used: u64, allowed: u64, warn_at: f64) -> Self {
        Self { used, reserved: 0, told: passes(used, allowed, warn_at) }
    }

    /// What is used and what running calls may still use.
    pub fn taken(&self) -> u64 {
        self.used.saturating_add(self.reserved)
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    /// Whether so much more stays within the limit.
    pub fn fits(&self, more: u64, allowed: u64) -> bool {
        self.taken().saturating_add(more) <= allowed
    }

    pub fn reserve(&mut self, amount: u64) {
        self.reserved = self.reserved.saturating_add(amount);
    }

    /// Ends a reservation: so much of it was used.
    pub fn settle(&mut self, reserved: u64, used: u64) {
        self.reserved = self.reserved.saturating_sub(reserved);
        self.used = self.used.saturating_add(used);
    }

    /// Whether a warning is due now; true once.
    pub fn warns(&mut self, allowed: u64, warn_at: f64) -> bool {
        let due = !self.told && passes(self.used, allowed, warn_at);
        self.told |= due;
        due
    }
}

/// Whether `used` reaches the mark. What has no bound has no mark.
fn passes(used: u64, allowed: u64, warn_at: f64) -> bool {
    allowed != u64::MAX && used as f64 >= allowed as f64 * warn_at
}

/// The counters of one scope.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    tokens: Meter,
    micros: Meter,
    runs: Meter,
}

impl Tally {
    /// Continues what was counted before.
    pub fn of(counted: Counted, limits: &ScopeLimits, warn_at: f64) -> Self {
        let meter = |unit: Unit, used| Meter::of(used, unit.allowed(limits), warn_at);
        Self {
            tokens: meter(Unit::Tokens, counted.tokens),
            micros: meter(Unit::Micros, micros(counted.cost_usd)),
            runs: meter(Unit::Runs, counted.invocations),
        }
    }

    pub fn meter(&mut self, unit: Unit) -> &mut Meter {
        match unit {
            Unit::Tokens => &mut self.tokens,
            Unit::Micros => &mut self.micros,
            Unit::Runs => &mut self.runs,
        }
    }
}
