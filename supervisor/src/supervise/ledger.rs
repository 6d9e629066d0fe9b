//! What is remembered of extensions that crash, and what follows from it.
//!
//! Pure: time is an argument, and whoever owns the file saves it. Crashes are counted by extension and content, three
//! within ten minutes or one while it loads lead to quarantine. Where several may have done it they are suspects, and
//! run in processes of their own until one of these crashes.
//!
//! What comes in was said by a kernel that may be broken or worse, so everything here has a bound.

mod reason;
mod suspects;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use drupe_link::{Crashed, Quarantined, Verdicts};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::judge::{Blame, Culprit, is_content};
use suspects::Suspects;

/// Crashes within the window that lead to quarantine.
const MOST_CRASHES: usize = 3;
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Crashes of extensions' own processes that are believed within [`BURST`]. An extension is left out after three, so a
/// kernel that reports more than this makes them up.
const MOST_AT_ONCE: usize = 32;
const BURST: SignedDuration = SignedDuration::from_secs(10);
/// Crashes kept, oldest first out.
const CRASHES: usize = 512;
/// Quarantined extensions kept, oldest first out; with their reasons they fit a frame.
const QUARANTINED: usize = 128;
/// The longest file that is read back: several times the largest that is written.
pub const FILE: usize = 1024 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrashLedger {
    crashes: VecDeque<Crash>,
    quarantined: VecDeque<Quarantined>,
    suspects: Suspects,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Crash {
    extension: String,
    hash: String,
    time: Timestamp,
    /// Whether it ended the kernel, and not a process of the extension's own.
    kernel: bool,
}

/// What a crash led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consequence {
    /// An extension is left out from now on.
    pub quarantined: bool,
    /// What the operator should know.
    pub notes: Vec<String>,
}

impl CrashLedger {
    /// Reads what [`to_bytes`](Self::to_bytes) wrote; none if it is something else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > FILE {
            return None;
        }
        let mut ledger: Self = serde_json::from_slice(bytes).ok()?;
        ledger.crashes.retain(|crash| is_content(&crash.extension, &crash.hash));
        ledger.quarantined.retain(|found| is_content(&found.extension, &found.hash));
        for found in &mut ledger.quarantined {
            found.reason = reason::plain(&found.reason, reason::LONGEST);
        }
        ledger.suspects.retain(|name| is_content(name, ""));
        ledger.bound();
        Some(ledger)
    }

    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }

    /// A kernel crashed. `how` as in the record of its end.
    pub fn kernel_crashed(&mut self, blame: &Blame, how: &str, now: Timestamp) -> Consequence {
        match blame {
            Blame::Nobody => Consequence::default(),
            Blame::Certain(culprit) => self.convict(culprit, how, true, now),
            Blame::Possible(culprits) => {
                let names: Vec<String> = culprits.iter().map(|culprit| culprit.extension.clone()).collect();
                let list = reason::list(&names);
                let note = match names.len() {
                    1 => format!(
                        "{list} ran at two ends of kernels in a row: it runs in a process of its own until it is released"
                    ),
                    _ => format!(
                        "one of {list} ended the kernel: they run in processes of their own until it is known which"
                    ),
                };
                let notes = if self.suspects.suspect(names) { vec![note] } else { Vec::new() };
                Consequence { quarantined: false, notes }
            }
        }
    }

    /// A process of an extension's own crashed. None if that is not believed.
    pub fn process_crashed(&mut self, crashed: &Crashed, now: Timestamp) -> Option<Consequence> {
        let recent = |crash: &&Crash| !crash.kernel && near(crash.time, now, BURST);
        if self.crashes.iter().filter(recent).count() >= MOST_AT_ONCE {
            return None;
        }
        let culprit = Culprit::new(&crashed.extension, &crashed.hash, &crashed.operation, crashed.loading)?;
        Some(self.convict(&culprit, &crashed.how, false, now))
    }

    /// An extension counts as new. None if nothing was held against it.
    pub fn released(&mut self, extension: &str, why: &str) -> Option<Consequence> {
        let before = self.crashes.len() + self.quarantined.len();
        self.crashes.retain(|crash| crash.extension != extension);
        self.quarantined.retain(|found| found.extension != extension);
        let suspected = self.suspects.clear(extension);
        let known = suspected || before != self.crashes.len() + self.quarantined.len();
        known.then(|| Consequence { quarantined: false, notes: vec![reason::released(extension, why)] })
    }

    /// What the kernel is to do.
    pub fn verdicts(&self) -> Verdicts {
        Verdicts { quarantined: self.quarantined.iter().cloned().collect(), suspects: self.suspects.names() }
    }

    /// What `status` says of it.
    pub fn notices(&self) -> impl Iterator<Item = String> {
        self.quarantined.iter().map(|found| format!("`{}` is quarantined: {}", found.extension, found.reason))
    }

    /// Counts a crash whose culprit is certain.
    fn convict(&mut self, culprit: &Culprit, how: &str, kernel: bool, now: Timestamp) -> Consequence {
        let mut consequence = Consequence::default();
        let (extension, hash) = (&culprit.extension, &culprit.hash);
        if let Some(cleared) = self.suspects.convict(extension) {
            consequence.notes.push(reason::convicted(extension, &cleared));
        }
        let crash = Crash { extension: extension.clone(), hash: hash.clone(), time: now, kernel };
        self.crashes.push_back(crash);
        self.bound();
        // Only those within the window are left.
        let same = self.crashes.iter().filter(|crash| culprit.is(&crash.extension, &crash.hash));
        let kernels: Vec<bool> = same.map(|crash| crash.kernel).collect();
        let known = |found: &Quarantined| culprit.is(&found.extension, &found.hash);
        if (culprit.loading || kernels.len() >= MOST_CRASHES) && !self.quarantined.iter().any(known) {
            let reason = reason::crashed(culprit, how, &kernels);
            consequence.quarantined = true;
            consequence.notes.push(format!("`{extension}` is quarantined: {reason}"));
            // Of one extension only the latest content can be there.
            self.quarantined.retain(|found| found.extension != *extension);
            let (extension, hash) = (extension.clone(), hash.clone());
            self.quarantined.push_back(Quarantined { extension, hash, reason, since: now });
            self.bound();
        }
        consequence
    }

    fn bound(&mut self) {
        if let Some(newest) = self.crashes.back().map(|crash| crash.time) {
            self.crashes.retain(|crash| near(crash.time, newest, WINDOW));
        }
        keep_newest(&mut self.crashes, CRASHES);
        keep_newest(&mut self.quarantined, QUARANTINED);
        self.suspects.bound();
    }
}

/// Whether two times are at most so far apart. A clock that was set back does not keep a crash for ever.
fn near(one: Timestamp, other: Timestamp, most: SignedDuration) -> bool {
    one.duration_since(other).abs() <= most
}

fn keep_newest<T>(list: &mut VecDeque<T>, most: usize) {
    list.drain(..list.len().saturating_sub(most));
}
