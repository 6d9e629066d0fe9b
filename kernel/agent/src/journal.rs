//! The records of a run, and how a run that was cut off goes on.
//!
//! Entries are committed *before* what they announce happens: the step before the model is asked, the intent
//! before the tool runs. Ids are derived from their place (turn, invocation, step, index), so running the same
//! task again with the same ids finds what was recorded, and repeats only what has no result.
//!
//! Whoever runs a task again closes, as interrupted, the items that the cut-off run left open in the stream of
//! events; what is done again is started again there.

mod attempted;
mod memory;
mod project;
mod prune;
mod recorded;

use drupe_extension_api::{
    AgentId, AgentRef, AgentResponse, EffectClass, EffectId, EventBody, FailureClass, Image, InvocationId,
    ItemKind, Message, Preview, SessionId, Spend, ToolStatus, TurnId, Usage, control::ApprovalState,
};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::{
    model::StopReason,
    policy::Question,
    recipe::{KeptRecipe, Recipe},
    topics::TopicMessage,
};
pub use attempted::{Attempted, BrokenAnswer, ShownAnswer};
pub use memory::MemoryJournal;
pub use project::told;
pub(crate) use project::{begun, reasoning_id, requested};
pub(crate) use prune::sameness;
pub use recorded::{EarlierTurn, Reached, RecordedEffect, RecordedInvocation, RecordedStep, RecordedTurn};

/// A question to the journal, or a request, while it is under way.
pub type JournalFuture<'a, T> = BoxFuture<'a, Result<T, JournalFault>>;

/// Where records go. One commit is one transaction: all of it or nothing.
pub trait Journal: Send + Sync {
    /// Records a batch; returns when it is as durable as its entries need.
    fn commit(&self, batch: Batch) -> JournalFuture<'_, ()>;

    /// The recorded result of a tool call, whole; none if `session` knows no such call, or it has no result yet.
    fn output(&self, session: SessionId, effect: EffectId) -> JournalFuture<'_, Option<String>>;

    /// The bytes of a picture that was recorded, by their hash; none where they are not kept any more.
    fn image(&self, hash: String) -> JournalFuture<'_, Option<Vec<u8>>>;

    /// What a run was made of, by its hash; none where it is not kept any more.
    fn recipe(&self, hash: String) -> JournalFuture<'_, Option<Recipe>> {
        let _ = hash;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Earlier turns of a session that hold most of these words, in lower case: at most `most`, the best first.
    fn earlier(
        &self,
        session: SessionId,
        words: Vec<String>,
        most: usize,
    ) -> JournalFuture<'_, Vec<EarlierTurn>>;
}

/// The journal cannot record; the run must stop before it does anything further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal cannot record: {0}")]
pub struct JournalFault(pub String);

