//! One run of an agent: its place in the tree of a turn, and what it records.
//!
//! It deliberately does not know what an agent does while it runs.

mod asking;
mod children;
mod life;
mod past;
mod records;
mod shown;

use std::{
    collections::HashMap,
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use drupe_extension_api::{
    AgentId, AgentRef, AgentResponse, DefinitionLimits, EffectId, Event, EventBody, InvocationId, Preview,
    Spend, wire::HookPoint,
};
use drupe_limits::Spender;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use crate::scope::{GATE, Observer, Silent, TurnScope, Used};
use crate::{
    agent::{Agent, LoopParts, Task},
    asker::Asker,
    budget::Budget,
    ids,
    journal::{Batch, Entry, JournalFault, Reached, RecordedEffect, RecordedInvocation},
    ledger::{Ledger, Taken},
    share::Share,
};
pub(crate) use children::Child;
pub use life::CHANGED;
pub(crate) use past::INTERRUPTED;
use past::Past;
pub use past::abandon_turn;
pub use records::Records;
use shown::Shown;

/// Remarks that a turn's result holds; the rest is in its events.
const DIAGNOSTICS: usize = 64;

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
    /// On whose behalf the root of the turn answers: who handed the conversation to it. Empty where nobody did.
    pub behalf: Arc<[AgentId]>,
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
    /// How often each thing was asked for outside the loop, and on behalf of what.
    asked: Mutex<HashMap<String, u32>>,
    shown: Mutex<Shown>,
    /// Runs below it that an earlier process began, that have no end, and that nobody has come back to.
    left: Mutex<Vec<Past>>,
    /// Calls outside its steps that an earlier process began, that have no end, and that nobody has come back to.
    calls_left: Mutex<Vec<RecordedEffect>>,
    /// While it is held, something of the run is being committed.
    committing: tokio::sync::Mutex<()>,
    /// Whose budgets of the day count it, where that is not its agent.
    charged_to: Option<AgentId>,
    /// What its loop is made of; none before that begins, and where it is code.
    parts: OnceLock<LoopParts>,
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
    /// Code and text of each diagnostic of the turn.
    pub diagnostics: Vec<String>,
    /// What it has made use of.
    pub used: Used,
    /// A summary of what was to be summed up, where that was tried; empty where none came of it.
    pub summary: Option<String>,
    /// Not yet committed, so that it can be one transaction with the caller's own records.
    pub last: Batch,
}

/// Runs a turn: `agent` answers as its root. With [`TurnScope::records`], goes on where those end. In the end
/// it takes no further messages of the user: those without a record of being taken in are to be answered like any other.
pub async fn run_turn(
    scope: Arc<TurnScope>,
    agent: &Arc<dyn Agent>,
    task: Task,
    limits: &DefinitionLimits,
    cancel: CancellationToken,
) -> TurnOutcome {
    TurnRoot::new(scope, agent.id().clone(), limits, &cancel).answer(agent, task).await
}

/// The root of a turn that does not answer yet. What is gathered for it meanwhile is charged to it.
pub struct TurnRoot {
    run: Arc<Run>,
    /// What the turn may spend, over all of its roots.
    whole: Budget,
    limits: DefinitionLimits,
    /// How many have answered the message before.
    before: u32,
    /// Cancelled when the turn is to end.
    cancel: CancellationToken,
    began: Instant,
}

/// Who hands a conversation to the root of a turn: what that spends is bounded by what they may spend, too.
#[derive(Clone, Copy)]
pub struct Behalf<'a> {
    /// Who hands the conversation over.
    pub agent: &'a AgentId,
    /// What they may spend themselves.
    pub limits: &'a DefinitionLimits,
}

impl TurnRoot {
    /// The root of a turn. Its time begins now.
    pub fn new(
        scope: Arc<TurnScope>,
        agent: AgentId,
        limits: &DefinitionLimits,
        cancel: &CancellationToken,
    ) -> Self {
        let whole = Budget::root(agent.clone(), limits);
        Self::within(scope, agent, (whole.clone(), whole), limits, cancel)
    }

    /// The root of a turn in which `agent` answers because `behalf` handed the conversation to it before.
    pub fn on_behalf(
        scope: Arc<TurnScope>,
        agent: AgentId,
        limits: &DefinitionLimits,
        behalf: Behalf<'_>,
        cancel: &CancellationToken,
    ) -> Self {
        let whole = Budget::root(behalf.agent.clone(), behalf.limits);
        let budget = whole.child(agent.clone(), limits, whole.time());
        let mut root = Self::within(scope, agent, (whole, budget), limits, cancel);
        root.place_run(|run| run.behalf = [behalf.agent.clone()].into());
        root
    }

