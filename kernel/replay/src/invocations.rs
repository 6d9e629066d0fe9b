//! What is recorded of a turn, put together by run and in the form in which it is fed to the loop.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use drupe_agent::{Chain, Compaction, Entry, Question, Recipe, StopReason, budget::Spent, ids, spawn_agent};
use drupe_extension_api::{
    AgentId, AgentInvocationContext, AgentResponse, BudgetUse, CorrelationId, DefinitionLimits, EffectClass,
    EffectId, EventBody, FailureClass, Image, InvocationId, Message, SessionId, Spend, ToolStatus, TurnId,
    Usage, control::ApprovalState, wire::ClientTool,
};

use crate::summaries::{self, CameToNothing};

/// The step of what is recorded before the first one: notes, and what code does beside the loop.
pub(crate) const OUTSIDE: u32 = 0;

/// A turn as it was recorded, with what its runs were told that stands in no record of theirs.
#[derive(Clone)]
pub struct Recording {
    pub session: SessionId,
    pub turn: TurnId,
    /// Links everything of the turn.
    pub correlation: Option<CorrelationId>,
    /// The message that set it off.
    pub message: String,
    /// What set it off through events.
    pub chain: Chain,
    /// When the message came, in milliseconds since 1970.
    pub at_ms: i64,
    /// How often it was begun: more than once, where it went on after a restart.
    pub starts: u32,
    /// Its records, in the order of their commits.
    pub entries: Vec<Entry>,
    /// What its runs were made of, by the hashes that their beginnings name.
    pub recipes: BTreeMap<String, Recipe>,
    /// What each of its roots was told, in their order.
    pub roots: Vec<RootContext>,
    /// The tools that its client brought along.
    pub client_tools: Vec<ClientTool>,
    /// Bytes of one result that a model is shown.
    pub tool_response_max_bytes: usize,
}

/// What a root of a turn is told beside its task and its notes.
#[derive(Debug, Clone, Default)]
pub struct RootContext {
    /// What it learns of the conversation.
    pub context: AgentInvocationContext,
    /// Earlier messages of the conversation.
    pub history: Vec<Arc<Message>>,
    /// What it sums up of the conversation where its record says that it did: a setting decides that.
    pub to_sum_up: Vec<Arc<Message>>,
    /// Who handed the conversation to it before this turn, and what they may spend.
    pub behalf: Option<(AgentId, DefinitionLimits)>,
}

/// One run, as it is fed to the loop.
#[derive(Debug, Default)]
pub(crate) struct RunRecord {
    pub agent: Option<AgentId>,
    pub parent: Option<InvocationId>,
    pub depth: u32,
    pub task: String,
    /// The hash of what it is made of.
    pub recipe: Option<String>,
    /// What was gathered for it before it began.
    pub notes: Vec<String>,
    /// By what text of strangers had come before it began.
    pub tainted: Vec<String>,
    /// By what such text came with the record before this one.
    just_tainted: Option<String>,
    /// Requests to its model, in order; none of those that a restart cut off.
    pub asked: Vec<AskedModel>,
    pub calls: Vec<CallRecord>,
    pub steered: Vec<SteeredRecord>,
    /// What it read between its steps of what it was sent, or told by people.
    pub given: Vec<GivenRecord>,
    /// Whether it worked beside the run that had spawned it.
    pub beside_its_caller: bool,
    /// What it spent that the loop did not: vectors, and runs that code began.
    pub beside: Vec<(usize, Spent)>,
    pub compacted: bool,
    /// Whether it summed up older turns of the conversation.
    pub condensed: bool,
    pub exceeded: Vec<BudgetUse>,
    pub end: Option<(AgentResponse, Spend)>,
    /// The place of its end among the records of the turn.
    pub ended_at: usize,
    /// How often a restart cut its model off.
    pub cut_off: u32,
    /// The places of the last time among the records of the turn, and of the last request that it let be.
    pub cut_at: usize,
    pub asked_at: usize,
}

/// One request to a model: its attempts, and how the last of them ended.
#[derive(Debug)]
pub(crate) struct AskedModel {
    pub step: u32,
    /// Whether it is a step's, and no request for a summary.
    pub shown: bool,
    pub model: String,
    /// US dollars a token, where a price was known; 0 where nothing was set aside.
    pub usd_per_token: Option<f64>,
    pub reserved_tokens: u64,
    /// Bytes that a token stood for, where that was recorded.
    pub bytes_per_token: Option<f64>,
    pub failed: Vec<FailedAttempt>,
    /// Whether a limit left no room to repeat the last attempt.
    pub no_room: bool,
    pub end: AskEnd,
}

