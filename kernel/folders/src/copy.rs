//! Copies an extension that the operator names. Bounded: what is large or strange is refused before it fills the disk.
//!
//! Who hands it over may go on changing it. So everything is read through descriptors, each opened from the one of its
//! folder without following a link: what was a folder a moment ago and is a link now is refused.

use std::{
    ffi::{CStr, OsStr},
    fs::{self, File, Metadata},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Component, Path},
};

use drupe_confine::{make_beneath, open_beneath, open_root};
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, renameat_with, statat},
    io::Errno,
};

use crate::{
    content::left_out,
    discovery::kind_of,
    regular::{self, about},
};

/// The most files and folders that an extension may have to be copied.
pub const ENTRIES: usize = 256;

/// The most bytes that its files may have together.
pub const BYTES: u64 = 64 * 1024 * 1024;

/// How deep its folders may be nested.
pub const DEPTH: usize = 16;

/// Copies a folder, or a single file, to where there is nothing yet. Left out are names that begin with a dot, and a
/// folder `target` at the top. When it returns, the copy outlasts a loss of power; its entry in the folder above is the
/// caller's, who gives it its final name. `from` itself may be a link to a folder.
///
/// # Errors
///
/// Where there is something else than folders and files in it, it is over a bound, or it cannot be read or written; what
/// was copied until then is still there.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let unread = |error| about(&error, from.display());
    let mut room = Room { entries: ENTRIES, bytes: BYTES };
    if fs::metadata(from).map_err(unread)?.is_dir() {
        return room.folder(&File::open(from).map_err(unread)?.into(), from, to, 0);
    }
    let (file, meta) = regular::open(from).map_err(unread)?;
    room.file(file, &meta, from, to)
}

/// The same for what lies in a folder that somebody else writes. Nothing is read that is not beneath `root`, whatever is
/// exchanged for a link meanwhile.
///
/// # Errors
///
/// As those of [`copy`]; also where `path` does not name something beneath `root`, or there is a link on the way.
pub fn copy_beneath(root: &Path, path: &Path, to: &Path) -> io::Result<()> {
    let within = within(root, path)?;
    let unread = |error| about(&error, path.display());
    let opened = open_beneath(open_root(root).map_err(unread)?, within, READ, Mode::empty());
    let opened = File::from(opened.map_err(unread)?);
    let meta = opened.metadata().map_err(unread)?;
    let mut room = Room { entries: ENTRIES, bytes: BYTES };
    match meta.is_dir() {
        true => room.folder(&opened.into(), path, to, 0),
        false => room.file(opened, &meta, path, to),
    }
}

/// Moves what we made into a folder that somebody else writes, under a name that is free there.
///
/// # Errors
///
/// Where `path` does not name something beneath `root`, there is a link on the way, its folder does not exist, or
/// something of the name does.
pub fn place_beneath(made: &Path, root: &Path, path: &Path) -> io::Result<()> {
    let failed = |error| about(&error, path.display());
    let within = within(root, path)?;
    let (Some(folder), Some(name)) = (within.parent(), within.file_name()) else {
        return Err(failed(io::Error::other("it has no name")));
    };
    let mut parent = open_root(root).map_err(failed)?;
    if folder != Path::new("") {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        parent = open_beneath(parent, folder, flags, Mode::empty()).map_err(failed)?;
    }
    renameat_with(CWD, made, parent, name, RenameFlags::NOREPLACE).map_err(|error| failed(error.into()))
}

/// How files and folders are opened: without waiting for a pipe.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A path as it is named from a root, without `.` and `..`.
fn within<'a>(root: &Path, path: &'a Path) -> io::Result<&'a Path> {
    let within = path.strip_prefix(root).ok();
    let plain = |within: &&Path| within.components().all(|part| matches!(part, Component::Normal(_)));
    within.filter(plain).filter(|within| *within != Path::new("")).ok_or_else(|| {
        let message = format!("`{}` is not in `{}`", path.display(), root.display());
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    })
}

struct Room {
    entries: usize,
    bytes: u64,
}

impl Room {
    /// `path` is where it was found, for errors alone.
    fn folder(&mut self, from: &OwnedFd, path: &Path, to: &Path, depth: usize) -> io::Result<()> {
        if depth > DEPTH {
            return Err(io::Error::other(format!("its folders are nested deeper than {DEPTH}")));
        }
        let unread = |error: Errno| about(&error.into(), path.display());
        make_beneath(to.parent().unwrap_or(to), to).map_err(|error| about(&error, to.display()))?;
        for entry in Dir::read_from(from).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            let name = entry.file_name();
            let shown = OsStr::from_bytes(name.to_bytes());
            if matches!(name.to_bytes(), b"." | b"..")
                || shown.to_str().is_some_and(|name| left_out(name, depth))
            {
                continue;
            }
            self.entries = self
                .entries
                .checked_sub(1)
                .ok_or_else(|| io::Error::other(format!("it has more than {ENTRIES} files and folders")))?;
            self.entry(from, name, &path.join(shown), &to.join(shown), depth)?;
        }
        File::open(to)?.sync_all()
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        name: &CStr,
        path: &Path,
        to: &Path,
        depth: usize,
    ) -> io::Result<()> {
        let unread = |error: io::Error| about(&error, path.display());
        // Before it is opened, which a device could feel.
        let seen = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| unread(error.into()))?;
        if !matches!(FileType::from_raw_mode(seen.st_mode), FileType::Directory | FileType::RegularFile) {
            return Err(strange(path, kind_of(seen.st_mode)));
        }
        let name = Path::new(OsStr::from_bytes(name.to_bytes()));
        let opened = File::from(open_beneath(folder.as_fd(), name, READ, Mode::empty()).map_err(unread)?);
        let meta = opened.metadata().map_err(unread)?;
        match meta.is_dir() {
            true => self.folder(&opened.into(), path, to, depth + 1),
            false => self.file(opened, &meta, path, to),
        }
    }

    fn file(&mut self, mut source: File, meta: &Metadata, path: &Path, to: &Path) -> io::Result<()> {
        if !meta.is_file() {
            return Err(strange(path, kind_of(meta.mode())));
        }
        let target = regular::create(to, regular::executable(meta));
        let mut target = target.map_err(|error| about(&error, to.display()))?;
        // What is read counts, not what the file said of itself: it may grow meanwhile.
        let left = self.bytes;
        let (read, _) =
            regular::digest(&mut source, left + 1, |bytes| io::Write::write_all(&mut target, bytes))
                .map_err(|error| about(&error, path.display()))?;
        self.bytes = left.checked_sub(read).ok_or_else(|| {
            io::Error::other(format!("its files have more than {} MiB", BYTES / 1024 / 1024))
        })?;
        target.sync_all()
    }
}

fn strange(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("`{}` is {what}, neither a file nor a folder", path.display()))
}

#[cfg(test)]
mod tests;
