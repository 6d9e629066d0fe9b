//! The control API: what the command line and other surfaces ask of a running daemon.
//!
//! On the control socket each line is one JSON object. A client sends [`Request`]s; the first is
//! [`method::HELLO`]. The daemon answers each with one [`Reply`] of the same `id`, or, for
//! [`method::EVENTS_SUBSCRIBE`], with many events, after which the result is `null`.

mod extensions;
mod insight;

pub use extensions::{
    Approval, ApprovalAnswer, ApprovalState, ExtensionDetail, ExtensionState, ExtensionStatus, Scaffold,
    StateChange,
};

pub use insight::{
    CallKind, Cited, DeadMessage, Explanation, ItemArgument, ItemText, Numbered, TraceArgument, TraceNode,
    TurnTrace, UsageBy, UsageQuery, UsageRow,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    AgentId, Event, FailureClass, Fault, InvocationId, Message, ResponseStatus, SessionId, Spend, TurnId,
    Usage,
};

/// Version of the control API.
pub const CONTROL_VERSION: u32 = 1;

/// The longest request line, in bytes.
pub const MAX_REQUEST: usize = 4 * 1024 * 1024;

/// The methods.
pub mod method {
    /// [`Hello`](super::Hello) → [`Welcome`](super::Welcome).
    pub const HELLO: &str = "hello";
    /// → [`Status`](super::Status).
    pub const STATUS: &str = "status";
    /// Ends the daemon after its running turns. → `null`.
    pub const STOP: &str = "stop";
    /// [`Restart`](super::Restart) → `null`, once it is agreed.
    pub const RESTART: &str = "restart";
    /// → list of [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_LIST: &str = "extensions.list";
    /// [`Named`](super::Named) → [`ExtensionDetail`](super::ExtensionDetail).
    pub const EXTENSIONS_SHOW: &str = "extensions.show";
    /// [`PathArgument`](super::PathArgument) → [`CheckReport`](super::CheckReport).
    pub const EXTENSIONS_CHECK: &str = "extensions.check";
    /// [`PathArgument`](super::PathArgument): copies a checked folder to where extensions live and takes it in. →
    /// [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_ADD: &str = "extensions.add";
    /// [`Named`](super::Named): turns an extension on, over its manifest. → [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_ENABLE: &str = "extensions.enable";
    /// [`Named`](super::Named): turns an extension off, over its manifest. → [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_DISABLE: &str = "extensions.disable";
    /// [`Named`](super::Named): lifts a quarantine and tries the extension again. →
    /// [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_RELEASE: &str = "extensions.release";
    /// [`Scaffold`](super::Scaffold): writes the beginning of a native extension. → `null`.
    pub const EXTENSIONS_SCAFFOLD: &str = "extensions.scaffold";
    /// → list of [`Approval`](super::Approval), those that wait first.
    pub const APPROVALS_LIST: &str = "approvals.list";
    /// [`ApprovalAnswer`](super::ApprovalAnswer) → [`Approval`](super::Approval) as it is then.
    pub const APPROVALS_ANSWER: &str = "approvals.answer";
    /// → list of [`AgentStatus`](super::AgentStatus).
    pub const AGENTS_LIST: &str = "agents.list";
    /// [`Named`](super::Named) → [`AgentDetail`](super::AgentDetail).
    pub const AGENTS_SHOW: &str = "agents.show";
    /// → list of [`SessionStatus`](super::SessionStatus).
    pub const SESSIONS_LIST: &str = "sessions.list";
    /// [`SessionShow`](super::SessionShow) → [`SessionDetail`](super::SessionDetail).
    pub const SESSIONS_SHOW: &str = "sessions.show";
    /// [`SessionSelect`](super::SessionSelect) → `null`; the agent that answers in a session from now on.
    pub const SESSION_SELECT: &str = "session.select";
    /// [`Submit`](crate::wire::Submit) → [`Submitted`](crate::wire::Submitted).
    pub const TURN_SUBMIT: &str = "turn.submit";
    /// [`TurnArgument`](super::TurnArgument) → [`TurnResult`](super::TurnResult), when the turn has ended.
    pub const TURN_WAIT: &str = "turn.wait";
    /// [`TurnArgument`](super::TurnArgument) → `null`; cancels it.
    pub const TURN_STOP: &str = "turn.stop";
    /// [`Named`](super::Named): cancels the session's running turn and those that wait. → number of turns.
    pub const SESSIONS_STOP: &str = "sessions.stop";
    /// [`TraceArgument`](super::TraceArgument) → list of [`TurnTrace`](super::TurnTrace), oldest first.
    pub const TRACE_SHOW: &str = "trace.show";
    /// [`UsageQuery`](super::UsageQuery) → list of [`UsageRow`](super::UsageRow).
    pub const USAGE_SHOW: &str = "usage.show";
    /// [`Named`](super::Named): a turn, session, run, tool call, extension, limit or message of the bus. →
    /// [`Explanation`](super::Explanation).
    pub const WHY: &str = "why";
    /// [`ItemArgument`](super::ItemArgument) → [`ItemText`](super::ItemText): what a preview shows the beginning of.
    pub const ITEMS_SHOW: &str = "items.show";
    /// → list of [`DeadMessage`](super::DeadMessage).
    pub const BUS_DEAD: &str = "bus.dead";
    /// [`Numbered`](super::Numbered): delivers a dead message again. → `null`.
    pub const BUS_RETRY: &str = "bus.retry";
    /// [`Numbered`](super::Numbered): forgets a dead message. → `null`.
    pub const BUS_DROP: &str = "bus.drop";
    /// [`EventsSubscribe`](super::EventsSubscribe) → [`Event`](crate::Event)s.
    pub const EVENTS_SUBSCRIBE: &str = "events.subscribe";
    /// → list of [`ConfigValue`](super::ConfigValue).
    pub const CONFIG_SHOW: &str = "config.show";
}

