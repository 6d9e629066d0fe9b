//! The hashes of files that were read before, in one file between starts. A mere shortcut: without it, or with a
//! damaged one, everything is read again and the results are the same.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use drupe_confine::make_beneath;
use serde::{Deserialize, Serialize};

use super::{Content, ContentError, look, steadily, walk::Seen};
use crate::{
    discovery::Found,
    regular::{self, Identity},
};

/// A file that changed less than this before it was read could change again and bear the same times: file systems
/// count in steps, the coarsest in common use in steps of two seconds. Such a file is read again the next time.
const SETTLED: Duration = Duration::from_secs(2);

/// The version of the file's form; another one is read as an empty cache.
const FORM: u32 = 1;

/// The contents of extensions, with a cache. May be used from several threads at once.
#[derive(Debug)]
pub struct Contents {
    path: PathBuf,
    state: Mutex<KnownFolders>,
    now: fn() -> SystemTime,
}

#[derive(Debug, Default)]
struct KnownFolders {
    folders: HashMap<String, Folder>,
    changed: bool,
}

#[derive(Debug, Default)]
struct Folder {
    files: HashMap<String, Remembered>,
    /// Looked at since the program started; others are dropped when they are gone.
    seen: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    identity: Identity,
    hash: String,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    form: u32,
    folders: HashMap<String, HashMap<String, Remembered>>,
}

impl Contents {
    /// Reads the cache at that path, which need not exist.
    #[must_use]
    pub fn open(path: PathBuf) -> Self {
        Self::with_clock(path, SystemTime::now)
    }

    pub(super) fn with_clock(path: PathBuf, now: fn() -> SystemTime) -> Self {
        let stored = regular::open(&path).ok().and_then(|(file, _)| {
            let stored: Option<Stored> = serde_json::from_reader(io::BufReader::new(file)).ok();
            stored.filter(|stored| stored.form == FORM)
        });
        let folders = stored.map(|stored| stored.folders).unwrap_or_default();
        let folders =
            folders.into_iter().map(|(path, files)| (path, Folder { files, seen: false })).collect();
        Self { path, state: Mutex::new(KnownFolders { folders, changed: false }), now }
    }

    /// The content of an extension. `library` is its native code where it was built: it counts as a file of the
    /// extension, with its own name, unless it lies in the folder anyway.
    ///
    /// Left out are names that begin with a dot, and a folder `target` at the top.
    ///
    /// # Errors
    ///
    /// Where it is too large, cannot be read, or changes all the while.
    pub fn of(&self, found: &Found, library: Option<&Path>) -> Result<Content, ContentError> {
        // A folder whose name cannot be a key is read each time.
        let Some(key) = found.folder.to_str() else {
            return steadily(|| look(found, library, |one, identity| hash(one, identity).map(|h| h.0)));
        };
        let known = self.state().folders.get(key).map(|folder| folder.files.clone()).unwrap_or_default();
        let mut now_known = HashMap::with_capacity(known.len());
        let content = steadily(|| {
            now_known.clear();
            look(found, library, |one, identity| {
                let name = if one.from.starts_with(&found.folder) {
                    &one.path
                } else {
                    &*one.from.to_string_lossy()
                };
                if let Some(same) = known.get(name).filter(|known| known.identity == *identity) {
                    now_known.insert(name.to_owned(), same.clone());
                    return Ok(same.hash.clone());
                }
                let began = (self.now)();
                let (hash, identity) = hash(one, identity)?;
                if identity.settled(SETTLED, began) {
                    now_known.insert(name.to_owned(), Remembered { identity, hash: hash.clone() });
                }
                Ok(hash)
            })
        });
        if library.is_none() {
            // Whoever looks at the folder alone says nothing of what was built elsewhere.
            let elsewhere = known.iter().filter(|(name, _)| Path::new(name).is_absolute());
            now_known.extend(elsewhere.map(|(name, file)| (name.clone(), file.clone())));
        }
        let mut state = self.state();
        state.changed |= now_known != known;
        state.folders.insert(key.to_owned(), Folder { files: now_known, seen: true });
        content
    }

    /// Writes the cache, if anything in it is new. Folders that are gone are dropped.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn save(&self) -> io::Result<()> {
        let mut state = self.state();
        let (before, writing) = (state.folders.len(), state.changed);
        // Those that were seen are looked at only where something is written anyway.
        state.folders.retain(|path, folder| folder.seen && !writing || fs::symlink_metadata(path).is_ok());
        if !state.changed && state.folders.len() == before {
            return Ok(());
        }
        let folders =
            state.folders.iter().map(|(path, folder)| (path.clone(), folder.files.clone())).collect();
        let bytes = serde_json::to_vec(&Stored { form: FORM, folders })?;
        if let Some(folder) = self.path.parent() {
            make_beneath(folder.parent().unwrap_or(folder), folder)?;
        }
        regular::replace(&self.path, &bytes)?;
        state.changed = false;
        Ok(())
    }

    /// What is behind the lock is whole between any two statements, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, KnownFolders> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a file and returns its hash, if it was the one that was seen, from the first byte to the last.
fn hash(one: &Seen, seen: &Identity) -> Result<(String, Identity), ContentError> {
    hash_while(one, seen, || {})
}

/// `between` is called after every part that was read.
pub(super) fn hash_while(
    one: &Seen,
    seen: &Identity,
    mut between: impl FnMut(),
) -> Result<(String, Identity), ContentError> {
    let path = || one.from.clone();
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ContentError::Changing { path: path() },
        _ => ContentError::Unreadable { path: path(), error },
    };
    let (mut file, meta) = regular::open(&one.from).map_err(unreadable)?;
    let before = Identity::of(&meta);
    // One byte more than there should be, so that growth is noticed, but does not keep us for ever.
    let (read, hash) = regular::digest(&mut file, meta.len() + 1, |_| {
        between();
        Ok(())
    })
    .map_err(unreadable)?;
    let after = Identity::of(&file.metadata().map_err(unreadable)?);
    if before != *seen || after != before || read != meta.len() {
        return Err(ContentError::Changing { path: path() });
    }
    Ok((hash, before))
}
