//! Reads the events of the Responses API.

use drupe_agent::{ModelEvent, ModelFault, Usage};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::source::Broken;
use crate::wire::{
    Draft, Reader, WireError,
    draft::{self, Call, Finish},
    in_stream,
    text::Text,
};

/// Events that must be understood.
const KNOWN: [&str; 12] = [
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.reasoning_summary_part.added",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.output_item.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "error",
];

/// Remembers where the reasoning under way began: what it comes before is decided then.
#[derive(Default)]
pub(super) struct Events {
    reasoning_at: usize,
}

impl Reader for Events {
    fn take(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken> {
        // Not this API's, but of servers that speak it beside Chat Completions.
        if data == "[DONE]" {
            draft.ended = true;
            return Ok(());
        }
        let Some(event) = draft::known_event::<Event<'_>>(data, &KNOWN)? else { return Ok(()) };
        match &*event.kind {
            "response.output_text.delta" => draft.say(out, &event.delta.unwrap_or_default()),
            "response.refusal.delta" => draft.decline(&event.delta.unwrap_or_default()),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                draft.think(out, &event.delta.unwrap_or_default());
            }
            // Parts of a summary are paragraphs.
            "response.reasoning_summary_part.added" if event.summary_index.unwrap_or(0) > 0 => {
                draft.think(out, "\n\n");
            }
            "response.output_item.added" => {
                let index = event.output_index;
                event.item.map_or(Ok(()), |item| self.added(index, item, draft))?
            }
            "response.function_call_arguments.delta" => {
                if let Some(call) = draft.call(event.output_index) {
                    call.arguments.push_str(&event.delta.unwrap_or_default());
                }
            }
            "response.output_item.done" => {
                let index = event.output_index;
                event.item.map_or(Ok(()), |item| self.done(index, item, draft))?
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                return ended(event.response.unwrap_or_default(), draft);
            }
            "error" => {
                let error = event.error.map_or_else(|| error_of(data), Ok)?;
                return Err(in_stream(&error));
            }
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken> {
        let whole: Whole<'_> = draft::event(data)?;
        for (raw, n) in whole.output.into_iter().flatten().zip(0..) {
            let item = || draft::event::<Item<'_>>(raw.get());
            self.added(n, item()?, draft)?;
            let parts: Parts<'_> = draft::event(raw.get())?;
            for (part, before) in parts.summary.into_iter().flatten().zip(0..) {
                draft.think(out, if before > 0 { "\n\n" } else { "" });
                draft.think(out, &part.text.unwrap_or_default());
            }
            for part in parts.content.into_iter().flatten() {
                match &*part.kind {
                    "output_text" => draft.say(out, &part.text.unwrap_or_default()),
                    "reasoning_text" => draft.think(out, &part.text.unwrap_or_default()),
                    "refusal" => draft.decline(&part.refusal.unwrap_or_default()),
                    _ => {}
                }
            }
            self.done(n, item()?, draft)?;
        }
        match whole.status {
            Some(_) => ended(draft::event(data)?, draft),
            None => Ok(()),
        }
    }
}

impl Events {
    fn added(&mut self, index: u64, item: Item<'_>, draft: &mut Draft) -> Result<(), ModelFault> {
        match &*item.kind {
            "reasoning" => self.reasoning_at = draft.place(),
            "message" => {
                if let Some(phase) = item.phase.filter(|phase| !phase.is_empty()) {
                    draft.keep(json!({"phase": &*phase}), 0);
                }
            }
            "function_call" => {
                draft.open(Call {
                    key: index,
                    id: item.call_id.unwrap_or_default().0.into_owned(),
                    name: item.name.unwrap_or_default().0.into_owned(),
                    arguments: item.arguments.unwrap_or_default().0.into_owned(),
                    open: true,
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What an item is in the end; some servers say nothing of it before.
    fn done(&mut self, index: u64, item: Item<'_>, draft: &mut Draft) -> Result<(), ModelFault> {
        match &*item.kind {
            "reasoning" => {
                if let Some(seal) = item.encrypted_content.filter(|seal| !seal.is_empty()) {
                    let summary = item.summary.unwrap_or_else(|| json!([]));
                    let id = item.id.unwrap_or_default();
                    let kept = json!({"id": &*id, "summary": summary, "encrypted_content": &*seal});
                    draft.keep(kept, self.reasoning_at);
                }
            }
            "function_call" => {
                let call = match draft.calls.iter().rposition(|call| call.key == index) {
                    Some(at) => &mut draft.calls[at],
                    None => draft.open(Call { key: index, ..Call::default() })?,
                };
                let set = |field: &mut String, text: Option<Text<'_>>| {
                    if let Some(text) = text.filter(|text| !text.is_empty()) {
                        text.0.as_ref().clone_into(field);
                    }
                };
                set(&mut call.id, item.call_id);
                set(&mut call.name, item.name);
                set(&mut call.arguments, item.arguments);
                call.open =
                    item.status.is_some_and(|status| matches!(&*status, "incomplete" | "in_progress"));
            }
            _ => {}
        }
        Ok(())
    }
}

fn ended(response: Response<'_>, draft: &mut Draft) -> Result<(), Broken> {
    draft.usage = response.usage.map(Usage::from).or(draft.usage);
    if let Some(error) = response.error {
        return Err(in_stream(&error));
    }
    let reason = response.incomplete_details.and_then(|details| details.reason).unwrap_or_default();
    draft.finish = Some(match (response.status.as_deref().unwrap_or_default(), &*reason) {
        (_, "max_output_tokens" | "max_tokens") => Finish::Length,
        (_, "content_filter") => {
            draft.tell(&reason, std::iter::empty(), "");
            Finish::Filter
        }
        // An event that ends a response need not say so again.
        ("" | "completed", "") => Finish::End,
        (status, "") => return Err(draft::broke_off(status).into()),
        (_, other) => {
            draft.wrong = Some(draft::unknown_end(other));
            Finish::End
        }
    });
    draft.ended = true;
    Ok(())
}

/// An error event holds its fields at the top level.
fn error_of(data: &str) -> Result<WireError, ModelFault> {
    draft::event(data)
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: Text<'a>,
    #[serde(default)]
    output_index: u64,
    summary_index: Option<u64>,
    delta: Option<Text<'a>>,
    item: Option<Item<'a>>,
    response: Option<Response<'a>>,
    error: Option<WireError>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Item<'a> {
    #[serde(rename = "type", default)]
    kind: Text<'a>,
    id: Option<Text<'a>>,
    call_id: Option<Text<'a>>,
    name: Option<Text<'a>>,
    arguments: Option<Text<'a>>,
    status: Option<Text<'a>>,
    /// Whether a message is said on the way or is the answer; it goes back with it.
    phase: Option<Text<'a>>,
    encrypted_content: Option<Text<'a>>,
    summary: Option<Value>,
}

/// A response that came at once. What it ends with is read as it is of a stream.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Whole<'a> {
    status: Option<Text<'a>>,
    output: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Parts<'a> {
    summary: Option<Vec<Part<'a>>>,
    content: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Part<'a> {
    #[serde(rename = "type", default)]
    kind: Text<'a>,
    text: Option<Text<'a>>,
    refusal: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Response<'a> {
    status: Option<Text<'a>>,
    usage: Option<WireUsage>,
    error: Option<WireError>,
    incomplete_details: Option<Incomplete<'a>>,
}

#[derive(Deserialize)]
struct Incomplete<'a> {
    #[serde(borrow)]
    reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let (cached, written) =
            wire.input_tokens_details.map_or((None, None), |d| (d.cached_tokens, d.cache_write_tokens));
        Self {
            input_tokens: wire.input_tokens.unwrap_or(0),
            cached_tokens: cached.unwrap_or(0),
            cache_write_tokens: written.unwrap_or(0),
            output_tokens: wire.output_tokens.unwrap_or(0),
            reasoning_tokens: wire.output_tokens_details.and_then(|d| d.reasoning_tokens).unwrap_or(0),
        }
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
