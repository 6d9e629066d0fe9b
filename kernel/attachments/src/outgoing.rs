//! Copies of files that go out with messages, each until it is known what became of its message: what changes meanwhile changes nothing of
//! what is sent.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use drupe_confine::{make_beneath, open_beneath, open_root};
use drupe_extension_api::{Fault, FaultCode, ImageType, wire::OutboundFile};
use rustix::fs::{AtFlags, Mode, OFlags, unlinkat};
use sha2::{Digest, Sha256};

use crate::{FileKind, PART, hash, hex, regular};

/// The largest file that goes out: the most that a bot of Telegram can send (<https://core.telegram.org/bots/api#senddocument>, read on
/// 2026-11-27).
pub const LARGEST_SENT: u64 = 50_000_000;
/// Files that wait to be sent at the same time.
pub const MOST_WAITING: usize = 20;

/// What a copy is called in the folder of a channel that reads it. A channel is sent one file after another.
pub const LENT: &str = ".outgoing";

/// A copy in the folder of a channel. It goes with this.
#[derive(Debug)]
pub struct LentFile(OwnedFd);

impl LentFile {
    fn remove(&self) {
        let _ = unlinkat(&self.0, LENT, AtFlags::empty());
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        self.remove();
    }
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
    ///
    /// # Errors
    /// [`FaultCode::NotFound`] where there is no such file, [`FaultCode::Invalid`] for one that is not sent, now or later,
    /// [`FaultCode::Busy`] where too many wait, and [`FaultCode::Unavailable`] for what the disk says.
    pub fn keep(&self, workspace: &Path, path: &str, key: &str) -> Result<OutboundFile, Fault> {
        let opened = regular(workspace, path);
        let (from, bytes) = opened.map_err(|error| {
            Fault::not_found(format!("`{path}` of the workspace cannot be opened: {error}"))
        })?;
        if bytes == 0 {
            return Err(not_sent(path, "is empty"));
        }
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
        let media_type = media_type(&head).to_owned();
        Ok(OutboundFile { name, bytes, sha256, media_type, data_file: None })
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

    /// Copies what was kept under a key into the folder of data of its channel, as [`LENT`], for as long as that is there. Whatever the
    /// channel does to it, what was kept stays as it is.
    pub fn lend(&self, key: &str, channel: &str) -> io::Result<LentFile> {
        let lent = LentFile(open_root(&self.folder.with_file_name(channel))?);
        lent.remove();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let to = open_beneath(&lent.0, Path::new(LENT), flags, Mode::RUSR | Mode::WUSR)?;
        io::copy(&mut self.open(key)?, &mut File::from(to))?;
        Ok(lent)
    }

    /// Removes what was lent by a process that ended before it could.
    pub fn take_back(&self) {
        let data = self.folder.parent().unwrap_or(&self.folder);
        for entry in fs::read_dir(data).into_iter().flatten().flatten() {
            drop(open_root(&entry.path()).map(LentFile));
        }
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