/// One question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The client's number for it; replies bear it.
    pub id: u64,
    /// What is asked.
    pub method: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Value,
}

/// One answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// The request's number.
    pub id: u64,
    /// What the answer is.
    #[serde(flatten)]
    pub body: ReplyBody,
}

/// What an answer is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyBody {
    /// Done.
    Result(Value),
    /// Not done.
    Error(Fault),
    /// One of many.
    Event(Box<Event>),
}

/// The first request of a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The content of the home's token file.
    pub token: String,
    /// [`CONTROL_VERSION`] of the client.
    #[serde(default)]
    pub version: u32,
}

/// Answer to [`Hello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Welcome {
    /// [`CONTROL_VERSION`] of the daemon.
    pub version: u32,
    /// Who answers: `kernel`, or `supervisor` while there is no kernel.
    pub from: String,
}

/// What the daemon is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonState {
    /// A kernel is loading extensions.
    Starting,
    /// A kernel serves.
    Ready,
    /// A kernel lets its turns end.
    Draining,
    /// Between two kernels.
    Restarting,
    /// Ending.
    Stopped,
}

/// Answer to [`method::STATUS`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Release of drupe.
    pub version: String,
    /// What it is doing.
    pub state: DaemonState,
    /// Process of the supervisor.
    pub supervisor_pid: u32,
    /// Process of the kernel.
    pub kernel_pid: Option<u32>,
    /// Number of the kernel's start in this home, from 1.
    pub generation: u64,
    /// Age of the kernel in milliseconds.
    pub uptime_ms: u64,
    /// Restarts since the supervisor began.
    pub restarts: u32,
    /// Whether third-party extensions were left out.
    pub safe_mode: bool,
    /// The default model.
    pub model: Option<String>,
    /// Number of sessions.
    pub sessions: u64,
    /// Turns that run.
    #[serde(default)]
    pub running_turns: u64,
    /// Turns that wait.
    #[serde(default)]
    pub queued_turns: u64,
    /// What is used of the bounds for a day, and of those for an agent and a session by whoever has used most.
    #[serde(default)]
    pub budgets: Vec<crate::BudgetUse>,
    /// Extensions and their states.
    #[serde(default)]
    pub extensions: Vec<ExtensionStatus>,
    /// The last exits of kernels, newest first.
    #[serde(default)]
    pub exits: Vec<ExitRecord>,
    /// Remarks for the operator.
    #[serde(default)]
    pub notices: Vec<String>,
    /// Why what the operator has configured is not in force, where it was refused: an earlier configuration is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_refused: Option<String>,
}

/// One end of a kernel process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// When.
    pub time: Timestamp,
    /// The process.
    pub pid: u32,
    /// Its generation.
    pub generation: u64,
    /// `stopped`, `restart: …`, `exit status N`, `signal N (NAME)`.
    pub how: String,
    /// Whether it counts as a crash.
    pub crash: bool,
    /// Its last lines on the standard error stream.
    #[serde(default)]
    pub last_lines: Vec<String>,
    /// The extensions whose code may have ended it; one alone was at fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blamed: Vec<Blamed>,
}

/// An extension whose code ran when a kernel, or its own process, ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blamed {
    /// The extension.
    pub extension: String,
    /// What it was doing: an operation such as `tool.call`, `load`, or `thread` for a thread of its own.
    pub operation: String,
}

/// Parameters of [`method::RESTART`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Restart {
    /// For the log and the sessions.
    #[serde(default)]
    pub reason: Option<String>,
}

/// A name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Named {
    /// The name.
    pub id: String,
}

/// A path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathArgument {
    /// An absolute path.
    pub path: String,
}