    fn within(
        scope: Arc<TurnScope>,
        agent: AgentId,
        (whole, budget): (Budget, Budget),
        limits: &DefinitionLimits,
        cancel: &CancellationToken,
    ) -> Self {
        let run = Arc::new(Run::at_the_root(scope, agent, budget, cancel));
        let (limits, cancel) = (limits.clone(), cancel.clone());
        Self { run, whole, limits, before: 0, cancel, began: Instant::now() }
    }

    /// Changes a run that nobody else has yet.
    fn place_run(&mut self, change: impl FnOnce(&mut Run)) {
        if let Some(run) = Arc::get_mut(&mut self.run) {
            change(run);
        }
    }

    /// The root that answers the same message after this one, whose run has ended: the conversation went to `agent`, by
    /// `behalf` if anybody handed it over. It spends what the turn has left.
    #[must_use]
    pub fn then(self, agent: AgentId, limits: &DefinitionLimits, behalf: Option<&AgentId>) -> Self {
        // What it recorded last is committed with the beginning of the next.
        self.run.ledger().forget_steered();
        self.run.leave();
        let budget = self.whole.child(agent.clone(), limits, self.whole.time());
        let before = self.before + 1;
        let scope = Arc::clone(&self.run.scope);
        let mut next = Self::within(scope, agent, (self.whole, budget), limits, &self.cancel);
        next.place_run(|run| {
            run.id = ids::further_root(&run.scope.turn, before);
            run.behalf = behalf.cloned().into_iter().collect();
        });
        Self { before, began: self.began, ..next }
    }

    /// Goes past runs of this place that an earlier process began for another agent: they end, and this one is a root of its
    /// own.
    fn past_others(mut self) -> Self {
        while let Some(whose) = self.run.recorded().and_then(|recorded| recorded.agent.clone())
            && whose != self.run.agent
        {
            let left = Run::left_at_the_root(&self.run, whose, &self.whole, &self.cancel);
            left.leave();
            let (agent, limits, behalf) =
                (self.run.agent.clone(), self.limits.clone(), self.run.behalf.first().cloned());
            self = self.then(agent, &limits, behalf.as_ref());
        }
        self
    }

    /// The run that will answer.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Lets the agent answer, and gives the root that did. `told` is told of a run that begins with this, and not of one that
    /// goes on.
    pub async fn respond(
        self,
        agent: &Arc<dyn Agent>,
        task: Task,
        told: Vec<EventBody>,
    ) -> (Self, AgentResponse) {
        let root = self.past_others();
        // One box for the whole tree of futures: whoever awaits this is spared its size.
        let response = Box::pin(root.run.root(agent, task, told)).await;
        (root, response)
    }

    /// Ends the turn with that response, which is what its last root gave.
    pub async fn finish(self, response: AgentResponse) -> TurnOutcome {
        let Self { run, whole, began, .. } = self;
        run.ask_after(HookPoint::TurnEnd, || life::outcome(&response)).await;
        run.scope.steering.close();
        run.ledger().forget_steered();
        let spend = Spend { elapsed_ms: millis(began.elapsed()), ..whole.spend() };
        run.outcome(response, spend)
    }

    /// Runs the turn, as [`run_turn`] does.
    pub async fn answer(self, agent: &Arc<dyn Agent>, task: Task) -> TurnOutcome {
        let (root, response) = self.respond(agent, task, Vec::new()).await;
        root.finish(response).await
    }
}

impl Run {
    /// The run at the top of a turn.
    fn at_the_root(
        scope: Arc<TurnScope>,
        agent: AgentId,
        budget: Budget,
        cancel: &CancellationToken,
    ) -> Self {
        let now = Instant::now();
        let _ = scope.time.set(budget.time().clone());
        Self {
            parent: None,
            path: vec![agent.clone()],
            behalf: [].into(),
            depth_left: budget.max_depth(),
            budget,
            agent,
            // Its own, so that what is left of the tree ends with it.
            cancel: cancel.child_token(),
            share: Share::none(&scope.gate),
            started: now,
            ledger: Mutex::default(),
            asked: Mutex::default(),
            shown: Mutex::default(),
            left: Mutex::default(),
            calls_left: Mutex::default(),
            committing: tokio::sync::Mutex::default(),
            charged_to: None,
            parts: OnceLock::new(),
            id: ids::root_invocation(&scope.turn),
            scope,
        }
    }

    /// How the turn of this root ended.
    fn outcome(&self, response: AgentResponse, spend: Spend) -> TurnOutcome {
        let diagnostics =
            std::mem::take(&mut *self.scope.diagnostics.lock().unwrap_or_else(PoisonError::into_inner));
        let used = std::mem::take(&mut *self.scope.used());
        let summary = self.scope.summary.get().cloned();
        TurnOutcome { response, spend, diagnostics, used, summary, last: self.take_pending() }
    }

