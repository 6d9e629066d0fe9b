//! Live subscriptions: the messages of one topic to one reader, who pulls them at its own pace.

use std::sync::Arc;

use drupe_agent::{Chain, TopicMessage};
use drupe_extension_api::{Fault, wire::BusMessage};
use drupe_handles::{Credit, Given, Source};
use futures_util::{FutureExt, future::BoxFuture};

use crate::{
    chain,
    given::Items,
    ring::{Found, Reader},
};

/// A live subscription to one topic; nothing is left of it when it goes.
pub struct Subscription {
    reader: Reader<Arc<TopicMessage>>,
    given: Option<Chain>,
}

impl Subscription {
    pub(crate) fn new(reader: Reader<Arc<TopicMessage>>) -> Self {
        Self { reader, given: None }
    }

    /// Waits for the first message, then takes what is there within the credit. The first after a gap says how many were
    /// skipped because the reader was slow.
    async fn read(&mut self, credit: Credit) -> Result<Given, Fault> {
        self.given = None;
        let mut items = Items::within(credit);
        let mut chains = None;
        let mut skipped = 0;
        while items.have_room() {
            let found = match items.is_empty() {
                true => self.reader.next().await,
                false => match self.reader.try_next() {
                    Some(found) => found,
                    None => break,
                },
            };
            match found {
                Found::Skipped(more) => skipped += more,
                Found::Item(message) => {
                    chain::join(&mut chains, &message.chain);
                    items.add(&bus_message(&message, std::mem::take(&mut skipped)))?;
                }
            }
        }
        self.given = chains;
        Ok(items.given())
    }
}

impl Source for Subscription {
    fn next(&mut self, credit: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        self.read(credit).boxed()
    }

    /// What the reader publishes meanwhile counts as set off by them; see [`extend`](crate::extend).
    fn chain(&self) -> Option<Chain> {
        self.given.clone()
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
