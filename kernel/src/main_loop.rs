//! The kernel process: from its arguments to its exit status.

use std::{
    collections::BTreeMap,
    io::IsTerminal,
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drupe_agent::SystemClock;
use drupe_attachments::WorkspaceInbox;
use drupe_config::{Sources, load_config};
use drupe_extension_api::{AgentId, Fault};
use drupe_gate::beginning;
use drupe_host::home::Folders;
use drupe_journal::{Counts, Retention};
use drupe_link::{BeginError, ControlToken, Down, Home, KernelLink, Received, Up, Verdicts};
use drupe_memory::Rest;
use drupe_redact::Redactor;
use drupe_surface::ending::Why;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{Notify, mpsc};
use tracing_subscriber::EnvFilter;

use crate::{
    backups::Backups,
    base::{Base, Start},
    boot, control,
    extension::{Record, change, generations, recovery},
    kernel::Kernel,
    opening::{self, BEAT, BEAT_AT_REST, Begun, CONFIG, FAILED, Failure, JOURNAL, Pulse, STRANGER},
};

/// How often at most the supervisor's copy of the status is brought up to date; it is shown only while no kernel serves.
const STATUS: Duration = Duration::from_secs(5);

/// How long that waits for something to happen. What happens without a write to the journal and a change of the tools is seen then.
const UNEVENTFUL: Duration = Duration::from_secs(60);

/// How often a proof that the journal writes changes a row, which takes the disk. The others only take the way to it: a
/// machine at rest lets its disk sleep.
const ON_DISK: Duration = Duration::from_secs(300);

/// Time between two looks at what is too old.
const LOOK: Duration = Duration::from_secs(60 * 60);

/// What the kernel process is given.
#[derive(Debug)]
pub struct Arguments {
    /// The home.
    pub home: PathBuf,
    /// The link to the supervisor.
    pub link: OwnedFd,
    /// The listening control socket.
    pub control: OwnedFd,
    /// The page in which it is noted whose code runs; none where the supervisor could make none.
    pub blame: Option<OwnedFd>,
    /// The configuration file that the operator named; without one, that of the home.
    pub config: Option<PathBuf>,
    /// Whether the last good configuration takes the place of the operator's.
    pub last_good: bool,
    /// The agents that surfaces offer; empty for all.
    pub agents: Vec<AgentId>,
    /// The process environment, read once at the entry.
    pub environment: BTreeMap<String, String>,
    /// Log lines for people rather than programs.
    pub human_log: bool,
}

/// Runs a kernel to its end; gives the exit status of the process.
pub fn main(arguments: Arguments) -> u8 {
    // Besides the link: an end of the supervisor that no thread of this process lives to see.
    let parent_death = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // Before anything that could fail: whatever ends this process from here on is noted.
    let blame = arguments.blame.map_or(Ok(()), drupe_blame::install);
    let link = Arc::new(KernelLink::new(arguments.link));
    let hello = Up::Hello { pid: std::process::id(), version: env!("CARGO_PKG_VERSION").into() };
    let (start, verdicts) = match link.begin(&hello, drupe_link::VERSION) {
        Ok(Down::Start {
            link: _,
            generation,
            safe_mode,
            supervisor_pid,
            restarts,
            exits,
            notices,
            verdicts,
            fallback,
            proof_ms,
        }) => {
            let start = Start {
                generation,
                safe_mode,
                supervisor_pid,
                restarts,
                exits,
                notices,
                last_good: arguments.last_good,
                fallback,
                proof: proof_ms.map(Duration::from_millis),
                agents: (!arguments.agents.is_empty()).then_some(arguments.agents),
                began: Some(Instant::now()),
                unread: false,
                exe: std::env::current_exe().unwrap_or_default(),
            };
            (start, verdicts)
        }
        Err(stranger @ BeginError::Stranger) => {
            say(&stranger.to_string());
            return STRANGER;
        }
        _ => return FAILED,
    };
    let sources = Sources {
        file: arguments.config,
        home: arguments.home.clone(),
        environment: arguments.environment,
        overrides: Vec::new(),
    };
    let read = match (arguments.last_good, Home::new(&sources.home)) {
        (true, Ok(home)) => Sources { file: Some(home.good_config()), ..sources.clone() },
        _ => beginning::written(&sources),
    };
    // Read before it is parsed: of a file that changes in between, the older text is kept.
    // Without a file the defaults are what was good, and a file with faults that is written later must not win.
    let config_text = read.file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    let config_text = config_text.unwrap_or_else(|| "# built-in defaults: there was no file\n".into());
    let loaded = load_config(&read);
    let filter = loaded.as_ref().map_or("info", |l| l.value.log.as_str());
    let redactor = Redactor::default();
    logging(
        sources.environment.get("RUST_LOG").map_or(filter, String::as_str),
        arguments.human_log,
        &redactor,
    );
    if let Err(error) = parent_death {
        tracing::warn!(%error, "this kernel may outlive a supervisor that is killed");
    }
    if let Err(error) = blame {
        tracing::warn!(%error, "should an extension end this process, it will not be known which");
    }
    let config = match loaded {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|w| tracing::warn!("{}", w.message));
            loaded.value
        }
        Err(faults) => {
            say(&faults.render(std::io::stderr().is_terminal()));
            return CONFIG;
        }
    };
    let file = crate::settings::log_file(&config);
    if let Err(error) = link.try_send(&Up::Log { file }) {
        tracing::warn!(%error, "the supervisor was not told where the log goes");
    }
    let clock = Arc::new(SystemClock);
    let base = Base {
        home: Folders::new(&arguments.home),
        config: Arc::new(config),
        clock,
        sources,
        config_text,
        start,
        redactor,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("the runtime cannot start: {error}"));
            return FAILED;
        }
    };
    // On a worker, as all else: a beat then wakes no other thread of the runtime.
    let running = runtime.spawn(run(base, verdicts, link, arguments.control));
    let ended = runtime.block_on(running).map_err(|error| Failure::new(FAILED, error));
    let status = match ended.flatten() {
        Ok(()) => 0,
        Err(failure) => {
            say(&failure.message);
            failure.status
        }
    };
    if status == 0 {
        // From here on an exit is in order, whoever calls it.
        drupe_blame::disarm();
    }
    // Threads of extensions may hang: what had to be written is written.
    runtime.shutdown_background();
    status
}

