//! Agents that work beside others, as they are replayed: what each was asked is the loop's to ask again, each run reads what it
//! read at the step after which it did, and each ends where it ended. Whoever spawned them is given what was recorded of that.

use std::sync::Arc;

use drupe_agent::{
    AgentTool, CalledAgent, DetachedTask, Detaches, Registered, RegistryError, Tool, ToolContext, ToolError,
    ids, spawn_agent,
};
use drupe_extension_api::{
    AgentId, Fault, FaultCode, InvocationId, SessionId, ToolName, ToolSpec, ToolStatus,
};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    agents,
    feed::Feed,
    invocations::{CallRecord, GivenRecord, RunRecord},
    played::Played,
    tools::{RecordedTool, own_input},
};

/// What of the parameters of a call says who is spawned, and what is sent.
#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    agent: Option<AgentId>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    text: Option<String>,
}

/// Does what a call of these tools does beside its own result, as far as something is recorded of that.
pub(crate) async fn again(
    played: &Arc<Played>,
    call: &CallRecord,
    params: &RawValue,
    context: &ToolContext,
) -> Result<(), ToolError> {
    let (feed, run) = (&played.feed, &context.run);
    // What was never begun was closed before, or was read by a run that went on.
    let Some(asked) = feed.call(&run.id, &ids::effect_of_effect(&call.effect)) else { return Ok(()) };
    match call.tool.as_str() {
        spawn_agent::SPAWN => {
            let tool =
                tool(played, &run.id, asked, params).map_err(|error| ToolError::failed(error.to_string()))?;
            // What it gives instead of a handle is recorded as well.
            let _ = spawn_agent::spawn_by(params, tool, context).await;
        }
        _ => {
            // It began anew: what it did before has come to its end.
            feed.spawned.until_idle(&run.id).await;
            let [_, send, ..] = spawn_agent::tools();
            send.tool().replayed((params.get(), ""), &call.effect, run);
        }
    }
    Ok(())
}

/// The tool that a spawned agent is called by, as it was recorded.
fn tool(
    played: &Arc<Played>,
    run: &InvocationId,
    call: &CallRecord,
    params: &RawValue,
) -> Result<Arc<Registered>, RegistryError> {
    let feed = &played.feed;
    let asked: Option<Asked> = serde_json::from_str(params.get()).ok();
    let described = asked.as_ref().is_some_and(|asked| asked.instructions.is_some());
    let child = ids::child_of_effect(&call.effect);
    let began = feed.run(&child).and_then(|child| child.agent.clone());
    let id = began.or_else(|| asked?.agent).or_else(|| feed.run(run)?.agent.clone());
    let id = id.unwrap_or_else(|| AgentId::new("unknown").expect("the word has the form of an id"));
    let agent = agents::stand_in(id.clone(), &child, feed);
    let offered = if described { None } else { offered(played, run, &call.tool) };
    let spec = match offered {
        Some(spec) => Arc::new(spec),
        // One that its caller describes is offered to nobody.
        None => {
            let name = ToolName::new(&call.tool).or_else(|_| ToolName::new("agent_inline"));
            let name = name.expect("the name has the form of one");
            Arc::clone(AgentTool::new(Arc::clone(&agent), name, String::new(), None).spec())
        }
    };
    let takes_json = own_input(&spec, &agent).is_some();
    Registered::new(Arc::new(RecordedTool {
        spec,
        own: None,
        agent: Some((id, takes_json)),
        played: Arc::clone(played),
    }))
}

fn offered(played: &Played, run: &InvocationId, name: &str) -> Option<ToolSpec> {
    let recipe = played.recipes.get(played.feed.run(run)?.recipe.as_ref()?)?;
    recipe.tools.iter().chain(&recipe.deferred).find(|spec| spec.name.as_str() == name).cloned()
}

impl RecordedTool {
    pub(crate) fn called(&self) -> Option<CalledAgent<'_>> {
        let (id, takes_json) = self.agent.as_ref()?;
        Some(CalledAgent { id, takes_json: *takes_json, model: None })
    }
}

impl Feed {
    /// What a run read, as whoever spawned it has sent it; what people told it, as it was recorded.
    pub(crate) fn sent(&self, record: &RunRecord, given: &GivenRecord) -> String {
        let call = record.parent.as_ref().and_then(|parent| self.call(parent, &given.effect));
        let sent = call.and_then(|call| serde_json::from_str::<Asked>(&call.arguments).ok()?.text);
        sent.unwrap_or_else(|| given.text.clone())
    }
}

/// Begins nothing: an agent that outlives its turn is a turn of its own, which is replayed as that.
pub(crate) struct RecordedDetaches(pub Arc<Feed>);

impl Detaches for RecordedDetaches {
    fn detach(&self, task: DetachedTask) -> BoxFuture<'_, Result<SessionId, Fault>> {
        Box::pin(async move {
            let mut runs = self.0.runs.all.values();
            let call = runs.find_map(|run| run.calls.iter().find(|call| call.effect == task.effect));
            let recorded = call.and_then(|call| call.result.clone());
            let Some((status, content, _)) = recorded else {
                return Err(Fault::internal("the recording holds no such call"));
            };
            let code = match status {
                ToolStatus::Ok => return SessionId::new(content).map_err(Fault::internal),
                ToolStatus::Refused => FaultCode::Denied,
                ToolStatus::Cancelled => FaultCode::Cancelled,
                ToolStatus::OutcomeUnknown => FaultCode::OutcomeUnknown,
                _ => FaultCode::Other,
            };
            Err(Fault::new(code, content))
        })
    }
}
