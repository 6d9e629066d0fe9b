//! Watches folders through the system: the roots and what is in them. Single files, and whether the roots are still where
//! they were, is for [`names`](super::names).
//!
//! Each folder has a watch of its own: one for a whole tree would include what Cargo builds, which can be thousands of
//! folders, and would miss what is made in a new folder before it is watched.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use notify::{Config, ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::{Wanted, is_left_out, pending::Shared, trees::WatchedTrees};
use crate::content::DEPTH;

/// The most folders that are watched at once: what the system gives to one user is of this order.
const MOST: usize = 65_536;

/// How often the watches are made anew where the folders change all the while.
const ATTEMPTS: usize = 4;

pub(super) struct Events {
    watcher: RecommendedWatcher,
    trees: Arc<WatchedTrees>,
}

impl Events {
    pub(super) fn start(wanted: &Wanted, shared: &Arc<Shared>) -> notify::Result<Self> {
        for _ in 0..ATTEMPTS {
            let events = Self::of(WatchedTrees::of(wanted), shared)?;
            // What changed place before it was watched is not told by anybody.
            if !events.is_outdated(wanted) {
                return Ok(events);
            }
        }
        let events = Self::of(WatchedTrees::of(wanted), shared)?;
        shared.add(WatchedTrees::note_loss);
        Ok(events)
    }

    fn of(trees: WatchedTrees, shared: &Arc<Shared>) -> notify::Result<Self> {
        let trees = Arc::new(trees);
        let (meaning, shared) = (Arc::clone(&trees), Arc::clone(shared));
        let note = move |event: notify::Result<notify::Event>| {
            shared.add(|pending| match event {
                Ok(event) if !event.need_rescan() => meaning.note(&event, pending),
                Ok(_) | Err(_) => WatchedTrees::note_loss(pending),
            });
        };
        let watcher = RecommendedWatcher::new(note, Config::default().with_follow_symlinks(false))?;
        let mut events = Self { watcher, trees: Arc::clone(&trees) };
        let mut room = MOST;
        for tree in trees.trees() {
            events.descend(tree, tree, &mut room)?;
        }
        Ok(events)
    }

    /// Whether the paths mean other places by now.
    pub(super) fn is_outdated(&self, wanted: &Wanted) -> bool {
        WatchedTrees::of(wanted) != *self.trees
    }

    /// Watches those of the paths that are folders, with all that is in them.
    pub(super) fn add(&mut self, paths: &BTreeSet<PathBuf>) -> notify::Result<()> {
        let (trees, mut room) = (Arc::clone(&self.trees), MOST);
        for path in paths {
            // Nothing that a link leads to: it is watched under its own name or not at all.
            let is_folder = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
            for tree in trees.trees().filter(|tree| is_folder && path.starts_with(tree)) {
                self.descend(tree, path, &mut room)?;
            }
        }
        Ok(())
    }

    fn descend(&mut self, tree: &Path, folder: &Path, room: &mut usize) -> notify::Result<()> {
        let within = folder.strip_prefix(tree).unwrap_or(folder);
        // A tree begins one level above its extensions.
        if is_left_out(within) || within.components().count() > DEPTH + 1 {
            return Ok(());
        }
        // The system bounds how many there are in all; this bounds how long it takes.
        let Some(rest) = room.checked_sub(1) else {
            tracing::warn!("`{}` is not watched: there are more than {MOST} folders", folder.display());
            return Ok(());
        };
        *room = rest;
        self.watch(folder)?;
        // Watched first, listed then. One that cannot be read or is gone has nothing to watch.
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            self.descend(tree, &entry.path(), room)?;
        }
        Ok(())
    }

    fn watch(&mut self, folder: &Path) -> notify::Result<()> {
        match self.watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => Ok(()),
            Err(error) if matches!(error.kind, ErrorKind::MaxFilesWatch) => Err(error),
            // It is gone, or not for us to read: the folder above tells when that changes.
            Err(error) => {
                tracing::debug!(%error, "`{}` is not watched", folder.display());
                Ok(())
            }
        }
    }
}
