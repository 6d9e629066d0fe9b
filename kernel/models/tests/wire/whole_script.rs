//! One answer as each API gives it at once.

use serde_json::{Value, json};

use super::{Part, Stop};
use crate::door::Kind;

pub fn answer(kind: Kind, parts: &[Part], stop: Stop) -> Value {
    match kind {
        Kind::Chat => chat(parts, stop),
        Kind::Responses => responses(parts, stop),
        Kind::Messages => messages(parts, stop),
        Kind::Gemini => gemini(parts, stop),
    }
}

fn chat(parts: &[Part], stop: Stop) -> Value {
    let mut message = json!({"role": "assistant", "content": "", "refusal": null, "reasoning_content": ""});
    let mut calls = Vec::new();
    for part in parts {
        match *part {
            Part::Think(text) => message["reasoning_content"] = json!(text),
            Part::Say(text) => message["content"] = json!(text),
            Part::Call(id, name, arguments) => {
                let function = json!({"name": name, "arguments": arguments});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let reason = match stop {
        Stop::End => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length => "length",
        Stop::Filter => "content_filter",
    };
    let usage =
        json!({"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}});
    json!({"id": "x", "object": "chat.completion", "model": "m", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": null}]})
}

fn responses(parts: &[Part], stop: Stop) -> Value {
    let item = |part: &Part| match *part {
        Part::Think(text) => {
            json!({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]})
        }
        Part::Say(text) => {
            let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
            json!({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content})
        }
        Part::Call(id, name, arguments) => {
            json!({"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": arguments,
                "status": "completed"})
        }
    };
    let (status, details) = match stop {
        Stop::End | Stop::Calls => ("completed", Value::Null),
        Stop::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
        Stop::Filter => ("incomplete", json!({"reason": "content_filter"})),
    };
    let usage = json!({"input_tokens": 7, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 5});
    let output: Vec<_> = parts.iter().map(item).collect();
    json!({"id": "x", "object": "response", "status": status, "incomplete_details": details, "error": null,
        "output": output, "usage": usage})
}

fn messages(parts: &[Part], stop: Stop) -> Value {
    let block = |part: &Part| match *part {
        Part::Think(text) => json!({"type": "thinking", "thinking": text, "signature": "s"}),
        Part::Say(text) => json!({"type": "text", "text": text, "citations": null}),
        Part::Call(id, name, arguments) => {
            let input: Value = serde_json::from_str(arguments).unwrap();
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    };
    let reason = match stop {
        Stop::End => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Filter => "refusal",
    };
    let usage = json!({"input_tokens": 4, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 5});
    json!({"id": "x", "type": "message", "role": "assistant", "model": "m", "stop_reason": reason,
        "stop_sequence": null, "content": parts.iter().map(block).collect::<Vec<_>>(), "usage": usage})
}

fn gemini(parts: &[Part], stop: Stop) -> Value {
    let part = |part: &Part| match *part {
        Part::Think(text) => json!({"text": text, "thought": true}),
        Part::Say(text) => json!({"text": text}),
        Part::Call(id, name, arguments) => {
            let args: Value = serde_json::from_str(arguments).unwrap();
            json!({"functionCall": {"id": id, "name": name, "args": args}})
        }
    };
    let reason = match stop {
        Stop::End | Stop::Calls => "STOP",
        Stop::Length => "MAX_TOKENS",
        Stop::Filter => "SAFETY",
    };
    let usage = json!({"promptTokenCount": 7, "cachedContentTokenCount": 2, "candidatesTokenCount": 3, "thoughtsTokenCount": 2});
    let content = json!({"role": "model", "parts": parts.iter().map(part).collect::<Vec<_>>()});
    json!({"candidates": [{"content": content, "finishReason": reason, "index": 0}], "usageMetadata": usage})
}
