//! What is looked at beside the watches: single files, and whether the roots are where they were.
//!
//! The system tells when that is worth it ([`places`](super::places)); where it does not, it is done twice a second.

use std::{sync::Arc, time::Duration};

use super::{Wanted, events::Events, pending::Shared, places::Places, polling};

/// Soon enough for a person who has saved a file.
const INTERVAL: Duration = Duration::from_millis(500);

/// Where the system tells of all but of what is mounted over something.
const SELDOM: Duration = Duration::from_secs(60);

pub(super) struct Names {
    wanted: Arc<Wanted>,
    files: Vec<u64>,
    places: Option<Places>,
}

impl Names {
    pub(super) fn start(wanted: &Arc<Wanted>, shared: &Arc<Shared>) -> Self {
        let files = polling::files_now(wanted);
        // Without a thread, or a number to end it by, nobody tells.
        Self { wanted: Arc::clone(wanted), files, places: Places::watch(wanted, shared).ok() }
    }

    pub(super) fn interval(&self) -> Duration {
        if self.places.as_ref().is_some_and(Places::are_told) { SELDOM } else { INTERVAL }
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
