//! An answer under way: what all APIs say of one, each in its own words.
//!
//! Text and reasoning are passed on as they come. Tool calls are kept back: they are given out by
//! [`Draft::finish`] alone, so that a stream which breaks off cannot set a tool off.

use std::{borrow::Cow, collections::HashSet, fmt::Display, sync::Arc};

use drupe_agent::{ModelEvent, ModelFault, StopReason, Usage, is_blank};
use drupe_extension_api::{FailureClass, ProviderItems, ToolCallRequest, ToolSpec};
use serde_json::Value;

use super::{
    Names,
    halves::{self, Seam},
    items,
    text::Text,
};

/// More calls than any loop runs in a step; a stream that opens more is not an answer.
const MOST_CALLS: usize = 256;

/// Categories of a filter that are told.
const MOST_CATEGORIES: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) calls: Vec<Call>,
    /// Why the model stopped, once it has.
    pub(crate) finish: Option<Finish>,
    pub(crate) refused: bool,
    /// The words with which it did. They are the provider's where it declines for the model, and so are shown as its
    /// messages are: at the end, when they are whole.
    pub(crate) refusal: String,
    /// What the provider says of a filter or a refusal, beside that there was one.
    pub(crate) said: Option<String>,
    /// The provider said that nothing follows.
    pub(crate) ended: bool,
    /// What the model itself did wrong, by the provider's word, where that ended the answer.
    pub(crate) wrong: Option<ModelFault>,
    pub(crate) usage: Option<Usage>,
    /// Halves of characters were marked in what came.
    pub(crate) halved: bool,
    text: Seam,
    reasoning: Seam,
    items: Vec<Value>,
    /// Bytes of what came for the provider alone.
    opaque: usize,
    has_text: bool,
    /// A person sees something of the text.
    seen: bool,
    has_reasoning: bool,
    /// Bytes of text and reasoning that were given out.
    given: usize,
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

impl Call {
    fn join(&mut self) {
        for text in [&mut self.id, &mut self.name, &mut self.arguments] {
            *text = halves::join(text).into_owned();
        }
    }
}

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
        let text = if self.halved { self.text.through(text) } else { Cow::Borrowed(text) };
        if text.is_empty() {
            return;
        }
        self.has_text = true;
        self.seen = self.seen || !is_blank(&text);
        self.given += text.len();
        match out.last_mut() {
            Some(ModelEvent::Text(last)) => last.push_str(&text),
            _ => out.push(ModelEvent::Text(text.into_owned())),
        }
    }

    /// More reasoning, passed on as text is.
    pub(crate) fn think(&mut self, out: &mut Vec<ModelEvent>, text: &str) {
        let text = if self.halved { self.reasoning.through(text) } else { Cow::Borrowed(text) };
        if text.is_empty() {
            return;
        }
        self.has_reasoning = true;
        self.given += text.len();
        match out.last_mut() {
            Some(ModelEvent::Reasoning(last)) => last.push_str(&text),
            _ => out.push(ModelEvent::Reasoning(text.into_owned())),
        }
    }

    /// The model declines, with these words or more of them.
    pub(crate) fn decline(&mut self, words: &str) {
        self.refused = true;
        self.refusal.push_str(words);
        self.has_text |= !words.is_empty();
    }

    /// Keeps the provider's word for a filter or a refusal, with what it is about and what else is said of it.
    pub(crate) fn tell<'a>(&mut self, word: &str, about: impl Iterator<Item = &'a str>, words: &str) {
        let about: Vec<&str> = about.filter(|category| *category != word).take(MOST_CATEGORIES).collect();
        let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        self.said = Some(format!("`{word}`{about}{words}"));
    }

    /// The halves of characters that nothing follows.
    pub(crate) fn rest(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(rest) = self.reasoning.rest() {
            self.think(out, &rest);
        }
        if let Some(rest) = self.text.rest() {
            self.say(out, &rest);
        }
    }

    /// Bytes of all that came of the answer.
    pub(crate) fn bytes(&self) -> usize {
        self.given + self.refusal.len() + self.kept()
    }

    /// Bytes of what was not given out.
    pub(crate) fn kept(&self) -> usize {
        self.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum()
    }

    /// Notes that so many bytes came for the provider alone, such as a part of a seal.
    pub(crate) fn weigh(&mut self, bytes: usize) {
        self.opaque = self.opaque.saturating_add(bytes);
    }

    /// Bytes of what nobody is shown: items of the provider and ids.
    pub(crate) fn opaque(&self) -> usize {
        self.opaque + self.calls.iter().map(|call| call.id.len()).sum::<usize>()
    }

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

    pub(crate) fn has_reasoned(&self) -> bool {
        self.has_reasoning
    }

    /// Something that the provider wants back with the answer, before part `at` of it.
    pub(crate) fn keep(&mut self, item: Value, at: usize) {
        self.weigh(items::bytes(&item));
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
            _ if self.refused => StopReason::Refusal { dropped_calls },
            _ if self.calls.is_empty() => StopReason::End,
            _ => StopReason::ToolCalls,
        };
        if stop == StopReason::End && !self.seen {
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
        if self.halved {
            self.items.iter_mut().for_each(halves::join_all);
            calls.iter_mut().for_each(Call::join);
        }
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
    std::str::from_utf8(data).map_err(|_| not_valid(&"it is not UTF-8"))
}

pub(crate) fn event<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, ModelFault> {
    serde_json::from_str(data).map_err(|e| not_valid(&e))
}

const NOT_VALID: &str = "it sent an event that is not valid";

fn not_valid(why: &dyn Display) -> ModelFault {
    broken(&format!("{NOT_VALID}: {why}"))
}

/// Whether what came could not be read.
pub(super) fn is_not_valid(fault: &ModelFault) -> bool {
    fault.message.starts_with(NOT_VALID)
}

/// Like [`event`], for APIs whose later versions may add events with fields of other types: an event that cannot be read
/// and whose kind is not among the `known` ones is skipped.
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
