//! Runs below a run: how they begin, end, and count when an earlier process ran them.

use std::sync::{Arc, Mutex, atomic::Ordering};

use drupe_extension_api::{
    AgentId, AgentResponse, DefinitionLimits, EventBody, FailureClass, InvocationId, Spend,
};
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{MAX_INVOCATIONS, Run};
use crate::{
    agent::{Agent, Task},
    dispatch::OUTSIDE,
    ids,
    journal::{JournalFault, RecordedInvocation},
    share::{self, Share},
};

/// What a child run is begun with.
pub(crate) struct Child {
    /// Its id, derived from its place.
    pub id: InvocationId,
    /// Cancelled when it is to end; a child of the parent's token.
    pub cancel: CancellationToken,
    /// The share of the gate that it holds while it does not wait for tools.
    pub share: Arc<Share>,
}

/// A run that has begun. Where it is dropped before it has reported, that is its report.
struct Begun<'a> {
    parent: &'a Run,
    child: Arc<Run>,
    reported: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.reported {
            let message = "it was stopped before it could report";
            self.child.complete(&mut AgentResponse::error(FailureClass::Cancelled, message));
        }
        // The last records of a child wait for its parent's next commit: nothing happens between the two.
        let last = self.child.ledger().take();
        self.parent.ledger().adopt(last);
    }
}

impl Run {
    /// Runs `agent` below this run, in the same tree, budget and policy. A cycle, a depth or a number of runs
    /// beyond the limits is answered without any model call.
    pub(crate) async fn invoke(
        self: &Arc<Self>,
        agent: &Arc<dyn Agent>,
        task: Task,
        child: Child,
    ) -> AgentResponse {
        match self.begin_child(agent.id(), agent.limits(), child, false) {
            Ok(run) => self.finish_child(run, agent, task).await,
            Err(refusal) => refusal,
        }
    }

    /// Runs `agent` below this run on behalf of the native agent that this run belongs to: the loop of the same
    /// agent, and so neither a cycle nor a level deeper.
    pub async fn invoke_own(self: &Arc<Self>, agent: &Arc<dyn Agent>, task: Task) -> AgentResponse {
        self.invoke_outside(agent, task, *agent.id() == self.agent).await
    }

    /// Runs `agent` below this run on behalf of the native agent that this run belongs to.
    pub async fn invoke_other(self: &Arc<Self>, agent: &Arc<dyn Agent>, task: Task) -> AgentResponse {
        self.invoke_outside(agent, task, false).await
    }

