//! Which turns wait to be sent, and which were sent of late. One small file, replaced as a whole.

use std::{collections::VecDeque, sync::Arc};

use drupe_channel::KeptState;
use drupe_extension_api::prelude::*;
use tokio::sync::Notify;

const FILE: &str = "otel.json";

/// Turns that are known to be sent. A message of the daemon comes again where the last process ended before it was done with it, which are
/// some dozens at most, and a turn that goes from one agent to another is told of by each.
const SENT: usize = 500;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Turns {
    waiting: VecDeque<TurnId>,
    sent: VecDeque<TurnId>,
}

/// What becomes of a turn that is told of.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnAdded {
    /// It waits, or was sent before.
    Known,
    New,
    /// It waits now, and the oldest does not any more.
    InPlaceOf(TurnId),
}

impl Turns {
    fn is_known(&self, turn: &TurnId) -> bool {
        self.waiting.contains(turn) || self.sent.contains(turn)
    }

    fn add(&mut self, turn: TurnId, most: usize) -> TurnAdded {
        if self.is_known(&turn) {
            return TurnAdded::Known;
        }
        self.waiting.push_back(turn);
        match self.waiting.len() > most {
            true => self.waiting.pop_front().map_or(TurnAdded::New, TurnAdded::InPlaceOf),
            false => TurnAdded::New,
        }
    }

    fn done(&mut self, turn: &TurnId) {
        self.waiting.retain(|waits| waits != turn);
        self.sent.push_back(turn.clone());
        while self.sent.len() > SENT {
            self.sent.pop_front();
        }
    }
}

/// Turns that wait, over restarts. Clones are the same.
#[derive(Clone)]
pub struct TurnQueue {
    kept: KeptState<Turns>,
    most: usize,
    pub added: Arc<Notify>,
}

impl TurnQueue {
    pub fn open(host: Host, most: usize) -> Result<Self, Fault> {
        Ok(Self { kept: KeptState::open(host, FILE)?, most, added: Arc::default() })
    }

    /// All that wait, the oldest first.
    pub fn all(&self) -> Vec<TurnId> {
        self.kept.look(|turns| turns.waiting.iter().cloned().collect())
    }

    /// Has a turn wait. Once this returns it does so after a restart as well.
    pub async fn add(&self, turn: TurnId) -> Result<TurnAdded, Fault> {
        if self.kept.look(|turns| turns.is_known(&turn)) {
            return Ok(TurnAdded::Known);
        }
        let added = self.kept.change(|turns| turns.add(turn, self.most)).await?;
        self.added.notify_one();
        Ok(added)
    }

    /// A turn was sent, or never can be.
    pub async fn done(&self, turn: &TurnId) -> Result<(), Fault> {
        self.kept.change(|turns| turns.done(turn)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_waits_once_and_the_oldest_goes_where_there_is_no_room() {
        let turn = |id: &str| TurnId::new(id).expect("an id");
        let mut turns = Turns::default();
        assert_eq!(turns.add(turn("a"), 2), TurnAdded::New);
        assert_eq!(turns.add(turn("a"), 2), TurnAdded::Known);
        assert_eq!(turns.add(turn("b"), 2), TurnAdded::New);
        assert_eq!(turns.add(turn("c"), 2), TurnAdded::InPlaceOf(turn("a")));
        turns.done(&turn("b"));
        assert_eq!(turns.add(turn("b"), 2), TurnAdded::Known, "it was sent");
        assert_eq!(turns.waiting, [turn("c")]);
        for n in 0..2 * SENT {
            turns.done(&turn(&n.to_string()));
        }
        assert_eq!(turns.sent.len(), SENT);
    }
}
