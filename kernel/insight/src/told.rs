//! An explanation while it is being made: no sentence without the rows that it rests on.

use drupe_agent::Entry;
use drupe_extension_api::{
    Event, EventBody, Message,
    control::{Cited, Explanation},
};
use drupe_journal::TurnRows;

use crate::{
    tree::Row,
    words::{excerpt, name},
};

/// What was said so far.
pub(crate) struct Told(Explanation);

impl Told {
    /// Nothing yet about the thing of that kind and id.
    pub(crate) fn of(subject: &str, id: impl ToString) -> Self {
        Self(Explanation {
            id: id.to_string(),
            subject: subject.into(),
            sentences: Vec::new(),
            remedy: None,
            cited: Vec::new(),
        })
    }

    /// Says one more sentence, because of these rows.
    pub(crate) fn say<const N: usize>(&mut self, sentence: impl Into<String>, because: [Cited; N]) {
        const { assert!(N > 0, "a sentence rests on a row at least") }
        self.0.sentences.push(sentence.into());
        because.into_iter().for_each(|row| self.cite(row));
    }

    /// What to do about it; what is said first holds.
    pub(crate) fn remedy(&mut self, remedy: impl Into<String>) {
        self.0.remedy.get_or_insert_with(|| remedy.into());
    }

    /// One more row for what was said last.
    pub(crate) fn cite(&mut self, row: Cited) {
        // Records of one commit share a row, and each says something else.
        if !self.0.cited.contains(&row) {
            self.0.cited.push(row);
        }
    }

    /// How many sentences were said.
    pub(crate) fn sentences(&self) -> usize {
        self.0.sentences.len()
    }

    /// All of it.
    pub(crate) fn done(self) -> Explanation {
        self.0
    }
}

/// A row of the table, and what it says.
pub(crate) fn cited(table: &str, key: impl ToString, says: impl Into<String>) -> Cited {
    Cited { table: table.into(), key: key.to_string(), says: says.into() }
}

/// The row of a turn, or what it says of its end.
pub(crate) fn turn(rows: &TurnRows) -> Cited {
    let says = match (&rows.response, rows.started) {
        (Some(response), _) => {
            let class = response.class.map(|c| format!(", class {}", name(&c))).unwrap_or_default();
            format!("it ended with {}{class}", name(&response.status))
        }
        (None, Some(started)) => format!("it began at {started} and has not ended"),
        (None, None) => format!("it was accepted at {} and has not begun", rows.accepted),
    };
    cited("turns", &rows.turn, says)
}

/// The row of a turn, for its message.
pub(crate) fn message(rows: &TurnRows) -> Cited {
    cited("turns", &rows.turn, format!("the message: {}", excerpt(&rows.inbound.ask.text)))
}

/// The row of an event.
pub(crate) fn event(event: &Event) -> Cited {
    let says = match &event.body {
        EventBody::SubagentSelected { by } => format!("an agent was chosen by {by}"),
        EventBody::HandoffStarted { to, summary } => {
            format!("the conversation went to `{to}`: {}", excerpt(&summary.text))
        }
        EventBody::HandoffEnded { from, reason, .. } => {
            format!("the conversation came back from `{from}`: {}", excerpt(reason))
        }
        EventBody::BudgetExceeded(used) | EventBody::BudgetWarning(used) => {
            format!("`{}`: {} of {}", used.limit, used.used, used.allowed)
        }
        EventBody::ModelAttempt { step, attempt, model, stop, latency_ms, .. } => {
            format!(
                "step {step}, attempt {attempt}: {model} ended after {latency_ms} ms with: {}",
                excerpt(stop)
            )
        }
        EventBody::Diagnostic { code, message } => format!("{code}: {}", excerpt(message)),
        EventBody::ItemStarted { item } => format!("item {} began", item.id),
        EventBody::ItemCompleted { item, outcome, elapsed_ms } => {
            format!("item {} ended with {} after {elapsed_ms} ms", item.id, name(outcome))
        }
        EventBody::StreamReset { reason, .. } => format!("the text so far is void: {}", excerpt(reason)),
        EventBody::TurnSteered { from, .. } => format!("the message of turn {from} was taken in"),
        EventBody::ApprovalAnswered { tool, state, .. } => format!("`{tool}` is {}", name(state)),
        EventBody::SubagentFailed { error, .. } => format!("a sub-agent failed: {}", excerpt(error)),
        body => kind(body),
    };
    cited("events", format!("{}/{}", event.session, event.seq), says)
}

/// The row of a record.
pub(crate) fn entry(row: Row<'_>) -> Cited {
    let says = match row.entry {
        Entry::Begin { agent, depth, .. } => format!("a run of `{agent}` began at depth {depth}"),
        Entry::Step { step, attempt, model, .. } => {
            format!("step {step}, attempt {attempt}: {model} is asked")
        }
        Entry::Answer { step, model, stop, .. } if stop.is_whole() => {
            format!("step {step}: {model} answered")
        }
        Entry::Answer { step, model, stop, .. } => {
            format!("step {step}: the answer of {model} ended with {}", stop.name())
        }
        Entry::Intent { step, tool, class, by, .. } => {
            let by = by.as_ref().map(|by| format!(", allowed by {by}")).unwrap_or_default();
            format!("step {step}: `{tool}` is about to run, effect {}{by}", name(class))
        }
        Entry::Asked { step, question, .. } => {
            format!("step {step}: it is asked whether `{}` may run", question.tool)
        }
        Entry::Tainted { tool, .. } => format!("`{tool}` gave what strangers wrote"),
        Entry::Decided { state, .. } => format!("the question is {}", name(state)),
        Entry::Result { step, status, content, .. } => {
            format!("step {step}: {}: {}", name(status), excerpt(content))
        }
        Entry::End { response, .. } => {
            let why = response.error.as_deref().map(|e| format!(": {}", excerpt(e))).unwrap_or_default();
            format!("the run ended with {}{why}", name(&response.status))
        }
        Entry::Failed { step, attempt, model, class, message, .. } => {
            let (class, message) = (name(class), excerpt(message));
            format!("step {step}, attempt {attempt}: {model} gave no answer ({class}): {message}")
        }
        Entry::Steered { step, turn, .. } => format!("step {step}: the message of turn {turn} was taken in"),
        Entry::Note { step, message: Message::User { content }, .. } => {
            format!("step {step}: the loop said: {}", excerpt(content))
        }
        other => tag(other),
    };
    cited("entries", row.number, says)
}

/// The name of an event's kind.
fn kind(body: &EventBody) -> String {
    let json = serde_json::to_value(body).unwrap_or_default();
    json["kind"].as_str().unwrap_or_default().to_owned()
}

/// The name of a record's kind.
fn tag(entry: &Entry) -> String {
    let json = serde_json::to_value(entry).unwrap_or_default();
    json["entry"].as_str().unwrap_or_default().to_owned()
}
