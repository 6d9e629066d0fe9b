//! An answer in chunks, and whole.

use drupe_extension_api::Usage;
use serde_json::{Map, Value, json};

use crate::{
    Rejection, ServedTurn, Vendor,
    encoder::{ClientCall, Dialect, Finish, SseFrame, Stage, Text, Whole},
};

pub(super) struct Chunks {
    id: String,
    model: String,
    created: i64,
    include_usage: bool,
    /// How many calls were told: chunks count them apart from the text.
    calls: usize,
}

impl Chunks {
    pub fn new(model: &str, turn: &ServedTurn, include_usage: bool) -> Self {
        let id = format!("chatcmpl-{}", turn.turn);
        Self { id, model: model.to_owned(), created: turn.created, include_usage, calls: 0 }
    }

    fn object(&self, kind: &str, choices: Value) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("id".into(), json!(self.id));
        object.insert("object".into(), json!(kind));
        object.insert("created".into(), json!(self.created));
        object.insert("model".into(), json!(self.model));
        object.insert("choices".into(), choices);
        object
    }

    fn chunk(&self, choices: Value, usage: Option<Value>) -> SseFrame {
        let mut chunk = self.object("chat.completion.chunk", choices);
        // Who asked for it finds the field in each chunk, and the figures in the last.
        if self.include_usage {
            chunk.insert("usage".into(), usage.unwrap_or(Value::Null));
        }
        SseFrame { event: None, data: Value::Object(chunk).to_string() }
    }

    fn delta(&self, delta: Value, finish: Option<&str>) -> SseFrame {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        self.chunk(json!([choice]), None)
    }
}

impl Dialect for Chunks {
    fn separator(&self) -> &'static str {
        "\n\n"
    }

    fn begin(&mut self, out: &mut Vec<SseFrame>) {
        out.push(self.delta(json!({"role": "assistant", "content": "", "refusal": null}), None));
    }

    fn text(&mut self, _: usize, delta: &str, _: bool, out: &mut Vec<SseFrame>) {
        out.push(self.delta(json!({"content": delta}), None));
    }

    fn close(&mut self, _: usize, _: &Text, _: &mut Vec<SseFrame>) {}

    fn withdraw(&mut self, _: usize, _: &mut Vec<SseFrame>) -> bool {
        false
    }

    fn refusal(&mut self, _: usize, words: &str, out: &mut Vec<SseFrame>) {
        out.push(self.delta(json!({"refusal": words}), None));
    }

    fn call(&mut self, _: usize, call: &ClientCall, out: &mut Vec<SseFrame>) {
        let mut told = function(call);
        told["index"] = json!(self.calls);
        self.calls += 1;
        out.push(self.delta(json!({"tool_calls": [told]}), None));
    }

    fn end(&mut self, whole: &Whole, finish: Finish, out: &mut Vec<SseFrame>) {
        out.push(self.delta(json!({}), Some(reason(finish))));
        if self.include_usage {
            out.push(self.chunk(json!([]), Some(usage(&whole.usage))));
        }
        out.push(SseFrame { event: None, data: "[DONE]".into() });
    }

    fn fail(&mut self, _: &Whole, rejection: &Rejection, out: &mut Vec<SseFrame>) {
        // Without `[DONE]`: what has no end must not look as if it had one.
        out.push(SseFrame { event: None, data: rejection.body(Vendor::OpenAi, "").to_string() });
    }

    fn ping(&self) -> SseFrame {
        SseFrame::comment()
    }

    fn body(&self, whole: &Whole) -> Value {
        let calls: Vec<Value> = whole.calls().map(function).collect();
        let mut message = json!({
            "role": "assistant", "content": whole.text(), "refusal": whole.refusal(), "annotations": [],
        });
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let finish = match whole.stage {
            Stage::Ended(finish) => Some(reason(finish)),
            Stage::Running | Stage::Failed(_) => None,
        };
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish});
        let mut body = self.object("chat.completion", json!([choice]));
        body.insert("usage".into(), usage(&whole.usage));
        Value::Object(body)
    }
}

fn function(call: &ClientCall) -> Value {
    let arguments = Value::Object(call.arguments.clone()).to_string();
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::Refused => "stop",
        Finish::Length => "length",
        Finish::Filter => "content_filter",
        Finish::Calls => "tool_calls",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total(),
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}
