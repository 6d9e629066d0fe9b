//! Runs below a run: how they begin and end.

use std::sync::{Arc, Mutex, OnceLock};

use drupe_extension_api::{
    AgentId, AgentResponse, DefinitionLimits, FailureClass, InvocationId, wire::HookPoint,
};
use drupe_limits::GatePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Run,
    life::{Entered, Refusal, already, outcome},
};
use crate::{
    agent::{Agent, Task},
    asker::Asker,
    budget::{Exceeded, Limit},
    ids,
    share::{self, Share},
    stopwatch::Stopwatch,
};

/// What a child run is begun with.
pub(crate) struct Child {
    /// Its id, derived from its place.
    pub id: InvocationId,
    /// Cancelled when it is to end; a child of the parent's token.
    pub cancel: CancellationToken,
    /// The share of the gate that it holds while it does not wait for tools.
    pub share: Arc<Share>,
    /// The time of what it is run for.
    pub time: Stopwatch,
}

/// A run below another. Where it has begun and is dropped before it has reported, that is its report.
struct Begun {
    child: Arc<Run>,
    reported: bool,
}

impl Drop for Begun {
    fn drop(&mut self) {
        // Where the process ends, the next one goes on with it.
        if !self.reported && !self.child.scope.life.is_cancelled() {
            let message = "it was stopped before it could report";
            self.child.complete(&mut AgentResponse::error(FailureClass::Cancelled, message));
        }
        self.child.leave();
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
        if let Err(refusal) = self.may_call(agent.id(), false) {
            return self.refused(refusal);
        }
        let share = Arc::clone(&child.share);
        // Whoever waits for the agent holds no share of the gate meanwhile.
        // One that is charged to its caller stands in the place of that.
        let permit = match agent.charged_to() {
            Some(_) => None,
            None => match share.wait(self.agent_gate(agent.id(), &child.cancel), self.over()).await {
                Some(permit) => Some(permit),
                None => return self.refused(stopped()),
            },
        };
        let response = self.run_child(agent, task, child, false).await;
        drop(permit);
        response
    }

    /// Runs `agent` below this run for its code: the loop of the same agent, and so neither a cycle nor a level deeper.
    pub async fn invoke_own(
        self: &Arc<Self>,
        asker: &Asker,
        agent: &Arc<dyn Agent>,
        task: Task,
    ) -> AgentResponse {
        let id = self.next_for(asker, agent.id(), &task);
        self.invoke_outside(id, agent, task, *agent.id() == self.agent).await
    }

    /// Runs `agent` below this run for code, and gives the id of its run, which there may be no record of.
    pub async fn invoke_other(
        self: &Arc<Self>,
        asker: &Asker,
        agent: &Arc<dyn Agent>,
        task: Task,
    ) -> (InvocationId, AgentResponse) {
        let id = self.next_for(asker, agent.id(), &task);
        let response = self.invoke_outside(id.clone(), agent, task, false).await;
        (id, response)
    }

    /// The run for what code asks for next.
    fn next_for(&self, asker: &Asker, agent: &AgentId, task: &Task) -> InvocationId {
        let nth = self.times_asked(asker, format_args!("agent {agent} {}", task.text));
        ids::run_for_code(asker.place(self), agent, &task.text, nth)
    }

    /// Code that waits for an agent holds no share of the gate meanwhile; the agent takes one of its own.
    async fn invoke_outside(
        self: &Arc<Self>,
        id: InvocationId,
        agent: &Arc<dyn Agent>,
        task: Task,
        same_agent: bool,
    ) -> AgentResponse {
        if let Err(refusal) = self.may_call(agent.id(), same_agent) {
            return self.refused(refusal);
        }
        // Whoever reads the journal finds a run below those that called it.
        if let Err(fault) = self.commit().await {
            return AgentResponse::error(FailureClass::Internal, fault.to_string());
        }
        let work = async {
            // The loop of the same agent is within the place that the agent has.
            let permit = match same_agent {
                true => None,
                false => match self.agent_gate(agent.id(), &self.cancel).await {
                    Some(permit) => Some(permit),
                    None => return self.refused(stopped()),
                },
            };
            let Ok(held) = Share::take(&self.scope.gate, share::AGENT, self.over()).await else {
                return self.refused(stopped());
            };
            let (cancel, time) = (self.cancel.child_token(), self.budget.time().clone());
            let child = Child { id, cancel, share: held.share(), time };
            let response = self.run_child(agent, task, child, same_agent).await;
            drop(permit);
            // Code may work with the answer for long before it does anything that is recorded.
            match self.commit().await {
                Ok(()) => response,
                Err(fault) => AgentResponse::error(FailureClass::Internal, fault.to_string()),
            }
        };
        self.share.wait(work, self.over()).await
    }

