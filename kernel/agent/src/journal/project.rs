//! By which events an entry is told: the one place that says so.
//!
//! Pure: the same entry has the same events in every process and release that reads it. So they need not be kept beside
//! the entry, and the loop does not make them: it records what happened. The numbers of a session's events count on that:
//! an entry that was kept once is never told otherwise.

use drupe_extension_api::{
    AgentRef, EventBody, InvocationId, Item, ItemKind, ItemOutcome, Message, Preview, ResponseStatus,
    ToolStatus, Usage,
};
use jiff::Timestamp;

use super::{Attempted, Batch, Entry, ShownAnswer};
use crate::{dispatch::OUTSIDE, ids, model::StopReason, policy::Question};

impl Batch {
    /// The events that tell of its entries, in order, with the runs whose they are.
    pub fn events(&self) -> Vec<(Option<AgentRef>, EventBody)> {
        told(&self.runs, &self.entries)
    }
}

/// The events that tell of `entries`, in order, with those of the `runs` whose they are.
pub fn told(runs: &[AgentRef], entries: &[Entry]) -> Vec<(Option<AgentRef>, EventBody)> {
    let of = |entry: &Entry| {
        let run = runs.iter().find(|run| run.invocation == *entry.invocation()).cloned();
        entry.events().into_iter().map(move |body| (run.clone(), body))
    };
    entries.iter().flat_map(of).collect()
}

impl Entry {
    /// The events by which it is told, in order.
    pub fn events(&self) -> Vec<EventBody> {
        match self {
            Self::Begin { parent: Some(_), task, .. } => {
                vec![EventBody::SubagentStarted { task: Preview::of(task) }]
            }
            Self::Step { invocation, step, attempt, shown: true, .. } => {
                vec![started(ids::model_call(invocation, *step, *attempt), ItemKind::AgentMessage)]
            }
            Self::Answer { .. } | Self::Failed { .. } | Self::Compacted { .. } | Self::Embedded { .. } => {
                self.attempted()
            }
            Self::Told { event, .. } => vec![event.clone()],
            Self::Tainted { tool, .. } => vec![EventBody::Diagnostic {
                code: "tainted".to_owned(),
                message: format!(
                    "`{tool}` gives what strangers wrote; calls that reach out or destroy are looked at more closely"
                ),
            }],
            Self::Steered { turn, message: Message::User { content }, .. } => {
                vec![EventBody::TurnSteered { input: Preview::of(content), from: turn.clone() }]
            }
            Self::Asked { question, kind, .. } => {
                let input = Preview::kept(&question.params, question.effect.as_str());
                vec![begun(question.effect.as_str(), *kind, &question.tool, input), requested(question)]
            }
            Self::Decided { effect, tool, state, by, .. } => {
                let (id, tool, state, by) = (effect.clone(), tool.clone(), *state, by.clone());
                vec![EventBody::ApprovalAnswered { id, tool, state, by }]
            }
            Self::Intent { effect, tool, kind, input: Some(input), .. } => {
                vec![begun(effect.as_str(), *kind, tool, input.clone())]
            }
            Self::Result { .. } => self.ended(),
            Self::End { response, spend, below: true, .. } => vec![match response.status {
                ResponseStatus::Success => {
                    EventBody::SubagentCompleted { content: Preview::of(&response.content), spend: *spend }
                }
                status => EventBody::SubagentFailed {
                    status,
                    error: Preview::of(response.error.as_deref().unwrap_or_default()).text,
                    class: response.class,
                    spend: *spend,
                },
            }],
            _ => Vec::new(),
        }
    }

    /// An attempt of a model, and the end of what was shown of it.
    fn attempted(&self) -> Vec<EventBody> {
        match self {
            Self::Answer {
                invocation, step, message, model, usage, cost_usd, estimated, stop, told, ..
            } => {
                let (Some(told), Message::Assistant { content, reasoning, tool_calls, .. }) = (told, message)
                else {
                    return Vec::new();
                };
                let stop = kept(*stop, !tool_calls.is_empty());
                let attempt = told.event(*step, model, (*usage, *estimated, *cost_usd), stop);
                told.around(invocation, *step, attempt, [content, reasoning.as_deref().unwrap_or_default()])
            }
            Self::Failed { invocation, step, model, message, told: Some(told), .. } => {
                let Self::Failed { usage, cost_usd, estimated, repeated, .. } = self else {
                    return Vec::new();
                };
                // Where nothing is known to be spent, that is an estimate, too.
                let used = (*usage, *estimated || usage.total() == 0, *cost_usd);
                let attempt = told.event(*step, model, used, message);
                let message = format!("an attempt with {model} failed and is repeated: {message}");
                let repeats = repeated.then(|| EventBody::Diagnostic { code: "model_retry".into(), message });
                repeats.into_iter().chain(told.around(invocation, *step, attempt, [""; 2])).collect()
            }
            Self::Compacted { step, model, usage, cost_usd, estimated, stop, told: Some(told), .. } => {
                vec![told.event(*step, model, (*usage, *estimated, *cost_usd), kept(*stop, false))]
            }
            Self::Embedded { attempt, model, usage, cost_usd, estimated, latency_ms, failed, .. } => {
                let told =
                    Attempted { attempt: *attempt, latency_ms: *latency_ms, first_ms: None, shown: None };
                let stop = failed.as_deref().unwrap_or(StopReason::End.name());
                vec![told.event(OUTSIDE, model, (*usage, *estimated, *cost_usd), stop)]
            }
            _ => Vec::new(),
        }
    }

