//! What the writer remembers of rows that it wrote or read, so that a turn asks for nothing twice.
//!
//! It holds what the transaction that is open has made of them; whoever rolls one back forgets all of it.

use std::{borrow::Borrow, collections::HashMap, hash::Hash, sync::Arc};

use drupe_agent::{Conversation, Entry};
use drupe_extension_api::{AgentId, CorrelationId, InvocationId, SessionId, TurnId};
use foldhash::fast::RandomState;

use crate::{checkpoints::Growth, transcript::Runs, usage};

/// Sessions and turns that are remembered at least: those that a busy daemon works on at the same time, some hundred
/// bytes each. Others are read back.
const KEPT: usize = 256;

/// The most that is remembered of what a turn recorded, as bytes of its message and its rows, and of how it ended: a longer
/// turn is read back.
pub(crate) const RECORDED: usize = 64 * 1024;

/// A conversation.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub number: i64,
    /// The position of its last event.
    pub last_seq: i64,
    pub turns: u64,
    /// The agent that was chosen for it.
    pub agent: Option<AgentId>,
    /// Who has the conversation where nobody was chosen.
    pub conversation: Conversation,
}

/// A turn.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub id: TurnId,
    pub number: i64,
    pub session: SessionId,
    pub session_number: i64,
    pub correlation: Option<CorrelationId>,
    /// How often it was begun.
    pub starts: u32,
    pub finished: bool,
}

/// What a turn without an answer has recorded since it was accepted.
pub(crate) struct Recorded {
    /// Its message.
    pub input: String,
    pub runs: Runs,
    bytes: usize,
}

impl Recorded {
    pub fn new(input: String) -> Self {
        let bytes = input.len();
        Self { input, runs: Runs::default(), bytes }
    }
}

/// All that is remembered.
#[derive(Default)]
pub(crate) struct Cache {
    pub sessions: Latest<SessionId, Session>,
    pub turns: Latest<TurnId, Arc<Turn>>,
    /// By the numbers of their turns; none where not all of it is known.
    pub recorded: Latest<i64, Recorded>,
    /// How turns grow of which more is recorded than is remembered, by their numbers.
    pub growth: Latest<i64, Growth>,
    /// Whose runs they are.
    pub runs: Latest<InvocationId, AgentId>,
    pub used: Latest<usage::Key, usage::Sum>,
    /// Durable subscribers by topic; none before they were read.
    pub followers: Option<HashMap<String, Vec<String>>>,
    /// Messages that wait for a subscriber.
    pub waiting: HashMap<String, u64>,
    /// Bytes of the messages of a topic that wait.
    pub held: HashMap<String, u64>,
    /// Memory for what is serialised.
    pub buffers: [Vec<u8>; 2],
}

impl Cache {
    /// After rows were rolled back.
    pub fn clear(&mut self) {
        let buffers = std::mem::take(&mut self.buffers);
        *self = Self { buffers, ..Self::default() };
    }

    /// Adds what one commit recorded of a turn, `bytes` in its row of that key, where all before it is known.
    pub fn record<'a>(
        &mut self,
        turn: i64,
        row: i64,
        bytes: usize,
        entries: impl Iterator<Item = &'a Entry>,
    ) {
        let size = i64::try_from(bytes).unwrap_or(i64::MAX);
        let Some(known) = self.recorded.get(&turn) else {
            if let Some(growth) = self.growth.get(&turn) {
                growth.since = growth.since.saturating_add(size);
            }
            return;
        };
        known.bytes += bytes;
        if known.bytes > RECORDED {
            self.recorded.take(&turn);
        } else {
            entries.for_each(|entry| known.runs.add(row, entry.clone()));
        }
    }
}

/// The values that were used last, in two generations: the older one is let go when the younger one is full.
pub(crate) struct Latest<K, V> {
    young: HashMap<K, V, RandomState>,
    old: HashMap<K, V, RandomState>,
    kept: usize,
}

impl<K, V> Default for Latest<K, V> {
    fn default() -> Self {
        Self::of(KEPT)
    }
}

impl<K, V> Latest<K, V> {
    /// Remembers at least `kept` values, and less than twice as many.
    pub fn of(kept: usize) -> Self {
        Self { young: HashMap::default(), old: HashMap::default(), kept }
    }

    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

impl<K: Hash + Eq, V> Latest<K, V> {
    /// Whether it is remembered, which does not count as a use.
    pub fn has<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    pub fn get<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    /// Forgets a value, and gives it.
    pub fn take<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let old = self.old.remove(key);
        self.young.remove(key).or(old)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.kept {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_is_remembered_and_the_rest_is_bounded() {
        let mut latest = Latest::default();
        for n in 0..10 * KEPT {
            latest.insert(n, n);
            assert_eq!(latest.get(&0), Some(&mut 0), "{n}");
        }
        assert_eq!(latest.get(&(KEPT / 2)), None);
        assert_eq!(latest.get(&(10 * KEPT - 1)), Some(&mut (10 * KEPT - 1)));
        assert!(latest.young.len() + latest.old.len() <= 2 * KEPT);
        assert_eq!((latest.take(&0), latest.get(&0)), (Some(0), None));
    }
}
