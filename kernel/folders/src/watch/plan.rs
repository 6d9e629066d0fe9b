//! What the watched paths mean at present, links resolved, and what an event therefore says. Touches no watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
};

use notify::{
    Event, EventKind,
    event::{AccessKind, AccessMode, ModifyKind},
};

use super::{Wanted, is_left_out, pending::Pending};

/// Whose name is watched in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Root,
    File(usize),
}

#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Plan {
    /// Folders that are watched with all that is in them.
    pub trees: BTreeSet<PathBuf>,
    /// Folders in which single names are of interest.
    names: BTreeMap<PathBuf, BTreeSet<(OsString, Whose)>>,
}

impl Plan {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let mut plan = Self::default();
        let roots = wanted.roots.iter().map(|path| (path, Whose::Root));
        let files = wanted.files.iter().enumerate().map(|(at, path)| (path, Whose::File(at)));
        for (path, whose) in roots.chain(files) {
            plan.name(path, whose);
            let Ok(real) = path.canonicalize() else { continue };
            // Where it is a link, what it leads to can change, too.
            plan.name(&real, whose);
            if whose == Whose::Root && real.is_dir() {
                plan.trees.insert(real);
            }
        }
        plan
    }

    /// Watches a name in the folder that it is in, or as far on the way there as there is a folder.
    fn name(&mut self, path: &Path, whose: Whose) {
        for path in path.ancestors() {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
            if let Some(folder) = folder.canonicalize().ok().filter(|folder| folder.is_dir()) {
                self.names.entry(folder).or_default().insert((name.to_owned(), whose));
                return;
            }
        }
    }

    /// The folders in which names are of interest.
    pub(super) fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.names.keys()
    }

    /// Adds up what an event says.
    pub(super) fn note(&self, event: &Event, pending: &mut Pending) {
        let Some(change) = Change::of(event) else { return };
        for path in &event.paths {
            self.note_in_trees(path, change, pending);
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { continue };
            for (_, whose) in self.names.get(folder).into_iter().flatten().filter(|(own, _)| own == name) {
                self.note_name(*whose, change, pending);
            }
            // The folder itself went.
            if change == Change::Place {
                for (_, whose) in self.names.get(path).into_iter().flatten() {
                    self.note_name(*whose, change, pending);
                    pending.rebuild = true;
                }
            }
        }
    }

    fn note_in_trees(&self, path: &Path, change: Change, pending: &mut Pending) {
        for within in self.trees.iter().filter_map(|tree| path.strip_prefix(tree).ok()) {
            if within.as_os_str().is_empty() {
                // When it comes or goes, the folder above tells, too.
                pending.roots = true;
            } else if !is_left_out(within) {
                pending.roots = true;
                if change != Change::Bytes {
                    pending.folder(path.to_owned());
                }
            }
        }
    }

    fn note_name(&self, whose: Whose, change: Change, pending: &mut Pending) {
        match whose {
            Whose::Root => {
                pending.roots = true;
                pending.rebuild |= change == Change::Place;
            }
            Whose::File(at) => {
                pending.files.insert(at);
                pending.recheck |= change == Change::Place;
            }
        }
    }

    /// Events were lost: anything may have happened.
    pub(super) fn note_loss(&self, pending: &mut Pending) {
        for (_, whose) in self.names.values().flatten() {
            self.note_name(*whose, Change::Place, pending);
        }
        pending.rebuild = true;
    }
}

/// What kind of change an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// What is in a file.
    Bytes,
    /// Who may read it, and the like: a folder may be open to us now.
    Properties,
    /// It came or went.
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
