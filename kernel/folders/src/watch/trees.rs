//! Where the roots are at present, links resolved, and what an event in them therefore says. Touches no watch.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use notify::{
    Event, EventKind,
    event::{AccessKind, AccessMode, ModifyKind},
};

use super::{Wanted, is_left_out, pending::Pending};

/// The identity of a folder, whatever its name: device, inode and time of birth. The time tells a new folder apart that got
/// the inode of a deleted one.
type Folder = (u64, u64, Option<SystemTime>);

#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct WatchedTrees {
    /// Folders that are watched with all that is in them.
    trees: BTreeMap<PathBuf, Folder>,
}

impl WatchedTrees {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let trees = wanted.roots.iter().filter_map(|root| {
            let real = root.canonicalize().ok()?;
            let meta = real.metadata().ok().filter(|meta| meta.is_dir())?;
            Some((real, (meta.dev(), meta.ino(), meta.created().ok())))
        });
        Self { trees: trees.collect() }
    }

    /// The folders that are watched with all that is in them.
    pub(super) fn trees(&self) -> impl Iterator<Item = &PathBuf> {
        self.trees.keys()
    }

    /// Adds up what an event says.
    pub(super) fn note(&self, event: &Event, pending: &mut Pending) {
        let Some(change) = Change::of(event) else { return };
        for path in &event.paths {
            self.note_path(path, change, pending);
        }
    }

    fn note_path(&self, path: &Path, change: Change, pending: &mut Pending) {
        for within in self.trees().filter_map(|tree| path.strip_prefix(tree).ok()) {
            if within.as_os_str().is_empty() {
                pending.roots = true;
                pending.rebuild |= change == Change::Place;
            } else if !is_left_out(within) {
                pending.roots = true;
                if change != Change::Bytes {
                    pending.folder(path.to_owned());
                }
            }
        }
    }

    /// Events were lost: anything may have happened.
    pub(super) fn note_loss(pending: &mut Pending) {
        pending.roots = true;
        pending.rebuild = true;
    }
}

/// What kind of change an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// What is in a file.
    Bytes,
    /// Its mode or owner: the daemon may be able to read a folder now that it could not read before.
    Properties,
    Place,
}

impl Change {
    /// None for what changes nothing: we ourselves read these files.
    fn of(event: &Event) -> Option<Self> {
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Self::Bytes),
            EventKind::Access(_) => None,
            EventKind::Modify(ModifyKind::Data(_)) => Some(Self::Bytes),
            EventKind::Modify(ModifyKind::Metadata(_)) => Some(Self::Properties),
            EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(_) => Some(Self::Place),
            EventKind::Any | EventKind::Other => Some(Self::Place),
        }
    }
}
