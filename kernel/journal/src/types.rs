//! What goes into the journal and comes out of it, beyond the types of the contract.

use std::{collections::BTreeMap, sync::Arc};

use drupe_agent::{Batch, Chain, Conversation, Entry, Recipe, TopicMessage};
use drupe_extension_api::{
    AgentRef, AgentResponse, CorrelationId, EffectId, Event, EventBody, InvocationId, SessionId, Spend,
    TurnId, control::SessionSnapshot,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{Inbound, Outbound, SessionState, SummedUp};

/// A message was taken in: it will be answered, whatever happens to this process.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The turn that answers it.
    pub turn: TurnId,
    /// Whether it had been taken in before; nothing new was queued then.
    pub duplicate: bool,
    /// The turn as it waits or runs; none where it has its answer already.
    pub queued: Option<QueuedTurn>,
    /// Turns of the session that it interrupts: they are noted as [`QueuedTurn::cancelled`].
    pub superseded: Vec<TurnId>,
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
    /// The state of the session when this was read.
    pub state: SessionState,
    /// Turns of the session before this one.
    pub earlier_turns: u64,
    /// Why it is to end without going on, where it was stopped or interrupted: whoever did was told so.
    pub cancelled: Option<String>,
}

/// A turn begins, or goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnStart {
    /// The turn.
    pub turn: TurnId,
    /// Its session.
    pub session: SessionId,
    /// The root of its tree.
    pub root: InvocationId,
    /// Links what it sets off; its events bear it from here on.
    pub correlation: CorrelationId,
    /// Events that tell of it.
    pub events: Vec<(Option<AgentRef>, EventBody)>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnDone {
    /// How.
    pub response: AgentResponse,
    /// Spent by the whole tree.
    pub spend: Spend,
    /// Remarks that stopped nothing.
    pub diagnostics: Vec<String>,
    /// The message that goes out; none where nobody waits for one.
    pub outbox: Option<Outbound>,
    /// Where its answer goes besides.
    pub copies: Vec<Outbound>,
    /// What its runs recorded and did not commit before.
    pub last: Batch,
    /// Events that tell of the end, after those of its entries.
    pub events: Vec<(Option<AgentRef>, EventBody)>,
    /// Who talked with the user when the turn began, and who does from here on, where that is another state. What somebody
    /// chose meanwhile stays.
    pub conversation: Option<(Conversation, Conversation)>,
    /// What the turns of the session have made use of, where that is other than before.
    pub snapshot: Option<SessionSnapshot>,
    /// What came of summing up older turns of the session, where it tried that.
    pub summary: Option<SummedUp>,
    /// Its beginning, where that is not recorded yet: see [`Beginning::rest`](crate::Beginning::rest).
    pub start: Option<TurnStart>,
    /// Bytes a token, by model: what was learned of it since the last turn.
    pub ratios: Vec<(String, f64)>,
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
    /// Messages to people that are not sent yet.
    pub queued_deliveries: u64,
    /// Messages of topics that wait for followers.
    pub queued_messages: u64,
    /// Those that were given up.
    pub dead_messages: u64,
}

/// What a commit makes known, once it is one.
#[derive(Debug, Clone)]
pub enum Published {
    /// An event of a session.
    Event(Arc<Event>),
    /// A message of a topic.
    Message(Arc<TopicMessage>),
    /// Messages of durable topics wait to be delivered.
    Due,
}

/// What was used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// Tokens of all kinds, those of calls whose end was never seen included.
    pub tokens: u64,
    /// US dollars, where the price is known.
    pub cost_usd: f64,
    /// Runs of agents.
    pub invocations: u64,
}

/// What an id names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A conversation.
    Session(SessionId),
    /// A turn.
    Turn(TurnId),
    /// A run of an agent.
    Run {
        /// Its turn.
        turn: TurnId,
        /// The run.
        invocation: InvocationId,
    },
    /// A tool call.
    Call {
        /// Its turn.
        turn: TurnId,
        /// The call.
        effect: EffectId,
    },
    /// A message of the bus that waits or was given up.
    Message(u64),
}

/// Everything that is recorded of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRows {
    /// Its number, in the order of acceptance.
    pub number: i64,
    /// The message that set it off.
    pub inbound: Inbound,
    /// The turn.
    pub turn: TurnId,
    /// When the message was taken in.
    pub accepted: Timestamp,
    /// When it first began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// How often it was begun; 0 for one that waits, or was taken in by another.
    pub starts: u32,
    /// The root of its tree.
    pub root: Option<InvocationId>,
    /// Links what it set off.
    pub correlation: Option<CorrelationId>,
    /// How it ended.
    pub response: Option<AgentResponse>,
    /// Spent by the whole tree.
    pub spend: Option<Spend>,
    /// What its runs recorded, in order, each with the key of its row; entries of one commit share one.
    pub entries: Vec<(i64, Entry)>,
    /// What its runs were made of, by the hashes that their beginnings name.
    pub recipes: BTreeMap<String, Recipe>,
    /// Its events, in order.
    pub events: Vec<Event>,
    /// What went out, or shall.
    pub deliveries: Vec<DeliveryRow>,
}

/// An answer on its way out, or sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRow {
    /// Its number.
    pub number: i64,
    /// Through which channel.
    pub channel: String,
    /// `due`, `sending`, `sent`, `uncertain` or `failed`.
    pub state: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it was not sent, or may not have arrived.
    pub why: Option<String>,
    /// The channel's id of what was sent.
    pub remote_id: Option<String>,
}

/// A message of a durable topic that waits for a subscriber.
#[derive(Debug, Clone, PartialEq)]
pub struct DueMessage {
    /// Its number, the same each time it comes; another one for each subscriber.
    pub id: u64,
    /// Who shall get it.
    pub subscriber: String,
    /// The topic.
    pub topic: String,
    /// The message.
    pub payload: Value,
    /// What set it off.
    pub chain: Chain,
    /// Links it to the turn that set it off.
    pub correlation: Option<CorrelationId>,
    /// How often it was tried before.
    pub attempts: u32,
    /// When it was published.
    pub published: Timestamp,
}

/// A message of a durable topic, and how it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    /// The message.
    pub message: DueMessage,
    /// Whether it was given up.
    pub dead: bool,
    /// Why it could not be delivered the last time.
    pub why: Option<String>,
    /// From when on it is tried.
    pub due: Timestamp,
}
