//! Makes an extension again as it was kept. Whoever looks sees the old one or the new one, never a half.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use drupe_confine::make_beneath;
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use super::{Entry, Generations};
use crate::{
    discovery::Kind,
    regular::{self, about},
};

impl Generations {
    /// Makes `<into>/<id>/…` or `<into>/<id>.md` as it was in that set, in place of what is there, and returns its
    /// path. Every file is verified.
    ///
    /// # Errors
    ///
    /// Where the set or the id is not there, a file is missing or damaged, or `into` cannot be written; each names what
    /// it is about. What was there before is then still there.
    pub fn restore(&self, name: &str, id: &str, into: &Path) -> io::Result<PathBuf> {
        let set = self.read(name)?;
        let entry = set.entries.get(id).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("the set `{name}` has no extension `{id}`"))
        })?;
        make_beneath(into.parent().unwrap_or(into), into).map_err(|error| about(&error, into.display()))?;
        let target = match entry.kind {
            Kind::Folder => into.join(id),
            Kind::File => into.join(format!("{id}.md")),
        };
        let staged = regular::beside(&target);
        let made = match entry.kind {
            Kind::Folder => make_beneath(into, &staged).and_then(|()| self.fill(entry, &staged)),
            Kind::File => self.single(entry, &staged),
        };
        let placed =
            made.and_then(|()| put(&staged, &target).map_err(|error| about(&error, target.display())));
        // After an exchange this is the old one.
        let _ = remove(&staged);
        placed.map(|()| target)
    }

    fn fill(&self, entry: &Entry, staged: &Path) -> io::Result<()> {
        let parent = |path: &Path| path.parent().map_or(Ok(()), |parent| make_beneath(staged, parent));
        for file in &entry.files {
            let to = staged.join(&file.path);
            parent(&to)?;
            self.take(&file.hash, file.size, file.executable, &to)?;
        }
        for link in &entry.links {
            let to = staged.join(&link.path);
            parent(&to)
                .and_then(|()| symlink(&link.target, &to))
                .map_err(|error| about(&error, to.display()))?;
        }
        Ok(())
    }

    fn single(&self, entry: &Entry, staged: &Path) -> io::Result<()> {
        let [file] = entry.files.as_slice() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a single file that is not one file"));
        };
        self.take(&file.hash, file.size, file.executable, staged)
    }

    /// Copies a file out of the store.
    fn take(&self, hash: &str, size: u64, executable: bool, to: &Path) -> io::Result<()> {
        let path = self.file(hash);
        let (from, _) = regular::open(&path).map_err(|error| about(&error, path.display()))?;
        regular::copy(from, to, executable, hash, size).map_err(|error| about(&error, path.display()))
    }
}

/// Puts something in a place, at once, whatever is there; that is then where the new one was.
fn put(staged: &Path, target: &Path) -> io::Result<()> {
    match renameat_with(CWD, staged, CWD, target, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => fs::rename(staged, target),
        // Not every file system can exchange: there is a moment without either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let old = regular::beside(target);
            fs::rename(target, &old)?;
            fs::rename(staged, target).inspect_err(|_| {
                let _ = fs::rename(&old, target);
            })?;
            remove(&old)
        }
        done => Ok(done?),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}