/// To the operator, who may be looking before there is a log.
fn say(message: &str) {
    use std::io::Write;
    // Without a place to say it there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{}", message.trim_end());
}

/// Whatever writes to the log, it holds no secret.
fn logging(filter: &str, human: bool, redactor: &Redactor) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let redactor = redactor.clone();
    let writer = move || redactor.writer(std::io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    if human {
        builder.with_ansi(false).compact().init();
    } else {
        builder.json().init();
    }
}

async fn run(base: Base, verdicts: Verdicts, link: Arc<KernelLink>, control: OwnedFd) -> Result<(), Failure> {
    let due = Arc::<Notify>::default();
    let mut down = listen(Arc::clone(&link), Arc::clone(&due));
    let home = Home::new(base.home.root()).map_err(|error| Failure::new(FAILED, error))?;
    let token = ControlToken::read(&home).map_err(|error| Failure::new(FAILED, error))?;
    let mut pulse = Pulse::new(Arc::clone(&link), due);
    let begun = opening::begin(base, verdicts, &mut pulse, &mut down).await?;
    let Begun::Made(kernel, heard_early) = begun else { return Ok(()) };
    heard_early.into_iter().for_each(|frame| heard(&kernel, frame));
    let outcome = tokio::select! {
        biased;
        _ = kernel.store.broken() => Ok(()),
        outcome = serve(&kernel, &mut pulse, &mut down, control, token) => outcome,
    };
    let Some(why) = kernel.store.is_broken() else { return outcome };
    // No drain: nothing of what it would wait for can be recorded. The next kernel looks at all of the journal before it serves,
    // and this one leaves it as it is after a crash.
    link.send(&Up::Restart { reason: why.to_string(), unasked: true })
        .map_err(|error| Failure::new(FAILED, error))
}

