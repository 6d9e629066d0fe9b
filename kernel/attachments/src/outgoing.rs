//! Copies of files that go out with messages, each until it is known what became of its message: what changes meanwhile changes nothing of
//! what is sent.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use drupe_confine::{make_beneath, open_beneath, open_root};
use drupe_extension_api::{Fault, FaultCode, ImageType, wire::OutboundFile};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use crate::{FileKind, hash, hex};

/// The largest file that goes out: the most that a bot of Telegram can send (<https://core.telegram.org/bots/api#senddocument>, read on
/// 2026-11-27).
pub const LARGEST_SENT: u64 = 50_000_000;
/// Files that wait to be sent at the same time.
pub const MOST_WAITING: usize = 20;

/// Bytes that are looked at at once. By the first of them it is known what a file is.
const PART: u64 = 64 << 10;

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
    ///
    /// # Errors
    /// [`FaultCode::NotFound`] where there is no such file, [`FaultCode::Invalid`] for one that is not sent, now or later,
    /// [`FaultCode::Busy`] where too many wait, and [`FaultCode::Unavailable`] for what the disk says.
    pub fn keep(&self, workspace: &Path, path: &str, key: &str) -> Result<OutboundFile, Fault> {
        let from = regular(workspace, path)?;
        let own = self.place(key);
        let there = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let waiting = there.filter(|entry| entry.path() != own).count();
        if waiting >= MOST_WAITING {
            let message = format!("{waiting} files wait to be sent, and at most {MOST_WAITING} may");
            return Err(Fault::new(FaultCode::Busy, message));
        }
        let half = own.with_extension("half");
        let kept = self.copied(&from, &half, &own).inspect_err(|_| drop(fs::remove_file(&half)));
        let (bytes, sha256, head) = kept.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => not_sent(path, "has more than 50 MB, the most that is sent"),
            _ => Fault::new(FaultCode::Unavailable, format!("`{path}` cannot be kept to be sent: {error}")),
        })?;
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Ok(OutboundFile { name, bytes, sha256, media_type: media_type(&head).to_owned() })
    }

    /// Copies at most as much as may be sent; gives the size, the hash and the beginning.
    fn copied(&self, from: &File, half: &Path, own: &Path) -> io::Result<(u64, String, Vec<u8>)> {
        make_beneath(self.folder.parent().unwrap_or(&self.folder), &self.folder)?;
        let mut to = OpenOptions::new();
        let mut to = to.read(true).write(true).create(true).truncate(true).mode(0o600).open(half)?;
        let bytes = io::copy(&mut from.take(LARGEST_SENT + 1), &mut to)?;
        if bytes > LARGEST_SENT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        to.sync_all()?;
        to.rewind()?;
        let (mut hash, mut head, mut part) = (Sha256::new(), Vec::new(), Vec::new());
        while (&to).take(PART).read_to_end(&mut part)? > 0 {
            hash.update(&part);
            match head.is_empty() {
                true => head = std::mem::take(&mut part),
                false => part.clear(),
            }
        }
        fs::rename(half, own)?;
        File::open(&self.folder)?.sync_all()?;
        Ok((bytes, hex(&hash.finalize()), head))
    }

    /// The copy that was kept under a key.
    pub fn open(&self, key: &str) -> io::Result<File> {
        File::open(self.place(key))
    }

    /// Removes all but what is kept under these keys. What cannot be removed goes the next time.
    pub fn sweep<'a>(&self, keys: impl Iterator<Item = &'a str>) {
        let kept: HashSet<PathBuf> = keys.map(|key| self.place(key)).collect();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if !kept.contains(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn place(&self, key: &str) -> PathBuf {
        self.folder.join(hash(key))
    }
}

/// A file of the workspace that may be sent.
fn regular(workspace: &Path, path: &str) -> Result<File, Fault> {
    // A pipe must not make this wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let opened =
        open_root(workspace).and_then(|root| open_beneath(&root, Path::new(path), flags, Mode::empty()));
    let opened = opened.map(File::from).and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Err(error) => Err(Fault::not_found(format!("`{path}` of the workspace cannot be opened: {error}"))),
        Ok((found, _)) if !found.is_file() => Err(Fault::not_found(format!("`{path}` is no file"))),
        Ok((found, _)) if found.len() == 0 => Err(not_sent(path, "is empty")),
        Ok((_, file)) => Ok(file),
    }
}

fn not_sent(path: &str, why: &str) -> Fault {
    Fault::invalid(format!("`{path}` is not sent: it {why}"))
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
