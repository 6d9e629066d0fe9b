//! What is known of the kernel process that there is.

use std::time::{Duration, Instant};

use super::{Action, Killed};

/// Silence after which a kernel hangs. It beats every two seconds, and at rest every four, from soon after its start on.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// The same before its first beat: reading a large journal after a crash comes earlier.
pub(super) const START_SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// It was started from the supervisor's own program, whatever is at the path by now.
    pub(super) own_program: bool,
    /// The file at the path, from which it was started, is another program than the supervisor's.
    pub(super) exchanged: bool,
    /// When it was started, or last came further with what it must do before it is ready.
    pub(super) progressed: Instant,
    /// How far it said that it came.
    pub(super) steps: u64,
    /// The last sign of life.
    pub(super) sign: Instant,
    /// Whether it has said its first word.
    pub(super) spoke: bool,
    pub(super) beats: bool,
    pub(super) ready: Option<Instant>,
    pub(super) farewell: Option<Farewell>,
    pub(super) killed: Option<Killed>,
    /// Its process shut down the listening socket.
    pub(super) shut: bool,
    /// It was told to make room for one that has the new socket.
    pub(super) relisted: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Farewell {
    Stopping,
    Restart { reason: String, unasked: bool },
}

impl Kernel {
    pub(super) fn new(own_program: bool, now: Instant) -> Self {
        Self {
            own_program,
            exchanged: false,
            progressed: now,
            steps: 0,
            sign: now,
            spoke: false,
            beats: false,
            ready: None,
            farewell: None,
            killed: None,
            shut: false,
            relisted: false,
        }
    }

    /// How long it may be silent before it is ready.
    pub(super) fn patience(&self) -> Duration {
        if self.beats { SILENCE } else { START_SILENCE }
    }

    /// When one that ends is taken to hang; never after its last words.
    pub(super) fn silent_at(&self) -> Option<Instant> {
        self.farewell.is_none().then(|| self.sign + self.patience())
    }

    pub(super) fn kill(&mut self, why: Killed, actions: &mut Vec<Action>) {
        if self.killed.is_none() {
            self.killed = Some(why);
            actions.push(Action::Kill);
        }
    }
}
