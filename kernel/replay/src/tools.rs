//! Tools as they are described in a recipe, which give what was recorded.

use std::sync::Arc;

use drupe_agent::{
    Agent, AgentTool, CalledAgent, Registered, Registry, RegistryBuilder, RegistryError, Tool, ToolContext,
    ToolError, ToolFuture, ToolOutput, client_tool, hand_over, ids, refuse, search_tools, update_plan,
};
use drupe_extension_api::{AgentId, ControlTransfer, InvocationId, ToolSpec, ToolStatus, wire::ClientTool};
use serde_json::{Value, value::RawValue};

use crate::{
    agents,
    invocations::{CallRecord, RunRecord},
    played::Played,
    spawned,
};

/// A tool of a run that is replayed.
pub(crate) struct RecordedTool {
    pub spec: Arc<ToolSpec>,
    /// What the loop itself brings and what changes nothing outside the run: it runs as it does in every run.
    pub own: Option<Arc<Registered>>,
    /// The agent that it is, and whether that takes JSON, where it is called beside the steps of a run.
    pub agent: Option<(AgentId, bool)>,
    pub played: Arc<Played>,
}

/// The tools of a recipe as a run of it is replayed.
pub(crate) fn registry(
    played: &Arc<Played>,
    record: &RunRecord,
    tools: &[ToolSpec],
    deferred: &[ToolSpec],
) -> Result<Registry, RegistryError> {
    let mut builder = offered(tools, deferred, |spec| {
        let own = own(spec, &played.client_tools, || handed_to(record, spec))?;
        let (spec, played) = (Arc::new(spec.clone()), Arc::clone(played));
        Ok(Arc::new(RecordedTool { own, spec, agent: None, played }))
    })?;
    for (name, reason) in record.calls.iter().filter_map(excluded) {
        builder.exclude(name, reason);
    }
    Ok(builder.build())
}

/// The tools of a recipe, offered and deferred as they were.
pub(crate) fn offered<T: Tool + 'static>(
    tools: &[ToolSpec],
    deferred: &[ToolSpec],
    make: impl Fn(&ToolSpec) -> Result<Arc<T>, RegistryError>,
) -> Result<RegistryBuilder, RegistryError> {
    let mut builder = RegistryBuilder::default();
    for spec in tools {
        // Where tools are deferred it comes by itself.
        if !deferred.is_empty() && spec.name.as_str() == search_tools::NAME {
            continue;
        }
        let tool = make(spec)?;
        // What is offered although others are deferred is the loop's own, and what waits for agents takes nothing of the gate.
        let is_own = !deferred.is_empty() || spec.annotations.weight == 0;
        builder.add(if is_own { Registered::core(tool)? } else { Registered::new(tool)? })?;
    }
    for spec in deferred {
        builder.add(Registered::new(make(spec)?)?)?;
    }
    if !deferred.is_empty() {
        builder.defer_above(0);
    }
    Ok(builder)
}

/// A tool that was left out, as the refusal of a call of it names the reason.
fn excluded(call: &CallRecord) -> Option<(&str, &str)> {
    let Some((ToolStatus::Refused, content, _)) = &call.result else { return None };
    let before = format!("tool `{}` is not there for you: ", call.tool);
    content.strip_prefix(&before).map(|reason| (call.tool.as_str(), reason))
}

/// A tool of the loop's own that does nothing outside a run.
pub(crate) fn own(
    spec: &ToolSpec,
    client_tools: &[ClientTool],
    handed_to: impl FnOnce() -> Option<AgentId>,
) -> Result<Option<Arc<Registered>>, RegistryError> {
    if let Some(given) = client_tools.iter().find(|given| given.name == spec.name) {
        return client_tool::tool(given).map(Some);
    }
    Ok(match spec.name.as_str() {
        refuse::NAME => Some(refuse::tool()),
        update_plan::NAME => Some(update_plan::tool()),
        hand_over::RETURN => Some(hand_over::return_control()),
        _ => match handed_to() {
            Some(to) => Some(hand_over::tool(to, spec.name.clone(), "")?),
            None => None,
        },
    })
}

