//! Where a content lies that something is held against. A content that crashed is known by its hash alone; whether another
//! one took its place, or only bears its name, is known by where it lay.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::regular;

/// The most bytes that are read back: some hundred places.
const LONGEST: u64 = 1024 * 1024;

/// The places of contents, by the names of their extensions; kept in a file.
#[derive(Debug)]
pub struct Held {
    file: PathBuf,
    places: Mutex<BTreeMap<String, HeldAt>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HeldAt {
    hash: String,
    folder: PathBuf,
}

impl Held {
    /// Those that a file keeps. One that is not there or cannot be read is empty: then nothing counts as mended.
    #[must_use]
    pub fn open(file: PathBuf) -> Self {
        let short = fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST);
        let bytes = short.then(|| fs::read(&file).ok()).flatten().unwrap_or_default();
        Self { places: Mutex::new(serde_json::from_slice(&bytes).unwrap_or_default()), file }
    }

    /// Notes that the content lies in a folder. Of a name the last one counts: one content is held against it.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written; until the end of the process it is known all the same.
    pub fn note(&self, name: &str, hash: &str, folder: &Path) -> io::Result<()> {
        let place = HeldAt { hash: hash.to_owned(), folder: folder.to_owned() };
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.get(name) == Some(&place) {
            return Ok(());
        }
        places.insert(name.to_owned(), place);
        regular::replace(&self.file, &serde_json::to_vec(&*places)?)
    }

    /// Whether a content that lies in `folder` now took the place of the one of that hash.
    #[must_use]
    pub fn lay_in(&self, name: &str, hash: &str, folder: &Path) -> bool {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(name).is_some_and(|place| place.hash == hash && place.folder == folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folder_in_which_a_content_lay_is_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("held");
        let held = Held::open(file.clone());
        assert!(!held.lay_in("kv", "one", Path::new("/home/kv")), "nothing is known");
        held.note("kv", "one", Path::new("/home/kv")).expect("written");
        for held in [&held, &Held::open(file.clone())] {
            assert!(held.lay_in("kv", "one", Path::new("/home/kv")));
            assert!(!held.lay_in("kv", "one", Path::new("/shipped/kv")));
            assert!(!held.lay_in("kv", "two", Path::new("/home/kv")));
            assert!(!held.lay_in("other", "one", Path::new("/home/kv")));
        }
        held.note("kv", "two", Path::new("/listed/kv")).expect("written");
        assert!(!held.lay_in("kv", "one", Path::new("/home/kv")));
        fs::write(&file, "{").expect("as a loss of power may leave it");
        assert!(!Held::open(file).lay_in("kv", "two", Path::new("/listed/kv")));
    }
}
