//! One run of an agent: its place in the tree of a turn, and what it records.
//!
//! It deliberately does not know what an agent does while it runs.

mod children;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{
    AgentId, AgentRef, AgentResponse, CorrelationId, DefinitionLimits, EffectId, Event, EventBody,
    InvocationId, Preview, ResponseStatus, SessionId, Spend, TurnId,
};
use jiff::Timestamp;
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    agent::{Agent, Task},
    budget::Budget,
    clock::Clock,
    ids,
    journal::{Batch, Entry, Journal, JournalFault, RecordedInvocation},
    ledger::Ledger,
    policy::Policy,
    share::Share,
};
pub(crate) use children::Child;

/// Agent runs of one turn, the root included. Deep enough for real work, small against a fan-out that goes wrong.
pub const MAX_INVOCATIONS: u32 = 32;

/// Weights of the session's gate.
pub const GATE: usize = 16;

/// Watches a run while it happens.
pub trait Observer: Send + Sync {
    /// A part of an item's text, or a reset; never recorded. Must not block.
    fn live(&self, event: Event);
}

/// An observer that looks away.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {
    fn live(&self, _: Event) {}
}

/// What all runs of one turn share.
pub struct TurnScope {
    /// The conversation.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// Links everything of the turn.
    pub correlation: CorrelationId,
    /// The root of relative paths.
    pub base_folder: PathBuf,
    /// The message that set the turn off.
    pub user_message: String,
    /// Where records go.
    pub journal: Arc<dyn Journal>,
    /// Decides about tool calls.
    pub policy: Arc<dyn Policy>,
    /// Watches.
    pub observer: Arc<dyn Observer>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// The session's gate of [`GATE`] weights.
    pub gate: Arc<Semaphore>,
    /// Bytes of one tool result that a model is shown; [`TOOL_RESPONSE_MAX_BYTES`](crate::TOOL_RESPONSE_MAX_BYTES)
    /// where nothing else is wanted.
    pub tool_response_max_bytes: usize,
    /// Whether an earlier process may have begun this turn.
    pub resumed: bool,
    /// Runs that were begun.
    pub invocations: AtomicU32,
}

/// One run of an agent.
pub struct Run {
    /// What all runs of the turn share.
    pub scope: Arc<TurnScope>,
    /// The agent.
    pub agent: AgentId,
    /// The run.
    pub id: InvocationId,
    /// The run that called it.
    pub parent: Option<InvocationId>,
    /// The agents from the root of the turn to this one.
    pub path: Vec<AgentId>,
    /// Levels of agents that may still stand below it.
    pub depth_left: u32,
    /// What it may spend and has spent.
    pub budget: Budget,
    /// Cancelled when it is to end.
    pub cancel: CancellationToken,
    /// Its share of the session's gate.
    pub(crate) share: Arc<Share>,
    started: Instant,
    ledger: Mutex<Ledger>,
    /// How often each thing was asked for outside the loop.
    asked: Mutex<HashMap<String, u32>>,
}

/// Why a run must end now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Cancelled,
    Timeout,
}

/// How a turn ended, with what the caller must commit: the last entries and events of the tree.
pub struct TurnOutcome {
    /// The answer.
    pub response: AgentResponse,
    /// Spent by the whole tree.
    pub spend: Spend,
    /// Not yet committed, so that it can be one transaction with the caller's own records.
    pub last: Batch,
}

/// Runs a turn: `agent` answers as its root. With [`TurnScope::resumed`], goes on where the journal ends.
pub async fn run_turn(
    scope: Arc<TurnScope>,
    agent: &Arc<dyn Agent>,
    task: Task,
    limits: &DefinitionLimits,
    cancel: CancellationToken,
) -> Result<TurnOutcome, JournalFault> {
    let id = ids::root_invocation(&scope.turn);
    let now = Instant::now();
    let run = Arc::new(Run {
        agent: agent.id().clone(),
        parent: None,
        path: vec![agent.id().clone()],
        depth_left: limits.max_depth,
        budget: Budget::root(agent.id().clone(), limits, now),
        // Its own, so that what is left of the tree ends with it.
        cancel: cancel.child_token(),
        share: Share::none(&scope.gate),
        started: now,
        ledger: Mutex::default(),
        asked: Mutex::default(),
        id,
        scope,
    });
    run.scope.invocations.fetch_add(1, Ordering::Relaxed);
    let response = run.whole(agent, task).await?;
    let spend = run.spend();
    let last = run.take_pending();
    Ok(TurnOutcome { response, spend, last })
}

