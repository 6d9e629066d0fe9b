//! Files that came with messages, in the workspace beneath `inbox`: a folder for each conversation.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use drupe_confine::{open_beneath, open_root};
use drupe_extension_api::SessionId;
use jiff::Timestamp;
use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, XattrFlags, fsetxattr, fsync, mkdirat,
        renameat_with, statat, unlinkat,
    },
    io::Errno,
};
use sha2::{Digest, Sha256};

use crate::{FileKind, MARK, safe_name};

/// The folder of the workspace in which they are.
pub const FOLDER: &str = "inbox";
/// The largest file that is taken in: the most that a bot of Telegram can fetch (<https://core.telegram.org/bots/api#getfile>, read on
/// 2026-11-27).
pub const LARGEST_RECEIVED: u64 = 20_000_000;
/// Files of one conversation, and bytes of all of them: somebody who is known must not be able to fill the disk.
pub const MOST_FILES: usize = 500;
pub const MOST_BYTES: u64 = 1_000_000_000;

/// Letters of a message's hash that stand before the name of its file.
const DIGITS: usize = 12;
/// How the name of a file begins that is not whole. None of a file that is whole begins so.
const UNFINISHED: &str = ".receiving-";

/// Why a file is not taken in.
#[derive(Debug)]
pub enum InboxError {
    /// It would be the same later, until somebody makes room.
    Refused(String),
    /// The disk is full, or does not let us.
    Unwritable(io::Error),
}

impl From<io::Error> for InboxError {
    fn from(error: io::Error) -> Self {
        Self::Unwritable(error)
    }
}

impl From<Errno> for InboxError {
    fn from(error: Errno) -> Self {
        Self::Unwritable(error.into())
    }
}

/// The place for files that come with messages.
#[derive(Debug, Clone)]
pub struct WorkspaceInbox {
    workspace: PathBuf,
}

/// A file that came with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxFile {
    /// In the workspace, with `/`.
    pub path: String,
    pub bytes: u64,
    pub kind: FileKind,
}

/// A file that is being taken in. Nothing of it is left where it is dropped before its end.
pub struct Receiving {
    folder: OwnedFd,
    file: File,
    own: String,
    name: String,
    path: String,
    bytes: u64,
}

impl WorkspaceInbox {
    pub fn new(workspace: &Path) -> Self {
        Self { workspace: workspace.to_owned() }
    }

    /// Begins to take a file in, the `nth` of the message that `message` names among all; or gives it, where it is there already. `named`
    /// is what a stranger calls it.
    pub fn begin(
        &self,
        session: &SessionId,
        message: &str,
        nth: usize,
        named: &str,
    ) -> Result<Result<InboxFile, Receiving>, InboxError> {
        let folder = folder_of(session);
        let name = format!("{}-{}", digest(message, nth), safe_name(named));
        let path = format!("{FOLDER}/{folder}/{name}");
        let folder = self.open_folder(&folder)?;
        match open_beneath(&folder, Path::new(&name), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()) {
            Ok(there) => return there_already(File::from(there), path).map(Ok),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(InboxError::Unwritable(error)),
        }
        check_room(&folder)?;
        let own = unfinished();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = File::from(open_beneath(&folder, Path::new(&own), flags, Mode::RUSR | Mode::WUSR)?);
        Ok(Err(Receiving { folder, file, own, name, path, bytes: 0 }))
    }

    /// Removes what a process left that ended while it took files in.
    pub fn sweep(&self) {
        self.remove(|_, name, _| name.starts_with(UNFINISHED.as_bytes()));
    }

    /// Removes the files that nobody has changed since then.
    pub fn let_go(&self, before: Timestamp) {
        self.remove(|_, _, changed| changed < before.as_second());
    }

    /// Removes the files of a conversation.
    pub fn forget(&self, session: &SessionId) {
        let gone = folder_of(session);
        self.remove(|folder, _, _| folder == gone.as_bytes());
    }

