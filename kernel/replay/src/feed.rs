//! What the loop is fed with while it runs on records, and where it comes to their end.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_agent::{
    Answer, Decision, JournalFuture, Need, Policy, PolicyCall, Question, Ratios, Run, SpawnedAgents,
    Steering, ids,
};
use drupe_extension_api::{EffectClass, EffectId, InvocationId, ToolStatus, control::ApprovalState};
use tokio::sync::Notify;

use crate::invocations::{CallRecord, Invocations, RunRecord};

/// How often whatever else goes on is let go on before a run that has come to its end is left: all that it waits for is at hand.
const ROUNDS: usize = 64;

/// What is fed to the runs of one turn.
pub(crate) struct Feed {
    pub runs: Invocations,
    pub steering: Arc<Steering>,
    pub ratios: Arc<Ratios>,
    /// The agents that runs have spawned.
    pub spawned: Arc<SpawnedAgents>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// The step that each run is at.
    steps: HashMap<InvocationId, u32>,
    /// Runs that came to the end of what is recorded of them.
    left: HashMap<InvocationId, LeftAt>,
    /// What of the spending beside the loop is charged, by run.
    charged: HashMap<InvocationId, usize>,
    answers: u32,
    results: u32,
    /// Runs of the loop that began.
    began: u32,
    remarks: Vec<String>,
}

/// Where a run came to the end of what is recorded of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftAt {
    /// The last step that was answered.
    pub step: u32,
    /// Whether all calls of that step have ended.
    pub whole: bool,
}

impl Feed {
    pub fn new(runs: Invocations) -> Self {
        Self {
            runs,
            steering: Arc::default(),
            ratios: Arc::default(),
            spawned: Arc::default(),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub fn run(&self, id: &InvocationId) -> Option<&RunRecord> {
        self.runs.get(id)
    }

    /// The call with that id, and the run that made it.
    pub fn call(&self, run: &InvocationId, effect: &EffectId) -> Option<&CallRecord> {
        self.run(run)?.calls.iter().find(|call| call.effect == *effect)
    }

    /// A run is about to hear the answer of that step.
    pub fn at_step(&self, run: &InvocationId, step: u32) {
        let mut state = self.state();
        state.answers += 1;
        state.steps.insert(run.clone(), step);
    }

    pub fn gave_a_result(&self) {
        self.state().results += 1;
    }

    pub fn begins(&self) {
        self.state().began += 1;
    }

    /// Runs, answers and results so far.
    pub fn counts(&self) -> (u32, u32, u32) {
        let state = self.state();
        (state.began, state.answers, state.results)
    }

    /// Says, once, what was not replayed.
    pub fn remark(&self, remark: String) {
        let mut state = self.state();
        if !state.remarks.contains(&remark) {
            state.remarks.push(remark);
        }
    }

    pub fn remarks(&self) -> Vec<String> {
        self.state().remarks.clone()
    }

    /// The run has come to the end of what is recorded of it; `whole`, if it waits for its model and for no call.
    pub fn leave(&self, run: &InvocationId, whole: bool) {
        let mut state = self.state();
        let step = state.steps.get(run).copied().unwrap_or_default();
        state.left.entry(run.clone()).or_insert(LeftAt { step, whole });
        drop(state);
        self.changed.notify_waiters();
    }

    pub fn left(&self) -> HashMap<InvocationId, LeftAt> {
        self.state().left.clone()
    }

    /// Ends when the run is left, and all else that can go on has: what works beside it comes to its own end.
    pub async fn until_left(&self, run: &InvocationId) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state().left.contains_key(run) {
                break;
            }
            changed.await;
        }
        self.until_others_have_ended(run).await;
    }

    /// Lets all else go on that can, and ends when nothing works beside the run any more.
    pub async fn until_others_have_ended(&self, run: &InvocationId) {
        for _ in 0..ROUNDS {
            tokio::task::yield_now().await;
        }
        self.spawned.until_idle(run).await;
    }

    /// Something is recorded of a call of which nothing came: whoever made it waits in vain.
    pub fn never_ended(&self, run: &InvocationId, call: Option<&CallRecord>) {
        match call.filter(|call| call.of_spawned) {
            // Whoever spawned the agent goes on.
            Some(call) => self.spawned.close(&ids::child_of_effect(&call.effect)),
            None => self.leave(run, false),
        }
    }

    /// Charges what the run spent that the loop does not do again, up to that place of the records.
    pub fn charge(&self, run: &Run, upto: usize) {
        let Some(record) = self.run(&run.id) else { return };
        let mut state = self.state();
        let charged = state.charged.entry(run.id.clone()).or_default();
        let due = record.beside.iter().skip(*charged).take_while(|(at, _)| *at < upto);
        for (_, spent) in due {
            *charged += 1;
            run.budget.charge(*spent);
        }
    }

    /// A panic elsewhere leaves no state half written.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides as was decided then.
pub(crate) struct RecordedDecisions(pub Arc<Feed>);

impl Policy for RecordedDecisions {
    fn decide(&self, call: PolicyCall<'_>) -> Decision {
        let Some(known) = self.0.call(&call.run.id, call.effect).cloned() else {
            return Decision::Allow { by: None };
        };
        if let Some(question) = known.question {
            let patience_ms =
                u64::try_from(question.expires_ms.saturating_sub(question.asked_ms)).unwrap_or(0);
            let Question { need: why, about, for_taint, .. } = *question;
            return Decision::Ask(Need { why, patience_ms, about, for_taint });
        }
        // What the loop itself refuses does not come here. A call that was decided against is recorded as one of no effect.
        match known.result {
            Some((ToolStatus::Refused, reason, _)) if known.class == Some(EffectClass::Pure) => {
                Decision::Deny { reason }
            }
            _ => Decision::Allow { by: known.by },
        }
    }

    fn answer<'a>(&'a self, question: &'a Question) -> JournalFuture<'a, Answer> {
        Box::pin(async move {
            let known = self.0.call(&question.invocation, &question.effect);
            match known.and_then(|call| call.decided.clone()) {
                Some((state, by)) if state != ApprovalState::Withdrawn => {
                    Ok(Answer { state, by, given: None })
                }
                _ => {
                    self.0.never_ended(&question.invocation, known);
                    std::future::pending().await
                }
            }
        })
    }
}
