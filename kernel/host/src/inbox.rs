//! The receiving half of the socket, for either side.
//!
//! The buffer is small, grows to the frame that comes as its bytes come, and shrinks after it: what a peer announces and
//! does not send costs nothing.

use std::io;

use tokio::net::unix::OwnedReadHalf;

use crate::frame::{self, Decoded, Frame, Garbage};

/// The buffer as long as no frame needs a longer one; a frame of 1 KiB and its like are read with one system call.
const KEPT: usize = 16 * 1024;

/// How much a buffer grows at once.
const STEP: usize = 256 * 1024;

/// No more frames come.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The other side is gone.
    #[error("the other side closed the socket")]
    Closed,
    /// What comes are no frames.
    #[error("it sent {0}")]
    Garbage(#[from] Garbage),
    #[error("its socket cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Bytes on their way to becoming frames.
#[derive(Debug)]
pub struct Inbox {
    socket: OwnedReadHalf,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub fn new(socket: OwnedReadHalf) -> Self {
        Self { socket, buffer: vec![0; KEPT], start: 0, end: 0 }
    }

    /// The next frame; none for one of an unknown kind. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Frame<'_>>, Lost> {
        // A peer that sends without pause must not keep the thread from others.
        tokio::task::coop::consume_budget().await;
        let size = loop {
            let size = frame::size(&self.buffer[self.start..self.end])?;
            match size.filter(|size| *size <= self.end - self.start) {
                Some(size) => break size,
                None => self.fill(size.unwrap_or_default()).await?,
            }
        };
        let range = self.start..self.start + size;
        self.start += size;
        match frame::decode(&self.buffer[range])? {
            Decoded::Complete(frame, _) => Ok(frame),
            Decoded::Incomplete => Ok(None),
        }
    }

    /// Reads once. `size` is that of the frame which has begun, 0 if that is not known.
    async fn fill(&mut self, size: usize) -> Result<(), Lost> {
        self.make_room(size);
        loop {
            self.socket.readable().await?;
            match self.socket.try_read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(Lost::Closed),
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(Lost::Closed),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn make_room(&mut self, size: usize) {
        let held = self.end - self.start;
        if held == 0
            || self.start > 0 && (self.end == self.buffer.len() || self.start + size > self.buffer.len())
        {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        if self.buffer.len() > KEPT && held < KEPT && size <= KEPT {
            self.buffer.truncate(KEPT);
            self.buffer.shrink_to_fit();
        }
        if self.end == self.buffer.len() {
            let more = size.saturating_sub(self.end).clamp(1, STEP);
            // At least a quarter more, so that a long frame is not copied too often while the buffer grows.
            let target = (self.end + more.max(self.end / 4)).min(size.max(KEPT));
            self.buffer.resize(target.max(self.end + 1), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::UnixStream};

    use super::*;
    use crate::frame::{Answer, LONGEST, encode};

    fn pair() -> (Inbox, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (reading, writing) = ours.into_split();
        // The inbox reads alone; the other half must not close the socket.
        writing.forget();
        (Inbox::new(reading), theirs)
    }

    #[tokio::test]
    async fn a_long_frame_grows_the_buffer_as_it_comes_and_the_next_one_finds_it_small() {
        let (mut inbox, mut theirs) = pair();
        let body = vec![7; 3 * 1024 * 1024];
        let long = encode(&Frame::Reply(Answer { id: 1, status: 0, body: &body })).expect("it fits");
        let short = encode(&Frame::Ended { id: 2 }).expect("it fits");
        let writing = async {
            theirs.write_all(&long).await.expect("it is read");
            theirs.write_all(&short).await.expect("it is read");
            theirs
        };
        let reading = async {
            let frame = inbox.next().await.expect("a frame");
            assert!(matches!(frame, Some(Frame::Reply(answer)) if answer.body == body));
            assert_eq!(inbox.next().await.expect("a frame"), Some(Frame::Ended { id: 2 }));
            inbox
        };
        let (mut theirs, mut inbox) = tokio::join!(writing, reading);
        theirs.write_all(&short).await.expect("it is read");
        assert_eq!(inbox.next().await.expect("a frame"), Some(Frame::Ended { id: 2 }));
        assert_eq!(inbox.buffer.len(), KEPT);
    }

    #[tokio::test]
    async fn what_is_announced_and_does_not_come_costs_nothing() {
        let (mut inbox, mut theirs) = pair();
        let length = u32::try_from(LONGEST).expect("it fits").to_le_bytes();
        theirs.write_all(&[length.as_slice(), &[6; 20 * 1024]].concat()).await.expect("it is read");
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(50), inbox.next()).await;
        assert!(waiting.is_err());
        assert!((20 * 1024..512 * 1024).contains(&inbox.buffer.len()), "{}", inbox.buffer.len());
        drop(theirs);
        assert!(matches!(inbox.next().await, Err(Lost::Closed)));
    }

    #[tokio::test]
    async fn frames_in_pieces_of_any_size_come_whole() {
        for piece in [1, 3, 13, 1000] {
            let (mut inbox, mut theirs) = pair();
            let body = vec![9; 2000];
            let one = encode(&Frame::Reply(Answer { id: 5, status: 1, body: &body })).expect("it fits");
            let all = one.repeat(10);
            let writing = async {
                for piece in all.chunks(piece) {
                    theirs.write_all(piece).await.expect("it is read");
                    tokio::task::yield_now().await;
                }
            };
            let reading = async {
                for _ in 0..10 {
                    let frame = inbox.next().await.expect("a frame");
                    assert!(matches!(frame, Some(Frame::Reply(answer)) if answer.body == body));
                }
            };
            tokio::join!(writing, reading);
        }
    }
}
