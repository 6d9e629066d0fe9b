//! What the supervisor answers to `status`.

use std::collections::VecDeque;

use drupe_extension_api::control::{DaemonState, Status};

use super::{Known, blaming::Blaming};
use crate::supervise::{
    kernel::Kernel,
    record::Record,
    state::{Phase, State},
};

/// What the answer is made of.
pub struct View<'a> {
    pub kernel: Option<&'a Kernel>,
    pub known: &'a Known,
    pub notices: &'a VecDeque<String>,
    pub blaming: &'a Blaming,
    pub record: &'a Record,
}

impl View<'_> {
    /// The answer. Sessions and extensions are those that the last kernel named.
    pub fn status(&self, state: &State) -> Status {
        let starting = self.kernel.filter(|_| matches!(state.phase, Phase::Starting(_)));
        let doing = starting.and_then(|kernel| {
            let doing = self.known.doing.as_ref()?;
            Some(format!("kernel {} {doing}; it is ready after that", kernel.generation))
        });
        let mut notices: Vec<String> = doing.into_iter().chain(self.notices.iter().cloned()).collect();
        notices.extend(self.blaming.notices());
        notices.extend(self.known.notices.iter().cloned());
        if self.known.unlisted > 0 {
            notices.push(format!("{} more extensions are not listed", self.known.unlisted));
        }
        let uptime = self.kernel.map_or(0, |kernel| kernel.started.elapsed().as_millis());
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            state: daemon_state(state),
            supervisor_pid: std::process::id(),
            kernel_pid: self.kernel.map(Kernel::pid),
            generation: self.record.generation(),
            uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
            restarts: state.history.restarts,
            safe_mode: state.history.safe_mode,
            model: self.known.model.clone(),
            sessions: self.known.sessions,
            running_turns: 0,
            summing_up: 0,
            queued_turns: self.known.queued_turns,
            queued_deliveries: 0,
            queued_messages: 0,
            dead_messages: 0,
            budgets: Vec::new(),
            extensions: self.known.extensions.clone(),
            exits: self.record.exits(),
            notices,
            config_refused: self.known.config_refused.clone(),
            backup: None,
        }
    }
}

fn daemon_state(state: &State) -> DaemonState {
    match state.phase {
        Phase::Starting(_) if state.history.restarts == 0 => DaemonState::Starting,
        Phase::Starting(_) | Phase::Waiting { .. } => DaemonState::Restarting,
        Phase::Running { .. } => DaemonState::Ready,
        Phase::Draining { .. } => DaemonState::Draining,
        Phase::Stopping { .. } | Phase::Done { .. } => DaemonState::Stopped,
    }
}
