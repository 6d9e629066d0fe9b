//! Which agents have a message under way, and which are left alone for a while. Pure: time is an argument.

use std::collections::{HashMap, HashSet};

use drupe_journal::is_due;

/// How a subscriber rests after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Not at all: its next message may come.
    No,
    /// Until then, in milliseconds since 1970.
    Until(i64),
    /// Until then or until somebody comes, since its receiver is not here.
    Absent(i64),
}

/// The subscribers that may not be given anything now.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    busy: HashSet<String>,
    resting: HashMap<String, Rest>,
    others: HashSet<String>,
}

impl Lanes {
    /// Takes a subscriber for a message, if it is free.
    pub fn begin(&mut self, subscriber: &str) -> bool {
        !self.resting.contains_key(subscriber) && self.busy.insert(subscriber.to_owned())
    }

    /// Its message is dealt with.
    pub fn end(&mut self, subscriber: String, rest: Rest) {
        self.busy.remove(&subscriber);
        if rest != Rest::No {
            self.resting.insert(subscriber, rest);
        }
    }

    /// Somebody who gets messages in another way.
    pub fn other(&mut self, subscriber: String) {
        self.others.insert(subscriber);
    }

    /// Frees those that have rested long enough.
    pub fn rested(&mut self, now_ms: i64) {
        self.resting.retain(|_, rest| match *rest {
            Rest::No => false,
            Rest::Until(until) | Rest::Absent(until) => !is_due(until, now_ms),
        });
    }

    /// Somebody came: frees those whose receiver was not here.
    pub fn come(&mut self) {
        self.resting.retain(|_, rest| !matches!(rest, Rest::Absent(_)));
    }

    /// When the first of those that rest is free.
    pub fn next_ms(&self) -> Option<i64> {
        self.resting
            .values()
            .filter_map(|rest| match *rest {
                Rest::No => None,
                Rest::Until(until) | Rest::Absent(until) => Some(until),
            })
            .min()
    }

    /// How many may not be given anything now.
    pub fn taken(&self) -> usize {
        self.busy.len() + self.resting.len() + self.others.len()
    }
}