/// Brings everything to work, serves to the end, and drains.
async fn serve(
    kernel: &Arc<Kernel>,
    pulse: &mut Pulse,
    down: &mut mpsc::UnboundedReceiver<Down>,
    control: OwnedFd,
    token: ControlToken,
) -> Result<(), Failure> {
    // An extension that is started opens its door at once: a bearer who is not known there yet would be sent away.
    control::tokens::load(kernel).await?;
    control::people::load(kernel).await?;
    let looking = Arc::clone(&kernel.roster);
    let watched = tokio::task::spawn_blocking(move || change::watch(&looking));
    let booting = async {
        let watched = watched.await.map_err(|error| Failure::new(FAILED, error))?;
        let booted = boot::extensions(kernel).await;
        booted.map(|()| watched).map_err(Failure::from)
    };
    let watched = meanwhile(booting, kernel, pulse, down).await?;
    let listener = UnixListener::from(control);
    let mut serving = kernel.life.tasks.spawn(control::server::serve(Arc::clone(kernel), listener, token));
    meanwhile(boot::take_up(kernel), kernel, pulse, down).await?;
    kernel.supervision.tell(&kernel.roster.ready_frame(None));
    tracing::info!(generation = kernel.base.start.generation, "ready");
    kernel.life.keep_up("status", kernel, tell_status);
    kernel.life.keep_up("proofs", kernel, prove);
    kernel.life.keep_up("retention", kernel, let_go);
    kernel.life.tasks.spawn(look_at_all(Arc::clone(kernel)));
    kernel.life.tasks.spawn(control::turns::finish_deletions(Arc::clone(kernel)));
    kernel.life.keep_up("backups", &kernel.backups, Backups::run);
    kernel.life.keep_up("health", &kernel.roster, recovery::watch_health);
    let keeping = Arc::clone(&kernel.roster);
    kernel.life.tasks.spawn(async move {
        let _change = keeping.changing.lock().await;
        generations::keep(&keeping).await;
    });
    if let Some(watched) = watched.map(Arc::new) {
        let follow = move |roster| change::follow(roster, Arc::clone(&watched));
        kernel.life.keep_up("folders", &kernel.roster, follow);
    }
    let served = async {
        tokio::select! {
            why = kernel.life.ending.wait() => Ok(why),
            end = &mut serving => {
                Err(Failure::new(FAILED, format!("the control socket cannot be served: {end:?}")))
            }
        }
    };
    let why = meanwhile(served, kernel, pulse, down).await?;
    kernel.supervision.tell(&Up::Draining);
    tracing::info!(to_stop = why == Why::Stop, "draining");
    let drained = async {
        boot::drain(kernel).await;
        kernel.store.clone().close().await
    };
    let closed = meanwhile(drained, kernel, pulse, down).await;
    closed.map_err(|error| Failure::new(JOURNAL, error))?;
    let last = match kernel.life.ending.wait().await {
        Why::Stop => Up::Stopping,
        Why::Restart { reason } => Up::Restart { reason, unasked: false },
    };
    pulse.last(&last).map_err(|error| Failure::new(FAILED, error))
}

/// Beats and hears the supervisor while something goes on. Nothing in this loop waits for anything but the loop: what is
/// slow has a task of its own. That the supervisor is gone ends the process where it is heard.
async fn meanwhile<T>(
    work: impl Future<Output = T>,
    kernel: &Arc<Kernel>,
    pulse: &mut Pulse,
    down: &mut mpsc::UnboundedReceiver<Down>,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = pulse.beat() => {}
            Some(frame) = down.recv() => heard(kernel, frame),
        }
    }
}

/// Does what the supervisor says. While the kernel starts, too: a stop then finds nothing that would need a drain, and a
/// verdict waits for the start's turn to change the extensions. A kernel that ends hears a stop alone, which goes before a
/// restart that drains.
fn heard(kernel: &Arc<Kernel>, frame: Down) {
    let task = Arc::clone(&kernel.roster);
    match frame {
        Down::Stop => kernel.life.ending.request(Why::Stop, None),
        _ if kernel.life.ending.decided().is_some() => {}
        Down::Restart { reason } => kernel.life.ending.request(Why::Restart { reason }, None),
        Down::Reload => {
            kernel.life.tasks.spawn(async move { task.reload().await });
            // Before it serves, that it does is still to be told.
            if kernel.intake.sessions.is_open() {
                kernel.supervision.tell(&kernel.roster.ready_frame(None));
            }
        }
        Down::Verdicts(verdicts) => {
            kernel.supervision.set_verdicts(verdicts);
            kernel.life.tasks.spawn(async move { recovery::judged(&task).await });
        }
        Down::Start { .. } => {}
    }
}

