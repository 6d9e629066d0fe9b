//! What goes on behind answers, for which nobody waits: summaries of older turns. It is given up when the process is about to
//! end, and its turn ends with the answer that it has.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

/// What goes on behind the answers of a process.
#[derive(Debug, Default)]
pub struct BehindAnswers {
    ending: CancellationToken,
    at_work: AtomicUsize,
}

/// One thing that goes on, as long as it is held.
pub(crate) struct AtWork<'a>(&'a BehindAnswers);

impl BehindAnswers {
    /// The process is about to end: what goes on is given up, and nothing is begun.
    pub fn give_up(&self) {
        self.ending.cancel();
    }

    /// How many turns have their answer and are not ended yet.
    pub fn at_work(&self) -> usize {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Returns when the process is about to end.
    pub(crate) async fn given_up(&self) {
        self.ending.cancelled().await;
    }

    /// Begins; nothing where the process is about to end.
    pub(crate) fn begin(&self) -> Option<AtWork<'_>> {
        if self.ending.is_cancelled() {
            return None;
        }
        self.at_work.fetch_add(1, Ordering::Relaxed);
        Some(AtWork(self))
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}