#[derive(Debug)]
pub(crate) struct FailedAttempt {
    pub model: String,
    pub class: FailureClass,
    pub message: String,
    pub usage: Usage,
    pub cost_usd: Option<f64>,
}

#[derive(Debug)]
pub(crate) enum AskEnd {
    Answered {
        message: Message,
        usage: Usage,
        cost_usd: Option<f64>,
        stop: StopReason,
        said: String,
        model: String,
    },
    /// No attempt gave an answer.
    Failed(FailedAttempt),
    /// It was stopped from outside, or nothing is recorded of its end.
    Stopped,
}

/// One call of a tool.
#[derive(Debug, Clone)]
pub(crate) struct CallRecord {
    pub step: u32,
    pub effect: EffectId,
    pub tool: String,
    /// Whether it was made before the first request, as the condition of a schedule is.
    pub first: bool,
    /// Whether it is what a spawned agent was asked, beside the steps.
    pub of_spawned: bool,
    /// The parameters as the model wrote them.
    pub arguments: String,
    /// What may happen to it after a crash, as its intent has it.
    pub class: Option<EffectClass>,
    pub question: Option<Box<Question>>,
    pub decided: Option<(ApprovalState, Option<String>)>,
    /// The rule by which it might run.
    pub by: Option<String>,
    pub result: Option<(ToolStatus, String, Vec<Image>)>,
    /// The place of the result among the records of the turn.
    pub at: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct SteeredRecord {
    pub step: u32,
    pub turn: TurnId,
    pub text: String,
    pub strangers: Option<String>,
}

/// Something that a run read although nobody of the user's conversation said it.
#[derive(Debug, Clone)]
pub(crate) struct GivenRecord {
    /// The step after which it was read.
    pub step: u32,
    /// The call by which it came.
    pub effect: EffectId,
    pub text: String,
}

/// All runs of a turn.
#[derive(Debug, Default)]
pub(crate) struct Invocations {
    pub all: HashMap<InvocationId, RunRecord>,
    /// In the order in which they began.
    pub order: Vec<InvocationId>,
    pub roots: Vec<InvocationId>,
    /// Runs that code began, and all below them: the loop does not come to them by itself.
    pub of_code: HashSet<InvocationId>,
}

/// Whether a restart cut a model call off: the next process recorded that, and not the one that had asked.
fn is_cut_off(entry: &Entry) -> bool {
    matches!(entry, Entry::Failed { class: FailureClass::Internal, told: None, usage, repeated: false, .. } if usage.total() == 0)
}

/// The records as a turn has them that nothing interrupted: without requests that a restart cut off, without what the next
/// process told anew, and without summaries that came to nothing.
pub(crate) fn uninterrupted(entries: &[Entry]) -> Vec<(usize, &Entry)> {
    let mut kept: Vec<(usize, &Entry)> = Vec::with_capacity(entries.len());
    let nothing = CameToNothing::of(entries);
    for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| !nothing.holds(entry)) {
        if is_cut_off(entry) {
            let (run, step) = place(entry);
            let of = |other: &Entry| matches!(other, Entry::Step { .. }) && place(other) == (run, step);
            if let Some(asked) = kept.iter().rposition(|(_, other)| of(other)) {
                // Attempts that were repeated before are recorded with the last one, and so are not there.
                kept.remove(asked);
            }
            continue;
        }
        kept.push((at, entry));
    }
    kept
}

fn place(entry: &Entry) -> (&InvocationId, Option<u32>) {
    (entry.invocation(), step_of(entry))
}

/// The step of a record, where it names one.
pub(crate) fn step_of(entry: &Entry) -> Option<u32> {
    match entry {
        Entry::Step { step, .. }
        | Entry::Answer { step, .. }
        | Entry::Failed { step, .. }
        | Entry::Compacted { step, .. }
        | Entry::Steered { step, .. }
        | Entry::Asked { step, .. }
        | Entry::Intent { step, .. }
        | Entry::Started { step, .. }
        | Entry::Result { step, .. }
        | Entry::Note { step, .. } => Some(*step),
        _ => None,
    }
}

