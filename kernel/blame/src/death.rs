//! What a dying thread notes: signal handlers and the hook on `exit`.
//!
//! Everything that [`note`] does may be done in a signal handler: loads, stores and system calls, no locks, no memory.

use std::{
    ffi::{c_int, c_void},
    hint, io,
    mem::MaybeUninit,
    ptr,
    sync::atomic::Ordering,
};

use crate::{
    clock,
    install::{armed, page},
    layout::{ALIVE, DEAD, DYING, EXIT},
    slot,
};

/// The signals by which faulty code dies. Those that ask a process to end are not among them.
const SIGNALS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL, libc::SIGFPE, libc::SIGSYS, libc::SIGTRAP];

/// How often a thread that dies second looks whether the first has finished its note, which takes it well under a
/// microsecond. An end to it is needed, for the first may have been stopped in the middle.
const LOOKS: u32 = 1_000_000;

pub(crate) fn catch_signals() -> io::Result<()> {
    for signal in SIGNALS {
        // The handler's signature is the one that SA_SIGINFO asks for.
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
        act(signal, handler as libc::sighandler_t, libc::SA_SIGINFO | libc::SA_ONSTACK)?;
    }
    Ok(())
}

/// Installs the hook on `exit`.
pub(crate) fn catch_exit() -> io::Result<()> {
    // SAFETY: the function is part of the program, which is never unloaded.
    match unsafe { libc::atexit(on_exit) } {
        0 => Ok(()),
        _ => Err(io::Error::other("no room for a hook on exit")),
    }
}

/// Sets what a signal does, with all other signals held back while its handler runs.
fn act(signal: c_int, handler: libc::sighandler_t, flags: c_int) -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a valid action; every field that counts is set here.
    let action = unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigfillset(&raw mut action.sa_mask);
        action
    };
    // SAFETY: `handler` is the default or `on_signal`, which fits the flags that are passed with it.
    match unsafe { libc::sigaction(signal, action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    note(signal.cast_unsigned());
    let _ = act(signal, libc::SIG_DFL, 0);
    // Not left to the fault to happen again, for it may not: the signal may have been sent, and behind a trap the
    // program would go on. With the first signal's own information, a core file shows where it came from.
    // SAFETY: `info` is what the system passed to this handler. The signal is held back until the handler returns.
    unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) != 0 {
            libc::raise(signal);
        }
    }
}

extern "C" fn on_exit() {
    note(EXIT);
}

/// Writes the note of this thread, if it is the first.
fn note(cause: u32) {
    let Some(page) = page().filter(|_| armed(cause == EXIT)) else { return };
    let death = &page.death;
    if death.state.compare_exchange(ALIVE, DYING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        let _ = (0..LOOKS).find(|_| {
            hint::spin_loop();
            death.state.load(Ordering::Acquire) == DEAD
        });
        return;
    }
    let (word, owner) = slot::here();
    death.cause.store(cause, Ordering::Relaxed);
    death.thread.store(slot::thread(), Ordering::Relaxed);
    death.at.store(clock::now(), Ordering::Relaxed);
    death.word.store(word, Ordering::Relaxed);
    death.owner.store(owner, Ordering::Relaxed);
    death.state.store(DEAD, Ordering::Release);
}
