//! The log: the supervisor's own lines, and those of the kernel passed on, to the standard error stream and, where the configuration asks for
//! it, to a [file](super::log_file).
//!
//! Whoever reads it may stop reading. Neither supervisor nor kernel waits for that: what does not fit into a bounded
//! buffer is dropped and counted.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use drupe_config::acts;
use drupe_link::LogFileSpec;
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::log_file::LogFile;

/// What is said before it is known whether there is a file.
const MOST_EARLY: usize = 16 * 1024;

/// Enough for a burst of log lines, and little beside the 5 MB that a supervisor may take.
const MOST_PENDING: usize = 64 * 1024;

/// `PIPE_BUF`: a pipe that is ready for writing takes this much without blocking.
const CHUNK: usize = 4096;

/// How long the end of the supervisor waits for its reader.
const PATIENCE: Duration = Duration::from_millis(500);

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Info,
    /// What the operator should look at.
    Warn,
    Error,
}

/// A bounded writer that never waits.
#[derive(Debug)]
pub struct Output {
    sink: Option<OwnedFd>,
    human: bool,
    pending: Vec<u8>,
    /// The beginning of a character of the kernel's that is not whole yet, where people read.
    cut: Vec<u8>,
    lost: usize,
    file: Option<LogFile>,
    /// What was said so far, for a file, until it is known whether there is one.
    early: Option<Vec<u8>>,
}

impl Output {
    /// Writes to the standard error stream.
    pub fn stderr(human: bool) -> Self {
        Self::new(io::stderr().as_fd().try_clone_to_owned().ok(), human)
    }

    fn new(sink: Option<OwnedFd>, human: bool) -> Self {
        let early = Some(Vec::new());
        Self { sink, human, pending: Vec::new(), cut: Vec::new(), lost: 0, file: None, early }
    }

    /// Has the log go to a file of that folder as well, or to none any more.
    pub fn set_file(&mut self, folder: PathBuf, spec: Option<LogFileSpec>) {
        let early = self.early.take().unwrap_or_default();
        let failed = match (spec, &mut self.file) {
            (None, file) => {
                *file = None;
                None
            }
            (Some(spec), Some(file)) => {
                file.set(spec);
                None
            }
            (Some(spec), None) => self.file.insert(LogFile::new(folder, spec)).pass(&early),
        };
        self.remark(failed);
    }

    /// What is to be said of the file is said in it as well, where it can be written.
    fn remark(&mut self, of_file: Option<String>) {
        let Some(said) = of_file else { return };
        let line = self.line(Level::Warn, &said);
        self.put(line.as_bytes());
        if let Some(file) = &mut self.file {
            // Whether it can be was said.
            let _ = file.say(line.as_bytes());
        }
    }

    fn keep(&mut self, bytes: &[u8], whole: bool) {
        if let Some(early) = self.early.as_mut().filter(|early| early.len() + bytes.len() <= MOST_EARLY) {
            early.extend_from_slice(bytes);
        }
        let Some(file) = &mut self.file else { return };
        let failed = if whole { file.say(bytes) } else { file.pass(bytes) };
        self.remark(failed);
    }

    /// A line of the supervisor's own.
    pub fn say(&mut self, level: Level, text: &str) {
        let line = self.line(level, text);
        self.put(line.as_bytes());
        self.keep(line.as_bytes(), true);
    }

    fn line(&self, level: Level, text: &str) -> String {
        let name = match level {
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
        };
        let now = Timestamp::now();
        if self.human {
            let text: String = text.chars().filter(|c| !acts(*c)).collect();
            format!("{now:.6} {name:>5} supervisor: {text}\n")
        } else {
            let fields = serde_json::json!({ "message": text });
            let line = serde_json::json!({
                "timestamp": format!("{now:.6}"), "level": name, "target": "supervisor", "fields": fields,
            });
            format!("{line}\n")
        }
    }

