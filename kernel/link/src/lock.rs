//! One daemon a home.
//!
//! What is locked is the folder itself, not a file in it: whatever is deleted below it, and whatever the folder is called
//! meanwhile, nobody else gets the lock. The system releases it however the holder ends. The process id is only for
//! messages.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    thread,
    time::Duration,
};

use crate::Home;

/// How often, and after which pause, a held lock is tried again: a program that only checks whether a daemon runs holds it
/// for a moment.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// The lock of a home, held until it is dropped.
#[derive(Debug)]
pub struct HomeLock {
    folder: File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another process holds the home")]
    Held(Option<u32>),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl HomeLock {
    /// Takes the lock of a home that exists, or says who holds it.
    pub fn take(home: &Home) -> Result<Self, LockError> {
        Self::take_patiently(home, || thread::sleep(PAUSE))
    }

    fn take_patiently(home: &Home, mut pause: impl FnMut()) -> Result<Self, LockError> {
        let folder = File::open(home.path())?;
        for attempt in 1.. {
            match folder.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < TRIES => pause(),
                Err(TryLockError::WouldBlock) => return Err(LockError::Held(home.holder())),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        let lock = Self { folder };
        lock.name_holder(home)?;
        Ok(lock)
    }

    /// Writes this process's id for others to read.
    pub fn name_holder(&self, home: &Home) -> io::Result<()> {
        let fresh = home.pid_file().with_extension("new");
        fs::write(&fresh, format!("{}\n", std::process::id()))?;
        fs::rename(fresh, home.pid_file())
    }

    /// Whether the path of the home still leads to the folder that is locked; false once it was moved or deleted. What
    /// cannot be told counts as unchanged.
    pub fn is_at(&self, home: &Home) -> bool {
        let place = |found: fs::Metadata| (found.dev(), found.ino());
        match (fs::metadata(home.path()), self.folder.metadata()) {
            (Ok(found), Ok(own)) => place(found) == place(own),
            (Err(error), _) => error.kind() != io::ErrorKind::NotFound,
            (_, Err(_)) => true,
        }
    }
}

impl Home {
    /// Whether a daemon holds this home, whatever became of its process and its socket.
    pub fn is_held(&self) -> bool {
        match File::open(self.path()) {
            Ok(folder) => folder.try_lock_shared().is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// The process that holds this home, as it has written it, or as the system's list of locks says where that file is
    /// gone; none if nobody tells.
    pub fn holder(&self) -> Option<u32> {
        self.holder_written().or_else(|| self.listed())
    }

    /// The same as it is written; none where that is gone or damaged.
    pub fn holder_written(&self) -> Option<u32> {
        fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()
    }

    fn listed(&self) -> Option<u32> {
        let inode = fs::metadata(self.path()).ok()?.ino().to_string();
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // 1: FLOCK  ADVISORY  WRITE 123 fe:00:5646571 0 EOF
        locks.lines().find_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [_, "FLOCK", _, "WRITE", pid, place, ..] = fields[..] else { return None };
            (place.rsplit(':').next() == Some(&inode)).then(|| pid.parse().ok())?
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path().join("home")).unwrap();
        (folder, home)
    }

    fn holder(error: LockError) -> Option<u32> {
        match error {
            LockError::Held(holder) => holder,
            LockError::Io(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_home_is_held_as_long_as_its_lock() {
        let (_folder, home) = home();
        assert!(!home.is_held());
        let lock = HomeLock::take(&home).unwrap();
        assert!(home.is_held());
        drop(lock);
        assert!(!home.is_held());
    }

    #[test]
    fn whatever_is_deleted_below_a_home_lets_nobody_else_in_and_the_holder_is_named() {
        let (_folder, home) = home();
        let _lock = HomeLock::take(&home).unwrap();
        for lost in [home.run(), home.state()] {
            fs::remove_dir_all(lost).unwrap();
            assert_eq!(holder(HomeLock::take(&home).unwrap_err()), Some(std::process::id()));
        }
        home.make_folders().unwrap();
        assert_eq!(holder(HomeLock::take(&home).unwrap_err()), Some(std::process::id()));
    }

    #[test]
    fn a_home_that_was_moved_keeps_its_lock_and_a_new_one_in_its_place_has_another() {
        let (folder, home) = home();
        let lock = HomeLock::take(&home).unwrap();
        assert!(lock.is_at(&home));
        let moved = folder.path().join("moved");
        fs::rename(home.path(), &moved).unwrap();
        assert!(!lock.is_at(&home));
        assert!(Home::new(&moved).unwrap().is_held());
        let fresh = Home::create(home.path()).unwrap();
        assert!(!lock.is_at(&fresh));
        HomeLock::take(&fresh).unwrap();
    }

    #[test]
    fn who_only_asks_keeps_nobody_out() {
        let (_folder, home) = home();
        let mut asking = File::open(home.path()).ok();
        asking.as_ref().unwrap().try_lock_shared().unwrap();
        HomeLock::take_patiently(&home, || drop(asking.take())).unwrap();
    }
}
