//! What the loop can run: one trait for everything.

use std::sync::Arc;

use drupe_extension_api::{
    AgentId, ControlTransfer, EffectId, Fault, FaultCode, Image, ToolPreview, ToolSpec, ToolStatus,
    wire::{LookupResult, op},
};
use drupe_json_schema::Schema;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::{model::Model, run::Run, share::Share, stopwatch::Stopwatch};

/// A call of a tool while it runs.
pub type ToolFuture<'a> = BoxFuture<'a, Result<ToolOutput, ToolError>>;

/// Something that a model can call.
pub trait Tool: Send + Sync {
    /// What models are told of it. Must not change while a registry holds the tool.
    fn spec(&self) -> &Arc<ToolSpec>;

    /// Where it comes from, for logs and accounting only; nothing branches on it. The loop itself, where nothing else is said.
    fn origin(&self) -> &str {
        "core"
    }

    /// Runs it. The parameters have passed the schema, the call has passed the policy and is recorded as
    /// intended. Dropping the future cancels it.
    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_>;

    /// What became of a call whose result was never recorded. Asked once a resumed call of effect class `once`.
    fn lookup(&self, effect: EffectId) -> BoxFuture<'_, LookupResult> {
        let _ = effect;
        Box::pin(std::future::ready(LookupResult::Unknown))
    }

    /// What a call would change, for the person who is asked about it. Asked where the tool's annotations say `previews`, once
    /// before the question is recorded; must have no effect. Who drops the future asks no longer.
    fn preview<'a>(
        &'a self,
        params: Box<RawValue>,
        effect: EffectId,
        run: &'a Run,
    ) -> BoxFuture<'a, Result<ToolPreview, Fault>> {
        let _ = (params, effect, run);
        Box::pin(std::future::ready(Err(Fault::unsupported(op::TOOL_PREVIEW))))
    }

    /// The compiled schema of its parameters, where many tools have the same: a compiled schema is many times the
    /// size of its text. None has it compiled.
    fn schema(&self) -> Option<Arc<Schema>> {
        None
    }

    /// A call that an earlier process made and recorded, with its parameters and what it gave, is taken over into `run`
    /// without running again. For tools that keep something in the run itself; must not record anything.
    fn replayed(&self, call: (&str, &str), effect: &EffectId, run: &Arc<Run>) {
        let _ = (call, effect, run);
    }

    /// The agent that it is to whoever calls it, where it is one.
    fn agent(&self) -> Option<CalledAgent<'_>> {
        None
    }
}

/// An agent that is a tool to another.
#[derive(Clone, Copy)]
pub struct CalledAgent<'a> {
    /// The agent that a call of it runs.
    pub id: &'a AgentId,
    /// Whether its task is JSON of its own form, and no text.
    pub takes_json: bool,
    /// The model that answers for it; none where it is code.
    pub model: Option<&'a Arc<dyn Model>>,
}

/// What is particular to one call.
pub struct ToolContext {
    /// The run that calls.
    pub run: Arc<Run>,
    /// The same for each repetition of this call.
    pub effect: EffectId,
    /// Cancelled when the call is to end.
    pub cancel: CancellationToken,
    /// How long it may still take; then it is cancelled.
    pub time: Stopwatch,
    /// Whether an earlier process may have begun this very call.
    pub resumed: bool,
    /// What a person was shown, and filled in, before they agreed.
    pub agreement: Agreement,
    /// What the call holds of the session's gate.
    pub(crate) share: Arc<Share>,
}

/// What came of the question about a call; nothing where nobody was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreement {
    /// The seal of the preview that the person was shown.
    pub shown: Option<String>,
    /// What they filled in, as the text of a JSON object.
    pub given: Option<String>,
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// What the model reads.
    pub content: String,
    /// How the call ended: `Ok`, or what a sub-agent says of itself.
    pub status: ToolStatus,
    /// What the model sees with it. Their bytes are at hand.
    pub images: Vec<Image>,
    /// The run ends with this call. Only a tool of effect class `pure` may say so: an end whose run was cut off is found by
    /// calling the tool again.
    pub ends: Option<RunEnd>,
}

/// How a call ends its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// The task is refused for this reason.
    Refused(String),
    /// The call is the client's to run.
    LeftToClient,
    /// Somebody else talks with the user from here on. `content` is what the run still says to them, if anything.
    Transfer {
        /// To whom, and with which summary.
        transfer: ControlTransfer,
        /// Words to the user; empty where there are none.
        content: String,
    },
}

impl ToolOutput {
    /// Text for the model.
    pub fn text(content: impl Into<String>) -> Self {
        Self { content: content.into(), status: ToolStatus::Ok, images: Vec::new(), ends: None }
    }
}

/// Why a tool gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// How the call ended.
    pub status: ToolStatus,
    /// For the model.
    pub message: String,
}

impl ToolError {
    /// It ran and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { status: ToolStatus::Error, message: message.into() }
    }

    /// It did not run.
    pub fn refused(message: impl Into<String>) -> Self {
        Self { status: ToolStatus::Refused, message: message.into() }
    }
}

/// Parameters that the tool cannot read, though they have passed its schema.
impl From<serde_json::Error> for ToolError {
    fn from(error: serde_json::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<Fault> for ToolError {
    fn from(fault: Fault) -> Self {
        let status = match fault.code {
            FaultCode::Denied | FaultCode::Unsupported => ToolStatus::Refused,
            FaultCode::Cancelled => ToolStatus::Cancelled,
            FaultCode::OutcomeUnknown => ToolStatus::OutcomeUnknown,
            _ => ToolStatus::Error,
        };
        Self { status, message: fault.to_string() }
    }
}
