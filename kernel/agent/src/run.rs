//! One run of an agent: its place in the tree of a turn, and what it records.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{
    AgentId, AgentRef, AgentResponse, CorrelationId, DefinitionLimits, Event, EventBody, FailureClass,
    InvocationId, Preview, ResponseStatus, SessionId, Spend, TurnId,
};
use jiff::Timestamp;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{Agent, Task},
    budget::Budget,
    clock::Clock,
    ids,
    journal::{Batch, Entry, Journal, JournalFault, RecordedInvocation},
    policy::Policy,
};

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
    started: Instant,
    pending: Mutex<(Vec<Entry>, Vec<(Option<AgentRef>, EventBody)>)>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    children: AtomicU32,
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
        cancel,
        started: now,
        pending: Mutex::default(),
        permit: Mutex::default(),
        children: AtomicU32::new(0),
        id,
        scope,
    });
    let response = run.whole(agent, task).await?;
    let spend = run.spend();
    let last = run.take_pending();
    Ok(TurnOutcome { response, spend, last })
}

/// What a child run is begun with.
pub struct Child {
    /// Its id, derived from its place.
    pub id: InvocationId,
    /// Cancelled when it is to end; a child of the parent's token.
    pub cancel: CancellationToken,
    /// The share of the gate that it holds while it does not wait for tools.
    pub permit: Option<OwnedSemaphorePermit>,
}

impl Run {
    /// Runs `agent` below this run, in the same tree, budget and policy. A cycle, a depth or a number of runs
    /// beyond the limits is answered without any model call.
    pub async fn invoke(self: &Arc<Self>, agent: &Arc<dyn Agent>, task: Task, child: Child) -> AgentResponse {
        match self.begin_child(agent.id(), agent.limits(), child, false) {
            Ok(run) => self.finish_child(run, agent, task).await,
            Err(refusal) => refusal,
        }
    }

    /// Runs `agent` below this run on behalf of the native agent that this run belongs to: the loop of the same
    /// agent, and so no cycle.
    pub async fn invoke_own(self: &Arc<Self>, agent: &Arc<dyn Agent>, task: Task) -> AgentResponse {
        let n = self.children.fetch_add(1, Ordering::Relaxed);
        let child =
            Child { id: ids::child_of_run(&self.id, n), cancel: self.cancel.child_token(), permit: None };
        match self.begin_child(agent.id(), agent.limits(), child, *agent.id() == self.agent) {
            Ok(run) => self.finish_child(run, agent, task).await,
            Err(refusal) => refusal,
        }
    }

    /// Runs `agent` below this run on behalf of the native agent that this run belongs to.
    pub async fn invoke_other(self: &Arc<Self>, agent: &Arc<dyn Agent>, task: Task) -> AgentResponse {
        let n = self.children.fetch_add(1, Ordering::Relaxed);
        let child =
            Child { id: ids::child_of_run(&self.id, n), cancel: self.cancel.child_token(), permit: None };
        self.invoke(agent, task, child).await
    }

    /// The next place for a tool call that a native agent asks for within this run.
    pub fn next_place(&self) -> u32 {
        self.children.fetch_add(1, Ordering::Relaxed)
    }

    fn begin_child(
        self: &Arc<Self>,
        agent: &AgentId,
        limits: &DefinitionLimits,
        child: Child,
        same_agent: bool,
    ) -> Result<Arc<Self>, AgentResponse> {
        if self.path.contains(agent) && !same_agent {
            let path: Vec<&str> = self.path.iter().map(AgentId::as_str).collect();
            let message = format!(
                "agent `{agent}` is already working on this ({}), so it cannot be called again",
                path.join(" → ")
            );
            return Err(AgentResponse::error(FailureClass::Loop, message));
        }
        if self.depth_left == 0 {
            let message = format!(
                "agent `{agent}` would be deeper than `max_depth` allows (depth {})",
                self.path.len()
            );
            return Err(AgentResponse::error(FailureClass::Budget, message));
        }
        if self.scope.invocations.load(Ordering::Relaxed) >= MAX_INVOCATIONS {
            let message = format!(
                "this turn has begun {MAX_INVOCATIONS} agent runs already, the most that are allowed"
            );
            return Err(AgentResponse::error(FailureClass::Budget, message));
        }
        let now = Instant::now();
        let mut path = self.path.clone();
        path.push(agent.clone());
        Ok(Arc::new(Self {
            scope: Arc::clone(&self.scope),
            agent: agent.clone(),
            parent: Some(self.id.clone()),
            path,
            depth_left: (self.depth_left - 1).min(limits.max_depth),
            budget: self.budget.child(agent.clone(), limits, now),
            cancel: child.cancel,
            started: now,
            pending: Mutex::default(),
            permit: Mutex::new(child.permit),
            children: AtomicU32::new(0),
            id: child.id,
        }))
    }

    async fn finish_child(
        self: &Arc<Self>,
        run: Arc<Self>,
        agent: &Arc<dyn Agent>,
        task: Task,
    ) -> AgentResponse {
        let response = run
            .whole(agent, task)
            .await
            .unwrap_or_else(|fault| AgentResponse::error(FailureClass::Internal, fault.to_string()));
        // The child's last records wait for the parent's next commit: nothing happens between the two.
        let last = run.take_pending();
        let mut pending = self.pending();
        pending.0.extend(last.entries);
        pending.1.extend(last.events);
        response
    }

    /// From begin to end, or what an earlier process recorded of it.
    async fn whole(
        self: &Arc<Self>,
        agent: &Arc<dyn Agent>,
        task: Task,
    ) -> Result<AgentResponse, JournalFault> {
        self.scope.invocations.fetch_add(1, Ordering::Relaxed);
        let recorded = self.recorded().await?;
        if let Some(RecordedInvocation { response: Some(response), spend, .. }) = recorded {
            self.budget.recharge_run(&spend);
            return Ok(response);
        }
        self.budget.invocation();
        if recorded.is_none() {
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
        let mut response = agent.invoke(task, Arc::clone(self)).await;
        self.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.complete(&mut response);
        Ok(response)
    }

    /// Makes the response true, and records the end.
    fn complete(&self, response: &mut AgentResponse) {
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
        let elapsed_ms = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        Spend { elapsed_ms, ..self.budget.spend() }
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

    /// Adds a record to the next commit.
    pub fn record(&self, entry: Entry) {
        self.pending().0.push(entry);
    }

    /// Adds an event to the next commit.
    pub fn event(&self, body: EventBody) {
        self.pending().1.push((Some(self.place()), body));
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

    /// Gives back the run's share of the gate while it waits for tools; the weight that it had.
    pub(crate) fn release_gate(&self) -> u32 {
        let permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
        permit.map_or(0, |p| u32::try_from(p.num_permits()).unwrap_or(u32::MAX))
    }

    /// Takes its share of the gate again.
    pub(crate) async fn enter_gate(&self, weight: u32) {
        if weight == 0 {
            return;
        }
        // The gate is never closed; were it, the run would go on without a share.
        if let Ok(permit) = Arc::clone(&self.scope.gate).acquire_many_owned(weight).await {
            *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
        }
    }

    fn take_pending(&self) -> Batch {
        let (entries, events) = std::mem::take(&mut *self.pending());
        Batch { session: self.scope.session.clone(), turn: self.scope.turn.clone(), entries, events }
    }

    fn pending(&self) -> MutexGuard<'_, (Vec<Entry>, Vec<(Option<AgentRef>, EventBody)>)> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
