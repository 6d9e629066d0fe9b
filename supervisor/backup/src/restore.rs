//! From a backup to a home.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use drupe_agent::SystemClock;
use drupe_journal::{PutBack, check as check_journal, put_back};
use drupe_link::{Home, HomeLock, LockError};
use jiff::Timestamp;
use rustix::fs::syncfs;
use serde::Serialize;

use crate::{
    BackupError, Omitted, apart, check,
    covered::{JOURNAL, is_apart, is_environment, is_workspace},
    error::{self, At},
    files::make_folder,
    journal,
    swap::{self, FOLDER, Moves, NEW},
};

/// What came of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub file: PathBuf,
    /// When the backup was made.
    pub made: Timestamp,
    /// The release that made it; none where it is a journal alone, which does not say so.
    pub drupe: Option<String>,
    /// What the journal does not go on with; none where the backup has no journal.
    pub journal: Option<PutBack>,
    /// What stood there before; none where nothing did.
    pub aside: Option<PathBuf>,
    /// Names in the home that were left as they were.
    pub kept: Vec<String>,
    /// What the backup does not have.
    pub left_out: Vec<Omitted>,
}

/// New files that are ready to be moved, and what came of making them so.
pub(crate) struct Staged {
    pub made: Timestamp,
    pub drupe: Option<String>,
    pub left_out: Vec<Omitted>,
    pub journal: Option<PutBack>,
    pub moves: Moves,
}

/// Makes a home what it was when `file` was made. Where that is a journal alone, as an upgrade keeps it, the journal is put back
/// and nothing else. `identity` is the file with the key of one that is encrypted.
///
/// Nothing of the home is touched before all of the backup was read and found sound. What stands there is kept aside. No
/// daemon may serve the home; none can start meanwhile.
pub fn restore(home: &Path, file: &Path, identity: Option<&Path>) -> Result<Restored, BackupError> {
    // A wrong file leaves no trace, not even an empty home.
    let outside = File::open(file).at(file)?;
    drop(outside);
    let home = Home::create(home).at(home)?;
    let held = HomeLock::take(&home).map_err(|error| match error {
        LockError::Held(pid) => BackupError::Held { home: home.path().to_owned(), pid },
        LockError::Io(error) => error::of(home.path(), error),
    })?;
    let outcome = restore_held(home.path(), file, identity);
    // It named this process, which ends.
    let _ = fs::remove_file(home.pid_file());
    drop(held);
    outcome
}

fn restore_held(home: &Path, file: &Path, identity: Option<&Path>) -> Result<Restored, BackupError> {
    let _moved = apart::while_moved(home)?;
    let Staged { made, drupe, left_out, journal, moves } = decide(home, file, identity)?;
    let had = !moves.old.is_empty();
    let aside = swap::go_on(home)?.filter(|_| had);
    if !had {
        // Nothing stood there.
        let _ = fs::remove_dir(home.join(&moves.aside));
    }
    let is_left = |name: &String| !moves.new.contains(name) && !is_apart(name) && name != "state";
    let kept = top(home)?.into_iter().filter(is_left).collect();
    Ok(Restored { file: file.to_owned(), made, drupe, journal, aside, kept, left_out })
}

/// Does all that may fail, and ends with what makes the new files the home's.
pub(crate) fn decide(home: &Path, file: &Path, identity: Option<&Path>) -> Result<Staged, BackupError> {
    swap::go_on(home)?;
    let folder = home.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).at(&folder)?;
    }
    make_folder(&folder).at(&folder)?;
    let decided =
        stage(home, file, identity).and_then(|staged| swap::decide(home, &staged.moves).map(|()| staged));
    if decided.is_err() {
        // The home is as it was; what stays here the next restore removes.
        let _ = fs::remove_dir_all(&folder);
    }
    decided
}

/// Puts the new files into a folder of their own, on the disk.
fn stage(home: &Path, file: &Path, identity: Option<&Path>) -> Result<Staged, BackupError> {
    let new = home.join(FOLDER).join(NEW);
    make_folder(&new).at(&new)?;
    let own = home.join(JOURNAL);
    if own.exists() && file.canonicalize().at(file)? == own.canonicalize().at(&own)? {
        return Err(BackupError::unusable(file, "it is the journal of this home"));
    }
    let staged = match journal::journal_alone(file)? {
        Some(found) => journal::stage(home, file, &new, found),
        None => unpack(home, file, identity, &new),
    }?;
    let opened = File::open(&new).at(&new)?;
    syncfs(&opened).at(&new)?;
    Ok(staged)
}

/// Reads the backup, checks it, and settles what must not be done again.
fn unpack(home: &Path, file: &Path, identity: Option<&Path>, new: &Path) -> Result<Staged, BackupError> {
    let manifest = check::read(file, identity, Some(new))?;
    let journal = new.join(JOURNAL);
    let settled = match manifest.journal {
        None => None,
        Some(_) => {
            check_journal(&journal)?;
            Some(put_back(&journal, manifest.made, Arc::new(SystemClock))?)
        }
    };
    // Nothing else that is called so is part of a backup.
    for name in top(new)?.iter().filter(|name| name.starts_with(JOURNAL) && *name != JOURNAL) {
        fs::remove_file(new.join(name)).at(new.join(name))?;
    }
    for left in manifest.left_out.iter().filter(|left| left.secret && left.path.contains('/')) {
        keep_secret(home, new, &left.path)?;
    }
    let new = top(new)?;
    // Of a home that was just made: it goes only if nothing is in it.
    let _ = fs::remove_dir(home.join("state"));
    let own = file.canonicalize().ok();
    let holds_it = |name: &String| {
        own.as_ref().is_some_and(|own| home.join(name).canonicalize().is_ok_and(|path| own.starts_with(path)))
    };
    let covers = |name: &String| match () {
        () if is_apart(name) || holds_it(name) => false,
        () if is_workspace(name) => manifest.workspace,
        () if is_environment(name) => manifest.secrets,
        () => true,
    };
    let old: Vec<String> = top(home)?.into_iter().filter(covers).collect();
    let stays = |name: &&String| !old.contains(name) && fs::symlink_metadata(home.join(name)).is_ok();
    if let Some(name) = new.iter().find(stays) {
        let why =
            format!("it holds `{name}`, which stays in the home: move that away, or this file out of it");
        return Err(BackupError::unusable(file, why));
    }
    Ok(Staged {
        made: manifest.made,
        drupe: Some(manifest.drupe),
        left_out: manifest.left_out,
        journal: settled,
        moves: Moves { aside: swap::aside(), old, new },
    })
}

/// A secret that the backup left out stays what it is, although its folder is another one.
fn keep_secret(home: &Path, new: &Path, name: &str) -> Result<(), BackupError> {
    let (from, to) = (home.join(name), new.join(name));
    let is_file = fs::symlink_metadata(&from).is_ok_and(|found| found.is_file());
    if is_file && to.parent().is_some_and(Path::is_dir) && fs::symlink_metadata(&to).is_err() {
        fs::copy(&from, &to).at(&to)?;
    }
    Ok(())
}

/// The names at the top of a folder, in order.
fn top(folder: &Path) -> Result<Vec<String>, BackupError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).at(folder)? {
        names.extend(entry.at(folder)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
