//! The records of a run, and how a run that was cut off goes on.
//!
//! Entries are committed *before* what they announce happens: the step before the model is asked, the intent
//! before the tool runs. Ids are derived from their place (turn, invocation, step, index), so running the same
//! task again with the same ids finds what was recorded, and repeats only what has no result.
//!
//! Whoever runs a task again closes, as interrupted, the items that the cut-off run left open in the stream of
//! events; what is done again is started again there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use drupe_extension_api::{
    AgentId, AgentRef, AgentResponse, EffectClass, EffectId, EventBody, InvocationId, Message, SessionId,
    Spend, ToolStatus, TurnId, Usage,
};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// Where records go. One commit is one transaction: all of it or nothing.
pub trait Journal: Send + Sync {
    /// Records a batch; returns when it is as durable as its entries need.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), JournalFault>>;

    /// What is recorded of an invocation; none if it never began.
    fn load(
        &self,
        invocation: InvocationId,
    ) -> BoxFuture<'_, Result<Option<RecordedInvocation>, JournalFault>>;

    /// The recorded result of a tool call, whole; none if `session` knows no such call, or it has no result yet.
    fn output(
        &self,
        session: SessionId,
        effect: EffectId,
    ) -> BoxFuture<'_, Result<Option<String>, JournalFault>>;
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
    /// What happened or is about to.
    pub entries: Vec<Entry>,
    /// Events that tell of it; the journal numbers and then publishes them.
    pub events: Vec<(Option<AgentRef>, EventBody)>,
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
        /// Tokens spent.
        usage: Usage,
        /// US dollars, where the price is known.
        cost_usd: Option<f64>,
    },
    /// A tool call is about to run, or was refused before it could.
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
        /// How.
        status: ToolStatus,
        /// What it gave, whole; the model may be shown less.
        content: String,
    },
    /// The loop added a message of its own after a step.
    Note {
        /// The run.
        invocation: InvocationId,
        /// The step after which it stands.
        step: u32,
        /// The message.
        message: Message,
    },
    /// A run ended.
    End {
        /// The run.
        invocation: InvocationId,
        /// How.
        response: AgentResponse,
        /// Spent by it and all below it.
        spend: Spend,
    },
}

/// What is recorded of an invocation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedInvocation {
    /// Its task.
    pub task: String,
    /// Its steps, in order.
    pub steps: Vec<RecordedStep>,
    /// How it ended, if it did.
    pub response: Option<AgentResponse>,
    /// What it and all below it had spent when it ended.
    pub spend: Spend,
}

/// What is recorded of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedStep {
    /// From 1.
    pub step: u32,
    /// The last attempt that began.
    pub attempt: u32,
    /// Tokens set aside for that attempt.
    pub reserved_tokens: u64,
    /// Tokens set aside for attempts whose end was never seen, because another followed.
    pub lost_tokens: u64,
    /// The assistant's message, if the model answered.
    pub answer: Option<Message>,
    /// Tokens spent.
    pub usage: Usage,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// The tool calls that were intended, by their place.
    pub effects: Vec<RecordedEffect>,
    /// Messages that the loop added.
    pub notes: Vec<Message>,
}

/// What is recorded of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEffect {
    /// Its place in the step.
    pub index: u32,
    /// Its id.
    pub effect: EffectId,
    /// What may happen to it after a crash.
    pub class: EffectClass,
    /// How it ended, if it did.
    pub result: Option<(ToolStatus, String)>,
}

impl RecordedInvocation {
    /// Adds one entry that belongs to this invocation; entries come in the order of their commits.
    pub fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Begin { task, .. } => self.task = task,
            Entry::Step { step, attempt, reserved_tokens, .. } => {
                let at = self.step(step);
                at.lost_tokens = at.lost_tokens.saturating_add(at.reserved_tokens);
                at.attempt = attempt;
                at.reserved_tokens = reserved_tokens;
            }
            Entry::Answer { step, message, usage, cost_usd, .. } => {
                let at = self.step(step);
                at.answer = Some(message);
                at.usage = usage;
                at.cost_usd = cost_usd;
            }
            Entry::Intent { step, index, effect, class, .. } => {
                self.step(step).effects.push(RecordedEffect { index, effect, class, result: None });
            }
            Entry::Result { step, effect, status, content, .. } => {
                if let Some(known) = self.step(step).effects.iter_mut().find(|e| e.effect == effect) {
                    known.result = Some((status, content));
                }
            }
            Entry::Note { step, message, .. } => self.step(step).notes.push(message),
            Entry::End { response, spend, .. } => {
                self.response = Some(response);
                self.spend = spend;
            }
        }
    }

    /// Tokens of model calls of its own whose end was never seen.
    pub fn lost_tokens(&self) -> u64 {
        self.steps.iter().map(RecordedStep::lost).fold(0, u64::saturating_add)
    }

    fn step(&mut self, step: u32) -> &mut RecordedStep {
        let at = self.steps.partition_point(|s| s.step < step);
        if self.steps.get(at).is_none_or(|s| s.step != step) {
            self.steps.insert(at, RecordedStep { step, ..RecordedStep::default() });
        }
        &mut self.steps[at]
    }
}

impl RecordedStep {
    /// Tokens of attempts whose end was never seen.
    pub fn lost(&self) -> u64 {
        let open = if self.answer.is_none() { self.reserved_tokens } else { 0 };
        self.lost_tokens.saturating_add(open)
    }
}

impl Entry {
    /// The run that it belongs to.
    pub fn invocation(&self) -> &InvocationId {
        match self {
            Self::Begin { invocation, .. }
            | Self::Step { invocation, .. }
            | Self::Answer { invocation, .. }
            | Self::Intent { invocation, .. }
            | Self::Result { invocation, .. }
            | Self::Note { invocation, .. }
            | Self::End { invocation, .. } => invocation,
        }
    }
}

/// A journal without a file, for runs that need not outlive the process.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    batches: Mutex<Vec<Batch>>,
}

impl MemoryJournal {
    /// All that was committed, in order.
    pub fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A journal that holds only the first `commits` of this one, as after a crash.
    pub fn cut(&self, commits: usize) -> Arc<Self> {
        Arc::new(Self { batches: Mutex::new(self.batches().into_iter().take(commits).collect()) })
    }
}

impl Journal for MemoryJournal {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), JournalFault>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
        Box::pin(std::future::ready(Ok(())))
    }

    fn load(
        &self,
        invocation: InvocationId,
    ) -> BoxFuture<'_, Result<Option<RecordedInvocation>, JournalFault>> {
        let mut found: HashMap<InvocationId, RecordedInvocation> = HashMap::new();
        for entry in
            self.batches().into_iter().flat_map(|b| b.entries).filter(|e| *e.invocation() == invocation)
        {
            found.entry(invocation.clone()).or_default().apply(entry);
        }
        Box::pin(std::future::ready(Ok(found.remove(&invocation))))
    }

    fn output(
        &self,
        session: SessionId,
        effect: EffectId,
    ) -> BoxFuture<'_, Result<Option<String>, JournalFault>> {
        let entries = self.batches().into_iter().filter(|b| b.session == session).flat_map(|b| b.entries);
        let results = entries.filter_map(|entry| match entry {
            Entry::Result { effect: of, content, .. } if of == effect => Some(content),
            _ => None,
        });
        Box::pin(std::future::ready(Ok(results.last())))
    }
}
