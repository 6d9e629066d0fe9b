//! Which counters work belongs to, and what their limits are called.

use std::borrow::Cow;

use drupe_extension_api::{BudgetUse, LimitScope};
use jiff::Timestamp;

use crate::{Purse, ScopeLimits, Spender, quotas::DAY_MS, tally::Unit};

/// One of the counters that the work of a spender belongs to.
pub enum Counter<'a> {
    Day,
    Purse(&'a Purse, ScopeLimits),
    Agent,
    Session,
}

impl Counter<'_> {
    fn scope(&self) -> LimitScope {
        match self {
            Self::Day => LimitScope::Day,
            Self::Purse(..) => LimitScope::Token,
            Self::Agent => LimitScope::Agent,
            Self::Session => LimitScope::Session,
        }
    }

    /// What its limits are called, without the unit.
    fn key(&self) -> Cow<'static, str> {
        match self {
            Self::Day => "limits.day".into(),
            Self::Purse(purse, _) => purse.key().into(),
            Self::Agent => "limits.agent".into(),
            Self::Session => "limits.session".into(),
        }
    }

    /// Whose budget it is, for people.
    pub fn whose(&self, who: Spender<'_>) -> String {
        match self {
            Self::Day => "the day".into(),
            Self::Purse(purse, _) => purse.whose(),
            Self::Agent => format!("agent `{}`", who.agent),
            Self::Session => "the session".into(),
        }
    }
}

/// How much of a counter's limit is used.
pub fn told(counter: &Counter<'_>, unit: Unit, used: u64, allowed: u64, day: i64) -> BudgetUse {
    let scope = counter.scope();
    let midnight = || Timestamp::from_millisecond((day + 1).saturating_mul(DAY_MS)).ok();
    BudgetUse {
        limit: format!("{}.{}", counter.key(), unit.key()),
        scope,
        used,
        allowed,
        resets: if scope == LimitScope::Session { None } else { midnight() },
    }
}
