//! One call of the kernel, and what may be done on its behalf.

use std::{
    fmt,
    future::IntoFuture,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::Serialize;
use serde_json::{Map, Value, json, value::to_raw_value};

use super::{
    guard::BoxFuture,
    shared::{Origin, Shared},
    turn,
};
use crate::{
    AgentId, AgentInvocationContext, AgentResponse, Definition, Fault, ImageData, ToolName, ToolResult,
    wire::{
        CallContext, CallTool, Emit, FileSent, InvokeAgent, Progress, RestartRequest, RunAgent, SendFile,
        host,
    },
};

/// One call: its [`CallContext`] (`call.session`, `call.agent`, `call.effect_id`, …), and the calls that may
/// be made for it. These count towards the caller's budget and stand under its policy; they are possible
/// while this call lives and refused afterwards.
#[derive(Clone)]
pub struct Call {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    origin: Origin,
    context: CallContext,
    tool: Option<ToolName>,
    read_untrusted: AtomicBool,
    images: Mutex<Vec<ImageData>>,
}

impl Call {
    pub(crate) fn new(
        shared: Arc<Shared>,
        origin: Origin,
        context: CallContext,
        tool: Option<ToolName>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                shared,
                origin,
                context,
                tool,
                read_untrusted: AtomicBool::new(false),
                images: Mutex::default(),
            }),
        }
    }

    /// The tool that was called; none where an agent was.
    pub fn tool(&self) -> Option<&ToolName> {
        self.inner.tool.as_ref()
    }

    /// Says that the result of this call holds text of strangers, as those of a tool with the label `reads_untrusted` always
    /// do. From then on the conversation counts as holding such text. It has no effect on a call that ends with a fault.
    pub fn read_untrusted(&self) {
        self.inner.read_untrusted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_read_untrusted(&self) -> bool {
        self.inner.read_untrusted.load(Ordering::Relaxed)
    }

    /// Shows the model a picture beside the text of the result, after those that were shown before. A model that reads no
    /// pictures is told that there is one, so let the text say what it is of. It has no effect on a call that ends with a fault.
    pub fn show_image(&self, image: ImageData) {
        self.inner.images.lock().unwrap_or_else(PoisonError::into_inner).push(image);
    }

    pub(crate) fn shown_images(&self) -> Vec<ImageData> {
        std::mem::take(&mut self.inner.images.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls one of [`Host::resolved_tools`](super::Host::resolved_tools).
    pub async fn call_tool(
        &self,
        name: &str,
        params: &(impl Serialize + ?Sized),
    ) -> Result<ToolResult, Fault> {
        let call = CallTool { name: ToolName::new(name)?, params: to_raw_value(params)? };
        self.inner.shared.request(&self.inner.origin, host::TOOL_CALL, &call).await
    }

    /// Has a person asked for a secret, which is kept under that name, the name of a variable, and given to nobody here.
    /// `purpose`: what it is for and where they get it, at most 500 characters. Waits as long as the question does, and the time
    /// of this call stands still meanwhile. Needs the right `secure_input`.
    ///
    /// # Errors
    /// [`FaultCode::Denied`](crate::FaultCode::Denied) where it is denied, nobody answers, or nobody can be asked.
    pub async fn request_secure_input(&self, name: &str, purpose: &str) -> Result<(), Fault> {
        self.call_tool("request_secure_input", &json!({"name": name, "purpose": purpose})).await.map(drop)
    }

    /// Has a person fill in what a JSON Schema of one flat object asks for, without secrets. `message` says what for, in at most
    /// 4096 characters. The same holds as for [`request_secure_input`](Self::request_secure_input).
    ///
    /// # Errors
    /// The same, and a schema that nobody can be asked for line by line.
    pub async fn request_input(&self, message: &str, schema: &Value) -> Result<Map<String, Value>, Fault> {
        let given = self.call_tool("request_input", &json!({"message": message, "schema": schema})).await?;
        Ok(serde_json::from_str(&given.content)?)
    }

    /// Sends a file of the workspace, by its path in there, to whoever wrote in this conversation, with a text beside it. `sha256` is the
    /// hash of what it must hold, in hex. It is sent once, however often this call is repeated. Needs the right `send_files`.
    pub async fn send_file(
        &self,
        path: impl Into<String>,
        text: impl Into<String>,
        sha256: Option<String>,
    ) -> Result<FileSent, Fault> {
        let effect_id = self.effect_id.clone();
        let file = SendFile { effect_id, path: path.into(), text: text.into(), sha256 };
        self.inner.shared.request(&self.inner.origin, host::SEND_FILE, &file).await
    }

    /// Runs the kernel's loop with an agent of the extension's own making. The run may use the tools that the
    /// manifest's `uses_tools` names, and those of [`own_tools`](RunAgentCall::own_tools).
    ///
    /// ```
    /// # use drupe_extension_api::prelude::*;
    /// # async fn example(host: Host, call: Call) -> Result<AgentResponse, Fault> {
    /// let Some(definition) = host.agent() else { return Err(Fault::invalid("no `agent` section")) };
    /// call.run_agent(definition.clone(), "Write a haiku.").own_tools(["haiku_check"]).await
    /// # }
    /// ```
    pub fn run_agent(&self, definition: Definition, task: impl Into<String>) -> RunAgentCall {
        let context = AgentInvocationContext::default();
        RunAgentCall { call: self.clone(), definition, task: task.into(), context, own_tools: Vec::new() }
    }

    /// Shows a part of the output while the call goes on, to whoever watches; it is not kept.
    pub async fn progress(&self, text: impl Into<String>) -> Result<(), Fault> {
        let progress = Progress { effect_id: self.effect_id.clone(), text: text.into() };
        self.inner.shared.request(&self.inner.origin, host::PROGRESS, &progress).await
    }

    /// Has the daemon's [model for vectors](super::Host::embedding_model) make a vector of each text, at most
    /// [`MOST_EMBEDDED`](crate::wire::MOST_EMBEDDED) of them, within a time. They are not normalised. It counts towards the caller's
    /// budget, and is tried once. Needs the right `embed`.
    ///
    /// # Errors
    /// [`FaultCode::NotConfigured`](crate::FaultCode::NotConfigured) where there is no such model,
    /// [`FaultCode::Budget`](crate::FaultCode::Budget) where a limit stands in the way, and whatever the provider says.
    pub async fn embed(&self, texts: Vec<String>, timeout_ms: u64) -> Result<Vec<Vec<f32>>, Fault> {
        turn::embed(&self.inner.shared, &self.inner.origin, texts, timeout_ms).await
    }

    /// Publishes a message on this extension's topic `<id>.<topic>`, as set off by this call: it bears the turn's
    /// correlation id, and what it sets off counts as set off by the turn.
    pub async fn emit(&self, topic: &str, payload: &(impl Serialize + ?Sized)) -> Result<(), Fault> {
        let emit = Emit { topic: topic.to_owned(), payload: serde_json::to_value(payload)? };
        self.inner.shared.request(&self.inner.origin, host::EMIT, &emit).await
    }

    /// Asks the supervisor for a restart, which comes when the turn of this call has ended; its outcome is told to
    /// the session. Needs the right `restart`.
    pub async fn request_restart(&self, reason: impl Into<String>) -> Result<(), Fault> {
        let request = RestartRequest { reason: reason.into() };
        self.inner.shared.request(&self.inner.origin, host::RESTART, &request).await
    }

    /// Calls another agent, one that the manifest's `uses_agents` names.
    pub fn invoke_agent(&self, agent: &str, task: impl Into<String>) -> InvokeAgentCall {
        InvokeAgentCall { call: self.clone(), agent: agent.to_owned(), task: task.into(), summary: None }
    }
}

impl Deref for Call {
    type Target = CallContext;

    fn deref(&self) -> &CallContext {
        &self.inner.context
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token that the kernel gave stays out of logs.
        f.debug_struct("Call").field("tool", &self.inner.tool).field("context", &self.inner.context).finish()
    }
}

/// A run of the loop that is about to begin; `.await` begins it.
#[must_use = "nothing runs until it is awaited"]
#[derive(Debug)]
pub struct RunAgentCall {
    call: Call,
    definition: Definition,
    task: String,
    context: AgentInvocationContext,
    own_tools: Vec<String>,
}

impl RunAgentCall {
    /// The extension's own tools that the run may use, by name.
    pub fn own_tools<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.own_tools.extend(names.into_iter().map(Into::into));
        self
    }

    /// What the run learns of the conversation.
    pub fn context(mut self, context: AgentInvocationContext) -> Self {
        self.context = context;
        self
    }

    async fn run(self) -> Result<AgentResponse, Fault> {
        let own_tools = self.own_tools.iter().map(ToolName::new).collect::<Result<_, _>>()?;
        let Self { call, definition, task, context, .. } = self;
        let run = RunAgent { definition, task, context, own_tools };
        call.inner.shared.request(&call.inner.origin, host::AGENT_RUN, &run).await
    }
}

impl IntoFuture for RunAgentCall {
    type Output = Result<AgentResponse, Fault>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// A call of another agent that is about to begin; `.await` begins it.
#[must_use = "nothing runs until it is awaited"]
#[derive(Debug)]
pub struct InvokeAgentCall {
    call: Call,
    agent: String,
    task: String,
    summary: Option<String>,
}

impl InvokeAgentCall {
    /// What the agent learns of the conversation.
    pub fn summary(mut self, summary: impl Into<String>) -> Self {
        self.summary = Some(summary.into());
        self
    }

    async fn run(self) -> Result<AgentResponse, Fault> {
        let Self { call, agent, task, summary } = self;
        let invoke = InvokeAgent { agent: AgentId::new(agent)?, task, summary };
        call.inner.shared.request(&call.inner.origin, host::AGENT_INVOKE, &invoke).await
    }
}

impl IntoFuture for InvokeAgentCall {
    type Output = Result<AgentResponse, Fault>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
