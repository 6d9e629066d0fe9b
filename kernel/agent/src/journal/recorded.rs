//! What a journal holds of the runs of a turn, put together from their entries, in the form in which a checkpoint keeps it.
//!
//! It deliberately decides nothing: what a recorded thing means for a run that goes on is decided where it goes on. What
//! none of them reads any more is let go by [`RecordedTurn::prune`].

use std::collections::HashMap;

use drupe_extension_api::{
    AgentId, AgentResponse, EffectClass, EffectId, Image, InvocationId, Message, SessionId, Spend,
    ToolStatus, TurnId, Usage,
};
use drupe_limits::{Quotas, Spender};
use serde::{Deserialize, Serialize};

use super::{Compaction, Entry};
use crate::{budget::Spent, dispatch::OUTSIDE, ids, model::StopReason, policy::Question};

/// An earlier turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierTurn {
    /// When its message came, in milliseconds since 1970.
    pub at_ms: i64,
    /// The message of the user.
    pub said: String,
    /// The answer to that message.
    pub answered: String,
}

/// What is recorded of an invocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedInvocation {
    /// Whose run it is.
    pub agent: Option<AgentId>,
    /// The hash of what it was made of when it began; none where it is code.
    #[serde(skip_serializing_if = "is_default")]
    pub recipe: Option<String>,
    /// The runs that began below it, whoever asked for them, in order.
    #[serde(skip_serializing_if = "is_default")]
    pub below: Vec<InvocationId>,
    /// Its steps, in order.
    #[serde(skip_serializing_if = "is_default")]
    pub steps: Vec<RecordedStep>,
    /// The calls whose inputs it took in, in order.
    #[serde(skip_serializing_if = "is_default")]
    pub given: Vec<EffectId>,
    /// How it ended, if it did.
    pub response: Option<AgentResponse>,
    /// What it and all below it had spent when it ended.
    #[serde(skip_serializing_if = "is_default")]
    pub spend: Spend,
    /// What that sum lacks, where the steps and the runs below that it came from are pruned.
    #[serde(skip_serializing_if = "is_default")]
    pub beside: Spent,
}

/// What is recorded of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedStep {
    /// From 1.
    pub step: u32,
    /// The last attempt that began.
    pub attempt: u32,
    /// The model of that attempt.
    #[serde(skip_serializing_if = "is_default")]
    pub model: String,
    /// Tokens set aside for that attempt; 0 once its end is recorded.
    #[serde(skip_serializing_if = "is_default")]
    pub reserved_tokens: u64,
    /// US dollars set aside for it, likewise.
    #[serde(skip_serializing_if = "is_default")]
    pub reserved_usd: f64,
    /// Whether that is nothing since no price is known.
    #[serde(skip_serializing_if = "is_default")]
    pub unpriced: bool,
    /// Tokens of attempts that count as used although their end was never seen.
    #[serde(skip_serializing_if = "is_default")]
    pub lost_tokens: u64,
    /// US dollars that those may have cost.
    #[serde(skip_serializing_if = "is_default")]
    pub lost_usd: f64,
    /// The assistant's message, if the model answered.
    #[serde(skip_serializing_if = "is_default")]
    pub answer: Option<Message>,
    /// How that ended, where it is not whole.
    #[serde(skip_serializing_if = "is_default")]
    pub stop: StopReason,
    /// What the provider said of that.
    #[serde(skip_serializing_if = "is_default")]
    pub said: String,
    /// Tokens and known dollars of all of its attempts, but for those that were lost.
    #[serde(skip_serializing_if = "is_default")]
    pub used: Spent,
    /// How the transcript was made smaller before the step, in order.
    #[serde(skip_serializing_if = "is_default")]
    pub compactions: Vec<Compaction>,
    /// The tool calls that were intended, by their place.
    #[serde(skip_serializing_if = "is_default")]
    pub effects: Vec<RecordedEffect>,
    /// Messages that the loop added.
    #[serde(skip_serializing_if = "is_default")]
    pub notes: Vec<Message>,
    /// Messages of the user that were taken in after it, with their own turns.
    #[serde(skip_serializing_if = "is_default")]
    pub steered: Vec<(TurnId, Message)>,
    /// What whoever began the run gave it to know after it.
    #[serde(skip_serializing_if = "is_default")]
    pub given: Vec<Message>,
}