/// Hears the supervisor on a thread of its own, so that its end is noticed even when the runtime hangs, and says when a beat is due: for a
/// timer of its own, seconds ahead, the runtime wakes several times on the way.
fn listen(link: Arc<KernelLink>, due: Arc<Notify>) -> mpsc::UnboundedReceiver<Down> {
    // Unbounded, but the supervisor sends a handful of frames in a kernel's life.
    let (frames, heard) = mpsc::unbounded_channel();
    let spawned = thread::Builder::new().name("link".into()).stack_size(64 * 1024).spawn(move || {
        due.notify_one();
        let (mut rest, mut next) = (Rest::begin(), Instant::now() + BEAT);
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                due.notify_one();
                // A kernel at rest holds little: what only its start, or a spell of work, needed goes.
                next = Instant::now() + if rest.look() { BEAT_AT_REST } else { BEAT };
                continue;
            }
            let mut readable = [PollFd::new(&*link, PollFlags::IN)];
            // A signal ends the wait as well, and there may be nothing to read: the beat must not wait for that.
            if !poll(&mut readable, Timespec::try_from(left).ok().as_ref()).is_ok_and(|ready| ready > 0) {
                continue;
            }
            let frame = match link.recv() {
                Ok(Received::Frame(frame)) => frame,
                Ok(Received::Ignored) => {
                    tracing::warn!(
                        "the supervisor is of another release, and says what this one does not know"
                    );
                    continue;
                }
                Ok(Received::Closed) | Err(_) => break,
            };
            if frames.send(frame).is_err() {
                return;
            }
        }
        // The supervisor is gone: nothing of this process may go on, however stuck it is.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "the link to the supervisor is not heard");
    }
    heard
}

/// Lets go of turns that are not to be kept, and of files that people sent which are as old, now and again and again until the kernel
/// drains. What is not done by then is the next one's.
async fn let_go(kernel: Arc<Kernel>) {
    let retention = &kernel.base.config.journal.retention;
    let keep = Retention::of(retention.max_age_days, retention.max_mb);
    if keep == Retention::default() {
        return;
    }
    let archive = retention.archive.folder(kernel.base.home.root());
    let letting_go = async {
        loop {
            if let Err(error) = let_go_once(&kernel, keep, archive.as_deref()).await {
                tracing::warn!(%error, "what is old is not deleted; tried again in an hour");
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    kernel.life.cancel.run_until_cancelled(letting_go).await;
}

async fn let_go_once(kernel: &Kernel, keep: Retention, archive: Option<&Path>) -> Result<(), Fault> {
    let turns = kernel.store.keep_within(keep, archive).await?;
    if turns > 0 {
        tracing::info!(turns, "deleted the oldest turns, as `journal.retention` says");
    }
    let Some(before) = kernel.store.too_old(keep).await? else { return Ok(()) };
    let inbox = WorkspaceInbox::new(kernel.base.home.workspace());
    tokio::task::spawn_blocking(move || inbox.let_go(before)).await.map_err(Fault::internal)
}

/// Proves to the supervisor that the journal is not stuck, where it asks for that, until the kernel closes. What the journal
/// does not answer is waited for here, and nowhere else.
async fn prove(kernel: Arc<Kernel>) {
    let Some(pause) = kernel.base.start.proof else { return };
    let mut written = None;
    loop {
        let on_disk = written.is_none_or(|at: Instant| at.elapsed() >= ON_DISK);
        if kernel.store.answers(on_disk).await {
            kernel.supervision.tell(&Up::Proof);
            written = if on_disk { Some(Instant::now()) } else { written };
        }
        if kernel.life.closing.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Looks at all of a journal that was not closed in order: the start has looked at what can be seen quickly.
async fn look_at_all(kernel: Arc<Kernel>) {
    if !kernel.base.start.unread {
        return;
    }
    let looked = kernel.life.cancel.run_until_cancelled(kernel.store.check_whole()).await;
    match looked {
        Some(Ok(())) => tracing::info!("the journal is whole: all of it was checked"),
        Some(Err(error)) => tracing::error!(%error, "the journal was not checked to its end"),
        None => {}
    }
}

/// Tells the supervisor of what `status` shows what it tells while no kernel serves, when it has changed, until the kernel
/// closes.
async fn tell_status(kernel: Arc<Kernel>) {
    let mut told = None;
    let mut wired = kernel.roster.wired.changes();
    loop {
        if let Ok(Counts { sessions, queued_turns, .. }) = kernel.store.counts().await {
            let now = (sessions, queued_turns, kernel.roster.extensions.read(Record::status));
            if told.as_ref() != Some(&now) {
                let (_, _, extensions) = now.clone();
                kernel.supervision.tell(&Up::Status { sessions, queued_turns, extensions, unlisted: 0 });
                told = Some(now);
            }
        }
        let next = async {
            tokio::select! {
                () = kernel.store.until_written() => {}
                _ = wired.changed() => {}
                () = tokio::time::sleep(UNEVENTFUL) => {}
            }
            // What is being written is there by then.
            tokio::time::sleep(STATUS).await;
        };
        if kernel.life.closing.run_until_cancelled(next).await.is_none() {
            return;
        }
    }
}
