//! Finds the folders and files that hold extensions. Deterministic and bounded; what is passed over is said, with the
//! reason. Opens nothing but folders: a manifest is looked at from outside.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

mod layout;
mod library;
mod trust;

pub use layout::Layout;
pub use library::NoLibrary;

/// The most entries that are looked at in one folder of extensions.
const MOST: usize = 4096;

/// The most that are read, so that those with the first names are chosen among all but in a folder gone mad.
const READ: usize = 65_536;

/// The most letters of an id: with a prefix, a tool's name that is made of it still fits the providers' 64.
const ID_LENGTH: usize = 48;

/// Who put an extension there; later ones are third-party.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Shipped,
    /// Lies where what ships does, but [others may write it](Layout::doubt).
    Doubted,
    /// The operator or the builder, in the home.
    Home,
    /// A folder that `extensions.paths` names.
    Listed,
}

/// In which shape an extension lies in its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A folder with a `manifest.yaml`.
    Folder,
    /// A single file, `<id>.md`.
    File,
}

/// A folder with a manifest, or a file that is an agent by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The folder's name, or the file's without `.md`; the id must equal it.
    pub name: String,
    /// The folder; for a file, the file's own path.
    pub folder: PathBuf,
    pub origin: Origin,
    pub kind: Kind,
}

/// Something that is no extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    pub path: PathBuf,
    /// Why. Names in it are escaped: what looks like another name or writes to a terminal is seen for what it is.
    pub reason: String,
}

/// Whether a name can be an extension's id: `^[a-z0-9][a-z0-9_-]{0,47}$`.
#[must_use]
pub fn is_id(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= ID_LENGTH
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|b| letter(b) || b == b'_' || b == b'-')
}

/// Looks through the folders in order, each sorted by name, one level deep. A root that does not exist is nothing to
/// speak of unless the operator listed it.
#[must_use]
pub fn discover(roots: &[(Origin, PathBuf)]) -> (Vec<Found>, Vec<PassedOver>) {
    let (mut found, mut passed) = (Vec::new(), Vec::new());
    for (origin, root) in roots {
        match list(root) {
            Ok(names) => {
                if names.len() > MOST {
                    let reason = format!("more than {MOST} entries; the rest is not looked at");
                    passed.push(PassedOver { path: root.clone(), reason });
                }
                for name in names.into_iter().take(MOST) {
                    let path = root.join(&name);
                    match examine(root, &path, &name) {
                        Ok(Some((name, kind))) => {
                            found.push(Found { name, folder: path, origin: *origin, kind });
                        }
                        Ok(None) => {}
                        Err(reason) => passed.push(PassedOver { path, reason }),
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && *origin != Origin::Listed => {}
            Err(error) => {
                passed.push(PassedOver { path: root.clone(), reason: format!("cannot be read: {error}") });
            }
        }
    }
    (found, passed)
}

/// The names in a folder that are not hidden, sorted.
fn list(root: &Path) -> io::Result<Vec<OsString>> {
    let mut names: Vec<OsString> = fs::read_dir(root)?
        .take(READ)
        .map(|entry| entry.map(|e| e.file_name()))
        .filter(|name| !name.as_ref().is_ok_and(|n| n.as_encoded_bytes().starts_with(b".")))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// The id and the shape, if it is an extension; `None` for what is plainly something else.
fn examine(root: &Path, path: &Path, name: &OsStr) -> Result<Option<(String, Kind)>, String> {
    let unexamined = |error| format!("cannot be examined: {error}");
    let mut meta = fs::symlink_metadata(path).map_err(unexamined)?;
    if meta.is_symlink() {
        if !stays_within(path, root) {
            return Err(
                "a symbolic link that leaves the folder of extensions, or leads nowhere; copy what it \
                 means here instead"
                    .into(),
            );
        }
        meta = fs::metadata(path).map_err(unexamined)?;
    }
    if meta.is_dir() {
        let id = id(name, name)?;
        manifest(path)?;
        return Ok(Some((id, Kind::Folder)));
    }
    if !meta.is_file() {
        return Err(format!("{}, neither a folder nor a file", kind_of(meta.mode())));
    }
    match Path::new(name).extension() {
        Some(extension) if extension == "md" => {
            let stem = Path::new(name).file_stem().unwrap_or_default();
            Ok(Some((id(stem, name)?, Kind::File)))
        }
        _ => Ok(None),
    }
}

fn id(stem: &OsStr, name: &OsStr) -> Result<String, String> {
    if let Some(id) = stem.to_str().filter(|stem| is_id(stem)) {
        return Ok(id.to_owned());
    }
    // Every letter beyond ASCII is shown by its number: some look exactly like one of ours.
    let shown = match name.to_str() {
        Some(text) => text.escape_default().to_string(),
        None => name.as_encoded_bytes().escape_ascii().to_string(),
    };
    Err(format!(
        "`{shown}` gives no id; an id has 1 to {ID_LENGTH} of the characters a-z, 0-9, `_` and `-`, the first a \
         letter or a digit"
    ))
}

/// Whether a folder has a manifest that can be opened without waiting, and that is its own.
fn manifest(folder: &Path) -> Result<(), String> {
    let path = folder.join("manifest.yaml");
    let unexamined = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "a folder without `manifest.yaml`".to_owned(),
        _ => format!("its `manifest.yaml` cannot be examined: {error}"),
    };
    let mut meta = fs::symlink_metadata(&path).map_err(unexamined)?;
    if meta.is_symlink() {
        if !stays_within(&path, folder) {
            return Err(
                "its `manifest.yaml` is a symbolic link that leaves the folder, or leads nowhere".into()
            );
        }
        meta = fs::metadata(&path).map_err(unexamined)?;
    }
    match meta.is_file() {
        true => Ok(()),
        false => Err(format!("its `manifest.yaml` is {}, not a file", kind_of(meta.mode()))),
    }
}

/// Whether a link ends at something in the folder.
fn stays_within(link: &Path, folder: &Path) -> bool {
    let (Ok(to), Ok(folder)) = (link.canonicalize(), folder.canonicalize()) else { return false };
    to != folder && to.starts_with(folder)
}

/// What is no file, in words.
pub(crate) fn kind_of(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        FileType::RegularFile | FileType::Unknown => "something unknown",
    }
}

/// Decides which one an id means. One in the home or a listed folder replaces the shipped one of the same name only
/// where its manifest says `overrides: true`; else all are unusable, and each says where the others are.
pub fn settle(found: Vec<Found>, overrides: impl Fn(&Found) -> bool) -> Vec<(Found, Option<String>)> {
    let mut by_name: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for one in found {
        by_name.entry(one.name.clone()).or_default().push(one);
    }
    let mut settled = Vec::new();
    for (name, mut same) in by_name {
        let last = same.len() - 1;
        let over_shipped = same[last].origin != Origin::Shipped
            && same[..last].iter().all(|other| other.origin == Origin::Shipped);
        if last > 0 && over_shipped && overrides(&same[last]) {
            settled.push((same.swap_remove(last), None));
            continue;
        }
        let places: Vec<String> = same.iter().map(|f| format!("`{}`", f.folder.display())).collect();
        let clash = (last > 0).then(|| {
            let advice = match over_shipped {
                true => "remove one, or write `overrides: true` into the manifest of your own",
                false => "remove one",
            };
            format!("extension `{name}` is in {}; {advice}", places.join(" and in "))
        });
        settled.extend(same.into_iter().map(|f| (f, clash.clone())));
    }
    settled
}

#[cfg(test)]
mod tests;
