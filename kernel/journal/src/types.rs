//! What goes into the journal and comes out of it, beyond the types of the contract.

use std::fmt;

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentId, AgentRef, AgentResponse, CorrelationId, EventBody, InvocationId, OutputSpec, SessionId, Spend,
    TurnId,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A message that shall be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Inbound {
    /// Where it came from.
    pub channel: String,
    /// The channel's id of it: unique within the channel.
    pub external_id: String,
    /// The conversation; made where it does not exist.
    pub session: SessionId,
    /// Where in the channel the answer goes.
    pub address: Option<String>,
    /// The text.
    pub text: String,
    /// The agent that shall answer.
    pub agent: Option<AgentId>,
    /// The model that the root of the turn uses in place of its own.
    pub model: Option<String>,
    /// The form of the answer.
    pub output: Option<OutputSpec>,
    /// Wall time of the turn, in milliseconds.
    pub time_budget_ms: Option<u64>,
    /// Who wrote it.
    pub kind: InboundKind,
}

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboundKind {
    /// A person, or a program in the name of one.
    #[default]
    User,
    /// The kernel itself, such as after a restart that a session had asked for.
    Kernel,
}

/// A message was taken in: it will be answered, whatever happens to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The turn that answers it.
    pub turn: TurnId,
    /// Whether it had been taken in before; nothing new was queued then.
    pub duplicate: bool,
}

/// A turn that has no answer yet.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedTurn {
    /// The turn.
    pub turn: TurnId,
    /// The message.
    pub inbound: Inbound,
    /// When it was taken in.
    pub accepted: Timestamp,
    /// Whether it had begun; it is then continued with the same ids.
    pub started: bool,
    /// The root of its tree, once it had begun.
    pub root: Option<InvocationId>,
    /// Links what it set off, once it had begun.
    pub correlation: Option<CorrelationId>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnDone {
    /// The turn.
    pub turn: TurnId,
    /// How.
    pub response: AgentResponse,
    /// Spent by the whole tree.
    pub spend: Spend,
    /// Remarks that stopped nothing.
    pub diagnostics: Vec<String>,
    /// The message that goes out; none where nobody waits for one.
    pub outbox: Option<Outbound>,
    /// The state of the session at this boundary, in the kernel's own form.
    pub snapshot: Option<Vec<u8>>,
    /// Events that tell of the end.
    pub events: Vec<(Option<AgentRef>, EventBody)>,
    /// The last entries of the tree, where they were not committed before.
    pub entries: Vec<Entry>,
}

/// A message that goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbound {
    /// Through which channel.
    pub channel: String,
    /// Where in the channel.
    pub address: Option<String>,
    /// The text.
    pub text: String,
}

/// The number of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId(pub(crate) i64);

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An answer on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its number.
    pub id: DeliveryId,
    /// Unique among all deliveries, for channels that can tell a repetition: the turn's id.
    pub key: String,
    /// The conversation.
    pub session: SessionId,
    /// What goes out.
    pub message: Outbound,
    /// How often it was tried before.
    pub attempts: u32,
    /// Since when it waits.
    pub created: Timestamp,
}

/// A restart that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartRow {
    /// For the operator and for the session that asked.
    pub reason: String,
    /// The conversation that asked.
    pub session: Option<SessionId>,
    /// The turn that asked.
    pub turn: Option<TurnId>,
    /// Whether nobody who watches had asked for it.
    pub unattended: bool,
    /// When.
    pub requested: Timestamp,
}

/// Whether a restart may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartVerdict {
    /// It is recorded; the next kernel finds it once.
    Accepted,
    /// There were too many that nobody watched.
    TooMany {
        /// How many there were.
        count: u32,
        /// Within how many milliseconds.
        window_ms: u64,
    },
}

/// Totals for `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Conversations.
    pub sessions: u64,
    /// Turns that are accepted and have not begun.
    pub queued_turns: u64,
}
