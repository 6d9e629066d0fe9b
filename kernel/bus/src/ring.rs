//! Rings by name: what is sent under a name reaches those who read it then.
//!
//! A name has a ring only while somebody reads it, so that names that nobody reads cost nothing. Nothing is kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

/// Rings of items, each with the same room.
pub(crate) struct Rings<T> {
    room: usize,
    by_name: Mutex<HashMap<String, broadcast::Sender<T>>>,
}

/// Reads what is sent under one name; the ring goes with its last reader.
pub(crate) struct Reader<T> {
    items: broadcast::Receiver<T>,
    name: String,
    rings: Arc<Rings<T>>,
}

/// What a reader finds.
pub(crate) enum Found<T> {
    Item(T),
    /// So many items were overwritten before they were read.
    Skipped(u64),
}

impl<T: Clone> Rings<T> {
    /// Rings of which each holds `room` items, a power of two.
    pub fn new(room: usize) -> Arc<Self> {
        Arc::new(Self { room, by_name: Mutex::default() })
    }

    /// Whether anybody reads this name.
    pub fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// Sends an item, which is made only if anybody reads the name.
    pub fn send(&self, name: &str, item: impl FnOnce() -> T) {
        // Under the lock: whoever begins to read before this gets the item, too.
        if let Some(ring) = self.lock().get(name) {
            // It cannot fail: a ring has readers.
            let _ = ring.send(item());
        }
    }

    /// Reads a name from now on.
    pub fn read(self: &Arc<Self>, name: &str) -> Reader<T> {
        let mut by_name = self.lock();
        let items = match by_name.get(name) {
            Some(ring) => ring.subscribe(),
            None => {
                let (ring, items) = broadcast::channel(self.room);
                by_name.insert(name.to_owned(), ring);
                items
            }
        };
        Reader { items, name: name.to_owned(), rings: Arc::clone(self) }
    }
}

impl<T> Rings<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, broadcast::Sender<T>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Reader<T> {
    /// Waits for the next item.
    pub async fn next(&mut self) -> Found<T> {
        match self.items.recv().await {
            Ok(item) => Found::Item(item),
            Err(RecvError::Lagged(skipped)) => Found::Skipped(skipped),
            // The ring is there as long as this reader; were it not, nothing would come.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// The next item, if it is there.
    pub fn try_next(&mut self) -> Option<Found<T>> {
        match self.items.try_recv() {
            Ok(item) => Some(Found::Item(item)),
            Err(TryRecvError::Lagged(skipped)) => Some(Found::Skipped(skipped)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    /// Leaves out everything that was sent until now.
    pub fn skip_to_now(&mut self) {
        self.items = self.items.resubscribe();
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        let mut by_name = self.rings.lock();
        // Counted under the lock under which others begin to read.
        if by_name.get(&self.name).is_some_and(|ring| ring.receiver_count() <= 1) {
            by_name.remove(&self.name);
        }
    }
}
