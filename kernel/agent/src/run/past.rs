//! What an earlier process left of a run: how its spending counts, and what becomes of the runs below it that nobody
//! comes back to.
//!
//! All that the journal shows of a run counts as spent when it begins again, runs included whose caller is code that
//! may not ask for them a second time. It deliberately does not decide what runs again.

use std::sync::{Arc, MutexGuard, PoisonError};

use drupe_extension_api::{
    AgentId, AgentResponse, DefinitionLimits, EffectClass, EffectId, EventBody, FailureClass, InvocationId,
    ItemKind, ToolStatus, Usage,
};
use tokio_util::sync::CancellationToken;

use super::{Child, Run, TurnOutcome, TurnScope};
use crate::{
    budget::{Budget, Spent},
    dispatch::OUTSIDE,
    ids,
    journal::{Entry, Reached, RecordedEffect, RecordedInvocation, RecordedStep},
    share::Share,
};

/// Why a model call has no answer.
pub(crate) const INTERRUPTED: &str = "a restart interrupted the model's answer";
/// Whose run it is where that was not recorded.
const NOBODY: &str = "unknown";
/// What a run reports that nobody comes back to.
const LEFT: &str = "a restart interrupted it, and nobody asked for it again";
/// What becomes of its calls, by whether they may have taken effect.
const CALL_LEFT: &str = "stopped by a restart before it ended";
const CALL_UNKNOWN: &str = "outcome unknown: a restart interrupted the call before its result was recorded, and nobody \
                            asked for it again";

/// What the journal shows of a run.
pub(crate) struct Past {
    id: InvocationId,
    /// Of the roots of a turn, how many were before it.
    nth: u32,
    recorded: Arc<RecordedInvocation>,
    /// What it and all below it have spent.
    spent: Spent,
    below: Vec<Past>,
}

/// Ends a turn that an earlier process began and that is not gone on with, with that response: whatever it began ends, and
/// what it had set aside for a model call that was cut off counts as used, in the quotas as well. None where its root had
/// not begun: nothing was spent then, and nothing is to be recorded but the end of the turn.
///
/// A response that was recorded stays the one.
pub fn abandon_turn(scope: Arc<TurnScope>, response: AgentResponse) -> Option<TurnOutcome> {
    scope.steering.close();
    let nobody = AgentId::new(NOBODY).expect("a valid id");
    let budget = Budget::root(nobody.clone(), &DefinitionLimits::default());
    let run = Run::at_the_root(scope, nobody, budget, &CancellationToken::new());
    let mut past = run.past(ids::root_invocation(&run.scope.turn))?;
    // The message may have gone from one agent to another: the last of them has it.
    while let Some(next) = run.past(ids::further_root(&run.scope.turn, past.nth + 1)) {
        run.budget.foresee(past.spent);
        past = Past { nth: past.nth + 1, ..next };
    }
    let agent = past.recorded.agent.clone().unwrap_or_else(|| run.agent.clone());
    let run = Run { path: vec![agent.clone()], agent, id: past.id.clone(), ..run };
    let mut response = response;
    match past.recorded.response.clone() {
        // Who was to answer after it never began.
        Some(recorded) if recorded.transfer.is_some() => run.budget.foresee(past.spent),
        Some(recorded) => {
            run.budget.foresee(past.spent);
            response = recorded;
        }
        None => run.close(past, &mut response),
    }
    let spend = run.spend();
    Some(run.outcome(response, spend))
}

impl Run {
    /// The run of another agent that an earlier process began in the place of a root, ended.
    pub(super) fn left_at_the_root(
        root: &Self,
        agent: AgentId,
        whole: &Budget,
        cancel: &CancellationToken,
    ) -> Self {
        let budget = whole.child(agent.clone(), &DefinitionLimits::default(), whole.time());
        let mut run = Self::at_the_root(Arc::clone(&root.scope), agent, budget, cancel);
        run.id = root.id.clone();
        if let Some(past) = run.past(run.id.clone()) {
            match past.ended() {
                true => drop(run.go_on(past)),
                false => run.close(past, &mut AgentResponse::error(FailureClass::Cancelled, LEFT)),
            }
        }
        run
    }
}

impl Past {
    fn ended(&self) -> bool {
        self.recorded.response.is_some()
    }
}

impl Run {
    /// What the journal shows of a run and of all below it; none if it never began.
    pub(super) fn past(&self, id: InvocationId) -> Option<Past> {
        let recorded = self.scope.records.of(&id)?;
        let below: Vec<_> = recorded.below.iter().filter_map(|child| self.past(child.clone())).collect();
        let spent = recorded.spent(below.iter().map(|child| child.spent));
        Some(Past { id, nth: 0, recorded, spent, below })
    }

