//! An agent that is asked only where a tool has something for it: looking costs no model call.

use std::sync::Arc;

use drupe_extension_api::{
    AgentId, AgentResponse, DefinitionLimits, FailureClass, ToolCallRequest, ToolStatus,
};
use futures_util::future::BoxFuture;

use crate::{
    agent::{Agent, Task},
    asker::Asker,
    dispatch::call_tool,
    recipe::KeptRecipe,
    registry::Registry,
    run::Run,
};

/// Bytes of what the tool gave that the agent is told; it can call the tool for all of it.
const TOLD: usize = 16 << 10;

/// An agent, and what is called before it is asked.
pub struct Conditional {
    agent: Arc<dyn Agent>,
    tools: Arc<Registry>,
    condition: ToolCallRequest,
}

impl Conditional {
    /// The answer of a run for which the tool had nothing.
    pub const NOTHING: &str = "there was nothing to do";

    /// `condition` is called of `tools`, by the policy that holds for calls of the agent, when a run of it begins. What it
    /// gives is told to the agent beside its task. Where that is nothing, the run ends well, with [`Self::NOTHING`].
    pub fn new(agent: Arc<dyn Agent>, tools: Arc<Registry>, condition: ToolCallRequest) -> Self {
        Self { agent, tools, condition }
    }
}

impl Agent for Conditional {
    fn id(&self) -> &AgentId {
        self.agent.id()
    }

    fn limits(&self) -> &DefinitionLimits {
        self.agent.limits()
    }

    fn recipe(&self) -> Option<&KeptRecipe> {
        self.agent.recipe()
    }

    fn invoke(&self, mut task: Task, run: Arc<Run>) -> BoxFuture<'_, AgentResponse> {
        Box::pin(async move {
            let tool = &self.condition.name;
            let called = call_tool(
                &run,
                (&Asker::Agent, run.budget.time()),
                &self.tools,
                self.limits(),
                self.condition.clone(),
            )
            .await;
            match called {
                Ok((ToolStatus::Ok, given)) if is_nothing(&given) => AgentResponse::success(Self::NOTHING),
                Ok((ToolStatus::Ok, given)) => {
                    let told = &given[..given.floor_char_boundary(TOLD)];
                    task.notes.push(format!("`{tool}` gave this:\n{told}"));
                    self.agent.invoke(task, run).await
                }
                Ok((ToolStatus::Cancelled, why)) => AgentResponse::error(FailureClass::Cancelled, why),
                Ok((_, why)) => {
                    let message = format!("`{tool}`, which is asked before the agent, failed: {why}");
                    AgentResponse::error(FailureClass::Tool, message)
                }
                Err(fault) => AgentResponse::error(FailureClass::Internal, fault.to_string()),
            }
        })
    }
}

/// Whether a tool has nothing to say: no text, or what JSON has for nothing.
fn is_nothing(given: &str) -> bool {
    matches!(given.trim(), "" | "null" | "false" | "[]" | "{}" | "\"\"")
}
