//! How a run begins and ends: whether it may, what is recorded and told of it.

use std::sync::Arc;

use drupe_extension_api::{
    AgentId, AgentResponse, BudgetUse, EventBody, FailureClass, Message, Preview, ResponseStatus,
    wire::HookPoint,
};
use serde_json::{Map, Value, json};
use tracing::Instrument;

use super::Run;
use crate::{
    agent::{Agent, Task},
    dispatch::OUTSIDE,
    ids,
    journal::Entry,
    recipe::{Recipe, RecipeChange},
    results,
    spawned::EndsWith,
    told::is_blank,
    topics::{self, MAX_HOPS, TopicMessage},
};

/// The code of a remark that something is not what it was.
pub const CHANGED: &str = "changed";

/// How a run is entered.
pub(super) enum Entered {
    /// An earlier process ended it so.
    Ended(AgentResponse),
    /// An earlier process began it.
    Begun,
    /// Nobody did.
    New,
}

/// Why a run does not begin.
pub(super) struct Refusal {
    response: Box<AgentResponse>,
    /// The limit that is told.
    limit: Option<Box<BudgetUse>>,
}

impl Refusal {
    pub(super) fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { response: Box::new(AgentResponse::error(class, message)), limit: None }
    }

    pub(super) fn limit(used: BudgetUse, message: impl Into<String>) -> Self {
        Self { limit: Some(Box::new(used)), ..Self::new(FailureClass::Budget, message) }
    }

    fn blocked(reason: String) -> Self {
        Self { response: Box::new(AgentResponse::refused(reason)), limit: None }
    }
}

impl Run {
    /// A root of a turn, from its beginning to its end.
    pub(super) async fn root(
        self: &Arc<Self>,
        agent: &Arc<dyn Agent>,
        task: Task,
        told: Vec<EventBody>,
    ) -> AgentResponse {
        match self.enter() {
            Entered::Ended(response) => return response,
            Entered::Begun => self.tell_changes(agent).await,
            Entered::New => {
                told.into_iter().for_each(|event| self.tell(event));
                let admitted = self.admit_root(&task).await;
                // One that is refused is no run, as below the root.
                if let Err(refusal) = admitted {
                    return self.refused(refusal);
                }
                self.begin(agent, &task);
            }
        }
        let response = self.work(agent, task).await;
        if self.is_handed_over() {
            self.ask_after(HookPoint::AfterAgent, || outcome(&response)).await;
        }
        response
    }

    /// Whether its agent is none of those whose messages set the turn off.
    fn in_no_circle(&self) -> Result<(), Refusal> {
        let ancestors = &self.scope.chain.ancestors;
        match ancestors.contains(&self.agent) {
            true => Err(Refusal::new(FailureClass::Loop, already(&self.agent, ancestors))),
            false => Ok(()),
        }
    }

    /// Whether it is the first that answers the turn's message.
    fn is_first(&self) -> bool {
        self.id == ids::root_invocation(&self.scope.turn)
    }

    /// Takes over what an earlier process recorded of the run.
    pub(super) fn enter(&self) -> Entered {
        self.scope.used().agents.insert(self.agent.clone());
        match self.past(self.id.clone()) {
            None => Entered::New,
            Some(past) => self.go_on(past).map_or(Entered::Begun, Entered::Ended),
        }
    }

    /// Tells what of the agent is not what it was when an earlier process began the run: it goes on with what there is.
    pub(super) async fn tell_changes(&self, agent: &Arc<dyn Agent>) {
        let before = self.recorded().and_then(|recorded| recorded.recipe.clone());
        let (Some(before), Some(now)) = (before, agent.recipe()) else { return };
        if *now.hash == *before {
            return;
        }
        let kept = self.scope.journal.recipe(before).await.ok().flatten();
        let changes = kept.zip(Recipe::read(&now.json).ok()).map(|(kept, now)| kept.changes(&now));
        let changes = changes.unwrap_or_else(|| vec![RecipeChange::not_kept()]);
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        if !changes.is_empty() {
            let message = format!(
                "`{}` is not what it was when the restart interrupted it: {}",
                self.agent,
                changes.join("; ")
            );
            self.tell(EventBody::Diagnostic { code: CHANGED.into(), message });
        }
    }

    /// Whether a sub-agent may begin; counts it.
    pub(super) async fn admit(&self, task: &Task) -> Result<(), Refusal> {
        let facts = || json!({"task": Preview::of(&task.text)});
        if let Some(reason) = self.ask_before(HookPoint::BeforeAgent, facts).await {
            return Err(Refusal::blocked(reason));
        }
        self.count()
    }

    /// Whether a root may begin; counts it. One that the conversation was handed to is an agent that is called.
    async fn admit_root(&self, task: &Task) -> Result<(), Refusal> {
        let chain = &self.scope.chain;
        if chain.hops > MAX_HOPS {
            let message = format!(
                "a chain of events has come {} hops far, and ends after {MAX_HOPS}: agents set each other off ({})",
                chain.hops,
                arrows(&chain.ancestors)
            );
            return Err(Refusal::new(FailureClass::Loop, message));
        }
        self.in_no_circle()?;
        if self.is_first() {
            let facts = || json!({"message": Preview::of(&self.scope.user_message)});
            if let Some(reason) = self.ask_before(HookPoint::TurnStart, facts).await {
                return Err(Refusal::blocked(reason));
            }
        }
        if self.is_handed_over() { self.admit(task).await } else { self.count() }
    }

