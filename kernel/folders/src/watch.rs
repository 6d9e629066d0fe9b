//! Reports that folders of extensions, or single files, have changed. It says that they did, and not how: the caller
//! looks for itself. A report may come without a change, but no change goes without a report.
//!
//! Every folder is watched before it is listed, and watched anew before a change is reported, so that no change falls
//! into a gap: an earlier one is seen by the caller, a later one is reported again.
//!
//! The watcher that polls is our own. That of `notify` 8.2.1 compares times in whole seconds, and takes a file for changed
//! only if its time grew (`src/poll.rs`, read on 2026-11-23): it would miss a second save within a second and a file that
//! was restored, or would have to read every file once a second.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

mod events;
mod names;
mod pending;
mod places;
mod polling;
mod trees;

use events::Events;
use names::Names;
use pending::{Pending, Shared, Woken};
use polling::Polling;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    pub roots: bool,
    /// These of the single files, as they were given: changed, made or removed.
    pub files: Vec<PathBuf>,
}

/// Ends the watching when it is dropped; a call that is under way is not waited for.
#[derive(Debug)]
#[must_use = "nothing is watched any more when this is dropped"]
pub struct Watch {
    shared: Arc<Shared>,
}

/// Watches folders of extensions with all that is in them, and single files. `changed` is called on a thread of its own,
/// after 150 ms without a further change, and at the latest 600 ms after the first one.
///
/// Nothing of it need exist: a root or file that is made later, or removed and made again, is seen. Left out are hidden
/// names and what Cargo builds in an extension's folder; a file in there can be named as a single file. Where the system
/// has no room for another watch, everything is looked at once a second instead, and a warning says so.
///
/// # Errors
///
/// Where there can be no thread.
pub fn watch(
    roots: Vec<PathBuf>,
    files: Vec<PathBuf>,
    changed: impl Fn(Changes) + Send + 'static,
) -> io::Result<Watch> {
    begin(roots, files, Source::start, changed)
}

fn begin(
    roots: Vec<PathBuf>,
    files: Vec<PathBuf>,
    start: impl FnOnce(&Arc<Wanted>, &Arc<Shared>) -> Source,
    changed: impl Fn(Changes) + Send + 'static,
) -> io::Result<Watch> {
    let absolute =
        |paths: Vec<PathBuf>| paths.iter().map(std::path::absolute).collect::<io::Result<Vec<_>>>();
    let wanted = Arc::new(Wanted { roots: absolute(roots)?, files: absolute(files.clone())? });
    let shared = Arc::new(Shared::default());
    // Here and not on the thread: what changes after the return is told.
    let mut source = start(&wanted, &shared);
    let told = Arc::clone(&shared);
    let run = move || {
        loop {
            match told.wait(source.tick(&told)) {
                Woken::Ended => return,
                Woken::Tick => source.look(&told),
                Woken::Due(pending) => {
                    source = source.renew(&pending, &wanted, &told);
                    let named = pending.files.iter().filter_map(|at| files.get(*at).cloned());
                    let changes = Changes { roots: pending.roots, files: named.collect() };
                    if changes != Changes::default() {
                        changed(changes);
                    }
                }
            }
        }
    };
    thread::Builder::new().name("folders".into()).spawn(run)?;
    Ok(Watch { shared })
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// What is to be watched, as absolute paths.
#[derive(Debug)]
struct Wanted {
    roots: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

enum Source {
    /// The system tells of what is in the roots.
    Events(Events, Names),
    /// By looking, time and again.
    Polling(Polling),
}

impl Source {
    fn start(wanted: &Arc<Wanted>, shared: &Arc<Shared>) -> Self {
        match Events::start(wanted, shared) {
            Ok(events) => Self::Events(events, Names::start(wanted, shared)),
            Err(error) => Self::fall_back(&error, wanted, polling::INTERVAL),
        }
    }

    fn fall_back(error: &notify::Error, wanted: &Arc<Wanted>, interval: Duration) -> Self {
        tracing::warn!(
            %error,
            "folders of extensions cannot be watched, and are looked at once a second instead; more room may help: \
             sysctl fs.inotify.max_user_watches, fs.inotify.max_user_instances"
        );
        Self::Polling(Polling::start(Arc::clone(wanted), interval))
    }

    /// When to look at what the system does not report.
    fn tick(&self, shared: &Shared) -> Option<Duration> {
        match self {
            Self::Events(_, names) => Some(names.interval()),
            Self::Polling(polling) => Some(polling.interval(shared.is_waiting())),
        }
    }

    fn look(&mut self, shared: &Shared) {
        match self {
            Self::Events(events, names) => names.look(events, shared),
            Self::Polling(polling) => polling.look(shared),
        }
    }

    /// Sees to it that what is there now is watched.
    fn renew(self, pending: &Pending, wanted: &Arc<Wanted>, shared: &Arc<Shared>) -> Self {
        let Self::Events(mut events, mut names) = self else { return self };
        // The new watches are there before the old ones go.
        let renewed = match pending.rebuild {
            true => Events::start(wanted, shared),
            false => events.add(&pending.folders).map(|()| events),
        };
        match renewed {
            Ok(events) => Self::Events(events, names),
            Err(error) => {
                let polling = Self::fall_back(&error, wanted, polling::INTERVAL);
                // What changed before the first look of the other kind.
                names.look_at_files(shared);
                polling
            }
        }
    }
}

/// Whether something in a root, at that path within it, is of no interest.
fn is_left_out(within: &Path) -> bool {
    let mut names = within.components().map(|part| part.as_os_str().to_string_lossy()).enumerate();
    names.any(|(at, name)| match at {
        0 => name.starts_with('.'),
        _ => crate::content::left_out(&name, at - 1),
    })
}

#[cfg(test)]
mod tests;
