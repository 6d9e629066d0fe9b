//! What was told and is being taken in: of one conversation one thing after another, of several at the same time. Each waits for the disk of the
//! daemon, which takes in many at once as quickly as one; the service wants each to be acknowledged soon.

use std::collections::{HashMap, VecDeque, hash_map::Entry};

use drupe_extension_api::prelude::*;
use futures_util::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::FuturesUnordered,
};

use crate::{ear::SlackEar, event::SlackHeard};

/// So much is taken in at the same time through one socket; then nothing more is read from it.
const MOST: usize = 32;

/// All that was told through one socket and is not taken in so far.
pub struct Taking {
    ear: SlackEar,
    running: FuturesUnordered<BoxFuture<'static, TakenIn>>,
    /// What waits in a conversation of which something is being taken in.
    behind: HashMap<String, VecDeque<(String, SlackHeard)>>,
}

/// What became of something that was told.
pub struct TakenIn {
    /// The id of its envelope.
    pub id: String,
    conversation: String,
    pub outcome: Result<(), Fault>,
}

impl Taking {
    pub fn new(ear: SlackEar) -> Self {
        Self { ear, running: FuturesUnordered::new(), behind: HashMap::new() }
    }

    /// Whether more may be begun.
    pub fn has_room(&self) -> bool {
        self.running.len() + self.behind.values().map(VecDeque::len).sum::<usize>() < MOST
    }

    /// Begins to take in what an envelope holds, behind what was told before of its conversation.
    pub fn begin(&mut self, id: String, told: SlackHeard) {
        match self.behind.entry(told.heard.conversation.clone()) {
            Entry::Occupied(mut behind) => behind.get_mut().push_back((id, told)),
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                self.run(id, told);
            }
        }
    }

    /// The next that is done. None where nothing is being taken in; whoever drops this loses nothing.
    pub async fn next(&mut self) -> Option<TakenIn> {
        let taken = self.running.next().await?;
        match self.behind.get_mut(&taken.conversation).and_then(VecDeque::pop_front) {
            Some((id, told)) => self.run(id, told),
            None => drop(self.behind.remove(&taken.conversation)),
        }
        Some(taken)
    }

    fn run(&self, id: String, told: SlackHeard) {
        let (ear, conversation) = (self.ear.clone(), told.heard.conversation.clone());
        let taking = async move { TakenIn { id, conversation, outcome: ear.take(told).await } };
        self.running.push(taking.boxed());
    }
}
