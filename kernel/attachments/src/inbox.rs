//! Files that came with messages, in the workspace beneath `inbox`: a folder for each conversation.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use drupe_confine::{open_beneath, open_root};
use drupe_extension_api::{Fault, FaultCode, SessionId};
use jiff::Timestamp;
use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, XattrFlags, fsetxattr, fsync, mkdirat,
        renameat_with, statat, unlinkat,
    },
    io::Errno,
};

use crate::{FileKind, MARK, PART, hash, regular, safe_name};

/// The folder of the workspace in which they are.
pub const FOLDER: &str = "inbox";
/// The largest file that is taken in: the most that a bot of Telegram can fetch (<https://core.telegram.org/bots/api#getfile>, read on
/// 2026-11-27).
pub const LARGEST_RECEIVED: u64 = 20_000_000;

/// Files, and bytes of all of them, so that somebody who is known can neither fill the disk nor take the room of all others. As many
/// conversations as they like are begun by one person.
pub const OF_CONVERSATION: (usize, u64) = (500, 1_000_000_000);
/// The same of the conversations of one person, or in one group.
pub const OF_WRITER: (usize, u64) = (1_000, 2_000_000_000);
/// The same of all that is there.
pub const OF_ALL: (usize, u64) = (10_000, 20_000_000_000);

/// Letters of a message's hash that stand before the name of its file.
const DIGITS: usize = 12;
/// How the name of a file begins that is not whole. None of a file that is whole begins so.
const UNFINISHED: &str = ".receiving-";

const READ_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// The place for files that come with messages. What it refuses as [`FaultCode::Invalid`] would be the same later, until somebody makes
/// room or mends the folder; any other fault is of the disk.
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
    ) -> Result<Result<InboxFile, Receiving>, Fault> {
        let own = folder_of(session);
        let name = format!("{}-{}", &hash(&format!("{nth}\n{message}"))[..DIGITS], safe_name(named));
        let path = format!("{FOLDER}/{own}/{name}");
        let folder = self.made(&own).map_err(fault)?;
        match open_beneath(&folder, Path::new(&name), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()) {
            Ok(there) => return InboxFile::read(&File::from(there), path).map(Ok).map_err(fault),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fault(error)),
        }
        self.check_room(&own)?;
        let own = unfinished();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = open_beneath(&folder, Path::new(&own), flags, Mode::RUSR | Mode::WUSR).map_err(fault)?;
        Ok(Err(Receiving { folder, file: file.into(), own, name, path, bytes: 0 }))
    }

    /// Removes what a process left that ended while it took files in.
    pub fn sweep(&self) {
        self.remove(|_, name, _| name.as_bytes().starts_with(UNFINISHED.as_bytes()));
    }

    /// Removes the files that nobody has changed since then.
    pub fn let_go(&self, before: Timestamp) {
        self.remove(|_, _, file| file.st_mtime < before.as_second());
    }

    /// Removes the files of a conversation.
    pub fn forget(&self, session: &SessionId) {
        let gone = folder_of(session);
        self.remove(|folder, _, _| folder == gone.as_str());
    }

    /// Removes files by the folder of their conversation, their name and what the disk says of them. What cannot be removed stays.
    fn remove(&self, goes: impl Fn(&OsStr, &OsStr, &Stat) -> bool) {
        let Ok(inbox) = self.opened() else { return };
        for (session, folder) in folders(&inbox) {
            for (name, file) in files(&folder) {
                if goes(&session, &name, &file) {
                    let _ = unlinkat(&folder, &name, AtFlags::empty());
                }
            }
            // One that still holds something stays.
            let _ = unlinkat(&inbox, &session, AtFlags::REMOVEDIR);
        }
    }

    fn check_room(&self, own: &str) -> Result<(), Fault> {
        let mut bounds = [
            ("this conversation", OF_CONVERSATION, (0, 0)),
            ("all conversations with whoever writes here", OF_WRITER, (0, 0)),
            ("all conversations", OF_ALL, (0, 0)),
        ];
        let inbox = self.opened().map_err(fault)?;
        for (session, folder) in folders(&inbox) {
            let session = session.to_string_lossy();
            let within = [session == own, writer_of(&session) == writer_of(own), true];
            for (_, file) in files(&folder) {
                for ((.., used), _) in bounds.iter_mut().zip(within).filter(|(_, within)| *within) {
                    *used = (used.0 + 1, used.1 + u64::try_from(file.st_size).unwrap_or(0));
                }
            }
        }
        match bounds.iter().find(|(_, most, used)| used.0 >= most.0 || used.1 >= most.1) {
            None => Ok(()),
            Some((what, (files, bytes), _)) => Err(Fault::invalid(format!(
                "the inbox is full: of {what} at most {files} files of {} MB together are kept; delete some, or move them elsewhere",
                bytes / 1_000_000
            ))),
        }
    }

    /// The folder of all. A link in its place is not followed.
    fn opened(&self) -> io::Result<OwnedFd> {
        open_beneath(open_root(&self.workspace)?, Path::new(FOLDER), READ_FOLDER, Mode::empty())
    }

    /// The folder of a conversation, made where it is not there.
    fn made(&self, session: &str) -> io::Result<OwnedFd> {
        let mut folder = open_root(&self.workspace)?;
        for part in [FOLDER, session] {
            match mkdirat(&folder, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            folder = open_beneath(&folder, Path::new(part), READ_FOLDER, Mode::empty())?;
        }
        Ok(folder)
    }
}

