//! What the supervisor decides, without doing anything.
//!
//! [`State::step`] is pure and total: time comes in as an argument, chance as a seed, and what is to be done goes out
//! as [`Action`]s. The driver performs them and decides nothing. No process, file or socket is known here.

mod ended;
mod event;
mod kernel;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use ended::{convicted, ended, spawn, unstarted};
pub use event::{Action, Ending, Event, Exit, Killed, Launch};
pub use kernel::Kernel;
use kernel::{Farewell, SILENCE};

/// The supervisor gives a start up after this long. The time begins anew whenever the kernel reports progress with work
/// whose length nobody knows.
const LONGEST_START: Duration = Duration::from_secs(300);
/// Time that a kernel has after its drain timeout to stop its extensions and end.
const GRACE: Duration = Duration::from_secs(18);
/// Assumed until a kernel says otherwise.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// After this long without an answer a reload counts as done, so that systemd does not wait for ever.
const RELOAD: Duration = Duration::from_secs(10);
/// Probes of the control socket that may fail in a row.
const MOST_FAILED_PROBES: u32 = 2;

/// The exit statuses that have a meaning.
pub mod status {
    /// Another daemon serves the home.
    pub const IN_USE: u8 = 69;
    /// Not even safe mode works.
    pub const HOPELESS: u8 = 70;
    /// The home cannot be made (EX_CANTCREAT), or was moved or deleted.
    pub const NO_HOME: u8 = 73;
    /// The journal is damaged, of a newer release, or cannot be brought to the version of this one (EX_IOERR). The kernel has
    /// said which, and no other start changes it.
    pub const JOURNAL: u8 = 74;
    /// The supervisor and the program that it has started are of different versions (EX_PROTOCOL).
    pub const STRANGER: u8 = 76;
    /// The disk of the journal or of the home is full, read-only or busy; a later start may succeed.
    pub const LATER: u8 = 75;
    pub const CONFIGURATION: u8 = 78;
    /// The daemon was stopped by force; turns may have to be resumed.
    pub const FORCED: u8 = 1;
}

/// Everything that the supervisor remembers to decide by.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub phase: Phase,
    pub history: History,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    Starting(Kernel),
    Running {
        kernel: Kernel,
        failed_probes: u32,
        /// When a reload is taken to be done.
        reloading: Option<Instant>,
    },
    /// The kernel ends by its own decision.
    Draining {
        kernel: Kernel,
        until: Instant,
    },
    /// There is no kernel. The next one starts at that moment.
    Waiting {
        until: Instant,
    },
    /// The kernel ends because the daemon does, with this status if all goes well.
    Stopping {
        kernel: Kernel,
        until: Instant,
        status: u8,
        /// A client asked the kernel for the stop, and the operator has sent no signal yet: only a second signal forces it.
        unsignalled: bool,
    },
    /// The supervisor ends with this status.
    Done {
        status: u8,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct History {
    pub restarts: u32,
    /// Whether kernels leave third-party extensions out.
    pub safe_mode: bool,
    safe_mode_asked: bool,
    crashes: VecDeque<Instant>,
    failures: u32,
    safe_failures: u32,
    good_config: bool,
    on_good_config: bool,
    good_extensions: bool,
    on_good_extensions: bool,
    /// Starts in a row that ended before they were ready, where nobody is certainly to blame.
    unready: u32,
    /// Starts in a row that the disk, or the system, refused.
    postponed: u32,
    /// Restarts in a row that nobody asked for, with no healthy kernel between them.
    unasked: u32,
    drain_timeout: Duration,
    seed: u64,
}

impl State {
    /// The first start. `good_extensions` says whether an earlier supervisor has kept the name of a set of extensions
    /// that works; `seed` spreads the restarts of many daemons on one machine.
    pub fn begin(safe_mode: bool, good_extensions: bool, seed: u64, now: Instant) -> (Self, Vec<Action>) {
        let history = History {
            restarts: 0,
            safe_mode,
            safe_mode_asked: safe_mode,
            crashes: VecDeque::new(),
            failures: 0,
            safe_failures: 0,
            good_config: false,
            on_good_config: false,
            good_extensions,
            on_good_extensions: false,
            unready: 0,
            postponed: 0,
            unasked: 0,
            drain_timeout: DRAIN_TIMEOUT,
            seed: seed | 1,
        };
        let phase = Phase::Starting(Kernel::new(false, now));
        let spawn = Action::Spawn(history.launch());
        (Self { phase, history }, vec![spawn])
    }

    /// The status to end with, when it is over.
    pub fn done(&self) -> Option<u8> {
        match self.phase {
            Phase::Done { status } => Some(status),
            _ => None,
        }
    }

    /// For how long the kernel has given no sign of life; none while there is no kernel.
    pub fn silence(&self, now: Instant) -> Duration {
        let kernel = self.phase.present();
        kernel.map_or(Duration::ZERO, |kernel| now.saturating_duration_since(kernel.sign))
    }

    /// When the next [`Event::Tick`] changes something, if nothing else happens.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Waiting { until } => Some(*until),
            Phase::Starting(kernel) if kernel.killed.is_none() => {
                Some((kernel.sign + kernel.patience()).min(kernel.progressed + LONGEST_START))
            }
            Phase::Running { kernel, reloading, .. } if kernel.killed.is_none() => {
                let silent = kernel.sign + SILENCE;
                Some(reloading.map_or(silent, |reloading| reloading.min(silent)))
            }
            Phase::Draining { kernel, until } | Phase::Stopping { kernel, until, .. }
                if kernel.killed.is_none() =>
            {
                Some(kernel.silent_at().map_or(*until, |silent| silent.min(*until)))
            }
            _ => None,
        }
    }

    /// What follows from an event. The driver performs the actions in their order.
    pub fn step(self, event: Event, now: Instant) -> (Self, Vec<Action>) {
        let Self { phase, mut history } = self;
        let mut actions = Vec::new();
        let phase = match (phase, event) {
            (done @ Phase::Done { .. }, _) => done,
            (Phase::Waiting { until }, event) => wait(&mut history, until, event, now, &mut actions),
            (phase, Event::Exited { exit, named }) => {
                let stopping = match phase {
                    Phase::Stopping { status, .. } => Some(status),
                    _ => None,
                };
                match phase.into_kernel() {
                    Some(kernel) => ended(&mut history, kernel, stopping, (exit, named), now, &mut actions),
                    None => Phase::Waiting { until: now },
                }
            }
            (Phase::Stopping { .. }, Event::SpawnFailed(_)) => Phase::Done { status: status::FORCED },
            (phase, Event::SpawnFailed(reason)) => {
                let own = phase.present().is_some_and(|kernel| kernel.own_program);
                unstarted(&mut history, own, &reason, now, &mut actions)
            }
            (phase, event) => live(&mut history, phase, event, now, &mut actions),
        };
        (Self { phase, history }, actions)
    }
}

