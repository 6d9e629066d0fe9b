//! What reaches beyond the call: other processes, all descriptors, what is common to all threads. What the system refuses
//! is not told: the tests ask others what became of them.

use std::{io::Write as _, thread, time::Duration};

/// Descriptors above the standard streams that anything here has.
const FIRST: libc::c_int = 3;
const LAST: libc::c_int = 1024;
/// Processes that [`fork`] leaves.
const ORPHANS: usize = 50;
/// Threads that [`threads`] starts at most.
const CROWD: usize = 20_000;
/// What a thread of them needs.
const STACK: usize = 16 * 1024;
/// Bytes that [`noise`] writes to each stream.
const NOISE: usize = 100 << 20;
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

pub fn signal_parent(signal: libc::c_int) {
    // SAFETY: takes numbers and no memory.
    unsafe { libc::kill(libc::getppid(), signal) };
}

pub fn fork() {
    for _ in 0..ORPHANS {
        // SAFETY: the copies make calls of the system only: the first ends at once, the second sleeps until it is killed.
        unsafe {
            if libc::fork() == 0 {
                libc::setsid();
                if libc::fork() == 0 {
                    libc::sleep(600);
                }
                libc::_exit(0);
            }
        }
    }
}

pub fn threads() {
    for _ in 0..CROWD {
        if thread::Builder::new().stack_size(STACK).spawn(|| thread::sleep(LONG)).is_err() {
            return;
        }
    }
}

pub fn close() {
    for descriptor in FIRST..LAST {
        // SAFETY: none: whoever owns it finds it closed, which is what was asked for.
        unsafe { libc::close(descriptor) };
    }
}

pub fn redirect() {
    // SAFETY: none: whoever owns a descriptor finds another file under it, which is what was asked for.
    unsafe {
        let other = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for descriptor in (FIRST..LAST).filter(|descriptor| *descriptor != other) {
            if libc::fcntl(descriptor, libc::F_GETFD) >= 0 {
                libc::dup2(other, descriptor);
            }
        }
    }
}

pub fn disconnect() {
    for descriptor in FIRST..LAST {
        // SAFETY: takes numbers and no memory.
        unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) };
    }
}

pub fn garble() {
    let bytes = [0xff_u8; 64];
    for descriptor in FIRST..LAST {
        // SAFETY: reads the bytes above.
        unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
    }
}

pub fn noise() {
    let line = [b'x'; 1024];
    let write = move || {
        for _ in 0..NOISE / line.len() {
            // A stream that nobody reads is one way of being ignored.
            let _ = std::io::stdout().write_all(&line);
            let _ = std::io::stderr().write_all(&line);
        }
    };
    let _ = thread::Builder::new().name("torture-noise".into()).spawn(write);
}

pub fn unsettle() {
    // SAFETY: takes numbers and a path of this library; handlers are set to what they may be set to.
    unsafe {
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::umask(0);
        libc::chdir(c"/".as_ptr());
        libc::setenv(c"PATH".as_ptr(), c"/nowhere".as_ptr(), 1);
    }
}