    /// Bytes of the kernel, which has escaped what a terminal obeys, but for what turns the direction of text.
    pub fn pass(&mut self, bytes: &[u8]) {
        if !self.human {
            self.put(bytes);
            return self.keep(bytes, false);
        }
        self.cut.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.cut);
        let mut straight = Vec::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            straight.extend_from_slice(std::mem::take(&mut self.cut).as_slice());
            let letters = chunk.valid().chars().filter(|c| c.is_control() || !acts(*c));
            straight.extend_from_slice(letters.collect::<String>().as_bytes());
            // At the end it may be the beginning of a character.
            self.cut.extend_from_slice(chunk.invalid());
        }
        self.put(&straight);
        self.keep(&straight, false);
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.sink.is_none() {
            return;
        }
        if self.pending.len() + bytes.len() > MOST_PENDING {
            self.lost += bytes.len();
            return;
        }
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            let line = self.line(
                Level::Warn,
                &format!("{lost} bytes of the log are lost: nobody read it, or its disk was full"),
            );
            self.pending.extend_from_slice(line.as_bytes());
        }
        self.pending.extend_from_slice(bytes);
    }

    /// What to wait for until it can be written to, if there is anything to write.
    pub fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.sink.as_ref().filter(|_| !self.pending.is_empty()).map(AsFd::as_fd)
    }

    /// Whether the standard error stream has no reader any more.
    pub fn is_hung_up(&self) -> bool {
        let Some(sink) = &self.sink else { return true };
        let mut fds = [PollFd::new(sink, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Writes what can be written without waiting.
    pub fn flush(&mut self) {
        while self.flush_within(Duration::ZERO) {}
    }

    /// Writes the rest, and waits a moment for the reader.
    pub fn finish(&mut self) {
        self.end_line();
        let end = Instant::now() + PATIENCE;
        while self.flush_within(end.saturating_duration_since(Instant::now())) {}
    }

    /// A kernel ended, in the middle of a line or not.
    pub fn end_line(&mut self) {
        let failed = self.file.as_mut().and_then(LogFile::end_line);
        self.remark(failed);
    }

    /// Writes one chunk; whether another one is worth trying.
    fn flush_within(&mut self, patience: Duration) -> bool {
        let Some(sink) = self.wanted() else { return false };
        let mut fds = [PollFd::from_borrowed_fd(sink, PollFlags::OUT)];
        let timeout = Timespec::try_from(patience).ok();
        if poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready == 0) {
            return false;
        }
        match rustix::io::write(sink, &self.pending[..self.pending.len().min(CHUNK)]) {
            Ok(written) => {
                self.pending.drain(..written);
                if self.pending.is_empty() {
                    self.pending = Vec::new();
                }
                true
            }
            Err(rustix::io::Errno::INTR) => true,
            Err(rustix::io::Errno::AGAIN) => false,
            // It is a file, and there may be room again.
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
                self.lost += std::mem::take(&mut self.pending).len();
                false
            }
            Err(_) => {
                // The reader is gone for good: a closed terminal, a pager that was left.
                self.sink = None;
                self.pending = Vec::new();
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use std::io::Read;

    use super::*;

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_nothing_else() {
        let (mut read, write) = io::pipe().unwrap();
        let mut output = Output::new(Some(write.into()), true);
        for _ in 0..1_000 {
            output.pass(&[b'x'; 1_023]);
            output.pass(b"\n");
            output.flush();
        }
        assert!(output.pending.len() <= MOST_PENDING && output.lost > 0);
        // The pipe holds as much as the buffer: read once for each.
        let mut buffer = vec![0; 256 * 1024];
        for _ in 0..2 {
            let _ = read.read(&mut buffer).unwrap();
            output.flush();
        }
        output.pass(b"after\n");
        output.flush();
        drop(output);
        let mut rest = String::new();
        read.read_to_string(&mut rest).unwrap();
        let rest = rest.trim_start_matches(['x', '\n']);
        assert!(rest.contains("bytes of the log are lost") && rest.ends_with("after\n"), "{rest}");
    }

    #[test]
    fn people_are_shown_nothing_that_turns_text_however_it_is_cut_and_programs_all_of_it() {
        let text = "a\u{202e}b ü\u{2066}c\u{1b}[1m \u{61c}d\n".as_bytes();
        for (human, expected) in [(true, "ab üc\u{1b}[1m d\n".as_bytes()), (false, text)] {
            for piece in 1..text.len() {
                let mut output = Output::new(io::pipe().ok().map(|(_, write)| write.into()), human);
                text.chunks(piece).for_each(|bytes| output.pass(bytes));
                assert_eq!(output.pending, expected, "{human} {piece}");
            }
        }
        let mut output = Output::new(io::pipe().ok().map(|(_, write)| write.into()), true);
        output.pass(b"\xffa\xe2\x80b");
        assert_eq!(output.pending, b"\xffa\xe2\x80b", "what is no text is passed on as it is");
    }

    #[test]
    fn a_reader_that_left_is_forgotten() {
        let (read, write) = io::pipe().unwrap();
        drop(read);
        let mut output = Output::new(Some(write.into()), false);
        output.say(Level::Info, "hello");
        output.flush();
        assert!(output.sink.is_none() && output.wanted().is_none());
    }
}
