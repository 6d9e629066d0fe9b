//! A kernel, put together: each part is a handle of its own, and takes those below it that it uses. Whoever answers for
//! the whole, which is the control API, the table of an extension and the main loop, has this.

use std::sync::Arc;

use drupe_journal::Store;
use drupe_surface::{grants::Grants, latencies::Latencies};

use crate::{
    backups::Backups, base::Base, extension::Roster, intake::Intake, life::Life, outbox::Outbox,
    schedules::Schedules, supervision::Supervision,
};

/// A running kernel.
pub struct Kernel {
    /// What it was made with.
    pub base: Arc<Base>,
    /// How long it goes on.
    pub life: Life,
    /// What it and the supervisor tell each other.
    pub supervision: Arc<Supervision>,
    /// What lasts.
    pub store: Store,
    /// The extensions, and how they are wired.
    pub roster: Arc<Roster>,
    /// What goes out to people.
    pub outbox: Arc<Outbox>,
    /// Messages that come in, and their turns.
    pub intake: Arc<Intake>,
    /// What is done at set times.
    pub schedules: Arc<Schedules>,
    /// Backups that are made by themselves.
    pub backups: Arc<Backups>,
    /// What the bearers of named tokens may do.
    pub grants: Grants,
    /// How long turns and what they are made of took.
    pub latencies: Arc<Latencies>,
}