impl Phase {
    fn present(&self) -> Option<&Kernel> {
        match self {
            Self::Starting(kernel)
            | Self::Running { kernel, .. }
            | Self::Draining { kernel, .. }
            | Self::Stopping { kernel, .. } => Some(kernel),
            Self::Waiting { .. } | Self::Done { .. } => None,
        }
    }

    fn kernel(&mut self) -> Option<&mut Kernel> {
        match self {
            Self::Starting(kernel)
            | Self::Running { kernel, .. }
            | Self::Draining { kernel, .. }
            | Self::Stopping { kernel, .. } => Some(kernel),
            Self::Waiting { .. } | Self::Done { .. } => None,
        }
    }

    fn into_kernel(self) -> Option<Kernel> {
        self.present().cloned()
    }
}

fn wait(
    history: &mut History,
    until: Instant,
    event: Event,
    now: Instant,
    actions: &mut Vec<Action>,
) -> Phase {
    match event {
        Event::Convicted { quarantined } => {
            Phase::Waiting { until: convicted(history, until, quarantined, now) }
        }
        Event::Terminate => {
            actions.push(Action::TellStopping);
            Phase::Done { status: 0 }
        }
        Event::Homeless => {
            actions.push(Action::TellStopping);
            Phase::Done { status: status::NO_HOME }
        }
        Event::Reload => {
            // The operator has mended the file: the next start is to read it.
            history.on_good_config = false;
            Phase::Waiting { until }
        }
        Event::Tick if until <= now => spawn(history, now, actions),
        _ => Phase::Waiting { until },
    }
}

/// Events with a kernel, but for its end.
fn live(
    history: &mut History,
    mut phase: Phase,
    event: Event,
    now: Instant,
    actions: &mut Vec<Action>,
) -> Phase {
    if let (Some(kernel), Event::Hello | Event::Beat | Event::Ready { .. }) = (phase.kernel(), &event) {
        kernel.sign = now;
        kernel.spoke = true;
        kernel.beats |= event != Event::Hello;
    }
    match event {
        Event::Ready { drain_timeout, good_config, good_extensions } => {
            history.drain_timeout = drain_timeout;
            history.good_config |= good_config;
            history.good_extensions |= good_extensions;
            (history.unready, history.postponed) = (0, 0);
            ready(phase, now, actions)
        }
        Event::Progress(steps) => {
            if let Phase::Starting(kernel) = &mut phase
                && steps > kernel.steps
            {
                kernel.steps = steps;
                kernel.progressed = now;
            }
            phase
        }
        Event::Exchanged => {
            phase.kernel().into_iter().for_each(|kernel| kernel.exchanged = true);
            phase
        }
        Event::Draining => drain(phase, now + history.drain_timeout + GRACE),
        Event::Stopping => farewell(phase, Farewell::Stopping, now),
        Event::Restart { reason, unasked } => {
            let unasked = unasked || phase.present().is_some_and(|kernel| kernel.relisted);
            farewell(phase, Farewell::Restart { reason, unasked }, now)
        }
        Event::StopAgreed => match phase {
            Phase::Stopping { .. } => phase,
            phase => stop(history, phase, (0, true), now, actions),
        },
        Event::Terminate => terminate(history, phase, now, actions),
        Event::Reload => {
            if let Phase::Running { reloading, .. } = &mut phase {
                *reloading = Some(now + RELOAD);
                actions.push(Action::TellReloading);
            }
            if matches!(phase, Phase::Starting(_) | Phase::Running { .. }) {
                actions.push(Action::SendReload);
            }
            phase
        }
        Event::Probe(answered) => {
            if let Phase::Running { kernel, failed_probes, .. } = &mut phase {
                *failed_probes = if answered { 0 } else { *failed_probes + 1 };
                if *failed_probes > MOST_FAILED_PROBES {
                    kernel.kill(Killed::Unserving, actions);
                }
            }
            phase
        }
        Event::Relisted { shut } => {
            if let Phase::Starting(kernel) | Phase::Running { kernel, .. } = &mut phase {
                kernel.shut |= shut;
                kernel.relisted = true;
                actions.push(Action::SendRestart);
            }
            phase
        }
        Event::Homeless if matches!(phase, Phase::Stopping { .. }) => phase,
        Event::Homeless => stop(history, phase, (status::NO_HOME, false), now, actions),
        Event::Overslept(by) => {
            postpone(&mut phase, by);
            phase
        }
        Event::Tick => tick(phase, now, actions),
        Event::Hello
        | Event::Beat
        | Event::Exited { .. }
        | Event::SpawnFailed(_)
        | Event::Convicted { .. } => phase,
    }
}

