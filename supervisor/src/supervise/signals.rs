//! Signals as readable descriptors.

use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

/// One stream for each thing that a signal may want; a byte on it for each signal.
#[derive(Debug)]
pub struct Signals {
    terminate: UnixStream,
    reload: UnixStream,
    child: UnixStream,
}

/// How many of each came since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// `SIGTERM` and `SIGINT`.
    pub terminate: usize,
    /// `SIGHUP`.
    pub reload: usize,
    /// `SIGCHLD`.
    pub child: usize,
}

impl Signals {
    pub fn take() -> io::Result<Self> {
        Ok(Self {
            terminate: stream(&[SIGTERM, SIGINT])?,
            reload: stream(&[SIGHUP])?,
            child: stream(&[SIGCHLD])?,
        })
    }

    pub fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.terminate.as_fd(), self.reload.as_fd(), self.child.as_fd()]
    }

    pub fn received(&self) -> Received {
        Received { terminate: count(&self.terminate), reload: count(&self.reload), child: count(&self.child) }
    }
}

fn stream(signals: &[i32]) -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    write.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
    }
    Ok(read)
}

fn count(mut stream: &UnixStream) -> usize {
    let mut buffer = [0; 64];
    let mut all = 0;
    // Whoever sends signals faster than they are counted is heard in the next round.
    for _ in 0..8 {
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => all += length,
            _ => break,
        }
    }
    all
}
