//! What the opening of a journal is at. It takes long where the file is large, and somebody waits for it.

use std::{
    ffi::c_int,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

use rusqlite::Connection;

use crate::StoreError;

/// Instructions of SQLite, or pages that it checks, between two steps: a fraction of a second on a slow disk.
const STEP: c_int = 100;

/// What there is to say of a log whose end is not read.
pub(crate) const UNREAD: &str = "the log of the journal could not be read to its end: what stood behind is left out. After a loss of power \
                                 that is in order; else the disk has changed it, and what came in last may be missing";

/// Shared by whoever opens a journal and whoever looks on.
#[derive(Debug, Default)]
pub struct Opening {
    stage: AtomicU8,
    steps: AtomicU64,
    not_closed: AtomicBool,
    doubted: AtomicBool,
    unread: AtomicBool,
}

/// What may take long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is opened. What an earlier process left in the log may have to be read, and another process may have it locked.
    Opens,
    /// It is copied, and brought to this release's version.
    Migrates,
    /// It is checked, because it was not closed in order.
    Checks,
}

impl Opening {
    /// What it is at.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            1 => Stage::Migrates,
            2 => Stage::Checks,
            _ => Stage::Opens,
        }
    }

    /// How far it came: a number that grows as long as SQLite works, and stands where it waits or hangs.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Whether an earlier process ended without closing it.
    pub fn was_not_closed(&self) -> bool {
        self.not_closed.load(Ordering::Relaxed)
    }

    pub(crate) fn not_closed(&self) {
        self.not_closed.store(true, Ordering::Relaxed);
    }

    /// Whether an earlier process did not go on with it, and all of it was looked at for that.
    pub fn was_doubted(&self) -> bool {
        self.doubted.load(Ordering::Relaxed)
    }

    pub(crate) fn doubted(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// That what an earlier process wrote last could not be read, for the operator.
    pub fn lost(&self) -> Option<String> {
        self.unread.load(Ordering::Relaxed).then(|| UNREAD.to_owned())
    }

    pub(crate) fn unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Counts what a connection does from now on.
    pub(crate) fn count(self: &Arc<Self>, db: &mut Connection) -> Result<(), StoreError> {
        let opening = Arc::clone(self);
        let step = move || {
            opening.steps.fetch_add(1, Ordering::Relaxed);
            false
        };
        Ok(db.progress_handler(STEP, Some(step))?)
    }

    /// Counts no longer: from here on it would cost each statement something.
    pub(crate) fn done(&self, db: &mut Connection) -> Result<(), StoreError> {
        self.enter(Stage::Opens);
        Ok(db.progress_handler(0, None::<fn() -> bool>)?)
    }
}
