//! Whoever reads what a client writes may go away: a terminal is closed, a pager is left.
//!
//! A client that only waits would not see it, and the line editor would read a dead terminal for ever, as fast as it can.
//! So a thread looks for it.

use std::{
    io::{self, IsTerminal},
    thread,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    stdio,
};

use super::{
    failure::{Failure, status},
    wait::Interrupt,
};

/// Between two looks: the end of a terminal does not wake everybody who waits for it.
const LOOK: Duration = Duration::from_millis(250);

/// Makes it time to leave when nobody reads any more, and calls `then`.
pub fn watch(interrupt: &Interrupt, then: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let interrupt = interrupt.clone();
    let look = move || {
        while !gone() {
            thread::sleep(LOOK);
        }
        interrupt.leave();
        then();
    };
    let started = thread::Builder::new().name("hangup".into()).spawn(look);
    started
        .map(drop)
        .map_err(|error| Failure::new(status::SYSTEM, format!("a thread cannot be started: {error}")))
}

/// Whether the standard output has no reader, or the terminal that somebody would type at is closed.
fn gone() -> bool {
    let (stdin, stdout) = (stdio::stdin(), stdio::stdout());
    let typed = io::stdin().is_terminal().then(|| PollFd::from_borrowed_fd(stdin, PollFlags::empty()));
    let mut fds: Vec<_> =
        std::iter::once(PollFd::from_borrowed_fd(stdout, PollFlags::empty())).chain(typed).collect();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let end = PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&now)).is_ok() && fds.iter().any(|fd| fd.revents().intersects(end))
}

/// Puts a standard input in place of a closed terminal that has nothing to read, so that whoever reads the terminal in a
/// loop waits instead.
pub fn silence_stdin() {
    // Without a descriptor there is nothing left to try.
    if let Ok(nothing) = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC) {
        let _ = stdio::dup2_stdin(nothing);
    }
}
