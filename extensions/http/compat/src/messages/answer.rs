//! An answer in blocks, as a stream and whole.

use drupe_extension_api::Usage;
use serde_json::{Value, json};

use crate::{
    Ask, Rejection, ServedTurn, Vendor,
    encoder::{ClientCall, Dialect, Finish, Piece, SseFrame, Stage, Text, Whole},
};

pub(super) struct Blocks {
    id: String,
    model: String,
    /// The tokens of the request, as far as anybody knows before a model counts them.
    estimate: u64,
}

impl Blocks {
    pub fn new(ask: &Ask, turn: &ServedTurn) -> Self {
        let id = format!("msg_{}", turn.turn);
        Self { id, model: ask.model.clone(), estimate: ask.estimated_tokens() }
    }

    fn message(&self, content: Value, reason: Option<&str>, usage: Value) -> Value {
        json!({"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": reason, "stop_sequence": null, "usage": usage})
    }

    fn block(&self, at: usize, block: Value, delta: Value, out: &mut Vec<SseFrame>) {
        let start = json!({"type": "content_block_start", "index": at, "content_block": block});
        out.push(SseFrame::named("content_block_start", &start));
        self.delta(at, delta, out);
    }

    fn delta(&self, at: usize, delta: Value, out: &mut Vec<SseFrame>) {
        let data = json!({"type": "content_block_delta", "index": at, "delta": delta});
        out.push(SseFrame::named("content_block_delta", &data));
    }

    fn stop(&self, at: usize, out: &mut Vec<SseFrame>) {
        out.push(SseFrame::named("content_block_stop", &json!({"type": "content_block_stop", "index": at})));
    }
}

impl Dialect for Blocks {
    fn separator(&self) -> &'static str {
        "\n\n"
    }

    fn begin(&mut self, out: &mut Vec<SseFrame>) {
        let usage = Usage { input_tokens: self.estimate, ..Usage::default() };
        let message = self.message(json!([]), None, figures(&usage));
        out.push(SseFrame::named("message_start", &json!({"type": "message_start", "message": message})));
    }

    fn text(&mut self, at: usize, delta: &str, first: bool, out: &mut Vec<SseFrame>) {
        let delta = json!({"type": "text_delta", "text": delta});
        if first {
            self.block(at, json!({"type": "text", "text": ""}), delta, out);
        } else {
            self.delta(at, delta, out);
        }
    }

    fn close(&mut self, at: usize, _: &Text, out: &mut Vec<SseFrame>) {
        self.stop(at, out);
    }

    fn withdraw(&mut self, _: usize, _: &mut Vec<SseFrame>) -> bool {
        false
    }

    fn refusal(&mut self, at: usize, words: &str, out: &mut Vec<SseFrame>) {
        self.text(at, words, true, out);
        self.stop(at, out);
    }

    fn call(&mut self, at: usize, call: &ClientCall, out: &mut Vec<SseFrame>) {
        let begun = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        let arguments = Value::Object(call.arguments.clone()).to_string();
        self.block(at, begun, json!({"type": "input_json_delta", "partial_json": arguments}), out);
        self.stop(at, out);
    }

    fn end(&mut self, whole: &Whole, finish: Finish, out: &mut Vec<SseFrame>) {
        let delta = json!({"stop_reason": reason(finish), "stop_sequence": null});
        let data = json!({"type": "message_delta", "delta": delta, "usage": figures(&whole.usage)});
        out.push(SseFrame::named("message_delta", &data));
        out.push(SseFrame::named("message_stop", &json!({"type": "message_stop"})));
    }

    fn fail(&mut self, _: &Whole, rejection: &Rejection, out: &mut Vec<SseFrame>) {
        let (_, kind, _) = rejection.wire(Vendor::Anthropic);
        let data = json!({"type": "error", "error": {"type": kind, "message": rejection.message}});
        out.push(SseFrame::named("error", &data));
    }

    fn ping(&self) -> SseFrame {
        SseFrame::named("ping", &json!({"type": "ping"}))
    }

    fn body(&self, whole: &Whole) -> Value {
        let text = |text: &str| json!({"type": "text", "text": text});
        let content = whole.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(part) if part.void => None,
            Piece::Text(part) => Some(text(&part.text)),
            Piece::Refusal(words) => Some(text(words)),
            Piece::Call(call) => {
                Some(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}))
            }
        });
        let reason = match whole.stage {
            Stage::Ended(finish) => Some(reason(finish)),
            Stage::Running | Stage::Failed(_) => None,
        };
        self.message(content.collect(), reason, figures(&whole.usage))
    }
}

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::Filter | Finish::Refused => "refusal",
        Finish::Calls => "tool_use",
    }
}

/// Anthropic counts what was read from a cache or written to it apart from the rest of the input.
fn figures(usage: &Usage) -> Value {
    let fresh =
        usage.input_tokens.saturating_sub(usage.cached_tokens).saturating_sub(usage.cache_write_tokens);
    json!({
        "input_tokens": fresh,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    })
}
