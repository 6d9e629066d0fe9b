//! Reads the events of the Messages API.

use drupe_agent::{ModelEvent, ModelFault, Usage};
use drupe_extension_api::FailureClass;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::source::Broken;
use crate::wire::{
    Draft, Reader, WireError,
    draft::{self, Call, Finish},
    in_stream,
    text::Text,
};

/// Remembers the block of thinking under way.
#[derive(Default)]
pub(super) struct Events {
    thought: Thought,
}

#[derive(Default)]
struct Thought {
    at: usize,
    text: String,
    signature: String,
}

impl Reader for Events {
    fn take(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken> {
        let event: Event<'_> = draft::event(data)?;
        match &*event.kind {
            "message_start" => count(draft, event.message.and_then(|message| message.usage)),
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.begin(event.index, block, draft, out)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.more(event.index, delta, draft, out);
                }
            }
            "content_block_stop" => self.end(event.index, draft),
            "message_delta" => {
                count(draft, event.usage);
                let Some(delta) = event.delta else { return Ok(()) };
                if let Some(reason) = &delta.stop_reason {
                    ended(reason, delta.stop_details, draft);
                }
            }
            "message_stop" => draft.ended = true,
            "error" => return Err(in_stream(&event.error.unwrap_or_default())),
            // `ping`, and what later versions add.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, data: &str, draft: &mut Draft, out: &mut Vec<ModelEvent>) -> Result<(), Broken> {
        let message: Whole<'_> = draft::event(data)?;
        count(draft, message.usage);
        for (block, index) in message.content.into_iter().flatten().zip(0..) {
            self.begin(index, block, draft, out)?;
            self.end(index, draft);
        }
        if let Some(reason) = &message.stop_reason {
            ended(reason, message.stop_details, draft);
        }
        Ok(())
    }
}

impl Events {
    fn begin(
        &mut self,
        index: u64,
        block: Block<'_>,
        draft: &mut Draft,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelFault> {
        match &*block.kind {
            "text" => draft.say(out, &block.text.unwrap_or_default()),
            "thinking" => {
                let text = block.thinking.unwrap_or_default().0.into_owned();
                let at = draft.place();
                draft.think(out, &text);
                let signature = block.signature.unwrap_or_default().0.into_owned();
                self.thought = Thought { at, text, signature };
            }
            "redacted_thinking" => {
                let data = block.data.unwrap_or_default();
                draft.keep(json!({"type": "redacted_thinking", "data": &*data}), draft.place());
            }
            "tool_use" => {
                // Parts follow where this is empty, and else it is all there is.
                let input = block.input.map(RawValue::get).filter(|input| *input != "{}");
                draft.open(Call {
                    key: index,
                    id: block.id.unwrap_or_default().0.into_owned(),
                    name: block.name.unwrap_or_default().0.into_owned(),
                    arguments: input.unwrap_or_default().to_owned(),
                    open: true,
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn more(&mut self, index: u64, delta: Delta<'_>, draft: &mut Draft, out: &mut Vec<ModelEvent>) {
        match &*delta.kind {
            "text_delta" => draft.say(out, &delta.text.unwrap_or_default()),
            "thinking_delta" => {
                let text = delta.thinking.unwrap_or_default();
                self.thought.text.push_str(&text);
                draft.think(out, &text);
            }
            "signature_delta" => {
                let more = delta.signature.unwrap_or_default();
                draft.weigh(more.len());
                self.thought.signature.push_str(&more);
            }
            "input_json_delta" => {
                if let Some(call) = draft.call(index).filter(|call| call.open) {
                    call.arguments.push_str(&delta.partial_json.unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, index: u64, draft: &mut Draft) {
        if let Some(call) = draft.call(index) {
            call.open = false;
        }
        let Thought { at, text, signature } = std::mem::take(&mut self.thought);
        // Thinking without a signature would be refused.
        if !signature.is_empty() {
            draft.keep(json!({"type": "thinking", "thinking": text, "signature": signature}), at);
        }
    }
}

/// Later counts complete earlier ones. What goes into the provider's cache is input that has a price of its own.
fn count(draft: &mut Draft, wire: Option<WireUsage>) {
    let Some(wire) = wire else { return };
    let before = draft.usage.unwrap_or_default();
    let cached = wire.cache_read_input_tokens.unwrap_or(before.cached_tokens);
    let written = wire.cache_creation_input_tokens.unwrap_or(before.cache_write_tokens);
    let input = wire.input_tokens.map(|fresh| fresh.saturating_add(written).saturating_add(cached));
    draft.usage = Some(Usage {
        input_tokens: input.unwrap_or(before.input_tokens),
        cached_tokens: cached,
        cache_write_tokens: written,
        output_tokens: wire.output_tokens.unwrap_or(before.output_tokens),
        reasoning_tokens: wire
            .output_tokens_details
            .and_then(|d| d.thinking_tokens)
            .unwrap_or(before.reasoning_tokens),
    });
}

/// What a reason to stop means. A refusal before anything was said is the model's own, and its explanation are its words;
/// after that it is the filter's, which cut off what was being said.
fn ended(reason: &str, details: Option<Details<'_>>, draft: &mut Draft) {
    let details = details.unwrap_or_default();
    if reason == "refusal" {
        let words = details.explanation.as_deref().filter(|_| draft.is_begun()).unwrap_or_default();
        draft.tell(reason, details.category.as_deref().into_iter(), words);
    }
    let finish = match reason {
        "end_turn" | "stop_sequence" | "tool_use" => Finish::End,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" if draft.is_begun() => Finish::Filter,
        "refusal" => {
            draft.decline(&details.explanation.unwrap_or_default());
            Finish::End
        }
        "pause_turn" => {
            let text = "it paused in the middle of tools that the provider runs itself (`pause_turn`), which drupe \
                        does not go on with: take those tools out of `parameters.extra`";
            draft.wrong = Some(ModelFault::fatal(FailureClass::Model, text));
            Finish::End
        }
        other => {
            draft.wrong = Some(draft::unknown_end(other));
            Finish::End
        }
    };
    draft.finish = Some(finish);
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: Text<'a>,
    #[serde(default)]
    index: u64,
    message: Option<Start>,
    content_block: Option<Block<'a>>,
    delta: Option<Delta<'a>>,
    usage: Option<WireUsage>,
    error: Option<WireError>,
}

/// A message that came at once.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Whole<'a> {
    content: Option<Vec<Block<'a>>>,
    stop_reason: Option<Text<'a>>,
    stop_details: Option<Details<'a>>,
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Block<'a> {
    #[serde(rename = "type", default)]
    kind: Text<'a>,
    id: Option<Text<'a>>,
    name: Option<Text<'a>>,
    text: Option<Text<'a>>,
    thinking: Option<Text<'a>>,
    signature: Option<Text<'a>>,
    data: Option<Text<'a>>,
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Delta<'a> {
    #[serde(rename = "type", default)]
    kind: Text<'a>,
    text: Option<Text<'a>>,
    partial_json: Option<Text<'a>>,
    thinking: Option<Text<'a>>,
    signature: Option<Text<'a>>,
    stop_reason: Option<Text<'a>>,
    stop_details: Option<Details<'a>>,
}

/// What there is to say of a refusal.
#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Details<'a> {
    category: Option<Text<'a>>,
    explanation: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct OutputDetails {
    thinking_tokens: Option<u64>,
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
