//! The folder in which drafts are made: a folder an extension, with its files and no way out.
//!
//! Everything is opened beneath a handle of the data folder, which refuses whatever leads out of it: what compiles and
//! tests a draft may write there as well, and could leave links behind. What such a program made is never taken along;
//! a draft is what was written through here, cargo's lock file and the library that was compiled from both.

use std::{
    env::consts::DLL_SUFFIX,
    io::{self, ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions},
};
use drupe_extension_api::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::place::Place;

/// The largest file of a draft, in bytes.
const LARGEST: usize = 256 * 1024;

/// The largest library of a draft, in bytes: what is added to drupe may have 64 MiB in all.
const LARGEST_LIBRARY: u64 = 60 * 1024 * 1024;

/// The most files in one folder of a draft.
const FILES: usize = 32;

/// The folder of the drafts, and that of the copies which are handed over.
const DRAFTS: &str = "staging";
const COPIES: &str = "outgoing";

/// The folder of agents of the builder's own.
const OWN: &str = "own";

/// The drafts.
pub struct Staging {
    root: PathBuf,
    data: Dir,
}

impl Staging {
    /// Keeps drafts beneath the extension's data folder.
    pub fn new(data_folder: &Path) -> Result<Self, Fault> {
        let data = Dir::open_ambient_dir(data_folder, ambient_authority())?;
        data.create_dir_all(DRAFTS)?;
        Ok(Self { root: data_folder.to_owned(), data })
    }

    /// The folder of a draft that exists.
    pub fn folder(&self, id: &ExtensionId) -> Result<PathBuf, Fault> {
        self.draft(id)?;
        Ok(self.path(id))
    }

    fn path(&self, id: &ExtensionId) -> PathBuf {
        self.root.join(DRAFTS).join(id.as_str())
    }

    /// Where a draft of that id can be made; none where there is something already.
    pub fn vacant(&self, id: &ExtensionId) -> Result<Option<PathBuf>, Fault> {
        let taken = inside(&self.data, DRAFTS)?.symlink_metadata(id.as_str()).is_ok();
        Ok((!taken).then(|| self.path(id)))
    }

    /// Whether the draft has code of its own.
    pub fn is_native(&self, id: &ExtensionId) -> Result<bool, Fault> {
        Ok(is_file(&self.draft(id)?, "Cargo.toml"))
    }

    /// Writes a file, whole. A library that was compiled from what was there before is no longer the draft's.
    pub fn write(&self, id: &ExtensionId, file: &str, content: &str) -> Result<(), Fault> {
        let place = Place::new(file)?;
        if content.len() > LARGEST {
            return Err(Fault::invalid(format!("a file of a draft has at most {LARGEST} bytes")));
        }
        self.data.create_dir_all(Path::new(DRAFTS).join(id.as_str()))?;
        let draft = self.draft(id)?;
        let folder = match place.folder() {
            Some(inner) => {
                draft.create_dir_all(inner)?;
                inside(&draft, inner)?
            }
            None => draft.try_clone()?,
        };
        if folder.symlink_metadata(place.name()).is_err() && folder.entries()?.count() >= FILES {
            return Err(Fault::invalid(format!("a folder of a draft has at most {FILES} files")));
        }
        drop_libraries(&draft)?;
        replace(&folder, place.name(), &mut content.as_bytes())?;
        Ok(())
    }

    /// Reads a file of a draft, at most 256 KiB of text.
    pub fn read(&self, id: &ExtensionId, file: &str) -> Result<String, Fault> {
        let place = Place::new(file)?;
        let draft = self.draft(id)?;
        let missing = || Fault::not_found(format!("the draft of `{id}` has no readable file `{file}`"));
        let folder = match place.folder() {
            Some(inner) => inside(&draft, inner).map_err(|_| missing())?,
            None => draft,
        };
        if !is_file(&folder, place.name()) {
            return Err(missing());
        }
        let mut text = String::new();
        let opened = folder.open(place.name()).map_err(|_| missing())?;
        opened.take(LARGEST as u64 + 1).read_to_string(&mut text).map_err(|_| missing())?;
        if text.len() > LARGEST {
            return Err(Fault::invalid(format!("`{file}` has more than {LARGEST} bytes")));
        }
        Ok(text)
    }

    /// Takes a library into a draft, from a folder beneath the data folder, in place of any other. Gives its size.
    pub fn take_library(&self, id: &ExtensionId, from: &Path, name: &str) -> Result<u64, Fault> {
        let draft = self.draft(id)?;
        let built = self.data.open_dir(from).and_then(|folder| open_file(&folder, name));
        let (mut library, size) = built
            .map_err(|error| Fault::internal(format!("the library `{name}` cannot be read: {error}")))?;
        if size > LARGEST_LIBRARY {
            let message = format!("the library has {size} bytes; {LARGEST_LIBRARY} are the most");
            return Err(Fault::invalid(message).help("depend on fewer or smaller crates"));
        }
        drop_libraries(&draft)?;
        replace(&draft, name, &mut library)?;
        Ok(size)
    }

    /// The library of a draft, if it was compiled since the last change.
    pub fn library(&self, id: &ExtensionId) -> Result<Option<String>, Fault> {
        Ok(libraries(&self.draft(id)?)?.into_iter().next())
    }