    /// Removes files by the folder of their conversation, their name and the second since 1970 in which they were changed. Whatever it
    /// finds there, it follows no link, and what cannot be removed stays.
    fn remove(&self, goes: impl Fn(&[u8], &[u8], i64) -> bool) {
        let Ok(root) = open_root(&self.workspace) else { return };
        let folder = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(inbox) = open_beneath(&root, Path::new(FOLDER), folder, Mode::empty()) else { return };
        for session in entries(&inbox) {
            let path = Path::new(OsStr::from_bytes(&session));
            let Ok(files) = open_beneath(&inbox, path, folder, Mode::empty()) else { continue };
            for name in entries(&files) {
                let path = OsStr::from_bytes(&name);
                let Ok(found) = statat(&files, path, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
                    && goes(&session, &name, found.st_mtime)
                {
                    let _ = unlinkat(&files, path, AtFlags::empty());
                }
            }
            // One that still holds something stays.
            let _ = unlinkat(&inbox, OsStr::from_bytes(&session), AtFlags::REMOVEDIR);
        }
    }

    /// Opens the folder of a conversation, and makes it where it is not there. A link on the way is not followed.
    fn open_folder(&self, session: &str) -> Result<OwnedFd, InboxError> {
        let mut folder = open_root(&self.workspace)?;
        for part in [FOLDER, session] {
            match mkdirat(&folder, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            folder = open_beneath(&folder, Path::new(part), flags, Mode::empty()).map_err(|error| {
                let odd =
                    matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NOTDIR | Errno::XDEV));
                match odd {
                    true => InboxError::Refused(format!("`{part}` of the workspace is no folder")),
                    false => error.into(),
                }
            })?;
        }
        Ok(folder)
    }
}

impl Receiving {
    /// Takes a part of it.
    pub fn write(&mut self, part: &[u8]) -> Result<(), InboxError> {
        self.bytes += part.len() as u64;
        if self.bytes > LARGEST_RECEIVED {
            let most = LARGEST_RECEIVED / 1_000_000;
            return Err(InboxError::Refused(format!("it has more than {most} MB, the most that is taken")));
        }
        Ok(self.file.write_all(part)?)
    }

    /// Gives it its name, for good: it is on the disk when this returns.
    pub fn finish(mut self) -> Result<InboxFile, InboxError> {
        match fsetxattr(&self.file, MARK, b"1", XattrFlags::empty()) {
            // A file system without such attributes keeps no marks.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let mut content = Vec::new();
        self.file.rewind()?;
        (&self.file).take(LARGEST_RECEIVED).read_to_end(&mut content)?;
        self.file.sync_all()?;
        match renameat_with(
            &self.folder,
            self.own.as_str(),
            &self.folder,
            self.name.as_str(),
            RenameFlags::NOREPLACE,
        ) {
            // The same message came twice at once.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        fsync(&self.folder)?;
        let path = std::mem::take(&mut self.path);
        Ok(InboxFile { path, bytes: content.len() as u64, kind: FileKind::of(&content) })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // Where it has its name, there is none of this one any more.
        let _ = unlinkat(&self.folder, self.own.as_str(), AtFlags::empty());
    }
}

fn there_already(file: File, path: String) -> Result<InboxFile, InboxError> {
    let mut content = Vec::new();
    file.take(LARGEST_RECEIVED).read_to_end(&mut content)?;
    Ok(InboxFile { path, bytes: content.len() as u64, kind: FileKind::of(&content) })
}

/// Ids of sessions have one sign that not every file system takes; in its place stands one that none of them has.
fn folder_of(session: &SessionId) -> String {
    session.as_str().replace(':', "+")
}

fn digest(message: &str, nth: usize) -> String {
    let hash = Sha256::digest(format!("{nth}\n{message}"));
    hash.iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

fn unfinished() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{UNFINISHED}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn check_room(folder: &OwnedFd) -> Result<(), InboxError> {
    let (mut files, mut bytes) = (0, 0);
    for name in entries(folder) {
        files += 1;
        let found = statat(folder, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW);
        bytes += found.map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0));
    }
    if files >= MOST_FILES || bytes >= MOST_BYTES {
        let message = format!(
            "the inbox of this conversation is full: it has {files} files of {} MB together, and at most {MOST_FILES} of {} MB are \
             kept; delete some, or move them elsewhere",
            bytes / 1_000_000,
            MOST_BYTES / 1_000_000
        );
        return Err(InboxError::Refused(message));
    }
    Ok(())
}

/// The names in a folder. What cannot be read is none.
fn entries(folder: &OwnedFd) -> impl Iterator<Item = Vec<u8>> + use<> {
    let found = Dir::read_from(folder).into_iter().flatten().flatten();
    let names = found.map(|entry| entry.file_name().to_bytes().to_owned());
    names.filter(|name| name != b"." && name != b"..")
}
