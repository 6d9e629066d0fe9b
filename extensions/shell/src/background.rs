//! Commands that run beside the conversation.
//!
//! Each belongs to the session that started it, and is there for no other. One future reads them all: it is the extension's
//! service, so that no thread is needed for that.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drupe_extension_api::prelude::*;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{Mutex as Turn, mpsc, watch};

use crate::{
    command::{CommandLine, CommandReader, End, Step},
    config::ShellConfig,
    output::{Ring, RingPart},
};

/// What is kept of the output of each, in bytes.
const KEPT: usize = 256 * 1024;

/// Commands of all sessions that run at a time. The kernel has a bound on all programs of an extension, of which calls that
/// wait for theirs need some.
const ALL: usize = 32;

/// Commands of one session whose end is remembered; the oldest are forgotten first.
const REMEMBERED: usize = 8;

/// How often it is looked for sessions that are idle.
const LOOK: Duration = Duration::from_secs(15);

/// One command in the background.
pub struct Job {
    pub id: u64,
    session: SessionId,
    pub text: String,
    began: Instant,
    pub time: Duration,
    pub terminal: bool,
    output: Mutex<Ring>,
    /// The line of its terminal that has not ended.
    line: Mutex<String>,
    /// How it ended, and after how long.
    ended: watch::Sender<Option<(End, Duration)>>,
    /// Why it shall stop, once it shall.
    stop: watch::Sender<Option<End>>,
}

/// The commands in the background of all sessions.
pub struct Background {
    config: ShellConfig,
    state: Mutex<State>,
    started: mpsc::UnboundedSender<(Arc<Job>, Process)>,
    /// Taken by the service while it runs.
    waiting: Turn<mpsc::UnboundedReceiver<(Arc<Job>, Process)>>,
}

#[derive(Default)]
struct State {
    last: u64,
    jobs: BTreeMap<u64, Arc<Job>>,
    /// When each session last asked for one of its commands.
    asked: HashMap<SessionId, Instant>,
}

impl Background {
    pub fn new(config: ShellConfig) -> Self {
        let (started, waiting) = mpsc::unbounded_channel();
        Self { config, state: Mutex::default(), started, waiting: Turn::new(waiting) }
    }

    /// Whether one more may run; it is asked before one is started, and again when it was.
    pub fn check_room(&self, session: &SessionId) -> Result<(), Fault> {
        let state = self.lock();
        let running = || state.jobs.values().filter(|job| job.runs());
        let own = running().filter(|job| job.session == *session).count();
        if own >= self.config.background {
            let message = format!("{own} commands of this session run in the background, which is the most");
            return Err(Fault::new(FaultCode::Busy, message).help("shell_list has them; shell_stop ends one"));
        }
        match running().count() {
            all if all >= ALL => {
                let message =
                    format!("{all} commands run in the background, which is the most for all sessions");
                Err(Fault::new(FaultCode::Busy, message))
            }
            _ => Ok(()),
        }
    }

    /// Takes one in that was started.
    pub fn add(
        &self,
        session: &SessionId,
        command: &CommandLine<'_>,
        process: Process,
    ) -> Result<Arc<Job>, Fault> {
        // Others may have come first while it was started; it ends with `process`.
        self.check_room(session)?;
        let mut state = self.lock();
        state.last += 1;
        let job = Arc::new(Job {
            id: state.last,
            session: session.clone(),
            text: command.text.to_owned(),
            began: Instant::now(),
            time: command.time,
            terminal: command.terminal,
            output: Mutex::new(Ring::new(KEPT)),
            line: Mutex::default(),
            ended: watch::Sender::new(None),
            stop: watch::Sender::new(None),
        });
        state.jobs.insert(job.id, Arc::clone(&job));
        state.asked.insert(session.clone(), job.began);
        let of_session = |job: &&Arc<Job>| job.session == *session && !job.runs();
        let ended: Vec<u64> = state.jobs.values().filter(of_session).map(|job| job.id).collect();
        for id in &ended[..ended.len().saturating_sub(REMEMBERED)] {
            state.jobs.remove(id);
        }
        drop(state);
        // The receiver lives as long as this does.
        self.started
            .send((Arc::clone(&job), process))
            .map_err(|_| Fault::internal("nobody reads commands"))?;
        Ok(job)
    }

