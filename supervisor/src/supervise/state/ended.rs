//! What the end of a kernel means, and what comes next.

use std::time::{Duration, Instant};

use signal_hook::consts::SIGKILL;

use super::{Action, Ending, Exit, Farewell, History, Kernel, Killed, Launch, Phase, status};

/// What the operator is to do about a program that cannot be used.
const WHOLE: &str = "going on with the program that the supervisor runs; once the file is whole, `drupe restart` starts from it";

/// The same where it is of another version.
const RESTART: &str = "the program was exchanged for one of another version, with which this supervisor cannot speak: going on with the \
                       program that the supervisor runs; to go over to the new one restart the service: `drupe stop`, then start it again";

/// What no further start would change.
const DAMAGED: &str = "the journal cannot be used: what the kernel said last names what to do, and `drupe doctor` says it again; the \
                       daemon ends, and no file was changed";

/// More crashes than this within [`CRASH_WINDOW`] lead to safe mode.
const MOST_CRASHES: usize = 5;
const CRASH_WINDOW: Duration = Duration::from_secs(60);
/// Failures in safe mode after which nothing is left to try.
const MOST_SAFE_FAILURES: u32 = 3;
/// A kernel that was ready for this long is healthy: what happened before it no longer counts.
const HEALTHY: Duration = Duration::from_secs(60);
/// Failures in a row, with no healthy kernel between them, that lead to safe mode however long they take.
const MOST_FAILURES: u32 = 10;
/// Starts in a row that may end before they are ready.
const MOST_UNREADY: u32 = 1;
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Judges how the kernel ended, and decides what comes next.
pub(super) fn ended(
    history: &mut History,
    kernel: Kernel,
    stopping: Option<u8>,
    (exit, named): (Exit, bool),
    now: Instant,
    actions: &mut Vec<Action>,
) -> Phase {
    let clean = exit == Exit::Status(0);
    let (how, orderly) = match (&kernel.farewell, clean) {
        (Some(Farewell::Stopping), true) => ("stopped".to_owned(), true),
        (Some(Farewell::Restart { reason, .. }), true) => (format!("restart: {reason}"), !kernel.shut),
        _ => (describe(exit, kernel.killed), false),
    };
    let strange = exit == Exit::Status(status::STRANGER.into()) && kernel.ready.is_none() && !named;
    if stopping.is_none() && kernel.exchanged && (strange || !kernel.spoke) {
        let (what, text) = match strange {
            true => (", of another version", RESTART.to_owned()),
            false => (
                ", before the first word of a program that was exchanged",
                format!("the program was exchanged, and the new one ended before its first word: {WHOLE}"),
            ),
        };
        let how = how + what;
        actions.push(Action::Record(Ending { how, crash: false, exit: Some(exit), killed: kernel.killed }));
        return spawn_own(history, text, now, actions);
    }
    // These statuses mean a refusal only before the kernel serves and while no extension's code runs: later any code in its
    // process may have chosen them.
    let refused = match exit {
        Exit::Status(69) => Some(status::IN_USE),
        // Another start finds the same journal.
        Exit::Status(74) => Some(status::JOURNAL),
        Exit::Status(76) => Some(status::STRANGER),
        Exit::Status(78) => Some(status::CONFIGURATION),
        _ => None,
    }
    .filter(|_| kernel.ready.is_none() && !named);
    let later = exit == Exit::Status(status::LATER.into()) && kernel.ready.is_none() && !named;
    let stopped = stopping.is_some() && kernel.killed.is_some();
    let crash = !(orderly || later || stopped || refused.is_some());
    actions.push(Action::Record(Ending { how, crash, exit: Some(exit), killed: kernel.killed }));
    if let Some(status) = stopping {
        return Phase::Done { status: if orderly || status != 0 { status } else { status::FORCED } };
    }
    match (&kernel.farewell, refused) {
        (Some(Farewell::Stopping), _) if orderly => Phase::Done { status: 0 },
        (Some(Farewell::Restart { unasked: false, .. }), _) if orderly => {
            restart(history, &kernel, now, actions)
        }
        (Some(Farewell::Restart { .. }), _) if orderly => renew(history, kernel.ready, now, actions),
        (_, Some(status::CONFIGURATION)) if history.good_config && !history.on_good_config => {
            history.on_good_config = true;
            history.restarts += 1;
            let note =
                "the configuration is refused: going on with the last good one until a restart accepts it";
            actions.push(Action::Note(note.into()));
            spawn(history, now, actions)
        }
        (_, Some(refused)) => {
            if refused == status::JOURNAL {
                actions.push(Action::Note(DAMAGED.into()));
            }
            Phase::Done { status: refused }
        }
        _ if later => {
            history.restarts += 1;
            history.postponed += 1;
            let note = "the journal cannot be opened as its disk is now: the start is tried again, every 30 s at last";
            actions.push(Action::Note(note.into()));
            Phase::Waiting { until: now + history.backoff(history.postponed) }
        }
        _ => {
            if kernel.ready.is_none() {
                history.unready += 1;
            }
            crashed(history, kernel.ready, now, actions)
        }
    }
}

/// The kernel's process could not be made, which is no extension's fault: from the file at the path, or from the
/// supervisor's `own` program, which is there as long as the supervisor is.
pub(super) fn unstarted(
    history: &mut History,
    own: bool,
    reason: &str,
    now: Instant,
    actions: &mut Vec<Action>,
) -> Phase {
    let how = format!("the kernel cannot be started: {reason}");
    if !own {
        return spawn_own(history, format!("{how}: {WHOLE}"), now, actions);
    }
    actions.push(Action::Record(Ending { how, crash: false, exit: None, killed: None }));
    history.restarts += 1;
    history.postponed += 1;
    Phase::Waiting { until: now + history.backoff(history.postponed) }
}

