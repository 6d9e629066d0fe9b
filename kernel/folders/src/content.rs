//! What an extension consists of, as one hash: the same hash means the same extension. Remembers the hashes of files,
//! so that a start need not read them all again.
//!
//! Follows no link, opens nothing but regular files, and keeps nothing: see [`crate::generation`].

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    discovery::{Found, Kind},
    regular::{self, Identity},
};

mod cache;
mod walk;

pub use cache::Contents;
pub(crate) use walk::left_out;
pub use walk::{BYTES, DEPTH, ENTRIES};

/// What an extension consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// SHA-256, in hexadecimal digits, of everything below with paths and kinds; of a file also whether it may be
    /// executed. Empty folders, times and owners do not count.
    pub hash: String,
    /// Its regular files, by path.
    pub files: Vec<File>,
    /// Its symbolic links, by path. What they lead to is not looked at.
    pub links: Vec<Link>,
    /// Pipes, sockets and devices, by path; never opened.
    pub others: Vec<Other>,
}

impl Content {
    /// Whether a file counts to it, by its path in the extension.
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.path == path)
    }

    /// Its hash together with what else it depends on, each under a name; its own where there is nothing.
    #[must_use]
    pub fn hash_with<'a>(&self, others: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let mut others = others.into_iter().peekable();
        if others.peek().is_none() {
            return self.hash.clone();
        }
        let mut whole = Sha256::new();
        let parts = others.flat_map(|(name, text)| [name, text]);
        for part in std::iter::once(self.hash.as_str()).chain(parts) {
            whole.update((part.len() as u64).to_le_bytes());
            whole.update(part);
        }
        regular::hex(&whole.finalize())
    }
}

/// A regular file of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub path: PathBuf,
    pub from: PathBuf,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub hash: String,
    /// Its length in bytes.
    pub size: u64,
    /// Whether anybody may execute it.
    pub executable: bool,
}

/// A symbolic link of an extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub path: PathBuf,
    pub target: PathBuf,
}

/// Something of an extension that is neither file, folder nor link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    pub path: PathBuf,
    /// What it is, in words.
    pub what: String,
}

/// Why the content of an extension is not known.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// It is larger than any extension need be.
    #[error("`{folder}` has {bound}; move what the extension does not need to another place")]
    TooLarge { folder: PathBuf, bound: String },
    /// The system does not let us.
    #[error("`{path}` cannot be read: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    /// A name that could not be written down.
    #[error("`{}` has a name that is not UTF-8; rename it", path.as_os_str().as_bytes().escape_ascii())]
    Name { path: PathBuf },
    /// It was changed again and again while it was read; it is worth another try when that is over.
    #[error("`{path}` is being written; try again when that is done")]
    Changing { path: PathBuf },
    /// Its library, built elsewhere, and something in its folder have one name.
    #[error("`{folder}` holds a `{name}` that is not the extension's library of that name; rename it")]
    LibraryName { folder: PathBuf, name: String },
}

/// How often something that changes while it is read is read.
const ATTEMPTS: usize = 3;

/// Repeats what was disturbed by a writer, a few times.
fn steadily<T>(mut attempt: impl FnMut() -> Result<T, ContentError>) -> Result<T, ContentError> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(ContentError::Changing { .. }) => {}
            done => return done,
        }
    }
    attempt()
}

/// Looks at an extension once; `hash` gives the hash of a file's bytes.
fn look(
    found: &Found,
    library: Option<&Path>,
    mut hash: impl FnMut(&walk::Seen, &Identity) -> Result<String, ContentError>,
) -> Result<Content, ContentError> {
    let mut content =
        Content { hash: String::new(), files: Vec::new(), links: Vec::new(), others: Vec::new() };
    let mut seen = match found.kind {
        Kind::Folder => walk::folder(&found.folder)?,
        Kind::File => vec![walk::single(&found.folder)?],
    };
    if let Some(library) = library {
        walk::add_library(&found.folder, library, &mut seen)?;
    }
    for one in seen {
        match &one.what {
            walk::What::File { identity, size, executable } => {
                let hash = hash(&one, identity)?;
                let (size, executable) = (*size, *executable);
                content.files.push(File { path: one.path.into(), from: one.from, hash, size, executable });
            }
            walk::What::Link { target } => {
                content.links.push(Link { path: one.path.into(), target: target.clone() });
            }
            walk::What::Other(what) => {
                content.others.push(Other { path: one.path.into(), what: (*what).to_owned() });
            }
        }
    }
    let files = content.files.iter().map(|f| (f.path.as_path(), f.hash.as_str(), f.executable));
    content.hash = hash_of(files, &content.links, &content.others);
    Ok(content)
}

/// The hash of an extension, from what it consists of, each sorted by path. Every part is preceded by its length, so
/// that no two lists are written alike.
pub(crate) fn hash_of<'a>(
    files: impl Iterator<Item = (&'a Path, &'a str, bool)>,
    links: &[Link],
    others: &[Other],
) -> String {
    let mut whole = Sha256::new();
    let mut add = |kind: &str, path: &Path, rest: &[u8]| {
        for part in [kind.as_bytes(), path.as_os_str().as_bytes(), rest] {
            whole.update((part.len() as u64).to_le_bytes());
            whole.update(part);
        }
    };
    for (path, hash, executable) in files {
        add(if executable { "program" } else { "file" }, path, hash.as_bytes());
    }
    for link in links {
        add("link", &link.path, link.target.as_os_str().as_bytes());
    }
    for other in others {
        add("other", &other.path, other.what.as_bytes());
    }
    regular::hex(&whole.finalize())
}

#[cfg(test)]
mod tests;