impl InboxFile {
    fn read(mut file: &File, path: String) -> io::Result<Self> {
        let mut content = Vec::new();
        file.rewind()?;
        file.take(LARGEST_RECEIVED).read_to_end(&mut content)?;
        Ok(Self { path, bytes: content.len() as u64, kind: FileKind::of(&content) })
    }
}

impl Receiving {
    /// Takes a part of it.
    pub fn write(&mut self, part: &[u8]) -> Result<(), Fault> {
        self.bytes += part.len() as u64;
        if self.bytes > LARGEST_RECEIVED {
            let most = LARGEST_RECEIVED / 1_000_000;
            return Err(Fault::invalid(format!("it has more than {most} MB, the most that is taken")));
        }
        self.file.write_all(part).map_err(fault)
    }

    /// Takes what a file beneath a folder has, in parts, whatever somebody else does to it meanwhile.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] where there is nothing; what is there and is no file is refused for good.
    pub fn copy(&mut self, folder: &Path, path: &str) -> Result<(), Fault> {
        let odd = |error: io::Error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => FaultCode::Unavailable,
                _ => FaultCode::Invalid,
            };
            Fault::new(code, format!("its channel does not have it where it says: {error}"))
        };
        let (from, _) = regular(folder, path).map_err(odd)?;
        let mut part = Vec::new();
        while (&from).take(PART).read_to_end(&mut part).map_err(odd)? > 0 {
            self.write(&part)?;
            part.clear();
        }
        Ok(())
    }

    /// Gives it its name, for good: it is on the disk when this returns.
    pub fn finish(mut self) -> Result<InboxFile, Fault> {
        self.named().map_err(fault)?;
        InboxFile::read(&self.file, std::mem::take(&mut self.path)).map_err(fault)
    }

    fn named(&self) -> io::Result<()> {
        match fsetxattr(&self.file, MARK, b"1", XattrFlags::empty()) {
            // A file system without such attributes keeps no marks.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        self.file.sync_all()?;
        match renameat_with(&self.folder, &*self.own, &self.folder, &*self.name, RenameFlags::NOREPLACE) {
            // The same message came twice at once.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fsync(&self.folder)?)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // Where it has its name, there is none of this one any more.
        let _ = unlinkat(&self.folder, self.own.as_str(), AtFlags::empty());
    }
}

/// What the disk says. What somebody made of the folders does not pass by itself.
fn fault(error: io::Error) -> Fault {
    let errno = Errno::from_io_error(&error);
    let lasts = [Errno::ACCESS, Errno::ISDIR, Errno::LOOP, Errno::NOTDIR, Errno::PERM, Errno::XDEV];
    match errno.is_some_and(|errno| lasts.contains(&errno)) {
        true => Fault::invalid(format!("`{FOLDER}` of the workspace cannot be used: {error}")),
        false => Fault::new(FaultCode::Busy, format!("a file cannot be written to the workspace: {error}")),
    }
}

/// Ids of sessions have one sign that not every file system takes; in its place stands one that none of them has.
fn folder_of(session: &SessionId) -> String {
    session.as_str().replace(':', "+")
}

/// Of the folder of a conversation, what those of the same person or group begin with: what they began anew is below that.
fn writer_of(folder: &str) -> &str {
    folder.match_indices('+').nth(1).map_or(folder, |(end, _)| &folder[..end])
}

fn unfinished() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{UNFINISHED}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The folders in one. What is none is left out, also a link to one.
fn folders(folder: &OwnedFd) -> impl Iterator<Item = (OsString, OwnedFd)> {
    names(folder).filter_map(move |name| {
        let found = open_beneath(folder, Path::new(&name), READ_FOLDER, Mode::empty()).ok()?;
        Some((name, found))
    })
}

/// The files in a folder, with what the disk says of them.
fn files(folder: &OwnedFd) -> impl Iterator<Item = (OsString, Stat)> {
    let files = names(folder).filter_map(move |name| {
        let found = statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((name, found))
    });
    files.filter(|(_, found)| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile)
}

/// What cannot be read is none.
fn names(folder: &OwnedFd) -> impl Iterator<Item = OsString> + use<> {
    let found = Dir::read_from(folder).into_iter().flatten().flatten();
    let names = found.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
    names.filter(|name| name != "." && name != "..")
}