/// What is recorded of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedEffect {
    /// Its place in the step.
    pub index: u32,
    /// Its id.
    pub effect: EffectId,
    /// What is called.
    pub tool: String,
    /// What may happen to it after a crash.
    pub class: EffectClass,
    /// Whether it was refused because `max_tool_calls` was used up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub over_limit: bool,
    /// What a person was asked about it, where one was and it has not ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub question: Option<Box<Question>>,
    /// How far it came.
    pub reached: Reached,
    /// How it ended, if it did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub result: Option<(ToolStatus, String)>,
    /// The pictures of its result.
    #[serde(default, skip_serializing_if = "is_default")]
    pub images: Vec<Image>,
    /// The size of what it gave, where only what the model is shown in its place is left.
    #[serde(default, skip_serializing_if = "is_default")]
    pub size: Option<usize>,
}

/// How far a tool call came before it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// A person was asked about it.
    Asked,
    /// It was to run, and had not started.
    Intended,
    /// It may have taken effect.
    Started,
}

/// What is recorded of the runs of a turn. It is collected from entries in the order of their commits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedTurn(pub(super) HashMap<InvocationId, RecordedInvocation>);

impl RecordedTurn {
    /// What is recorded of a run; none if it never began.
    pub fn run(&self, invocation: &InvocationId) -> Option<&RecordedInvocation> {
        self.0.get(invocation)
    }

    /// Counts in the quotas what was set aside for the model calls of the turn that a process which is gone did not see the
    /// end of. Meant for the start, before any turn goes on: each of them would else reserve what the others have lost.
    pub fn lose_open_calls(&self, session: &SessionId, quotas: &Quotas, now_ms: i64) {
        for (id, run) in &self.0 {
            let Some(agent) = &run.agent else { continue };
            for step in run.steps.iter().filter(|step| step.reserved_tokens > 0) {
                let call = ids::model_call(id, step.step, step.attempt);
                let who = Spender { session, agent };
                quotas.lose(who, &call, step.reserved_tokens, step.reserved_usd, now_ms);
            }
        }
    }

    /// The runs, in no order.
    pub(crate) fn into_runs(self) -> impl Iterator<Item = (InvocationId, RecordedInvocation)> {
        self.0.into_iter()
    }
}

impl Extend<Entry> for RecordedTurn {
    fn extend<I: IntoIterator<Item = Entry>>(&mut self, entries: I) {
        for entry in entries {
            if let Entry::Told { .. } = entry {
                continue;
            }
            // Only what is new: so no run is ever below itself.
            if let Entry::Begin { invocation, parent: Some(parent), .. } = &entry
                && !self.0.contains_key(invocation)
                && let Some(parent) = self.0.get_mut(parent)
            {
                parent.below.push(invocation.clone());
            }
            match self.0.get_mut(entry.invocation()) {
                Some(known) => known.apply(entry),
                None => self.0.entry(entry.invocation().clone()).or_default().apply(entry),
            }
        }
    }
}

impl FromIterator<Entry> for RecordedTurn {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut turn = Self::default();
        turn.extend(entries);
        turn
    }
}

