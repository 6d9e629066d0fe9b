//! Descriptors that a process was started with.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::{Mutex, PoisonError},
};

use rustix::io::{FdFlags, fcntl_setfd};

/// The numbers that were taken already.
static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Takes a descriptor that the parent process passed by number, and closes it on `exec` from now on.
///
/// To be called at the entry of a process, before it opens anything itself; each number once. The standard streams
/// are refused.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a standard stream is not passed by number"));
    }
    // SAFETY: `number` is not -1, and the borrow ends with this statement. If nothing is open under it, the call
    // fails with EBADF and touches nothing.
    fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    if !TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor was taken before"));
    }
    // SAFETY: the descriptor is open (the call above would have failed otherwise), came from the parent process,
    // and `TAKEN` makes sure that no second owner of it is made here.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes every descriptor but the standard streams close on `exec`: what the parent leaked is not for the program.
pub(crate) fn close_all_on_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if number > 2 {
            // SAFETY: a number from this list is not -1, and setting the flag changes nothing that an owner relies
            // on. The list's own descriptor may be gone by then, which the call reports.
            let _ = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn a_descriptor_is_taken_once() {
        let number = std::fs::File::open("/dev/null").expect("it exists").into_raw_fd();
        assert!(inherited(number).is_ok());
        for refused in [number, -1, 0, 2, 1_000_000] {
            assert!(inherited(refused).is_err(), "{refused}");
        }
    }
}
