//! What becomes of the slots that have come since a job was last looked at.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Timing;

/// A slot that is looked at this much later than it was due still counts as on time: a restart takes seconds.
pub const ON_TIME: SignedDuration = SignedDuration::from_secs(30);

/// The most slots that are counted one by one; of more it is said that there were more.
const COUNTED: u32 = 1_000;

/// What becomes of slots that came while nobody was there to do them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MisfirePolicy {
    Skip,
    /// The last of them is done, if it came within the grace; the others are missed.
    #[default]
    Once,
    /// Those that came within the grace are done, the last `max` of them; the others are missed.
    All {
        /// The most that are done.
        max: u32,
    },
}

/// What becomes of slots that are late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfire {
    /// Which of them are done.
    pub policy: MisfirePolicy,
    /// How late one may be and still be done.
    pub grace: Duration,
}

/// What is to become of the slots behind one instant and up to another. All of them are settled by it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotPlan {
    /// Those that are done, in their order.
    pub fire: Vec<Timestamp>,
    pub missed: Option<MissedSlots>,
}

/// Slots that nobody was there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissedSlots {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u32,
    /// Whether there were more than are counted.
    pub more: bool,
}

/// Decides about all slots behind `through` and up to `now`; none where there are none. A clock that went back has none.
pub fn plan(timing: &Timing, misfire: Misfire, through: Timestamp, now: Timestamp) -> Option<SlotPlan> {
    let first = timing.after(through).filter(|first| *first <= now)?;
    let late = |slot: &Timestamp| now.duration_since(*slot);
    let grace = SignedDuration::try_from(misfire.grace).unwrap_or(SignedDuration::MAX).max(ON_TIME);
    let (most, bound) = match misfire.policy {
        MisfirePolicy::Skip => (1, ON_TIME),
        MisfirePolicy::Once => (1, grace),
        MisfirePolicy::All { max } => (max.max(1), grace),
    };
    let mut fire = Vec::new();
    let mut at = timing.latest(now);
    while let Some(slot) =
        at.filter(|slot| *slot >= first && late(slot) <= bound && fire.len() < most as usize)
    {
        fire.push(slot);
        at = slot.checked_sub(SignedDuration::from_nanos(1)).ok().and_then(|before| timing.latest(before));
    }
    fire.reverse();
    let until = fire.first().copied();
    Some(SlotPlan { missed: missed(timing, first, until, now), fire })
}

/// The slots from `first` on that come before `until`, or else up to `now`.
fn missed(
    timing: &Timing,
    first: Timestamp,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Option<MissedSlots> {
    let is_missed = |slot: &Timestamp| match until {
        Some(until) => *slot < until,
        None => *slot <= now,
    };
    if !is_missed(&first) {
        return None;
    }
    let (mut last, mut count, mut more) = (first, 1, false);
    while let Some(next) = timing.after(last).filter(is_missed) {
        if count == COUNTED {
            more = true;
            break;
        }
        (last, count) = (next, count + 1);
    }
    if more {
        let before = until.unwrap_or(now).checked_sub(SignedDuration::from_nanos(i64::from(until.is_some())));
        last = before.ok().and_then(|before| timing.latest(before)).unwrap_or(last);
    }
    Some(MissedSlots { first, last, count, more })
}

#[cfg(test)]
mod tests;
