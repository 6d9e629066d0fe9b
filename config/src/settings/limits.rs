//! `limits`: what days, sessions and agents may spend, and how much goes on at the same time.
//!
//! What one run may spend stands with the agents. Nothing is counted here.

use serde::Serialize;

use super::Config;
use crate::{
    fields::Fields,
    shape::{Key, Shape, Table},
};

/// What holds beyond a single run. Every value is finite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LimitsConfig {
    /// Everything together, for a day (UTC).
    pub day: ScopeLimitsConfig,
    /// One conversation, for as long as it lives.
    pub session: ScopeLimitsConfig,
    /// One agent, for a day (UTC).
    pub agent: ScopeLimitsConfig,
    /// The part of one of these limits at which its use is told, from 0.01 to 1; by default 0.8.
    pub warn_at: f64,
    /// How much goes on at the same time.
    pub concurrency: ConcurrencyConfig,
}

/// The bounds of one scope.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScopeLimitsConfig {
    /// Input and output tokens.
    pub max_tokens: u64,
    /// US dollars, of models whose price is known.
    pub max_cost_usd: f64,
    /// Runs of agents, sub-agents included.
    pub max_invocations: u64,
}

/// How much goes on at the same time; what is more waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ConcurrencyConfig {
    /// Turns of all sessions.
    pub turns: usize,
    /// Runs of any one agent.
    pub runs_of_one_agent: usize,
}

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

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            day: DAY,
            session: SESSION,
            agent: AGENT,
            // Late enough to be rare, early enough to finish what is being done.
            warn_at: 0.8,
            // A turn mostly waits for its model: far more of them than cores, yet few enough to stay in memory. One
            // agent has a quarter, so that a crowd at one does not shut out the others.
            concurrency: ConcurrencyConfig { turns: 64, runs_of_one_agent: 16 },
        }
    }
}

impl Config {
    /// The key of a bound on cost that somebody set for a day, a session or an agent; none where all are built in.
    pub fn cost_limit(&self) -> Option<String> {
        let keys = ["day", "session", "agent"].map(|scope| format!("limits.{scope}.max_cost_usd"));
        keys.into_iter().find(|key| self.origins.contains_key(key))
    }
}

pub(super) static TABLE: Table = Table {
    name: "`limits`",
    keys: &[
        Key::new("day", Shape::Record(&DAY_KEYS), "everything together, for a day (UTC)"),
        Key::new("session", Shape::Record(&SESSION_KEYS), "one conversation, for as long as it lives"),
        Key::new("agent", Shape::Record(&AGENT_KEYS), "one agent, for a day (UTC)"),
        Key::new(
            "warn_at",
            Shape::Number { min: 0.01, max: 1.0 },
            "the part of one of these limits at which its use is told",
        )
        .default("0.8"),
        Key::new("concurrency", Shape::Record(&CONCURRENCY), "how much goes on at the same time"),
    ],
    rest: None,
};

static DAY_KEYS: Table =
    Table { name: "`limits.day`", keys: &[tokens("20000000"), cost("50.0"), runs("10000")], rest: None };
static SESSION_KEYS: Table =
    Table { name: "`limits.session`", keys: &[tokens("5000000"), cost("20.0"), runs("2000")], rest: None };
static AGENT_KEYS: Table =
    Table { name: "`limits.agent`", keys: &[tokens("10000000"), cost("25.0"), runs("5000")], rest: None };

static CONCURRENCY: Table = Table {
    name: "`limits.concurrency`",
    keys: &[
        Key::new("turns", PLACES, "turns of all sessions; further ones wait").default("64"),
        Key::new("runs_of_one_agent", PLACES, "runs of any one agent; further ones wait").default("16"),
    ],
    rest: None,
};

const PLACES: Shape = Shape::Integer { min: 1, max: 10_000 };

const fn tokens(default: &'static str) -> Key {
    Key::new("max_tokens", Shape::Integer { min: 1, max: 1_000_000_000_000 }, "input and output tokens")
        .default(default)
}

const fn cost(default: &'static str) -> Key {
    Key::new(
        "max_cost_usd",
        Shape::Number { min: 0.0, max: 1e6 },
        "US dollars, of models whose price is known",
    )
    .default(default)
}

const fn runs(default: &'static str) -> Key {
    Key::new(
        "max_invocations",
        Shape::Integer { min: 1, max: 1_000_000_000 },
        "runs of agents, sub-agents included",
    )
    .default(default)
}

pub(super) fn read(fields: Fields<'_>) -> LimitsConfig {
    let built_in = LimitsConfig::default();
    let concurrency = fields.within("concurrency");
    let places = |key: &str| concurrency.integer(key);
    let limits = LimitsConfig {
        day: scope(fields.within("day"), built_in.day),
        session: scope(fields.within("session"), built_in.session),
        agent: scope(fields.within("agent"), built_in.agent),
        warn_at: fields.number("warn_at").unwrap_or(built_in.warn_at),
        concurrency: ConcurrencyConfig {
            turns: places("turns").unwrap_or(built_in.concurrency.turns),
            runs_of_one_agent: places("runs_of_one_agent").unwrap_or(built_in.concurrency.runs_of_one_agent),
        },
    };
    concurrency.done();
    fields.done();
    limits
}

fn scope(fields: Fields<'_>, built_in: ScopeLimitsConfig) -> ScopeLimitsConfig {
    let limits = ScopeLimitsConfig {
        max_tokens: fields.integer("max_tokens").unwrap_or(built_in.max_tokens),
        max_cost_usd: fields.number("max_cost_usd").unwrap_or(built_in.max_cost_usd),
        max_invocations: fields.integer("max_invocations").unwrap_or(built_in.max_invocations),
    };
    fields.done();
    limits
}
