//! The runs of a turn, put together from their records: who ran, and what each of them saw.
//!
//! Pure: rows come in, in the order of their commits.

use std::collections::{BTreeMap, HashMap};

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentId, AgentResponse, Image, InvocationId, Message, Spend, ToolCallRequest, Usage,
    control::{InvocationRecord, TranscriptEntry, TurnResult},
};
use foldhash::fast::RandomState;

/// The runs of a turn, in the order in which they began.
#[derive(Default)]
pub(crate) struct Runs {
    all: Vec<Invocation>,
    places: HashMap<InvocationId, usize, RandomState>,
}

impl Runs {
    /// Adds a record of the row `number`. What belongs to no run that has begun is nobody's.
    pub fn add(&mut self, number: i64, entry: Entry) {
        if let Entry::Begin { invocation, agent, parent, depth, .. } = &entry
            && !self.places.contains_key(invocation)
        {
            self.places.insert(invocation.clone(), self.all.len());
            self.all.push(Invocation::new(invocation.clone(), agent.clone(), parent.clone(), *depth));
        }
        if let Some(place) = self.places.get(entry.invocation()) {
            self.all[*place].add(number, entry);
        }
    }

    /// Completes a result that was in brief.
    pub fn complete(self, brief: TurnResult) -> TurnResult {
        TurnResult { invocations: records(&self.all), transcript: flat(self.all), ..brief }
    }
}

/// One run, as its records come in.
struct Invocation {
    id: InvocationId,
    agent: AgentId,
    parent: Option<InvocationId>,
    depth: u32,
    usage: Usage,
    steps: u32,
    end: Option<(AgentResponse, Spend)>,
    /// What the model saw, by its place, with the number of the row that it came in.
    seen: BTreeMap<Place, (i64, Message)>,
    /// Names of tools whose calls are not in the answer.
    intents: HashMap<(u32, u32), String>,
    notes: u32,
}

/// A place in a transcript: step, part of the step, index within the part.
type Place = (u32, Part, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Task,
    Answer,
    Result,
    Note,
}

impl Invocation {
    fn new(id: InvocationId, agent: AgentId, parent: Option<InvocationId>, depth: u32) -> Self {
        Self {
            id,
            agent,
            parent,
            depth,
            usage: Usage::default(),
            steps: 0,
            end: None,
            seen: BTreeMap::new(),
            intents: HashMap::new(),
            notes: 0,
        }
    }

    fn add(&mut self, number: i64, entry: Entry) {
        match entry {
            Entry::Begin { task, .. } => {
                self.see(number, (0, Part::Task, 0), Message::User { content: task })
            }
            Entry::Step { step, .. } => self.steps = self.steps.max(step),
            Entry::Answer { step, message, usage, .. } => {
                self.usage += usage;
                self.see(number, (step, Part::Answer, 0), message);
            }
            Entry::Intent { step, index, tool, .. } => {
                self.intents.insert((step, index), tool);
            }
            Entry::Result { step, index, effect, status, content, images, .. } => {
                let (call_id, name) = match self.call(step, index) {
                    Some(call) => (call.call_id.clone(), call.name.clone()),
                    None => {
                        (effect.to_string(), self.intents.get(&(step, index)).cloned().unwrap_or_default())
                    }
                };
                // This is remembered: not with the bytes.
                let images = images.iter().map(Image::reference).collect();
                let message = Message::Tool { call_id, name, status, content, images };
                self.see(number, (step, Part::Result, index), message);
            }
            Entry::Failed { step, usage, .. } => {
                self.steps = self.steps.max(step);
                self.usage += usage;
            }
            Entry::Compacted { usage, .. } | Entry::Embedded { usage, .. } => self.usage += usage,
            Entry::Note { step, message, .. } | Entry::Steered { step, message, .. } => {
                self.notes += 1;
                self.see(number, (step, Part::Note, self.notes), message);
            }
            Entry::Asked { step, index, question, .. } => {
                self.intents.insert((step, index), question.tool);
            }
            Entry::Decided { .. } | Entry::Started { .. } | Entry::Tainted { .. } | Entry::Told { .. } => {}
            Entry::End { response, spend, .. } => self.end = Some((response, spend)),
        }
    }

    fn see(&mut self, number: i64, place: Place, message: Message) {
        self.seen.insert(place, (number, message));
    }

    fn call(&self, step: u32, index: u32) -> Option<&ToolCallRequest> {
        match self.seen.get(&(step, Part::Answer, 0)) {
            Some((_, Message::Assistant { tool_calls, .. })) => tool_calls.get(index as usize),
            _ => None,
        }
    }
}

/// The records of all runs; a run's tokens hold those of the runs that it called.
fn records(all: &[Invocation]) -> Vec<InvocationRecord> {
    let mut tokens: HashMap<&InvocationId, u64> = HashMap::new();
    // Callers begin before those they call, so that the reverse meets every child before its parent.
    for run in all.iter().rev() {
        let below = tokens.get(&run.id).copied().unwrap_or(0);
        let used = match &run.end {
            Some((_, spend)) => spend.usage.total(),
            None => run.usage.total() + below,
        };
        tokens.insert(&run.id, used);
        if let Some(parent) = &run.parent {
            *tokens.entry(parent).or_default() += used;
        }
    }
    let record = |run: &Invocation| InvocationRecord {
        id: run.id.clone(),
        agent: run.agent.clone(),
        parent: run.parent.clone(),
        depth: run.depth,
        status: run.end.as_ref().map(|(response, _)| response.status),
        usage: run.usage,
        tokens_used: tokens.get(&run.id).copied().unwrap_or(0),
        // A summary behind the answer is no step, which the run itself knows; code may say anything.
        turns_used: run.end.as_ref().and_then(|(end, _)| end.turns_used).unwrap_or(u32::MAX).min(run.steps),
    };
    all.iter().map(record).collect()
}

/// Every entry of every run: in time, and within a run in the order in which its model sees it.
fn flat(all: Vec<Invocation>) -> Vec<TranscriptEntry> {
    let mut entries = Vec::new();
    for run in all {
        // Results of one step are recorded as they come and seen as they were asked for: one that waits for an
        // earlier one takes its time.
        let mut latest = 0;
        for (number, message) in run.seen.into_values() {
            latest = number.max(latest);
            let entry = TranscriptEntry { invocation: run.id.clone(), agent: run.agent.clone(), message };
            entries.push((latest, entry));
        }
    }
    entries.sort_by_key(|(number, _)| *number);
    entries.into_iter().map(|(_, entry)| entry).collect()
}
