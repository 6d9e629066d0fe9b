//! How far the write-ahead log has grown since it was last written back, as SQLite tells it after each commit.
//!
//! A few requests may hold as much as thousands of others: results of tools and answers have megabytes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Pages after which the log is written back: eight megabytes of them.
const PAGES: u32 = 2048;

/// The growth of one log.
#[derive(Default)]
pub(crate) struct Growth {
    /// Pages that the log holds.
    pages: AtomicU32,
    /// Those that it held when it was last written back.
    back: AtomicU32,
    /// Somebody asked for it to be written back.
    asked: AtomicBool,
}

impl Growth {
    /// A commit left so many pages in the log.
    pub fn committed(&self, pages: i32) {
        let pages = u32::try_from(pages).unwrap_or(0);
        if self.pages.swap(pages, Ordering::Relaxed) > pages {
            // It began anew, over what was written back.
            self.back.store(0, Ordering::Relaxed);
        }
    }

    /// Whether it is to be written back.
    pub fn is_due(&self) -> bool {
        let (pages, back) = (self.pages.load(Ordering::Relaxed), self.back.load(Ordering::Relaxed));
        pages.saturating_sub(back) >= PAGES
    }

    /// The same, once until it is.
    pub fn ask(&self) -> bool {
        self.is_due() && !self.asked.swap(true, Ordering::Relaxed)
    }

    /// It is written back as far as it can be now.
    pub fn written_back(&self) {
        self.back.store(self.pages.load(Ordering::Relaxed), Ordering::Relaxed);
        self.not_heard();
    }

    /// Whoever should write it back did not hear that; somebody is to ask again.
    pub fn not_heard(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }
}
