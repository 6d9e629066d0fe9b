//! From a plan to a kernel with nothing loaded, while the supervisor hears that it goes on: how long a large journal is
//! opened, checked and brought to this release's version, nobody knows.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use drupe_agent::{Clock, SystemClock};
use drupe_bus::Bus;
use drupe_config::{Config, Sources};
use drupe_extension_api::{Fault, FaultCode};
use drupe_folders::{content::Contents, discovery::Layout, generation::Generations, held::Held};
use drupe_handles::Handles;
use drupe_host::home::Folders;
use drupe_journal::{Opening, Stage, Store};
use drupe_link::{Down, Home, KernelLink, Up, Verdicts};
use drupe_policy::OnRequest;
use drupe_surface::grants::Grants;
use drupe_wiring::{self as wiring, live::Live, tokens::Tokens};
use tokio::{sync::mpsc, time::Interval};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    beginning,
    channels::Deliveries,
    ending::Ending,
    ends::Ends,
    events::ToAgents,
    extension::Extensions,
    kernel::{Kernel, Start, store_fault},
    pace::Pace,
    sessions::Sessions,
    settings,
};

/// `sysexits`: the configuration is wrong. A supervisor does not try again.
pub const CONFIG: u8 = 78;
/// `sysexits`: something failed that may go better next time.
pub const FAILED: u8 = 70;
/// `sysexits`: the journal cannot be used.
pub const JOURNAL: u8 = 74;
/// `sysexits`: the journal cannot be used as its disk is now. A supervisor tries again, for as long as it takes.
pub const LATER: u8 = 75;

/// How often the supervisor hears that the runtime still turns.
const BEAT: Duration = Duration::from_secs(1);

/// An extension that has a thread of the runtime for this long, within one poll, holds up the beat. It is ended once the
/// beat was missing for as long as the supervisor bears it.
const STUCK: Duration = Duration::from_secs(1);

pub struct Failure {
    pub status: u8,
    pub message: String,
}

impl Failure {
    pub fn new(status: u8, message: impl std::fmt::Display) -> Self {
        Self { status, message: message.to_string() }
    }
}

/// With what a start ends that such a fault keeps from going on.
pub fn status_of(fault: &Fault) -> u8 {
    match fault.code {
        FaultCode::NotConfigured => CONFIG,
        FaultCode::Unavailable if fault.retriable => LATER,
        FaultCode::Unavailable => JOURNAL,
        _ => FAILED,
    }
}

/// What a kernel is made from.
pub struct Plan {
    pub home: PathBuf,
    pub config: Config,
    pub config_text: String,
    pub sources: Sources,
    pub start: Start,
    pub verdicts: Verdicts,
}

/// The beat: tells the supervisor each second that the runtime still turns.
pub struct Pulse {
    link: Arc<KernelLink>,
    tasks: TaskTracker,
    interval: Interval,
}

impl Pulse {
    pub fn new(link: Arc<KernelLink>, tasks: TaskTracker) -> Self {
        let mut interval = tokio::time::interval(BEAT);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Self { link, tasks, interval }
    }

    /// Waits until it is time, and beats: through a worker and back, so that a runtime that no longer turns is seen. One
    /// thread that an extension does not give back is enough: its work and whatever else is queued there is stuck.
    pub async fn beat(&mut self) {
        self.interval.tick().await;
        let stuck = drupe_blame::overdue(STUCK);
        if let Some(running) = stuck.first() {
            tracing::error!(extension = %running.extension, operation = running.operation.name(), "does not give its thread back");
            return;
        }
        if self.tasks.spawn(std::future::ready(())).await.is_ok() {
            self.tell(&Up::Beat);
        }
    }

    fn tell(&self, frame: &Up) {
        if let Err(error) = self.link.try_send(frame) {
            tracing::warn!(%error, "a frame was not sent to the supervisor");
        }
    }
}

/// What came of a beginning.
pub enum Begun {
    /// A kernel, and what the supervisor said meanwhile.
    Made(Arc<Kernel>, Vec<Down>),
    /// The supervisor wanted its end, which it was told.
    Ended,
}