impl Invocations {
    pub fn of(turn: &TurnId, entries: &[Entry]) -> Self {
        let mut runs = Self::default();
        for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| is_cut_off(entry)) {
            let run = runs.all.entry(entry.invocation().clone()).or_default();
            run.cut_off += 1;
            run.cut_at = at;
        }
        CameToNothing::of(entries).charge(entries, &mut runs.all);
        for (at, entry) in uninterrupted(entries) {
            if let Entry::Begin { invocation, .. } = entry
                && !runs.order.contains(invocation)
            {
                runs.order.push(invocation.clone());
            }
            runs.all.entry(entry.invocation().clone()).or_default().add(at, entry);
        }
        runs.roots = (0..)
            .map(|nth| if nth == 0 { ids::root_invocation(turn) } else { ids::further_root(turn, nth) })
            .take_while(|id| runs.all.get(id).is_some_and(|run| run.agent.is_some()))
            .collect();
        runs.find_those_of_code();
        runs
    }

    pub fn get(&self, id: &InvocationId) -> Option<&RunRecord> {
        self.all.get(id).filter(|run| run.agent.is_some())
    }

    /// The loop begins a run for a call of a model, and for what a spawned agent is asked; every other one below a root is code's.
    fn find_those_of_code(&mut self) {
        for id in self.order.clone() {
            let Some(parent) = self.all[&id].parent.clone() else { continue };
            let caller = self.all.get(&parent);
            let calls = caller.iter().flat_map(|caller| &caller.calls);
            let mut of_loop = calls.filter(|call| call.step != OUTSIDE || call.of_spawned);
            let called = of_loop.find(|call| ids::child_of_effect(&call.effect) == id);
            let (is_called, beside) = (called.is_some(), called.is_some_and(|call| call.of_spawned));
            let below_code = self.of_code.contains(&parent)
                || caller.is_some_and(|caller| caller.recipe.is_none() && caller.agent.is_some());
            if is_called && !below_code {
                if let Some(run) = self.all.get_mut(&id) {
                    run.beside_its_caller = beside;
                }
                continue;
            }
            self.of_code.insert(id.clone());
            // What is below code is a part of what that spent; what a tool's code began is a part of its caller.
            if below_code {
                continue;
            }
            let (at, spent) = match &self.all[&id] {
                RunRecord { end: Some((_, spend)), ended_at, .. } => (*ended_at, Spent::from(*spend)),
                _ => continue,
            };
            if let Some(caller) = self.all.get_mut(&parent) {
                caller.beside.push((at, spent));
            }
        }
    }
}

impl CallRecord {
    /// Whether code of a tool, or of an agent, made it.
    pub fn is_of_code(&self) -> bool {
        self.step == OUTSIDE && !self.first && !self.of_spawned
    }

    /// Whether an agent may have begun something by it, beside the steps of the run that made it.
    pub fn spawns(&self) -> bool {
        self.step != OUTSIDE && matches!(self.tool.as_str(), spawn_agent::SPAWN | spawn_agent::SEND)
    }
}

