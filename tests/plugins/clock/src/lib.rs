//! A clock that a test sets: a library that is loaded before the C library (`LD_PRELOAD`), and adds to the time of day what a file
//! says, in seconds. What measures how long something takes is left alone, as it is when somebody sets the clock of a machine.
//!
//! Only the library file does so: a program that links the crate does not, because nothing refers to it.

use std::{
    ffi::{CStr, c_int, c_long},
    sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering},
    },
};

/// Names the file, of eight bytes. Without it the time is what it is.
const FILE: &CStr = c"DRUPE_TEST_CLOCK";

static OFFSET: OnceLock<Option<&'static AtomicI64>> = OnceLock::new();

/// The file in memory: what is written to it is seen at once.
fn offset() -> i64 {
    let file = OFFSET.get_or_init(|| {
        // SAFETY: the name ends with a zero byte, and nobody changes the environment of these processes.
        let path = unsafe { libc::getenv(FILE.as_ptr()) };
        if path.is_null() {
            return None;
        }
        // SAFETY: the value ends with a zero byte.
        let file = unsafe { libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return None;
        }
        let (length, shared) = (size_of::<AtomicI64>(), libc::MAP_SHARED);
        // SAFETY: a new mapping, of a file that is open.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, shared, file, 0) };
        // SAFETY: it was opened here, and the mapping stays without it.
        unsafe { libc::close(file) };
        // SAFETY: the mapping begins at a page and is never taken away; the test writes all eight bytes at once.
        (place != libc::MAP_FAILED).then(|| unsafe { &*place.cast::<AtomicI64>() })
    });
    file.map_or(0, |offset| offset.load(Ordering::Relaxed))
}

/// The time, as the C library gives it.
///
/// # Safety
/// `time` is one to be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the system's own call, with what the caller gave.
    let got = unsafe { libc::syscall(libc::SYS_clock_gettime, c_long::from(clock), time) };
    if got == 0 && matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE) {
        // SAFETY: the system has just written it.
        unsafe { (*time).tv_sec += offset() };
    }
    if got == 0 { 0 } else { -1 }
}
