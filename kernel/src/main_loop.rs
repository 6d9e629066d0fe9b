//! The kernel process: from its arguments to its exit status.

use std::{
    collections::BTreeMap,
    io::IsTerminal,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixListener},
    },
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    thread,
    time::Duration,
};

use drupe_agent::{Clock, SystemClock};
use drupe_bus::Bus;
use drupe_config::{Config, Sources, load_config};
use drupe_extension_api::{AgentId, FaultCode};
use drupe_folders::{content::Contents, discovery::Layout, generation::Generations, held::Held};
use drupe_journal::Store;
use drupe_link::{ControlToken, Down, Home, KernelLink, Up, Verdicts};
use drupe_models::Models;
use drupe_wiring::{self as wiring, live::Live, tokens::Tokens};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing_subscriber::EnvFilter;

use crate::{
    boot,
    channels::Deliveries,
    control,
    ending::{Ending, Why},
    ends::Ends,
    events::ToAgents,
    extension::{Extensions, change, generations, handles::Handles, recovery},
    idle,
    kernel::{Folders, Kernel, Start},
    pace::Pace,
    sessions::Sessions,
    settings,
};

/// `sysexits`: the configuration is wrong. A supervisor does not try again.
const CONFIG: u8 = 78;
/// `sysexits`: something failed that may go better next time.
const FAILED: u8 = 70;
/// `sysexits`: the journal cannot be used.
const JOURNAL: u8 = 74;

/// How often the supervisor hears that the runtime still turns.
const BEAT: Duration = Duration::from_secs(1);

/// An extension that has a thread of the runtime for this long, within one poll, holds up the beat. It is ended once the
/// beat was missing for as long as the supervisor bears it.
const STUCK: Duration = Duration::from_secs(1);

/// How often the supervisor's copy of the status is brought up to date; it is shown only while no kernel serves.
const STATUS: Duration = Duration::from_secs(5);

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
    /// The configuration file; none for built-in defaults.
    pub config: Option<PathBuf>,
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
    let (start, verdicts) = match link.send(&hello).map(|()| link.recv()) {
        Ok(Ok(Some(Down::Start {
            generation,
            safe_mode,
            supervisor_pid,
            restarts,
            exits,
            notices,
            verdicts,
            fallback,
        }))) => {
            let start = Start {
                generation,
                safe_mode,
                supervisor_pid,
                restarts,
                exits,
                notices,
                fallback,
                agents: (!arguments.agents.is_empty()).then_some(arguments.agents),
                began_ms: SystemClock.now_ms(),
                exe: std::env::current_exe().unwrap_or_default(),
            };
            (start, verdicts)
        }
        _ => return FAILED,
    };
    let sources = Sources {
        file: arguments.config,
        home: arguments.home.clone(),
        environment: arguments.environment,
        overrides: Vec::new(),
    };
    // Read before it is parsed: of a file that changes in between, the older text is kept.
    // Without a file the defaults are what was good, and a file with faults that is written later must not win.
    let config_text = sources.file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    let config_text = config_text.unwrap_or_else(|| "# built-in defaults: there was no file\n".into());
    let loaded = load_config(&sources);
    let filter = loaded.as_ref().map_or("info", |l| l.value.log.as_str());
    logging(sources.environment.get("RUST_LOG").map_or(filter, String::as_str), arguments.human_log);
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
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("the runtime cannot start: {error}"));
            return FAILED;
        }
    };
    let status = match runtime.block_on(Box::pin(run(
        Plan { home: arguments.home, config, config_text, sources, start, verdicts },
        link,
        arguments.control,
    ))) {
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

struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    fn new(status: u8, message: impl std::fmt::Display) -> Self {
        Self { status, message: message.to_string() }
    }
}

/// To the operator, who may be looking before there is a log.
fn say(message: &str) {
    use std::io::Write;
    // Without a place to say it there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{}", message.trim_end());
}

fn logging(filter: &str, human: bool) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    if human {
        builder.with_ansi(false).compact().init();
    } else {
        builder.json().init();
    }
}

/// What a kernel is made from.
struct Plan {
    home: PathBuf,
    config: Config,
    config_text: String,
    sources: Sources,
    start: Start,
    verdicts: Verdicts,
}

