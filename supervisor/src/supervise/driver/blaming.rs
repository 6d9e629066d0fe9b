//! Who ends kernels, and what the next one is told of it.
//!
//! Holds the page and the ledger; [`judge`](super::super::judge) and [`ledger`](super::super::ledger) decide.

use std::os::fd::BorrowedFd;

use drupe_blame::Page;
use drupe_link::{Crashed, Down, Verdicts};
use jiff::Timestamp;

use super::Driver;
use crate::supervise::{
    judge::{Blame, Culprit, judge, present_again},
    ledger::{Consequence, CrashLedger},
    output::Output,
    record::{Record, is_name},
    state::{Ending, Event, Exit},
};

/// What is known of extensions that crash.
#[derive(Debug)]
pub struct Blaming {
    /// The page in which kernels note whose code runs. Without it no extension is blamed.
    page: Option<Page>,
    /// Whether the last kernel was given the page, cleared of what earlier ones wrote.
    lent: bool,
    ledger: CrashLedger,
    /// Whose code ran when the last kernel was ended by a signal that seemed to come from outside.
    present: Vec<Culprit>,
    /// Who ended the last kernel, for people.
    last: Option<String>,
    /// Whether the ledger was changed since it was written.
    unsaved: bool,
    /// Whether the ledger was changed since the kernel was told of it.
    untold: bool,
    told: Verdicts,
}

impl Blaming {
    /// Reads what earlier supervisors knew, with remarks for the operator.
    pub fn open(record: &Record) -> (Self, Vec<String>) {
        let (ledger, damaged) = record.ledger();
        let (page, missing) = match Page::create() {
            Ok(page) => (Some(page), None),
            Err(error) => (None, Some(format!("who ends a kernel cannot be told: {error}"))),
        };
        let told = Verdicts::default();
        let blaming = Self {
            page,
            lent: false,
            ledger,
            present: Vec::new(),
            last: None,
            unsaved: false,
            untold: false,
            told,
        };
        (blaming, damaged.into_iter().chain(missing).collect())
    }

    /// The page for the next kernel; none if it cannot be cleared, since it would blame code that no longer runs.
    pub fn fresh_page(&mut self) -> Option<BorrowedFd<'_>> {
        let page = self.page.as_ref().filter(|page| page.clear().is_ok());
        self.lent = page.is_some();
        page.map(Page::fd)
    }

    /// What a kernel is told at its start.
    pub fn told(&mut self) -> Verdicts {
        self.told = self.ledger.verdicts();
        self.untold = false;
        self.told.clone()
    }

    /// Who ended the last kernel, if that was an extension.
    pub fn last(&self) -> Option<&String> {
        self.last.as_ref()
    }

    /// What `status` says while no kernel serves.
    pub fn notices(&self) -> impl Iterator<Item = String> {
        self.last.iter().cloned().chain(self.ledger.notices())
    }

    /// Whose fault the end of a kernel was.
    pub fn judge(&mut self, ending: &Ending) -> Blame {
        let (true, Some(exit), Some(page)) = (ending.crash && self.lent, ending.exit, &self.page) else {
            self.present.clear();
            return Blame::Nobody;
        };
        let Ok(reading) = page.read() else { return Blame::Nobody };
        let again = present_again(&reading, exit, ending.killed, &mut self.present);
        match judge(&reading, exit, ending.killed) {
            Blame::Nobody => again,
            blame => blame,
        }
    }

    /// Whether the page shows that an extension's code ran when a kernel ended in this way.
    pub fn names(&self, exit: Exit) -> bool {
        let Some(page) = self.page.as_ref().filter(|_| self.lent) else { return false };
        page.read().is_ok_and(|reading| judge(&reading, exit, None) != Blame::Nobody)
    }

    fn changed(&mut self) {
        self.unsaved = true;
        self.untold = true;
    }
}

impl Driver {
    /// Counts the end of a kernel.
    pub(super) fn blame(&mut self, blame: &Blame, generation: u64, how: &str, output: &mut Output) {
        let names = |blame: &Blame| {
            let names = blame.culprits().iter();
            names.map(|c| format!("`{}` in `{}`", c.extension, c.operation)).collect::<Vec<_>>().join(", ")
        };
        self.blaming.last = match blame {
            Blame::Nobody => None,
            Blame::Certain(_) => Some(format!("kernel {generation} was ended by {}: {how}", names(blame))),
            Blame::Possible(one) if one.len() == 1 => {
                Some(format!("kernel {generation} may have been ended by {}: {how}", names(blame)))
            }
            Blame::Possible(_) => {
                Some(format!("kernel {generation} was ended by one of {}: {how}", names(blame)))
            }
        };
        if let Some(last) = self.blaming.last.clone() {
            self.remark(&last, output);
            let consequence = self.blaming.ledger.kernel_crashed(blame, how, Timestamp::now());
            if matches!(blame, Blame::Certain(_)) {
                // This comes first, because it may shorten the wait for the next kernel.
                self.events.push_front(Event::Convicted { quarantined: consequence.quarantined });
            }
            self.follow(consequence, output);
        }
        self.settle(output);
    }

    /// Counts the end of a process of an extension's own.
    pub(super) fn process_crashed(&mut self, crashed: &Crashed, output: &mut Output) {
        if let Some(consequence) = self.blaming.ledger.process_crashed(crashed, Timestamp::now()) {
            self.follow(consequence, output);
        }
    }

    /// Forgets what is held against an extension.
    pub(super) fn released(&mut self, extension: &str, reason: &str, output: &mut Output) {
        if let Some(consequence) = self.blaming.ledger.released(extension, reason) {
            self.follow(consequence, output);
        }
    }

    /// Keeps the name of the set of extensions with which a kernel became ready. Whether it was kept.
    pub(super) fn keep_extensions(&mut self, name: Option<String>, output: &mut Output) -> bool {
        // In safe mode most are left out: that set is good for nothing else.
        let Some(name) = name.filter(|name| is_name(name) && !self.launch.safe_mode) else { return false };
        let kept = self.record.keep_extensions(&name);
        let good = kept.is_ok();
        self.remembered(kept, output);
        good
    }

    /// Writes the ledger and tells the kernel, if there is something new.
    pub(super) fn settle(&mut self, output: &mut Output) {
        if std::mem::take(&mut self.blaming.unsaved) {
            let saved = self.record.keep_ledger(&self.blaming.ledger);
            self.remembered(saved, output);
        }
        let Some(kernel) = self.kernel.as_ref().filter(|_| self.blaming.untold) else { return };
        let verdicts = self.blaming.ledger.verdicts();
        // A link that is full is tried again in the next round.
        if verdicts == self.blaming.told || kernel.link.try_send(&Down::Verdicts(verdicts.clone())).is_ok() {
            self.blaming.told = verdicts;
            self.blaming.untold = false;
        }
    }

    fn follow(&mut self, consequence: Consequence, output: &mut Output) {
        self.blaming.changed();
        consequence.notes.iter().for_each(|note| self.remark(note, output));
    }
}