fn spawn_own(history: &mut History, note: String, now: Instant, actions: &mut Vec<Action>) -> Phase {
    history.restarts += 1;
    let launch = Launch { own_program: true, ..history.launch() };
    actions.extend([Action::Note(note), Action::Spawn(launch)]);
    Phase::Starting(Kernel::new(true, now))
}

/// It is known who caused the crash. So the next kernel needs no older set of extensions, and no wait where the culprit is
/// left out. Returns when the next kernel starts.
pub(super) fn convicted(history: &mut History, until: Instant, quarantined: bool, now: Instant) -> Instant {
    history.unready = 0;
    if !quarantined {
        return until;
    }
    history.failures = 0;
    until.min(now + SHORTEST_WAIT)
}

/// Somebody asked for a restart. It is no crash, and it undoes what crashes led to.
fn restart(history: &mut History, kernel: &Kernel, now: Instant, actions: &mut Vec<Action>) -> Phase {
    history.restarts += 1;
    history.safe_mode = history.safe_mode_asked;
    history.on_good_config = false;
    history.on_good_extensions = false;
    history.unready = 0;
    if kernel.ready.is_some() {
        history.crashes.clear();
        history.failures = 0;
        history.safe_failures = 0;
        return spawn(history, now, actions);
    }
    // Requests that come before a kernel is ready would otherwise restart it as fast as the machine can.
    history.failures += 1;
    Phase::Waiting { until: now + history.backoff(history.failures) }
}

/// A kernel could not go on with its journal, or be found by its clients, as no other could have. It is no crash and nobody's
/// decision, so what crashes led to stays. The next one comes at once; where that does no better, each after it waits longer.
fn renew(history: &mut History, ready: Option<Instant>, now: Instant, actions: &mut Vec<Action>) -> Phase {
    history.look_back(ready, now);
    history.restarts += 1;
    history.unasked += 1;
    match history.unasked {
        1 => spawn(history, now, actions),
        more => Phase::Waiting { until: now + history.backoff(more - 1) },
    }
}

pub(super) fn crashed(
    history: &mut History,
    ready: Option<Instant>,
    now: Instant,
    actions: &mut Vec<Action>,
) -> Phase {
    history.look_back(ready, now);
    history.restarts += 1;
    history.failures += 1;
    history.crashes.push_back(now);
    history.crashes.retain(|crash| now.duration_since(*crash) < CRASH_WINDOW);
    if history.safe_mode {
        history.safe_failures += 1;
        if history.safe_failures >= MOST_SAFE_FAILURES {
            actions.push(Action::Note("safe mode failed three times: giving up".into()));
            return Phase::Done { status: status::HOPELESS };
        }
    } else if let Some(why) = history.hopeless() {
        history.safe_mode = true;
        history.failures = 1;
        actions.push(Action::Note(format!("{why}: safe mode, without third-party extensions")));
    }
    Phase::Waiting { until: now + history.backoff(history.failures) }
}

pub(super) fn spawn(history: &mut History, now: Instant, actions: &mut Vec<Action>) -> Phase {
    let stuck = history.unready > MOST_UNREADY && !history.safe_mode;
    if stuck && history.good_extensions && !history.on_good_extensions {
        history.on_good_extensions = true;
        let note = "two starts in a row did not become ready: going on with the last good set of extensions until a \
                    restart is asked for";
        actions.push(Action::Note(note.into()));
    }
    actions.push(Action::Spawn(history.launch()));
    Phase::Starting(Kernel::new(false, now))
}

impl History {
    pub(super) fn launch(&self) -> Launch {
        Launch {
            safe_mode: self.safe_mode,
            good_config: self.on_good_config,
            // Safe mode leaves all of them out.
            good_extensions: self.on_good_extensions && !self.safe_mode,
            own_program: false,
        }
    }

    /// A kernel that was healthy has ended: what was before it does not count.
    fn look_back(&mut self, ready: Option<Instant>, now: Instant) {
        if ready.is_some_and(|ready| now.duration_since(ready) >= HEALTHY) {
            (self.failures, self.safe_failures, self.unasked) = (0, 0, 0);
        }
    }

    /// Why it does not help to go on as before, if it does not.
    fn hopeless(&self) -> Option<&'static str> {
        if self.crashes.len() > MOST_CRASHES {
            Some("more than 5 crashes in a minute")
        } else if self.failures >= MOST_FAILURES {
            Some("10 failures in a row without a healthy minute between them")
        } else {
            None
        }
    }

    /// 100 ms, doubled with each failure in a row up to 30 s, and up to a quarter more by chance.
    fn backoff(&mut self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        let base = SHORTEST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
        // xorshift64 spreads evenly, and nothing more is needed here.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let jitter = base.mul_f64((self.seed % 1024) as f64 / 4096.0);
        (base + jitter).min(LONGEST_WAIT)
    }
}

fn describe(exit: Exit, killed: Option<Killed>) -> String {
    let how = match exit {
        Exit::Status(status) => format!("exit status {status}"),
        Exit::Signal(signal) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("signal {signal} ({name})"),
            None => format!("signal {signal}"),
        },
    };
    match killed {
        Some(killed) => format!("{how}: {}", killed.why()),
        None if exit == Exit::Signal(SIGKILL) => {
            format!("{how} of another process, or of the system for want of memory")
        }
        None => how,
    }
}