    /// Counts a run that begins, in its tree and in the quotas.
    fn count(&self) -> Result<(), Refusal> {
        self.budget.invocation().map_err(|error| Refusal::limit(error.told(), error.to_string()))?;
        let who = self.spender();
        match self.scope.quotas.begin_run(who, self.scope.clock.now_ms()) {
            Ok(warnings) => {
                for warning in warnings {
                    self.tell(EventBody::BudgetWarning(warning));
                }
                Ok(())
            }
            Err(error) => {
                self.budget.take_back_invocation();
                Err(Refusal::limit(error.used.clone(), error.to_string()))
            }
        }
    }

    /// Tells, as a part of this run, why another or itself does not begin.
    pub(super) fn refused(&self, refusal: Refusal) -> AgentResponse {
        if let Some(used) = refusal.limit {
            self.tell(EventBody::BudgetExceeded(*used));
        }
        *refusal.response
    }

    /// Records the beginning.
    pub(super) fn begin(&self, agent: &Arc<dyn Agent>, task: &Task) {
        let recipe = agent.recipe();
        recipe.into_iter().for_each(|recipe| self.ledger().recipe(recipe.clone()));
        self.record(Entry::Begin {
            invocation: self.id.clone(),
            agent: self.agent.clone(),
            parent: self.parent.clone(),
            depth: self.depth(),
            task: task.text.clone(),
            recipe: recipe.map(|recipe| recipe.hash.to_string()),
        });
        // What was gathered for this moment is gathered once: a run that goes on after a restart has the same.
        for note in &task.notes {
            let message = Message::User { content: note.clone() };
            self.record(Entry::Note { invocation: self.id.clone(), step: OUTSIDE, message, given_by: None });
        }
        self.publish(topics::INVOKED, || json!({"task": Preview::of(&task.text)}));
    }

    /// Does the task and records the end.
    pub(super) async fn work(self: &Arc<Self>, agent: &Arc<dyn Agent>, task: Task) -> AgentResponse {
        // The root's lines are the turn's.
        let span = match &self.path[..] {
            [_] => tracing::Span::none(),
            path => {
                let path = path.iter().map(AgentId::as_str).collect::<Vec<_>>().join("/");
                tracing::info_span!("run", path)
            }
        };
        let _beside = EndsWith(self);
        let mut response = agent.invoke(task, Arc::clone(self)).instrument(span).await;
        self.end_workers().await;
        self.complete(&mut response);
        response
    }

    /// Ends what it left running, makes the response true, and records the end.
    pub(super) fn complete(&self, response: &mut AgentResponse) {
        self.cancel.cancel();
        self.end_left();
        self.end_plan();
        self.ledger().close(&self.id);
        response.content = results::kept(std::mem::take(&mut response.content));
        let spend = self.spend();
        response.tokens_used = Some(spend.usage.total());
        response.turns_used.get_or_insert(spend.turns);
        if response.status == ResponseStatus::Success {
            (response.error, response.class) = (None, None);
        } else {
            response.error.get_or_insert_with(|| results::reason(&response.content));
        }
        if is_blank(&response.content) {
            response.content = response.error.clone().unwrap_or_else(|| "(no text)".into());
        }
        self.tell_end(response);
        let (invocation, response, below) = (self.id.clone(), response.clone(), self.parent.is_some());
        self.record(Entry::End { invocation, response, spend, below });
    }

    fn tell_end(&self, response: &AgentResponse) {
        let spend = self.spend();
        let error = response.error.as_deref().unwrap_or_default();
        let failed =
            response.status == ResponseStatus::Error && response.class != Some(FailureClass::Cancelled);
        if failed && self.parent.is_none() {
            // A sub-agent's failure is its call's; a cancelled turn has not failed.
            self.error_item(error);
        }
        let topic = if response.status == ResponseStatus::Success { topics::RESULT } else { topics::ERROR };
        self.publish(topic, || {
            let mut facts = outcome(response);
            facts["spend"] = json!(spend);
            facts
        });
    }

    /// Gives a message to a topic, if anybody listens.
    fn publish(&self, topic: &str, facts: impl FnOnce() -> Value) {
        if !self.scope.topics.listens(topic) {
            return;
        }
        let mut payload = Map::new();
        payload.insert("agent".into(), json!(self.agent));
        payload.insert("invocation".into(), json!(self.id));
        if let Some(parent) = &self.parent {
            payload.insert("parent".into(), json!(parent));
        }
        payload.insert("depth".into(), json!(self.depth()));
        payload.insert("session".into(), json!(self.scope.session));
        payload.insert("turn".into(), json!(self.scope.turn));
        if let Value::Object(facts) = facts() {
            payload.extend(facts);
        }
        self.ledger().message(TopicMessage {
            topic: topic.to_owned(),
            payload: Value::Object(payload),
            chain: self.scope.chain.after(&self.path),
            correlation: Some(self.scope.correlation.clone()),
        });
    }
}

/// How a run ended, for hooks and topics.
pub(super) fn outcome(response: &AgentResponse) -> Value {
    let mut facts = json!({"status": response.status});
    if response.status == ResponseStatus::Success {
        facts["content"] = json!(Preview::of(&response.content));
    } else {
        facts["error"] = json!(Preview::of(response.error.as_deref().unwrap_or(&response.content)));
        facts["class"] = json!(response.class);
    }
    facts
}

/// Says that an agent is among those at work.
pub(super) fn already(agent: &AgentId, path: &[AgentId]) -> String {
    format!("agent `{agent}` is already working on this ({}), so it cannot be called again", arrows(path))
}

fn arrows(path: &[AgentId]) -> String {
    path.iter().map(AgentId::as_str).collect::<Vec<_>>().join(" → ")
}
