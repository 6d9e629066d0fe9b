//! From a plan to a kernel with nothing loaded, while the supervisor hears that it goes on: how long a large journal is
//! opened, checked and brought to this release's version, nobody knows.

use std::{
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use drupe_attachments::{OutgoingFiles, WorkspaceInbox};
use drupe_bus::{Bus, Deliveries};
use drupe_extension_api::{Fault, FaultCode};
use drupe_gate::beginning;
use drupe_journal::{Opening, Stage, Store, StoreError};
use drupe_link::{Down, Home, KernelLink, LinkError, Up, Verdicts};
use drupe_policy::CallPolicy;
use drupe_surface::{ends::Ends, grants::Grants, latencies::Latencies};
use drupe_wiring as wiring;
use tokio::sync::{Notify, mpsc};

use crate::schedules::Schedules;
use crate::{
    backups::{self, Backups},
    base::Base,
    extension::{Disk, Extensions, Roster, Wired, servers::ToldServers},
    host,
    intake::{Intake, sessions::Sessions},
    kernel::Kernel,
    life::Life,
    outbox::Outbox,
    settings,
    supervision::Supervision,
    topics::ToAgents,
    turn::{Reports, Turns},
};

/// `sysexits`: the configuration is wrong. A supervisor does not try again.
pub const CONFIG: u8 = 78;
/// `sysexits`: something failed that may go better next time.
pub const FAILED: u8 = 70;
/// `sysexits`: the journal cannot be used.
pub const JOURNAL: u8 = 74;
/// `sysexits`: the journal cannot be used as its disk is now. A supervisor tries again, for as long as it takes.
pub const LATER: u8 = 75;

/// `sysexits`: the supervisor speaks another version of their link. It goes on with its own program.
pub const STRANGER: u8 = 76;

/// How often the supervisor hears that the runtime still turns: five times in what it bears.
pub const BEAT: Duration = Duration::from_secs(2);

/// The same of a kernel at rest, which seldom wakes: twice in what the supervisor bears, and a little before it asks the next question, which
/// it then does while it is awake. What is found of a runtime that hangs, and how soon at the latest, is as with more of them.
pub const BEAT_AT_REST: Duration = Duration::from_millis(3_900);

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

/// What a start ends with that such a fault keeps from going on.
impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let status = match fault.code {
            FaultCode::NotConfigured => CONFIG,
            FaultCode::Unavailable if fault.retriable => LATER,
            FaultCode::Unavailable => JOURNAL,
            _ => FAILED,
        };
        Self::new(status, fault)
    }
}

/// The beat: tells the supervisor that the runtime still turns.
pub struct Pulse {
    link: Arc<KernelLink>,
    life: Life,
    /// It is time for a beat. Whoever tells waits for nothing that the runtime does.
    due: Arc<Notify>,
}

impl Pulse {
    pub fn new(link: Arc<KernelLink>, due: Arc<Notify>) -> Self {
        Self { link, life: Life::default(), due }
    }

    /// Waits until it is time, and beats: from a worker of the runtime, so that one that no longer turns is seen. One
    /// thread that an extension does not give back is enough: its work and whatever else is queued there is stuck.
    pub async fn beat(&mut self) {
        self.due.notified().await;
        let stuck = drupe_blame::overdue(STUCK);
        if let Some(running) = stuck.first() {
            tracing::error!(extension = %running.extension, operation = running.operation.name(), "does not give its thread back");
            return;
        }
        self.tell(&Up::Beat);
    }