/// Makes the kernel on a thread of its own.
pub async fn begin(
    plan: Plan,
    pulse: &mut Pulse,
    down: &mut mpsc::UnboundedReceiver<Down>,
) -> Result<Begun, Failure> {
    let opening = Arc::<Opening>::default();
    let journal = Folders::new(&plan.home).journal();
    let (link, tasks, seen) = (Arc::clone(&pulse.link), pulse.tasks.clone(), Arc::clone(&opening));
    let mut making = tokio::task::spawn_blocking(move || assemble(plan, link, tasks, &seen));
    let (mut heard, mut beats) = (Vec::new(), 0);
    loop {
        let last = tokio::select! {
            made = &mut making => {
                let kernel = made.map_err(|error| Failure::new(FAILED, error))??;
                return Ok(Begun::Made(kernel, heard));
            }
            () = pulse.beat() => {
                beats += 1;
                // The first one comes at once, and most journals are open at the second.
                if beats > 1 {
                    pulse.tell(&progress(&opening, &journal));
                }
                continue;
            }
            frame = down.recv() => match frame {
                // The journal bears an end at any moment, and nothing else is open.
                Some(Down::Stop) => Up::Stopping,
                Some(Down::Restart { reason }) => Up::Restart { reason },
                Some(frame) => {
                    heard.push(frame);
                    continue;
                }
                None => return Err(Failure::new(FAILED, "the supervisor is gone")),
            },
        };
        pulse.link.send(&last).map_err(|error| Failure::new(FAILED, error))?;
        return Ok(Begun::Ended);
    }
}

/// What is done with the journal, for the supervisor and for people.
fn progress(opening: &Opening, journal: &Path) -> Up {
    let mut log = journal.as_os_str().to_owned();
    log.push("-wal");
    let bytes = |file: &Path| std::fs::metadata(file).map_or(0, |found| found.len());
    let size = format!("{} MB", (bytes(journal) + bytes(log.as_ref())).div_ceil(1_000_000));
    let doing = match opening.stage() {
        Stage::Opens => format!("opens the journal of {size}"),
        Stage::Migrates => {
            format!("copies the journal of {size} and brings it to the version of this release")
        }
        Stage::Checks => format!("checks the journal of {size}, which was not closed in order"),
    };
    Up::Progress { doing, steps: opening.steps() }
}

/// Makes the kernel with nothing loaded.
fn assemble(
    plan: Plan,
    link: Arc<KernelLink>,
    tasks: TaskTracker,
    opening: &Arc<Opening>,
) -> Result<Arc<Kernel>, Failure> {
    let Plan { home, config, config_text, sources, mut start, verdicts } = plan;
    start.notices.extend(Home::new(&home).ok().and_then(|home| home.close_to_others()));
    let folders = Folders::new(&home);
    for folder in [folders.extensions(), folders.workspace().clone(), home.join("data")] {
        folders.make(&folder).map_err(|why| Failure::new(FAILED, why))?;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let bus = Arc::new(Bus::default());
    let storage = settings::storage(&config, &folders);
    let ends = Arc::<Ends>::default();
    let publish = ends.on_the_way_to(bus.publisher());
    let store = Store::open_seen(&storage, Arc::clone(&clock), publish, opening)
        .map_err(|error| Failure::new(status_of(&store_fault(error.clone())), error))?;
    let tokens = Arc::new(Tokens::default());
    let live = Arc::new(Live::default());
    let day = drupe_prompts::Day::of(clock.now_ms());
    let ground = wiring::Ground { tokens: &tokens, live: &live, workspace: folders.workspace(), day };
    let (models, snapshot) =
        wiring::begin(&config, ground, &[]).map_err(|reason| Failure::new(CONFIG, reason))?;
    let refused = start.last_good.then(|| {
        let refusal = beginning::refusal(&sources, day, &[]);
        refusal.map_or_else(|| "the log says why".to_owned(), |refusal| refusal.first)
    });
    let contents = Contents::open(folders.contents());
    let generations = Generations::new(folders.generations());
    let held = Held::open(folders.held());
    let (quotas, gates) = settings::limits(&config);
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
        policy: Arc::new(OnRequest::new(store.clone(), Arc::clone(&clock))),
        home: folders,
        config: Arc::new(config),
        settings: sources,
        config_text,
        start,
        store,
        models,
        bus,
        clock,
        grants: Grants::default(),
        tokens,
        handles: Handles::default(),
        layout,
        extensions: Extensions::default(),
        notices: Pace::new("notices", 10),
        announcements: Pace::new("announcements of tools", 30),
        sessions: Sessions::default(),
        ending: Ending::default(),
        ends,
        tasks,
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
        refused: Mutex::new(refused),
    }))
}
