//! Operations and payloads that cross the waist between the kernel and an extension.
//!
//! Both tables of the boundary have one call: `call(header, operation, payload)`. The constants here name the
//! operations, the types are their payloads in JSON. An operation that a side does not know is answered with
//! [`FaultCode::Unsupported`](crate::FaultCode::Unsupported). What lasts is a *handle*: a number that the
//! kernel gives out, from which the extension pulls items or bytes, or into which it puts bytes. The reader's pace bounds
//! the writer, in both directions. A handle ends when either side closes it, and with the instance that opened it.

mod channel;
mod from_extension;
mod handles;
mod outward;
mod people;
mod processes;

pub use channel::{
    ChannelStream, Delivery, OutboundFile, OutboundKind, OutboundMessage, SETTLED, StreamPart,
};
pub use from_extension::{
    CallTool, Carried, ClientTool, ControlCall, EmbedTexts, EmbeddedTexts, Emit, FileSent, FileSource,
    InboundFile, InvokeAgent, LONGEST_CAPTION, LONGEST_EMBEDDED, Log, MOST_EMBEDDED, MOST_FILES, NotifyUser,
    Progress, QueueMode, RestartRequest, RunAgent, SendFile, Submit, Submitted,
};
pub use handles::{BusMessage, HandleItems, HandleNext, LARGEST_PUT, Subscribe, put_payload, read_put};
pub use outward::{FormPart, OutwardRequest, OutwardResponse};
pub use people::{Admission, LONGEST_SENDER, Sender, StopConversation};
pub use processes::{OpenedProcess, ProcessExit, ProcessOutput, ProcessSpec, RunProcess, TerminalSize};

use std::{collections::BTreeMap, net::SocketAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    AgentDescriptor, AgentId, AgentInvocationContext, CorrelationId, Definition, EffectId, ExtensionId,
    SessionId, ToolName, ToolSpec, TurnId,
};

/// Version of the payloads, raised when something is added. A side that is older ignores what it does not know.
pub const PAYLOAD_VERSION: u32 = 5;

/// Operations that the kernel calls on an extension.
pub mod op {
    /// [`Initialize`](super::Initialize) → `null`.
    pub const INITIALIZE: &str = "initialize";
    /// `null` → `null`; work may begin.
    pub const START: &str = "start";
    /// `null` → `null`; work ends.
    pub const STOP: &str = "stop";
    /// `null` → [`Health`](super::Health).
    pub const HEALTH: &str = "health";
    /// [`ToolCall`](super::ToolCall) → [`ToolResult`](crate::ToolResult).
    pub const TOOL_CALL: &str = "tool.call";
    /// [`ToolCall`](super::ToolCall) without a parent token → [`ToolPreview`](crate::ToolPreview). Nothing may happen by it; it has
    /// two seconds.
    pub const TOOL_PREVIEW: &str = "tool.preview";
    /// [`ToolLookup`](super::ToolLookup) → [`LookupResult`](super::LookupResult).
    pub const TOOL_LOOKUP: &str = "tool.lookup";
    /// `null` → `null`; returns when the channel has begun to listen.
    pub const CHANNEL_START: &str = "channel.start";
    /// [`OutboundMessage`](super::OutboundMessage) → [`Delivery`](super::Delivery).
    pub const CHANNEL_SEND: &str = "channel.send";
    /// [`ChannelStream`](super::ChannelStream) → `null`.
    pub const CHANNEL_STREAM: &str = "channel.stream";
    /// `null` → `null`; runs until the extension stops.
    pub const SERVICE_RUN: &str = "service.run";
    /// [`ScheduleFire`](super::ScheduleFire) → optional text for the user.
    pub const SCHEDULER_EXECUTE: &str = "scheduler.execute";
    /// [`AgentInvoke`](super::AgentInvoke) → [`AgentResponse`](crate::AgentResponse).
    pub const AGENT_INVOKE: &str = "agent.invoke";
    /// [`TurnContext`](super::TurnContext) → [`ContextText`](super::ContextText) or `null`.
    pub const CONTEXT_GET: &str = "context.get";
    /// [`HookCall`](super::HookCall) → [`HookVerdict`](super::HookVerdict).
    pub const HOOK_ON: &str = "hook.on";
    /// [`OperatorAsk`](super::OperatorAsk) → any JSON, the extension's own.
    pub const OPERATOR_ASK: &str = "operator.ask";
    /// [`AgentServers`](super::AgentServers) → `null`; asked of the extension `mcp` when it works and whenever they change.
    pub const AGENT_SERVERS: &str = "agents.servers";
}