    /// The command of a session that has this id: none that is another session's.
    pub fn find(&self, session: &SessionId, id: &str) -> Result<Arc<Job>, Fault> {
        let mut state = self.lock();
        let number = id.strip_prefix('c').unwrap_or(id).parse::<u64>().ok();
        let found =
            number.and_then(|number| state.jobs.get(&number)).filter(|job| job.session == *session).cloned();
        if found.is_some() {
            state.asked.insert(session.clone(), Instant::now());
        }
        found.ok_or_else(|| {
            Fault::not_found(format!("this session has no command `{id}` in the background"))
                .help("shell_list has those that there are")
        })
    }

    /// The commands of a session, the oldest first.
    pub fn of(&self, session: &SessionId) -> Vec<Arc<Job>> {
        let mut state = self.lock();
        let found: Vec<_> = state.jobs.values().filter(|job| job.session == *session).cloned().collect();
        if !found.is_empty() {
            state.asked.insert(session.clone(), Instant::now());
        }
        found
    }

    /// Reads what all of them write, until `shutdown`; those that run end with this.
    pub async fn serve(&self, host: &Host, shutdown: Shutdown) -> Result<(), Fault> {
        let mut waiting = self.waiting.lock().await;
        let mut reading = FuturesUnordered::new();
        let mut shutdown = std::pin::pin!(shutdown);
        let mut look = std::pin::pin!(host.sleep(LOOK));
        loop {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                started = waiting.recv() => match started {
                    Some((job, process)) => reading.push(job.read(process, self.config.written())),
                    None => return Ok(()),
                },
                Some(()) = reading.next() => {}
                slept = &mut look => {
                    slept?;
                    self.stop_idle(Instant::now());
                    look.set(host.sleep(LOOK));
                }
            }
        }
    }

    /// Stops and forgets the commands of sessions that asked for none of them for long.
    pub fn stop_idle(&self, now: Instant) {
        let mut state = self.lock();
        let idle = self.config.idle();
        let State { jobs, asked, .. } = &mut *state;
        let is_idle = |session: &SessionId| {
            asked.get(session).is_none_or(|asked| now.saturating_duration_since(*asked) >= idle)
        };
        for job in jobs.values().filter(|job| is_idle(&job.session)) {
            job.stop(End::Idle);
        }
        jobs.retain(|_, job| job.runs() || !is_idle(&job.session));
        asked.retain(|session, _| jobs.values().any(|job| job.session == *session));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is kept under it is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that nobody reads any more, where it was not said how the command ended.
struct Told(Arc<Job>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.end(End::Lost);
    }
}

impl Job {
    async fn read(self: Arc<Self>, process: Process, most: u64) {
        let told = Told(self);
        let job = &told.0;
        let end = job.until_end(process, most).await;
        job.end(end);
    }

    async fn until_end(&self, process: Process, most: u64) -> End {
        let mut stop = self.stop.subscribe();
        let mut reading = CommandReader::new(process, most, self.terminal);
        let end = loop {
            let step = tokio::select! {
                biased;
                why = stop.wait_for(Option::is_some) => {
                    break why.ok().and_then(|why| why.clone()).unwrap_or(End::Stopped);
                }
                step = reading.next() => step,
            };
            match step {
                Ok(Step::Wrote(bytes)) => {
                    self.output().push(&bytes);
                    if self.terminal {
                        *self.lock_line() = reading.line();
                    }
                }
                Ok(Step::Ended(end)) => break end,
                Err(_) => break End::Lost,
            }
        };
        self.lock_line().clear();
        self.output().push(reading.line().as_bytes());
        end
    }

    fn end(&self, end: End) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some((end, self.began.elapsed()));
            }
            first
        });
    }

    pub fn runs(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Lets it be stopped; the first reason that was given is the one that is told.
    pub fn stop(&self, why: End) {
        self.stop.send_if_modified(|stop| {
            let first = stop.is_none();
            if first {
                *stop = Some(why);
            }
            first
        });
    }

    pub async fn ended(&self) {
        // The sender is this job's own.
        let _ = self.ended.subscribe().wait_for(Option::is_some).await;
    }

    fn output(&self) -> MutexGuard<'_, Ring> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_line(&self) -> MutexGuard<'_, String> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line of its terminal that it is writing, which is not among its output yet.
    pub fn line(&self) -> String {
        self.lock_line().clone()
    }

    /// A part of its output, and where the whole begins and ends.
    pub fn part(&self, from: Option<u64>, most: usize) -> (RingPart, u64, u64) {
        let output = self.output();
        (output.part(from, most), output.first(), output.total())
    }

    /// Its state, as a sentence without its subject.
    pub fn told(&self, config: &ShellConfig) -> String {
        match &*self.ended.borrow() {
            Some((end, after)) => end.told(*after, config, self.time),
            None => format!("has been running for {:.1} s", self.began.elapsed().as_secs_f64()),
        }
    }
}
