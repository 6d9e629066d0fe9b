//! Agents that work beside the run that began them.
//!
//! What such an agent is asked is a call of the tool that the agent is to that run, made beside its steps. So the policy, the
//! budget, the gate, the questions and the records are those of every call, and a run that goes on after a restart comes
//! back to the same call. Each further text that the run sends is taken in by the agent between two of its steps, or, once
//! it has answered, is the next thing that it is asked.
//!
//! Ids follow from the call that spawned the agent or sent it the text. It decides nothing about what may be spawned.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_extension_api::{AgentId, EffectId, FailureClass, InvocationId, ToolCallRequest, ToolStatus};
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, futures::Notified},
    task::AbortHandle,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    agent::LoopParts,
    dispatch::{self, Bounds},
    ids,
    registry::{Registered, Registry, RegistryBuilder},
    run::Run,
    stopwatch::Stopwatch,
};

/// Texts that wait for one agent. More are refused, so that whoever sends them waits.
const MOST_WAITING: usize = 16;

/// The most bytes of what was said before, which an agent is told when it is asked anew.
const SAID: usize = 8 * 1024;

/// What becomes of something that was asked of a spawned agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It works, and takes it in between two steps.
    Waits,
    /// It has nothing to do, and begins with it.
    Begins,
}

/// Why a spawned agent is sent nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsent {
    Closed,
    /// So many texts wait already.
    Busy(usize),
}

/// Why an agent did not read what a person told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// No agent of the turn has that handle.
    #[error("no agent that works beside this conversation has that handle")]
    Unknown,
    /// It does not work now.
    #[error("it has answered, or is closed")]
    Idle,
    /// It gave its answer before.
    #[error("it gave its answer before it read this")]
    Ended,
    /// It has not read what came before.
    #[error("it has not read what it was told before")]
    Busy,
}

/// The agents that the runs of one turn have spawned, by their handles.
#[derive(Default)]
pub struct SpawnedAgents {
    all: Mutex<BTreeMap<String, Arc<SpawnedAgent>>>,
    /// Something of one of them changed.
    changed: Arc<Notify>,
}

/// An agent that works beside the run that spawned it.
pub(crate) struct SpawnedAgent {
    pub handle: String,
    pub owner: InvocationId,
    pub agent: AgentId,
    /// What it is called by, alone.
    registry: Registry,
    tool: Arc<Registered>,
    takes_json: bool,
    cancel: CancellationToken,
    state: Mutex<State>,
    changed: Arc<Notify>,
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Input>,
    /// The calls by which it was sent what it knows.
    taken: HashSet<EffectId>,
    /// What of that, said by people, is recorded.
    read: HashSet<EffectId>,
    /// The run that goes on, and its time.
    at_work: Option<(InvocationId, Stopwatch)>,
    /// What it was asked and what it answered.
    said: Vec<(String, String)>,
    result: Option<(ToolStatus, String)>,
    closed: bool,
    /// Nothing of it goes on any more.
    over: bool,
}

/// Something that a spawned agent is sent.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    /// The call by which it was sent.
    pub effect: EffectId,
    pub text: String,
    /// What else it is to know, where it begins with this.
    pub context: Option<String>,
    /// Whether a person says it, and whoever spawned the agent knows nothing of it: so it begins nothing.
    pub by_a_person: bool,
}

/// An agent that works beside a turn, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnedState {
    /// The handle by which it is known.
    pub handle: String,
    /// The agent that it is a run of.
    pub agent: AgentId,
    /// The run that spawned it.
    pub owner: InvocationId,
    /// How it stands: `working`, `done` or `closed`.
    pub state: &'static str,
    /// Texts that it has not read yet.
    pub unread: usize,
}

/// How a spawned agent stands, and what it has answered last.
pub(crate) struct Standing {
    pub name: &'static str,
    pub result: Option<(ToolStatus, String)>,
}

impl SpawnedAgents {
    /// All of them, by their handles.
    pub fn list(&self) -> Vec<SpawnedState> {
        let state = |spawned: &Arc<SpawnedAgent>| SpawnedState {
            handle: spawned.handle.clone(),
            agent: spawned.agent.clone(),
            owner: spawned.owner.clone(),
            state: spawned.standing().name,
            unread: spawned.state().waiting.len(),
        };
        self.all().values().map(state).collect()
    }

