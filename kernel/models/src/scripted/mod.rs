//! Models that follow a script: for tests of agents, and of everything around them.
//!
//! A script is a YAML list. Each entry says what it expects of a request and what it answers:
//!
//! ```yaml
//! - expect:                  # all that is given must hold
//!     agent: main            # whose run asks
//!     contains: colour       # part of the latest task
//!     tool_result: ^red$     # expression; the request follows a tool whose result matches
//!     tools: [kv_get]        # all of these are on offer
//!   step: 1                  # only the first answer of a run
//!   repeat: true             # is never used up
//!   delay_ms: 20             # before it answers
//!   reasoning: Let me see.
//!   text: Looking it up.
//!   chunk: 4                 # characters of text at a time; all at once where it is left out
//!   tool_calls:
//!     - { name: kv_get, arguments: { key: colour } }   # or text, which need not be JSON
//!   usage: { input_tokens: 10, output_tokens: 5 }
//!   stop: length             # end, tool_calls, length, filter or refusal; else it follows from the calls
//! - fault: { class: network, message: gone, retriable: true, after_chunks: 2 }
//! ```
//!
//! A request is answered by the first entry that is not used up and whose expectations hold; an entry without
//! `agent` serves any. If there is none, the request fails with what was asked and what is left. An entry is used up
//! by answering once, also where its answer is a fault, so that a fault followed by an answer plays a recovery.
//!
//! Entries with a `step` are different: they are never used up, and match only a request that is step `N` of its
//! run, which is one more than the answers that its transcript holds. What they answer depends on the request alone,
//! so a script of such entries goes on where it was after the process was replaced in the middle of it.
//!
//! There are no placeholders, and unknown keys are errors. A script makes no calls where it faults, and where `stop` is
//! `length`, `filter` or `refusal` those of the entry are dropped and counted, as a provider's are.

mod script;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use drupe_agent::{ModelEvent, ModelFault, ModelProfile, ModelRequest, StopReason};
use drupe_extension_api::{FailureClass, ModelParameters, ToolCallRequest};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::time::sleep;

use script::Entry;
pub(crate) use script::Script;

use crate::{
    error::Unsupported,
    source::{self, Broken, Progress, Source},
};

/// A model that follows a script.
pub(crate) struct ScriptedSource {
    script: Arc<Script>,
    profile: ModelProfile,
}

impl ScriptedSource {
    pub(crate) fn new(script: Arc<Script>, profile: ModelProfile) -> Self {
        Self { script, profile }
    }
}

impl Source for ScriptedSource {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn supports(&self, _: &ModelParameters) -> Result<(), Unsupported> {
        Ok(())
    }

    fn attempt(
        &self,
        request: Arc<ModelRequest>,
        _: Arc<Progress>,
    ) -> BoxStream<'static, Result<ModelEvent, Broken>> {
        request.dispatch.goes_to(&self.profile.name);
        let (delay, items) = match self.script.take(&request) {
            Ok(entry) => (
                source::milliseconds(entry.delay_ms),
                self.within_its_bound(&entry, &request).map_or_else(
                    |fault| VecDeque::from([Err(fault.into())]),
                    |()| play(&entry, &self.profile.name, source::step(&request.messages)),
                ),
            ),
            Err(text) => {
                let fault =
                    ModelFault::fatal(FailureClass::Model, format!("`{}`: {text}", self.profile.name));
                (Duration::ZERO, VecDeque::from([Err(fault.into())]))
            }
        };
        stream::once(async move {
            if !delay.is_zero() {
                sleep(delay).await;
            }
            stream::iter(items)
        })
        .flatten()
        .boxed()
    }
}

impl ScriptedSource {
    /// What goes far past the bound on the answer is no answer, as with a provider that does not keep it.
    fn within_its_bound(&self, entry: &Entry, request: &ModelRequest) -> Result<(), ModelFault> {
        let (bytes, longest) = (entry.bytes(), source::longest(request.max_output_tokens));
        if bytes <= longest {
            return Ok(());
        }
        let text = format!(
            "`{}`: the answer of the script goes on past its bound of {} tokens: it has {bytes} bytes, of which at most \
             {longest} are taken. Shorten it, or raise `max_output_tokens`",
            self.profile.name, request.max_output_tokens,
        );
        Err(ModelFault::fatal(FailureClass::Model, text))
    }
}

fn play(entry: &Entry, model: &str, step: usize) -> VecDeque<Result<ModelEvent, Broken>> {
    let mut items = VecDeque::new();
    items.extend(entry.reasoning.clone().map(|text| Ok(ModelEvent::Reasoning(text))));
    let chunks = chunks(entry.text.as_deref().unwrap_or_default(), entry.chunk);
    if let Some(fault) = &entry.fault {
        items.extend(chunks.into_iter().take(fault.after_chunks).map(|text| Ok(ModelEvent::Text(text))));
        items.push_back(Err(fault.model_fault(model).with_usage(entry.usage()).into()));
        return items;
    }
    items.extend(chunks.into_iter().map(|text| Ok(ModelEvent::Text(text))));
    let stop = entry.ends();
    let given = if stop == StopReason::ToolCalls { &*entry.tool_calls } else { &[] };
    items.extend(given.iter().enumerate().map(|(n, call)| {
        let call_id = format!("scripted_{step}_{n}");
        Ok(ModelEvent::ToolCall(ToolCallRequest {
            call_id,
            name: call.name.clone(),
            arguments: call.arguments(),
        }))
    }));
    items.push_back(Ok(ModelEvent::Done { usage: entry.usage(), stop, model: model.to_owned() }));
    items
}

/// The text in parts of `size` characters.
fn chunks(text: &str, size: Option<usize>) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(size.unwrap_or(usize::MAX).max(1)).map(|part| part.iter().collect()).collect()
}

#[cfg(test)]
mod tests;