    /// Copies what makes up a draft into a folder of the extension's name, for handing it over.
    pub fn copy(&self, id: &ExtensionId) -> Result<PathBuf, Fault> {
        let draft = self.draft(id)?;
        self.drop_copy(id)?;
        let place = Path::new(COPIES).join(id.as_str());
        self.data.create_dir_all(&place)?;
        let copy = self.data.open_dir(&place)?;
        copy_files(&draft, &copy, |name| {
            Place::new(name).is_ok() || name == "Cargo.lock" || is_library(name)
        })?;
        if draft.symlink_metadata("src").is_ok_and(|m| m.is_dir()) {
            copy.create_dir("src")?;
            copy_files(&draft.open_dir("src")?, &copy.open_dir("src")?, |name| {
                Place::new(&format!("src/{name}")).is_ok()
            })?;
        }
        Ok(self.root.join(place))
    }

    /// The hash of all files of a copy, with their names.
    pub fn hash(&self, id: &ExtensionId) -> Result<String, Fault> {
        let copy = self.data.open_dir(Path::new(COPIES).join(id.as_str()))?;
        let mut hash = Sha256::new();
        digest(&copy, "", &mut hash)?;
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Writes the only file of an agent that is no draft and never handed over. Gives its folder.
    pub fn place(&self, id: &ExtensionId, manifest: &str) -> Result<PathBuf, Fault> {
        let place = Path::new(OWN).join(id.as_str());
        self.data.create_dir_all(&place)?;
        replace(&self.data.open_dir(&place)?, "manifest.yaml", &mut manifest.as_bytes())?;
        Ok(self.root.join(place))
    }

    /// Removes the copy that was handed over, if there is one.
    pub fn drop_copy(&self, id: &ExtensionId) -> Result<(), Fault> {
        remove(&self.data, &Path::new(COPIES).join(id.as_str()))
    }

    /// Removes a draft, if there is one.
    pub fn forget(&self, id: &ExtensionId) -> Result<(), Fault> {
        remove(&self.data, &Path::new(DRAFTS).join(id.as_str()))
    }

    fn draft(&self, id: &ExtensionId) -> Result<Dir, Fault> {
        let missing = |_| {
            Fault::not_found(format!("there is no draft of `{id}`"))
                .help("begin with `builder_draft`, or `builder_draft_native` for one with code")
        };
        let drafts = inside(&self.data, DRAFTS)?;
        inside(&drafts, id.as_str()).map_err(missing)
    }
}

/// A folder that is one, and no link to one.
fn inside(folder: &Dir, name: &str) -> io::Result<Dir> {
    match folder.symlink_metadata(name)?.is_dir() {
        true => folder.open_dir(name),
        false => Err(io::Error::new(ErrorKind::NotADirectory, format!("`{name}` is no folder"))),
    }
}

fn is_file(folder: &Dir, name: &str) -> bool {
    folder.symlink_metadata(name).is_ok_and(|metadata| metadata.is_file())
}

/// A file that is one, and no link, pipe or device, which opening could wait for; and its size.
fn open_file(folder: &Dir, name: &str) -> io::Result<(cap_std::fs::File, u64)> {
    let metadata = folder.symlink_metadata(name)?;
    match metadata.is_file() {
        true => Ok((folder.open(name)?, metadata.len())),
        false => Err(io::Error::new(ErrorKind::InvalidInput, format!("`{name}` is no file"))),
    }
}

/// Writes beside the file, then takes its place: what was a link before is a file then.
fn replace(folder: &Dir, name: &str, content: &mut impl io::Read) -> io::Result<()> {
    let part = format!(".{name}.part");
    match folder.remove_file(&part) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = folder.open_with(&part, OpenOptions::new().write(true).create_new(true))?;
    io::copy(content, &mut file)?;
    file.flush()?;
    folder.rename(&part, folder, name)
}

fn is_library(name: &str) -> bool {
    name.ends_with(DLL_SUFFIX) && !name.starts_with('.')
}

fn libraries(folder: &Dir) -> io::Result<Vec<String>> {
    let names = folder.entries()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| is_library(name)).collect())
}

fn drop_libraries(folder: &Dir) -> io::Result<()> {
    libraries(folder)?.iter().try_for_each(|name| folder.remove_file(name))
}

fn copy_files(from: &Dir, to: &Dir, wanted: impl Fn(&str) -> bool) -> Result<(), Fault> {
    for entry in from.entries()? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if wanted(&name) && entry.file_type()?.is_file() {
            replace(to, &name, &mut from.open(&name)?)?;
        }
    }
    Ok(())
}

/// Each file with its place and its length before it, so that no two folders have the same bytes.
fn digest(folder: &Dir, place: &str, hash: &mut Sha256) -> io::Result<()> {
    let mut entries = folder.entries()?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(cap_std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let named = format!("{place}{}", name.to_string_lossy());
        if entry.file_type()?.is_dir() {
            digest(&folder.open_dir(&name)?, &format!("{named}/"), hash)?;
            continue;
        }
        let mut file = folder.open(&name)?;
        hash.update(format!("{named}\0{}\0", file.metadata()?.len()));
        let mut piece = [0; 16 * 1024];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                read => hash.update(&piece[..read]),
            }
        }
    }
    Ok(())
}

fn remove(data: &Dir, path: &Path) -> Result<(), Fault> {
    match data.remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