    /// Waits for a place among the runs of that agent; none if this run must end first.
    async fn agent_gate(&self, agent: &AgentId, cancel: &CancellationToken) -> Option<GatePermit> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            _ = self.over() => None,
            permit = self.scope.gates.agent(agent) => Some(permit),
        }
    }

    /// Whether the call makes no circle and stands not too deep.
    fn may_call(&self, agent: &AgentId, same_agent: bool) -> Result<(), Refusal> {
        // The loop of a native agent's own is no circle; one within that is.
        if same_agent && self.path.iter().filter(|a| *a == agent).count() < 2 {
            return Ok(());
        }
        if self.path.contains(agent) {
            return Err(Refusal::new(FailureClass::Loop, already(agent, &self.path)));
        }
        let ancestors = &self.scope.chain.ancestors;
        if ancestors.contains(agent) {
            return Err(Refusal::new(FailureClass::Loop, already(agent, ancestors)));
        }
        if self.depth_left == 0 {
            let depth = u64::from(self.depth());
            let (limit, agent) = (Limit::Depth, agent.clone());
            let exceeded = Exceeded { limit, agent, used: depth + 1, allowed: depth, held_up: false };
            return Err(Refusal::limit(exceeded.told(), exceeded.to_string()));
        }
        Ok(())
    }

    /// A run of `agent` below this one, which has not begun, and below which none may stand.
    pub(super) fn below(&self, agent: AgentId, child: Child, limits: &DefinitionLimits) -> Self {
        let now = Instant::now();
        let mut path = self.path.clone();
        path.push(agent.clone());
        Self {
            scope: Arc::clone(&self.scope),
            parent: Some(self.id.clone()),
            path,
            behalf: Arc::clone(&self.behalf),
            depth_left: 0,
            budget: self.budget.child(agent.clone(), limits, &child.time),
            agent,
            cancel: child.cancel,
            share: child.share,
            started: now,
            ledger: Mutex::default(),
            asked: Mutex::default(),
            shown: Mutex::default(),
            left: Mutex::default(),
            calls_left: Mutex::default(),
            committing: tokio::sync::Mutex::default(),
            charged_to: None,
            parts: OnceLock::new(),
            id: child.id,
        }
    }

    /// Runs a child that may be called.
    async fn run_child(
        self: &Arc<Self>,
        agent: &Arc<dyn Agent>,
        task: Task,
        child: Child,
        same_agent: bool,
    ) -> AgentResponse {
        self.came_back_to(&child.id);
        let limits = agent.limits();
        let mut run = self.below(agent.id().clone(), child, limits);
        run.charged_to = agent.charged_to().cloned();
        run.depth_left = (self.depth_left - u32::from(!same_agent)).min(limits.max_depth);
        let run = Arc::new(run);
        let mut begun = Begun { child: Arc::clone(&run), reported: true };
        match run.enter() {
            Entered::Ended(response) => return response,
            Entered::Begun => run.tell_changes(agent).await,
            Entered::New => {
                if let Err(refusal) = run.admit(&task).await {
                    return self.refused(refusal);
                }
                run.begin(agent, &task);
            }
        }
        begun.reported = false;
        let response = run.work(agent, task).await;
        begun.reported = true;
        run.ask_after(HookPoint::AfterAgent, || outcome(&response)).await;
        response
    }
}

fn stopped() -> Refusal {
    Refusal::new(FailureClass::Cancelled, "it was stopped before it began")
}
