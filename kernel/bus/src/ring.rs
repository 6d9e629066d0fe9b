//! Rings by name: what is sent under a name reaches those who read it then.
//!
//! Each reader has a ring of its own, which holds what that reader has not read yet and nothing else: one that keeps up
//! costs next to nothing, however many there are. Names that nobody reads cost nothing at all.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Items for which an empty ring keeps room.
const KEPT: usize = 32;

/// Readers by name; each may lag so many items behind.
pub(crate) struct Rings<T> {
    room: usize,
    by_name: Mutex<HashMap<String, Vec<Arc<Ring<T>>>>>,
}

/// What one reader has not read yet.
struct Ring<T> {
    unread: Mutex<Unread<T>>,
    more: Notify,
}

struct Unread<T> {
    items: VecDeque<T>,
    /// Items that were overwritten before those.
    skipped: u64,
}

/// Reads what is sent under one name.
pub(crate) struct Reader<T> {
    ring: Arc<Ring<T>>,
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
    /// Rings of which each holds `room` items.
    pub fn new(room: usize) -> Arc<Self> {
        Arc::new(Self { room, by_name: Mutex::default() })
    }

    /// Whether anybody reads this name.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.lock().contains_key(name)
    }

    /// Sends an item, which is made only if anybody reads the name.
    pub fn send(&self, name: &str, item: impl FnOnce() -> T) {
        // Under the lock: whoever begins to read before this gets the item, too.
        if let Some(readers) = self.by_name.lock().get(name) {
            let item = item();
            readers.iter().for_each(|ring| ring.push(item.clone(), self.room));
        }
    }

    /// Reads a name from now on.
    pub fn read(self: &Arc<Self>, name: &str) -> Reader<T> {
        let unread = Mutex::new(Unread { items: VecDeque::new(), skipped: 0 });
        let ring = Arc::new(Ring { unread, more: Notify::new() });
        self.by_name.lock().entry(name.to_owned()).or_default().push(Arc::clone(&ring));
        Reader { ring, name: name.to_owned(), rings: Arc::clone(self) }
    }
}

impl<T> Ring<T> {
    fn push(&self, item: T, room: usize) {
        let mut unread = self.unread.lock();
        if unread.items.len() == room {
            unread.items.pop_front();
            unread.skipped += 1;
        }
        unread.items.push_back(item);
        drop(unread);
        self.more.notify_one();
    }
}

impl<T> Reader<T> {
    /// Waits for the next item.
    pub async fn next(&mut self) -> Found<T> {
        loop {
            if let Some(found) = self.try_next() {
                return found;
            }
            // What was sent in between has left its mark.
            self.ring.more.notified().await;
        }
    }

    /// The next item, if it is there.
    pub fn try_next(&mut self) -> Option<Found<T>> {
        let mut unread = self.ring.unread.lock();
        if unread.skipped > 0 {
            return Some(Found::Skipped(std::mem::take(&mut unread.skipped)));
        }
        let item = unread.items.pop_front();
        if unread.items.is_empty() && unread.items.capacity() > KEPT {
            unread.items = VecDeque::new();
        }
        item.map(Found::Item)
    }

    /// Leaves out everything that was sent until now.
    pub fn skip_to_now(&mut self) {
        *self.ring.unread.lock() = Unread { items: VecDeque::new(), skipped: 0 };
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        let mut by_name = self.rings.by_name.lock();
        if let Some(readers) = by_name.get_mut(&self.name) {
            readers.retain(|ring| !Arc::ptr_eq(ring, &self.ring));
            if readers.is_empty() {
                by_name.remove(&self.name);
            }
        }
    }
}
