//! Has the system tell when something on the way to a name changes.
//!
//! To be told of a name by `notify`, the folder that it is in must be watched with all that happens there, and the configuration lies
//! beside the journal, which is written all the time. The system can be asked for less: each folder, link and file on the way tells
//! when it itself is moved, removed or changed. Of what is in a folder it tells only where the next name on the way is
//! missing, and then of new names. What changed is not told: the caller looks.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fd::OwnedFd,
    fs::{
        inotify::{self, CreateFlags, WatchFlags},
        statfs,
    },
};

use super::{Wanted, pending::Shared};

/// How soon it is tried again where the system did not take it.
const AGAIN: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// One change comes as several events.
const TOGETHER: Duration = Duration::from_millis(50);

/// The most links on the way, as the system has it.
const LINKS: usize = 40;

/// Kinds of file systems that nobody changes but through this system, so that it tells of each change: ext2 to ext4, XFS, Btrfs, F2FS,
/// ZFS, bcachefs, and memory (`linux/magic.h` of Linux 6.18, and those of the last two, read on 2026-11-27).
const TOLD: [i64; 7] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1, 0xCA45_1A4E, 0x0102_1994];

/// What tells of itself.
const ITSELF: WatchFlags = WatchFlags::ATTRIB.union(WatchFlags::DELETE_SELF).union(WatchFlags::MOVE_SELF);
const NAMES: WatchFlags = ITSELF.union(WatchFlags::CREATE).union(WatchFlags::MOVED_TO);
const BYTES: WatchFlags = ITSELF.union(WatchFlags::MODIFY).union(WatchFlags::CLOSE_WRITE);

/// The watch; it ends when this is dropped.
pub(super) struct Places {
    told: Arc<AtomicBool>,
    end: Arc<OwnedFd>,
}

impl Places {
    /// Has a look asked for now, and whenever something may have changed.
    pub(super) fn watch(wanted: &Arc<Wanted>, shared: &Arc<Shared>) -> io::Result<Self> {
        let (told, end) = (Arc::new(AtomicBool::new(false)), Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?));
        let places = Self { told: Arc::clone(&told), end: Arc::clone(&end) };
        let (wanted, shared) = (Arc::clone(wanted), Arc::clone(shared));
        let wait = move || {
            loop {
                let watched = watched(&wanted);
                told.store(watched.is_ok(), Ordering::Relaxed);
                // What changed before it was watched.
                shared.ask();
                let fd = watched.as_ref().unwrap_or(&end);
                let mut fds = [PollFd::new(&*end, PollFlags::IN), PollFd::new(fd, PollFlags::IN)];
                // An error means that a signal came: then it is watched anew.
                let _ = poll(&mut fds, watched.is_err().then_some(&AGAIN));
                if !fds[0].revents().is_empty() {
                    return;
                }
                thread::sleep(TOGETHER);
            }
        };
        thread::Builder::new().name("places".into()).stack_size(128 * 1024).spawn(wait)?;
        Ok(places)
    }

    /// Whether the system tells.
    pub(super) fn are_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // It holds one number, which is never full here.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}

/// Watches what is on the way to each of the names; an error where the system does not tell of all of it.
fn watched(wanted: &Wanted) -> io::Result<OwnedFd> {
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    wanted.roots.iter().chain(&wanted.files).try_for_each(|path| follow(&fd, path))?;
    Ok(fd)
}

fn follow(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let names = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    let (mut at, mut links, mut left): (_, _, Vec<OsString>) = (PathBuf::from("/"), 0, names(path));
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let meta = match fs::symlink_metadata(&next) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return watch(fd, &at, NAMES);
            }
            meta => meta?,
        };
        if meta.is_symlink() {
            links += 1;
            if links > LINKS {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            inotify::add_watch(fd, &next, ITSELF | WatchFlags::MASK_ADD | WatchFlags::DONT_FOLLOW)?;
            // An absolute one begins with the root, and joining that is the root.
            left.extend(names(&fs::read_link(&next)?));
        } else {
            watch(fd, &next, if meta.is_dir() { ITSELF } else { BYTES })?;
            at = next;
        }
    }
    Ok(())
}

/// Whether a file system tells of each change.
pub(super) fn tells_of_all(path: &Path) -> io::Result<bool> {
    Ok(TOLD.contains(&statfs(path)?.f_type))
}

fn watch(fd: &OwnedFd, path: &Path, what: WatchFlags) -> io::Result<()> {
    if !tells_of_all(path)? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    inotify::add_watch(fd, path, what | WatchFlags::MASK_ADD)?;
    Ok(())
}
