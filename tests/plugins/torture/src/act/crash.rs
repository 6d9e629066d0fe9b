//! Ends of a process or of one of its threads, below what the language knows.

use std::{hint::black_box, ptr};

/// Panics while it is dropped.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("it was told to panic twice");
    }
}

pub fn double_panic() {
    let _panics = Panics;
    panic!("it was told to panic");
}

pub fn exit_now() {
    // SAFETY: ends the process, which is what was asked for.
    unsafe { libc::_exit(3) }
}

pub fn end_thread() {
    // SAFETY: none: the frames above are not made for it, and what follows is what was asked for.
    unsafe { libc::pthread_exit(ptr::null_mut()) }
}

pub fn double_free() {
    // SAFETY: none: the second one is what was asked for, and the library of the system notices it.
    unsafe {
        let memory = black_box(libc::malloc(64));
        libc::free(memory);
        libc::free(black_box(memory));
    }
}

/// To this thread. One that goes to the process may be taken by another of its threads, and this one goes on for a moment:
/// time enough to answer the call.
pub fn signal_itself(signal: libc::c_int) {
    // SAFETY: takes a number; what the signal does to this process was asked for.
    unsafe { libc::raise(signal) };
}
