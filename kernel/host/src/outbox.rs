//! The sending half of the socket, for either side.
//!
//! A frame is written by whoever sends it, with one system call and without waking a task. Only what the socket does not
//! take at once is queued for the writer. Whoever can wait does so while the queue is full, so that a reader who does
//! not read holds up the senders and does not grow their memory.

use std::{
    collections::VecDeque,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{net::unix::OwnedWriteHalf, sync::Notify};

/// How many bytes are queued before senders wait. One frame more may join them, however long.
const FULL: usize = 1024 * 1024;

/// The other side is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// What waits to be written to a socket.
#[derive(Debug)]
pub struct Outbox {
    socket: OwnedWriteHalf,
    queue: Mutex<Queue>,
    /// The queue is not empty any more, or closed.
    filled: Notify,
    /// The queue is not full any more, or closed.
    room: Notify,
    /// The queue is empty, or closed.
    empty: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    /// What is written of the first.
    written: usize,
    /// What is not written of all.
    bytes: usize,
    closed: bool,
}

impl Outbox {
    pub fn new(socket: OwnedWriteHalf) -> Self {
        let (filled, room, empty) = (Notify::new(), Notify::new(), Notify::new());
        Self { socket, queue: Mutex::default(), filled, room, empty }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a frame, after the queue has room for it.
    pub async fn send(&self, frame: Vec<u8>) -> Result<(), Closed> {
        self.wait(&self.room, |queue| queue.bytes < FULL).await;
        self.push(frame)
    }

    /// Sends a frame whether there is room or not: for short ones whose number is bounded otherwise.
    pub fn push(&self, frame: Vec<u8>) -> Result<(), Closed> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(Closed);
        }
        queue.bytes += frame.len();
        queue.frames.push_back(frame);
        // Behind others it waits for the writer, who is under way.
        if queue.frames.len() == 1 && self.write(&mut queue) == Written::Part {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Sends a frame if there is room for it, else drops it.
    pub fn offer(&self, frame: Vec<u8>) {
        if self.lock().bytes < FULL {
            // Where the other side is gone, nobody misses it.
            let _ = self.push(frame);
        }
    }

    /// Whether senders wait.
    pub async fn has_room(&self) {
        self.wait(&self.room, |queue| queue.bytes < FULL).await;
    }

    /// Waits until all is written.
    pub async fn flushed(&self) {
        self.wait(&self.empty, |queue| queue.frames.is_empty()).await;
    }

    /// Sends nothing any more, and drops what waits.
    pub fn close(&self) {
        self.closed(&mut self.lock());
    }

    /// Writes what is queued as the socket takes it, until the other side is gone.
    pub async fn run(&self) {
        loop {
            self.wait(&self.filled, |queue| !queue.frames.is_empty()).await;
            if self.socket.writable().await.is_err() {
                self.close();
            }
            let mut queue = self.lock();
            if queue.closed {
                return;
            }
            self.write(&mut queue);
            if queue.bytes < FULL {
                self.room.notify_waiters();
            }
            if queue.frames.is_empty() {
                self.empty.notify_waiters();
            }
        }
    }

    async fn wait(&self, event: &Notify, enough: impl Fn(&Queue) -> bool) {
        loop {
            let mut notified = std::pin::pin!(event.notified());
            // Before the look, so that what changes after it is noticed.
            notified.as_mut().enable();
            {
                let queue = self.lock();
                if queue.closed || enough(&queue) {
                    return;
                }
            }
            notified.await;
        }
    }

    fn write(&self, queue: &mut Queue) -> Written {
        while let Some(frame) = queue.frames.front() {
            match self.socket.try_write(&frame[queue.written..]) {
                Ok(count) => {
                    queue.written += count;
                    queue.bytes -= count;
                    if queue.written == frame.len() {
                        queue.frames.pop_front();
                        queue.written = 0;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Written::Part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.closed(queue);
                    return Written::All;
                }
            }
        }
        Written::All
    }

    fn closed(&self, queue: &mut Queue) {
        *queue = Queue { closed: true, ..Queue::default() };
        self.filled.notify_one();
        self.room.notify_waiters();
        self.empty.notify_waiters();
    }
}

#[derive(PartialEq)]
enum Written {
    All,
    Part,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use tokio::{io::AsyncReadExt as _, net::UnixStream};

    use super::*;

    #[tokio::test]
    async fn who_sends_to_a_reader_that_does_not_read_waits() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (_reading, writing) = ours.into_split();
        let outbox = Arc::new(Outbox::new(writing));
        let writer = Arc::clone(&outbox);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { writer.run().await });
        outbox.socket.writable().await.expect("it is open");
        let mut sent = 0;
        while sent < 100 && outbox.send(vec![1; 100_000]).now_or_never().is_some() {
            sent += 1;
        }
        let queued = outbox.lock().bytes;
        assert!((FULL..FULL + 100_000).contains(&queued), "{queued}");
        outbox.offer(vec![2; 8]);
        assert_eq!(outbox.lock().bytes, queued, "what may be dropped is dropped");
        outbox.push(vec![3; 8]).expect("what must pass is queued");
        let mut read = vec![0; sent * 100_000 + 8];
        let flushed = async { outbox.flushed().await };
        let (count, ()) = tokio::join!(theirs.read_exact(&mut read), flushed);
        assert_eq!(count.expect("all comes"), read.len());
        assert_eq!((read[0], read[read.len() - 1]), (1, 3));
        drop(theirs);
        while outbox.send(vec![4; 100_000]).await.is_ok() {}
        assert_eq!(outbox.lock().bytes, 0, "nothing is kept for one that is gone");
    }
}