    /// Ends one, and returns when it has; false where there is none of that handle.
    pub async fn stop(&self, handle: &str) -> bool {
        let Some(spawned) = self.of(handle) else { return false };
        spawned.close();
        spawned.ended().await;
        true
    }

    /// Tells one that works what a person says, and returns when it has read it.
    ///
    /// # Errors
    /// Why it has not read it.
    pub async fn tell(&self, handle: &str, effect: EffectId, text: String) -> Result<(), Unread> {
        let spawned = self.of(handle).ok_or(Unread::Unknown)?;
        if spawned.state().at_work.is_none() {
            return Err(Unread::Idle);
        }
        let input = Input { effect: effect.clone(), text, context: None, by_a_person: true };
        spawned.send(input, false).map_err(|unsent| match unsent {
            Unsent::Closed => Unread::Idle,
            Unsent::Busy(_) => Unread::Busy,
        })?;
        // What was taken in and is not recorded when the run ends nobody has read.
        let may_come = |state: &State| {
            let waits = state.waiting.iter().any(|waiting| waiting.effect == effect);
            !state.over && (waits || (state.taken.contains(&effect) && state.at_work.is_some()))
        };
        spawned.until(|state| state.read.contains(&effect) || !may_come(state)).await;
        if spawned.state().read.contains(&effect) { Ok(()) } else { Err(Unread::Ended) }
    }

    /// That of a handle, whoever spawned it.
    pub(crate) fn of(&self, handle: &str) -> Option<Arc<SpawnedAgent>> {
        self.all().get(handle).cloned()
    }

    /// Those that a run spawned.
    pub(crate) fn owned_by(&self, run: &InvocationId) -> Vec<Arc<SpawnedAgent>> {
        self.all().values().filter(|spawned| spawned.owner == *run).cloned().collect()
    }

    /// What was sent to the agent whose run that is and has not been taken in. It is taken in with this.
    pub(crate) fn take_inputs(&self, run: &InvocationId) -> Vec<Input> {
        let Some(spawned) = self.at_work(run) else { return Vec::new() };
        let taken = spawned.state().take_all();
        spawned.changed.notify_waiters();
        taken
    }

    /// What was taken in is recorded.
    pub(crate) fn have_read(&self, run: &InvocationId, inputs: impl Iterator<Item = EffectId>) {
        let Some(spawned) = self.at_work(run) else { return };
        spawned.state().read.extend(inputs);
        spawned.changed.notify_waiters();
    }

    /// Returns when something of one of them changes.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn at_work(&self, run: &InvocationId) -> Option<Arc<SpawnedAgent>> {
        let works = |spawned: &&Arc<SpawnedAgent>| {
            spawned.state().at_work.as_ref().is_some_and(|(at_work, _)| at_work == run)
        };
        self.all().values().find(works).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<SpawnedAgent>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle of what a call spawns.
pub(crate) fn handle(effect: &EffectId) -> String {
    const DIGITS: usize = 10;
    let id = ids::effect_of_effect(effect);
    let digest = id.as_str().trim_start_matches("e-");
    format!("a-{}", &digest[..digest.len().min(DIGITS)])
}

/// Has the agent behind `tool` work beside `run`, beginning with `input`; the same agent where the run has it already. It
/// begins with [`Run::begin_workers`].
pub(crate) fn spawn(run: &Arc<Run>, tool: Arc<Registered>, input: Input) -> Arc<SpawnedAgent> {
    let handle = handle(&input.effect);
    let mut all = run.scope.spawned.all();
    if let Some(known) = all.get(&handle) {
        return Arc::clone(known);
    }
    let called = tool.tool().agent();
    let takes_json = called.is_some_and(|called| called.takes_json);
    let agent = called.map_or_else(|| run.agent.clone(), |called| called.id.clone());
    let mut builder = RegistryBuilder::default();
    // One tool has no other of its name beside it.
    let _ = builder.add(Arc::clone(&tool));
    let spawned = Arc::new(SpawnedAgent {
        handle: handle.clone(),
        owner: run.id.clone(),
        agent,
        registry: builder.build(),
        tool,
        takes_json,
        cancel: run.cancel.child_token(),
        state: Mutex::new(State { waiting: [input].into(), ..State::default() }),
        changed: Arc::clone(&run.scope.spawned.changed),
        task: Mutex::default(),
    });
    all.insert(handle, Arc::clone(&spawned));
    spawned
}

/// Ends the agents of a run when it goes, however it goes.
pub(crate) struct EndsWith<'a>(pub &'a Run);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        for spawned in self.0.scope.spawned.owned_by(&self.0.id) {
            if let Some(task) = &*spawned.task() {
                task.abort();
            }
        }
    }
}

