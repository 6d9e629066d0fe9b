//! By which events an entry is told: the one place that says so.
//!
//! Pure: the same entry has the same events in every process and release that reads it. So they need not be kept beside
//! the entry, and the loop does not make them: it records what happened. What no entry says (limits, remarks, what a model
//! is at) is told by events of its own.

use drupe_extension_api::{
    EventBody, Item, ItemKind, ItemOutcome, Message, Preview, ResponseStatus, ToolStatus,
};
use jiff::Timestamp;

use super::Entry;
use crate::policy::Question;

impl Entry {
    /// The events by which it is told, in order.
    pub fn events(&self) -> Vec<EventBody> {
        match self {
            Self::Begin { parent: Some(_), task, .. } => {
                vec![EventBody::SubagentStarted { task: Preview::of(task) }]
            }
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

    /// The end of a call.
    fn ended(&self) -> Vec<EventBody> {
        let Self::Result { effect, tool, kind, status, content, elapsed_ms, .. } = self else {
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
        let ended = EventBody::ItemCompleted { item, outcome, elapsed_ms: *elapsed_ms };
        if *status != ToolStatus::OutcomeUnknown {
            return vec![ended];
        }
        // The model reads it in the result; the user is told, too.
        let (code, message) = ("outcome_unknown".to_owned(), Preview::of(content).text);
        vec![EventBody::Diagnostic { code, message }, ended]
    }
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
