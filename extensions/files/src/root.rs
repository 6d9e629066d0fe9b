//! Files beneath one folder.
//!
//! All opening goes through a handle of that folder, which refuses whatever leads out of it, also when
//! something is renamed or replaced meanwhile. A name is looked at before it is opened, because opening a
//! device can have an effect, and the open file again, because the name may have changed.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    path::{Component, Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, FileType, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _},
};
use drupe_extension_api::{Fault, FaultCode};
use rustix::fs::OFlags;

/// Of what is looked at to tell text from other content: as much as common tools do.
const SNIFF: usize = 8000;

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The longest file that is read or written.
    pub file_bytes: u64,
    /// The most that one call gives back.
    pub output_bytes: usize,
}

/// The workspace.
pub struct Root {
    dir: Dir,
    path: PathBuf,
    base: PathBuf,
    bounds: Bounds,
}

impl Root {
    /// Opens the workspace. `base`, if it lies in there, is where relative paths begin.
    pub fn open(workspace: &Path, base: &str, bounds: Bounds) -> Result<Self, Fault> {
        let dir = Dir::open_ambient_dir(workspace, ambient_authority()).map_err(|error| {
            let message = format!("the workspace {} cannot be opened: {error}", workspace.display());
            Fault::new(FaultCode::NotConfigured, message)
        })?;
        let base = Path::new(base).strip_prefix(workspace).unwrap_or(Path::new("")).to_owned();
        Ok(Self { dir, path: workspace.to_owned(), base, bounds })
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// A path as the handle takes it. Refuses by its form what cannot be beneath the root; the handle
    /// refuses what is not.
    pub fn relative(&self, path: &str) -> Result<PathBuf, Fault> {
        let given = Path::new(path);
        let path = match given.strip_prefix(&self.path) {
            Ok(beneath) => beneath.to_owned(),
            Err(_) if given.is_absolute() => return Err(outside(path)),
            Err(_) => self.base.join(given),
        };
        let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !plain || path.to_string_lossy().contains('\0') {
            return Err(outside(&given.to_string_lossy()));
        }
        Ok(path)
    }

    /// The text of a file.
    pub fn read(&self, name: &str) -> Result<String, Fault> {
        let path = self.relative(name)?;
        let metadata = self.dir.metadata(&path).map_err(|error| explain(name, &error))?;
        regular(name, &metadata)?;
        let mut options = OpenOptions::new();
        // A pipe that took the file's place must not make the call wait for a writer.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = self.dir.open_with(&path, &options).map_err(|error| explain(name, &error))?;
        text(name, file, self.bounds.file_bytes)
    }

    /// Replaces or makes a file as a whole; whether it was made.
    pub fn write(&self, name: &str, content: &str) -> Result<bool, Fault> {
        if content.len() as u64 > self.bounds.file_bytes {
            let message = format!(
                "`{name}` would have {} bytes, the limit is {}",
                content.len(),
                self.bounds.file_bytes
            );
            return Err(Fault::invalid(message));
        }
        let path = self.relative(name)?;
        let file = path.file_name().ok_or_else(|| Fault::invalid(format!("`{name}` names no file")))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let dir = self.folder_for(name, folder)?;
        let old = match dir.symlink_metadata(file) {
            Ok(metadata) => Some(replaceable(name, metadata)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(explain(name, &error)),
        };
        let new = format!(".{}.new", file.to_string_lossy());
        let written = replace(&dir, &new, file.as_ref(), content, old.as_ref());
        written.map_err(|error| {
            // What is left of it is of no use; the fault that matters is the first.
            let _ = dir.remove_file(&new);
            explain(name, &error)
        })?;
        Ok(old.is_none())
    }

    /// A folder beneath the root, or the root.
    pub fn folder(&self, name: &str) -> Result<Dir, Fault> {
        let path = self.relative(name)?;
        self.folder_at(&path).map_err(|error| explain(name, &error))
    }

    pub fn is_folder(&self, name: &str) -> Result<bool, Fault> {
        let path = self.relative(name)?;
        if path.as_os_str().is_empty() {
            return Ok(true);
        }
        Ok(self.dir.metadata(&path).map_err(|error| explain(name, &error))?.is_dir())
    }

    fn folder_at(&self, path: &Path) -> std::io::Result<Dir> {
        match path.as_os_str().is_empty() {
            true => self.dir.try_clone(),
            false => self.dir.open_dir(path),
        }
    }

    /// The folder of a file that shall be written; made where it is missing.
    fn folder_for(&self, name: &str, folder: &Path) -> Result<Dir, Fault> {
        let opened = match self.folder_at(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.dir.create_dir_all(folder).and_then(|()| self.folder_at(folder))
            }
            opened => opened,
        };
        opened.map_err(|error| explain(name, &error))
    }
}

/// Writes beside the file, then takes its place: a reader or a crash sees the old or the new one.
fn replace(dir: &Dir, new: &str, file: &Path, content: &str, old: Option<&Metadata>) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut out = match dir.open_with(new, &options) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            dir.remove_file(new)?;
            dir.open_with(new, &options)?
        }
        opened => opened?,
    };
    out.write_all(content.as_bytes())?;
    if let Some(old) = old {
        out.set_permissions(old.permissions())?;
    }
    out.sync_all()?;
    dir.rename(new, dir, file)
}