    /// Takes over what an earlier process left of this run; its response, if it ended.
    pub(super) fn go_on(&self, past: Past) -> Option<AgentResponse> {
        self.budget.foresee(past.spent);
        if past.ended() {
            self.budget.replay(past.spent);
            return past.recorded.response.clone();
        }
        self.budget.replay(Spent::run());
        // The code that made calls outside the loop may not ask for them again: the call on whose behalf it did may
        // have its result.
        for step in past.recorded.steps.iter().filter(|step| step.step == OUTSIDE) {
            self.budget.replay(Spent::calls(step.tool_calls()));
            for effect in step.effects.iter().filter(|effect| effect.result.is_some()) {
                let child = ids::child_of_effect(&effect.effect);
                let spent = past.below.iter().filter(|below| below.id == child).map(|below| below.spent);
                self.budget.replay(spent.sum());
            }
        }
        let open =
            past.recorded.steps.iter().filter(|step| step.step == OUTSIDE).flat_map(|step| &step.effects);
        *self.calls_left() = open.filter(|effect| effect.result.is_none()).cloned().collect();
        *self.left() = past.below.into_iter().filter(|below| !below.ended()).collect();
        None
    }

    /// Comes back to what a run spent that will not run again, and all below it.
    pub(crate) fn replay_below(&self, id: InvocationId) {
        if let Some(past) = self.past(id) {
            self.budget.replay(past.spent);
        }
    }

    /// Somebody asks for a run again that an earlier process may have begun.
    pub(super) fn came_back_to(&self, id: &InvocationId) {
        self.left().retain(|past| past.id != *id);
    }

    /// Somebody asks for a call again that an earlier process may have begun outside the steps.
    pub(crate) fn came_back_to_call(&self, effect: &EffectId) {
        self.calls_left().retain(|left| left.effect != *effect);
    }

    /// Records that a model call of an earlier process has no answer: what was set aside for it counts as used, in the
    /// quotas as well, unless it was counted there when this process began.
    pub(crate) fn lost_call(&self, step: &RecordedStep) {
        let who = self.spender();
        let (quotas, now) = (&self.scope.quotas, self.scope.clock.now_ms());
        let call = ids::model_call(&self.id, step.step, step.attempt);
        quotas.lose(who, &call, step.reserved_tokens, step.reserved_usd, now);
        for warning in quotas.due(who, now) {
            self.tell(EventBody::BudgetWarning(warning));
        }
        self.record(Entry::Failed {
            invocation: self.id.clone(),
            step: step.step,
            attempt: step.attempt,
            model: step.model.clone(),
            class: FailureClass::Internal,
            message: INTERRUPTED.into(),
            usage: Usage::default(),
            cost_usd: (!step.unpriced).then_some(0.0),
            estimated: false,
            lost_tokens: step.reserved_tokens,
            lost_usd: step.reserved_usd,
            repeated: false,
            told: None,
        });
    }

    /// Ends the runs below that an earlier process began and that nobody came back to: whatever begins ends.
    pub(super) fn end_left(&self) {
        let calls = std::mem::take(&mut *self.calls_left());
        calls.iter().for_each(|call| self.abandon_call(OUTSIDE, call));
        let left = std::mem::take(&mut *self.left());
        for past in left {
            let Some(agent) = past.recorded.agent.clone() else { continue };
            let share = Share::none(&self.scope.gate);
            let (cancel, time) = (self.cancel.child_token(), self.budget.time().clone());
            let child = Child { id: past.id.clone(), cancel, share, time };
            let run = self.below(agent, child, &DefinitionLimits::default());
            run.close(past, &mut AgentResponse::error(FailureClass::Cancelled, LEFT));
            run.leave();
        }
    }

    /// Ends a run that an earlier process began, and all below it.
    fn close(&self, past: Past, response: &mut AgentResponse) {
        self.budget.foresee(past.spent);
        *self.left() = past.below.into_iter().filter(|below| !below.ended()).collect();
        past.recorded.steps.iter().for_each(|step| self.abandon(step));
        self.complete(response);
    }

    /// Ends what is open of a step: the model call, and the calls of tools.
    fn abandon(&self, step: &RecordedStep) {
        if step.reserved_tokens > 0 {
            self.lost_call(step);
        }
        for effect in step.effects.iter().filter(|effect| effect.result.is_none()) {
            self.abandon_call(step.step, effect);
        }
    }

    /// Ends a call of a tool that nobody comes back to.
    fn abandon_call(&self, step: u32, effect: &RecordedEffect) {
        self.reopen(step, effect);
        let (status, content) = match effect.class {
            EffectClass::Once if effect.reached == Reached::Started => {
                (ToolStatus::OutcomeUnknown, CALL_UNKNOWN)
            }
            _ => (ToolStatus::Cancelled, CALL_LEFT),
        };
        self.record(Entry::Result {
            invocation: self.id.clone(),
            step,
            index: effect.index,
            effect: effect.effect.clone(),
            tool: effect.tool.clone(),
            kind: ItemKind::default(),
            status,
            elapsed_ms: 0,
            content: content.to_owned(),
            images: Vec::new(),
            left: true,
        });
    }

    fn calls_left(&self) -> MutexGuard<'_, Vec<RecordedEffect>> {
        self.calls_left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> MutexGuard<'_, Vec<Past>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
