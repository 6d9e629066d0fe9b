//! Regular files, and nothing else: opened without waiting and without following a link, told apart by what the file
//! system says of them, hashed, and written so that nobody sees a half of one.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How much is read at once: large enough that the calls do not show beside the hashing.
const CHUNK: usize = 128 * 1024;

/// By what a file is known to be the same as before without reading it. No device number: some file systems give
/// another one after each start of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    size: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self {
            size: meta.len(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Whether the times are at least `age` before `now`, so that a later change cannot bear the same ones.
    pub(crate) fn settled(&self, age: Duration, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.modified.max(self.changed);
        let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(seconds), u32::try_from(nanoseconds)) else {
            return true;
        };
        let latest = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        now.duration_since(latest).is_ok_and(|since| since >= age)
    }
}

/// Whether anybody may execute the file.
pub(crate) fn executable(meta: &Metadata) -> bool {
    meta.mode() & 0o111 != 0
}

/// Opens a regular file for reading. A pipe that took its place in the meantime does not hold us up.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() { Ok((file, meta)) } else { Err(io::Error::other("it is no regular file")) }
}

/// Reads at most `most` bytes, hands them on, and returns how many there were and their hash.
pub(crate) fn digest(
    file: &mut File,
    most: u64,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(u64, String)> {
    let (mut hash, mut read, mut buffer) = (Sha256::new(), 0, vec![0; CHUNK]);
    let mut limited = file.take(most);
    loop {
        match limited.read(&mut buffer) {
            Ok(0) => return Ok((read, hex(&hash.finalize()))),
            Ok(count) => {
                hash.update(&buffer[..count]);
                each(&buffer[..count])?;
                read += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The digits of a hash.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
        .map(char::from)
        .collect()
}

/// A name beside `path` that nobody uses, hidden from discovery. What a crash left under such a name is not in the way,
/// even where every start has the same process number.
pub(crate) fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let free = path.with_file_name(format!(".{name}.{}-{number}", process::id()));
        if fs::symlink_metadata(&free).is_err() {
            return free;
        }
    }
}

/// A new file that only its owner may read.
pub(crate) fn create(path: &Path, executable: bool) -> io::Result<File> {
    let mode = if executable { 0o700 } else { 0o600 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Writes a file whole: a reader sees the old one or the new one, and no part of one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let staged = beside(path);
    let write = || {
        let mut file = create(&staged, false)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&staged, path)
    };
    write().inspect_err(|_| {
        // The error that is returned is the one that matters.
        let _ = fs::remove_file(&staged);
    })
}

/// The same error with what it is about.
pub(crate) fn about(error: &io::Error, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Copies a file to a place that it gets only when its bytes are the ones that are expected.
pub(crate) fn copy(mut from: File, to: &Path, executable: bool, hash: &str, size: u64) -> io::Result<()> {
    let staged = beside(to);
    let mut write = || {
        let mut file = create(&staged, executable)?;
        let (read, real) = digest(&mut from, size + 1, |bytes| file.write_all(bytes))?;
        if read != size || real != hash {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its bytes are not those of its hash"));
        }
        fs::rename(&staged, to)
    };
    write().inspect_err(|_| {
        // The error that is returned is the one that matters.
        let _ = fs::remove_file(&staged);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_half_written_is_not_in_the_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        for number in 0..3000 {
            let left = folder.path().join(format!(".a.{}-{number}", process::id()));
            fs::write(left, "half").expect("a file");
        }
        replace(&path, b"whole").expect("written");
        assert_eq!(fs::read(&path).expect("a file"), b"whole");
    }

    #[test]
    fn a_file_is_opened_only_where_it_is_a_regular_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "x").expect("a file");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(open(&file).is_ok());
        assert!(
            open(&link).is_err() && open(folder.path()).is_err() && open(Path::new("/dev/null")).is_err()
        );
    }
}