    /// Code that waits for an agent holds no share of the gate meanwhile; the agent takes one of its own.
    async fn invoke_outside(
        self: &Arc<Self>,
        agent: &Arc<dyn Agent>,
        task: Task,
        same_agent: bool,
    ) -> AgentResponse {
        let nth = self.times_asked(format!("agent {} {}", agent.id(), task.text));
        let id = ids::child_of_run(&self.id, agent.id(), &task.text, nth);
        let work = async {
            let held = match Share::take(&self.scope.gate, share::AGENT, self.over()).await {
                Ok(held) => held,
                Err(_) => {
                    return AgentResponse::error(FailureClass::Cancelled, "it was stopped before it began");
                }
            };
            let child = Child { id, cancel: self.cancel.child_token(), share: held.share() };
            match self.begin_child(agent.id(), agent.limits(), child, same_agent) {
                Ok(run) => self.finish_child(run, agent, task).await,
                Err(refusal) => refusal,
            }
        };
        self.share.wait(work, self.over()).await
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
        let depth_left = match (same_agent, self.depth_left) {
            (true, left) => left,
            (false, 0) => {
                let depth = u64::from(self.depth());
                let message =
                    format!("agent `{agent}` would be deeper than `max_depth` allows (depth {depth})");
                return Err(self.exceeded("max_depth", depth, message));
            }
            (false, left) => left - 1,
        };
        let more = |begun| (begun < MAX_INVOCATIONS).then_some(begun + 1);
        if self.scope.invocations.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            let message = format!(
                "this turn has begun {MAX_INVOCATIONS} agent runs already, the most that are allowed"
            );
            return Err(self.exceeded("max_invocations", MAX_INVOCATIONS.into(), message));
        }
        let now = Instant::now();
        let mut path = self.path.clone();
        path.push(agent.clone());
        Ok(Arc::new(Self {
            scope: Arc::clone(&self.scope),
            agent: agent.clone(),
            parent: Some(self.id.clone()),
            path,
            depth_left: depth_left.min(limits.max_depth),
            budget: self.budget.child(agent.clone(), limits, now),
            cancel: child.cancel,
            share: child.share,
            started: now,
            ledger: Mutex::default(),
            asked: Mutex::default(),
            id: child.id,
        }))
    }

    /// A limit on the tree stops a run before it begins; all of it is used.
    fn exceeded(&self, limit: &str, allowed: u64, message: String) -> AgentResponse {
        self.event(EventBody::BudgetExceeded { limit: limit.into(), used: allowed, allowed });
        AgentResponse::error(FailureClass::Budget, message)
    }

    async fn finish_child(
        self: &Arc<Self>,
        run: Arc<Self>,
        agent: &Arc<dyn Agent>,
        task: Task,
    ) -> AgentResponse {
        let mut begun = Begun { parent: self, child: Arc::clone(&run), reported: false };
        let response = run.whole(agent, task).await;
        begun.reported = true;
        response.unwrap_or_else(|fault| AgentResponse::error(FailureClass::Internal, fault.to_string()))
    }

    /// Charges what a run and all below it spent in an earlier process. Those below one that ended are in its sum,
    /// apart from the tokens of model calls whose end was never seen.
    pub(crate) fn recharge(
        &self,
        invocation: InvocationId,
        in_no_sum: bool,
    ) -> BoxFuture<'_, Result<(), JournalFault>> {
        Box::pin(async move {
            let Some(recorded) = self.scope.journal.load(invocation).await? else { return Ok(()) };
            self.budget.recharge_lost(recorded.lost_tokens(), None);
            if in_no_sum {
                let spend = sum(&recorded);
                self.scope.invocations.fetch_add(spend.invocations, Ordering::Relaxed);
                self.budget.recharge_run(&spend);
            }
            let ended = recorded.response.is_some();
            for effect in recorded.steps.iter().flat_map(|s| &s.effects) {
                self.recharge(ids::child_of_effect(&effect.effect), in_no_sum && !ended).await?;
            }
            Ok(())
        })
    }
}

impl Run {
    /// Charges the calls that an earlier process made within this run outside the loop. The code that made them may
    /// not ask for them again: the call on whose behalf it did may have its result.
    pub(super) async fn recharge_outside(&self, recorded: &RecordedInvocation) -> Result<(), JournalFault> {
        for effect in recorded.steps.iter().filter(|s| s.step == OUTSIDE).flat_map(|s| &s.effects) {
            self.budget.tool_calls(1);
            if effect.result.is_some() {
                self.recharge(ids::child_of_effect(&effect.effect), true).await?;
            }
        }
        Ok(())
    }
}

/// What a run is recorded to have spent: the sum that it ended with, or that of its own steps.
fn sum(recorded: &RecordedInvocation) -> Spend {
    if recorded.response.is_some() {
        return recorded.spend;
    }
    let mut spend = Spend { invocations: 1, cost_usd: Some(0.0), ..Spend::default() };
    for step in recorded.steps.iter().filter(|s| s.answer.is_some() || s.step == OUTSIDE) {
        spend.usage += step.usage;
        spend.turns += u32::from(step.answer.is_some());
        spend.tool_calls += u32::try_from(step.effects.len()).unwrap_or(u32::MAX);
        if step.answer.is_some() {
            spend.cost_usd = spend.cost_usd.zip(step.cost_usd).map(|(a, b)| a + b);
        }
    }
    spend
}
