//! An agent that is spawned to outlive its turn: the call of its tool begins it elsewhere, and waits for nothing.

use std::sync::Arc;

use drupe_extension_api::{AgentId, ToolCallRequest, ToolSpec, ToolStatus};
use serde_json::{Value, json, value::RawValue};

use super::Spawning;
use crate::{
    agent::LoopParts,
    dispatch::{self, Bounds},
    ids,
    registry::{Registered, RegistryBuilder},
    scope::DetachedTask,
    tool::{Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// Has an agent work that outlives the turn, by the policy of the tool that it is.
pub(super) async fn detach(
    asked: Spawning,
    tool: Arc<Registered>,
    parts: &LoopParts,
    context: &ToolContext,
) -> Result<Value, ToolError> {
    let run = &context.run;
    let Some(called) = tool.tool().agent() else {
        return Err(ToolError::failed("it is no agent"));
    };
    let task = match (&asked.context, called.takes_json) {
        (Some(known), false) => format!("{}\n\nWhat you need to know:\n{known}", asked.task),
        _ => asked.task.clone(),
    };
    let mut arguments = json!({"task": asked.task});
    if let Some(known) = &asked.context {
        arguments["context"] = known.as_str().into();
    }
    let arguments = if called.takes_json { asked.task.clone() } else { arguments.to_string() };
    let (agent, name) = (called.id.clone(), tool.spec().name.to_string());
    let mut builder = RegistryBuilder::default();
    let beginning = Beginning { of: Arc::clone(&tool), agent: agent.clone(), task };
    let beginning =
        Registered::new(Arc::new(beginning)).map_err(|error| ToolError::failed(error.to_string()))?;
    builder.add(beginning).map_err(|error| ToolError::failed(error.to_string()))?;
    let registry = builder.build();
    let bounds = Bounds { registry: &registry, limits: &parts.definition.limits, ended: None };
    let request = ToolCallRequest { call_id: String::new(), name, arguments };
    let effect = ids::effect_of_effect(&context.effect);
    let called = dispatch::call_beside(run, (&context.time, &context.cancel), bounds, request, effect);
    let called = context.share.wait(called, run.over()).await;
    match called.map_err(|fault| ToolError::failed(fault.to_string()))? {
        (ToolStatus::Ok, session) => Ok(json!({"agent": agent, "detached": true, "session": session})),
        (status, message) => Err(ToolError { status, message }),
    }
}

/// The beginning of an agent that outlives the turn, in the place of the tool that the agent is.
struct Beginning {
    of: Arc<Registered>,
    agent: AgentId,
    task: String,
}

impl Tool for Beginning {
    fn spec(&self) -> &Arc<ToolSpec> {
        self.of.spec()
    }

    fn origin(&self) -> &str {
        self.of.tool().origin()
    }

    fn call(&self, _: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let scope = &context.run.scope;
            let Some(detaches) = &scope.detaches else {
                return Err(ToolError::failed("no agent can outlive this turn"));
            };
            let task = DetachedTask {
                effect: context.effect.clone(),
                agent: self.agent.clone(),
                task: self.task.clone(),
                session: scope.session.clone(),
                turn: scope.turn.clone(),
                chain: scope.chain.after(&context.run.path),
                correlation: scope.correlation.clone(),
                strangers: scope.taint.source().map(str::to_owned),
            };
            let session = detaches.detach(task).await?;
            Ok(ToolOutput::text(session.to_string()))
        })
    }
}
