//! Agents, built again from what is kept of what they were made of.

use std::sync::Arc;

use drupe_agent::{Agent, Conditional, KeptRecipe, LoopAgent, RegistryError, Run, Task, budget::Spent, ids};
use drupe_extension_api::{AgentId, AgentResponse, DefinitionLimits, InvocationId, ToolCallRequest};
use futures_util::future::BoxFuture;

use crate::{
    feed::Feed,
    invocations::{OUTSIDE, RunRecord},
    models::RecordedModel,
    played::Played,
    tools,
};

/// The least time that a run of a replay has: what ended it for want of time then is a part of the records.
const TIME_MS: u64 = 3_600_000;

/// Why an agent cannot be built again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unbuilt {
    #[error("nothing is recorded of its beginning")]
    Unknown,
    #[error("a tool of `{agent}` cannot be offered again: {error}")]
    Tools { agent: AgentId, error: RegistryError },
}

/// The agent whose run has that id.
pub(crate) fn of(played: &Arc<Played>, id: &InvocationId) -> Result<Arc<dyn Agent>, Unbuilt> {
    let feed = &played.feed;
    let record = feed.run(id).ok_or(Unbuilt::Unknown)?;
    let agent = record.agent.clone().ok_or(Unbuilt::Unknown)?;
    let recipe = record.recipe.as_ref().map(|hash| played.recipes.get(hash));
    let Some(Some(recipe)) = recipe else {
        feed.remark(match recipe {
            Some(_) => format!("what `{agent}` was made of is not kept any more: its run is fed as a whole by its recorded response"),
            None => format!("`{agent}` is code, or was recorded by a release that kept no recipes: its run is fed as a whole by its recorded response"),
        });
        return Ok(stand_in(agent, id, feed));
    };
    if record.compacted && recipe.model.is_none() {
        feed.remark(format!(
            "the release that recorded the run of `{agent}` did not keep how much its model reads, by which its transcript was made smaller"
        ));
    }
    let mut definition = recipe.definition.clone();
    definition.limits = feed.runs.widened(definition.limits);
    definition.limits.time_budget_ms = definition.limits.time_budget_ms.max(TIME_MS);
    let registry = tools::registry(played, record, &recipe.tools, &recipe.deferred)
        .map_err(|error| Unbuilt::Tools { agent: agent.clone(), error })?;
    let (registry, model) = (Arc::new(registry), Arc::new(RecordedModel::new(id, record, recipe, feed)));
    let looping = LoopAgent::new(definition, Arc::clone(&registry), model, recipe.root);
    let mut built: Arc<dyn Agent> = Arc::new(looping);
    if let Some(condition) = condition(id, record) {
        built = Arc::new(Conditional::new(built, registry, condition));
    }
    Ok(Arc::new(Rebuilt { agent: built, feed: Arc::clone(feed) }))
}

/// What stands for an agent that cannot be built again, or is not to be.
pub(crate) fn stand_in(agent: AgentId, run: &InvocationId, feed: &Arc<Feed>) -> Arc<dyn Agent> {
    let limits = DefinitionLimits::default();
    Arc::new(StandIn { agent, limits, run: run.clone(), feed: Arc::clone(feed) })
}

/// The call that was made before the agent was asked, where that is one.
fn condition(run: &InvocationId, record: &RunRecord) -> Option<ToolCallRequest> {
    let call = record.calls.iter().find(|call| call.step == OUTSIDE && call.first)?;
    let is_it = ids::effect_for_code(run.as_str(), &call.tool, &call.arguments, 0) == call.effect;
    is_it.then(|| ToolCallRequest {
        call_id: String::new(),
        name: call.tool.clone(),
        arguments: call.arguments.clone(),
    })
}

/// An agent of the loop, whose run is charged for what it spent beside the loop.
struct Rebuilt {
    agent: Arc<dyn Agent>,
    feed: Arc<Feed>,
}

impl Agent for Rebuilt {
    fn id(&self) -> &AgentId {
        self.agent.id()
    }

    fn limits(&self) -> &DefinitionLimits {
        self.agent.limits()
    }

    fn recipe(&self) -> Option<&KeptRecipe> {
        self.agent.recipe()
    }

    fn invoke(&self, task: Task, run: Arc<Run>) -> BoxFuture<'_, AgentResponse> {
        Box::pin(async move {
            self.feed.begins();
            let response = self.agent.invoke(task, Arc::clone(&run)).await;
            // What it has working beside it would end with it, which is no moment that was recorded.
            self.feed.until_others_have_ended(&run.id).await;
            self.feed.charge(&run, usize::MAX);
            response
        })
    }
}

/// What stands for an agent that is code: it gives the response that is recorded of its run.
struct StandIn {
    agent: AgentId,
    limits: DefinitionLimits,
    run: InvocationId,
    feed: Arc<Feed>,
}

impl Agent for StandIn {
    fn id(&self) -> &AgentId {
        &self.agent
    }

    fn limits(&self) -> &DefinitionLimits {
        &self.limits
    }

    fn invoke(&self, _: Task, run: Arc<Run>) -> BoxFuture<'_, AgentResponse> {
        Box::pin(async move {
            let Some((response, spend)) = self.feed.run(&self.run).and_then(|record| record.end.clone())
            else {
                self.feed.leave(&self.run, false);
                return std::future::pending().await;
            };
            // The run itself is counted already.
            let spent = Spent::from(spend);
            run.budget.charge(Spent { invocations: spent.invocations.saturating_sub(1), ..spent });
            response
        })
    }
}