impl RecordedInvocation {
    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Begin { agent, recipe, .. } => (self.agent, self.recipe) = (Some(agent), recipe),
            Entry::Step { step, attempt, model, reserved_tokens, reserved_usd, unpriced, .. } => {
                let at = self.step(step);
                (at.lost_tokens, at.lost_usd) = (at.lost(), at.lost_usd());
                (at.attempt, at.model) = (attempt, model);
                (at.reserved_tokens, at.reserved_usd, at.unpriced) =
                    (reserved_tokens, reserved_usd, unpriced);
            }
            Entry::Answer { step, message, usage, cost_usd, stop, said, .. } => {
                let at = self.step(step);
                (at.answer, at.stop, at.said) = (Some(message), stop, said);
                at.ended(usage, cost_usd);
            }
            Entry::Failed { step, usage, cost_usd, lost_tokens, lost_usd, repeated, .. } => {
                let at = self.step(step);
                match repeated {
                    true => at.used += Spent::of(usage, cost_usd),
                    false => at.ended(usage, cost_usd),
                }
                at.lost_tokens = at.lost_tokens.saturating_add(lost_tokens);
                at.lost_usd += lost_usd;
            }
            Entry::Compacted { step, compaction, usage, cost_usd, model, .. } => {
                let at = self.step(step);
                at.compactions.push(compaction);
                if !model.is_empty() {
                    at.ended(usage, cost_usd);
                }
            }
            Entry::Embedded { attempt, usage, cost_usd, lost_tokens, lost_usd, .. } => {
                let at = self.step(OUTSIDE);
                at.attempt = at.attempt.max(attempt);
                at.used += Spent::of(usage, cost_usd);
                at.lost_tokens = at.lost_tokens.saturating_add(lost_tokens);
                at.lost_usd += lost_usd;
            }
            Entry::Steered { step, turn, message, .. } => self.step(step).steered.push((turn, message)),
            Entry::Asked { step, index, class, question, .. } => {
                let (effect, tool) = (question.effect.clone(), question.tool.clone());
                self.step(step).effects.push(RecordedEffect {
                    index,
                    effect,
                    tool,
                    class,
                    over_limit: false,
                    question: Some(question),
                    reached: Reached::Asked,
                    result: None,
                    images: Vec::new(),
                    size: None,
                });
            }
            Entry::Decided { .. } | Entry::Tainted { .. } | Entry::Told { .. } => {}
            Entry::Intent { step, index, effect, tool, class, over_limit, waits, .. } => {
                let reached = if waits { Reached::Intended } else { Reached::Started };
                match self.effect(step, &effect) {
                    Some(asked) => asked.reached = reached,
                    None => self.step(step).effects.push(RecordedEffect {
                        index,
                        effect,
                        tool,
                        class,
                        over_limit,
                        question: None,
                        reached,
                        result: None,
                        images: Vec::new(),
                        size: None,
                    }),
                }
            }
            Entry::Started { step, effect, .. } => {
                if let Some(known) = self.effect(step, &effect) {
                    known.reached = Reached::Started;
                }
            }
            Entry::Result { step, effect, status, content, images, .. } => {
                if let Some(known) = self.effect(step, &effect) {
                    (known.result, known.question, known.images) = (Some((status, content)), None, images);
                }
            }
            Entry::Note { step, message, given_by: None, .. } => self.step(step).notes.push(message),
            Entry::Note { step, message, given_by: Some(effect), .. } => {
                self.given.push(effect);
                self.step(step).given.push(message);
            }
            Entry::End { response, spend, .. } => {
                self.response = Some(response);
                self.spend = spend;
            }
        }
    }

    /// What was gathered for its task before it began.
    pub(crate) fn notes_at_the_beginning(&self) -> Vec<String> {
        let before = self.steps.iter().filter(|step| step.step == OUTSIDE);
        let notes = before.flat_map(|step| &step.notes).filter_map(|note| match note {
            Message::User { content } => Some(content.clone()),
            _ => None,
        });
        notes.collect()
    }

    /// What it and all below it are recorded to have used, of which those below it used so much each: the sum that it ended
    /// with and what that lacks, or that of its own steps and of those below.
    pub fn spent(&self, below: impl Iterator<Item = Spent>) -> Spent {
        let mut spent = Spent::default();
        if self.response.is_some() {
            spent += self.beside_its_sum(below);
            spent += self.spend.into();
        } else {
            spent += self.steps.iter().map(RecordedStep::lost_calls).sum();
            spent += Spent::run();
            spent += self.steps.iter().map(RecordedStep::spent).sum();
            spent += below.sum();
        }
        spent
    }

    /// What the sum of a run that has ended lacks: model calls that were lost and, where it has no cost since some price is
    /// unknown, the known cost of its own steps and of those below.
    pub(super) fn beside_its_sum(&self, below: impl Iterator<Item = Spent>) -> Spent {
        let mut beside = self.beside;
        beside += self.steps.iter().map(RecordedStep::lost_calls).sum();
        if self.spend.cost_usd.is_none() {
            beside.usd += self.steps.iter().map(|step| step.used.usd).sum::<f64>();
        }
        // The sum of one that ended holds most of those below.
        beside += below.map(|spent| spent.beyond(&self.spend)).sum();
        beside
    }

    fn effect(&mut self, step: u32, effect: &EffectId) -> Option<&mut RecordedEffect> {
        self.step(step).effects.iter_mut().find(|known| known.effect == *effect)
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
        self.lost_tokens.saturating_add(self.reserved_tokens)
    }

    /// US dollars that those may have cost.
    pub fn lost_usd(&self) -> f64 {
        self.lost_usd + self.reserved_usd
    }

    fn lost_calls(&self) -> Spent {
        Spent::lost(self.lost(), self.lost_usd())
    }

    /// What it has used, but for the calls that were lost.
    fn spent(&self) -> Spent {
        let turns = u32::from(self.answer.is_some());
        Spent { turns, tool_calls: self.tool_calls(), ..self.used }
    }

    /// Tool calls that count as such.
    pub(crate) fn tool_calls(&self) -> u32 {
        let calls = self.effects.iter().filter(|effect| !effect.over_limit).count();
        u32::try_from(calls).unwrap_or(u32::MAX)
    }

    /// The end of the last attempt: nothing is set aside any more.
    fn ended(&mut self, usage: Usage, cost_usd: Option<f64>) {
        (self.reserved_tokens, self.reserved_usd) = (0, 0.0);
        self.used += Spent::of(usage, cost_usd);
    }
}

/// Most of a step is as it was before anything happened: that is not written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
