//! Frames over one end of a `SOCK_SEQPACKET` pair.
//!
//! The pair has no name, so only a process that inherited an end can speak. The kernel keeps each frame whole;
//! this module bounds its size, passes over what it cannot read, and never waits unless asked to. A closed other end is
//! the lifeline: a kernel that reads [`Received::Closed`] ends.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
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
    frames: PhantomData<fn(Out) -> In>,
}

pub type SupervisorLink = Link<Down, Up>;

pub type KernelLink = Link<Up, Down>;

#[derive(Debug)]
pub enum Received<T> {
    Frame(T),
    /// Something that is no frame of this release, or too large; it is gone.
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

/// Why a kernel does not begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// Its program was exchanged for one of another version while the supervisor runs.
    #[error(
        "the supervisor that runs is of another version of drupe than this program, and they do not understand each other; restart the \
             service: `drupe stop`, then start it again"
    )]
    Stranger,
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Makes both ends, closed on `exec`.
pub fn pair() -> io::Result<(SupervisorLink, KernelLink)> {
    let (up, down) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((Link::new(up), Link::new(down)))
}

impl<Out: Frame + Clone, In: Frame> Link<Out, In> {
    /// Takes an end that was inherited.
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, frames: PhantomData }
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

    /// Waits for the next message.
    pub fn recv(&self) -> io::Result<Received<In>> {
        self.recv_with(RecvFlags::empty())
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
        Ok(frame.map_or(Received::Ignored, Received::Frame))
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

impl KernelLink {
    /// Says the first word, and waits for the supervisor's, which is to be of that `version`: [`VERSION`](crate::VERSION).
    pub fn begin(&self, hello: &Up, version: u32) -> Result<Down, BeginError> {
        self.send(hello)?;
        match self.recv().map_err(LinkError::from)? {
            Received::Frame(Down::Start { link, .. }) if link != version => Err(BeginError::Stranger),
            Received::Frame(start @ Down::Start { .. }) => Ok(start),
            // One of another version may say anything first.
            Received::Frame(_) | Received::Ignored => Err(BeginError::Stranger),
            Received::Closed => Err(LinkError::Closed.into()),
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
        assert!(matches!(supervisor.recv().unwrap(), Received::Frame(Up::Hello { pid: 7, .. })));
        assert!(matches!(supervisor.try_recv().unwrap(), Received::Frame(Up::Beat)));
        assert!(would_block(supervisor.try_recv()));
        assert!(matches!(kernel.recv().unwrap(), Received::Frame(Down::Stop)));
    }

    #[test]
    fn garbage_is_passed_over_and_the_next_frame_is_read() {
        let (supervisor, kernel) = pair().unwrap();
        let oversized = vec![b'{'; MAX_FRAME + 1];
        for garbage in [&b""[..], b"{", b"null", b"\xff\xfe", b"{\"frame\":\"none\"}", &oversized] {
            send(&kernel, garbage, SendFlags::DONTWAIT).unwrap();
        }
        kernel.try_send(&Up::Beat).unwrap();
        for _ in 0..6 {
            assert!(matches!(supervisor.recv().unwrap(), Received::Ignored));
        }
        assert!(matches!(supervisor.recv().unwrap(), Received::Frame(Up::Beat)));
    }

    #[test]
    fn a_kernel_begins_by_a_start_of_its_version_and_knows_any_other_first_word_for_that_of_a_stranger() {
        let begun = |words: &[u8]| {
            let (supervisor, kernel) = pair().unwrap();
            send(&supervisor, words, SendFlags::DONTWAIT).unwrap();
            let begun = kernel.begin(&Up::Beat, 2);
            assert!(matches!(supervisor.recv().unwrap(), Received::Frame(Up::Beat)), "it speaks first");
            begun
        };
        let start = |more: &str| {
            format!(
                r#"{{"frame":"start","generation":1,"safe_mode":false,"supervisor_pid":1,"restarts":0{more}}}"#
            )
        };
        let own = begun(start(r#","link":2,"colour":"red""#).as_bytes());
        assert!(matches!(own, Ok(Down::Start { generation: 1, .. })), "{own:?}");
        for other in
            [&*start(""), &*start(r#","link":3"#), r#"{"frame":"start","link":3}"#, "", r#"{"frame":"stop"}"#]
        {
            assert!(matches!(begun(other.as_bytes()), Err(BeginError::Stranger)), "{other}");
        }
        let (supervisor, kernel) = pair().unwrap();
        drop(supervisor);
        assert!(matches!(kernel.begin(&Up::Beat, 2), Err(BeginError::Link(LinkError::Closed))));
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
        assert!(matches!(supervisor.recv().unwrap(), Received::Frame(Up::Stopping)));
        assert!(matches!(supervisor.recv().unwrap(), Received::Closed));
        assert!(matches!(supervisor.try_send(&Down::Stop), Err(LinkError::Closed)));
    }
}
