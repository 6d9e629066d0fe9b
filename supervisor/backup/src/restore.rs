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
    BackupError, BackupManifest, Omitted, check,
    covered::{JOURNAL, is_apart, is_environment, is_workspace},
    error::{self, At},
    files::make_folder,
    swap::{self, ASIDE, FOLDER, Moves, NEW},
};

/// What came of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub file: PathBuf,
    /// When the backup was made.
    pub made: Timestamp,
    /// The release that made it.
    pub drupe: String,
    /// What the journal does not go on with; none where the backup has no journal.
    pub journal: Option<PutBack>,
    /// What stood there before; none where nothing did.
    pub aside: Option<PathBuf>,
    /// Names in the home that were left as they were.
    pub kept: Vec<String>,
    /// What the backup does not have.
    pub left_out: Vec<Omitted>,
}

/// Makes a home what it was when `file` was made. `identity` is the file with the key of one that is encrypted.
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
    let (manifest, journal, moves) = decide(home, file, identity)?;
    let had = !moves.old.is_empty();
    let aside = swap::complete(home)?.filter(|_| had);
    if !had {
        // Nothing stood there.
        let _ = fs::remove_dir(home.join(&moves.aside));
    }
    let is_left = |name: &String| !moves.new.contains(name) && !is_apart(name) && name != "state";
    Ok(Restored {
        file: file.to_owned(),
        made: manifest.made,
        drupe: manifest.drupe,
        journal,
        aside,
        kept: top(home)?.into_iter().filter(is_left).collect(),
        left_out: manifest.left_out,
    })
}

/// Does all that may fail, and ends with what makes the new files the home's.
pub(crate) fn decide(
    home: &Path,
    file: &Path,
    identity: Option<&Path>,
) -> Result<(BackupManifest, Option<PutBack>, Moves), BackupError> {
    swap::complete(home)?;
    let folder = home.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).at(&folder)?;
    }
    make_folder(&folder).at(&folder)?;
    let decided = stage(home, file, identity).and_then(|(manifest, journal, moves)| {
        swap::decide(home, &moves).map(|()| (manifest, journal, moves))
    });
    if decided.is_err() {
        // The home is as it was; what stays here the next restore removes.
        let _ = fs::remove_dir_all(&folder);
    }
    decided
}

/// Reads the backup into a folder of its own, checks it, and settles what must not be done again.
fn stage(
    home: &Path,
    file: &Path,
    identity: Option<&Path>,
) -> Result<(BackupManifest, Option<PutBack>, Moves), BackupError> {
    let new = home.join(FOLDER).join(NEW);
    make_folder(&new).at(&new)?;
    let manifest = check::read(file, identity, Some(&new))?;
    let journal = new.join(JOURNAL);
    let settled = match manifest.journal {
        None => None,
        Some(_) => {
            check_journal(&journal)?;
            Some(put_back(&journal, manifest.made, Arc::new(SystemClock))?)
        }
    };
    // The file as it was before it was brought to this release's version is in the backup.
    for name in top(&new)?.iter().filter(|name| name.starts_with(JOURNAL) && *name != JOURNAL) {
        fs::remove_file(new.join(name)).at(new.join(name))?;
    }
    for left in manifest.left_out.iter().filter(|left| left.secret && left.path.contains('/')) {
        keep_secret(home, &new, &left.path)?;
    }
    let opened = File::open(&new).at(&new)?;
    syncfs(&opened).at(&new)?;
    let new = top(&new)?;
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
    let old = top(home)?.into_iter().filter(covers).collect();
    let aside = format!("{ASIDE}{}", Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ"));
    Ok((manifest, settled, Moves { aside, old, new }))
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
