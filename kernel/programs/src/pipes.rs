//! The pipes of a program. Nothing is held here: what is not read stays in the pipe, which holds 64 KiB, and then the
//! program waits.

use std::{
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    sync::Arc,
};

use drupe_extension_api::{Fault, FaultCode};
use drupe_handles::{Credit, Given, Sink, Source};
use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    net::unix::pipe::{Receiver, Sender},
    sync::OwnedSemaphorePermit,
};

/// What is read at once: as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// The place of a program among those of its instance.
pub(crate) type Place = Arc<OwnedSemaphorePermit>;

/// A stream that a program writes.
pub(crate) struct Output {
    pipe: Receiver,
    _place: Place,
}

impl Output {
    pub fn new(pipe: impl Into<OwnedFd>, place: &Place) -> io::Result<Self> {
        Ok(Self { pipe: Receiver::from_owned_fd(pipe.into())?, _place: Arc::clone(place) })
    }

    /// One of a terminal. It is read as a pipe is, but for what it says at its end.
    pub fn terminal(file: OwnedFd, place: &Place) -> io::Result<Self> {
        Ok(Self { pipe: Receiver::from_owned_fd_unchecked(file)?, _place: Arc::clone(place) })
    }

    async fn read(&mut self, most: usize) -> io::Result<Vec<u8>> {
        loop {
            self.pipe.readable().await?;
            // Made only when there is something, so that a silent program costs nothing.
            let mut bytes = vec![0; most.min(CHUNK)];
            match self.pipe.try_read(&mut bytes) {
                Ok(count) => {
                    bytes.truncate(count);
                    return Ok(bytes);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) if drupe_confine::is_hung_up(&error) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Source for Output {
    fn next(&mut self, credit: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        async move { Ok(Given::Bytes(self.read(credit.bytes).await?)) }.boxed()
    }
}

/// The stream that a program reads.
pub(crate) struct Input {
    pipe: Sender,
    _place: Place,
}

impl Input {
    pub fn new(pipe: impl Into<OwnedFd>, place: &Place) -> io::Result<Self> {
        Ok(Self { pipe: Sender::from_owned_fd(pipe.into())?, _place: Arc::clone(place) })
    }

    /// One of a terminal, whose keys it types.
    pub fn terminal(file: OwnedFd, place: &Place) -> io::Result<Self> {
        Ok(Self { pipe: Sender::from_owned_fd_unchecked(file)?, _place: Arc::clone(place) })
    }

    async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.pipe.writable().await?;
            match self.pipe.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Sink for Input {
    fn put(&mut self, content: Vec<u8>) -> BoxFuture<'_, Result<(), Fault>> {
        async move {
            self.write(&content).await.map_err(|error| {
                if error.kind() == ErrorKind::BrokenPipe || drupe_confine::is_hung_up(&error) {
                    return Fault::new(
                        FaultCode::Other,
                        "the program does not read its standard input any more",
                    );
                }
                error.into()
            })
        }
        .boxed()
    }
}
