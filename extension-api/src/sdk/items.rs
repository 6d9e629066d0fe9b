//! Streams of items, pulled.

use std::{collections::VecDeque, fmt, marker::PhantomData, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{handle::Handle, shared::Shared};
use crate::{
    Fault,
    wire::{BusMessage, HandleItems, HandleNext},
};

/// How many items are asked for at once. More would hold memory for a slow reader, which the kernel bounds
/// for it; fewer would cross the boundary more often for a fast one.
const CREDIT: u32 = 32;

/// A stream of items, in order: what [`Host::open`](super::Host::open) and [`Host::subscribe`](super::Host::subscribe)
/// give. The reader's pace bounds the writer. Dropping it ends it.
pub struct Items<T> {
    handle: Handle,
    ready: VecDeque<Box<RawValue>>,
    ended: bool,
    of: PhantomData<fn() -> T>,
}

/// The messages of one topic, in order. What a slow reader missed is counted in [`BusMessage::skipped`].
pub type Subscription = Items<BusMessage>;

impl<T: DeserializeOwned> Items<T> {
    pub(super) fn new(shared: Arc<Shared>, handle: u64) -> Self {
        Self { handle: Handle::new(shared, handle), ready: VecDeque::new(), ended: false, of: PhantomData }
    }

    /// The next item, or none at the end. Dropping this future loses nothing.
    pub async fn next(&mut self) -> Result<Option<T>, Fault> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(serde_json::from_str(item.get())?));
            }
            if self.ended {
                return Ok(None);
            }
            let ask = HandleNext::items(self.handle.number(), CREDIT);
            let answer = self.handle.next(&ask).await?;
            let HandleItems { items, ended } = serde_json::from_slice(&answer)?;
            (self.ready, self.ended) = (items.into(), ended);
        }
    }
}

impl<T> fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items").field("handle", &self.handle).finish_non_exhaustive()
    }
}
