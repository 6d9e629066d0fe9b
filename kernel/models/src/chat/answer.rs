//! Puts a streamed answer together.
//!
//! Text and reasoning are passed on as they come. Tool calls are kept back: they are given out by
//! [`Answer::finish`] alone, so that a stream which breaks off cannot set a tool off.

use std::sync::Arc;

use drupe_agent::{ModelEvent, ModelFault, StopReason, Usage};
use drupe_extension_api::{FailureClass, ToolCallRequest, ToolSpec};
use serde::Deserialize;

use super::{
    body,
    content::{Content, Text},
    fault::{self, WireError},
};

/// More calls than any loop runs in a step; a stream that opens more is not an answer.
const MOST_CALLS: usize = 256;

/// An answer under way.
pub(super) struct Answer {
    /// For ids of calls that the provider gave none: the step of the run.
    step: usize,
    calls: Vec<Call>,
    finish: Option<Finish>,
    refused: bool,
    ended: bool,
    pub(super) usage: Option<Usage>,
}

#[derive(Default)]
struct Call {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    End,
    Length,
    Filter,
}

impl Answer {
    pub(super) fn new(step: usize) -> Self {
        Self { step, calls: Vec::new(), finish: None, refused: false, ended: false, usage: None }
    }

    /// Whether the provider said that nothing follows.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Whether what came is a whole answer: it has its reason to stop, or its end mark.
    pub(super) fn whole(&self) -> bool {
        self.finish.is_some() || self.ended
    }

    /// Takes the data of one event and adds what it says to `out`.
    pub(super) fn take(&mut self, data: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ModelFault> {
        if data == b"[DONE]" {
            self.ended = true;
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data).map_err(|e| {
            ModelFault::transient(FailureClass::Model, format!("it sent an event that is not valid: {e}"))
        })?;
        if let Some(error) = chunk.error {
            return Err(fault::in_stream(&error));
        }
        if let Some(usage) = chunk.usage.or_else(|| chunk.x_groq.and_then(|g| g.usage)) {
            self.usage = Some(usage.into());
        }
        for choice in chunk.choices.into_iter().flatten().filter(|c| c.index == 0) {
            self.delta(choice.delta.unwrap_or_default(), out)?;
            if let Some(reason) = choice.finish_reason {
                self.finish = Some(finish(&reason.0)?);
            }
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta<'_>, out: &mut Vec<ModelEvent>) -> Result<(), ModelFault> {
        let content = delta.content.unwrap_or_default();
        // Gateways that know both names send the same text under both.
        let reasoning = delta.reasoning_content.or(delta.reasoning).unwrap_or_default();
        add(out, ModelEvent::Reasoning, reasoning);
        add(out, ModelEvent::Reasoning, content.reasoning);
        add(out, ModelEvent::Text, content.text);
        if let Some(refusal) = delta.refusal.filter(|text| !text.is_empty()) {
            self.refused = true;
            add(out, ModelEvent::Text, refusal);
        }
        for part in delta.tool_calls.into_iter().flatten() {
            self.part(part)?;
        }
        Ok(())
    }

    /// Finds the call that a part belongs to. Most servers count; some send whole calls that are all number 0 and
    /// differ by id; some do not count at all.
    fn part(&mut self, part: CallPart<'_>) -> Result<(), ModelFault> {
        let id = part.id.unwrap_or_default().0;
        let index = part.index.unwrap_or_else(|| self.calls.last().map_or(0, |c| c.index));
        let same = |c: &Call| c.index == index && (id.is_empty() || c.id.is_empty() || c.id == id);
        let at = match self.calls.iter().rposition(same) {
            Some(at) => at,
            None if self.calls.len() >= MOST_CALLS => {
                return Err(ModelFault::transient(
                    FailureClass::Model,
                    "it asked for too many tool calls at once",
                ));
            }
            None => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id.push_str(&id);
        }
        let function = part.function.unwrap_or_default();
        if call.name.is_empty() {
            call.name.push_str(&function.name.unwrap_or_default().0);
        }
        call.arguments.push_str(&function.arguments.unwrap_or_default().0);
        Ok(())
    }

    /// The calls, and why the model stopped. To be asked once, when the answer is [`whole`](Self::whole).
    ///
    /// An answer that was cut short by a bound or a filter has no calls: the last of them may be half written, and
    /// which ones would have followed is not known.
    pub(super) fn finish(
        self,
        tools: &[Arc<ToolSpec>],
    ) -> Result<(Vec<ToolCallRequest>, StopReason), ModelFault> {
        let stop = match self.finish {
            Some(Finish::Length) => StopReason::Length,
            Some(Finish::Filter) => StopReason::Filter,
            _ if self.refused => StopReason::Filter,
            _ if self.calls.is_empty() => StopReason::End,
            _ => StopReason::ToolCalls,
        };
        if stop != StopReason::ToolCalls {
            return Ok((Vec::new(), stop));
        }
        let step = self.step;
        let calls = self.calls.into_iter().enumerate().map(|(n, call)| {
            if call.name.is_empty() {
                return Err(ModelFault::transient(
                    FailureClass::Model,
                    "it asked for a tool without naming it",
                ));
            }
            let call_id = if call.id.is_empty() { format!("call_{step}_{n}") } else { call.id };
            Ok(ToolCallRequest { call_id, name: body::own_name(call.name, tools), arguments: call.arguments })
        });
        Ok((calls.collect::<Result<_, _>>()?, stop))
    }
}

fn finish(reason: &str) -> Result<Finish, ModelFault> {
    match reason {
        "length" | "max_tokens" | "model_length" => Ok(Finish::Length),
        "content_filter" => Ok(Finish::Filter),
        "error" | "insufficient_system_resource" => {
            Err(ModelFault::transient(FailureClass::Model, format!("it broke its answer off: {reason}")))
        }
        _ => Ok(Finish::End),
    }
}

/// Adds text, to the event before where that is of the same kind: what arrived together is passed on together.
fn add(out: &mut Vec<ModelEvent>, kind: fn(String) -> ModelEvent, text: String) {
    if text.is_empty() {
        return;
    }
    match (out.last_mut(), kind(text)) {
        (Some(ModelEvent::Text(last)), ModelEvent::Text(more))
        | (Some(ModelEvent::Reasoning(last)), ModelEvent::Reasoning(more)) => last.push_str(&more),
        (_, event) => out.push(event),
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<WireUsage>,
    error: Option<WireError>,
    x_groq: Option<Groq>,
}

#[derive(Deserialize)]
struct Groq {
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    content: Option<Content>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    refusal: Option<String>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallPart<'a>>>,
}

#[derive(Deserialize)]
struct CallPart<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<FunctionPart<'a>>,
}

#[derive(Default, Deserialize)]
struct FunctionPart<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<InputDetails>,
    completion_tokens_details: Option<OutputDetails>,
    /// DeepSeek's name for cached tokens.
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let cached =
            wire.prompt_tokens_details.and_then(|d| d.cached_tokens).or(wire.prompt_cache_hit_tokens);
        Self {
            input_tokens: wire.prompt_tokens.unwrap_or(0),
            cached_tokens: cached.unwrap_or(0),
            output_tokens: wire.completion_tokens.unwrap_or(0),
            reasoning_tokens: wire.completion_tokens_details.and_then(|d| d.reasoning_tokens).unwrap_or(0),
        }
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
