//! What happened, for people and programs that ask afterwards: traces, usage, explanations.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    AgentId, CorrelationId, FailureClass, InvocationId, ResponseStatus, SessionId, Spend, TurnId, Usage,
};

/// Parameters of [`method::TRACE_SHOW`](super::method::TRACE_SHOW).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceArgument {
    /// The session, or one turn's id.
    pub id: String,
    /// Only this turn of the session, counted from 1; from the end where negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i64>,
}

/// Everything that one turn set off, as a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnTrace {
    pub session: SessionId,
    pub turn: TurnId,
    /// Links everything of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// When its message was accepted.
    pub accepted: Timestamp,
    /// When it began; none while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// How it ended; none while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ResponseStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Spent by the whole tree.
    pub spend: Spend,
    /// The run of its root; empty where nothing ran.
    pub nodes: Vec<TraceNode>,
}

/// What a node of a trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A run of an agent.
    Run,
    /// One attempt of a model.
    Model,
    Tool,
    /// A remark: a limit, a retry, a message that was taken in.
    Note,
}

/// One run, model attempt or tool call, with what it set off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceNode {
    pub kind: CallKind,
    /// Its id: of a run, its invocation; of a tool call, its effect.
    pub id: String,
    /// The agent, the model or the tool; of a remark, its code.
    pub name: String,
    /// The agents from the root to the one that made the call.
    pub path: Vec<AgentId>,
    pub started: Timestamp,
    /// How long it took; none while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
    /// Of an attempt, how long it took until the first piece of an answer came; none where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<u64>,
    /// How it ended: a status, an outcome, or why the model stopped; of a remark, its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The kind of failure, of a run or an attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Tokens: of an attempt its own, of a run those of everything below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// US dollars; absent where a price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Bytes that went in: a task, or parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Bytes that came out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// What it set off, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<TraceNode>,
}

/// By what usage is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// Agents.
    Agent,
    /// Models, as `provider/model`.
    Model,
    Session,
    /// Days (UTC).
    #[default]
    Day,
}

/// Parameters of [`method::USAGE_SHOW`](super::method::USAGE_SHOW).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct UsageQuery {
    /// The first day (UTC) that counts, as `2026-03-01`; none for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// By what it is summed up.
    pub by: UsageBy,
    /// Only this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// What was used under one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageRow {
    /// The agent, model, session or day.
    pub key: String,
    /// Runs of agents.
    pub invocations: u64,
    /// Model calls: one however often it is repeated, under the model that ended it.
    pub calls: u64,
    /// Tokens by kind, those of each attempt under its own model.
    pub usage: Usage,
    /// Tokens of calls whose end was never seen; they count against limits.
    pub lost_tokens: u64,
    /// US dollars of the tokens whose price is known.
    pub cost_usd: f64,
    /// Tokens whose price is unknown.
    pub unpriced_tokens: u64,
}

/// Bounds of [`Latency::at_most`], in milliseconds: those that the semantic conventions of OpenTelemetry name for the duration of a model's
/// operation (0.01 s to 81.92 s, each the double of the one before; `gen_ai.client.operation.duration`, read on 2026-11-27), and three more,
/// since a turn with tools may take minutes.
pub const LATENCY_BOUNDS_MS: [u64; 17] = [
    10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_240, 20_480, 40_960, 81_920, 163_840, 327_680,
    655_360,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LatencyOf {
    /// Turns, by how they ended. Their time is that of their runs: what they waited is not part of it.
    Turn,
    /// Attempts of models, by `provider/model`.
    Model,
    /// The same until the first piece of an answer came.
    FirstPiece,
    /// Calls of tools, by their name.
    Tool,
}

/// How long something took, since the kernel began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    pub of: LatencyOf,
    /// The status, model or tool; `other` for those beyond the first 200 of them.
    pub key: String,
    pub count: u64,
    /// Milliseconds of all of them together.
    pub sum_ms: u64,
    /// How many took at most as long as each of [`LATENCY_BOUNDS_MS`].
    pub at_most: Vec<u64>,
}

/// Why something ended as it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    pub id: String,
    /// What it is: `turn`, `session`, `run`, `tool_call`, `extension`, `limit`, `message`.
    pub subject: String,
    /// The answer in plain sentences, the most important first.
    pub sentences: Vec<String>,
    /// What to do about it; none where nothing need be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The rows that the sentences rest on.
    pub cited: Vec<Cited>,
}

/// A row of the journal, or of what the kernel knows, that an explanation rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cited {
    /// The table, such as `turns`, `events`, `entries`, `usage`; `kernel` for what is not in the journal.
    pub table: String,
    pub key: String,
    pub says: String,
}

/// Names an item of a session, or the handle of a preview.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ItemArgument {
    pub session: SessionId,
    /// The item's id, or the handle.
    pub id: String,
}

/// A text in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ItemText {
    /// The run that it belongs to.
    pub invocation: InvocationId,
    /// Parameters of a call, as the model wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Text of a message, or the result of a call; none while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Names a row by its number.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Numbered {
    pub id: u64,
}

/// A message of the bus that was given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeadMessage {
    pub id: u64,
    pub topic: String,
    /// Who should have got it.
    pub subscriber: String,
    /// Links it to the turn that set it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// How often it was tried.
    pub attempts: u32,
    /// How many messages of this topic were cut at this subscriber so far, because their chain of events was: one letter
    /// is kept for all of them, and shows the latest. 0 where it was given up for another reason.
    #[serde(default)]
    pub cut: u64,
    /// How many older ones of this subscriber were let go, because only 1,000 are kept; the same in each of them. It
    /// begins anew when the last of them is dropped.
    #[serde(default)]
    pub let_go: u64,
    /// Why it was given up.
    pub reason: String,
    pub published: Timestamp,
    pub payload: serde_json::Value,
}
