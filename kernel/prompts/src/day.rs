//! The day that stands in prompts.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A day of the calendar, in UTC. Prompts have the day and not the moment, so that their bytes stay the same for a
/// provider's cache as long as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day(i64);

impl Day {
    /// The day of a moment, in milliseconds since 1970.
    pub fn of(now_ms: i64) -> Self {
        Self(now_ms.div_euclid(DAY_MS))
    }

    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let began = Timestamp::from_millisecond(self.0.saturating_mul(DAY_MS)).unwrap_or(Timestamp::MAX);
        write!(f, "{}", began.strftime("%Y-%m-%d"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_date() {
        assert_eq!(Day::of(0).to_string(), "1970-01-01");
        assert_eq!(Day::of(-1).to_string(), "1969-12-31");
        assert_eq!(Day::of(1_795_478_399_999).to_string(), "2026-11-23");
        assert_eq!(Day::of(1_795_478_400_000).to_string(), "2026-11-24");
        assert_eq!(Day::of(0).next(), Day::of(DAY_MS));
    }
}
