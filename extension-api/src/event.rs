//! The one stream of events of a session.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    AgentId, CorrelationId, EffectId, FailureClass, InvocationId, ItemKind, ResponseStatus, SessionId,
    TurnId, Usage, control::ApprovalState,
};

/// One event. `seq` grows strictly within its session; a reader continues from any `seq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Position in the session's stream; 0 for live deltas, which are not kept.
    pub seq: u64,
    pub time: Timestamp,
    /// The conversation.
    pub session: SessionId,
    /// The turn, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Links everything that the turn set off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// Whose run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRef>,
    #[serde(flatten)]
    pub body: EventBody,
}

/// The place of a run in the tree of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentRef {
    pub id: AgentId,
    pub invocation: InvocationId,
    /// The run that called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<InvocationId>,
    /// 0 for the root of the turn.
    pub depth: u32,
}

/// What happened: `kind` names it, `data` holds the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", content = "data")]
pub enum EventBody {
    #[serde(rename = "interaction.turn.started")]
    TurnStarted { input: Preview },
    /// A turn ended; sums up what it spent, sub-agents included once.
    #[serde(rename = "interaction.turn.completed")]
    TurnCompleted {
        status: ResponseStatus,
        /// Why it did not succeed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<FailureClass>,
        /// Spent by the whole tree.
        spend: Spend,
    },
    /// Something began that will complete.
    #[serde(rename = "interaction.item.started")]
    ItemStarted { item: Item },
    /// A live part of an item's text, which is not kept; or, of a `todo_list`, the whole plan, which is.
    #[serde(rename = "interaction.item.updated")]
    ItemUpdated {
        id: String,
        item: ItemKind,
        /// The text that came; of a `todo_list` the whole plan as JSON.
        delta: String,
    },
    /// An item ended, whatever the way.
    #[serde(rename = "interaction.item.completed")]
    ItemCompleted {
        /// What, with its output.
        item: Item,
        outcome: ItemOutcome,
        /// How long it took, in milliseconds.
        elapsed_ms: u64,
    },
    /// The text of an item that came so far is void: the model is asked again.
    #[serde(rename = "interaction.stream.reset")]
    StreamReset { id: String, reason: String },
    /// Live: the reader was too slow, so deltas were left out. Items that it shows in part are whole in the journal.
    #[serde(rename = "interaction.stream.skipped")]
    StreamSkipped,
    /// A further message was taken into the turn that was running.
    #[serde(rename = "interaction.turn.steered")]
    TurnSteered {
        input: Preview,
        /// The turn that it would have set off.
        from: TurnId,
    },
    /// An agent was chosen explicitly.
    #[serde(rename = "interaction.subagent.selected")]
    SubagentSelected {
        /// By `@id`, an API's field, or the session.
        by: String,
    },
    /// An agent has taken the conversation over: it has the user's messages from here on.
    #[serde(rename = "interaction.handoff.started")]
    HandoffStarted { to: AgentId, summary: Preview },
    /// The orchestrator has the conversation again.
    #[serde(rename = "interaction.handoff.ended")]
    HandoffEnded {
        /// The agent that had it.
        from: AgentId,
        /// Why it has it again, in words.
        reason: String,
        /// What that agent said of it; empty where it gave it back without a word, or did not give it back itself.
        summary: Preview,
    },
    /// A person is asked whether a tool call may run.
    #[serde(rename = "interaction.approval.requested")]
    ApprovalRequested {
        /// The call, by whose id it is answered.
        id: EffectId,
        tool: String,
        /// The beginning of its parameters.
        input: Preview,
        need: String,
        /// When it counts as denied.
        expires: Timestamp,
    },
    #[serde(rename = "interaction.approval.answered")]
    ApprovalAnswered {
        /// The call.
        id: EffectId,
        tool: String,
        state: ApprovalState,
        /// Who answered; absent where nobody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    #[serde(rename = "interaction.subagent.started")]
    SubagentStarted { task: Preview },
    /// A sub-agent ended with `success`.
    #[serde(rename = "interaction.subagent.completed")]
    SubagentCompleted {
        content: Preview,
        /// Spent by it and those below it.
        spend: Spend,
    },
    /// A sub-agent ended with `error` or `refused`.
    #[serde(rename = "interaction.subagent.failed")]
    SubagentFailed {
        /// Which of the two.
        status: ResponseStatus,
        error: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<FailureClass>,
        /// Spent by it and those below it.
        spend: Spend,
    },
    /// Most of a limit is used; told once for each limit and each run, session or day.
    #[serde(rename = "interaction.budget.warning")]
    BudgetWarning(BudgetUse),
    /// A limit stopped work.
    #[serde(rename = "interaction.budget.exceeded")]
    BudgetExceeded(BudgetUse),
    /// Something that the user should know and that stops nothing.
    #[serde(rename = "interaction.diagnostic")]
    Diagnostic {
        /// For programs.
        code: String,
        /// For people.
        message: String,
    },
    /// One model attempt, for accounting.
    #[serde(rename = "interaction.model.attempt")]
    ModelAttempt {
        /// The step of the run, from 1.
        step: u32,
        /// The attempt within the step, from 1.
        attempt: u32,
        /// The model that was asked, as `provider/model`.
        model: String,
        /// Tokens, as the provider reported them.
        usage: Usage,
        /// Whether `usage` is an estimate because the provider reported none.
        #[serde(default)]
        estimated: bool,
        /// Request to end of stream, in milliseconds.
        latency_ms: u64,
        /// Request to the first piece of an answer, in milliseconds; none where none came, and of older records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_ms: Option<u64>,
        /// Why the model stopped, or the failure.
        stop: String,
        /// US dollars; absent where the price is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
    },
    /// The kernel did what a session had asked for.
    #[serde(rename = "kernel.lifecycle")]
    Lifecycle {
        /// `restarted`.
        state: String,
        /// Why, where there is a reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// How much of a limit is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetUse {
    /// The key that sets the limit, such as `max_turns`.
    pub limit: String,
    /// For what the limit holds.
    #[serde(default)]
    pub scope: LimitScope,
    /// How much was used: of costs, in millionths of a US dollar; of time, in milliseconds.
    pub used: u64,
    /// How much is allowed.
    pub allowed: u64,
    /// When the limit begins anew; none where it does not by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets: Option<Timestamp>,
}

/// For what a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// One run of an agent and all below it.
    #[default]
    Run,
    Session,
    /// One agent, for a day (UTC).
    Agent,
    /// The sessions of a named token, or of one name behind it, for a day (UTC).
    Token,
    /// Everything, for a day (UTC).
    Day,
}

/// Something with a beginning and an end within a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Item {
    /// Unique within the session.
    pub id: String,
    #[serde(rename = "type")]
    pub kind: ItemKind,
    /// The tool's name, where it is a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Preview>,
    /// Text of a message, or the result of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Preview>,
}

