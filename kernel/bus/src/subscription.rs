//! Live subscriptions: the messages of one topic to one reader, who pulls them at its own pace.

use std::sync::{Arc, Mutex, PoisonError};

use drupe_agent::{Chain, TopicMessage};
use drupe_extension_api::wire::BusMessage;

use crate::{
    chain,
    ring::{Found, Reader},
};

/// A live subscription to one topic; nothing is left of it when it goes.
pub struct Subscription {
    // One reader pulls; a second call waits for the first.
    reader: tokio::sync::Mutex<Reader<Arc<TopicMessage>>>,
    given: Mutex<Option<Chain>>,
}

impl Subscription {
    pub(crate) fn new(reader: Reader<Arc<TopicMessage>>) -> Self {
        Self { reader: tokio::sync::Mutex::new(reader), given: Mutex::default() }
    }

    /// The next messages: waits for the first, then takes what is there, at most `credit` of them and at least one. The
    /// first after a gap says how many were skipped because the reader was slow.
    pub async fn next(&self, credit: u32) -> Vec<BusMessage> {
        let mut reader = self.reader.lock().await;
        self.give(None);
        let mut messages = Vec::new();
        let mut chains = None;
        let mut skipped = 0;
        loop {
            let found = if messages.is_empty() {
                reader.next().await
            } else {
                match reader.try_next() {
                    Some(found) => found,
                    None => break,
                }
            };
            match found {
                Found::Skipped(more) => skipped += more,
                Found::Item(message) => {
                    chain::join(&mut chains, &message.chain);
                    messages.push(bus_message(&message, std::mem::take(&mut skipped)));
                    if messages.len() >= credit as usize {
                        break;
                    }
                }
            }
        }
        self.give(chains);
        messages
    }

    /// What set off the messages that were given last, while the reader works on them: until it asks for the next. What
    /// it publishes meanwhile counts as set off by them; see [`extend`](crate::extend).
    pub fn chain(&self) -> Option<Chain> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn give(&self, chain: Option<Chain>) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = chain;
    }
}

fn bus_message(message: &TopicMessage, skipped: u64) -> BusMessage {
    BusMessage {
        topic: message.topic.clone(),
        payload: message.payload.clone(),
        correlation_id: message.correlation.clone(),
        id: None,
        skipped,
    }
}
