//! What an extension provides, as the loop knows it: its tools as [`Tool`], its agent as [`Agent`].

use std::{pin::pin, sync::Arc, time::Duration};

use drupe_agent::{Agent, Asker, Run, Schema, Task, Tool, ToolContext, ToolFuture, ToolOutput, images};
use drupe_extension_api::{
    AgentId, AgentResponse, ControlTransfer, DefinitionLimits, EffectClass, EffectId, ExtensionId,
    FailureClass, Fault, FaultCode, ToolPreview, ToolResult, ToolSpec,
    wire::{self, AgentInvoke, CallContext, LookupResult, ToolCall, ToolLookup},
};
use drupe_host::{Header, Instance, cut};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::{Lasting, tokens::Redeemed};

/// How long a tool may think about the outcome of an interrupted call.
const LOOKUP: Duration = Duration::from_secs(10);

/// How long a call whose process ended waits for the next process; a restart takes some hundred milliseconds.
const SUCCESSOR: Duration = Duration::from_secs(10);

/// How long an agent that is stopped may take to end by itself; less than its caller waits for it.
const GRACE: Duration = Duration::from_millis(400);

/// Bytes of the error that an agent's code gives.
const ERROR: usize = 16 * 1024;

pub struct ExtensionTool {
    pub(crate) owner: ExtensionId,
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) schema: Arc<Schema>,
    pub(crate) instance: Arc<Instance>,
    pub(crate) lasting: Arc<Lasting>,
}

impl ExtensionTool {
    /// One call, of the instance that works now.
    async fn once(
        &self,
        instance: &Arc<Instance>,
        params: Box<RawValue>,
        context: &ToolContext,
    ) -> Result<ToolOutput, Fault> {
        let work = Redeemed {
            run: Arc::clone(&context.run),
            asker: Asker::Call(context.effect.clone()),
            time: context.time.clone(),
        };
        let token = self.lasting.tokens.grant(self.owner.clone(), work);
        let given = context.agreement.given.as_deref().map(serde_json::from_str).transpose()?;
        let payload = ToolCall {
            name: self.spec.name.clone(),
            params,
            context: CallContext {
                shown: context.agreement.shown.clone(),
                given,
                ..call_context(&context.run, context.effect.clone(), context.time.left())
            },
        };
        let header =
            Header { token: token.as_str(), trace: context.run.scope.correlation.as_str(), timeout: None };
        let result: ToolResult = instance.call(wire::op::TOOL_CALL, &payload, header).await?;
        if result.untrusted {
            context.run.tainted_by(self.spec.name.as_str());
        }
        let (images, left_out) = images::taken(result.images);
        Ok(ToolOutput { images, ..ToolOutput::text(result.content + &left_out) })
    }

    /// The process that ran the call is gone. What does no harm twice runs again in its successor; anything else only
    /// where the successor knows that it did not happen. Neither does where its code had asked for tools or agents, which would be
    /// asked for a second time: their records are read by the next kernel alone.
    async fn after_crash(
        &self,
        crash: Fault,
        params: Box<RawValue>,
        context: &ToolContext,
    ) -> Result<ToolOutput, Fault> {
        let unknown = |why: &str| {
            let message = format!("{}; whether it took effect is not known: {why}", crash.message);
            Fault::new(FaultCode::OutcomeUnknown, message)
        };
        const NOT_AGAIN: &str = "its code had asked for tools or agents, so it is not made again";
        let harmless = self.spec.annotations.effect != EffectClass::Once;
        let asked = context.run.was_asked_by(&Asker::Call(context.effect.clone()));
        if harmless && asked {
            return Err(Fault { message: format!("{}; {NOT_AGAIN}", crash.message), ..crash });
        }
        let waited =
            tokio::time::timeout(SUCCESSOR, self.lasting.live.replacement(&self.owner, &self.instance));
        let Ok(Some(successor)) = waited.await else {
            return Err(if harmless { crash } else { unknown("the extension did not come back in time") });
        };
        if !harmless {
            match self.ask(&successor, context.effect.clone()).await {
                LookupResult::Done { content } => return Ok(ToolOutput::text(content)),
                LookupResult::NotDone if asked => return Err(unknown(NOT_AGAIN)),
                LookupResult::NotDone => {}
                LookupResult::Unknown => return Err(unknown("it is not tried again")),
            }
        }
        self.once(&successor, params, context).await.map_err(|fault| match fault.code {
            FaultCode::Crashed if !harmless => unknown("the process ended a second time"),
            _ => fault,
        })
    }

    async fn ask(&self, instance: &Instance, effect: EffectId) -> LookupResult {
        let payload = ToolLookup { name: self.spec.name.clone(), effect_id: effect };
        let header = Header { timeout: Some(LOOKUP), ..Header::default() };
        match instance.call(wire::op::TOOL_LOOKUP, &payload, header).await {
            Ok(result) => result,
            Err(fault) => {
                if fault.code != FaultCode::Unsupported {
                    tracing::warn!(tool = %self.spec.name, %fault, "the outcome of a call could not be looked up");
                }
                LookupResult::Unknown
            }
        }
    }
}

