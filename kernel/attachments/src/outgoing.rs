//! Copies of files that go out with messages, each until it is known what became of its message: what changes meanwhile changes nothing of
//! what is sent.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use drupe_confine::{open_beneath, open_root};
use drupe_extension_api::ImageType;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use crate::FileKind;

/// The largest file that goes out: the most that a bot of Telegram can send (<https://core.telegram.org/bots/api#senddocument>, read on
/// 2026-11-27).
pub const LARGEST_SENT: u64 = 50_000_000;
/// Files that wait to be sent at the same time.
pub const MOST_WAITING: usize = 20;

/// Bytes that are copied at once.
const PART: usize = 64 << 10;

/// Why a file does not go out.
#[derive(Debug)]
pub enum OutgoingError {
    /// There is none at that path of the workspace, or it is no regular file.
    NoFile(String),
    /// It would be the same later.
    Refused(String),
    /// There are too many that wait.
    Busy(String),
    Unreadable(io::Error),
}

impl From<io::Error> for OutgoingError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// A file that was kept to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingFile {
    /// The last part of its path.
    pub name: String,
    pub bytes: u64,
    /// SHA-256 of its bytes, in hex.
    pub hash: String,
    /// Its type as HTTP writes it, where its content tells.
    pub media_type: &'static str,
}

/// The folder of the copies, one for each key of a message.
#[derive(Debug, Clone)]
pub struct OutgoingFiles {
    folder: PathBuf,
}

impl OutgoingFiles {
    /// In a folder that need not be there.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Copies a file of a workspace, in place of what was kept under this key before. It is on the disk when this returns.
    pub fn keep(&self, workspace: &Path, path: &str, key: &str) -> Result<OutgoingFile, OutgoingError> {
        let mut from = self.regular(workspace, path)?;
        make_private(&self.folder)?;
        let own = self.place(key);
        let waiting = fs::read_dir(&self.folder)?.flatten().filter(|entry| entry.path() != own).count();
        if waiting >= MOST_WAITING {
            let message = format!("{waiting} files wait to be sent, and at most {MOST_WAITING} may");
            return Err(OutgoingError::Busy(message));
        }
        let half = own.with_extension("half");
        let copied = copy(&mut from, &half).and_then(|copied| {
            fs::rename(&half, &own)?;
            File::open(&self.folder)?.sync_all()?;
            Ok(copied)
        });
        let (bytes, hash, head) = copied.inspect_err(|_| drop(fs::remove_file(&half)))?;
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Ok(OutgoingFile { name, bytes, hash, media_type: media_type(&head) })
    }

    /// The copy that was kept under a key.
    pub fn open(&self, key: &str) -> io::Result<File> {
        File::open(self.place(key))
    }

    /// Removes what was kept under a key. What cannot be removed goes with the next [`sweep`](Self::sweep).
    pub fn forget(&self, key: &str) {
        let _ = fs::remove_file(self.place(key));
    }

    /// Removes all but what is kept under these keys.
    pub fn sweep(&self, keys: &[String]) {
        let kept: HashSet<PathBuf> = keys.iter().map(|key| self.place(key)).collect();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if !kept.contains(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn place(&self, key: &str) -> PathBuf {
        self.folder.join(hex(&Sha256::digest(key)))
    }

    fn regular(&self, workspace: &Path, path: &str) -> Result<File, OutgoingError> {
        let root = open_root(workspace)?;
        // A pipe must not make this wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = open_beneath(&root, Path::new(path), flags, Mode::empty()).map_err(|error| {
            OutgoingError::NoFile(format!("`{path}` of the workspace cannot be opened: {error}"))
        })?;
        let file = File::from(file);
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(OutgoingError::NoFile(format!("`{path}` is no file")));
        }
        if found.len() == 0 {
            return Err(OutgoingError::Refused(format!("`{path}` is empty")));
        }
        Ok(file)
    }
}

/// Copies at most as much as may be sent; gives the size, the hash and the beginning.
fn copy(from: &mut File, to: &Path) -> Result<(u64, String, Vec<u8>), OutgoingError> {
    let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    let (mut part, mut bytes, mut hash, mut head) = (vec![0; PART], 0, Sha256::new(), Vec::new());
    loop {
        let length = from.read(&mut part)?;
        let read = &part[..length];
        if read.is_empty() {
            break;
        }
        if bytes == 0 {
            head = read.to_owned();
        }
        bytes += read.len() as u64;
        if bytes > LARGEST_SENT {
            let most = LARGEST_SENT / 1_000_000;
            return Err(OutgoingError::Refused(format!("it has more than {most} MB, the most that is sent")));
        }
        hash.update(read);
        to.write_all(read)?;
    }
    to.sync_all()?;
    Ok((bytes, hex(&hash.finalize()), head))
}

/// What its beginning says of it. More than that nobody needs who shows or keeps it.
fn media_type(head: &[u8]) -> &'static str {
    match (ImageType::of(head), FileKind::of(head)) {
        (Some(picture), _) => picture.as_str(),
        (None, FileKind::Pdf) => "application/pdf",
        (None, FileKind::Text) => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
