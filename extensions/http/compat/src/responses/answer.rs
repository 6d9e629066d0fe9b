//! An answer as items, and as the events that make them grow.

use drupe_extension_api::Usage;
use serde_json::{Map, Value, json};

use crate::{
    Rejection, RejectionKind, ServedTurn,
    encoder::{ClientCall, Dialect, Finish, Piece, SseFrame, Stage, Text, Whole},
    responses::{item_id, response_id},
};

pub(super) struct Items {
    /// The id of the response without its prefix: those of its items are made of it.
    turn: String,
    id: String,
    created: i64,
    echo: Map<String, Value>,
    sequence: u64,
}

impl Items {
    pub fn new(echo: Map<String, Value>, turn: &ServedTurn) -> Self {
        let id = response_id(&turn.turn);
        Self { turn: turn.turn.to_string(), id, created: turn.created, echo, sequence: 0 }
    }

    fn frame(&mut self, event: &'static str, mut data: Value) -> SseFrame {
        data["type"] = json!(event);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        SseFrame::named(event, &data)
    }

    /// An event of the only part of a message.
    fn part(&mut self, event: &'static str, at: usize, mut data: Value) -> SseFrame {
        data["content_index"] = json!(0);
        data["item_id"] = json!(self.message_id(at));
        data["output_index"] = json!(at);
        self.frame(event, data)
    }

    fn item(&mut self, event: &'static str, at: usize, item: Value) -> SseFrame {
        self.frame(event, json!({"output_index": at, "item": item}))
    }

    fn message_id(&self, at: usize) -> String {
        item_id("msg", &self.turn, at)
    }

    fn call_id(&self, at: usize) -> String {
        item_id("fc", &self.turn, at)
    }

    fn message(&self, at: usize, status: &str, phase: Option<&str>, content: Value) -> Value {
        let mut item = json!({"type": "message", "id": self.message_id(at), "role": "assistant",
            "status": status, "content": content});
        if let Some(phase) = phase {
            item["phase"] = json!(phase);
        }
        item
    }

    fn function_call(&self, at: usize, call: &ClientCall, status: &str, arguments: &str) -> Value {
        json!({"type": "function_call", "id": self.call_id(at), "call_id": call.id, "name": call.name,
            "arguments": arguments, "status": status})
    }

    /// A piece as it stands in the final object. `open`: whether it may still grow, or was left so.
    fn piece(&self, at: usize, piece: &Piece, open: Option<&str>) -> Value {
        match piece {
            Piece::Text(text) if text.void => self.message(at, "incomplete", None, json!([])),
            Piece::Text(text) => {
                let status = open.unwrap_or("completed");
                let phase = open.is_none().then_some(phase(text));
                self.message(at, status, phase, json!([output_text(&text.text)]))
            }
            Piece::Refusal(words) => {
                self.message(at, "completed", Some("final_answer"), json!([refusal(words)]))
            }
            Piece::Call(call) => self.function_call(at, call, "completed", &arguments(call)),
        }
    }

    fn open_message(&mut self, at: usize, part: Value, out: &mut Vec<SseFrame>) {
        let item = self.message(at, "in_progress", None, json!([]));
        out.push(self.item("response.output_item.added", at, item));
        out.push(self.part("response.content_part.added", at, json!({"part": part})));
    }

    /// The object before anything was said.
    fn empty(&self) -> Value {
        self.body(&Whole { pieces: Vec::new(), stage: Stage::Running, usage: Usage::default() })
    }
}

