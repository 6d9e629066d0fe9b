//! An answer under way: what all APIs say of one, each in its own words.
//!
//! Text and reasoning are passed on as they come. Tool calls are kept back: they are given out by
//! [`Draft::finish`] alone, so that a stream which breaks off cannot set a tool off.

use std::{collections::HashSet, sync::Arc};

use drupe_agent::{ModelEvent, ModelFault, StopReason, Usage};
use drupe_extension_api::{FailureClass, ProviderItems, ToolCallRequest, ToolSpec};
use serde_json::Value;

use super::{Names, items, text::Text};

/// More calls than any loop runs in a step; a stream that opens more is not an answer.
const MOST_CALLS: usize = 256;

/// An answer under way.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) calls: Vec<Call>,
    /// Why the model stopped, once it has.
    pub(crate) finish: Option<Finish>,
    /// The model declined; its words, where it gave any, were given out as text.
    pub(crate) refused: bool,
    /// The provider said that nothing follows.
    pub(crate) ended: bool,
    /// What the model itself did wrong, by the provider's word, where that ended the answer.
    pub(crate) wrong: Option<ModelFault>,
    pub(crate) usage: Option<Usage>,
    items: Vec<Value>,
    has_text: bool,
    has_reasoning: bool,
}

/// A tool call under way.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// What the provider tells calls apart by.
    pub(crate) key: u64,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// More of it is to come.
    pub(crate) open: bool,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    End,
    Length,
    Filter,
}

/// What a whole answer ends with.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) calls: Vec<ToolCallRequest>,
    pub(crate) items: Option<ProviderItems>,
    pub(crate) stop: StopReason,
}

impl Draft {
    /// Whether what came is a whole answer: it has its reason to stop, or its end mark.
    pub(crate) fn whole(&self) -> bool {
        self.finish.is_some() || self.ended
    }

    /// More text of the answer. What arrived together is passed on together: as long as the last event is of the
    /// same kind, it grows.
    pub(crate) fn say(&mut self, out: &mut Vec<ModelEvent>, text: &str) {
        if text.is_empty() {
            return;
        }
        self.has_text = true;
        match out.last_mut() {
            Some(ModelEvent::Text(last)) => last.push_str(text),
            _ => out.push(ModelEvent::Text(text.to_owned())),
        }
    }

    /// More reasoning, passed on as text is.
    pub(crate) fn think(&mut self, out: &mut Vec<ModelEvent>, text: &str) {
        self.has_reasoning |= !text.is_empty();
        match out.last_mut() {
            _ if text.is_empty() => {}
            Some(ModelEvent::Reasoning(last)) => last.push_str(text),
            _ => out.push(ModelEvent::Reasoning(text.to_owned())),
        }
    }

    /// A further call.
    pub(crate) fn open(&mut self, call: Call) -> Result<&mut Call, ModelFault> {
        if self.calls.len() >= MOST_CALLS {
            return Err(broken("it asked for too many tool calls at once"));
        }
        self.calls.push(call);
        let last = self.calls.len() - 1;
        Ok(&mut self.calls[last])
    }

    /// The call that goes by `key`.
    pub(crate) fn call(&mut self, key: u64) -> Option<&mut Call> {
        self.calls.iter_mut().rev().find(|call| call.key == key)
    }

    /// Where what comes next belongs, as [`items`] counts.
    pub(crate) fn place(&self) -> usize {
        if self.is_begun() { self.calls.len() + 1 } else { 0 }
    }

    /// Whether there is something of an answer by now, beside reasoning.
    pub(crate) fn is_begun(&self) -> bool {
        self.has_text || !self.calls.is_empty()
    }

    /// Whether there is reasoning by now.
    pub(crate) fn has_reasoned(&self) -> bool {
        self.has_reasoning
    }

    /// Something that the provider wants back with the answer, before part `at` of it.
    pub(crate) fn keep(&mut self, item: Value, at: usize) {
        self.items.push(items::place(item, at));
    }