/// The text of an open file.
pub fn text(name: &str, file: File, limit: u64) -> Result<String, Fault> {
    let metadata = file.metadata().map_err(|error| explain(name, &error))?;
    regular(name, &metadata)?;
    let size = metadata.len();
    let too_long = || Fault::invalid(format!("`{name}` is longer than the limit of {limit} bytes"));
    if size > limit {
        return Err(too_long());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| explain(name, &error))?;
    if bytes.len() as u64 > limit {
        return Err(too_long());
    }
    let binary = || Fault::invalid(format!("`{name}` is a binary file of {} bytes", bytes.len()));
    if bytes.iter().take(SNIFF).any(|byte| *byte == 0) {
        return Err(binary());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            Err(Fault::invalid(format!("`{name}` is a binary file of {} bytes", error.as_bytes().len())))
        }
    }
}

fn regular(name: &str, metadata: &Metadata) -> Result<(), Fault> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(Fault::invalid(format!("`{name}` is {}, not a file", kind(metadata.file_type())))),
    }
}

/// A file that may be replaced. One with a second name may have it outside of the workspace.
fn replaceable(name: &str, metadata: Metadata) -> Result<Metadata, Fault> {
    if metadata.is_symlink() {
        let message = format!("`{name}` is a symbolic link");
        return Err(Fault::denied(message).help("write to the file that it names"));
    }
    regular(name, &metadata)?;
    if metadata.nlink() > 1 {
        let message =
            format!("`{name}` has {} names (hard links), of which some may be elsewhere", metadata.nlink());
        return Err(Fault::denied(message).help("copy it to a new name and write to that"));
    }
    Ok(metadata)
}

pub fn kind(file: FileType) -> &'static str {
    if file.is_dir() {
        "a folder"
    } else if file.is_symlink() {
        "a symbolic link"
    } else {
        "a pipe, socket or device"
    }
}

fn outside(name: &str) -> Fault {
    Fault::denied(format!("`{name}` is outside of the workspace"))
        .help("use a path relative to the workspace, without `..`")
}

/// The fault that names the file; without a code of the system, the handle refused a way out.
pub fn explain(name: &str, error: &std::io::Error) -> Fault {
    match error.kind() {
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => outside(name),
        ErrorKind::NotFound => Fault::not_found(format!("there is no `{name}`")),
        ErrorKind::PermissionDenied => Fault::denied(format!("`{name}` is not accessible: {error}")),
        _ => Fault::new(FaultCode::Other, format!("`{name}`: {error}")),
    }
}