impl Run {
    /// From begin to end, or what an earlier process recorded of it.
    async fn whole(
        self: &Arc<Self>,
        agent: &Arc<dyn Agent>,
        task: Task,
    ) -> Result<AgentResponse, JournalFault> {
        let recorded = self.recorded().await?;
        if let Some(RecordedInvocation { response: Some(response), .. }) = recorded {
            self.recharge(self.id.clone(), true).await?;
            // This run is among those that were recharged.
            self.scope.invocations.fetch_sub(1, Ordering::Relaxed);
            return Ok(response);
        }
        self.budget.invocation();
        if let Some(recorded) = &recorded {
            self.recharge_outside(recorded).await?;
        } else {
            self.record(Entry::Begin {
                invocation: self.id.clone(),
                agent: self.agent.clone(),
                parent: self.parent.clone(),
                depth: self.depth(),
                task: task.text.clone(),
            });
            if self.parent.is_some() {
                self.event(EventBody::SubagentStarted { task: Preview::of(&task.text) });
            }
        }
        let path = self.path.iter().map(AgentId::as_str).collect::<Vec<_>>().join("/");
        let span = tracing::info_span!("run", path);
        let mut response = agent.invoke(task, Arc::clone(self)).instrument(span).await;
        self.complete(&mut response);
        Ok(response)
    }

    /// Ends what it left running, makes the response true, and records the end.
    fn complete(&self, response: &mut AgentResponse) {
        self.cancel.cancel();
        self.ledger().close(&self.id, &self.place());
        let spend = self.spend();
        response.tokens_used = Some(spend.usage.total());
        response.turns_used.get_or_insert(spend.turns);
        if response.status == ResponseStatus::Success {
            (response.error, response.class) = (None, None);
        } else {
            response.error.get_or_insert_with(|| response.content.clone());
        }
        if response.content.trim().is_empty() {
            response.content = response.error.clone().unwrap_or_else(|| "(no text)".into());
        }
        if self.parent.is_some() {
            self.event(match (response.status, &response.error) {
                (ResponseStatus::Success, _) => {
                    EventBody::SubagentCompleted { content: Preview::of(&response.content), spend }
                }
                (status, error) => EventBody::SubagentFailed {
                    status,
                    error: error.clone().unwrap_or_default(),
                    class: response.class,
                    spend,
                },
            });
        }
        self.record(Entry::End { invocation: self.id.clone(), response: response.clone(), spend });
    }

    /// What an earlier process recorded of this run.
    pub async fn recorded(&self) -> Result<Option<RecordedInvocation>, JournalFault> {
        if self.scope.resumed { self.scope.journal.load(self.id.clone()).await } else { Ok(None) }
    }

    /// 0 for the root of the turn.
    pub fn depth(&self) -> u32 {
        u32::try_from(self.path.len() - 1).unwrap_or(u32::MAX)
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Spent by it and all below it.
    pub fn spend(&self) -> Spend {
        Spend { elapsed_ms: millis(self.elapsed()), ..self.budget.spend() }
    }

    /// Its place in the tree, as events tell it.
    pub fn place(&self) -> AgentRef {
        AgentRef {
            id: self.agent.clone(),
            invocation: self.id.clone(),
            parent: self.parent.clone(),
            depth: self.depth(),
        }
    }

    /// Ends when the run must: it was cancelled, or its time is over.
    pub(crate) async fn over(&self) -> Over {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Over::Cancelled,
            () = tokio::time::sleep_until(self.budget.deadline()) => Over::Timeout,
        }
    }

    /// Milliseconds that it may take, by its own limit and those above.
    pub(crate) fn allowed_ms(&self) -> u64 {
        millis(self.budget.deadline().saturating_duration_since(self.started))
    }

    /// Adds a record to the next commit.
    pub fn record(&self, entry: Entry) {
        self.ledger().record(entry);
    }

    /// A call whose intent an earlier process recorded gets its result now.
    pub(crate) fn reopen(&self, step: u32, index: u32, effect: EffectId) {
        self.ledger().open_call(step, index, effect);
    }

    /// Adds an event to the next commit.
    pub fn event(&self, body: EventBody) {
        self.ledger().event(self.place(), body);
    }

    /// Commits what was recorded since the last time.
    pub async fn commit(&self) -> Result<(), JournalFault> {
        let batch = self.take_pending();
        if batch.entries.is_empty() && batch.events.is_empty() {
            return Ok(());
        }
        self.scope.journal.commit(batch).await
    }

    /// Tells observers what is not recorded.
    pub fn live(&self, body: EventBody) {
        let time = Timestamp::from_millisecond(self.scope.clock.now_ms()).unwrap_or_default();
        self.scope.observer.live(Event {
            seq: 0,
            time,
            session: self.scope.session.clone(),
            turn: Some(self.scope.turn.clone()),
            correlation_id: Some(self.scope.correlation.clone()),
            agent: Some(self.place()),
            body,
        });
    }

    /// How often `thing` was asked for outside the loop before now.
    pub(crate) fn times_asked(&self, thing: String) -> u32 {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let count = asked.entry(thing).or_default();
        *count += 1;
        *count - 1
    }

    fn take_pending(&self) -> Batch {
        let (entries, events) = self.ledger().take();
        Batch { session: self.scope.session.clone(), turn: self.scope.turn.clone(), entries, events }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A duration as events and limits have it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
