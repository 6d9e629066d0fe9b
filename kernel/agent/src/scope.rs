//! What all runs of one turn share.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicBool},
};

use drupe_extension_api::{
    AgentId, CorrelationId, EffectId, Event, Fault, SessionId, TurnId, control::PlanStep,
};
use drupe_limits::{Gates, Quotas, TurnPlace};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    behind::BehindAnswers,
    clock::{Clock, SystemClock},
    hooks::{Hooks, NoHooks},
    journal::Journal,
    ledger::Taken,
    policy::{Allowlist, Policy},
    ratios::Ratios,
    results::TOOL_RESPONSE_MAX_BYTES,
    run::Records,
    spawned::SpawnedAgents,
    steering::Steering,
    stopwatch::Stopwatch,
    taint::Taint,
    topics::{Chain, NoTopics, Topics},
};

/// Weights of the session's gate.
pub const GATE: usize = 16;

/// Watches a run while it happens.
pub trait Observer: Send + Sync {
    /// A part of an item's text, or a reset; never recorded. Must not block.
    fn live(&self, event: Event);

    /// Whether anybody watches that session now. Live events are made only then; must not block.
    fn watched(&self, session: &SessionId) -> bool {
        let _ = session;
        true
    }
}

/// An observer that looks away.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {
    fn live(&self, _: Event) {}

    fn watched(&self, _: &SessionId) -> bool {
        false
    }
}

/// Begins agents that go on when the turn in which they were spawned has ended.
pub trait Detaches: Send + Sync {
    /// Begins one, once for each call; gives the session in which it works. Its answer comes to the session of the turn as a
    /// message of its own.
    fn detach(&self, task: DetachedTask) -> BoxFuture<'_, Result<SessionId, Fault>>;
}

/// What an agent is to do that outlives its turn.
#[derive(Debug, Clone)]
pub struct DetachedTask {
    /// The call by which it was spawned.
    pub effect: EffectId,
    /// The agent that is to do it.
    pub agent: AgentId,
    /// What that agent is to do.
    pub task: String,
    /// The conversation whose turn spawned it.
    pub session: SessionId,
    /// The turn whose run spawned it.
    pub turn: TurnId,
    /// The agents that led to it.
    pub chain: Chain,
    /// Links it to that turn.
    pub correlation: CorrelationId,
    /// What brought the text of strangers that whoever spawned it has read, if they have.
    pub strangers: Option<String>,
}

/// What a turn made use of that a later one may find changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    /// The agents of which a run was entered.
    pub agents: BTreeSet<AgentId>,
    /// Skills that agents have loaded, with the hashes of their folders as far as they are known.
    pub skills: BTreeMap<(AgentId, String), Option<String>>,
    /// The last plans of agents that answered.
    pub plans: BTreeMap<AgentId, Vec<PlanStep>>,
}

/// Records of runs that have ended, which the next commit of the turn holds.
#[derive(Default)]
pub struct Left(Mutex<Taken>);