async fn run(plan: Plan, link: Arc<KernelLink>, control: OwnedFd) -> Result<(), Failure> {
    let mut down = listen(Arc::clone(&link));
    let home = Home::new(&plan.home).map_err(|error| Failure::new(FAILED, error))?;
    let token = ControlToken::read(&home).map_err(|error| Failure::new(FAILED, error))?;
    let kernel = assemble(plan, Arc::clone(&link))?;
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let looking = Arc::clone(&kernel);
    let watched = tokio::task::spawn_blocking(move || change::watch(&looking));
    let watched = watched.await.map_err(|error| Failure::new(FAILED, error))?;
    let mut booting = std::pin::pin!(boot::extensions(&kernel));
    loop {
        tokio::select! {
            booted = &mut booting => break booted.map_err(|fault| {
                let status = match fault.code {
                    FaultCode::NotConfigured => CONFIG,
                    FaultCode::Unavailable => JOURNAL,
                    _ => FAILED,
                };
                Failure::new(status, fault)
            })?,
            _ = beat.tick() => send_beat(&kernel).await,
            Some(frame) = down.recv() => heard(&kernel, frame),
        }
    }
    let listener = UnixListener::from(control);
    let mut serving = kernel.tasks.spawn(control::server::serve(Arc::clone(&kernel), listener, token));
    boot::take_up(&kernel).await.map_err(|fault| Failure::new(JOURNAL, fault))?;
    kernel.tell_supervisor(&kernel.ready_frame(None));
    tracing::info!(generation = kernel.start.generation, "ready");
    kernel.tasks.spawn(tell_status(Arc::clone(&kernel)));
    kernel.tasks.spawn(idle::watch(Arc::clone(&kernel)));
    kernel.tasks.spawn(recovery::watch_health(Arc::clone(&kernel)));
    let keeping = Arc::clone(&kernel);
    kernel.tasks.spawn(async move {
        let _change = keeping.changing.lock().await;
        generations::keep(&keeping).await;
    });
    if let Some(watched) = watched {
        kernel.tasks.spawn(change::follow(Arc::clone(&kernel), watched));
    }
    // Nothing in this loop waits for anything but the loop: what is slow has a task of its own.
    loop {
        tokio::select! {
            _ = kernel.ending.wait() => break,
            frame = down.recv() => match frame {
                Some(Down::Reload) => {
                    heard(&kernel, Down::Reload);
                    kernel.tell_supervisor(&kernel.ready_frame(None));
                }
                Some(frame) => heard(&kernel, frame),
                None => return Err(Failure::new(FAILED, "the supervisor is gone")),
            },
            _ = beat.tick() => send_beat(&kernel).await,
            end = &mut serving => {
                return Err(Failure::new(FAILED, format!("the control socket cannot be served: {end:?}")));
            }
        }
    }
    kernel.tell_supervisor(&Up::Draining);
    tracing::info!(why = ?kernel.ending.decided(), "draining");
    let mut draining = std::pin::pin!(async {
        boot::drain(&kernel).await;
        kernel.store.clone().close().await
    });
    let closed = loop {
        tokio::select! {
            closed = &mut draining => break closed,
            // A stop that comes while a restart drains goes before it.
            Some(Down::Stop) = down.recv() => kernel.ending.request(Why::Stop, None),
            _ = beat.tick() => send_beat(&kernel).await,
        }
    };
    closed.map_err(|error| Failure::new(JOURNAL, error))?;
    let last = match kernel.ending.wait().await {
        Why::Stop => Up::Stopping,
        Why::Restart { reason } => Up::Restart { reason },
    };
    link.send(&last).map_err(|error| Failure::new(FAILED, error))
}

/// Does what the supervisor says. While the kernel starts, too: a stop then finds nothing that would need a drain, and a
/// verdict waits for the start's turn to change the extensions.
fn heard(kernel: &Arc<Kernel>, frame: Down) {
    let task = Arc::clone(kernel);
    match frame {
        Down::Stop => kernel.ending.request(Why::Stop, None),
        Down::Restart { reason } => kernel.ending.request(Why::Restart { reason }, None),
        Down::Reload => drop(kernel.tasks.spawn(async move { reload(&task).await })),
        Down::Verdicts(verdicts) => {
            kernel.set_verdicts(verdicts);
            kernel.tasks.spawn(async move { recovery::judged(&task).await });
        }
        Down::Start { .. } => {}
    }
}

/// Through a worker and back, so that a runtime that no longer turns is seen. One thread that an extension does not give
/// back is enough: its work and whatever else is queued there is stuck.
async fn send_beat(kernel: &Kernel) {
    let stuck = drupe_blame::overdue(STUCK);
    if let Some(running) = stuck.first() {
        tracing::error!(extension = %running.extension, operation = running.operation.name(), "does not give its thread back");
        return;
    }
    if kernel.tasks.spawn(std::future::ready(())).await.is_ok() {
        kernel.tell_supervisor(&Up::Beat);
    }
}