/// Operations that an extension calls on the kernel.
pub mod host {
    /// [`Log`](super::Log) → `null`.
    pub const LOG: &str = "host.log";
    /// `u64` milliseconds → `null`.
    pub const SLEEP: &str = "host.sleep";
    /// [`Emit`](super::Emit) → `null`.
    pub const EMIT: &str = "host.emit";
    /// [`Subscribe`](super::Subscribe) → handle of [`BusMessage`](super::BusMessage).
    pub const SUBSCRIBE: &str = "host.subscribe";
    /// [`HandleNext`](super::HandleNext) → [`HandleItems`](super::HandleItems), or the bytes of a handle of bytes.
    pub const HANDLE_NEXT: &str = "handle.next";
    /// [`put_payload`](super::put_payload), at most [`LARGEST_PUT`](super::LARGEST_PUT) bytes → `null`, when there is
    /// room for more.
    pub const HANDLE_PUT: &str = "handle.put";
    /// `u64` handle → `null`.
    pub const HANDLE_CLOSE: &str = "handle.close";
    /// [`CallTool`](super::CallTool) → [`ToolResult`](crate::ToolResult); needs a parent token.
    pub const TOOL_CALL: &str = "tool.call";
    /// [`Progress`](super::Progress) → `null`, when watchers may be told of more; needs a parent token.
    pub const PROGRESS: &str = "call.progress";
    /// [`RunAgent`](super::RunAgent) → [`AgentResponse`](crate::AgentResponse); needs a parent token.
    pub const AGENT_RUN: &str = "agent.run";
    /// [`InvokeAgent`](super::InvokeAgent) → [`AgentResponse`](crate::AgentResponse); needs a parent token.
    pub const AGENT_INVOKE: &str = "agent.invoke";
    /// [`EmbedTexts`](super::EmbedTexts) → [`EmbeddedTexts`](super::EmbeddedTexts); needs a parent token and the right `embed`.
    pub const EMBED: &str = "model.embed";
    /// [`Submit`](super::Submit) → [`Submitted`](super::Submitted); needs the right `submit`.
    pub const SUBMIT: &str = "session.submit";
    /// [`Sender`](super::Sender) → [`Admission`](super::Admission); needs the right `submit`.
    pub const PEOPLE_ADMIT: &str = "people.admit";
    /// [`StopConversation`](super::StopConversation) → how many turns end by it; needs the right `submit`.
    pub const SESSION_STOP: &str = "session.stop";
    /// [`SendFile`](super::SendFile) → [`FileSent`](super::FileSent); needs a parent token and the right `send_files`.
    pub const SEND_FILE: &str = "session.send_file";
    /// [`NotifyUser`](super::NotifyUser) → `null`.
    pub const NOTIFY: &str = "host.notify";
    /// [`RestartRequest`](super::RestartRequest) → `null`; needs the right `restart`.
    pub const RESTART: &str = "host.restart";
    /// [`RunProcess`](super::RunProcess) → [`ProcessOutput`](super::ProcessOutput); needs the right `processes`.
    pub const PROCESS_RUN: &str = "process.run";
    /// [`ProcessSpec`](super::ProcessSpec) → [`OpenedProcess`](super::OpenedProcess); needs the right `processes`.
    pub const PROCESS_OPEN: &str = "process.open";
    /// [`ControlCall`](super::ControlCall) → that method's result; needs the right `control`.
    pub const CONTROL: &str = "control.call";
    /// [`ControlCall`](super::ControlCall) of a method that streams → handle of its items; needs the right `control`.
    pub const CONTROL_OPEN: &str = "control.open";
    /// [`OutwardRequest`](super::OutwardRequest) → [`OutwardResponse`](super::OutwardResponse); needs `bound_secrets` in the manifest.
    pub const HTTP_SEND: &str = "http.send";
    /// `null` → `null`; the tools that `describe` gives have changed.
    pub const TOOLS_CHANGED: &str = "tools.changed";
}

