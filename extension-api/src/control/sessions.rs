//! Sessions and their turns.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    AgentId, FailureClass, InvocationId, Message, ResponseStatus, SessionId, Spend, ToolCallRequest,
    ToolName, TurnId, Usage,
};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionStatus {
    pub id: SessionId,
    pub created: Timestamp,
    /// When something happened in it last.
    pub updated: Timestamp,
    /// Number of turns; a [`SessionDetail`] has the turns themselves under this name.
    pub turn_count: u64,
    /// The agent that the user chose for it.
    pub agent: Option<AgentId>,
    /// The agent that has taken the conversation over; none while the orchestrator has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<HandoffStatus>,
    /// The beginning of its first message.
    pub title: String,
}

impl SessionShow {
    /// A place behind all turns, for those who ask for the session itself alone.
    pub const BEHIND_ALL: u64 = i64::MAX as u64;
}

/// An agent has taken a conversation over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandoffStatus {
    pub agent: AgentId,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub since: Timestamp,
    /// Messages that it has answered.
    pub turns: u32,
    /// Tokens that these took together.
    pub tokens: u64,
}

/// Parameters of [`method::SESSIONS_SHOW`](super::method::SESSIONS_SHOW).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionShow {
    #[cfg_attr(feature = "schema", schemars(with = "SessionId"))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionDetail {
    #[serde(flatten)]
    pub status: SessionStatus,
    /// Its turns, oldest first.
    pub turns: Vec<TurnResult>,
    /// What its older turns were summed up to, as the orchestrator is told; absent while all that it is told is told whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What its turns have made use of, as it was then; absent where nothing is known of it.
    #[serde(default, skip_serializing_if = "SessionSnapshot::is_empty")]
    pub snapshot: SessionSnapshot,
    /// The agents that it was given at its beginning, and that it alone has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub personas: Vec<Persona>,
    /// The file with turns of it that were deleted, a JSON of [`ArchivedTurn`] a line; absent where there is none, and for who does
    /// not reach all sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<String>,
    /// Position of its last event.
    pub last_seq: u64,
    /// Where further turns follow; asked for with it as [`SessionShow::after`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

impl SessionSnapshot {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Gives a session agents of its own, before its first message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionPersonas {
    /// The session; made where it does not exist.
    pub session: SessionId,
    /// At most 16, of other names than the daemon's agents.
    pub personas: Vec<Persona>,
}

/// An agent that lives and dies with one session. It has the orchestrator's model, and no tools but the orchestrator's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Persona {
    /// The id by which it is addressed.
    pub name: AgentId,
    /// Its name for people; the id without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What it is for, for the orchestrator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its instructions, of at most 32 KiB.
    pub prompt: String,
    /// The names of the tools that it has; without it, and without `mcp_servers`, all that the orchestrator has from extensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolName>>,
    /// Names of MCP servers of the operator: it has all of their tools that the orchestrator has, beside those of `tools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<String>,
    /// Whether the orchestrator may choose it; otherwise people alone do.
    #[serde(default = "yes")]
    pub infer: bool,
}

fn yes() -> bool {
    true
}

/// What the turns of a session have made use of: a later turn tells what of it is not what it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionSnapshot {
    /// Agents that ran, with the SHA-256 in hex of what each is made of: its definition and the tools that it is offered.
    pub agents: BTreeMap<AgentId, String>,
    /// The tools of each of them by name, in order.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<AgentId, Vec<ToolName>>,
    /// The models that each of them asks, `provider/model`, in that order.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<AgentId, Vec<String>>,
    /// Skills that were loaded, with the SHA-256 in hex of their folders; empty where it is not known.
    pub skills: BTreeMap<String, String>,
    /// Where each of them lay.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skill_folders: BTreeMap<String, String>,
    /// What each agent was allowed for the rest of the session, as the question said it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub agreements: BTreeMap<AgentId, BTreeSet<String>>,
    /// The last plan of each agent that has answered.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plans: BTreeMap<AgentId, KeptPlan>,
}

/// What an agent said that it was going to do, and how far it had come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeptPlan {
    pub items: Vec<PlanStep>,
    /// How many turns its session had had before.
    pub after_turns: u64,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanStep {
    pub step: String,
    pub status: PlanStatus,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Done,
}

/// Chooses who answers in a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionSelect {
    /// The session; made where it does not exist.
    pub session: SessionId,
    /// The agent; none gives the session back to the orchestrator.
    #[serde(default)]
    pub agent: Option<AgentId>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnArgument {
    pub turn: TurnId,
    /// Tells how it stands, ended or not; for [`method::TURN_WAIT`](super::method::TURN_WAIT).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
    /// Leaves `invocations` and `transcript` of the result empty.
    #[serde(default)]
    pub brief: bool,
}

impl TurnArgument {
    /// A turn, of which no more is wanted than what it came to.
    pub fn brief(turn: TurnId) -> Self {
        Self { turn, now: false, brief: true }
    }
}

/// Which spawned agents [`method::SPAWNED_LIST`](super::method::SPAWNED_LIST) is asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SpawnedQuery {
    /// Those of this session; without it of all that are reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// An agent that another one spawned, and that works beside it in a turn which runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpawnedStatus {
    pub session: SessionId,
    pub turn: TurnId,
    /// What it is known by in the session.
    pub handle: String,
    pub agent: AgentId,
    /// The run that spawned it.
    pub owner: InvocationId,
    /// How it stands: `working`, `done` or `closed`.
    pub state: String,
    /// Texts that were sent to it and that it has not read yet.
    pub unread: usize,
}

/// Which spawned agent [`method::SPAWNED_STOP`](super::method::SPAWNED_STOP) ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpawnedArgument {
    pub session: SessionId,
    pub handle: String,
}

/// What [`method::SPAWNED_TELL`](super::method::SPAWNED_TELL) tells which agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpawnedTell {
    pub session: SessionId,
    pub handle: String,
    /// What it is told; it reads this between two of its steps.
    pub text: String,
}

/// Parameters of [`method::EVENTS_SUBSCRIBE`](super::method::EVENTS_SUBSCRIBE).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventsSubscribe {
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnResult {
    pub session: SessionId,
    pub turn: TurnId,
    pub input: String,
    /// How it ended; none while it runs or waits.
    pub status: Option<ResponseStatus>,
    pub content: String,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Calls of the client's own tools with which it ended; what they give comes with the client's next message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_calls: Vec<ToolCallRequest>,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InvocationRecord {
    pub id: InvocationId,
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
    pub turns_used: u32,
}

/// One entry of a transcript with the agent that it belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TranscriptEntry {
    pub invocation: InvocationId,
    pub agent: AgentId,
    #[serde(flatten)]
    pub message: Message,
}

/// A turn that was let go, as a line of its session's archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArchivedTurn {
    pub form: u32,
    pub accepted: Timestamp,
    pub finished: Timestamp,
    #[serde(flatten)]
    pub result: TurnResult,
}

impl ArchivedTurn {
    /// The form that this release writes.
    pub const FORM: u32 = 1;
}

/// What went with a session that was deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeletedSession {
    pub at: Timestamp,
    /// The session, and those of agents that were spawned in it.
    pub sessions: Vec<SessionId>,
    pub turns: u64,
    /// Commits of events and of what runs recorded.
    pub records: u64,
    pub deliveries: u64,
    pub questions: u64,
    pub summaries: u64,
}
