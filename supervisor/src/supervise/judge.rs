//! Whose code ended a kernel, as far as the page that outlives it can tell.
//!
//! Pure: the page was read, the process is gone. What follows from the answer is the [ledger](super::ledger)'s.

#[cfg(test)]
mod tests;

use std::time::Duration;

use drupe_blame::{Reading, Running};
use drupe_extension_api::ExtensionId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};

use super::state::{Exit, Killed};

/// A kernel withholds its beat while code of an extension holds a thread for more than a second, and is killed when ten
/// seconds have passed without one. Several may have taken turns; whoever is there at the end for most of that time is to
/// blame.
const OVERDUE: Duration = Duration::from_secs(5);
/// What people, service managers and the system send. A thread that is at fault dies of other signals.
const FROM_OUTSIDE: [i32; 5] = [SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blame {
    /// No extension, or nothing is known.
    Nobody,
    Certain(Culprit),
    /// One of these, or the one that there is.
    Possible(Vec<Culprit>),
}

/// The longest hash that is taken for one.
const HASH: usize = 64;

/// An extension and what it was doing. Page and link were in the hands of a process that has failed:
/// [`new`](Self::new) is the only way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// The extension: a valid id.
    pub extension: String,
    /// The hash of its content: a word of at most 64 characters, which may be empty.
    pub hash: String,
    pub operation: String,
    /// Whether it was not active yet.
    pub loading: bool,
}

/// Judges a crash by what the page says and how the process ended.
pub fn judge(reading: &Reading, exit: Exit, killed: Option<Killed>) -> Blame {
    if let Some(last) = &reading.last {
        // The thread that died has said whose code it was in; if nobody's, it was the kernel's own.
        return last.running.as_ref().and_then(Culprit::of).map_or(Blame::Nobody, Blame::Certain);
    }
    let borrowed = || reading.running.iter().filter(|running| !running.own_thread);
    match (exit, killed) {
        (Exit::Signal(SIGKILL), Some(killed)) if killed.hung() => {
            among(borrowed().filter(|running| running.since >= OVERDUE))
        }
        (Exit::Signal(SIGKILL), Some(_)) => Blame::Nobody,
        (Exit::Signal(signal), None) if FROM_OUTSIDE.contains(&signal) => Blame::Nobody,
        // A thread of an extension's own names it for its whole life, which says little: it comes second.
        _ => match among(borrowed()) {
            Blame::Nobody => among(reading.running.iter()),
            blame => blame,
        },
    }
}

/// Who ran at two ends in a row that came as if from outside: no proof, since a process may also end itself that way, but
/// more than chance. `before` is whom this returned for the end before, and becomes whom it returns for this one.
pub fn present_again(
    reading: &Reading,
    exit: Exit,
    killed: Option<Killed>,
    before: &mut Vec<Culprit>,
) -> Blame {
    let outside = matches!((exit, killed), (Exit::Signal(signal), None) if FROM_OUTSIDE.contains(&signal));
    let borrowed = reading.running.iter().filter(|running| outside && !running.own_thread);
    let now = among(borrowed).culprits().to_vec();
    let both: Vec<_> = now
        .iter()
        .filter(|culprit| before.iter().any(|b| b.is(&culprit.extension, &culprit.hash)))
        .cloned()
        .collect();
    *before = now;
    if both.is_empty() { Blame::Nobody } else { Blame::Possible(both) }
}

/// One of them, each named once.
fn among<'a>(running: impl Iterator<Item = &'a Running>) -> Blame {
    let mut found: Vec<Culprit> = Vec::new();
    for culprit in running.filter_map(Culprit::of) {
        match found.iter_mut().find(|known| known.is(&culprit.extension, &culprit.hash)) {
            // A crash while loading weighs more.
            Some(known) if culprit.loading && !known.loading => *known = culprit,
            Some(_) => {}
            None => found.push(culprit),
        }
    }
    match found.len() {
        0 => Blame::Nobody,
        1 => Blame::Certain(found.remove(0)),
        _ => Blame::Possible(found),
    }
}

impl Blame {
    pub fn culprits(&self) -> &[Culprit] {
        match self {
            Self::Nobody => &[],
            Self::Certain(culprit) => std::slice::from_ref(culprit),
            Self::Possible(culprits) => culprits,
        }
    }
}

impl Culprit {
    /// None if the page names no extension or holds no hash.
    pub fn new(extension: &str, hash: &str, operation: &str, loading: bool) -> Option<Self> {
        is_content(extension, hash).then(|| Self {
            extension: extension.to_owned(),
            hash: hash.to_owned(),
            operation: operation.to_owned(),
            loading,
        })
    }

    pub fn is(&self, extension: &str, hash: &str) -> bool {
        self.extension == extension && self.hash == hash
    }

    fn of(running: &Running) -> Option<Self> {
        let operation = running.operation;
        Self::new(&running.extension, &running.hash, operation.name(), operation.loading())
    }
}

/// Whether these can name an extension and its content.
pub fn is_content(extension: &str, hash: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':');
    ExtensionId::new(extension).is_ok() && hash.len() <= HASH && hash.bytes().all(word)
}