impl Run {
    /// Lets the agents begin that this run has spawned and that have not: a run that goes on does so when it has gone through
    /// all that is recorded of it, since what it sent to them, or that it closed them, is a part of that.
    pub(crate) fn begin_workers(self: &Arc<Self>) {
        let Some(parts) = self.parts() else { return };
        for spawned in self.scope.spawned.owned_by(&self.id) {
            let mut task = spawned.task();
            if task.is_some() {
                continue;
            }
            spawned.take_over(self);
            let work = Arc::clone(&spawned).work(Arc::clone(self), parts.clone());
            #[expect(
                clippy::disallowed_methods,
                reason = "the run waits for its end, and ends it where the run is dropped"
            )]
            let begun = tokio::spawn(work.in_current_span());
            *task = Some(begun.abort_handle());
        }
    }

    /// Ends the agents that this run has working beside it, and waits until they have reported.
    pub(crate) async fn end_workers(&self) {
        let own = self.scope.spawned.owned_by(&self.id);
        own.iter().for_each(|spawned| spawned.close());
        for spawned in own {
            // One that has not begun has nothing to report.
            if spawned.task().is_some() {
                spawned.ended().await;
            }
        }
    }

    /// How many of them work or are to.
    pub(crate) fn at_work_beside(&self) -> usize {
        self.scope.spawned.owned_by(&self.id).iter().filter(|spawned| spawned.is_at_work()).count()
    }
}

impl SpawnedAgent {
    /// Sends it a text; the same one once. One that was sent before a restart is sent however many wait.
    pub fn send(&self, input: Input, again: bool) -> Result<Sent, Unsent> {
        let mut state = self.state();
        let known = state.taken.contains(&input.effect)
            || state.waiting.iter().any(|waiting| waiting.effect == input.effect);
        let sent = if state.is_at_work() { Sent::Waits } else { Sent::Begins };
        if !known {
            if state.closed {
                return Err(Unsent::Closed);
            }
            if state.waiting.len() >= MOST_WAITING && !again {
                return Err(Unsent::Busy(MOST_WAITING));
            }
            state.waiting.push_back(input);
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(sent)
    }

    /// Has it end; it is sent nothing more.
    pub fn close(&self) {
        self.state().closed = true;
        self.cancel.cancel();
        self.changed.notify_waiters();
    }

    /// Returns when nothing of it goes on any more, once it was closed.
    pub async fn ended(&self) {
        self.until(|state| state.over).await;
    }

    /// Returns when it has nothing to do, or is closed.
    pub async fn until_idle(&self) {
        self.until(|state| !state.is_at_work()).await;
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if holds(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Whether it works, or is to.
    pub fn is_at_work(&self) -> bool {
        self.state().is_at_work()
    }

    /// The time of what it works on.
    pub fn time(&self) -> Option<Stopwatch> {
        self.state().at_work.as_ref().map(|(_, time)| time.clone())
    }

    pub fn standing(&self) -> Standing {
        let state = self.state();
        let name = match (state.closed, state.is_at_work()) {
            (true, _) => "closed",
            (false, true) => "working",
            (false, false) => "done",
        };
        Standing { name, result: state.result.clone() }
    }

    /// Takes over what it answered before a restart, so that it counts as what it is before anything else happens.
    fn take_over(&self, run: &Run) {
        let recorded = run.recorded();
        let beside = || recorded.iter().flat_map(|recorded| &recorded.steps).flat_map(|step| &step.effects);
        let mut state = self.state();
        while let Some(input) = state.waiting.front() {
            let effect = ids::effect_of_effect(&input.effect);
            let known = beside().find(|known| known.effect == effect);
            let Some((status, content)) = known.and_then(|known| known.result.clone()) else { return };
            let Some((input, _)) = state.next(run) else { return };
            run.came_back_to_call(&effect);
            state.answered(input.text, status, content);
        }
    }

    /// Does one after another what it is asked, until it is closed.
    async fn work(self: Arc<Self>, run: Arc<Run>, parts: LoopParts) {
        let _ends = Ends(&self);
        while let Some((input, time)) = self.next(&run).await {
            let (effect, text) = (ids::effect_of_effect(&input.effect), input.text.clone());
            let bounds = Bounds { registry: &self.registry, limits: &parts.definition.limits, ended: None };
            let request = self.request(input);
            let called = dispatch::call_beside(&run, (&time, &self.cancel), bounds, request, effect);
            let (status, content) = match AssertUnwindSafe(called).catch_unwind().await {
                Ok(Ok(answered)) => answered,
                Ok(Err(fault)) => (ToolStatus::Error, fault.to_string()),
                Err(_) => {
                    (ToolStatus::Error, "it broke off, which is a fault of the daemon or of a tool".into())
                }
            };
            self.state().answered(text, status, content);
            self.changed.notify_waiters();
        }
    }

    /// What it is asked next. What the run that answers it took in, as an earlier process recorded it, is taken in.
    async fn next(&self, run: &Run) -> Option<(Input, Stopwatch)> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.cancel.is_cancelled() || self.state().closed {
                return None;
            }
            let (next, unread) = {
                let mut state = self.state();
                let waited = state.waiting.len();
                (state.next(run), waited > 0)
            };
            if next.is_some() {
                return next;
            }
            if unread {
                // Who told it something hears that it began nothing.
                self.changed.notify_waiters();
            }
            tokio::select! {
                () = changed => {}
                () = self.cancel.cancelled() => {}
            }
        }
    }

    fn request(&self, input: Input) -> ToolCallRequest {
        let arguments = match self.takes_json {
            true => input.text,
            false => {
                let mut arguments = json!({"task": input.text});
                let said = said_before(&self.state().said);
                if let Some(context) = input.context.or(said) {
                    arguments["context"] = context.into();
                }
                arguments.to_string()
            }
        };
        ToolCallRequest { call_id: String::new(), name: self.tool.spec().name.to_string(), arguments }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While this lives, a spawned agent goes on.
struct Ends<'a>(&'a SpawnedAgent);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.closed, state.over, state.at_work) = (true, true, None);
        drop(state);
        self.0.changed.notify_waiters();
    }
}

