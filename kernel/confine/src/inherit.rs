//! Descriptors that a process was started with.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::{Mutex, PoisonError},
};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The numbers that were taken already.
static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Takes a descriptor that the parent process passed by number, and closes it on `exec` from now on. Each number once;
/// the standard streams are refused, and so is what closes on `exec` already: that was opened in this process.
///
/// # Safety
///
/// Nothing in this process may own the descriptor. So it is called at the entry of a process, before that opens anything.
// SAFETY: it lies with the callers, as is said above.
pub unsafe fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a standard stream is not passed by number"));
    }
    // SAFETY: `number` is not -1, and the borrow ends with this function. If nothing is open under it, the first call
    // fails with EBADF and touches nothing.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if fcntl_getfd(borrowed)?.contains(FdFlags::CLOEXEC) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor was taken, or opened, here"));
    }
    if !TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor was taken before"));
    }
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open (the calls above would have failed otherwise), the caller says that nobody owns it,
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
    use std::os::fd::{AsRawFd, IntoRawFd};

    use super::*;

    /// Takes a number that nobody owns here.
    fn take(number: RawFd) -> bool {
        // SAFETY: the numbers of these tests were given up by their owner, or are refused.
        unsafe { inherited(number) }.is_ok()
    }

    #[test]
    fn a_descriptor_is_taken_once() {
        let opened = std::fs::File::open("/dev/null").expect("it exists");
        // As one that came through an `exec`.
        let number = rustix::io::dup(&opened).expect("there is room").into_raw_fd();
        assert!(take(number));
        for refused in [number, -1, 0, 2, 1_000_000] {
            assert!(!take(refused), "{refused}");
        }
    }

    #[test]
    fn what_was_opened_here_is_not_taken() {
        let opened = std::fs::File::open("/dev/null").expect("it exists");
        assert!(!take(opened.as_raw_fd()));
        assert!(opened.metadata().is_ok(), "its owner has it still");
    }
}
