//! What an extension does on behalf of a call: tools, and agents.

use std::sync::Arc;

use drupe_agent::{Agent, LoopAgent, Task, hand_over};
use drupe_extension_api::{
    AgentInvocationContext, Fault, FaultCode, ToolCallRequest, ToolResult, ToolStatus,
    wire::{CallTool, InvokeAgent, RunAgent},
};
use drupe_models::NamedBy;
use drupe_wiring::{self as wiring, Allowed, Terms, offer, tokens::Redeemed};
use serde::Serialize;

use super::Owner;
use crate::kernel::Kernel;

impl Owner {
    pub(super) async fn call_tool(
        &self,
        kernel: &Kernel,
        Redeemed { run, asker, time }: &Redeemed,
        call: CallTool,
    ) -> Result<ToolResult, Fault> {
        let snapshot = kernel.roster.snapshot();
        let registry = snapshot.resolved.get(&self.manifest.id).cloned().unwrap_or_default();
        let limits = snapshot.agents.get(&run.agent).map(|agent| agent.limits.clone()).unwrap_or_default();
        let request = ToolCallRequest {
            call_id: String::new(),
            name: call.name.to_string(),
            arguments: call.params.get().to_owned(),
        };
        let (status, content) = drupe_agent::call_tool(run, (asker, time), &registry, &limits, request)
            .await
            .map_err(Fault::internal)?;
        match status {
            ToolStatus::Ok => Ok(ToolResult { content, ..ToolResult::default() }),
            ToolStatus::Refused => Err(Fault::denied(content)),
            ToolStatus::Cancelled => Err(Fault::new(FaultCode::Cancelled, content)),
            ToolStatus::OutcomeUnknown => Err(Fault::new(FaultCode::OutcomeUnknown, content)),
            ToolStatus::Error => Err(Fault::new(FaultCode::Other, content)),
        }
    }

    /// Runs the loop on behalf of the extension's own agent, with its own tools and those that it lists.
    pub(super) async fn run_agent(
        &self,
        kernel: &Kernel,
        Redeemed { run, asker, .. }: &Redeemed,
        ask: RunAgent,
    ) -> Result<impl Serialize + use<>, Fault> {
        let id = &self.manifest.id;
        if ask.definition.id.as_str() != id.as_str() {
            return Err(Fault::denied(format!(
                "extension `{id}` can run its own agent only, not `{}`",
                ask.definition.id
            )));
        }
        let snapshot = kernel.roster.snapshot();
        let RunAgent { definition, .. } = &ask;
        let answer_fault =
            |output| wiring::bounds::answer_fault(output, &kernel.roster.wired.lasting.schemas);
        if let Some(why) = definition.output.as_ref().and_then(answer_fault) {
            return Err(Fault::invalid(why));
        }
        let models = kernel.roster.wired.models.resolve_for(
            NamedBy::Extension,
            &definition.models,
            &definition.parameters,
            &definition.limits,
        );
        let model = models.map_err(|error| Fault::new(FaultCode::NotConfigured, error.to_string()))?.model;
        let own = snapshot.tools.get(id).map(Vec::as_slice).unwrap_or_default();
        let mut allowed = Allowed { tools: wiring::core_tools().to_vec(), ..Allowed::default() };
        if run.is_handed_over() {
            allowed.tools.push(hand_over::return_control());
        }
        for name in &ask.own_tools {
            let tool = own.iter().find(|t| t.spec().name == *name);
            let tool =
                tool.ok_or_else(|| Fault::not_found(format!("extension `{id}` has no tool `{name}`")))?;
            allowed.tools.push(Arc::clone(tool));
        }
        allowed.tools.extend(snapshot.resolved.get(id).iter().flat_map(|r| r.iter()).cloned());
        allowed.spawns_what_is_listed(&self.manifest, &ask.definition.limits);
        let terms = Terms::new(Some(model.profile()), &kernel.base.config);
        let registry = offer(&allowed, terms).map_err(|clash| Fault::invalid(clash.to_string()))?;
        let agent: Arc<dyn Agent> = Arc::new(LoopAgent::new(ask.definition, registry, model, false));
        let task = Task { text: ask.task, context: ask.context, ..Task::default() };
        Ok(run.invoke_own(asker, &agent, task).await)
    }

    pub(super) async fn invoke_agent(
        &self,
        kernel: &Kernel,
        Redeemed { run, asker, .. }: &Redeemed,
        ask: InvokeAgent,
    ) -> Result<impl Serialize + use<>, Fault> {
        let listed = self.manifest.agent.as_ref().is_some_and(|a| a.uses_agents.contains(&ask.agent));
        if !listed {
            let message = format!(
                "extension `{}` does not list agent `{}` in `uses_agents`",
                self.manifest.id, ask.agent
            );
            return Err(Fault::denied(message));
        }
        let snapshot = kernel.roster.snapshot();
        let agent = Arc::clone(&snapshot.agent(&ask.agent)?.agent);
        let context = AgentInvocationContext {
            conversation_summary: ask.summary,
            user_message: Some(run.scope.user_message.clone()),
            correlation_id: Some(run.scope.correlation.clone()),
        };
        let task = Task { text: ask.task, context, ..Task::default() };
        Ok(run.invoke_other(asker, &agent, task).await.1)
    }
}