impl State {
    /// What it was asked has come to this. One that was stopped does nothing more, also after a restart.
    fn answered(&mut self, asked: String, status: ToolStatus, content: String) {
        self.said.push((asked, answer_of(&content)));
        self.closed |= status == ToolStatus::Cancelled || was_cancelled(&content);
        (self.at_work, self.result) = (None, Some((status, content)));
    }

    fn is_at_work(&self) -> bool {
        let begins = |input: &Input| !input.by_a_person;
        !self.closed && (self.at_work.is_some() || self.waiting.iter().any(begins))
    }

    fn next(&mut self, run: &Run) -> Option<(Input, Stopwatch)> {
        while let Some(input) = self.waiting.pop_front() {
            if input.by_a_person || !self.taken.insert(input.effect.clone()) {
                continue;
            }
            let id = ids::child_of_effect(&ids::effect_of_effect(&input.effect));
            if let Some(recorded) = run.scope.records.of(&id) {
                self.taken.extend(recorded.given.iter().cloned());
            }
            let time = run.budget.time().below(Duration::MAX);
            self.at_work = Some((id, time.clone()));
            return Some((input, time));
        }
        None
    }

    fn take_all(&mut self) -> Vec<Input> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().filter(|input| self.taken.insert(input.effect.clone())).collect()
    }
}

/// What an agent answered, from what its caller's model reads.
fn answer_of(content: &str) -> String {
    let read: Option<Value> = serde_json::from_str(content).ok();
    let answer = read.as_ref().and_then(|read| read["content"].as_str());
    answer.unwrap_or(content).to_owned()
}

/// Whether an agent reports that it was cancelled.
fn was_cancelled(content: &str) -> bool {
    let read: Option<Value> = serde_json::from_str(content).ok();
    read.is_some_and(|read| read["class"] == json!(FailureClass::Cancelled))
}

/// What was asked and answered before, the latest last; the oldest gives way where it is too much.
fn said_before(said: &[(String, String)]) -> Option<String> {
    let mut left = SAID;
    let mut kept: Vec<String> = Vec::new();
    for (asked, answered) in said.iter().rev() {
        let line = format!("You were asked: {asked}\nYou answered: {answered}");
        match left.checked_sub(line.len()) {
            Some(rest) => left = rest,
            None if kept.is_empty() => {
                kept.push(format!("{} …", &line[..line.floor_char_boundary(left)]));
                break;
            }
            None => break,
        }
        kept.push(line);
    }
    kept.reverse();
    (!kept.is_empty()).then(|| kept.join("\n"))
}
