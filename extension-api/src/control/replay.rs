//! Recorded turns that are run once more: from their records alone, or with another model.

use serde::{Deserialize, Serialize};

use crate::{AgentId, FailureClass, InvocationId, ResponseStatus, SessionId, TurnId};

/// Which turns [`method::REPLAY_RUN`](super::method::REPLAY_RUN) runs again, and on what.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayArgument {
    /// The session, or one turn's id.
    pub id: String,
    /// Only this turn of the session, counted from 1; from the end where negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i64>,
    /// The model that is asked the recorded messages anew. None replays the records, without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// How many turns are passed over: [`ReplayReport::next`] of the answer before.
    #[serde(default)]
    pub from: u32,
}

/// What came of some turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayReport {
    /// Those that were replayed from their records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<ReplayedTurn>,
    /// Those whose messages another model was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<ComparedTurn>,
    /// From where the rest is asked for; none where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// Whether a turn gives again what was recorded of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReplayVerdict {
    /// All that is compared is the same.
    Same,
    Differs,
    /// It cannot be replayed, or nothing of it ran.
    NotReplayed,
}

/// One turn, replayed from its records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayedTurn {
    pub session: SessionId,
    pub turn: TurnId,
    /// The beginning of its message.
    pub input: String,
    pub verdict: ReplayVerdict,
    /// Runs of the loop that were replayed; those that are code are not among them.
    pub runs: u32,
    /// Answers of models that these were given.
    pub steps: u32,
    /// Results of tools that these were given.
    pub tool_calls: u32,
    /// The first thing that is not as recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<ReplayDifference>,
    /// What was not replayed, or why nothing was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// Something that is not as it was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayDifference {
    pub run: InvocationId,
    pub agent: AgentId,
    /// The step of the run, from 1; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// What it is about, in words.
    pub what: String,
    /// The beginning of what was recorded.
    pub recorded: String,
    /// The beginning of what came now.
    pub now: String,
}

/// A turn beside the same message with another model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedTurn {
    pub session: SessionId,
    pub turn: TurnId,
    /// The beginning of its message.
    pub input: String,
    pub recorded: ComparedAnswer,
    /// With the other model; none where it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<ComparedAnswer>,
    /// Why it was not asked, or what of the turn was left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// How a message was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedAnswer {
    /// By which the turn can be looked at: `drupe trace`, `drupe why`.
    pub turn: TurnId,
    /// The models that answered, each once.
    pub models: Vec<String>,
    pub status: ResponseStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// The beginning of the answer.
    pub content: String,
    /// The tools that were called, in order, and at most the first hundred.
    pub tools: Vec<String>,
    /// Calls for which the recording had no result.
    #[serde(default)]
    pub unknown_calls: u32,
    pub steps: u32,
    pub tool_calls: u32,
    pub tokens: u64,
    /// US dollars; absent where a price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    pub elapsed_ms: u64,
}
