//! What was read lately, so that the next page of a long text needs no further request. In memory alone.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::read::ReadText;

/// Entries at most, beside the bound on their text: looking one up walks through all of them.
const ENTRIES: usize = 128;

/// Readings by the address that was asked for.
pub struct Cache {
    kept: Duration,
    bytes: usize,
    entries: Mutex<VecDeque<Entry>>,
}

struct Entry {
    address: String,
    since: Instant,
    reading: Arc<ReadText>,
}

impl Cache {
    pub fn new(kept: Duration, bytes: usize) -> Self {
        Self { kept, bytes, entries: Mutex::default() }
    }

    /// A reading that is not too old, with its age.
    pub fn get(&self, address: &str) -> Option<(Arc<ReadText>, Duration)> {
        let mut entries = self.lock();
        entries.retain(|entry| entry.since.elapsed() < self.kept);
        let found = entries.iter().find(|entry| entry.address == address)?;
        Some((Arc::clone(&found.reading), found.since.elapsed()))
    }

    /// Keeps a reading, in place of the oldest ones where there is no room.
    pub fn put(&self, address: &str, reading: Arc<ReadText>) {
        if self.kept.is_zero() || reading.size() > self.bytes {
            return;
        }
        let mut entries = self.lock();
        entries.retain(|entry| entry.address != address);
        entries.push_back(Entry { address: address.to_owned(), since: Instant::now(), reading });
        while entries.len() > ENTRIES || size(&entries) > self.bytes {
            entries.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(entries: &VecDeque<Entry>) -> usize {
    entries.iter().map(|entry| entry.reading.size() + entry.address.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(text: &str) -> Arc<ReadText> {
        Arc::new(ReadText { text: text.to_owned(), ..ReadText::default() })
    }

    #[test]
    fn the_oldest_goes_where_there_is_no_room_and_all_go_with_time() {
        let cache = Cache::new(Duration::from_secs(60), 30);
        cache.put("a", reading("0123456789"));
        cache.put("b", reading("0123456789"));
        assert!(cache.get("a").is_some());
        cache.put("c", reading("0123456789"));
        assert!(cache.get("a").is_none() && cache.get("b").is_some());
        cache.put("d", reading(&"x".repeat(31)));
        assert!(cache.get("d").is_none() && cache.get("c").is_some());
        let short = Cache::new(Duration::from_nanos(1), 30);
        short.put("a", reading("a"));
        assert!(short.get("a").is_none());
        let none = Cache::new(Duration::ZERO, 30);
        none.put("a", reading("a"));
        assert!(none.lock().is_empty());
    }
}
