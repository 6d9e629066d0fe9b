//! Keeps sets of extensions as they were, so that a start can return to one that worked. Files are stored once, under
//! the hash of their bytes; a set names them. A set's name is the hash of what is in it, so nothing here can change
//! unnoticed.
//!
//! Decides nothing about which set is a good one, and keeps neither pipes, sockets nor devices: a restored extension
//! lacks them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Component, Path, PathBuf},
    time::SystemTime,
};

use drupe_confine::make_beneath;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    content::{Content, File, Link, Other, hash_of},
    discovery::{Kind, is_id},
    regular::{self, about},
};

mod restore;

/// How many sets `prune` leaves beside those that it is told to keep: enough to look back over a bad day.
pub const NEWEST: usize = 3;

/// A set of extensions that was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The extensions, by id.
    pub entries: BTreeMap<String, Entry>,
}

/// An extension of a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub hash: String,
    pub kind: Kind,
    /// Its files, by path.
    pub files: Vec<KeptFile>,
    /// Its symbolic links, by path.
    pub links: Vec<Link>,
    /// What it had that is not kept, by path.
    pub others: Vec<Other>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptFile {
    pub path: PathBuf,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub hash: String,
    /// Its length in bytes.
    pub size: u64,
    /// Whether anybody may execute it.
    pub executable: bool,
}

/// The store. One process at a time may write to it.
#[derive(Debug, Clone)]
pub struct Generations {
    root: PathBuf,
}