impl Tool for ExtensionTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        self.owner.as_str()
    }

    fn schema(&self) -> Option<Arc<Schema>> {
        Some(Arc::clone(&self.schema))
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            // Only a process of its own can end without this one.
            let kept = self.instance.process().map(|_| params.clone());
            match (self.once(&self.instance, params, &context).await, kept) {
                (Err(fault), Some(params)) if fault.code == FaultCode::Crashed => {
                    Ok(self.after_crash(fault, params, &context).await?)
                }
                (result, _) => Ok(result?),
            }
        })
    }

    fn lookup(&self, effect: EffectId) -> BoxFuture<'_, LookupResult> {
        Box::pin(self.ask(&self.instance, effect))
    }

    fn preview<'a>(
        &'a self,
        params: Box<RawValue>,
        effect: EffectId,
        run: &'a Run,
    ) -> BoxFuture<'a, Result<ToolPreview, Fault>> {
        Box::pin(async move {
            let context = call_context(run, effect, run.budget.time().left());
            let payload = ToolCall { name: self.spec.name.clone(), params, context };
            // Without a parent token, so that nothing can be done on behalf of the call.
            let header = Header { token: "", trace: run.scope.correlation.as_str(), timeout: None };
            self.instance.call(wire::op::TOOL_PREVIEW, &payload, header).await
        })
    }
}

pub struct NativeAgent {
    pub(crate) id: AgentId,
    pub(crate) limits: DefinitionLimits,
    pub(crate) instance: Arc<Instance>,
    pub(crate) lasting: Arc<Lasting>,
}

impl Agent for NativeAgent {
    fn id(&self) -> &AgentId {
        &self.id
    }

    fn limits(&self) -> &DefinitionLimits {
        &self.limits
    }

    fn invoke(&self, task: Task, run: Arc<Run>) -> BoxFuture<'_, AgentResponse> {
        Box::pin(async move {
            if let Err(fault) = run.commit().await {
                return AgentResponse::error(FailureClass::Internal, fault.to_string());
            }
            let work =
                Redeemed { run: Arc::clone(&run), asker: Asker::Agent, time: run.budget.time().clone() };
            let token = self.lasting.tokens.grant(self.id.clone().into(), work);
            let effect = drupe_agent::ids::effect(&run.scope.turn, &run.id, 0, 0);
            let payload = AgentInvoke {
                task: task.text,
                context: task.context,
                call: call_context(&run, effect, run.budget.time().left()),
            };
            let header =
                Header { token: token.as_str(), trace: run.scope.correlation.as_str(), timeout: None };
            let mut call =
                pin!(self.instance.call::<AgentResponse>(wire::op::AGENT_INVOKE, &payload, header));
            let ended = tokio::select! {
                result = &mut call => return result.map_or_else(failed, bounded),
                () = run.cancel.cancelled() => AgentResponse::error(FailureClass::Cancelled, "it was cancelled"),
                () = run.budget.time().over() => {
                    run.cancel.cancel();
                    let message = format!("agent `{}` did not finish within its time budget", self.id);
                    AgentResponse::error(FailureClass::Timeout, message)
                }
            };
            // Its own runs end by the same token, and record how; then it has nothing left to wait for.
            let _ = tokio::time::timeout(GRACE, call).await;
            ended
        })
    }
}

/// The reason why an agent failed stands in events and rows, and its caller gets it. Code was offered no tools of a client.
fn bounded(response: AgentResponse) -> AgentResponse {
    AgentResponse {
        error: response.error.map(|error| cut(error, ERROR)),
        client_calls: Vec::new(),
        // It can give a conversation back, and hand none over.
        transfer: response.transfer.filter(|transfer| matches!(transfer, ControlTransfer::Return { .. })),
        ..response
    }
}

/// A fault of an agent's code as the response that it did not give.
fn failed(fault: Fault) -> AgentResponse {
    let class = match fault.code {
        FaultCode::Budget => FailureClass::Budget,
        FaultCode::NotConfigured => FailureClass::Config,
        FaultCode::Cancelled => FailureClass::Cancelled,
        FaultCode::Timeout => FailureClass::Timeout,
        _ => FailureClass::Tool,
    };
    AgentResponse::error(class, fault.to_string())
}

fn call_context(run: &Run, effect_id: EffectId, left: Duration) -> CallContext {
    let left = jiff::SignedDuration::try_from(left).unwrap_or(jiff::SignedDuration::MAX);
    CallContext {
        session: run.scope.session.clone(),
        turn: run.scope.turn.clone(),
        agent: run.agent.clone(),
        call_path: run.path.clone(),
        on_behalf_of: run.behalf.to_vec(),
        base_folder: run.scope.base_folder.display().to_string(),
        deadline: Timestamp::now().checked_add(left).ok(),
        remaining_tokens: Some(run.budget.remaining_tokens()),
        correlation_id: run.scope.correlation.clone(),
        effect_id,
        tainted: run.scope.taint.source().is_some(),
        shown: None,
        given: None,
    }
}
