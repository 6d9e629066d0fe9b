//! One daemon a home.
//!
//! A lock on a file, not a file with a process id: the system releases it however the holder ends, and a number that
//! another process got meanwhile misleads nobody. The number is only for the message.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Seek, Write},
};

use drupe_link::Home;

use super::Failure;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct HomeLock(#[expect(dead_code, reason = "the lock is held by keeping the file open")] File);

impl HomeLock {
    /// Takes the lock of a home that exists, or says who holds it.
    pub fn take(home: &Home) -> Result<Self, Failure> {
        let path = home.lock();
        let failed = |error: io::Error| Failure::Home { path: path.display().to_string(), error };
        let options = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let home_name = home.path().display().to_string();
                return Err(Failure::InUse { home: home_name, pid: home.lock_holder() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Overwritten in place and then cut, so that a reader in between finds a number all the same.
        let text = format!("{}\n", std::process::id());
        file.rewind().and_then(|()| file.write_all(text.as_bytes())).map_err(failed)?;
        file.set_len(text.len() as u64).map_err(failed)?;
        Ok(Self(file))
    }
}
