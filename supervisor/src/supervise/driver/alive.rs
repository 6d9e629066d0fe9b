//! Whether systemd is told that the daemon lives.
//!
//! That the supervisor turns says little: a daemon whose journal is stuck takes no message in. So while a kernel serves,
//! systemd hears as much as that kernel has proved. A full disk is no such case: the journal says so, and goes on by itself
//! once there is room. A kernel that starts, ends or waits has bounds of its own.

use std::time::Instant;

use super::Driver;
use crate::supervise::{
    output::Output,
    state::{Phase, State},
};

impl Driver {
    /// How often a kernel is to prove that its journal writes: some proofs may be late, or lost with a full link.
    pub(super) fn proof_ms(&self) -> Option<u64> {
        let patience = self.options.notify.as_ref()?.patience()?;
        u64::try_from((patience / 4).as_millis()).ok()
    }

    /// Tells systemd that the daemon lives, when it is time and as far as it is known.
    pub(super) fn beat(&mut self, state: &State, now: Instant, output: &mut Output) {
        let Some(notify) = &mut self.options.notify else { return };
        let serves = matches!(state.phase, Phase::Running { .. });
        let silence = self.known.proven.filter(|_| serves).map(|at| now.saturating_duration_since(at));
        let stuck = silence.zip(notify.patience()).filter(|(silence, patience)| silence > patience);
        notify.beat(now, stuck.is_none());
        if stuck.is_some() == self.known.stuck {
            return;
        }
        self.known.stuck = stuck.is_some();
        let text = match stuck {
            Some((silence, _)) => format!(
                "the journal has not answered for {} s: systemd is not told that the daemon lives, and will end it",
                silence.as_secs()
            ),
            None => "the journal answers again".into(),
        };
        self.options.notify.iter().for_each(|notify| notify.status(&text));
        self.note(text, output);
    }
}
