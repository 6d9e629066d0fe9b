//! The rows of a turn, sorted by the runs that they belong to.
//!
//! It only sorts. What a row means for people is said elsewhere, and a turn whose rows end in the middle is as good
//! as one that is whole.

use std::collections::{BTreeMap, HashMap, HashSet};

use drupe_agent::{Entry, ids};
use drupe_extension_api::{
    AgentId, AgentResponse, EffectClass, EffectId, Event, EventBody, InvocationId, Item, ItemOutcome,
    Message, Spend, ToolCallRequest, ToolStatus, Usage,
};
use drupe_journal::TurnRows;
use jiff::Timestamp;

/// A record and its number.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub number: i64,
    pub entry: &'a Entry,
}

/// All runs of a turn, callers before those that they called.
pub(crate) struct Tree<'a> {
    pub rows: &'a TurnRows,
    pub runs: Vec<RunRows<'a>>,
    /// Events that belong to no run.
    pub events: Vec<&'a Event>,
}

/// What is recorded of one run.
pub(crate) struct RunRows<'a> {
    pub begin: Row<'a>,
    pub id: &'a InvocationId,
    pub agent: &'a AgentId,
    pub parent: Option<&'a InvocationId>,
    pub task: &'a str,
    /// Every attempt of a model, in order.
    pub attempts: Vec<Attempt<'a>>,
    /// Every tool call, in order.
    pub calls: Vec<CallRows<'a>>,
    /// Records of the loop itself: notes, steering, what was left out of the transcript.
    pub notes: Vec<(u32, Row<'a>)>,
    pub end: Option<(Row<'a>, &'a AgentResponse, &'a Spend)>,
    pub events: Vec<&'a Event>,
}

/// One attempt of a model.
pub(crate) struct Attempt<'a> {
    pub step: u32,
    pub attempt: u32,
    pub model: &'a str,
    /// That the model is about to be asked.
    pub asked: Option<Row<'a>>,
    /// That its item began.
    pub began: Option<&'a Event>,
    /// Whether its item has ended.
    cut: bool,
    /// How it ended; none where nobody saw its end.
    pub told: Option<Ended<'a>>,
    /// That it gave no answer.
    pub failed: Option<Row<'a>>,
}

/// How an attempt ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a> {
    pub event: &'a Event,
    pub usage: Usage,
    pub cost_usd: Option<f64>,
    pub latency_ms: u64,
    pub first_ms: Option<u64>,
    pub stop: &'a str,
}

/// One tool call.
pub(crate) struct CallRows<'a> {
    pub effect: &'a EffectId,
    pub step: u32,
    pub tool: &'a str,
    pub class: EffectClass,
    /// That it is to run, or else that a person is asked about it.
    pub intent: Row<'a>,
    /// The question about it.
    pub question: Option<Row<'a>>,
    /// How that was settled.
    pub decided: Option<Row<'a>>,
    /// As the model wrote it; none for a call of code.
    pub request: Option<&'a ToolCallRequest>,
    pub result: Option<(Row<'a>, ToolStatus, &'a str)>,
    pub began: Option<&'a Event>,
    /// That its item began last; a restart begins it anew.
    again: Option<&'a Event>,
    /// The last end of its item.
    pub ended: Option<(&'a Event, ItemOutcome, u64)>,
    /// The run that it set off, if it did.
    pub child: InvocationId,
}

impl CallRows<'_> {
    /// Whether it is one of the calls that were made: one beyond `max_tool_calls` is not.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self.intent.entry, Entry::Intent { over_limit: true, .. })
    }
}

impl<'a> Tree<'a> {
    /// Sorts the rows.
    pub(crate) fn of(rows: &'a TurnRows) -> Self {
        let mut entries: HashMap<&InvocationId, Vec<Row<'a>>> = HashMap::new();
        let mut order = Vec::new();
        let of_runs = rows.entries.iter().filter(|(_, entry)| !matches!(entry, Entry::Told { .. }));
        for (number, entry) in of_runs {
            let row = Row { number: *number, entry };
            let of = entries.entry(entry.invocation()).or_default();
            if of.is_empty() {
                order.push(entry.invocation());
            }
            of.push(row);
        }
        let mut events: HashMap<&InvocationId, Vec<&'a Event>> = HashMap::new();
        let mut others = Vec::new();
        for event in &rows.events {
            match event.agent.as_ref().filter(|agent| entries.contains_key(&agent.invocation)) {
                Some(agent) => events.entry(&agent.invocation).or_default().push(event),
                None => others.push(event),
            }
        }
        let run =
            |id: &&'a InvocationId| RunRows::of(entries.get(*id)?, events.remove(*id).unwrap_or_default());
        Self { rows, runs: order.iter().filter_map(run).collect(), events: others }
    }

