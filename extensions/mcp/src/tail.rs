//! The last lines that a server wrote to its standard error stream, and how it ended: what an error of it is explained with.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::wire::ProcessExit;

use crate::definition::shown;

/// Bytes that are kept of what it wrote.
const BYTES: usize = 4096;

/// Lines that an error shows.
const LINES: usize = 10;

/// Bounded, however much a server writes.
pub struct LastLines {
    kept: Mutex<Kept>,
    /// What the server knows and nobody else may read.
    secrets: Vec<String>,
}

#[derive(Default)]
struct Kept {
    bytes: VecDeque<u8>,
    /// Why it was ended, or how it ended.
    end: Option<String>,
}

impl LastLines {
    pub fn new(secrets: Vec<String>) -> Self {
        Self { kept: Mutex::default(), secrets }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        kept.bytes.extend(&bytes[bytes.len().saturating_sub(BYTES)..]);
        let beyond = kept.bytes.len().saturating_sub(BYTES);
        kept.bytes.drain(..beyond);
    }

    /// Says why it ends; what was said first stays.
    pub fn ended(&self, why: impl Into<String>) {
        self.lock().end.get_or_insert(why.into());
    }

    /// Why it ended, and its last lines, as the end of a text about it.
    pub fn told(&self) -> String {
        let kept = self.lock();
        let (front, back) = kept.bytes.as_slices();
        let text = shown(&String::from_utf8_lossy(&[front, back].concat()));
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        let mut told = kept.end.as_ref().map(|end| format!("; {end}")).unwrap_or_default();
        if !last.is_empty() {
            told += &format!("; its last lines:\n{last}");
        }
        self.hidden(told)
    }

    /// A text without the secrets of the server.
    pub fn hidden(&self, mut text: String) -> String {
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "[secret]");
            }
        }
        text
    }
}

/// How a program ended, as a sentence without its beginning.
pub fn how(exit: &ProcessExit) -> String {
    match exit {
        ProcessExit { exceeded: Some(what), .. } => format!("it was stopped: its processes {what}"),
        ProcessExit { status: Some(status), .. } => format!("it ended with status {status}"),
        ProcessExit { signal: Some(signal), .. } => format!("it was ended by signal {signal}"),
        _ => "it was stopped".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_no_secret_is_among_them() {
        let tail = LastLines::new(vec!["hunter2-hunter2".to_owned()]);
        for number in 0..10_000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        tail.push(b"\x1b[31mtoken hunter2-hunter2\n");
        tail.ended("it ended with status 3");
        tail.ended("later");
        let told = tail.told();
        assert!(told.starts_with("; it ended with status 3; its last lines:\nline 9991\n"), "{told}");
        assert!(told.ends_with("[31mtoken [secret]") && !told.contains('\x1b'), "{told}");
        assert!(tail.lock().bytes.len() <= BYTES);
    }
}