/// What a check of a folder found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckReport {
    /// Whether there is no error, and it would come to work or wait for what the operator says.
    pub ok: bool,
    /// Errors and warnings of its manifest, with their places.
    pub diagnostics: Value,
    /// All that keeps it from working, and what it waits for, for people.
    pub rendered: String,
    /// The state in which the daemon would leave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ExtensionState>,
    /// Why, where it would not work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its id.
    pub id: AgentId,
    /// For people.
    pub name: String,
    /// For models.
    pub description: String,
    /// `tool` or `handoff`.
    pub mode: crate::IntegrationMode,
    /// The model that answers for it.
    pub model: Option<String>,
    /// The tools that it may use.
    pub tools: Vec<String>,
    /// Whether the orchestrator may choose it.
    pub infer: bool,
}

/// An agent in full.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentDetail {
    /// In short.
    #[serde(flatten)]
    pub status: AgentStatus,
    /// An example input.
    pub usage: Option<String>,
    /// What a run may spend.
    pub limits: crate::DefinitionLimits,
    /// Tools that it named or that exist, and why it does not have them.
    pub excluded: Vec<Exclusion>,
    /// What its tools add to its requests, the largest first.
    #[serde(default)]
    pub sizes: Vec<ToolSize>,
}

/// What a tool adds to each request that offers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSize {
    /// The tool.
    pub tool: String,
    /// Who provides it.
    pub extension: String,
    /// Bytes of its name, its description, its schema and its instructions.
    pub bytes: u64,
    /// Whether the model has a line of it, and the rest once it asks.
    #[serde(default)]
    pub on_demand: bool,
}

/// A tool that an agent does not have, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exclusion {
    /// The tool.
    pub tool: String,
    /// Why.
    pub reason: String,
}

/// A session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Its id.
    pub id: SessionId,
    /// When it began.
    pub created: Timestamp,
    /// When something happened in it last.
    pub updated: Timestamp,
    /// Number of turns; a [`SessionDetail`] has the turns themselves under this name.
    pub turn_count: u64,
    /// The agent that the user chose for it.
    pub agent: Option<AgentId>,
    /// The beginning of its first message.
    pub title: String,
}

/// Parameters of [`method::SESSIONS_SHOW`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionShow {
    /// The session.
    pub id: String,
    /// Only turns after this place: that of [`SessionDetail::next`]. All without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Leaves `invocations` and `transcript` of the results empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brief: bool,
}

/// A session, with as many of its turns as one reply holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionDetail {
    /// In short.
    #[serde(flatten)]
    pub status: SessionStatus,
    /// Its turns, oldest first.
    pub turns: Vec<TurnResult>,
    /// Position of its last event.
    pub last_seq: u64,
    /// Where further turns follow; asked for with it as [`SessionShow::after`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Chooses who answers in a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionSelect {
    /// The session; made where it does not exist.
    pub session: SessionId,
    /// The agent; none gives the session back to the orchestrator.
    #[serde(default)]
    pub agent: Option<AgentId>,
}

/// Names a turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnArgument {
    /// The turn.
    pub turn: TurnId,
    /// Leaves `invocations` and `transcript` of the result empty.
    #[serde(default)]
    pub brief: bool,
}

/// Parameters of [`method::EVENTS_SUBSCRIBE`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventsSubscribe {
    /// The session.
    pub session: SessionId,
    /// Events after this position; the kept ones are read first.
    #[serde(default)]
    pub after: u64,
    /// Whether to go on with what happens from now on.
    #[serde(default)]
    pub follow: bool,
}

/// What a turn gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnResult {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The user's message.
    pub input: String,
    /// How it ended; none while it runs or waits.
    pub status: Option<ResponseStatus>,
    /// The answer.
    pub content: String,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kind of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// What the whole tree spent.
    pub spend: Spend,
    /// Every run of the tree.
    pub invocations: Vec<InvocationRecord>,
    /// Every entry of every run, each with its agent.
    pub transcript: Vec<TranscriptEntry>,
    /// Remarks that stopped nothing.
    pub diagnostics: Vec<String>,
    /// The id under which its trace is kept.
    pub trace: String,
}

/// One run of an agent in the tree of a turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InvocationRecord {
    /// The run.
    pub id: InvocationId,
    /// The agent.
    pub agent: AgentId,
    /// The run that called it.
    pub parent: Option<InvocationId>,
    /// 0 for the root.
    pub depth: u32,
    /// How it ended; none while it runs.
    pub status: Option<ResponseStatus>,
    /// Tokens of its own model calls.
    pub usage: Usage,
    /// Input and output tokens, those of sub-agents included.
    pub tokens_used: u64,
    /// Its own steps.
    pub turns_used: u32,
}

/// One entry of a transcript with the agent that it belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TranscriptEntry {
    /// The run.
    pub invocation: InvocationId,
    /// The agent.
    pub agent: AgentId,
    /// The entry.
    #[serde(flatten)]
    pub message: Message,
}

/// One value of the effective configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConfigValue {
    /// Its key, with dots.
    pub key: String,
    /// Its value; secrets are masked.
    pub value: Value,
    /// Where it comes from.
    pub origin: String,
}
