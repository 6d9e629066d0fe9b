//! Learns of changes by looking, where the system has no room for watches. Compares what the file system says of each
//! file, and reads none.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::Arc,
    time::Duration,
};

use super::{
    Wanted, is_left_out,
    pending::{QUIET, Shared},
};
use crate::{content::DEPTH, regular::Identity};

/// Often enough that a person does not wait, seldom enough that a thousand extensions do not show.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// The most entries that are looked at.
const MOST: usize = 65_536;

pub(super) struct Polling {
    wanted: Arc<Wanted>,
    interval: Duration,
    roots: u64,
    files: Vec<u64>,
}

impl Polling {
    pub(super) fn start(wanted: Arc<Wanted>, interval: Duration) -> Self {
        let (roots, files) = (roots_now(&wanted), files_now(&wanted));
        Self { wanted, interval, roots, files }
    }

    /// When to look again; while something is changing, soon enough to see whether it goes on.
    pub(super) fn interval(&self, changing: bool) -> Duration {
        if changing { self.interval.min(QUIET / 2) } else { self.interval }
    }

    pub(super) fn look(&mut self, shared: &Shared) {
        let roots = roots_now(&self.wanted);
        shared.add(|pending| pending.roots |= self.roots != roots);
        self.roots = roots;
        look_at_files(&self.wanted, &mut self.files, shared);
    }
}

/// Tells which of the files are others than at the last look.
pub(super) fn look_at_files(wanted: &Wanted, before: &mut Vec<u64>, shared: &Shared) {
    let now = files_now(wanted);
    shared.add(|pending| {
        pending.files.extend((0..now.len()).filter(|at| before.get(*at) != now.get(*at)));
    });
    *before = now;
}

/// A number for each file that is another one after a change.
pub(super) fn files_now(wanted: &Wanted) -> Vec<u64> {
    let files = wanted.files.iter().map(|file| {
        let mut hash = DefaultHasher::new();
        fs::metadata(file).ok().map(|meta| Identity::of(&meta)).hash(&mut hash);
        hash.finish()
    });
    files.collect()
}

/// A number for all roots that is another one after a change.
fn roots_now(wanted: &Wanted) -> u64 {
    let mut roots = DefaultHasher::new();
    let mut room = MOST;
    for root in &wanted.roots {
        "root".hash(&mut roots);
        // As a path without links, so that hidden names above it do not matter.
        if let Ok(root) = root.canonicalize() {
            root.hash(&mut roots);
            look_through(&root, &root, &mut room, &mut roots);
        }
    }
    roots.finish()
}

fn look_through(root: &Path, folder: &Path, room: &mut usize, hash: &mut DefaultHasher) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.flatten().take(*room).map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let within = path.strip_prefix(root).unwrap_or(&path);
        if is_left_out(within) || *room == 0 {
            continue;
        }
        *room -= 1;
        let meta = fs::symlink_metadata(&path);
        within.hash(hash);
        let is_folder = meta.as_ref().is_ok_and(|meta| meta.is_dir());
        if is_folder {
            if within.components().count() <= DEPTH + 1 {
                look_through(root, &path, room, hash);
            }
            continue;
        }
        meta.ok().map(|meta| Identity::of(&meta)).hash(hash);
    }
}
