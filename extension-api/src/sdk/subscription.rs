//! Messages of a topic, pulled.

use std::{collections::VecDeque, fmt, sync::Arc};

use super::{
    guard::BoxFuture,
    shared::{Origin, Shared},
};
use crate::{
    Fault,
    wire::{BusMessage, HandleItems, HandleNext, host},
};

/// How many messages are asked for at once. More would hold memory for a slow reader, which the kernel bounds
/// for it; fewer would cross the boundary more often for a fast one.
const CREDIT: u32 = 32;

/// The messages of one topic, in order. The reader's pace bounds the writer: what a slow reader missed is
/// counted in [`BusMessage::skipped`]. Dropping it ends it.
pub struct Subscription {
    shared: Arc<Shared>,
    handle: u64,
    ready: VecDeque<BusMessage>,
    ended: bool,
    /// Kept over a [`next`](Self::next) that was dropped, so that none of the messages it asked for is lost.
    asking: Option<BoxFuture<'static, Result<HandleItems, Fault>>>,
}

impl Subscription {
    pub(crate) fn new(shared: Arc<Shared>, handle: u64) -> Self {
        Self { shared, handle, ready: VecDeque::new(), ended: false, asking: None }
    }

    /// The next message, or none when the topic has ended. Dropping this future loses nothing.
    pub async fn next(&mut self) -> Result<Option<BusMessage>, Fault> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if self.ended {
                return Ok(None);
            }
            let (shared, handle) = (&self.shared, self.handle);
            let asking = self.asking.get_or_insert_with(|| Box::pin(ask(shared.clone(), handle)));
            let answer = asking.await;
            self.asking = None;
            let HandleItems { items, ended } = answer?;
            self.ended = ended;
            for item in items {
                self.ready.push_back(serde_json::from_value(item)?);
            }
        }
    }
}

async fn ask(shared: Arc<Shared>, handle: u64) -> Result<HandleItems, Fault> {
    let next = HandleNext { handle, credit: CREDIT };
    shared.request(&Origin::default(), host::HANDLE_NEXT, &next).await
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.asking = None;
        self.shared.tell_now(host::HANDLE_CLOSE, &self.handle);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("handle", &self.handle).finish_non_exhaustive()
    }
}
