//! What is looked at time and again beside the watches: single files, and whether the roots are where they were.
//!
//! To be told of a name the folder that it is in must be watched, and the system then tells of all that happens there.
//! The configuration lies beside the journal, which is written all the time: a look at a handful of names twice a second
//! costs less than a word about each of those writes.

use std::{sync::Arc, time::Duration};

use super::{Wanted, events::Events, pending::Shared, polling};

/// Soon enough for a person who has saved a file.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct Names {
    wanted: Arc<Wanted>,
    files: Vec<u64>,
}

impl Names {
    pub(super) fn start(wanted: Arc<Wanted>) -> Self {
        let files = polling::files_now(&wanted);
        Self { wanted, files }
    }

    pub(super) fn look(&mut self, events: &Events, shared: &Shared) {
        let moved = events.is_outdated(&self.wanted);
        shared.add(|pending| {
            pending.roots |= moved;
            pending.rebuild |= moved;
        });
        self.look_at_files(shared);
    }

    pub(super) fn look_at_files(&mut self, shared: &Shared) {
        polling::look_at_files(&self.wanted, &mut self.files, shared);
    }
}
