//! One agent that works beside the run that spawned it: what it is sent, what it does one after another, and how it stands.

use std::{
    collections::{HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_extension_api::{AgentId, EffectId, FailureClass, InvocationId, ToolCallRequest, ToolStatus};
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::{sync::Notify, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use super::{Input, Sent, Unsent};
use crate::{
    agent::LoopParts,
    dispatch::{self, Bounds},
    ids,
    registry::{Registered, Registry},
    run::Run,
    stopwatch::Stopwatch,
};

/// Texts that wait for one agent. More are refused, so that whoever sends them waits.
const MOST_WAITING: usize = 16;

/// The most bytes of what was said before, which an agent is told when it is asked anew.
const SAID: usize = 8 * 1024;

/// An agent that works beside the run that spawned it.
pub(crate) struct SpawnedAgent {
    pub handle: String,
    pub owner: InvocationId,
    pub agent: AgentId,
    /// What it is called by, alone.
    pub(super) registry: Registry,
    pub(super) tool: Arc<Registered>,
    pub(super) takes_json: bool,
    pub(super) cancel: CancellationToken,
    pub(super) state: Mutex<State>,
    pub(super) changed: Arc<Notify>,
    pub(super) task: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) waiting: VecDeque<Input>,
    /// The calls by which it was sent what it knows.
    pub(super) taken: HashSet<EffectId>,
    /// What of that, said by people, is recorded.
    pub(super) read: HashSet<EffectId>,
    /// The run that goes on, and its time.
    pub(super) at_work: Option<(InvocationId, Stopwatch)>,
    /// What it was asked and what it answered.
    said: Vec<(String, String)>,
    result: Option<(ToolStatus, String)>,
    closed: bool,
    /// Nothing of it goes on any more.
    pub(super) over: bool,
}

/// How a spawned agent stands, and what it has answered last.
pub(crate) struct Standing {
    pub name: &'static str,
    pub result: Option<(ToolStatus, String)>,
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

    /// The same, when it will not begin any more where it has not begun.
    pub(super) fn close_for_good(&self) {
        self.close();
        if self.task().is_none() {
            drop(Ends(self));
        }
    }

    /// Ends it at once, without a report.
    pub(super) fn abort(&self) {
        match &*self.task() {
            Some(task) => task.abort(),
            None => drop(Ends(self)),
        }
    }

    /// Returns when nothing of it goes on any more, once it was closed.
    pub async fn ended(&self) {
        self.until(|state| state.over).await;
    }

    /// Returns when it has nothing to do, or is closed.
    pub async fn until_idle(&self) {
        self.until(|state| !state.is_at_work()).await;
    }

    pub(super) async fn until(&self, holds: impl Fn(&State) -> bool) {
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
    pub(super) fn take_over(&self, run: &Run) {
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
    pub(super) async fn work(self: Arc<Self>, run: Arc<Run>, parts: LoopParts) {
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
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
    pub fn beginning_with(input: Input) -> Self {
        Self { waiting: [input].into(), ..Self::default() }
    }

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

    pub(super) fn take_all(&mut self) -> Vec<Input> {
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