    /// The run that had the message first.
    pub(crate) fn root(&self) -> Option<&RunRows<'a>> {
        self.roots().next()
    }

    /// The runs that had the message, one after another: it goes from one agent to the next where one hands the conversation
    /// over or gives it back.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &RunRows<'a>> {
        self.runs.iter().filter(|run| run.parent.is_none())
    }

    /// The run of that id.
    pub(crate) fn run(&self, id: &InvocationId) -> Option<&RunRows<'a>> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// Whether nothing of the turn goes on any more.
    pub(crate) fn over(&self) -> bool {
        self.rows.finished.is_some()
    }
}

impl<'a> RunRows<'a> {
    fn of(rows: &[Row<'a>], events: Vec<&'a Event>) -> Option<Self> {
        let begin = *rows.iter().find(|row| matches!(row.entry, Entry::Begin { .. }))?;
        let Entry::Begin { invocation, agent, parent, task, .. } = begin.entry else { return None };
        let items = items(&events);
        let notes = rows.iter().filter_map(|row| match row.entry {
            Entry::Note { step, .. } | Entry::Steered { step, .. } | Entry::Compacted { step, .. } => {
                Some((*step, *row))
            }
            _ => None,
        });
        let end = rows.iter().rev().find_map(|row| match row.entry {
            Entry::End { response, spend, .. } => Some((*row, response, spend)),
            _ => None,
        });
        Some(Self {
            begin,
            id: invocation,
            agent,
            parent: parent.as_ref(),
            task,
            attempts: attempts(invocation, rows, &events, &items),
            calls: calls(rows, &items),
            notes: notes.collect(),
            end,
            events,
        })
    }

    /// When its first event happened.
    pub(crate) fn began(&self) -> Option<Timestamp> {
        self.events.first().map(|event| event.time)
    }
}

impl Attempt<'_> {
    /// Whether it belongs to a step of the loop: vectors are made outside of them.
    pub(crate) fn is_step(&self) -> bool {
        self.step > 0
    }

    /// Whether it asks for a step's answer, and not for a summary alone, which no step begins with.
    pub(crate) fn is_shown(&self) -> bool {
        !self.asked.is_some_and(|asked| matches!(asked.entry, Entry::Step { shown: false, .. }))
    }

    /// Whether the model gave an answer.
    pub(crate) fn answered(&self) -> bool {
        self.told
            .is_some_and(|told| ["end", "tool_calls", "length", "filter", "refusal"].contains(&told.stop))
    }

    /// Whether it may still end.
    pub(crate) fn open(&self, run: &RunRows<'_>, tree: &Tree<'_>) -> bool {
        let last = run.attempts.last().is_some_and(|a| (a.step, a.attempt) == (self.step, self.attempt));
        last && self.told.is_none() && !self.cut && run.end.is_none() && !tree.over()
    }

    /// Its id: that of its item, which a restart begins anew.
    pub(crate) fn id(&self, run: &InvocationId) -> String {
        format!("{run}.{}.{}", self.step, self.attempt)
    }
}

impl CallRows<'_> {
    /// Whether it may still end.
    pub(crate) fn open(&self, tree: &Tree<'_>) -> bool {
        let seq = |event: Option<&Event>| event.map_or(0, |event| event.seq);
        let begun_anew = seq(self.again) >= seq(self.ended.map(|(event, ..)| event));
        self.result.is_none() && !tree.over() && begun_anew
    }

    /// Whether a person is asked whether it may run.
    pub(crate) fn waits(&self, tree: &Tree<'_>) -> bool {
        self.question.is_some() && self.decided.is_none() && self.open(tree)
    }

    /// The size of its parameters.
    pub(crate) fn bytes_in(&self) -> Option<u64> {
        let shown = || item_started(self.began?)?.input.as_ref().map(|input| input.bytes);
        self.request.map(|request| request.arguments.len()).or_else(shown).map(|bytes| bytes as u64)
    }
}

/// What the events of a run tell of one item.
#[derive(Default)]
struct ItemEvents<'a> {
    first: Option<&'a Event>,
    again: Option<&'a Event>,
    ended: Option<(&'a Event, ItemOutcome, u64)>,
}