    /// What was only known at the end. To be asked once, when the answer is [`whole`](Self::whole).
    ///
    /// An answer that was cut short by a bound or a filter has no calls: the last of them may be half written, and
    /// which ones would have followed is not known. `step` makes ids for calls that the provider gave none.
    /// Nor has one that came to its end mark in the middle of them: without its reason to stop nobody said that its
    /// calls are whole. `origin` goes with what the provider wants back.
    pub(crate) fn finish(
        &mut self,
        origin: &str,
        step: usize,
        names: &Names,
        deferred: &[Arc<ToolSpec>],
    ) -> Result<Finished, ModelFault> {
        if let Some(fault) = self.wrong.take() {
            return Err(fault);
        }
        if self.finish.is_none() && !self.calls.is_empty() {
            return Err(broken("its answer ended among tool calls without a reason to stop"));
        }
        let dropped_calls = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let stop = match self.finish {
            Some(Finish::Length) => StopReason::Length { dropped_calls },
            Some(Finish::Filter) => StopReason::Filter { dropped_calls },
            _ if self.refused => StopReason::Refusal,
            _ if self.calls.is_empty() => StopReason::End,
            _ => StopReason::ToolCalls,
        };
        if stop == StopReason::End && !self.has_text {
            return Err(broken(match self.has_reasoning {
                true => "it reasoned and then gave no answer",
                false => "its answer is empty",
            }));
        }
        let mut calls = std::mem::take(&mut self.calls);
        if stop != StopReason::ToolCalls {
            calls.clear();
        }
        // Reasoning that nothing follows is refused when it comes back.
        let last = calls.len();
        self.items.retain(|item| items::place_of(item).is_some_and(|at| at <= last));
        let items = (!self.items.is_empty()).then(|| ProviderItems {
            kind: origin.to_owned(),
            items: std::mem::take(&mut self.items).into(),
        });
        let mut ids = HashSet::new();
        let calls = calls.into_iter().enumerate().map(|(n, call)| {
            if call.name.is_empty() {
                return Err(broken("it asked for a tool without naming it"));
            }
            if call.open {
                return Err(broken("it broke a tool call off"));
            }
            let mut call_id = if call.id.is_empty() { format!("call_{step}_{n}") } else { call.id };
            // Results are told apart by it.
            while !ids.insert(call_id.clone()) {
                call_id.push_str(&format!("_{n}"));
            }
            let mut arguments = call.arguments;
            if arguments.trim().is_empty() {
                "{}".clone_into(&mut arguments);
            }
            Ok(ToolCallRequest { call_id, name: names.own(call.name, deferred), arguments })
        });
        Ok(Finished { calls: calls.collect::<Result<_, _>>()?, items, stop })
    }
}

/// The answer makes no sense; another might.
pub(crate) fn broken(what: &str) -> ModelFault {
    ModelFault::transient(FailureClass::Model, what)
}

/// The provider says that something went wrong with the answer; another attempt may go well.
pub(crate) fn broke_off(reason: &str) -> ModelFault {
    broken(&format!("it broke its answer off: `{reason}`"))
}

/// The answer ended for a reason that has no meaning here. Whether it is whole is not known, so it does not pass as that.
pub(crate) fn unknown_end(reason: &str) -> ModelFault {
    let text = format!("its answer ended for a reason that drupe does not know: `{reason}`");
    ModelFault::fatal(FailureClass::Model, text)
}

/// The text of an event. Looked at once and as a whole: no string in it needs another look.
pub(super) fn text(data: &[u8]) -> Result<&str, ModelFault> {
    std::str::from_utf8(data).map_err(|_| broken("it sent an event that is not valid: it is not UTF-8"))
}

/// Reads an event.
pub(crate) fn event<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, ModelFault> {
    serde_json::from_str(data).map_err(|e| broken(&format!("it sent an event that is not valid: {e}")))
}

/// The same, where later versions may add events whose fields have other types: an event of a kind that is not
/// `known` and cannot be read is none.
pub(crate) fn known_event<'a, T: serde::Deserialize<'a>>(
    data: &'a str,
    known: &[&str],
) -> Result<Option<T>, ModelFault> {
    #[derive(serde::Deserialize)]
    struct Kind<'a> {
        #[serde(borrow, rename = "type")]
        kind: Text<'a>,
    }
    match event(data) {
        Ok(event) => Ok(Some(event)),
        Err(fault) => match serde_json::from_str::<Kind<'_>>(data) {
            Ok(Kind { kind }) if !known.contains(&&*kind) => Ok(None),
            _ => Err(fault),
        },
    }
}