impl RunRecord {
    fn add(&mut self, at: usize, entry: &Entry) {
        let just_tainted = self.just_tainted.take();
        match entry {
            Entry::Begin { agent, parent, depth, task, recipe, .. } => {
                if self.agent.is_none() {
                    (self.agent, self.parent, self.depth) = (Some(agent.clone()), parent.clone(), *depth);
                    (self.task, self.recipe) = (task.clone(), recipe.clone());
                }
            }
            Entry::Step {
                step,
                model,
                reserved_tokens,
                reserved_usd,
                unpriced,
                shown,
                bytes_per_token,
                ..
            } => {
                let usd = reserved_usd / (*reserved_tokens).max(1) as f64;
                self.asked_at = at;
                self.asked.push(AskedModel {
                    step: *step,
                    shown: *shown,
                    model: model.clone(),
                    usd_per_token: (!unpriced).then_some(usd),
                    reserved_tokens: *reserved_tokens,
                    bytes_per_token: *bytes_per_token,
                    failed: Vec::new(),
                    no_room: false,
                    end: AskEnd::Stopped,
                });
            }
            Entry::Answer { message, usage, cost_usd, stop, said, model, .. } => {
                self.answered(AskEnd::Answered {
                    message: message.clone(),
                    usage: *usage,
                    cost_usd: *cost_usd,
                    stop: *stop,
                    said: said.clone(),
                    model: model.clone(),
                })
            }
            Entry::Failed { .. } => self.failed(entry),
            Entry::Compacted { compaction, model, usage, cost_usd, stop, .. } => {
                self.compacted = true;
                self.condensed |= matches!(compaction, Compaction::Condensed { .. });
                if let (false, Some(content)) = (model.is_empty(), summaries::given(compaction)) {
                    let message = Message::Assistant {
                        content,
                        reasoning: None,
                        tool_calls: Vec::new(),
                        provider_items: None,
                    };
                    let (usage, cost_usd, stop, model) = (*usage, *cost_usd, *stop, model.clone());
                    self.answered(AskEnd::Answered {
                        message,
                        usage,
                        cost_usd,
                        stop,
                        said: String::new(),
                        model,
                    });
                }
            }
            Entry::Embedded { usage, cost_usd, .. } => self.beside.push((at, Spent::of(*usage, *cost_usd))),
            Entry::Steered { step, turn, message: Message::User { content }, .. } => {
                let (step, turn, text, strangers) = (*step, turn.clone(), content.clone(), just_tainted);
                self.steered.push(SteeredRecord { step, turn, text, strangers });
            }
            Entry::Asked { step, index, question, .. } => {
                let (effect, tool) = (question.effect.clone(), question.tool.clone());
                let call = self.call(*step, *index, &effect, &tool);
                call.question = Some(question.clone());
            }
            Entry::Decided { effect, state, by, .. } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.effect == *effect) {
                    call.decided = Some((*state, by.clone()));
                }
            }
            Entry::Intent { step, index, effect, tool, class, by, input, .. } => {
                let input = input.as_ref().filter(|input| !input.truncated).map(|input| input.text.clone());
                let call = self.call(*step, *index, effect, tool);
                (call.by, call.class) = (by.clone(), Some(*class));
                if let (OUTSIDE, Some(input)) = (call.step, input) {
                    call.arguments = input;
                }
            }
            Entry::Result { step, index, effect, tool, status, content, images, .. } => {
                let call = self.call(*step, *index, effect, tool);
                (call.result, call.at) = (Some((*status, content.clone(), images.clone())), at);
                if call.is_of_code() {
                    self.beside.push((at, Spent::calls(1)));
                }
            }
            Entry::Tainted { tool, .. } => match self.agent {
                Some(_) => self.just_tainted = Some(tool.clone()),
                None => self.tainted.push(tool.clone()),
            },
            Entry::Note { step: OUTSIDE, message: Message::User { content }, .. } => {
                self.notes.push(content.clone())
            }
            Entry::Note { step, message: Message::User { content }, given_by: Some(effect), .. } => {
                self.given.push(GivenRecord { step: *step, effect: effect.clone(), text: content.clone() });
            }
            Entry::Told { event: EventBody::BudgetExceeded(used), .. } => self.exceeded.push(used.clone()),
            Entry::Told { event: EventBody::Diagnostic { code, .. }, .. } if code == "model_retry" => {
                if let Some(asked) = self.asked.last_mut() {
                    asked.no_room = true;
                }
            }
            Entry::Started { .. } | Entry::Note { .. } | Entry::Told { .. } | Entry::Steered { .. } => {}
            Entry::End { response, spend, .. } => {
                (self.end, self.ended_at) = (Some((response.clone(), *spend)), at);
            }
        }
    }

    /// The call of that place, with its parameters as the answer of the step has them.
    fn call(&mut self, step: u32, index: u32, effect: &EffectId, tool: &str) -> &mut CallRecord {
        if let Some(known) = self.calls.iter().position(|call| call.effect == *effect) {
            return &mut self.calls[known];
        }
        let arguments = self.asked.iter().rev().find(|asked| asked.shown && asked.step == step);
        let arguments = arguments.and_then(|asked| match &asked.end {
            AskEnd::Answered { message: Message::Assistant { tool_calls, .. }, .. } => {
                tool_calls.get(index as usize).map(|call| call.arguments.clone())
            }
            _ => None,
        });
        let first = self.asked.is_empty();
        let of_spawned = step == OUTSIDE
            && self.calls.iter().any(|call| call.spawns() && ids::effect_of_effect(&call.effect) == *effect);
        self.calls.push(CallRecord {
            step,
            first,
            of_spawned,
            effect: effect.clone(),
            tool: tool.to_owned(),
            arguments: arguments.unwrap_or_default(),
            class: None,
            question: None,
            decided: None,
            by: None,
            result: None,
            at: usize::MAX,
        });
        let last = self.calls.len() - 1;
        &mut self.calls[last]
    }

    fn answered(&mut self, end: AskEnd) {
        if let Some(asked) = self.asked.last_mut() {
            asked.end = end;
        }
    }

    fn failed(&mut self, entry: &Entry) {
        let Entry::Failed { model, class, message, usage, cost_usd, lost_tokens, repeated, .. } = entry
        else {
            return;
        };
        let attempt = FailedAttempt {
            model: model.clone(),
            class: *class,
            message: message.clone(),
            usage: *usage,
            cost_usd: *cost_usd,
        };
        let Some(asked) = self.asked.last_mut() else { return };
        let stopped = *lost_tokens > 0 || message == "cancelled" || message == "timeout";
        match repeated {
            true => asked.failed.push(attempt),
            false if stopped => asked.end = AskEnd::Stopped,
            false => asked.end = AskEnd::Failed(attempt),
        }
    }
}