/// The agent that a tool hands the conversation to, if the run ended with a call of it.
pub(crate) fn handed_to(record: &RunRecord, spec: &ToolSpec) -> Option<AgentId> {
    let (response, _) = record.end.as_ref()?;
    let Some(ControlTransfer::HandOver { to, .. }) = &response.transfer else { return None };
    let told = format!("`{to}` has the conversation");
    let mut calls = record.calls.iter().filter(|call| call.tool == spec.name.as_str());
    let is_it =
        calls.any(|call| matches!(&call.result, Some((ToolStatus::Ok, content, _)) if *content == told));
    is_it.then(|| to.clone())
}

impl RecordedTool {
    /// The run that the call set off, by the loop.
    async fn below(
        &self,
        child: &InvocationId,
        params: Box<RawValue>,
        context: ToolContext,
        recorded: Option<&(ToolStatus, String)>,
    ) -> Result<ToolOutput, ToolError> {
        let feed = &self.played.feed;
        let agent = match agents::of(&self.played, child) {
            Ok(agent) => agent,
            Err(why) => return Err(ToolError::failed(why.to_string())),
        };
        let input = own_input(&self.spec, &agent);
        let tool = AgentTool::new(agent, self.spec.name.clone(), self.spec.description.clone(), input);
        let called = tokio::select! {
            biased;
            called = tool.call(params, context) => Some(called),
            () = feed.until_left(child) => None,
        };
        match (called, recorded) {
            (Some(Ok(given)), Some((status, content)))
                if given.status == *status && is_the_same(&given.content, content) =>
            {
                Ok(ToolOutput { status: *status, ..ToolOutput::text(content.clone()) })
            }
            (Some(called), _) => called,
            (None, Some((status, content))) => {
                Ok(ToolOutput { status: *status, ..ToolOutput::text(content.clone()) })
            }
            (None, None) => Err(ToolError::failed("the recording holds no result of this call")),
        }
    }
}

/// The input of an agent that has a form of its own, by the tool that it is.
pub(crate) fn own_input(spec: &ToolSpec, agent: &Arc<dyn Agent>) -> Option<Value> {
    let usual = AgentTool::new(Arc::clone(agent), spec.name.clone(), String::new(), None);
    (usual.spec().input_schema != spec.input_schema).then(|| spec.input_schema.clone())
}

/// Whether two answers of a sub-agent are the same but for the tokens that are left, which depend on what runs beside it.
fn is_the_same(one: &str, other: &str) -> bool {
    let read = |text: &str| {
        let mut value: Value = serde_json::from_str(text).ok()?;
        value.as_object_mut()?.remove("remaining_tokens");
        Some(value)
    };
    one == other || read(one).is_some_and(|value| read(other) == Some(value))
}

impl Tool for RecordedTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        "recording"
    }

    fn agent(&self) -> Option<CalledAgent<'_>> {
        self.called()
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let feed = &self.played.feed;
            let (run, effect) = (Arc::clone(&context.run), context.effect.clone());
            let Some(call) = feed.call(&run.id, &effect).cloned() else {
                return Err(ToolError::failed("the recording holds no such call"));
            };
            feed.gave_a_result();
            if let Some(own) = &self.own {
                // It may end the run, and what works beside that would end before its time.
                feed.until_others_have_ended(&run.id).await;
                return own.tool().call(params, context).await;
            }
            if call.spawns() {
                spawned::again(&self.played, &call, &params, &context).await?;
            }
            let recorded = call.result.as_ref().map(|(status, content, _)| (*status, content.clone()));
            let child = ids::child_of_effect(&effect);
            if feed.run(&child).is_some() {
                let given = self.below(&child, params, context, recorded.as_ref()).await;
                feed.charge(&run, call.at);
                return given;
            }
            let Some((status, content, images)) = call.result else {
                feed.never_ended(&run.id, Some(&call));
                return std::future::pending().await;
            };
            feed.charge(&run, call.at);
            Ok(ToolOutput { status, images, ..ToolOutput::text(content) })
        })
    }
}