fn items<'a>(events: &[&'a Event]) -> HashMap<&'a str, ItemEvents<'a>> {
    let mut all: HashMap<&str, ItemEvents<'_>> = HashMap::new();
    for &event in events {
        match &event.body {
            EventBody::ItemStarted { item } => {
                let of = all.entry(&item.id).or_default();
                of.first.get_or_insert(event);
                of.again = Some(event);
            }
            EventBody::ItemCompleted { item, outcome, elapsed_ms } => {
                all.entry(&item.id).or_default().ended = Some((event, *outcome, *elapsed_ms));
            }
            _ => {}
        }
    }
    all
}

fn attempts<'a>(
    run: &InvocationId,
    rows: &[Row<'a>],
    events: &[&'a Event],
    items: &HashMap<&'a str, ItemEvents<'a>>,
) -> Vec<Attempt<'a>> {
    let mut all: BTreeMap<(u32, u32), Attempt<'a>> = BTreeMap::new();
    let new = |(step, attempt): (u32, u32), model: &'a str| {
        let of = items.get(format!("{run}.{step}.{attempt}").as_str());
        let (began, cut) = (of.and_then(|of| of.first), of.is_some_and(|of| of.ended.is_some()));
        Attempt { step, attempt, model, asked: None, began, cut, told: None, failed: None }
    };
    for &event in events {
        if let EventBody::ModelAttempt {
            step,
            attempt,
            model,
            usage,
            cost_usd,
            latency_ms,
            first_ms,
            stop,
            ..
        } = &event.body
        {
            let (usage, cost_usd, latency_ms, first_ms) = (*usage, *cost_usd, *latency_ms, *first_ms);
            let at = (*step, *attempt);
            all.entry(at).or_insert_with(|| new(at, model)).told =
                Some(Ended { event, usage, cost_usd, latency_ms, first_ms, stop });
        }
    }
    for &row in rows {
        match row.entry {
            Entry::Step { step, attempt, model, .. } => {
                let at = (*step, *attempt);
                all.entry(at).or_insert_with(|| new(at, model)).asked = Some(row);
            }
            Entry::Failed { step, attempt, .. } => {
                let of = all.range_mut((*step, 0)..=(*step, u32::MAX)).map(|(_, known)| known);
                // The last attempt where it bears the number of none: an older record stands for all of a request.
                if let Some(known) = of.max_by_key(|known| (known.attempt == *attempt, known.attempt)) {
                    known.failed = Some(row);
                }
            }
            _ => {}
        }
    }
    all.into_values().collect()
}

fn calls<'a>(rows: &[Row<'a>], items: &HashMap<&'a str, ItemEvents<'a>>) -> Vec<CallRows<'a>> {
    let mut asked: HashMap<u32, &'a [ToolCallRequest]> = HashMap::new();
    let mut results = HashMap::new();
    let (mut questions, mut decided) = (HashMap::new(), HashMap::new());
    let mut intended = HashSet::new();
    for row in rows {
        match row.entry {
            Entry::Asked { question, .. } => drop(questions.insert(&question.effect, *row)),
            Entry::Decided { effect, .. } => drop(decided.insert(effect, *row)),
            Entry::Intent { effect, .. } => drop(intended.insert(effect)),
            Entry::Answer { step, message: Message::Assistant { tool_calls, .. }, .. } => {
                asked.insert(*step, tool_calls);
            }
            Entry::Result { effect, status, content, .. } => {
                results.insert(effect, (*row, *status, content.as_str()));
            }
            _ => {}
        }
    }
    let call = |row: &Row<'a>| {
        let (step, index, effect, tool, class) = match row.entry {
            Entry::Intent { step, index, effect, tool, class, .. } => (step, index, effect, tool, class),
            Entry::Asked { step, index, class, question, .. } if !intended.contains(&question.effect) => {
                (step, index, &question.effect, &question.tool, class)
            }
            _ => return None,
        };
        let item = items.get(effect.as_str());
        Some(CallRows {
            effect,
            step: *step,
            tool,
            class: *class,
            intent: *row,
            question: questions.get(effect).copied(),
            decided: decided.get(effect).copied(),
            request: asked.get(step).and_then(|calls| calls.get(*index as usize)),
            result: results.get(effect).copied(),
            began: item.and_then(|item| item.first),
            again: item.and_then(|item| item.again),
            ended: item.and_then(|item| item.ended),
            child: ids::child_of_effect(effect),
        })
    };
    rows.iter().filter_map(call).collect()
}

fn item_started(event: &Event) -> Option<&Item> {
    match &event.body {
        EventBody::ItemStarted { item } => Some(item),
        _ => None,
    }
}
