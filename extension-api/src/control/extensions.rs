//! What clients ask of extensions, and learn of them.

use std::net::SocketAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ToolSize;
#[cfg(doc)]
use super::method;
use crate::{AgentId, ExtensionId, ResponseStatus, SessionId, TurnId, Usage};

/// An extension and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtensionStatus {
    /// Its id, or the folder's name where it has none.
    pub id: String,
    pub version: Option<String>,
    pub state: ExtensionState,
    /// Why it is in that state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub capabilities: Vec<String>,
    /// Where its native code runs; none where it has none.
    pub isolation: Option<String>,
    pub source: String,
    /// Since when it is in that state.
    pub since: Timestamp,
}

/// The states of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExtensionState {
    /// Its folder was found.
    Discovered,
    /// Its code is open, or its agent is built.
    Loaded,
    /// It has its context.
    Initialized,
    Active,
    /// It brings something that the operator must agree to first.
    AwaitingApproval,
    /// It failed while it worked, and is started again after a while.
    Degraded,
    /// It ended a kernel, or its own process, too often, and is left out until it changes or is released.
    Quarantined,
    Failed,
    /// Something that it depends on is not there.
    Skipped,
    /// The operator, or a missing configuration, turned it off.
    Disabled,
    Stopped,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtensionDetail {
    #[serde(flatten)]
    pub status: ExtensionStatus,
    /// For people.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// For models.
    pub description: String,
    pub tools: Vec<String>,
    /// What each of them adds to a request that offers it, in the same order.
    #[serde(default)]
    pub sizes: Vec<ToolSize>,
    pub depends_on: Vec<String>,
    pub rights: Vec<String>,
    /// Where it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listening: Vec<SocketAddr>,
    /// Shown when something is missing.
    pub setup_instructions: Option<String>,
    /// The hash of its content and of what it takes from elsewhere, which an [`Approval`] is bound to; none where it cannot be
    /// read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The states that it went through, oldest first.
    pub history: Vec<StateChange>,
}

/// One step of an extension's life.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateChange {
    pub time: Timestamp,
    pub state: ExtensionState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Parameters of [`method::EXTENSIONS_SCAFFOLD`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scaffold {
    pub id: ExtensionId,
    /// The folder to make, which must not exist; one of an extension's own, where an extension asks.
    pub path: String,
}

/// What is tried by [`method::EXTENSIONS_TRY`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trial {
    /// The folder of an agent without code, in the data folder of the extension that asks.
    pub path: String,
    /// The message that it answers.
    pub task: String,
    /// A name of its own among the trials of one call. Where a crash cut the call off and it asks again, the same name finds what
    /// was answered; so the name says which content was tried.
    pub name: String,
    /// Wall time in milliseconds; none for that of the agent. It can only make the limit smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_budget_ms: Option<u64>,
}

/// What an agent answered that is not active.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialResult {
    pub status: ResponseStatus,
    /// What the draft answered.
    pub content: String,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The tools that it called, each once, in order of their names; what became of the calls is in the trace.
    pub tools: Vec<String>,
    pub usage: Usage,
    /// US dollars; absent where a price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Whether a language model answered, and not the offline model for want of one.
    pub by_language_model: bool,
}

/// Something that waits, or waited, for the operator's agreement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Approval {
    /// Names it in [`method::APPROVALS_ANSWER`].
    pub id: String,
    /// The extension that is to be activated; empty where it is a call that is asked about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extension: String,
    /// What the agreement holds for: the hash of the extension's content, or of the call with all that it is.
    pub hash: String,
    /// What needs agreement, a phrase each: `native code`, `the right control`.
    pub needs: Vec<String>,
    pub asked: Timestamp,
    pub state: ApprovalState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Timestamp>,
    /// The tool call that is asked about; none where it is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<AskedCall>,
}

impl Approval {
    /// Digits of a hash: nobody who writes parameters can make two calls that have them in common while a person reads.
    const DIGITS: usize = 16;

    /// Under what it is answered. That of a call says what was shown, too, as `ID:HASH` with the beginning of the hash: the id
    /// alone is that of a place, and another call may stand there after a power failure took this one away.
    pub fn listed(&self) -> String {
        match &self.call {
            Some(_) => format!("{}:{}", self.id, self.hash.get(..Self::DIGITS).unwrap_or(&self.hash)),
            None => self.id.clone(),
        }
    }

    /// The id, or its beginning, and the beginning of the hash, of what [`listed`](Self::listed) gave or a person shortened; the
    /// hash is empty where there is none.
    pub fn read_listed(listed: &str) -> (&str, &str) {
        listed.split_once(':').unwrap_or((listed, ""))
    }
}

/// A tool call that a person must agree to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskedCall {
    /// The conversation.
    pub session: SessionId,
    pub turn: TurnId,
    pub agent: AgentId,
    pub tool: String,
    /// The parameters, whole, as JSON; empty where nothing waits any more.
    pub params: String,
    /// Which calls an answer for the rest of the session is about, such as `web_fetch https://docs.rs`; none where an answer
    /// holds for this call alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Whether it is asked for what strangers wrote: what was allowed before without that in view does not hold.
    #[serde(default)]
    pub for_taint: bool,
    /// What the tool says that the call would change; none where it cannot say, or where nothing waits any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<CallPreview>,
    /// When it counts as denied.
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What a call would change, as its tool says before it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallPreview {
    /// Text, such as a unified diff, of at most 32 KiB; or why nobody can say.
    pub text: String,
    /// Whether `text` is why it is not known what would change.
    #[serde(default)]
    pub failed: bool,
    /// What whoever agrees must fill in: a JSON Schema of one flat object, whose properties are texts, numbers, truth values, or
    /// choices among texts. A property with `writeOnly: true` is a secret, which no model and no extension is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// What was allowed for the rest of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StandingGrant {
    /// Names it where it is taken back ([`method::APPROVALS_REVOKE`]).
    pub id: String,
    pub session: SessionId,
    /// The agent whose calls they are.
    pub agent: AgentId,
    /// Which calls: a tool, and what of it where that is narrower.
    pub about: String,
    /// Whether it was given where strangers' text had been read, and holds there.
    pub for_taint: bool,
    pub given: Timestamp,
    /// Who gave it, as the daemon names them.
    pub by: String,
}

/// How an [`Approval`] stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    Pending,
    Allowed,
    /// The operator did not agree.
    Denied,
    /// What it asked for is not there any more.
    Withdrawn,
    /// Nobody answered in time, which counts as a denial.
    Expired,
}

/// Parameters of [`method::APPROVALS_ANSWER`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalAnswer {
    /// The approval, the extension of the one that waits, or the beginning of a call's id that only one of those that wait
    /// has.
    pub id: String,
    pub allow: bool,
    /// Whether calls like this one are allowed in the rest of the session, as [`AskedCall::about`] says.
    #[serde(default)]
    pub for_session: bool,
    /// The [`hash`](Approval::hash) of what the person has read. An answer about anything else is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// What was filled in, where the question asks for it ([`CallPreview::input`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Map<String, Value>>,
}

/// Parameters of [`method::EXTENSIONS_ASK`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtensionAsk {
    /// The extension that is asked.
    pub id: String,
    /// What is asked, by a name that the extension gives it.
    pub ask: String,
    #[serde(default)]
    pub params: Value,
}
