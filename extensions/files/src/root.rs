//! Files beneath one folder.
//!
//! All opening goes through a handle of that folder, which refuses whatever leads out of it, also when
//! something is renamed or replaced meanwhile. A name is looked at before it is opened, because opening a
//! device can have an effect, and the open file again, because the name may have changed.

use std::{
    ffi::OsStr,
    io::{ErrorKind, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::ffi::OsStrExt as _},
    path::{Component, Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, FileType, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _},
};
use drupe_extension_api::{Fault, FaultCode, ImageType};
use drupe_pdf_text::{PDF, is_pdf};
use rustix::fs::{OFlags, RenameFlags};
use sha2::{Digest as _, Sha256};

use crate::{
    change::{FileChange, FileContent, FileState, as_text},
    marks::{self, MarkedText},
};

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The longest file that is read or written.
    pub file_bytes: u64,
    /// The most that one call gives back.
    pub output_bytes: usize,
}

/// The largest file that is sent, as the daemon takes it.
const LONGEST_SENT: u64 = 50_000_000;

/// What of a file can be read.
pub enum Readable {
    Text(MarkedText),
    /// Something that begins as a picture does, and whether strangers may have made it.
    Picture {
        bytes: Vec<u8>,
        strangers: bool,
    },
    /// A PDF, and whether strangers may have made it.
    Pdf {
        bytes: Vec<u8>,
        strangers: bool,
    },
}

/// What a person is told of a file that goes out.
pub struct SentFacts {
    /// Where it is, relative to the workspace.
    pub path: String,
    pub bytes: u64,
    /// SHA-256 of its bytes, in hex.
    pub hash: String,
    /// Whether strangers may have made it.
    pub strangers: bool,
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
    pub fn read(&self, name: &str) -> Result<MarkedText, Fault> {
        text(name, self.open_regular(name)?, self.bounds.file_bytes)
    }

    /// The text of a file, or the picture or the PDF that it is.
    pub fn look(&self, name: &str) -> Result<Readable, Fault> {
        let (bytes, strangers) = bytes(name, self.open_regular(name)?, self.bounds.file_bytes)?;
        Ok(match as_text(&bytes) {
            None if ImageType::of(&bytes).is_some() => Readable::Picture { bytes, strangers },
            None if is_pdf(&bytes) => Readable::Pdf { bytes, strangers },
            // One of letters alone is a PDF by its very beginning; a text may name the sign of one further on.
            Some(_) if bytes.starts_with(PDF) => Readable::Pdf { bytes, strangers },
            _ => Readable::Text(text_of(name, bytes, strangers)?),
        })
    }

    /// What a file is that is to be sent. It may be longer than one that is read.
    pub fn facts(&self, name: &str) -> Result<SentFacts, Fault> {
        let path = self.relative(name)?;
        let path: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let mut file = self.open_regular(name)?;
        let strangers = marks::is_marked(&file);
        let (mut part, mut bytes, mut hash) = (vec![0; 64 << 10], 0, Sha256::new());
        loop {
            let length = file.read(&mut part).map_err(|error| explain(name, &error))?;
            if length == 0 {
                break;
            }
            bytes += length as u64;
            hash.update(&part[..length]);
            if bytes > LONGEST_SENT {
                let message =
                    format!("`{name}` has more than {} MB, the most that is sent", LONGEST_SENT / 1_000_000);
                return Err(Fault::invalid(message));
            }
        }
        let hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let path =
            path.to_str().ok_or_else(|| Fault::invalid(format!("`{name}` has a name that is not UTF-8")))?;
        Ok(SentFacts { path: path.to_owned(), bytes, hash, strangers })
    }

    fn open_regular(&self, name: &str) -> Result<File, Fault> {
        let path = self.relative(name)?;
        let metadata = self.dir.metadata(&path).map_err(|error| explain(name, &error))?;
        regular(name, &metadata)?;
        self.open_file(name, &path)
    }

    fn open_file(&self, name: &str, path: &Path) -> Result<File, Fault> {
        let mut options = OpenOptions::new();
        // A pipe that took the file's place must not make the call wait for a writer.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        self.dir.open_with(path, &options).map_err(|error| explain(name, &error))
    }

    /// What a file that is to be changed holds, or that there is none. Refuses what must not be replaced.
    pub fn state(&self, name: &str) -> Result<FileState, Fault> {
        let path = self.relative(name)?;
        if path.file_name().is_none() {
            return Err(Fault::invalid(format!("`{name}` names no file")));
        }
        let metadata = match self.dir.symlink_metadata(&path) {
            Ok(metadata) => replaceable(name, metadata)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(FileState::Absent),
            Err(error) => return Err(explain(name, &error)),
        };
        if metadata.len() > self.bounds.file_bytes {
            let changed = format!("{}.{}", metadata.mtime(), metadata.mtime_nsec());
            return Ok(FileState::Long { bytes: metadata.len(), changed });
        }
        let (bytes, strangers) = bytes(name, self.open_file(name, &path)?, self.bounds.file_bytes)?;
        Ok(FileState::Held(FileContent { bytes, strangers }))
    }

    /// The folders above a file that are not there, the outermost first.
    pub fn missing_folders(&self, path: &Path) -> Vec<PathBuf> {
        let above = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        let mut missing: Vec<_> = above
            .take_while(|folder| self.dir.symlink_metadata(folder).is_err())
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        missing
    }

