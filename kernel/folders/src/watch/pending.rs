//! What has changed and was not reported yet. There is no queue that could overflow: changes are added up in one place.

use std::{
    collections::BTreeSet,
    mem,
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long it must be quiet before a change is reported: an editor saves in several steps, a folder is copied file by
/// file.
pub(super) const QUIET: Duration = Duration::from_millis(150);

/// The longest that a report is delayed while further changes come.
pub(super) const LATEST: Duration = Duration::from_millis(600);

/// More single folders are not remembered; then all are looked through.
const FOLDERS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Pending {
    pub roots: bool,
    /// These files, by their places.
    pub files: BTreeSet<usize>,
    /// Folders, if they are any, that are to be watched with what is in them.
    pub folders: BTreeSet<PathBuf>,
    /// All watches are to be made anew.
    pub rebuild: bool,
    since: Option<(Instant, Instant)>,
    asked: bool,
    ended: bool,
}

impl Pending {
    pub(super) fn folder(&mut self, path: PathBuf) {
        self.folders.insert(path);
        if self.folders.len() > FOLDERS {
            self.folders.clear();
            self.rebuild = true;
        }
    }

    fn is_empty(&self) -> bool {
        !(self.roots || self.rebuild) && self.files.is_empty() && self.folders.is_empty()
    }
}

/// How long until the change is reported; zero means now.
pub(super) fn left(first: Instant, last: Instant, now: Instant) -> Duration {
    (last + QUIET).min(first + LATEST).saturating_duration_since(now)
}

pub(super) enum Woken {
    /// Nobody is interested any more.
    Ended,
    /// It is time to look.
    Tick,
    /// These are to be told.
    Due(Pending),
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    pending: Mutex<Pending>,
    wake: Condvar,
}

impl Shared {
    pub(super) fn add(&self, change: impl FnOnce(&mut Pending)) {
        let mut pending = self.lock();
        change(&mut pending);
        if pending.is_empty() {
            return;
        }
        let now = Instant::now();
        let first = pending.since.map(|(first, _)| first);
        pending.since = Some((first.unwrap_or(now), now));
        // A thread that waits for quiet already looks again by itself.
        if first.is_none() {
            self.wake.notify_all();
        }
    }

    /// It is time to look, whatever the tick says.
    pub(super) fn ask(&self) {
        self.lock().asked = true;
        self.wake.notify_all();
    }

    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.wake.notify_all();
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.lock().since.is_some()
    }

    /// Waits until something is to be done.
    pub(super) fn wait(&self, tick: Option<Duration>) -> Woken {
        let tick = tick.map(|tick| Instant::now() + tick);
        let mut pending = self.lock();
        loop {
            let now = Instant::now();
            let due = pending.since.map(|(first, last)| left(first, last, now));
            let tick = tick.map(|tick| tick.saturating_duration_since(now));
            match (due, tick) {
                _ if pending.ended => return Woken::Ended,
                _ if mem::take(&mut pending.asked) => return Woken::Tick,
                (Some(Duration::ZERO), _) => return Woken::Due(mem::take(&mut pending)),
                (_, Some(Duration::ZERO)) => return Woken::Tick,
                (None, None) => pending = self.wake.wait(pending).unwrap_or_else(PoisonError::into_inner),
                (due, tick) => {
                    let time = due.into_iter().chain(tick).min().unwrap_or_default();
                    let woken = self.wake.wait_timeout(pending, time);
                    pending = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// What is behind the lock is whole between any two statements, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
