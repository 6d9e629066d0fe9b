//! `limits`: what days, sessions and agents may spend, and how much goes on at the same time.
//!
//! What one run may spend stands with the agents. Nothing is counted here.

use super::Config;
use crate::{
    declare::keys,
    shape::{Shape, each_its_own},
};

// Nobody who talks with an assistant reaches these: a run takes 50,000 tokens at most by default, so a day has room
// for 400 of them at their bound, and for thousands of ordinary ones. What runs away is stopped within the day, for
// the price of a dinner and not of a car. One session and one agent have a part of the day only, so that the others
// go on when it has run away; an agent has more than a session, because sessions share it.
const DAY: ScopeLimitsConfig =
    ScopeLimitsConfig { max_tokens: 20_000_000, max_cost_usd: 50.0, max_invocations: 10_000 };
const SESSION: ScopeLimitsConfig =
    ScopeLimitsConfig { max_tokens: 5_000_000, max_cost_usd: 20.0, max_invocations: 2_000 };
const AGENT: ScopeLimitsConfig =
    ScopeLimitsConfig { max_tokens: 10_000_000, max_cost_usd: 25.0, max_invocations: 5_000 };

const PLACES: Shape = Shape::Integer { min: 1, max: 10_000 };

keys! {
    /// What holds beyond a single run. Every value is finite.
    #[derive(Copy, PartialEq)]
    pub struct LimitsConfig in LIMITS("`limits`") {
        /// Everything together, for a day (UTC).
        day: ScopeLimitsConfig = DAY => Shape::Record(&SCOPE);
        /// One conversation, for as long as it lives.
        session: ScopeLimitsConfig = SESSION => Shape::Record(&SCOPE);
        /// One agent, for a day (UTC).
        agent: ScopeLimitsConfig = AGENT => Shape::Record(&SCOPE);
        /// The part of one of these limits at which a warning is given.
        // Late enough to be rare, early enough to finish what is being done.
        warn_at: f64 = 0.8 => Shape::Number { min: 0.01, max: 1.0 };
        /// How much goes on at the same time.
        concurrency: ConcurrencyConfig = each_its_own() => Shape::Record(&CONCURRENCY);
    }
}

keys! {
    #[derive(Copy, PartialEq)]
    pub struct ScopeLimitsConfig in SCOPE("") {
        /// Input and output tokens.
        max_tokens: u64 => Shape::Integer { min: 1, max: 1_000_000_000_000 };
        /// US dollars, of models whose price is known.
        max_cost_usd: f64 => Shape::Number { min: 0.0, max: 1e6 };
        /// Runs of agents, sub-agents included.
        max_invocations: u64 => Shape::Integer { min: 1, max: 1_000_000_000 };
    }
}

// A turn mostly waits for its model: far more of them than cores, yet few enough to stay in memory. One agent has a
// quarter, so that a crowd at one does not shut out the others.
keys! {
    /// How much goes on at the same time; what is more waits.
    #[derive(Copy, PartialEq, Eq)]
    pub struct ConcurrencyConfig in CONCURRENCY("`limits.concurrency`") {
        /// Turns of all sessions; further ones wait.
        turns: usize = 64 => PLACES;
        /// Runs of any one agent; further ones wait.
        runs_of_one_agent: usize = 16 => PLACES;
    }
}

impl Config {
    /// The key of a bound on cost that somebody set for a day, a session or an agent; none where all are built in.
    pub fn cost_limit(&self) -> Option<String> {
        let keys = ["day", "session", "agent"].map(|scope| format!("limits.{scope}.max_cost_usd"));
        keys.into_iter().find(|key| self.origins.contains_key(key))
    }
}
