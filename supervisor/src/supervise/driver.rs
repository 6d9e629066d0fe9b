//! Performs what the state machine decides, and tells it what happened.
//!
//! One loop: wait until a descriptor or a deadline is due, look at everything without waiting, feed the events to
//! [`State::step`], perform its actions. Whatever a kernel or a client sends, a round does a bounded amount of work.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    path::Path,
    time::{Duration, Instant},
};

use drupe_extension_api::control::{Blamed, ExitRecord, ExtensionStatus};
use drupe_link::{Down, Home, HomeLock, LockError};
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    Failure, Options,
    control::Control,
    judge::{Blame, Culprit},
    kernel::{Kernel, OWN_PROGRAM, is_exchanged},
    output::{Level, Output},
    probe::Probe,
    record::{Entry, Record},
    signals::Signals,
    state::{Action, Ending, Event, Killed, Launch, Phase, State},
};

mod alive;
mod blaming;
mod hearing;
mod reach;
mod status;

use blaming::Blaming;
use reach::Reach;

/// Frames that one round reads, and the pause after a round that read them all: it slows down a kernel that floods the
/// link, so that the flood costs little.
const FRAMES: usize = 64;
const FLOOD_PAUSE: Duration = Duration::from_millis(10);
/// Frames that are read after a kernel has ended: more than a socket buffer holds.
const LAST_FRAMES: usize = 4096;
/// A round that begins this much later than planned means that the supervisor was stopped.
const OVERSLEPT: Duration = Duration::from_secs(2);
/// Remarks kept for `status`.
const NOTICES: usize = 8;

/// Everything that the supervisor holds.
#[derive(Debug)]
pub struct Driver {
    options: Options,
    home: Home,
    lock: HomeLock,
    signals: Signals,
    control: Control,
    reach: Reach,
    probe: Probe,
    record: Record,
    blaming: Blaming,
    kernel: Option<Kernel>,
    launch: Launch,
    /// The link has ended before the kernel has.
    deaf: bool,
    /// The link is not read until then.
    muted: Option<Instant>,
    known: Known,
    notices: VecDeque<String>,
    events: VecDeque<Event>,
    /// When the last round began to look.
    awake: Instant,
    /// The last write below `HOME/state` failed; said once, not for each line.
    forgetful: bool,
}

/// What the last kernel said of itself, for `status`.
#[derive(Debug, Default)]
struct Known {
    ready: bool,
    /// When it last proved that its journal is not stuck, if it ever did: an earlier release does not.
    proven: Option<Instant>,
    /// Whether it was said that it does so no more.
    stuck: bool,
    /// Whether it was said that it is of another release.
    strange: bool,
    /// What it does before it is ready, where that may take long.
    doing: Option<String>,
    model: Option<String>,
    notices: Vec<String>,
    config_refused: Option<String>,
    sessions: u64,
    queued_turns: u64,
    extensions: Vec<ExtensionStatus>,
    unlisted: u64,
}

