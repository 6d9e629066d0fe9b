//! Hashes, folders that go by themselves, and writing that lasts.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Copies all of a reader, or up to `most` bytes of it; gives how many these were and their SHA-256.
pub(crate) fn copy_hashed(
    reader: &mut impl Read,
    writer: &mut impl Write,
    most: u64,
) -> io::Result<(u64, String)> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut reader = reader.take(most);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(read);
        writer.write_all(read)?;
        bytes += read.len() as u64;
    }
    Ok((bytes, hex(&hash.finalize())))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file for its owner alone, which was not there.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// A folder for its owner alone, which was not there.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes what a folder lists last.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A folder for what is unfinished: it goes when this is dropped, and is held meanwhile, so that what a process left that was
/// killed can be told from what one is at work with.
pub(crate) struct Unfinished {
    pub path: PathBuf,
    _held: File,
}

impl Unfinished {
    /// Makes it anew; none where another process is at work with it.
    pub fn begin(path: PathBuf) -> io::Result<Option<Self>> {
        match make_folder(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let held = File::open(&path)?;
        if held.try_lock().is_err() {
            return Ok(None);
        }
        for entry in fs::read_dir(&path)?.flatten() {
            let entry = entry.path();
            if entry.is_dir() { fs::remove_dir_all(entry)? } else { fs::remove_file(entry)? }
        }
        Ok(Some(Self { path, _held: held }))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What stays is emptied by the next one.
        let _ = fs::remove_dir_all(&self.path);
    }
}
