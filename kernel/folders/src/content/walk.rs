//! What lies in an extension's folder, without reading any of it.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::ContentError;
use crate::{
    discovery::kind_of,
    regular::{self, Identity},
};

/// The most files, folders and links that an extension may have.
pub const ENTRIES: usize = 4096;

/// How deep its folders may be nested.
pub const DEPTH: usize = 16;

/// The most bytes that its files may have together.
pub const BYTES: u64 = 512 * 1024 * 1024;

/// Something in an extension's folder.
pub(super) struct Seen {
    pub path: String,
    pub from: PathBuf,
    pub what: What,
}

pub(super) enum What {
    File { identity: Identity, size: u64, executable: bool },
    Link { target: PathBuf },
    Other(&'static str),
}

impl What {
    fn file(meta: &Metadata) -> Self {
        Self::File { identity: Identity::of(meta), size: meta.len(), executable: regular::executable(meta) }
    }
}

/// Whether something of that name, at that depth, is no part of an extension: what editors and version control leave,
/// and what Cargo builds.
pub(crate) fn left_out(name: &str, depth: usize) -> bool {
    name.starts_with('.') || (depth == 0 && name == "target")
}

/// What a folder holds, sorted by path.
pub(super) fn folder(top: &Path) -> Result<Vec<Seen>, ContentError> {
    let mut walk = Walk { top, entries: 0, bytes: 0, seen: Vec::new() };
    walk.descend(top, "", 0)?;
    walk.seen.retain(|one| !source(&one.path));
    walk.seen.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(walk.seen)
}

/// Whether only a compiler reads it. What runs is the library: an edit of its source changes nothing yet.
fn source(path: &str) -> bool {
    path.ends_with(".rs") || path == "Cargo.toml" || path == "Cargo.lock"
}

/// A single file. A link is followed: discovery has seen that it stays among the extensions.
pub(super) fn single(path: &Path) -> Result<Seen, ContentError> {
    let unreadable = |error| ContentError::Unreadable { path: path.to_owned(), error };
    let from = path.canonicalize().map_err(unreadable)?;
    let meta = fs::symlink_metadata(&from).map_err(unreadable)?;
    if meta.len() > BYTES {
        return Err(too_many_bytes(path));
    }
    Ok(Seen { path: named(path)?, from, what: What::file(&meta) })
}

/// Adds the library, unless it lies among what was seen already.
pub(super) fn add_library(folder: &Path, library: &Path, seen: &mut Vec<Seen>) -> Result<(), ContentError> {
    let unreadable = |error| ContentError::Unreadable { path: library.to_owned(), error };
    let from = library.canonicalize().map_err(unreadable)?;
    let real = folder.canonicalize().map_err(unreadable)?;
    let within = from.strip_prefix(&real).ok().and_then(Path::to_str);
    if within.is_some_and(|path| seen.binary_search_by(|one| one.path.as_str().cmp(path)).is_ok()) {
        return Ok(());
    }
    let meta = fs::symlink_metadata(&from).map_err(unreadable)?;
    if !meta.is_file() {
        return Err(unreadable(io::Error::other("it is no regular file")));
    }
    if meta.len() > BYTES {
        return Err(too_many_bytes(folder));
    }
    let name = named(library)?;
    match seen.binary_search_by(|one| one.path.as_str().cmp(&name)) {
        Err(at) if !seen.iter().any(|one| Path::new(&one.path).starts_with(&name)) => {
            seen.insert(at, Seen { path: name, from, what: What::file(&meta) });
            Ok(())
        }
        _ => Err(ContentError::LibraryName { folder: folder.to_owned(), name }),
    }
}

/// The last name of a path.
fn named(path: &Path) -> Result<String, ContentError> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| ContentError::Name { path: path.to_owned() })
}

fn too_many_bytes(folder: &Path) -> ContentError {
    let bound = format!("more than {} MiB", BYTES / 1024 / 1024);
    ContentError::TooLarge { folder: folder.to_owned(), bound }
}

struct Walk<'a> {
    top: &'a Path,
    entries: usize,
    bytes: u64,
    seen: Vec<Seen>,
}

impl Walk<'_> {
    fn too_large(&self, bound: String) -> ContentError {
        ContentError::TooLarge { folder: self.top.to_owned(), bound }
    }

    fn descend(&mut self, folder: &Path, within: &str, depth: usize) -> Result<(), ContentError> {
        if depth > DEPTH {
            return Err(self.too_large(format!("folders nested deeper than {DEPTH}")));
        }
        for entry in fs::read_dir(folder).map_err(|error| fault(folder, error, depth > 0))? {
            let entry = entry.map_err(|error| fault(folder, error, true))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| ContentError::Name { path: entry.path() })?;
            if left_out(name, depth) {
                continue;
            }
            self.entries += 1;
            if self.entries > ENTRIES {
                return Err(self.too_large(format!("more than {ENTRIES} files and folders")));
            }
            let path = if within.is_empty() { name.to_owned() } else { format!("{within}/{name}") };
            self.take(path, &entry, depth)?;
        }
        Ok(())
    }

    fn take(&mut self, path: String, entry: &fs::DirEntry, depth: usize) -> Result<(), ContentError> {
        let from = entry.path();
        let kind = entry.file_type().map_err(|error| fault(&from, error, true))?;
        if kind.is_dir() {
            return self.descend(&from, &path, depth + 1);
        }
        let what = if kind.is_file() {
            let meta = entry.metadata().map_err(|error| fault(&from, error, true))?;
            self.bytes = self.bytes.saturating_add(meta.len());
            if self.bytes > BYTES {
                return Err(too_many_bytes(self.top));
            }
            What::file(&meta)
        } else if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(|error| fault(&from, error, true))?;
            if target.to_str().is_none() {
                return Err(ContentError::Name { path: from });
            }
            What::Link { target }
        } else {
            let meta = entry.metadata().map_err(|error| fault(&from, error, true))?;
            What::Other(kind_of(meta.mode()))
        };
        self.seen.push(Seen { path, from, what });
        Ok(())
    }
}

/// What was listed a moment ago and is gone is a change, and no fault.
fn fault(path: &Path, error: io::Error, listed: bool) -> ContentError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound if listed => ContentError::Changing { path },
        _ => ContentError::Unreadable { path, error },
    }
}