fn ready(phase: Phase, now: Instant, actions: &mut Vec<Action>) -> Phase {
    match phase {
        Phase::Starting(mut kernel) => {
            kernel.ready = Some(now);
            actions.push(Action::TellReady);
            Phase::Running { kernel, failed_probes: 0, reloading: None }
        }
        Phase::Running { kernel, failed_probes, reloading } => {
            if reloading.is_some() {
                actions.push(Action::TellReady);
            }
            Phase::Running { kernel, failed_probes, reloading: None }
        }
        other => other,
    }
}

fn drain(phase: Phase, until: Instant) -> Phase {
    match phase {
        Phase::Starting(kernel) | Phase::Running { kernel, .. } => Phase::Draining { kernel, until },
        other => other,
    }
}

fn farewell(phase: Phase, farewell: Farewell, now: Instant) -> Phase {
    let mut phase = drain(phase, now + GRACE);
    if let Some(kernel) = phase.kernel() {
        kernel.farewell = Some(farewell);
    }
    phase
}

fn terminate(history: &History, phase: Phase, now: Instant, actions: &mut Vec<Action>) -> Phase {
    match phase {
        Phase::Stopping { mut kernel, until, status, unsignalled } => {
            if !unsignalled {
                kernel.kill(Killed::Impatient, actions);
            }
            Phase::Stopping { kernel, until, status, unsignalled: false }
        }
        other => stop(history, other, (0, false), now, actions),
    }
}

/// The daemon ends, with its kernel first.
fn stop(
    history: &History,
    phase: Phase,
    (status, unsignalled): (u8, bool),
    now: Instant,
    actions: &mut Vec<Action>,
) -> Phase {
    match phase.into_kernel() {
        Some(kernel) => {
            actions.extend([Action::TellStopping, Action::SendStop]);
            let until = now + history.drain_timeout + GRACE;
            Phase::Stopping { kernel, until, status, unsignalled }
        }
        None => Phase::Done { status },
    }
}

/// A supervisor that was stopped has heard nothing meanwhile, which is not the kernel's fault.
fn postpone(phase: &mut Phase, by: Duration) {
    if let Some(kernel) = phase.kernel() {
        kernel.sign += by;
        kernel.progressed += by;
    }
    match phase {
        Phase::Draining { until, .. } | Phase::Stopping { until, .. } => *until += by,
        Phase::Running { reloading: Some(reloading), .. } => *reloading += by,
        _ => {}
    }
}

fn tick(mut phase: Phase, now: Instant, actions: &mut Vec<Action>) -> Phase {
    match &mut phase {
        Phase::Starting(kernel) => {
            if now >= kernel.progressed + LONGEST_START {
                kernel.kill(Killed::Unready, actions);
            } else if now >= kernel.sign + kernel.patience() {
                kernel.kill(if kernel.beats { Killed::Silent } else { Killed::Lifeless }, actions);
            }
        }
        Phase::Running { kernel, reloading, .. } => {
            if now >= kernel.sign + SILENCE {
                kernel.kill(Killed::Silent, actions);
            }
            if reloading.is_some_and(|until| until <= now) {
                *reloading = None;
                actions.push(Action::TellReady);
            }
        }
        Phase::Draining { kernel, until } | Phase::Stopping { kernel, until, .. } => {
            if now >= *until {
                kernel.kill(Killed::Undrained, actions);
            } else if kernel.silent_at().is_some_and(|silent| silent <= now) {
                kernel.kill(Killed::Silent, actions);
            }
        }
        Phase::Waiting { .. } | Phase::Done { .. } => {}
    }
    phase
}
