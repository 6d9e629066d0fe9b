//! Backups read a home's files while others are at work with them, and restores move them: never both at once.
//!
//! The lock is on the folder `run`, which neither of the two takes along or moves. It goes with its process.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
};

use crate::{
    BackupError,
    error::{self, At},
    files::make_folder,
};

/// Held while a backup is made; there may be several.
pub(crate) fn while_read(home: &Path) -> Result<Option<File>, BackupError> {
    take(home, File::try_lock_shared, || BackupError::Restoring(home.to_owned()))
}

/// Held while files are moved, or fit to be.
pub(crate) fn while_moved(home: &Path) -> Result<Option<File>, BackupError> {
    take(home, File::try_lock, || BackupError::BackingUp(home.to_owned()))
}

fn take(
    home: &Path,
    lock: fn(&File) -> Result<(), TryLockError>,
    refused: impl FnOnce() -> BackupError,
) -> Result<Option<File>, BackupError> {
    let run = home.join("run");
    match make_folder(&run) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // Where nobody can write, nobody moves anything.
        Err(_) if !run.exists() => return Ok(None),
        Err(error) => return Err(error::of(run, error)),
    }
    let folder = File::open(&run).at(&run)?;
    match lock(&folder) {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Err(refused()),
        Err(TryLockError::Error(error)) => Err(error::of(run, error)),
    }
}
