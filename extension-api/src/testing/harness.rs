//! One extension behind its table, driven by a test.

use std::{
    marker::PhantomData,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use drupe_extension_abi::{CallHeader, ExtensionBox, Reply};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::to_raw_value};
use tempfile::TempDir;

use super::{FakeHost, schema};
use crate::{
    AgentInvocationContext, AgentResponse, Definition, EffectId, Fault, FaultCode, ToolName, ToolPreview,
    ToolResult,
    sdk::{Exported, export},
    wire::{
        AgentInvoke, CallContext, ChannelStream, ContextText, Delivery, Description, Health, HookCall,
        HookVerdict, Initialize, Listening, LookupResult, OperatorAsk, OutboundMessage, ScheduleFire,
        ToolCall, ToolLookup, TurnContext, op,
    },
};

/// An extension that runs in a test. Dropping it closes the extension and removes its temporary folders; it panics
/// where a function that the test gave the [`FakeHost`] for an answer panicked.
pub struct Harness<E: Exported> {
    extension: Arc<ExtensionBox>,
    host: FakeHost,
    folders: Folders,
    _type: PhantomData<fn() -> E>,
}

struct Folders {
    data: PathBuf,
    workspace: PathBuf,
    _root: TempDir,
}

/// What an extension is given before it starts.
#[derive(Debug)]
pub struct Setup<E: Exported> {
    given: Initialize,
    host: FakeHost,
    _type: PhantomData<fn() -> E>,
}

impl<E: Exported> Harness<E> {
    /// Initializes and starts an extension with a configuration, a JSON object. Everything else is as in
    /// [`setup`](Self::setup).
    pub async fn start(config: Value) -> Result<Self, Fault> {
        Self::setup().config(config).start().await
    }

    /// An extension of id `test` with empty folders of its own that go with the harness.
    pub fn setup() -> Setup<E> {
        let given = Initialize {
            id: name("test"),
            config: Map::new(),
            secrets: Map::new(),
            data_folder: String::new(),
            folder: String::new(),
            workspace: String::new(),
            agent: None,
            resolved_tools: Vec::new(),
            program_folders: Vec::new(),
            embedding_model: None,
            listening: Vec::new(),
        };
        Setup { given, host: FakeHost::default(), _type: PhantomData }
    }

    /// The kernel that it sees.
    pub fn host(&self) -> &FakeHost {
        &self.host
    }

    /// Where it may write.
    pub fn data_folder(&self) -> &Path {
        &self.folders.data
    }

    /// The root of the file tools.
    pub fn workspace(&self) -> &Path {
        &self.folders.workspace
    }

    /// What it says of itself.
    pub fn describe(&self) -> Result<Description, Fault> {
        Ok(serde_json::from_slice(&self.extension.describe())?)
    }

    /// Calls one of its tools; gives what a model would read.
    pub async fn call(&self, tool: &str, params: Value) -> Result<String, Fault> {
        self.calling().call(tool, params).await
    }

    /// Calls its tools with another context.
    pub fn calling(&self) -> Calling<'_, E> {
        Calling { harness: self, context: context() }
    }

    /// Asks a tool what became of a call.
    pub async fn lookup(&self, tool: &str, effect: &str) -> Result<LookupResult, Fault> {
        let lookup = ToolLookup { name: ToolName::new(tool)?, effect_id: EffectId::new(effect)? };
        self.ask(op::TOOL_LOOKUP, &lookup).await
    }

    /// Gives its agent a task.
    pub async fn invoke(&self, task: &str) -> Result<AgentResponse, Fault> {
        let invoke = AgentInvoke {
            task: task.to_owned(),
            context: AgentInvocationContext::default(),
            call: context(),
        };
        self.ask(op::AGENT_INVOKE, &invoke).await
    }

    /// Asks how it is.
    pub async fn health(&self) -> Result<Health, Fault> {
        self.ask(op::HEALTH, &()).await
    }

    /// Stops it. Its state lives until [`close`](Self::close).
    pub async fn stop(&self) -> Result<(), Fault> {
        self.ask(op::STOP, &()).await
    }

    /// Ends the instance.
    pub fn close(&self) {
        self.extension.close();
    }

    /// Lets its channel begin to listen.
    pub async fn channel_start(&self) -> Result<(), Fault> {
        self.ask(op::CHANNEL_START, &()).await
    }

    /// Delivers a message through its channel.
    pub async fn channel_send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        self.ask(op::CHANNEL_SEND, &message).await
    }

    /// Shows a part of an answer through its channel.
    pub async fn channel_stream(&self, part: ChannelStream) -> Result<(), Fault> {
        self.ask(op::CHANNEL_STREAM, &part).await
    }

    /// Runs its service until it returns.
    pub async fn run_service(&self) -> Result<(), Fault> {
        self.ask(op::SERVICE_RUN, &()).await
    }

    /// Does one of its scheduled tasks.
    pub async fn execute(&self, schedule: &str) -> Result<Option<String>, Fault> {
        self.ask(op::SCHEDULER_EXECUTE, &ScheduleFire { name: schedule.to_owned() }).await
    }

    /// Asks for its text for a turn.
    pub async fn context_for(&self, message: &str) -> Result<Option<ContextText>, Fault> {
        let turn = TurnContext { session: context().session, message: message.to_owned() };
        self.ask(op::CONTEXT_GET, &turn).await
    }

    /// Asks as the operator does.
    pub async fn operator_asks(&self, ask: &str, params: Value) -> Result<Value, Fault> {
        self.ask(op::OPERATOR_ASK, &OperatorAsk { ask: ask.to_owned(), params }).await
    }

    /// Asks its hook.
    pub async fn hook(&self, call: HookCall) -> Result<HookVerdict, Fault> {
        self.ask(op::HOOK_ON, &call).await
    }

    /// Any operation with any payload, on behalf of a call where a kernel would give it one.
    pub async fn ask<R: DeserializeOwned>(
        &self,
        operation: &str,
        payload: &(impl Serialize + Sync),
    ) -> Result<R, Fault> {
        let on_behalf = matches!(operation, op::TOOL_CALL | op::AGENT_INVOKE | op::CONTEXT_GET);
        let token = on_behalf.then(|| Token::new(&self.host));
        call(&self.extension, token.as_ref().map_or("", |token| &token.0), operation, payload).await
    }
}