    /// The end of a call.
    fn ended(&self) -> Vec<EventBody> {
        let Self::Result { effect, tool, kind, status, content, elapsed_ms, left, .. } = self else {
            return Vec::new();
        };
        let outcome = match status {
            ToolStatus::Ok => ItemOutcome::Ok,
            ToolStatus::Error => ItemOutcome::Error,
            ToolStatus::Refused => ItemOutcome::Refused,
            ToolStatus::Cancelled => ItemOutcome::Cancelled,
            ToolStatus::OutcomeUnknown => ItemOutcome::OutcomeUnknown,
        };
        let item = Item {
            id: effect.to_string(),
            kind: *kind,
            name: Some(tool.clone()),
            input: None,
            output: Some(Preview::kept(content, effect.as_str())),
        };
        // The model reads it in the result; the user is told, too.
        let unknown = (*status == ToolStatus::OutcomeUnknown).then(|| {
            let (code, message) = ("outcome_unknown".to_owned(), Preview::of(content).text);
            EventBody::Diagnostic { code, message }
        });
        let ended = EventBody::ItemCompleted { item, outcome, elapsed_ms: *elapsed_ms };
        unknown.into_iter().chain((!left).then_some(ended)).collect()
    }
}

impl Attempted {
    /// The attempt itself: what it used, whether that is an estimate, what it cost.
    fn event(
        &self,
        step: u32,
        model: &str,
        (usage, estimated, cost_usd): (Usage, bool, Option<f64>),
        stop: &str,
    ) -> EventBody {
        let (attempt, latency_ms, stop) = (self.attempt, self.latency_ms, Preview::of(stop).text);
        EventBody::ModelAttempt {
            step,
            attempt,
            model: model.to_owned(),
            usage,
            estimated,
            latency_ms,
            first_ms: self.first_ms,
            stop,
            cost_usd,
        }
    }

    /// The attempt, and around it what was shown of the answer: its text and its reasoning.
    fn around(&self, run: &InvocationId, step: u32, attempt: EventBody, texts: [&str; 2]) -> Vec<EventBody> {
        let Some(ShownAnswer { since, elapsed_ms, reasoned_ms, broken }) = &self.shown else {
            return vec![attempt];
        };
        let id = ids::model_call(run, step, *since);
        let thought = reasoning_id(&id);
        let (outcome, [text, reasoning]) = match broken {
            Some(broken) => (broken.outcome, [broken.text.clone(), broken.reasoning.clone()]),
            None => (ItemOutcome::Ok, [Preview::kept(texts[0], &id), Preview::kept(texts[1], &thought)]),
        };
        let done = |id: String, kind, output, elapsed_ms| {
            let item = Item { id, kind, name: None, input: None, output: Some(output) };
            EventBody::ItemCompleted { item, outcome, elapsed_ms }
        };
        let mut events = Vec::new();
        events.extend(reasoned_ms.map(|_| started(thought.clone(), ItemKind::Reasoning)));
        events.push(attempt);
        events.extend(reasoned_ms.map(|ms| done(thought, ItemKind::Reasoning, reasoning, ms)));
        events.push(done(id, ItemKind::AgentMessage, text, *elapsed_ms));
        events
    }
}

/// The name of how an answer ended, as its record tells it: of a whole one only its calls do.
fn kept(stop: StopReason, calls: bool) -> &'static str {
    match stop {
        StopReason::End | StopReason::ToolCalls if calls => StopReason::ToolCalls.name(),
        StopReason::End | StopReason::ToolCalls => StopReason::End.name(),
        cut => cut.name(),
    }
}

/// The beginning of what a model says.
fn started(id: String, kind: ItemKind) -> EventBody {
    EventBody::ItemStarted { item: Item { id, kind, name: None, input: None, output: None } }
}

/// The item of the reasoning that belongs to a message.
pub(crate) fn reasoning_id(message: &str) -> String {
    format!("{message}.r")
}

/// The beginning of a call.
pub(crate) fn begun(id: &str, kind: ItemKind, tool: &str, input: Preview) -> EventBody {
    let (id, name) = (id.to_owned(), Some(tool.to_owned()));
    EventBody::ItemStarted { item: Item { id, kind, name, input: Some(input), output: None } }
}

/// That a person is asked; each process that goes on with the turn tells so.
pub(crate) fn requested(question: &Question) -> EventBody {
    EventBody::ApprovalRequested {
        id: question.effect.clone(),
        tool: question.tool.clone(),
        input: Preview::kept(&question.params, question.effect.as_str()),
        need: question.need.clone(),
        expires: Timestamp::from_millisecond(question.expires_ms).unwrap_or(Timestamp::MAX),
    }
}
