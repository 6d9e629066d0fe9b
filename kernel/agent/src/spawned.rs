//! Agents that work beside the run that began them.
//!
//! What such an agent is asked is a call of the tool that the agent is to that run, made beside its steps. So the policy, the
//! budget, the gate, the questions and the records are those of every call, and a run that goes on after a restart comes
//! back to the same call. Each further text that the run sends is taken in by the agent between two of its steps, or, once
//! it has answered, is the next thing that it is asked.
//!
//! Ids follow from the call that spawned the agent or sent it the text. It decides nothing about what may be spawned.

mod worker;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::{AgentId, EffectId, InvocationId};
use tokio::sync::{Notify, futures::Notified};
use tracing::Instrument;

use crate::{
    ids,
    registry::{Registered, RegistryBuilder},
    run::Run,
};
pub(crate) use worker::SpawnedAgent;
use worker::State;

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

    /// Hands the agent that works in that run what its records say that it read: it reads that after its next step.
    pub fn give(&self, run: &InvocationId, effect: EffectId, text: String) {
        if let Some(spawned) = self.at_work(run) {
            // It was read, and so begins nothing.
            let _ = spawned.send(Input { effect, text, context: None, by_a_person: true }, true);
        }
    }

    /// Has the agent end that works in that run, as the call does by which one is closed.
    pub fn close(&self, run: &InvocationId) {
        if let Some(spawned) = self.at_work(run) {
            spawned.close();
        }
    }

    /// Returns when none of the agents that a run spawned has anything to do.
    pub async fn until_idle(&self, owner: &InvocationId) {
        for spawned in self.owned_by(owner) {
            spawned.until_idle().await;
        }
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
        state: Mutex::new(State::beginning_with(input)),
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
            spawned.abort();
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
        own.iter().for_each(|spawned| spawned.close_for_good());
        for spawned in own {
            spawned.ended().await;
        }
    }

    /// How many of them work or are to.
    pub(crate) fn at_work_beside(&self) -> usize {
        self.scope.spawned.owned_by(&self.id).iter().filter(|spawned| spawned.is_at_work()).count()
    }
}
