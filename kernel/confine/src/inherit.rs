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

/// Closes every descriptor but the standard streams and those in `kept`: what a parent leaked is not for this process.
///
/// To be called at the entry of a process, where nothing else owns a descriptor yet.
pub(crate) fn close_all_but(kept: &BTreeSet<RawFd>) -> io::Result<()> {
    let mut first = 3;
    for number in kept.iter().filter_map(|number| u32::try_from(*number).ok()).filter(|number| *number > 2) {
        if number > first {
            close_range(first, number - 1, 0)?;
        }
        first = number + 1;
    }
    close_range(first, u32::MAX, 0)
}

/// Lets `passed` and the standard streams, and nothing else, through the next `exec` of this process.
pub(crate) fn keep_on_exec(passed: &[RawFd]) -> io::Result<()> {
    close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)?;
    for number in passed {
        // SAFETY: a caller passes numbers that are open here; of one that is not, the call reports an error.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*number) }, FdFlags::empty())?;
    }
    Ok(())
}

fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: the call takes three numbers and touches no memory. Which descriptors may go is up to the two callers.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