/// Makes the kernel with nothing loaded.
fn assemble(plan: Plan, link: Arc<KernelLink>) -> Result<Arc<Kernel>, Failure> {
    let Plan { home, config, config_text, sources, mut start, verdicts } = plan;
    start.notices.extend(close_to_others(&home));
    let folders = Folders::new(&home);
    for folder in [folders.extensions(), folders.workspace().clone(), home.join("data")] {
        std::fs::create_dir_all(&folder).map_err(|error| {
            Failure::new(FAILED, format!("`{}` cannot be made: {error}", folder.display()))
        })?;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let bus = Arc::new(Bus::default());
    let storage = settings::storage(&config, &folders);
    let ends = Arc::<Ends>::default();
    let store = Store::open(&storage, Arc::clone(&clock), ends.on_the_way_to(bus.publisher()))
        .map_err(|error| Failure::new(JOURNAL, error))?;
    let models = Models::new(settings::models(&config)).map_err(|error| Failure::new(CONFIG, error))?;
    let tokens = Arc::new(Tokens::default());
    let live = Arc::new(Live::default());
    let prompt = boot::orchestrator_prompt(&config).map_err(|error| Failure::new(CONFIG, error))?;
    let context = wiring::Context {
        config: &config,
        models: &models,
        tokens: &tokens,
        live: &live,
        orchestrator: &prompt,
        workspace: folders.workspace(),
        day: wiring::Day::of(clock.now_ms()),
        away: &[],
    };
    let snapshot = boot::bare(&context).map_err(|reason| Failure::new(CONFIG, reason))?;
    let contents = Contents::open(folders.contents());
    let generations = Generations::new(folders.generations());
    let held = Held::open(folders.held());
    let (quotas, gates) = settings::limits(&config);
    let sessions = Sessions::new(config.limits.concurrency.turns);
    let queue = Arc::new(store.clone());
    let layout = Layout::new(&start.exe, folders.root(), &config.extensions.paths);
    Ok(Arc::new_cyclic(|kernel| Kernel {
        topics: drupe_bus::Deliveries::new(
            queue,
            Arc::clone(&bus),
            Arc::new(ToAgents(kernel.clone())),
            Arc::clone(&clock),
        ),
        quotas: Arc::new(quotas),
        gates: Arc::new(gates),
        ratios: Arc::default(),
        home: folders,
        config: Arc::new(config),
        settings: sources,
        config_text,
        start,
        store,
        models,
        bus,
        clock,
        tokens,
        handles: Handles::default(),
        layout,
        extensions: Extensions::default(),
        notices: Pace::new("notices", 10),
        announcements: Pace::new("announcements of tools", 30),
        sessions,
        ending: Ending::default(),
        ends,
        tasks: TaskTracker::new(),
        deliveries: Deliveries::default(),
        cancel: CancellationToken::new(),
        closing: CancellationToken::new(),
        live,
        contents,
        generations,
        held,
        changing: tokio::sync::Mutex::default(),
        verdicts: RwLock::new(verdicts),
        link,
        wiring: tokio::sync::Mutex::default(),
        snapshot: RwLock::new(Arc::new(snapshot)),
    }))
}

/// Takes from others what they may do in a home that somebody made open, and says so: what lies there is private, and
/// what others write there would count as the operator's.
fn close_to_others(home: &Path) -> Option<String> {
    let mode = std::fs::metadata(home).ok()?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return None;
    }
    let home_shown = home.display();
    Some(match std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o700)) {
        Ok(()) if mode & 0o022 == 0 => {
            format!(
                "`{home_shown}` could be read by others (mode {mode:o}); it is open to its owner alone now"
            )
        }
        Ok(()) => format!(
            "`{home_shown}` could be changed by others (mode {mode:o}); it is open to its owner alone now: look whether \
             everything in it is yours"
        ),
        Err(error) => {
            format!("`{home_shown}` is open to others (mode {mode:o}) and stays so: {error}; `chmod 700` it")
        }
    })
}

/// Hears the supervisor on a thread of its own, so that its end is noticed even when the runtime hangs.
fn listen(link: Arc<KernelLink>) -> mpsc::UnboundedReceiver<Down> {
    // Unbounded, but the supervisor sends a handful of frames in a kernel's life.
    let (frames, heard) = mpsc::unbounded_channel();
    let spawned = thread::Builder::new().name("link".into()).stack_size(64 * 1024).spawn(move || {
        while let Ok(Some(frame)) = link.recv() {
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

/// Tells the supervisor what `status` shows, when it has changed, until the kernel closes.
async fn tell_status(kernel: Arc<Kernel>) {
    let mut shown = String::new();
    loop {
        if let Ok(status) = control::methods::status(&kernel).await {
            let now = serde_json::to_string(&(status.sessions, status.queued_turns, &status.extensions));
            let now = now.unwrap_or_default();
            if now != shown {
                shown = now;
                let (sessions, queued_turns) = (status.sessions, status.queued_turns);
                let extensions = status.extensions;
                kernel.tell_supervisor(&Up::Status { sessions, queued_turns, extensions, unlisted: 0 });
            }
        }
        tokio::select! {
            () = tokio::time::sleep(STATUS) => {}
            () = kernel.closing.cancelled() => return,
        }
    }
}

/// A new configuration takes effect by a restart that drains; one that cannot be read changes nothing.
pub(crate) async fn reload(kernel: &Arc<Kernel>) {
    match settings::reread(&kernel.settings) {
        Ok(_) => {
            if let Err(fault) =
                kernel.request_restart("the configuration is read again".into(), None, false).await
            {
                tracing::warn!(%fault, "the configuration is not read again");
            }
        }
        Err(faults) => {
            tracing::error!("the new configuration has faults, the old one stays:\n{}", faults.render(false))
        }
    }
}
