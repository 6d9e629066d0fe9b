//! What a process writes to its standard error stream: logged line by line, its last lines kept.
//!
//! It is read no faster than a log should grow. Who writes more waits, as at a slow terminal; the kernel never keeps
//! more than a line and the tail.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    process::ChildStderr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use drupe_extension_api::ExtensionId;
use drupe_redact::Redactor;
use tokio::{
    net::unix::pipe::Receiver,
    sync::Notify,
    time::{Instant, timeout_at},
};

/// How many lines are kept.
const TAIL: usize = 20;

/// How much of a line is kept and logged, in bytes.
const LINE: usize = 2048;

/// How much is read in each second.
const A_SECOND: usize = 256 * 1024;

#[derive(Clone, Default)]
pub struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// The process is gone: what is in the pipe is the end, and is read at once.
    over: Arc<Notify>,
}

impl Tail {
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub fn over(&self) {
        self.over.notify_one();
    }

    fn add(&self, redactor: &Redactor, extension: &ExtensionId, line: &[u8]) {
        let line = redactor.text(String::from_utf8_lossy(line).trim_end()).into_owned();
        if line.is_empty() {
            return;
        }
        tracing::info!(%extension, "{line}");
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads the stream to its end.
pub async fn follow(redactor: &Redactor, extension: ExtensionId, stream: ChildStderr, tail: Tail) {
    if let Err(error) = read(redactor, &extension, stream, &tail).await {
        tracing::warn!(%extension, %error, "the standard error stream of the extension cannot be read");
    }
}

async fn read(
    redactor: &Redactor,
    extension: &ExtensionId,
    stream: ChildStderr,
    tail: &Tail,
) -> io::Result<()> {
    let pipe = Receiver::from_owned_fd(OwnedFd::from(stream))?;
    let mut lines = Lines::default();
    let mut chunk = vec![0; 4096];
    let (mut window, mut read_in_it) = (Instant::now(), 0);
    loop {
        if window.elapsed() >= Duration::from_secs(1) {
            (window, read_in_it) = (Instant::now(), 0);
        }
        if read_in_it >= A_SECOND {
            if timeout_at(window + Duration::from_secs(1), tail.over.notified()).await.is_ok() {
                // From now on nothing waits: the note is left for the next look.
                tail.over();
            }
            (window, read_in_it) = (Instant::now(), 0);
        }
        pipe.readable().await?;
        match pipe.try_read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                read_in_it += count;
                lines.take(&chunk[..count], |line| tail.add(redactor, extension, line));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    lines.end(|line| tail.add(redactor, extension, line));
    Ok(())
}

/// Bytes on their way to becoming lines; what is beyond [`LINE`] is dropped.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                each(&self.line);
                self.line.clear();
            }
        }
    }

    fn end(self, mut each: impl FnMut(&[u8])) {
        each(&self.line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_from_any_pieces_and_a_long_one_is_cut() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        let long = "x".repeat(3 * LINE) + "\nlast";
        for piece in ["one\ntw", "o\n", &long] {
            lines.take(piece.as_bytes(), |line| seen.push(line.len()));
        }
        lines.end(|line| seen.push(line.len()));
        assert_eq!(seen, [4, 4, LINE, 4]);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let tail = Tail::default();
        let id: ExtensionId = "chatty".parse().expect("an id");
        for number in 0..=TAIL {
            tail.add(&Redactor::default(), &id, format!("line {number}\n").as_bytes());
        }
        let lines = tail.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (TAIL, "line 1"));
    }
}