impl Driver {
    /// Takes possession of the home.
    pub fn new(options: Options, output: &mut Output) -> Result<Self, Failure> {
        let failed = |error| Failure::of_home(&options.home, error);
        let home = Home::create(&options.home).map_err(failed)?;
        let lock = HomeLock::take(&home).map_err(|error| match error {
            LockError::Held(pid) => Failure::InUse { home: home.path().display().to_string(), pid },
            LockError::Io(error) => failed(error),
        })?;
        let signals = Signals::take().map_err(failed)?;
        let control = Control::open(&home).map_err(failed)?;
        let probe = Probe::new(home.clone(), control.token()).map_err(|error| failed(error.into()))?;
        let record = Record::open(&home);
        let (blaming, remarks) = Blaming::open(&record);
        let mut driver = Self {
            record,
            blaming,
            options,
            home,
            lock,
            signals,
            control,
            reach: Reach::new(Instant::now()),
            probe,
            kernel: None,
            launch: Launch::default(),
            deaf: false,
            muted: None,
            known: Known::default(),
            notices: VecDeque::new(),
            events: VecDeque::new(),
            awake: Instant::now(),
            forgetful: false,
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let begin = Entry::Begin { time: Timestamp::now(), pid: std::process::id(), version };
        driver.write(begin, output);
        remarks.into_iter().for_each(|remark| driver.note(remark, output));
        Ok(driver)
    }

    /// Supervises to the end. Returns the exit status.
    pub fn run(mut self, output: &mut Output) -> u8 {
        let seed = RandomState::new().build_hasher().finish();
        let good_extensions = self.record.good_extensions().is_some();
        let (mut state, actions) =
            State::begin(self.options.safe_mode, good_extensions, seed, Instant::now());
        self.perform(actions, &state, output);
        loop {
            // It may have been stopped anywhere, and not just while it waited: what it is about to judge was not heard meanwhile.
            self.overslept(self.awake.elapsed());
            while let Some(event) = self.events.pop_front() {
                let (next, actions) = state.step(event, Instant::now());
                state = next;
                self.perform(actions, &state, output);
            }
            if let Some(status) = state.done() {
                return self.end(status, output);
            }
            self.wait(&state, output);
            self.look(&state, output);
        }
    }

    fn end(mut self, status: u8, output: &mut Output) -> u8 {
        self.write(Entry::End { time: Timestamp::now(), status }, output);
        if let Err(error) = self.control.close(&self.home) {
            output.say(Level::Warn, &format!("the control socket could not be removed: {error}"));
        }
        status
    }

    /// Waits until something can be done.
    fn wait(&mut self, state: &State, output: &Output) {
        let now = Instant::now();
        let planned = self.deadline(state).map(|deadline| deadline.saturating_duration_since(now));
        let timeout = planned.and_then(|planned| Timespec::try_from(planned).ok());
        let mut fds: Vec<_> =
            self.signals.fds().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        if let Some(kernel) = &self.kernel {
            if !self.deaf && self.muted.is_none() {
                fds.push(PollFd::new(&kernel.link, PollFlags::IN));
            }
            fds.extend(kernel.stderr().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        fds.extend(output.wanted().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        fds.extend(self.control.fds().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        fds.extend(self.probe.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An error means that a signal came; it is found when everything is looked at.
        let _ = poll(&mut fds, timeout.as_ref());
        drop(fds);
        let late = planned.and_then(|planned| now.elapsed().checked_sub(planned));
        self.overslept(late.unwrap_or_default());
        self.awake = Instant::now();
    }

    /// Goes on where it, or the machine, was stopped for so long: what it waits for gets as much time more.
    fn overslept(&mut self, late: Duration) {
        if late < OVERSLEPT {
            return;
        }
        self.events.push_front(Event::Overslept(late));
        self.known.proven = self.known.proven.map(|at| at + late);
        self.probe.reset(Instant::now());
        self.awake = Instant::now();
    }

    fn deadline(&self, state: &State) -> Option<Instant> {
        let probe = matches!(state.phase, Phase::Running { .. }).then(|| self.probe.deadline());
        let notify = self.options.notify.as_ref().and_then(|notify| notify.deadline());
        let look = Some(self.reach.deadline());
        [state.deadline(), self.control.deadline(), self.muted, probe, notify, look]
            .into_iter()
            .flatten()
            .min()
    }

    /// Looks at everything without waiting, and turns it into events.
    fn look(&mut self, state: &State, output: &mut Output) {
        let now = Instant::now();
        let signals = self.signals.received();
        self.events.extend(std::iter::repeat_n(Event::Terminate, signals.terminate));
        if signals.reload > 0 {
            // The same signal says that the terminal is closed in which the daemon was started.
            let closed = self.options.human_log && output.is_hung_up();
            self.events.push_back(if closed { Event::Terminate } else { Event::Reload });
        }
        let exit = self.kernel.as_mut().and_then(Kernel::exit);
        if self.muted.is_none_or(|until| until <= now) || exit.is_some() {
            let frames = if exit.is_some() { LAST_FRAMES } else { FRAMES };
            self.muted = (self.read_link(frames, output) == frames).then(|| now + FLOOD_PAUSE);
        }
        self.settle(output);
        if let Some(kernel) = &mut self.kernel {
            kernel.listen(output);
            kernel.watch(state.silence(now), now);
        }
        if let Some(exit) = exit {
            self.events.push_back(Event::Exited { exit, named: self.blaming.names(exit) });
        }
        output.flush();
        self.look_after_reach(now, output);
        if matches!(state.phase, Phase::Running { .. })
            && let Some(answered) = self.probe.turn(now)
            && (answered || self.is_reachable(now, output))
        {
            self.events.push_back(Event::Probe(answered));
        }
        self.beat(state, now, output);
        let (control, view) = (
            &mut self.control,
            status::View {
                kernel: self.kernel.as_ref(),
                known: &self.known,
                notices: &self.notices,
                blaming: &self.blaming,
                record: &self.record,
            },
        );
        // A second request for a stop that is under way does not mean that somebody has lost patience.
        let stopping = matches!(state.phase, Phase::Stopping { .. });
        if control.turn(now, || view.status(state)) && !stopping {
            self.events.push_back(Event::Terminate);
        }
        self.events.push_back(Event::Tick);
    }

    fn perform(&mut self, actions: Vec<Action>, state: &State, output: &mut Output) {
        for action in actions {
            match action {
                Action::Spawn(launch) => self.spawn(launch, state, output),
                Action::SendStop => self.send(&Down::Stop),
                Action::SendReload => self.send(&Down::Reload),
                Action::SendRestart => self.send(&Down::Restart { reason: reach::RESTART.into() }),
                Action::Kill => {
                    if let Some(kernel) = &mut self.kernel {
                        output.say(Level::Warn, &format!("killing kernel {}", kernel.generation));
                        kernel.kill();
                    }
                }
                Action::Record(ending) => self.ended(ending, output),
                Action::Note(text) => self.note(text, output),
                Action::TellReady => self.ready(output),
                Action::TellReloading => {
                    output.say(Level::Info, "reading the configuration again");
                    self.options.notify.iter().for_each(|notify| notify.reloading());
                }
                Action::TellStopping => {
                    output.say(Level::Info, "stopping; a second signal ends it at once");
                    let left = match state.phase {
                        Phase::Stopping { until, .. } => until.saturating_duration_since(Instant::now()),
                        _ => Duration::ZERO,
                    };
                    self.options.notify.iter().for_each(|notify| notify.stopping(left));
                }
            }
        }
    }

    fn spawn(&mut self, launch: Launch, state: &State, output: &mut Output) {
        if launch == Launch::default() && state.history.restarts > 0 {
            // What they speak of is over.
            self.notices.clear();
        }
        self.launch = launch;
        let (generation, kept) = self.record.next_generation();
        self.remembered(kept, output);
        self.look_after_reach(self.reach.deadline(), output);
        self.reach.handed_over();
        self.control.serve(true);
        self.deaf = false;
        self.muted = None;
        self.known = Known::default();
        let page = self.blaming.fresh_page();
        let listener = self.control.listener();
        let program = if launch.own_program { Path::new(OWN_PROGRAM) } else { self.options.exe.as_path() };
        let exchanged = is_exchanged(program);
        let last_good = launch.good_config;
        match Kernel::spawn(&self.options, program, self.home.path(), last_good, listener, page, generation) {
            Ok(kernel) => {
                self.events.extend(exchanged.then_some(Event::Exchanged));
                let (pid, time, safe_mode) = (kernel.pid(), Timestamp::now(), launch.safe_mode);
                self.kernel = Some(kernel);
                let start = Down::Start {
                    link: drupe_link::VERSION,
                    generation,
                    safe_mode,
                    supervisor_pid: std::process::id(),
                    restarts: state.history.restarts,
                    exits: self.record.exits(),
                    notices: self.notices.iter().chain(self.blaming.last()).cloned().collect(),
                    verdicts: self.blaming.told(),
                    fallback: launch.good_extensions.then(|| self.record.good_extensions()).flatten(),
                    proof_ms: self.proof_ms(),
                };
                self.send(&start);
                self.write(Entry::Start { time, generation, pid, safe_mode }, output);
                let mode = if safe_mode { " in safe mode" } else { "" };
                output.say(Level::Info, &format!("kernel {generation} starts{mode} (process {pid})"));
            }
            Err(error) => {
                self.events.push_back(Event::SpawnFailed(format!("`{}`: {error}", program.display())));
            }
        }
    }

    /// Says what a kernel does that is not ready yet.
    fn starting(&mut self, doing: String, output: &mut Output) {
        let Some(kernel) = self.kernel.as_ref().filter(|_| !self.known.ready) else { return };
        let text = format!("kernel {} {doing}", kernel.generation);
        self.options.notify.iter().for_each(|notify| notify.starting(&text));
        if self.known.doing.as_ref() != Some(&doing) {
            output.say(Level::Info, &text);
            self.known.doing = Some(doing);
        }
    }

    fn ready(&mut self, output: &mut Output) {
        self.control.serve(self.reach.is_withheld());
        self.probe.reset(Instant::now());
        let Some(kernel) = &self.kernel else { return };
        let generation = kernel.generation;
        let text = format!("kernel {generation} is ready");
        self.options.notify.iter_mut().for_each(|notify| notify.ready(&text));
        if !std::mem::replace(&mut self.known.ready, true) {
            let after_ms = u64::try_from(kernel.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.write(Entry::Ready { time: Timestamp::now(), generation, after_ms }, output);
            output.say(Level::Info, &format!("{text} after {after_ms} ms"));
        }
    }

    fn ended(&mut self, ending: Ending, output: &mut Output) {
        let kernel = self.kernel.take();
        self.control.serve(true);
        self.known.ready = false;
        let generation = kernel.as_ref().map_or(0, |kernel| kernel.generation);
        let level = if ending.crash { Level::Warn } else { Level::Info };
        let text = format!("kernel {generation} ended: {}", ending.how);
        output.say(level, &text);
        self.options.notify.iter().for_each(|notify| notify.waiting(&text));
        let hung = ending.killed.is_some_and(Killed::hung);
        let blame = match kernel.as_ref().and_then(|kernel| kernel.stood_still).filter(|_| hung) {
            Some(why) => {
                self.remark(&format!("kernel {generation} stood still: {why}: nobody is blamed"), output);
                Blame::Nobody
            }
            None => self.blaming.judge(&ending),
        };
        let blamed = |culprit: &Culprit| Blamed {
            extension: culprit.extension.clone(),
            operation: culprit.operation.clone(),
        };
        let exit = ExitRecord {
            time: Timestamp::now(),
            pid: kernel.as_ref().map_or(0, Kernel::pid),
            generation,
            how: ending.how.clone(),
            crash: ending.crash,
            last_lines: kernel.as_ref().map(Kernel::last_lines).unwrap_or_default(),
            blamed: blame.culprits().iter().map(blamed).collect(),
        };
        self.write(Entry::Exit(exit), output);
        self.blame(&blame, generation, &ending.how, output);
    }

    fn note(&mut self, text: String, output: &mut Output) {
        self.remark(&text, output);
        if self.notices.len() == NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(text);
    }

    fn remark(&mut self, text: &str, output: &mut Output) {
        output.say(Level::Warn, text);
        self.write(Entry::Note { time: Timestamp::now(), text: text.to_owned() }, output);
    }

    /// A kernel that does not read what it is sent is found by its silence.
    fn send(&mut self, frame: &Down) {
        if let Some(kernel) = &self.kernel {
            let _ = kernel.link.try_send(frame);
        }
    }

    fn write(&mut self, entry: Entry, output: &mut Output) {
        let written = self.record.write(entry);
        self.remembered(written, output);
    }

    fn remembered(&mut self, written: io::Result<()>, output: &mut Output) {
        match written {
            Ok(()) => self.forgetful = false,
            Err(error) => {
                if !std::mem::replace(&mut self.forgetful, true) {
                    let folder = self.home.state();
                    output.say(Level::Warn, &format!("`{}` cannot be written: {error}", folder.display()));
                }
            }
        }
    }
}