/// What all runs of one turn share.
pub struct TurnScope {
    /// The conversation.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// Links everything of the turn; the turn's own id where nothing else is set.
    pub correlation: CorrelationId,
    /// The root of relative paths.
    pub base_folder: PathBuf,
    /// The message that set the turn off.
    pub user_message: String,
    /// What set the turn off through events.
    pub chain: Chain,
    /// Where records go.
    pub journal: Arc<dyn Journal>,
    /// Decides about tool calls.
    pub policy: Arc<dyn Policy>,
    /// Whether what strangers wrote was read.
    pub taint: Taint,
    /// Is asked before and after.
    pub hooks: Arc<dyn Hooks>,
    /// Watches.
    pub observer: Arc<dyn Observer>,
    /// Knows who follows what.
    pub topics: Arc<dyn Topics>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Budgets of day, session and agents.
    pub quotas: Arc<Quotas>,
    /// Bounds how many runs of one agent go on at the same time.
    pub gates: Arc<Gates>,
    /// The turn's own place among those that go on at the same time.
    pub place: Arc<TurnPlace>,
    /// The session's gate of [`GATE`] weights.
    pub gate: Arc<Semaphore>,
    /// Bytes a token, by model.
    pub ratios: Arc<Ratios>,
    /// Further messages of the user.
    pub steering: Arc<Steering>,
    /// Bytes of one tool result that a model is shown; [`TOOL_RESPONSE_MAX_BYTES`] where nothing else is wanted.
    pub tool_response_max_bytes: usize,
    /// What an earlier process recorded of the turn, which goes on there.
    pub records: Records,
    /// The clock of its root, once that has begun: where it stands still, the turn waits for a person alone.
    pub time: Arc<OnceLock<Stopwatch>>,
    /// Agents that work beside the runs which spawned them.
    pub spawned: Arc<SpawnedAgents>,
    /// Begins agents that outlive the turn; none where nobody does.
    pub detaches: Option<Arc<dyn Detaches>>,
    /// What goes on behind answers.
    pub behind: Arc<BehindAnswers>,
    /// Cancelled when the process ends, before the turn is dropped: nothing of it is recorded from then on.
    pub life: CancellationToken,
    /// What runs that have ended left to be committed.
    pub left: Left,
    /// Code and text of each diagnostic of the turn so far.
    pub diagnostics: Mutex<Vec<String>>,
    /// What it has made use of so far.
    pub used: Mutex<Used>,
    /// Whether it was told of a report of use that cannot be.
    pub doubted: AtomicBool,
    /// What its root made of the messages that were to be summed up; empty where none came of it.
    pub summary: OnceLock<String>,
}

impl TurnScope {
    /// What it has made use of so far.
    pub(crate) fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the turn's place to others, each time that all of the turn waits for a person. Never ends.
    pub(crate) async fn leave_while_still(&self) -> Infallible {
        let Some(root) = self.time.get() else { return std::future::pending().await };
        loop {
            root.until(true).await;
            self.place.leave().await;
            root.until(false).await;
        }
    }

    /// Adds diagnostics, each with its code, that were told before the root began.
    pub fn remark(&self, diagnostics: impl Iterator<Item = String>) {
        self.diagnostics.lock().unwrap_or_else(PoisonError::into_inner).extend(diagnostics);
    }

    pub(crate) fn left(&self) -> MutexGuard<'_, Taken> {
        self.left.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn that nothing beyond its runs' own limits bounds, that nobody watches, and that begins now.
    pub fn new(session: SessionId, turn: TurnId, user_message: String, journal: Arc<dyn Journal>) -> Self {
        let correlation =
            CorrelationId::new(turn.as_str()).expect("the ids of turns and correlations have one form");
        Self {
            session,
            turn,
            correlation,
            base_folder: PathBuf::from("."),
            user_message,
            chain: Chain::default(),
            journal,
            policy: Arc::new(Allowlist),
            taint: Taint::default(),
            hooks: Arc::new(NoHooks),
            observer: Arc::new(Silent),
            topics: Arc::new(NoTopics),
            clock: Arc::new(SystemClock),
            quotas: Arc::new(Quotas::unlimited()),
            gates: Arc::new(Gates::open()),
            place: Arc::new(TurnPlace::unbounded()),
            gate: Arc::new(Semaphore::new(GATE)),
            ratios: Arc::default(),
            steering: Arc::default(),
            tool_response_max_bytes: TOOL_RESPONSE_MAX_BYTES,
            records: Records::default(),
            time: Arc::default(),
            spawned: Arc::default(),
            detaches: None,
            behind: Arc::default(),
            life: CancellationToken::new(),
            left: Left::default(),
            diagnostics: Mutex::default(),
            used: Mutex::default(),
            summary: OnceLock::new(),
            doubted: AtomicBool::new(false),
        }
    }
}
