//! What people should know of messages that did not arrive, once each.

use std::collections::{HashSet, VecDeque};

use drupe_extension_api::CorrelationId;

use crate::Cut;

/// Cuts that are remembered, so as not to be told twice. A chain that is cut is over soon.
const REMEMBERED: usize = 1024;

/// A message was given up; it is among the dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The number of its dead letter: the message's own, or, where its chain was cut, that of the first which was cut
    /// for the same subscriber and topic.
    pub id: u64,
    /// Who should have got it.
    pub subscriber: String,
    /// Its topic.
    pub topic: String,
    /// Links it to the turn that set it off.
    pub correlation: Option<CorrelationId>,
    /// Why.
    pub reason: GaveUp,
}

/// Why a message was given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GaveUp {
    /// Its chain ends here. Told once for each chain and subscriber, however many messages of the chain are cut.
    #[error(transparent)]
    Cut(#[from] Cut),
    /// It was tried too often.
    #[error("given up after {attempts} attempts: {why}")]
    Tried {
        /// How often.
        attempts: u32,
        /// What the last one failed with.
        why: String,
    },
    /// Its receiver will never take it.
    #[error("not taken: {0}")]
    Refused(String),
}

/// Which cuts were told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    known: HashSet<(String, String)>,
    order: VecDeque<(String, String)>,
}

impl Told {
    /// Whether this is to be told: nothing else but a cut of the same chain at the same subscriber was already.
    pub fn first(&mut self, remark: &Remark) -> bool {
        let (GaveUp::Cut(_), Some(chain)) = (&remark.reason, &remark.correlation) else { return true };
        let cut = (chain.to_string(), remark.subscriber.clone());
        if !self.known.insert(cut.clone()) {
            return false;
        }
        self.order.push_back(cut);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}