impl Dialect for Items {
    fn separator(&self) -> &'static str {
        ""
    }

    fn begin(&mut self, out: &mut Vec<SseFrame>) {
        for event in ["response.created", "response.in_progress"] {
            let response = self.empty();
            out.push(self.frame(event, json!({"response": response})));
        }
    }

    fn text(&mut self, at: usize, delta: &str, first: bool, out: &mut Vec<SseFrame>) {
        if first {
            self.open_message(at, output_text(""), out);
        }
        out.push(self.part("response.output_text.delta", at, json!({"delta": delta, "logprobs": []})));
    }

    fn close(&mut self, at: usize, text: &Text, out: &mut Vec<SseFrame>) {
        let part = output_text(&text.text);
        out.push(self.part("response.output_text.done", at, json!({"text": text.text, "logprobs": []})));
        out.push(self.part("response.content_part.done", at, json!({"part": part})));
        let item = self.message(at, "completed", Some(phase(text)), json!([part]));
        out.push(self.item("response.output_item.done", at, item));
    }

    fn withdraw(&mut self, at: usize, out: &mut Vec<SseFrame>) -> bool {
        out.push(self.part("response.output_text.done", at, json!({"text": "", "logprobs": []})));
        out.push(self.part("response.content_part.done", at, json!({"part": output_text("")})));
        let item = self.message(at, "incomplete", None, json!([]));
        out.push(self.item("response.output_item.done", at, item));
        true
    }

    fn refusal(&mut self, at: usize, words: &str, out: &mut Vec<SseFrame>) {
        self.open_message(at, refusal(""), out);
        out.push(self.part("response.refusal.delta", at, json!({"delta": words})));
        out.push(self.part("response.refusal.done", at, json!({"refusal": words})));
        out.push(self.part("response.content_part.done", at, json!({"part": refusal(words)})));
        let item = self.message(at, "completed", Some("final_answer"), json!([refusal(words)]));
        out.push(self.item("response.output_item.done", at, item));
    }

    fn call(&mut self, at: usize, call: &ClientCall, out: &mut Vec<SseFrame>) {
        let (id, arguments) = (self.call_id(at), arguments(call));
        let begun = self.function_call(at, call, "in_progress", "");
        out.push(self.item("response.output_item.added", at, begun));
        let delta = json!({"item_id": id, "output_index": at, "delta": arguments});
        out.push(self.frame("response.function_call_arguments.delta", delta));
        let done = json!({"item_id": id, "output_index": at, "name": call.name, "arguments": arguments});
        out.push(self.frame("response.function_call_arguments.done", done));
        let whole = self.function_call(at, call, "completed", &arguments);
        out.push(self.item("response.output_item.done", at, whole));
    }

    fn end(&mut self, whole: &Whole, finish: Finish, out: &mut Vec<SseFrame>) {
        let event = match finish {
            Finish::Length | Finish::Filter => "response.incomplete",
            Finish::Stop | Finish::Calls | Finish::Refused => "response.completed",
        };
        let response = self.body(whole);
        out.push(self.frame(event, json!({"response": response})));
    }

    fn fail(&mut self, whole: &Whole, _: &Rejection, out: &mut Vec<SseFrame>) {
        let response = self.body(whole);
        out.push(self.frame("response.failed", json!({"response": response})));
    }

    fn ping(&self) -> SseFrame {
        SseFrame::comment()
    }

    fn body(&self, whole: &Whole) -> Value {
        let (status, growing) = match &whole.stage {
            Stage::Running => ("in_progress", Some("in_progress")),
            Stage::Failed(rejection) if rejection.kind == RejectionKind::Cancelled => {
                ("cancelled", Some("incomplete"))
            }
            Stage::Failed(_) => ("failed", Some("incomplete")),
            Stage::Ended(Finish::Length | Finish::Filter) => ("incomplete", None),
            Stage::Ended(_) => ("completed", None),
        };
        let last = whole.pieces.len().saturating_sub(1);
        let output = whole.pieces.iter().enumerate();
        let output: Vec<Value> =
            output.map(|(at, piece)| self.piece(at, piece, growing.filter(|_| at == last))).collect();
        let over = !matches!(whole.stage, Stage::Running);
        let mut body = self.echo.clone();
        body.extend([
            ("id".to_owned(), json!(self.id)),
            ("object".to_owned(), json!("response")),
            ("created_at".to_owned(), json!(self.created)),
            ("status".to_owned(), json!(status)),
            ("error".to_owned(), error(&whole.stage)),
            ("incomplete_details".to_owned(), incomplete(&whole.stage)),
            ("output".to_owned(), json!(output)),
            ("usage".to_owned(), if over { usage(&whole.usage) } else { Value::Null }),
        ]);
        Value::Object(body)
    }
}

fn phase(text: &Text) -> &'static str {
    if text.last { "final_answer" } else { "commentary" }
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn refusal(words: &str) -> Value {
    json!({"type": "refusal", "refusal": words})
}

fn arguments(call: &ClientCall) -> String {
    Value::Object(call.arguments.clone()).to_string()
}

/// The object has a list of codes of its own, of which two can be meant here.
fn error(stage: &Stage) -> Value {
    let Stage::Failed(rejection) = stage else { return Value::Null };
    let code = match rejection.kind {
        RejectionKind::RateLimited | RejectionKind::Budget => "rate_limit_exceeded",
        _ => "server_error",
    };
    json!({"code": code, "message": rejection.message})
}

fn incomplete(stage: &Stage) -> Value {
    match stage {
        Stage::Ended(Finish::Length) => json!({"reason": "max_output_tokens"}),
        Stage::Ended(Finish::Filter) => json!({"reason": "content_filter"}),
        _ => Value::Null,
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total(),
    })
}