impl<E: Exported> Drop for Harness<E> {
    fn drop(&mut self) {
        self.extension.close();
        let failed = self.host.record().failed.take();
        // An extension that made nothing of the fault must not let the test pass.
        if let (Some(message), false) = (failed, std::thread::panicking()) {
            panic!("{message}");
        }
    }
}

impl<E: Exported> std::fmt::Debug for Harness<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Harness").field("host", &self.host).finish_non_exhaustive()
    }
}

impl<E: Exported> Setup<E> {
    /// Its id.
    pub fn id(mut self, id: &str) -> Self {
        self.given.id = name(id);
        self
    }

    /// Its configuration; anything but an object counts as an empty one.
    pub fn config(mut self, config: Value) -> Self {
        self.given.config = match config {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        self
    }

    /// One of its secrets.
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.given.secrets.insert(name.to_owned(), Value::from(value));
        self
    }

    /// Its data folder, for state that outlives an instance. It must exist.
    pub fn data_folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.given.data_folder = folder.as_ref().display().to_string();
        self
    }

    /// The root of the file tools. It must exist.
    pub fn workspace(mut self, folder: impl AsRef<Path>) -> Self {
        self.given.workspace = folder.as_ref().display().to_string();
        self
    }

    /// Its own folder.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.given.folder = folder.as_ref().display().to_string();
        self
    }

    /// The `agent` section of its manifest.
    pub fn agent(mut self, definition: Definition) -> Self {
        self.given.agent = Some(definition);
        self
    }

    /// Gives it a folder that its programs may read, after those that it has.
    #[must_use]
    pub fn program_folder(mut self, folder: &str) -> Self {
        self.given.program_folders.push(folder.to_owned());
        self
    }

    /// Lets there be a model that makes vectors; [`FakeHost::answer_embeddings_with`] says which.
    #[must_use]
    pub fn embedding_model(mut self, model: &str) -> Self {
        self.given.embedding_model = Some(model.to_owned());
        self
    }

    /// Hands it an open socket under a key of its configuration. The socket must outlive the extension.
    #[must_use]
    pub fn listener(mut self, key: &str, socket: &std::net::TcpListener) -> Self {
        let address = socket.local_addr().expect("an open socket has an address");
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(socket);
        self.given.listening.push(Listening { key: key.to_owned(), address, descriptor });
        self
    }

    /// The kernel that it will see, where a test prepares answers for `initialize` or `start`.
    pub fn host(&self) -> &FakeHost {
        &self.host
    }

    /// Initializes and starts it.
    pub async fn start(self) -> Result<Harness<E>, Fault> {
        let harness = self.initialize().await?;
        harness.ask::<()>(op::START, &()).await?;
        Ok(harness)
    }

    /// Initializes it and no more.
    pub async fn initialize(mut self) -> Result<Harness<E>, Fault> {
        let root = tempfile::tempdir()?;
        for (folder, place) in [
            ("data", &mut self.given.data_folder),
            ("folder", &mut self.given.folder),
            ("workspace", &mut self.given.workspace),
        ] {
            if place.is_empty() {
                let path = root.path().join(folder);
                std::fs::create_dir(&path)?;
                *place = path.display().to_string();
            }
        }
        let extension = Arc::new(export::open::<E>(self.host.table()));
        self.host.attach(&extension);
        let folders = Folders {
            data: (&self.given.data_folder).into(),
            workspace: (&self.given.workspace).into(),
            _root: root,
        };
        let harness = Harness { extension, host: self.host, folders, _type: PhantomData };
        harness.ask::<()>(op::INITIALIZE, &self.given).await?;
        Ok(harness)
    }
}

