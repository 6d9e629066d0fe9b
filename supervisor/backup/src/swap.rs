//! Putting a new home's files in the place of the old one's, so that it is done or not done, whatever ends it.
//!
//! What is to be moved is written down first, and that is the moment at which the new home is the home: whoever finds the
//! list goes on with it before anything else is done. Moving a file twice is not possible, so going on needs no memory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    BackupError, apart,
    error::At,
    files::{create, make_folder, sync_folder},
};

/// In the home: what a restore is at work with.
pub(crate) const FOLDER: &str = ".restore";
/// How the folders begin that keep what stood there before.
pub(crate) const ASIDE: &str = "before-restore-";
/// In [`FOLDER`]: the new files.
pub(crate) const NEW: &str = "new";
/// In [`FOLDER`]: what is to be moved.
const LIST: &str = "list.json";

/// What is moved, by names at the top of the home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moves {
    /// The folder of the home to which the old ones go.
    pub aside: String,
    pub old: Vec<String>,
    pub new: Vec<String>,
}

/// The folder of the home to which old files go now.
pub(crate) fn aside() -> String {
    format!("{ASIDE}{}", Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ"))
}

/// Whether a restore of this home was cut off after it was decided.
pub fn is_cut_off(home: &Path) -> bool {
    home.join(FOLDER).join(LIST).exists()
}

/// Goes on with a restore that was cut off; gives the folder that keeps what was there before, or nothing where none was.
///
/// Whoever calls it holds the home's lock.
pub fn complete(home: &Path) -> Result<Option<PathBuf>, BackupError> {
    let _moved = apart::while_moved(home)?;
    go_on(home)
}

/// The same of whoever keeps backups from the files already.
pub(crate) fn go_on(home: &Path) -> Result<Option<PathBuf>, BackupError> {
    let folder = home.join(FOLDER);
    let list = folder.join(LIST);
    let text = match fs::read(&list) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).at(list),
    };
    let moves: Moves = serde_json::from_slice(&text)
        .map_err(|error| BackupError::unusable(&list, format!("it cannot be read: {error}")))?;
    let (aside, new) = (home.join(&moves.aside), folder.join(NEW));
    if !is_there(&aside) {
        make_folder(&aside).at(&aside)?;
    }
    for name in &moves.old {
        // One in whose place the new one is already has gone before.
        if (is_there(&new.join(name)) || !moves.new.contains(name)) && is_there(&home.join(name)) {
            rename(&home.join(name), &free(&aside, name))?;
        }
    }
    sync_folder(&aside).at(&aside)?;
    for name in moves.new.iter().filter(|name| is_there(&new.join(name))) {
        rename(&new.join(name), &home.join(name))?;
    }
    sync_folder(home).at(home)?;
    fs::remove_file(&list).at(&list)?;
    // A list that came back would move away what has come since.
    sync_folder(&folder).at(&folder)?;
    // Without its list it is nothing but files that the next restore removes.
    let _ = fs::remove_dir_all(&folder);
    Ok(Some(aside))
}

/// Decides: from here on the new files are the home's.
pub(crate) fn decide(home: &Path, moves: &Moves) -> Result<(), BackupError> {
    let folder = home.join(FOLDER);
    let (fresh, list) = (folder.join("list.new"), folder.join(LIST));
    let mut file = create(&fresh).at(&fresh)?;
    serde_json::to_writer(&mut file, moves).map_err(io::Error::from).at(&fresh)?;
    file.sync_all().at(&fresh)?;
    fs::rename(&fresh, &list).at(&list)?;
    sync_folder(&folder).at(&folder)
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// A name for it in the folder that keeps the old ones: what a start made meanwhile in the place of one that has gone is kept
/// beside that.
fn free(aside: &Path, name: &str) -> PathBuf {
    let more = (1..).map(|number| aside.join(format!("{name}.{number}")));
    std::iter::once(aside.join(name))
        .chain(more)
        .find(|path| !is_there(path))
        .unwrap_or_else(|| aside.join(name))
}

/// Never over something that is there.
fn rename(from: &Path, to: &Path) -> Result<(), BackupError> {
    if is_there(to) {
        let error = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it stands where a restore puts a file; move it away",
        );
        return Err(error).at(to);
    }
    fs::rename(from, to).at(to)
}