impl Generations {
    /// The store below that folder, which need not exist; the one above it must.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The name of a set: the hash of its ids and the hashes of their contents, in the order of the ids.
    pub fn name<'a>(contents: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let sorted: BTreeMap<&str, &str> = contents.into_iter().collect();
        let mut whole = Sha256::new();
        for part in sorted.into_iter().flat_map(|(id, hash)| [id, hash]) {
            whole.update((part.len() as u64).to_le_bytes());
            whole.update(part);
        }
        regular::hex(&whole.finalize())
    }

    /// Keeps a set, and returns its name. What is there already is not written again. The set itself is written last:
    /// where it is, its files are.
    ///
    /// # Errors
    ///
    /// Where the store cannot be written, or a file is no longer what its content says.
    pub fn keep(&self, set: &[(String, &Content, Kind)]) -> io::Result<String> {
        let name = Self::name(set.iter().map(|(id, content, _)| (id.as_str(), content.hash.as_str())));
        let path = self.set(&name);
        let complete = |set: &Set| {
            let mut files = set.entries.values().flat_map(|entry| &entry.files);
            files.all(|file| self.has(&file.hash, file.size))
        };
        if self.read(&name).is_ok_and(|set| complete(&set)) {
            return Ok(name);
        }
        let above = self.root.parent().unwrap_or(&self.root);
        for folder in [self.root.join("files"), self.root.join("sets")] {
            make_beneath(above, &folder).map_err(|error| about(&error, folder.display()))?;
        }
        let mut entries = BTreeMap::new();
        for (id, content, kind) in set {
            if !is_id(id) {
                return Err(io::Error::other(format!("`{}` is no id", id.escape_default())));
            }
            for file in &content.files {
                self.keep_file(file).map_err(|error| about(&error, file.from.display()))?;
            }
            entries.insert(id.clone(), Entry::of(content, *kind));
        }
        let bytes = serde_json::to_vec(&Set { entries })?;
        regular::replace(&path, &bytes).map_err(|error| about(&error, path.display()))?;
        Ok(name)
    }

    /// Reads a set and verifies that it is what was kept under that name. Its files are verified when they are
    /// restored.
    ///
    /// # Errors
    ///
    /// There is no such set, or it is damaged; the error names it.
    pub fn read(&self, name: &str) -> io::Result<Set> {
        if name.len() != 64 || !name.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(io::Error::other(format!("`{}` is no name of a set", name.escape_default())));
        }
        let path = self.set(name);
        let bytes = fs::read(&path).map_err(|error| about(&error, path.display()))?;
        let damaged = |why: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("`{}` is damaged: {why}", path.display()))
        };
        let set: Set = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        for (id, entry) in &set.entries {
            entry.verify(id).map_err(damaged)?;
        }
        let real = Self::name(set.entries.iter().map(|(id, entry)| (id.as_str(), entry.hash.as_str())));
        if real != name {
            return Err(damaged("it is not the set of that name".into()));
        }
        Ok(set)
    }

    /// Removes the sets but those named and the newest three, and the files that no set names any more. Nothing is
    /// removed where a set that is to be kept cannot be read.
    ///
    /// # Errors
    ///
    /// Where such a set cannot be read, or something cannot be removed.
    pub fn prune(&self, keep: &[&str]) -> io::Result<()> {
        let mut sets = Vec::new();
        for name in self.names("sets")? {
            match name.strip_suffix(".json") {
                Some(set) => sets.push((self.written(&name), set.to_owned())),
                // What a crash left half written.
                None => self.remove(&self.root.join("sets").join(name))?,
            }
        }
        sets.sort();
        let (mut room, mut used) = (NEWEST, BTreeSet::new());
        let mut gone = Vec::new();
        for (_, name) in sets.into_iter().rev() {
            let named = keep.contains(&name.as_str());
            match self.read(&name) {
                Err(error) if named => return Err(error),
                Ok(set) if named || room > 0 => {
                    room -= usize::from(!named);
                    used.extend(
                        set.entries.into_values().flat_map(|entry| entry.files).map(|file| file.hash),
                    );
                }
                // One that is damaged can never be returned to.
                Ok(_) | Err(_) => gone.push(self.set(&name)),
            }
        }
        // Sets first: one that is there has its files.
        gone.iter().try_for_each(|set| self.remove(set))?;
        let files = self.names("files")?.into_iter().filter(|name| !used.contains(name));
        files.into_iter().try_for_each(|name| self.remove(&self.file(&name)))
    }

    fn set(&self, name: &str) -> PathBuf {
        self.root.join("sets").join(format!("{name}.json"))
    }

    fn file(&self, hash: &str) -> PathBuf {
        self.root.join("files").join(hash)
    }

    /// Whether a file is there, as far as can be told without reading it.
    fn has(&self, hash: &str, size: u64) -> bool {
        fs::symlink_metadata(self.file(hash)).is_ok_and(|meta| meta.is_file() && meta.len() == size)
    }

    fn keep_file(&self, file: &File) -> io::Result<()> {
        let path = self.file(&file.hash);
        if self.has(&file.hash, file.size) {
            return Ok(());
        }
        let (from, _) = regular::open(&file.from)?;
        regular::copy(from, &path, false, &file.hash, file.size)
            .map_err(|error| about(&error, "it cannot be kept as it was"))
    }

    /// The names in one of the store's folders; none where there is no store yet.
    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let path = self.root.join(folder);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| about(&error, path.display()))?,
        };
        entries.map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned())).collect()
    }

    fn written(&self, name: &str) -> SystemTime {
        let meta = fs::symlink_metadata(self.root.join("sets").join(name));
        meta.and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(&error, path.display())),
            _ => Ok(()),
        }
    }
}

impl Entry {
    fn of(content: &Content, kind: Kind) -> Self {
        let files = content.files.iter().map(|file| KeptFile {
            path: file.path.clone(),
            hash: file.hash.clone(),
            size: file.size,
            executable: file.executable,
        });
        Self {
            hash: content.hash.clone(),
            kind,
            files: files.collect(),
            links: content.links.clone(),
            others: content.others.clone(),
        }
    }

    /// Whether it is what its hash says, and would be restored within its own folder.
    fn verify(&self, id: &str) -> Result<(), String> {
        let shown = id.escape_default();
        if !is_id(id) {
            return Err(format!("`{shown}` is no id"));
        }
        let files = self.files.iter().map(|f| (f.path.as_path(), f.hash.as_str(), f.executable));
        if hash_of(files, &self.links, &self.others) != self.hash {
            return Err(format!("what it lists of `{shown}` is not what was kept"));
        }
        let mut paths = self.files.iter().map(|f| &f.path).chain(self.links.iter().map(|l| &l.path));
        let plain = |path: &Path| {
            path.components().next().is_some()
                && path.components().all(|part| matches!(part, Component::Normal(_)))
        };
        match paths.find(|path| !plain(path)) {
            Some(path) => Err(format!("`{}` of `{shown}` leaves its folder", path.display())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