    /// Does a change. What takes a file's place keeps its mode.
    pub fn apply(&self, change: &FileChange) -> Result<(), Fault> {
        let name = &change.name;
        let (dir, file, old) = self.place(name, &change.path)?;
        if let Some(from) = &change.from {
            let was = from.to_string_lossy();
            let (old_dir, old_file, found) = self.place(&was, from)?;
            let moves = found.is_some() && old.is_none();
            if !moves {
                return Err(Fault::invalid(format!("`{was}` cannot become `{name}` any more")));
            }
            // Where somebody makes a file of that name at this moment, it is not replaced.
            return rustix::fs::renameat_with(&old_dir, old_file, &dir, file, RenameFlags::NOREPLACE)
                .map_err(|error| explain(name, &error.into()));
        }
        let Some(content) = &change.after else {
            return dir.remove_file(file).map_err(|error| explain(name, &error));
        };
        let new = format!(".{}.new", file.to_string_lossy());
        let written = replace(&dir, &new, file.as_ref(), content, old.as_ref());
        written.map_err(|error| {
            // What is left of it is of no use; the fault that matters is the first.
            let _ = dir.remove_file(&new);
            explain(name, &error)
        })
    }

    /// The open folder of a file that is to be changed, its name there, and what it is where there is one.
    fn place<'a>(&self, name: &str, path: &'a Path) -> Result<(Dir, &'a OsStr, Option<Metadata>), Fault> {
        let file = path.file_name().ok_or_else(|| Fault::invalid(format!("`{name}` names no file")))?;
        no_repository(name, path)?;
        let dir = self.folder_for(name, path.parent().unwrap_or(Path::new("")))?;
        // Links may have led elsewhere. What is open is where it says, whatever its name leads to by now.
        let led_to = rustix::fs::readlink(format!("/proc/self/fd/{}", dir.as_raw_fd()), Vec::new())
            .map_err(|error| explain(name, &error.into()))?;
        no_repository(name, Path::new(OsStr::from_bytes(led_to.as_bytes())))?;
        match dir.symlink_metadata(file) {
            Ok(metadata) => Ok((dir, file, Some(replaceable(name, metadata)?))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((dir, file, None)),
            Err(error) => Err(explain(name, &error)),
        }
    }

    /// Removes those folders that are empty, the innermost first.
    pub fn remove_folders(&self, folders: &[PathBuf]) {
        for folder in folders.iter().rev() {
            // One that somebody put something into stays.
            if self.dir.remove_dir(folder).is_err() {
                return;
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// That a file is longer than may be.
    pub fn too_long(&self, name: &str) -> Fault {
        too_long(name, self.bounds.file_bytes)
    }

    /// Refuses what is longer than a file may be.
    pub fn fits(&self, name: &str, content: &str) -> Result<(), Fault> {
        let (bytes, most) = (content.len(), self.bounds.file_bytes);
        match bytes as u64 > most {
            true => Err(Fault::invalid(format!("`{name}` would have {bytes} bytes, the limit is {most}"))),
            false => Ok(()),
        }
    }

    /// Whether what has this name in a folder bears a mark.
    pub fn is_name_marked(&self, folder: &str, name: &str) -> bool {
        self.relative(folder).is_ok_and(|folder| marks::is_name_marked(&self.path.join(folder).join(name)))
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

/// Refuses what lies in the folder that git keeps a repository in, or takes its place: programs that its files name run at the
/// next command, of a person too.
fn no_repository(name: &str, path: &Path) -> Result<(), Fault> {
    match path.components().any(|part| part.as_os_str() == ".git") {
        true => Err(Fault::denied(format!("`{name}` belongs to a git repository's own files"))
            .help("git changes them: run it by the tool of the shell, or do it yourself")),
        false => Ok(()),
    }
}

/// Writes beside the file, then takes its place: a reader or a crash sees the old or the new one.
fn replace(
    dir: &Dir,
    new: &str,
    file: &Path,
    content: &FileContent,
    old: Option<&Metadata>,
) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut out = match dir.open_with(new, &options) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            dir.remove_file(new)?;
            dir.open_with(new, &options)?
        }
        opened => opened?,
    };
    if content.strangers {
        marks::mark(&out)?;
    }
    out.write_all(&content.bytes)?;
    if let Some(old) = old {
        out.set_permissions(old.permissions())?;
    }
    out.sync_all()?;
    dir.rename(new, dir, file)
}

/// The text of an open file.
pub fn text(name: &str, file: File, limit: u64) -> Result<MarkedText, Fault> {
    let (bytes, strangers) = bytes(name, file, limit)?;
    text_of(name, bytes, strangers)
}

fn text_of(name: &str, bytes: Vec<u8>, strangers: bool) -> Result<MarkedText, Fault> {
    match as_text(&bytes) {
        Some(_) => Ok(MarkedText { text: String::from_utf8(bytes).unwrap_or_default(), strangers }),
        None => Err(binary(name, &bytes)),
    }
}

/// That a file is none of text, and what it is instead, where its beginning says so.
pub fn binary(name: &str, bytes: &[u8]) -> Fault {
    let kind = infer::get(bytes).map(|kind| format!(" ({})", kind.mime_type())).unwrap_or_default();
    Fault::invalid(format!("`{name}` is a binary file of {} bytes{kind}", bytes.len()))
}

/// All of an open file, and whether it bears the mark.
fn bytes(name: &str, file: File, limit: u64) -> Result<(Vec<u8>, bool), Fault> {
    let strangers = marks::is_marked(&file);
    let metadata = file.metadata().map_err(|error| explain(name, &error))?;
    regular(name, &metadata)?;
    let size = metadata.len();
    if size > limit {
        return Err(too_long(name, limit));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| explain(name, &error))?;
    if bytes.len() as u64 > limit {
        return Err(too_long(name, limit));
    }
    Ok((bytes, strangers))
}

fn too_long(name: &str, limit: u64) -> Fault {
    Fault::invalid(format!("`{name}` is longer than the limit of {limit} bytes"))
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
