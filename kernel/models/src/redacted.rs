//! Answers without secrets: a gateway may repeat the key that it was given, also in the words of the model.

use std::{borrow::Cow, mem};

use drupe_agent::ModelEvent;
use drupe_redact::{Pieces, Redactor};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};

/// Answer and reasoning come piece by piece, and all else as a whole.
struct Cleaner {
    redactor: Redactor,
    text: Pieces,
    reasoning: Pieces,
}

/// The same stream with nothing secret in it. What a provider wants to get back as it is stays as it is.
pub fn redacted(
    events: BoxStream<'static, ModelEvent>,
    redactor: Redactor,
) -> BoxStream<'static, ModelEvent> {
    let (text, reasoning) = (redactor.pieces(), redactor.pieces());
    let mut cleaner = Cleaner { redactor, text, reasoning };
    events.flat_map(move |event| stream::iter(cleaner.take(event))).boxed()
}

impl Cleaner {
    fn take(&mut self, event: ModelEvent) -> Vec<ModelEvent> {
        let mut out = Vec::with_capacity(1);
        match event {
            ModelEvent::Text(piece) => {
                push(&mut out, ModelEvent::Reasoning, self.reasoning.finish());
                push(&mut out, ModelEvent::Text, self.text.push(&piece));
                return out;
            }
            ModelEvent::Reasoning(piece) => {
                push(&mut out, ModelEvent::Text, self.text.finish());
                push(&mut out, ModelEvent::Reasoning, self.reasoning.push(&piece));
                return out;
            }
            ModelEvent::Retry { .. } => {
                // What waits is void as all that came before.
                (self.text, self.reasoning) = (self.redactor.pieces(), self.redactor.pieces());
            }
            _ => {}
        }
        push(&mut out, ModelEvent::Reasoning, self.reasoning.finish());
        push(&mut out, ModelEvent::Text, self.text.finish());
        out.push(self.whole(event));
        out
    }

    fn whole(&self, event: ModelEvent) -> ModelEvent {
        let redactor = &self.redactor;
        match event {
            ModelEvent::ToolCall(mut call) => {
                if let Cow::Owned(arguments) = redactor.json(call.arguments.as_bytes()) {
                    call.arguments = String::from_utf8_lossy(&arguments).into_owned();
                }
                ModelEvent::ToolCall(call)
            }
            ModelEvent::Said(words) => ModelEvent::Said(redactor.owned(words)),
            ModelEvent::Failed(mut fault) => {
                fault.message = redactor.owned(mem::take(&mut fault.message));
                ModelEvent::Failed(fault)
            }
            ModelEvent::Retry { mut fault, model, next, usage } => {
                fault.message = redactor.owned(mem::take(&mut fault.message));
                ModelEvent::Retry { fault, model, next, usage }
            }
            other => other,
        }
    }
}

fn push(out: &mut Vec<ModelEvent>, kind: fn(String) -> ModelEvent, piece: String) {
    if !piece.is_empty() {
        out.push(kind(piece));
    }
}