    /// Its loop begins, made of these.
    pub(crate) fn made_of(&self, parts: LoopParts) {
        let _ = self.parts.set(parts);
    }

    /// What its loop is made of.
    pub(crate) fn parts(&self) -> Option<&LoopParts> {
        self.parts.get()
    }

    /// What an earlier process recorded of this run.
    pub fn recorded(&self) -> Option<Arc<RecordedInvocation>> {
        self.scope.records.of(&self.id)
    }

    /// Who is charged for it in the budgets of session and agents.
    pub(crate) fn spender(&self) -> Spender<'_> {
        let agent = self.charged_to.as_ref().unwrap_or(&self.agent);
        Spender { session: &self.scope.session, agent }
    }

    /// Whether its answer is what the user reads.
    pub fn talks_with_the_user(&self) -> bool {
        self.path.len() == 1
    }

    /// Whether the conversation was handed to its agent: it is the root's run, or one that the root's own code has the loop
    /// do for it.
    pub fn is_handed_over(&self) -> bool {
        !self.behalf.is_empty() && self.path.iter().all(|agent| *agent == self.path[0])
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
            () = self.budget.time().over() => Over::Timeout,
        }
    }

    /// Adds a record to the next commit.
    pub fn record(&self, entry: Entry) {
        self.heed(&entry);
        self.ledger().record(entry);
    }

    /// What `tool` gave holds what strangers wrote: it is a part of the conversation from here on, however the call ends.
    pub fn tainted_by(&self, tool: &str) {
        if self.scope.taint.came_by(tool) {
            self.record(Entry::Tainted { invocation: self.id.clone(), tool: tool.to_owned() });
        }
    }

    /// Withdraws the question about a call, unless it is settled.
    pub(crate) fn withdraw(&self, effect: &EffectId) {
        self.ledger().withdraw(&self.id, effect);
    }

    /// A call that an earlier process recorded without its end gets it now.
    pub(crate) fn reopen(&self, step: u32, known: &RecordedEffect) {
        let mut ledger = self.ledger();
        ledger.open_call(step, known.index, known.effect.clone());
        if let (Reached::Asked, Some(question)) = (&known.reached, &known.question) {
            ledger.open_question(known.effect.clone(), question.tool.clone());
        }
    }

    /// Tells what no other record says, with the next commit.
    pub fn tell(&self, event: EventBody) {
        self.record(Entry::Told { invocation: self.id.clone(), event });
    }

    /// Keeps the diagnostics that tell of an entry for the turn's result.
    fn heed(&self, entry: &Entry) {
        for event in entry.events() {
            let EventBody::Diagnostic { code, message } = event else { continue };
            let mut diagnostics = self.scope.diagnostics.lock().unwrap_or_else(PoisonError::into_inner);
            if diagnostics.len() < DIAGNOSTICS {
                diagnostics.push(format!("{code}: {}", Preview::of(&message).text));
            }
        }
    }

    /// Commits what was recorded since the last time.
    pub async fn commit(&self) -> Result<(), JournalFault> {
        // What works beside the run commits for it, too: whoever returns from here finds what it recorded kept.
        let _alone = self.committing.lock().await;
        if self.scope.life.is_cancelled() {
            return Err(JournalFault("the process ends".into()));
        }
        let batch = self.take_pending();
        if batch.is_empty() {
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

    /// How often code asked for `thing` before now, on behalf of the same work.
    pub(crate) fn times_asked(&self, asker: &Asker, thing: impl Display) -> u32 {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let count = asked.entry(format!("{} {thing}", asker.place(self))).or_default();
        *count += 1;
        *count - 1
    }

    /// Whether code has asked for anything on behalf of that work.
    pub fn was_asked_by(&self, asker: &Asker) -> bool {
        let place = asker.place(self);
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.keys().any(|thing| thing.split(' ').next() == Some(place))
    }

    /// Leaves its last records to the turn, whose next commit holds them, whichever run makes it: a run ends without a commit
    /// of its own, and what it did does not depend on its caller's.
    fn leave(&self) {
        let last = self.ledger().take(|| self.place());
        self.scope.left().then(last);
    }

    fn take_pending(&self) -> Batch {
        let mut taken = std::mem::take(&mut *self.scope.left());
        taken.then(self.ledger().take(|| self.place()));
        let Taken { runs, entries, recipes, messages } = taken;
        let (session, turn) = (self.scope.session.clone(), self.scope.turn.clone());
        Batch { session, turn, runs, entries, recipes, messages }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A duration as events and limits have it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
