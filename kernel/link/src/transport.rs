//! Frames over one end of a `SOCK_SEQPACKET` pair.
//!
//! The pair has no name, so only a process that inherited an end can speak. The kernel keeps each frame whole;
//! this module bounds its size, counts what it cannot read, and never waits unless asked to. A closed other end is
//! the lifeline: a kernel that reads [`Received::Closed`] ends.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

use crate::frame::{Down, Frame, MAX_FRAME, Up};

/// One end of a link: sends `Out`, receives `In`.
///
/// All methods take `&self`, so that the kernel can keep it in tokio's `AsyncFd`; [`try_recv`](Self::try_recv)
/// answers [`io::ErrorKind::WouldBlock`] as `AsyncFd::try_io` expects.
#[derive(Debug)]
pub struct Link<Out, In> {
    fd: OwnedFd,
    ignored: AtomicU64,
    frames: PhantomData<fn(Out) -> In>,
}

pub type SupervisorLink = Link<Down, Up>;

pub type KernelLink = Link<Up, Down>;

#[derive(Debug)]
pub enum Received<T> {
    Frame(T),
    /// Something that is no frame of this release, or too large; it is counted and gone.
    Ignored,
    Closed,
}

/// Why a frame was not sent.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It does not fit, even shortened.
    #[error("the frame is larger than {MAX_FRAME} bytes")]
    TooLarge,
    /// The other side does not read at the moment.
    #[error("the other side of the link does not read")]
    Full,
    /// The other side is gone.
    #[error("the other side of the link is gone")]
    Closed,
    #[error("the link failed: {0}")]
    Io(#[from] io::Error),
}

/// Makes both ends, closed on `exec`.
pub fn pair() -> io::Result<(SupervisorLink, KernelLink)> {
    let (up, down) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((Link::new(up), Link::new(down)))
}

impl<Out: Frame + Clone, In: Frame> Link<Out, In> {
    /// Takes an end that was inherited.
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, ignored: AtomicU64::new(0), frames: PhantomData }
    }

    /// How many received messages were no frames.
    pub fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    pub fn try_send(&self, frame: &Out) -> Result<(), LinkError> {
        self.send_with(frame, SendFlags::DONTWAIT)
    }

    /// Sends, and waits for the other side to read if it must.
    pub fn send(&self, frame: &Out) -> Result<(), LinkError> {
        self.send_with(frame, SendFlags::empty())
    }

    /// Receives one message without waiting; [`io::ErrorKind::WouldBlock`] if there is none.
    pub fn try_recv(&self) -> io::Result<Received<In>> {
        self.recv_with(RecvFlags::DONTWAIT)
    }

    /// Waits for the next frame, skipping what is none; `None` once the other end is closed.
    pub fn recv(&self) -> io::Result<Option<In>> {
        loop {
            match self.recv_with(RecvFlags::empty())? {
                Received::Frame(frame) => return Ok(Some(frame)),
                Received::Ignored => {}
                Received::Closed => return Ok(None),
            }
        }
    }

    fn send_with(&self, frame: &Out, flags: SendFlags) -> Result<(), LinkError> {
        let bytes = frame.encode().ok_or(LinkError::TooLarge)?;
        let sent = rustix::io::retry_on_intr(|| send(&self.fd, &bytes, flags | SendFlags::NOSIGNAL));
        match sent.map_err(io::Error::from) {
            Ok(_) => Ok(()),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::WouldBlock => LinkError::Full,
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
                    LinkError::Closed
                }
                _ => LinkError::Io(error),
            }),
        }
    }

    fn recv_with(&self, flags: RecvFlags) -> io::Result<Received<In>> {
        // Looking first costs a system call a frame and spares a standing buffer of the largest size.
        let length = match self.read(&mut [], flags | RecvFlags::PEEK | RecvFlags::TRUNC) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Received::Closed),
            Err(error) => return Err(error),
        };
        if length == 0 && self.hung_up() {
            return Ok(Received::Closed);
        }
        let mut bytes = vec![0; length.min(MAX_FRAME + 1)];
        let length = self.read(&mut bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC)?;
        let frame = if length > MAX_FRAME { None } else { In::decode(&bytes[..length.min(bytes.len())]) };
        Ok(frame.map_or_else(
            || {
                self.ignored.fetch_add(1, Ordering::Relaxed);
                Received::Ignored
            },
            Received::Frame,
        ))
    }

    fn read(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        let (_, length) = rustix::io::retry_on_intr(|| recv(&self.fd, &mut *buffer, flags))?;
        Ok(length)
    }

    /// Tells an empty message from the end: both read as 0 bytes.
    fn hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(_) => fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
            Err(_) => false,
        }
    }
}

impl<Out, In> AsFd for Link<Out, In> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<Out, In> AsRawFd for Link<Out, In> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl<Out, In> From<Link<Out, In>> for OwnedFd {
    fn from(link: Link<Out, In>) -> Self {
        link.fd
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use super::*;

    fn would_block<T>(result: io::Result<Received<T>>) -> bool {
        matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (supervisor, kernel) = pair().unwrap();
        assert!(would_block(supervisor.try_recv()));
        kernel.try_send(&Up::Hello { pid: 7, version: "1".into() }).unwrap();
        kernel.try_send(&Up::Beat).unwrap();
        supervisor.try_send(&Down::Stop).unwrap();
        assert!(matches!(supervisor.recv().unwrap(), Some(Up::Hello { pid: 7, .. })));
        assert!(matches!(supervisor.try_recv().unwrap(), Received::Frame(Up::Beat)));
        assert!(would_block(supervisor.try_recv()));
        assert!(matches!(kernel.recv().unwrap(), Some(Down::Stop)));
    }

    #[test]
    fn garbage_is_counted_and_the_next_frame_is_read() {
        let (supervisor, kernel) = pair().unwrap();
        let oversized = vec![b'{'; MAX_FRAME + 1];
        for garbage in [&b""[..], b"{", b"null", b"\xff\xfe", b"{\"frame\":\"none\"}", &oversized] {
            send(&kernel, garbage, SendFlags::DONTWAIT).unwrap();
        }
        kernel.try_send(&Up::Beat).unwrap();
        assert!(matches!(supervisor.recv().unwrap(), Some(Up::Beat)));
        assert_eq!(supervisor.ignored(), 6);
    }

    #[test]
    fn a_reader_that_does_not_read_is_reported_and_not_waited_for() {
        let (supervisor, kernel) = pair().unwrap();
        let sent = (0..100_000).take_while(|_| kernel.try_send(&Up::Beat).is_ok()).count();
        assert!(sent < 100_000);
        assert!(matches!(kernel.try_send(&Up::Beat), Err(LinkError::Full)));
        assert!(matches!(supervisor.try_recv().unwrap(), Received::Frame(Up::Beat)));
    }

    #[test]
    fn a_closed_end_is_seen_after_what_was_sent_before() {
        let (supervisor, kernel) = pair().unwrap();
        kernel.send(&Up::Stopping).unwrap();
        drop(kernel);
        assert!(matches!(supervisor.recv().unwrap(), Some(Up::Stopping)));
        assert!(supervisor.recv().unwrap().is_none());
        assert!(matches!(supervisor.try_send(&Down::Stop), Err(LinkError::Closed)));
    }
}
