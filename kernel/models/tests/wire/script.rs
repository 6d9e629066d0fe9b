//! One answer, written the way that each API writes it.

#[path = "whole_script.rs"]
mod whole;

use serde_json::{Value, json};

use crate::{door::Kind, server::Act};

#[derive(Clone, Copy)]
pub enum Part {
    Think(&'static str),
    Say(&'static str),
    /// Id, name, arguments.
    Call(&'static str, &'static str, &'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    End,
    Calls,
    Length,
    Filter,
}

/// The events of an answer: 7 tokens in, 2 of them cached, 5 out.
pub fn events(kind: Kind, parts: &[Part], stop: Stop) -> Vec<String> {
    match kind {
        Kind::Chat => chat(parts, stop),
        Kind::Responses => responses(parts, stop),
        Kind::Messages => messages(parts, stop),
        Kind::Gemini => gemini(parts, stop),
    }
}

/// The same answer as the API gives it to those who ask for no stream.
pub fn whole(kind: Kind, parts: &[Part], stop: Stop) -> String {
    whole::answer(kind, parts, stop).to_string()
}

/// `hello`, in two pieces.
pub fn hello(kind: Kind) -> Vec<String> {
    events(kind, &[Part::Say("hel"), Part::Say("lo")], Stop::End)
}

/// Each event on its own, and a good end.
pub fn stream(events: &[String]) -> Act {
    Act::Stream(events.iter().map(|event| event.clone().into_bytes()).collect())
}

pub fn data(event: &Value) -> String {
    format!("data: {event}\n\n")
}

/// Text in two parts, at a place where a character ends.
fn halves(text: &str) -> (&str, &str) {
    let at = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    text.split_at(at)
}

fn chat(parts: &[Part], stop: Stop) -> Vec<String> {
    let delta = |delta: Value| {
        data(&json!({"id": "x", "object": "chat.completion.chunk", "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
    };
    let mut out = vec![delta(json!({"role": "assistant", "content": ""}))];
    let mut n = 0;
    for part in parts {
        match *part {
            Part::Think(text) => out.push(delta(json!({"reasoning_content": text}))),
            Part::Say(text) => out.push(delta(json!({"content": text}))),
            Part::Call(id, name, arguments) => {
                let (first, rest) = halves(arguments);
                let function = json!({"name": name, "arguments": first});
                out.push(delta(
                    json!({"tool_calls": [{"index": n, "id": id, "type": "function", "function": function}]}),
                ));
                out.push(delta(json!({"tool_calls": [{"index": n, "function": {"arguments": rest}}]})));
                n += 1;
            }
        }
    }
    let reason = match stop {
        Stop::End => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length => "length",
        Stop::Filter => "content_filter",
    };
    out.push(data(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})));
    let usage =
        json!({"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}});
    out.push(data(&json!({"choices": [], "usage": usage})));
    out.push("data: [DONE]\n\n".to_owned());
    out
}

fn named(event: Value) -> String {
    format!("event: {}\n{}", event["type"].as_str().unwrap(), data(&event))
}

fn responses(parts: &[Part], stop: Stop) -> Vec<String> {
    let mut out = vec![named(json!({"type": "response.created", "response": {"status": "in_progress"}}))];
    for (n, part) in parts.iter().enumerate() {
        let delta = |kind: &str, text: &str| {
            named(
                json!({"type": kind, "output_index": n, "item_id": "i", "delta": text, "obfuscation": "zz"}),
            )
        };
        match *part {
            Part::Think(text) => out.push(delta("response.reasoning_summary_text.delta", text)),
            Part::Say(text) => out.push(delta("response.output_text.delta", text)),
            Part::Call(id, name, arguments) => {
                let (first, rest) = halves(arguments);
                let item = |arguments: &str, status: &str| json!({"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": arguments, "status": status});
                out.push(named(json!({"type": "response.output_item.added", "output_index": n, "item": item("", "in_progress")})));
                out.push(delta("response.function_call_arguments.delta", first));
                out.push(delta("response.function_call_arguments.delta", rest));
                out.push(named(json!({"type": "response.output_item.done", "output_index": n, "item": item(arguments, "completed")})));
            }
        }
    }
    let (kind, status, details) = match stop {
        Stop::End | Stop::Calls => ("response.completed", "completed", Value::Null),
        Stop::Length => ("response.incomplete", "incomplete", json!({"reason": "max_output_tokens"})),
        Stop::Filter => ("response.incomplete", "incomplete", json!({"reason": "content_filter"})),
    };
    let usage = json!({"input_tokens": 7, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 5});
    let response = json!({"status": status, "incomplete_details": details, "usage": usage, "error": null});
    out.push(named(json!({"type": kind, "response": response})));
    out
}

fn messages(parts: &[Part], stop: Stop) -> Vec<String> {
    let usage = json!({"input_tokens": 4, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 1});
    let mut out = vec![
        named(json!({"type": "message_start", "message": {"id": "x", "role": "assistant", "usage": usage}})),
        named(json!({"type": "ping"})),
    ];
    for (n, part) in parts.iter().enumerate() {
        let (block, deltas) = match *part {
            Part::Think(text) => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": text}),
                    json!({"type": "signature_delta", "signature": "s"}),
                ],
            ),
            Part::Say(text) => {
                (json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": text})])
            }
            Part::Call(id, name, arguments) => {
                let (first, rest) = halves(arguments);
                let part = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
                (
                    json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                    vec![part(""), part(first), part(rest)],
                )
            }
        };
        out.push(named(json!({"type": "content_block_start", "index": n, "content_block": block})));
        out.extend(
            deltas.into_iter().map(|d| named(json!({"type": "content_block_delta", "index": n, "delta": d}))),
        );
        out.push(named(json!({"type": "content_block_stop", "index": n})));
    }
    let reason = match stop {
        Stop::End => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Filter => "refusal",
    };
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    out.push(named(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})));
    out.push(named(json!({"type": "message_stop"})));
    out
}

fn gemini(parts: &[Part], stop: Stop) -> Vec<String> {
    let chunk = |parts: Value| {
        data(&json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]}))
    };
    let part = |part: &Part| match *part {
        Part::Think(text) => chunk(json!([{"text": text, "thought": true}])),
        Part::Say(text) => chunk(json!([{"text": text}])),
        // Arguments are JSON here, and spaces are the model's.
        Part::Call(id, name, arguments) => format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{{\"id\":\"{id}\",\"name\":\"{name}\",\"args\":{}}}}}]}}}}]}}\n\n",
            if arguments.is_empty() { "{}" } else { arguments }
        ),
    };
    let mut out: Vec<String> = parts.iter().map(part).collect();
    let reason = match stop {
        Stop::End | Stop::Calls => "STOP",
        Stop::Length => "MAX_TOKENS",
        Stop::Filter => "SAFETY",
    };
    let usage = json!({"promptTokenCount": 7, "cachedContentTokenCount": 2, "candidatesTokenCount": 3, "thoughtsTokenCount": 2});
    out.push(data(&json!({"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": reason}], "usageMetadata": usage})));
    out
}