/// How an item ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ItemOutcome {
    Ok,
    Error,
    Refused,
    Cancelled,
    /// The kernel ended before it did.
    Interrupted,
    /// It may have happened or not.
    OutcomeUnknown,
}

/// The beginning of a text, with its full size where it was cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preview {
    /// At most [`Preview::MAX`] bytes of it.
    pub text: String,
    /// Whether `text` is less than all.
    #[serde(default)]
    pub truncated: bool,
    /// The size of all, in bytes.
    pub bytes: usize,
    /// Under which all of it can be read, where it was cut and is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
}

impl Preview {
    /// The longest text that is shown whole, in bytes: a screen or two.
    pub const MAX: usize = 4096;

    /// The beginning of `text`, cut between characters.
    pub fn of(text: &str) -> Self {
        let end = text.floor_char_boundary(Self::MAX);
        Self { text: text[..end].to_owned(), truncated: end < text.len(), bytes: text.len(), handle: None }
    }

    /// The same of a text that can be read whole under `handle`.
    pub fn kept(text: &str, handle: &str) -> Self {
        let preview = Self::of(text);
        Self { handle: preview.truncated.then(|| handle.to_owned()), ..preview }
    }
}

/// What work has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Spend {
    /// Tokens by kind.
    pub usage: Usage,
    pub turns: u32,
    pub tool_calls: u32,
    /// Runs of agents, the root included.
    pub invocations: u32,
    /// US dollars; absent where a price is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
}
