//! Which runs go on, and which are left alone for a while. A run that cannot begin keeps no place from others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use drupe_extension_api::{
    Fault, FaultCode,
    control::{ScheduleRun, ScheduleRunState as State},
};
use jiff::{SignedDuration, Timestamp};

/// How long a run may wait for others, from when its slot was settled: that may be long after the slot itself, which is the grace's to
/// judge. What waits for longer is of no use to anybody.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(6);

/// A run: its schedule and its slot.
pub(super) type RunKey = (String, Timestamp);

/// What is to be done with a run that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunStep {
    /// Others go first, or it is left alone.
    Leave,
    /// It was begun, and is followed to its end.
    GoOn,
    /// There is a place for it, and it takes it.
    Begin,
    /// It has waited for too long.
    Miss,
}

#[derive(Debug, Default)]
pub(super) struct RunPlaces {
    /// Runs that somebody follows, by schedule and slot.
    followed: BTreeSet<RunKey>,
    /// Schedules whose runs cannot begin yet, and until when they are left alone.
    later: BTreeMap<String, Instant>,
}

impl RunPlaces {
    /// What is to be done with a run, where so many may go on at once.
    pub(super) fn step(
        &mut self,
        id: &str,
        run: &ScheduleRun,
        is_paused: bool,
        at_once: usize,
        (now, at): (Timestamp, Instant),
    ) -> RunStep {
        self.later.retain(|_, until| *until > at);
        if self.later.contains_key(id) {
            return RunStep::Leave;
        }
        if run.state == State::Running {
            return RunStep::GoOn;
        }
        // Of one schedule one goes at a time.
        let is_busy = self.followed.iter().any(|(other, _)| other == id);
        if is_busy || is_paused || self.followed.len() >= at_once {
            return RunStep::Leave;
        }
        if now.duration_since(run.changed) > LONGEST_WAIT {
            return RunStep::Miss;
        }
        RunStep::Begin
    }

    /// Somebody follows a run from now on; false where somebody does already.
    pub(super) fn follow(&mut self, run: RunKey) -> bool {
        self.followed.insert(run)
    }

    /// Nobody follows it any more.
    pub(super) fn leave(&mut self, run: &RunKey) {
        self.followed.remove(run);
    }

    /// A schedule is left alone for so long.
    pub(super) fn put_off(&mut self, id: &str, until: Instant) {
        self.later.insert(id.to_owned(), until);
    }

    /// Whether any schedule is left alone for now.
    pub(super) fn has_put_off(&self) -> bool {
        !self.later.is_empty()
    }
}

/// How long a run is left alone that could not go on; none where that does not pass by itself.
pub(super) fn rest_after(fault: &Fault, usual: Duration) -> Option<Duration> {
    let passes = fault.retriable || matches!(fault.code, FaultCode::Unavailable | FaultCode::Internal);
    passes.then_some(usual)
}