    /// Says the last thing: this waits where the link is full.
    pub fn last(&self, frame: &Up) -> Result<(), LinkError> {
        self.link.send(frame)
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
    base: Base,
    verdicts: Verdicts,
    pulse: &mut Pulse,
    down: &mut mpsc::UnboundedReceiver<Down>,
) -> Result<Begun, Failure> {
    let opening = Arc::<Opening>::default();
    let journal = base.home.journal();
    let (link, life, seen) = (Arc::clone(&pulse.link), pulse.life.clone(), Arc::clone(&opening));
    let mut making = tokio::task::spawn_blocking(move || assemble(base, verdicts, link, life, &seen));
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
                Some(Down::Restart { reason }) => Up::Restart { reason, unasked: false },
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
    mut base: Base,
    verdicts: Verdicts,
    link: Arc<KernelLink>,
    life: Life,
    opening: &Arc<Opening>,
) -> Result<Arc<Kernel>, Failure> {
    let home = &base.home;
    base.start.notices.extend(Home::new(home.root()).ok().and_then(|home| home.close_to_others()));
    for folder in [home.extensions(), home.workspace().clone(), home.root().join("data")] {
        home.make(&folder).map_err(|why| Failure::new(FAILED, why))?;
    }
    WorkspaceInbox::new(home.workspace()).sweep();
    let clock = &base.clock;
    let bus = Arc::new(Bus::default());
    let storage = settings::storage(&base.config, home);
    let ends = Arc::<Ends>::default();
    let latencies = Arc::<Latencies>::default();
    let publish = latencies.on_the_way_to(ends.on_the_way_to(bus.publisher()));
    let store = Store::open_seen(&storage, Arc::clone(clock), publish, opening).map_err(|error| {
        let advice = matches!(error, StoreError::Corrupt(_)).then(|| backups::advice(&base)).flatten();
        let failure = Failure::from(Fault::from(error));
        match advice {
            Some(advice) => Failure::new(failure.status, format!("{}; {advice}", failure.message)),
            None => failure,
        }
    })?;
    base.start.notices.extend(opening.lost());
    base.start.unread = opening.was_not_closed() && !opening.was_doubted();
    let begun = wiring::begin(&base.config, home.workspace(), base.day(), &[]);
    let wired = Arc::new(Wired::new(begun.map_err(|reason| Failure::new(CONFIG, reason))?, &base.redactor));
    let refused = base.start.last_good.then(|| {
        let refusal = beginning::refusal(&base.sources, base.day(), &[]);
        refusal.map_or_else(|| "the log says why".to_owned(), |refusal| refusal.first)
    });
    let supervision = Arc::new(Supervision::new(link, verdicts, refused));
    let (quotas, gates) = settings::limits(&base.config);
    let base = Arc::new(base);
    let outgoing = OutgoingFiles::new(base.home.outgoing());
    outgoing.take_back();
    let outbox = Outbox::new(life.clone(), store.clone(), Arc::clone(&wired), Arc::clone(&bus), outgoing);
    let outbox = Arc::new(outbox.copying(base.config.copies.clone()));
    let clock = &base.clock;
    Ok(Arc::new_cyclic(|kernel: &Weak<Kernel>| {
        let (to_agents, whose) = (Arc::new(ToAgents(kernel.clone())), kernel.clone());
        let queue = Arc::new(store.clone());
        let roster = Arc::new(Roster {
            base: Arc::clone(&base),
            life: life.clone(),
            supervision: Arc::clone(&supervision),
            store: store.clone(),
            topics: Deliveries::new(queue, Arc::clone(&bus), to_agents, Arc::clone(clock)),
            bus,
            extensions: Extensions::default(),
            wired,
            servers: ToldServers::default(),
            disk: Disk::of(&base),
            table: Box::new(move |manifest, holder| host::table(whose.clone(), manifest, holder)),
            changing: tokio::sync::Mutex::default(),
        });
        let turns = Turns {
            store: store.clone(),
            roster: Arc::clone(&roster),
            outbox: Arc::clone(&outbox),
            quotas: Arc::new(quotas),
            gates: Arc::new(gates),
            ratios: Arc::default(),
            policy: CallPolicy::new(base.config.approvals.clone(), store.clone(), Arc::clone(clock)),
            reports: Reports::default(),
        };
        let intake =
            Arc::new(Intake { roster: Arc::clone(&roster), turns, sessions: Sessions::default(), ends });
        let grants = Grants::default();
        let schedules =
            Schedules::new(Arc::clone(&base), life.clone(), Arc::clone(&intake), Arc::clone(&outbox));
        let backups = Backups::new(Arc::clone(&base), life.clone(), Arc::clone(&outbox));
        Kernel {
            base: Arc::clone(&base),
            life: life.clone(),
            supervision,
            store,
            roster,
            outbox,
            intake,
            schedules: Arc::new(schedules),
            backups: Arc::new(backups),
            grants,
            latencies,
        }
    }))
}
