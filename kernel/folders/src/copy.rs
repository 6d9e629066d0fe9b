//! Copies an extension that somebody hands us. Bounded: what is large or strange is refused before it fills the disk.

use std::{fs, io, path::Path};

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
/// caller's, who gives it its final name.
///
/// # Errors
///
/// Where there is something else than folders and files in it, it is over a bound, or it cannot be read or written; what
/// was copied until then is still there.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut room = Room { entries: ENTRIES, bytes: BYTES };
    match fs::metadata(from).map_err(|error| about(&error, from.display()))?.is_dir() {
        true => room.folder(from, to, 0),
        false => room.file(from, to),
    }
}

struct Room {
    entries: usize,
    bytes: u64,
}

impl Room {
    fn folder(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        if depth > DEPTH {
            return Err(io::Error::other(format!("its folders are nested deeper than {DEPTH}")));
        }
        let unread = |error| about(&error, from.display());
        fs::create_dir_all(to).map_err(|error| about(&error, to.display()))?;
        for entry in fs::read_dir(from).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            let (name, path) = (entry.file_name(), entry.path());
            if name.to_str().is_some_and(|name| left_out(name, depth)) {
                continue;
            }
            self.entries = self
                .entries
                .checked_sub(1)
                .ok_or_else(|| io::Error::other(format!("it has more than {ENTRIES} files and folders")))?;
            let kind = entry.file_type().map_err(unread)?;
            if kind.is_dir() {
                self.folder(&path, &to.join(name), depth + 1)?;
            } else if kind.is_file() {
                self.file(&path, &to.join(name))?;
            } else {
                let message =
                    format!("`{}` is {}, neither a file nor a folder", path.display(), kind_of(kind));
                return Err(io::Error::other(message));
            }
        }
        fs::File::open(to)?.sync_all()
    }

    fn file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut source, meta) = regular::open(from).map_err(|error| about(&error, from.display()))?;
        let target = regular::create(to, regular::executable(&meta));
        let mut target = target.map_err(|error| about(&error, to.display()))?;
        // What is read counts, not what the file said of itself: it may grow meanwhile.
        let left = self.bytes;
        let (read, _) =
            regular::digest(&mut source, left + 1, |bytes| io::Write::write_all(&mut target, bytes))
                .map_err(|error| about(&error, from.display()))?;
        self.bytes = left.checked_sub(read).ok_or_else(|| {
            io::Error::other(format!("its files have more than {} MiB", BYTES / 1024 / 1024))
        })?;
        target.sync_all()
    }
}

#[cfg(test)]
mod tests;