/// What is committed together.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The conversation.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The runs whose entries these are.
    pub runs: Vec<AgentRef>,
    /// What happened or is about to. The journal numbers and then publishes the events that [tell](Entry::events) of it.
    pub entries: Vec<Entry>,
    /// What its beginnings name, to be kept once for each content.
    pub recipes: Vec<KeptRecipe>,
    /// Messages for topics, published when the batch is recorded.
    pub messages: Vec<TopicMessage>,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A run of an agent begins.
    Begin {
        /// The run.
        invocation: InvocationId,
        /// The agent.
        agent: AgentId,
        /// The run that called it.
        parent: Option<InvocationId>,
        /// 0 for the root.
        depth: u32,
        /// The first entry of its transcript: what it was asked.
        task: String,
        /// The hash of what it is made of; none where it is code, and in older records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recipe: Option<String>,
    },
    /// The model is about to be asked.
    Step {
        /// The run.
        invocation: InvocationId,
        /// From 1.
        step: u32,
        /// From 1; higher after a crash.
        attempt: u32,
        /// The model, as `provider/model`.
        model: String,
        /// SHA-256 of the request, in hex.
        request_hash: String,
        /// Tokens set aside for it.
        reserved_tokens: u64,
        /// US dollars set aside for it.
        #[serde(default)]
        reserved_usd: f64,
        /// Whether that is nothing since no price is known.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unpriced: bool,
        /// Bytes that a token of the model is taken to have; none where nothing was learned of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_per_token: Option<f64>,
        /// Whether people are shown the answer, whose item begins.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shown: bool,
    },
    /// The model answered.
    Answer {
        /// The run.
        invocation: InvocationId,
        /// The step.
        step: u32,
        /// The assistant's message.
        message: Message,
        /// The model that answered.
        model: String,
        /// Tokens that this attempt spent; those before it have records of their own.
        usage: Usage,
        /// US dollars, where the price is known.
        cost_usd: Option<f64>,
        /// Whether `usage` is an estimate because the provider reported none.
        #[serde(default)]
        estimated: bool,
        /// How the answer ended, where it is not whole.
        #[serde(default, skip_serializing_if = "StopReason::is_whole", deserialize_with = "ended")]
        stop: StopReason,
        /// What the provider said of a filter or a refusal.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        said: String,
        /// How the attempt went, which its events tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<Attempted>,
    },
    /// An attempt of a model gave no answer, or an earlier process did not live to see it. Attempts that were repeated are
    /// committed with the end of the last one.
    Failed {
        /// The run.
        invocation: InvocationId,
        /// The step.
        step: u32,
        /// That of its [`Entry::Step`], or a later one: those that repeat it are counted on from there.
        attempt: u32,
        /// The model that was asked.
        model: String,
        /// The kind of failure.
        class: FailureClass,
        /// What happened.
        message: String,
        /// Tokens that are known to be spent, or that an answer which broke off must have taken.
        usage: Usage,
        /// US dollars for them, where the price is known.
        cost_usd: Option<f64>,
        /// Whether some of `usage` is an estimate.
        #[serde(default)]
        estimated: bool,
        /// Tokens that may be spent and count as such.
        lost_tokens: u64,
        /// US dollars that those may have cost.
        lost_usd: f64,
        /// Whether another attempt followed, for which what the step set aside stayed so.
        #[serde(default)]
        repeated: bool,
        /// How it went; none where an earlier process did not live to see it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<Box<Attempted>>,
    },
    /// The transcript was made smaller before the step, since it would not have fitted the model's window.
    Compacted {
        /// The run.
        invocation: InvocationId,
        /// The step before which it happened.
        step: u32,
        /// How.
        compaction: Compaction,
        /// The model that was asked for a summary; empty where none was.
        #[serde(default)]
        model: String,
        /// Tokens spent on it; attempts that gave none have records of their own.
        #[serde(default)]
        usage: Usage,
        /// US dollars, where the price is known.
        #[serde(default)]
        cost_usd: Option<f64>,
        /// Whether `usage` is an estimate because the provider reported none.
        #[serde(default)]
        estimated: bool,
        /// How the answer with the summary ended.
        #[serde(default, skip_serializing_if = "StopReason::is_whole")]
        stop: StopReason,
        /// How the attempt went, where there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<Attempted>,
    },
    /// Texts were made into vectors on behalf of the run, or were not.
    Embedded {
        /// The run, which may have no beginning yet: what is gathered for it comes before that.
        invocation: InvocationId,
        /// The agent whose run it is.
        agent: AgentId,
        /// From 1, within the run.
        attempt: u32,
        /// The model that was asked, as `provider/model`.
        model: String,
        /// How many texts there were.
        texts: u32,
        /// Tokens that the texts count.
        usage: Usage,
        /// US dollars, where the price is known.
        cost_usd: Option<f64>,
        /// Whether `usage` is an estimate because the provider reported none.
        #[serde(default)]
        estimated: bool,
        /// Tokens that count as used although nobody knows what the provider has done.
        #[serde(default)]
        lost_tokens: u64,
        /// US dollars that those may have cost.
        #[serde(default)]
        lost_usd: f64,
        /// How long it took, in milliseconds.
        latency_ms: u64,
        /// Why there are no vectors; none where there are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A further message of the user was taken into the run. The turn that it would have set off ends with this.
    Steered {
        /// The run.
        invocation: InvocationId,
        /// The step after which it stands.
        step: u32,
        /// The message's own turn.
        turn: TurnId,
        /// The message.
        message: Message,
    },
    /// A person is asked about a tool call, which does not run before it is allowed.
    Asked {
        /// The step.
        step: u32,
        /// Its place in the step, from 0.
        index: u32,
        /// What may happen to it after a crash.
        class: EffectClass,
        /// How it is shown.
        #[serde(default)]
        kind: ItemKind,
        /// The question, with the run and the call's id.
        question: Box<Question>,
    },
    /// The question is settled. What was allowed is intended next; anything else ends the call.
    Decided {
        /// The run.
        invocation: InvocationId,
        /// The call's id.
        effect: EffectId,
        /// The tool.
        tool: String,
        /// How.
        state: ApprovalState,
        /// Who answered; none where nobody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A tool call is decided about and to run, or was refused before it could.
    Intent {
        /// The run.
        invocation: InvocationId,
        /// The step.
        step: u32,
        /// Its place in the step, from 0.
        index: u32,
        /// The call's id.
        effect: EffectId,
        /// The tool.
        tool: String,
        /// What may happen to it after a crash.
        class: EffectClass,
        /// Whether it was refused because `max_tool_calls` is used up; it does not count as a call then.
        #[serde(default)]
        over_limit: bool,
        /// Whether it does not start at once, but with a record of its own ([`Entry::Started`]): only of class `once`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
        /// How it is shown.
        #[serde(default, skip_serializing_if = "is_plain")]
        kind: ItemKind,
        /// The beginning of its parameters; none where a question told of it before, and in older records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Preview>,
        /// The rule by which it may run, where it is not what holds of most calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A tool call that waited for its turn starts: from here on nobody knows whether it took effect until it has ended.
    Started {
        /// The run.
        invocation: InvocationId,
        /// The step.
        step: u32,
        /// The call's id.
        effect: EffectId,
    },
    /// A tool call ended.
    Result {
        /// The run.
        invocation: InvocationId,
        /// The step.
        step: u32,
        /// Its place in the step, from 0.
        index: u32,
        /// The call's id.
        effect: EffectId,
        /// The tool; empty in older records.
        #[serde(default)]
        tool: String,
        /// How it is shown.
        #[serde(default, skip_serializing_if = "is_plain")]
        kind: ItemKind,
        /// How.
        status: ToolStatus,
        /// How long it took, in milliseconds.
        #[serde(default)]
        elapsed_ms: u64,
        /// What it gave, whole; the model may be shown less.
        content: String,
        /// The pictures that the model is shown with it. Whoever keeps the entry keeps their bytes apart, by their hashes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
        /// Whether its item had ended before: a process that is gone was seen to leave it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        left: bool,
    },
    /// A tool gave text that strangers wrote, the first in its conversation.
    Tainted {
        /// The run that called the tool.
        invocation: InvocationId,
        /// The tool that gave the text.
        tool: String,
    },
    /// The loop added a message of its own after a step.
    Note {
        /// The run.
        invocation: InvocationId,
        /// The step after which it stands.
        step: u32,
        /// The message.
        message: Message,
        /// The call by which whoever began the run gave it this to know; none where the loop says it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given_by: Option<EffectId>,
    },
    /// What is told and no other entry says: how a limit stands, a remark, a plan, the end of an item that nobody saw. It means
    /// nothing to a run that goes on, and it is never an event that is live only.
    Told {
        /// The run that tells of it.
        invocation: InvocationId,
        /// The event, as it is told.
        event: EventBody,
    },
    /// A run ended.
    End {
        /// The run.
        invocation: InvocationId,
        /// How.
        response: AgentResponse,
        /// Spent by it and all below it.
        spend: Spend,
        /// Whether another run called it; not told in older records.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        below: bool,
    },
}

/// How a transcript was made smaller. Steps are counted from 1; the conversation before a run is step 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Compaction {
    /// The results of tools that were called before this step are replaced by their sizes and handles.
    Elided {
        /// The step.
        before: u32,
    },
    /// All that stands before this step, apart from the task, is replaced by a summary.
    Summarised {
        /// The step.
        before: u32,
        /// The summary.
        summary: String,
    },
    /// The model is asked for its last answer, without tools.
    Forced,
    /// Older turns of the conversation are summed up for the turns to come, behind the last step. This transcript stays.
    Condensed {
        /// The summary; empty where none came of it.
        summary: String,
    },
}

impl Batch {
    /// Nothing of that turn.
    pub fn empty(session: SessionId, turn: TurnId) -> Self {
        let (runs, entries, recipes, messages) = Default::default();
        Self { session, turn, runs, entries, recipes, messages }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.messages.is_empty()
    }
}

impl Entry {
    /// The run that it belongs to.
    pub fn invocation(&self) -> &InvocationId {
        match self {
            Self::Begin { invocation, .. }
            | Self::Step { invocation, .. }
            | Self::Answer { invocation, .. }
            | Self::Failed { invocation, .. }
            | Self::Compacted { invocation, .. }
            | Self::Embedded { invocation, .. }
            | Self::Steered { invocation, .. }
            | Self::Decided { invocation, .. }
            | Self::Intent { invocation, .. }
            | Self::Started { invocation, .. }
            | Self::Result { invocation, .. }
            | Self::Tainted { invocation, .. }
            | Self::Note { invocation, .. }
            | Self::Told { invocation, .. }
            | Self::End { invocation, .. } => invocation,
            Self::Asked { question, .. } => &question.invocation,
        }
    }
}

/// Whether a call is shown as most are.
fn is_plain(kind: &ItemKind) -> bool {
    *kind == ItemKind::default()
}

/// How an answer ended. Older records say of a refusal only that it was one.
fn ended<'de, D: Deserializer<'de>>(written: D) -> Result<StopReason, D::Error> {
    let value = serde_json::Value::deserialize(written)?;
    match value.as_str() {
        Some("refusal") => Ok(StopReason::Refusal { dropped_calls: 0 }),
        _ => serde_json::from_value(value).map_err(D::Error::custom),
    }
}