/// Calls of tools with a context that the test chose.
#[derive(Debug)]
pub struct Calling<'a, E: Exported> {
    harness: &'a Harness<E>,
    context: CallContext,
}

impl<E: Exported> Calling<'_, E> {
    /// The agent that calls.
    pub fn agent(mut self, agent: &str) -> Self {
        self.context.agent = name(agent);
        self
    }

    /// The turn.
    pub fn turn(mut self, turn: &str) -> Self {
        self.context.turn = name(turn);
        self
    }

    /// The conversation.
    pub fn session(mut self, session: &str) -> Self {
        self.context.session = name(session);
        self
    }

    /// The root of relative paths.
    pub fn base_folder(mut self, folder: &str) -> Self {
        self.context.base_folder = folder.to_owned();
        self
    }

    /// The id of the effect.
    pub fn effect(mut self, effect: &str) -> Self {
        self.context.effect_id = name(effect);
        self
    }

    /// In a conversation that holds text of strangers.
    pub fn tainted(mut self) -> Self {
        self.context.tainted = true;
        self
    }

    /// After a person agreed to what a preview with this seal said.
    pub fn shown(mut self, seal: &str) -> Self {
        self.context.shown = Some(seal.to_owned());
        self
    }

    /// After a person filled in what a preview asked for.
    pub fn given(mut self, values: Map<String, Value>) -> Self {
        self.context.given = Some(values);
        self
    }

    /// What one of its tools says that a call would change.
    pub async fn preview(self, tool: &str, params: Value) -> Result<ToolPreview, Fault> {
        let payload =
            ToolCall { name: ToolName::new(tool)?, params: to_raw_value(&params)?, context: self.context };
        self.harness.ask(op::TOOL_PREVIEW, &payload).await
    }

    /// Calls one of its tools; gives what a model would read.
    pub async fn call(self, tool: &str, params: Value) -> Result<String, Fault> {
        self.result(tool, params).await.map(|result| result.content)
    }

    /// Calls one of its tools; gives all that the kernel is given.
    pub async fn result(self, tool: &str, params: Value) -> Result<ToolResult, Fault> {
        call_tool(&self.harness.extension, &self.harness.host, self.context, tool, &params).await
    }
}

/// What a call bears unless the test says otherwise.
pub(super) fn context() -> CallContext {
    CallContext {
        session: name("session-1"),
        turn: name("turn-1"),
        agent: name("orchestrator"),
        call_path: vec![name("orchestrator")],
        on_behalf_of: Vec::new(),
        base_folder: String::new(),
        deadline: None,
        remaining_tokens: None,
        correlation_id: name("correlation-1"),
        effect_id: name("effect-1"),
        tainted: false,
        shown: None,
        given: None,
    }
}

/// A test that names a thing wrongly is wrong itself.
fn name<T: FromStr<Err = crate::InvalidId>>(text: &str) -> T {
    text.parse().expect("a test gives valid names")
}

pub(super) async fn call_tool(
    extension: &ExtensionBox,
    host: &FakeHost,
    context: CallContext,
    tool: &str,
    params: &Value,
) -> Result<ToolResult, Fault> {
    let described: Description = serde_json::from_slice(&extension.describe())?;
    let spec = described.tools.iter().find(|spec| spec.name.as_str() == tool);
    if let Some(misfit) = spec.and_then(|spec| schema::misfit(&spec.input_schema, params, "")) {
        return Err(Fault::invalid(format!("the parameters do not fit the schema of `{tool}`: {misfit}")));
    }
    let payload = ToolCall { name: ToolName::new(tool)?, params: to_raw_value(params)?, context };
    let token = Token::new(host);
    call(extension, &token.0, op::TOOL_CALL, &payload).await
}

/// The right to call back, as long as the call lives.
struct Token(String, FakeHost);

impl Token {
    fn new(host: &FakeHost) -> Self {
        let mut record = host.record();
        let token = format!("token-{}", record.number());
        record.tokens.insert(token.clone());
        drop(record);
        Self(token, host.clone())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.1.record().tokens.remove(&self.0);
    }
}

async fn call<R: DeserializeOwned>(
    extension: &ExtensionBox,
    token: &str,
    operation: &str,
    payload: &impl Serialize,
) -> Result<R, Fault> {
    let header = CallHeader { call_id: 0, deadline_ms: 0, parent_token: token.into(), trace: "".into() };
    let reply = extension.call(header, operation.into(), serde_json::to_vec(payload)?.into()).await;
    match reply.status {
        Reply::OK => Ok(serde_json::from_slice(&reply.body)?),
        _ => Err(serde_json::from_slice(&reply.body)
            .unwrap_or_else(|e| Fault::new(FaultCode::Other, format!("a fault that cannot be read: {e}")))),
    }
}
