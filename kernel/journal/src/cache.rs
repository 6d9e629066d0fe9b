//! What the writer remembers of rows that it wrote or read, so that a turn asks for nothing twice.
//!
//! It holds what the transaction that is open has made of them; whoever rolls one back forgets all of it.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

use drupe_extension_api::{AgentId, CorrelationId, InvocationId, SessionId, TurnId};

/// Sessions and turns that are remembered at least: those that a busy daemon works on at the same time, some hundred
/// bytes each.
const KEPT: usize = 1024;

/// A conversation.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub number: i64,
    /// The position of its last event.
    pub last_seq: i64,
    pub turns: u64,
    /// The agent that was chosen for it.
    pub agent: Option<AgentId>,
}

/// A turn.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub id: TurnId,
    pub number: i64,
    pub session: SessionId,
    pub session_number: i64,
    pub correlation: Option<CorrelationId>,
    pub finished: bool,
}

/// All that is remembered.
#[derive(Default)]
pub(crate) struct Cache {
    pub sessions: Latest<SessionId, Session>,
    pub turns: Latest<TurnId, Turn>,
    /// Whose runs they are.
    pub runs: Latest<InvocationId, AgentId>,
    /// Durable subscribers by topic; none before they were read.
    pub followers: Option<HashMap<String, Vec<String>>>,
    /// Messages that wait for a subscriber.
    pub waiting: HashMap<String, u64>,
    /// Memory for what is serialised.
    pub buffers: [Vec<u8>; 2],
}

impl Cache {
    /// After rows were rolled back.
    pub fn clear(&mut self) {
        let buffers = std::mem::take(&mut self.buffers);
        *self = Self { buffers, ..Self::default() };
    }
}

/// The values that were used last, in two generations: the older one is let go when the younger one is full.
pub(crate) struct Latest<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Latest<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Hash + Eq, V> Latest<K, V> {
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

    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= KEPT {
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
    }
}