/// What `describe` of an extension gives, before and after `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Description {
    /// [`PAYLOAD_VERSION`] of the release that the extension was built with.
    pub payload_version: u32,
    /// The release of `drupe-extension-api` that it was built with, for messages.
    pub api_release: String,
    /// What it can do. A capability that the kernel does not know is reported and not used.
    pub capabilities: Vec<String>,
    /// After `initialize`: its tools.
    pub tools: Vec<ToolSpec>,
    /// After `initialize`: the agent that it is.
    pub agent: Option<AgentDescriptor>,
    /// After `initialize`: its schedules.
    pub schedules: Vec<Schedule>,
    /// The points at which its hook wants to be called.
    pub hooks: Vec<HookPoint>,
    /// Whether its channel takes files.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub carries_files: bool,
    /// Whether that wants their bytes in its folder of data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reads_files: bool,
    /// Whether its channel sends texts to several addresses at the same time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sends_at_once: bool,
}

/// The capabilities that this release knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Has tools.
    Tool,
    /// Carries messages from and to people.
    Channel,
    Service,
    /// Has tasks with a time.
    Scheduler,
    Agent,
    /// Adds text to what the orchestrator is given with a message.
    Context,
    /// Is asked before and after models, tools and sub-agents run.
    Hook,
}

impl Capability {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Channel => "channel",
            Self::Service => "service",
            Self::Scheduler => "scheduler",
            Self::Agent => "agent",
            Self::Context => "context",
            Self::Hook => "hook",
        }
    }

    /// The capability of that name, if this release knows it.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Tool, Self::Channel, Self::Service, Self::Scheduler, Self::Agent, Self::Context, Self::Hook]
            .into_iter()
            .find(|c| c.name() == name)
    }
}

/// What an extension learns when it is initialized.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Initialize {
    pub id: ExtensionId,
    /// Its configuration: the manifest's defaults with the operator's values over them.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// The secrets that its manifest names.
    #[serde(default)]
    pub secrets: Map<String, Value>,
    /// The folder that it may write.
    pub data_folder: String,
    /// Its own folder, to read.
    pub folder: String,
    /// The root of the file tools.
    pub workspace: String,
    /// Its validated `agent` section with rendered instructions.
    #[serde(default)]
    pub agent: Option<Definition>,
    /// The tools that `uses_tools` resolved to.
    #[serde(default)]
    pub resolved_tools: Vec<ToolSpec>,
    /// Where the `program_folders` of its manifest are, in their order; an empty text for one that is nowhere.
    #[serde(default)]
    pub program_folders: Vec<String>,
    /// The model that makes vectors of texts, as `provider/model`; none where there is none, or it lacks the right `embed`.
    #[serde(default)]
    pub embedding_model: Option<String>,
    /// The sockets of `listen` of its manifest, open.
    #[serde(default)]
    pub listening: Vec<Listening>,
}

/// A socket that the daemon opened for an extension, and that stays open as long as this instance lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The key of the configuration that has its address.
    pub key: String,
    /// Where it listens: with the port that it got, where the configuration asks for port 0.
    pub address: SocketAddr,
    /// The descriptor, in the process that runs the extension's code.
    pub descriptor: i32,
}

/// What is particular to one call; it comes with the call and only there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallContext {
    /// The conversation.
    pub session: SessionId,
    pub turn: TurnId,
    pub agent: AgentId,
    /// The agents above it, root first, the caller last.
    #[serde(default)]
    pub call_path: Vec<AgentId>,
    /// On whose behalf the first of them answers: who handed the conversation to it, or gave its session that agent. Empty
    /// where it answers for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_behalf_of: Vec<AgentId>,
    /// The root of relative paths.
    pub base_folder: String,
    /// When the call is cancelled.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// Tokens that the calling run has left.
    #[serde(default)]
    pub remaining_tokens: Option<u64>,
    /// Links everything of the turn.
    pub correlation_id: CorrelationId,
    /// The same for each repetition of this call.
    pub effect_id: EffectId,
    /// The conversation holds text of strangers.
    #[serde(default)]
    pub tainted: bool,
    /// The seal of the preview that a person was shown before they agreed to this call; none where nobody was shown one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// What a person filled in for this call, as the [input](crate::ToolPreview::input) of its preview asks; `true` for each
    /// secret that is kept. None where nobody was asked for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Map<String, Value>>,
}

/// Payload of [`op::TOOL_CALL`].
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolCall {
    pub name: ToolName,
    /// Its parameters, validated.
    pub params: Box<RawValue>,
    /// What is particular to this call.
    pub context: CallContext,
}

/// Payload of [`op::TOOL_LOOKUP`].
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolLookup {
    pub name: ToolName,
    /// The call whose outcome is asked for.
    pub effect_id: EffectId,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum LookupResult {
    /// It happened, with this result.
    Done {
        content: String,
    },
    NotDone,
    Unknown,
}

/// One task of a scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    pub name: String,
    /// When: cron (`0 8 * * 1-5`), `@every 30m`, or a date (`2026-12-24 18:00`).
    pub cron: String,
    /// The time zone of that; none for that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

impl Schedule {
    /// One in the time zone of the configuration.
    pub fn new(name: impl Into<String>, cron: impl Into<String>) -> Self {
        Self { name: name.into(), cron: cron.into(), timezone: None }
    }
}

/// Payload of [`op::SCHEDULER_EXECUTE`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScheduleFire {
    pub name: String,
}

/// Payload of [`op::AGENT_INVOKE`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentInvoke {
    /// What to do, in words, or JSON where the agent has a JSON input.
    pub task: String,
    /// What it learns of the conversation.
    #[serde(default)]
    pub context: AgentInvocationContext,
    /// What is particular to this call.
    pub call: CallContext,
}

/// Payload of [`op::OPERATOR_ASK`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperatorAsk {
    /// What is asked, by a name that the extension gives it.
    pub ask: String,
    #[serde(default)]
    pub params: Value,
}

/// Payload of [`op::AGENT_SERVERS`]: all of them each time, so that what is missing is gone.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentServers {
    /// The `mcp_servers` of the manifests of agents, by their names. They hold secrets.
    #[serde(default)]
    pub agents: BTreeMap<AgentId, BTreeMap<String, Value>>,
}

/// Payload of [`op::CONTEXT_GET`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnContext {
    /// The conversation.
    pub session: SessionId,
    pub message: String,
}

/// Text that the orchestrator is given with a message, as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextText {
    pub text: String,
    /// Higher comes first and is dropped last.
    #[serde(default)]
    pub priority: i32,
    /// It holds text of strangers, so that the conversation counts as holding such text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
}

impl ContextText {
    /// A text of the usual priority that no stranger wrote.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), priority: 0, untrusted: false }
    }
}

/// Where a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    TurnStart,
    TurnEnd,
    /// A model is about to be asked.
    BeforeModel,
    AfterModel,
    /// A tool is about to run.
    BeforeTool,
    AfterTool,
    /// A sub-agent is about to run.
    BeforeAgent,
    AfterAgent,
}

/// Payload of [`op::HOOK_ON`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HookCall {
    pub point: HookPoint,
    pub facts: Value,
}

/// What a hook decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum HookVerdict {
    Continue,
    /// Do not; only `before` points and the start of a turn can be blocked.
    Block {
        /// Why, for the model and for people.
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Whether it can do its work.
    pub ok: bool,
    /// Why not, or a remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
