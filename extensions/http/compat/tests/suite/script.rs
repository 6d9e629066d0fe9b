//! Turns as the kernel tells them, and the three encoders that they are fed to.

use drupe_extension_api::{AgentResponse, Event, TurnId, Usage};
use drupe_http_compat::{
    ChatRequest, ClientCall, Encoder, MessagesRequest, ResponsesRequest, ServedTurn, SseFrame,
    messages::ApiVersion,
};
use serde_json::{Value, json};

pub const FORMATS: [&str; 3] = ["chat", "responses", "messages"];

pub fn turn() -> ServedTurn {
    ServedTurn { turn: TurnId::new("t1").expect("an id"), created: 1_790_000_000 }
}

/// An encoder of a format; `form`: whether the client wants JSON.
pub fn encoder(format: &str, stream: bool, form: bool) -> Encoder {
    let schema = json!({"type": "object"});
    let mut body = json!({"model": "drupe", "stream": stream});
    let said = json!([{"role": "user", "content": "Where is the Eiffel Tower?"}]);
    let bytes = |body: &Value| body.to_string().into_bytes();
    match format {
        "chat" => {
            body["messages"] = said;
            body["stream_options"] = json!({"include_usage": true});
            if form {
                body["response_format"] =
                    json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
            }
            ChatRequest::parse(&bytes(&body)).expect("a request").encoder(&turn())
        }
        "responses" => {
            body["input"] = said;
            body["instructions"] = json!("Be short.");
            if form {
                body["text"] = json!({"format": {"type": "json_schema", "name": "a", "schema": schema}});
            }
            ResponsesRequest::parse(&bytes(&body)).expect("a request").encoder(&turn())
        }
        _ => {
            body["messages"] = said;
            body["max_tokens"] = json!(100);
            if form {
                body["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}});
            }
            let request = MessagesRequest::parse(&bytes(&body), ApiVersion::V2026);
            request.expect("a request").encoder(&turn())
        }
    }
}

/// An event of the turn's root, or of an agent below it.
pub fn at(depth: u32, kind: &str, data: Value) -> Event {
    let mut event = json!({"seq": 0, "time": "2026-03-01T10:00:00Z", "session": "s", "turn": "t1",
        "agent": {"id": "a", "invocation": format!("i{depth}"), "depth": depth}, "kind": kind, "data": data});
    if depth > 0 {
        event["agent"]["parent"] = json!("i0");
    }
    serde_json::from_value(event).expect("an event")
}

pub fn event(kind: &str, data: Value) -> Event {
    at(0, kind, data)
}

pub fn delta(id: &str, text: &str) -> Event {
    event("interaction.item.updated", json!({"id": id, "item": "agent_message", "delta": text}))
}

pub fn begun(id: &str) -> Event {
    event("interaction.item.started", json!({"item": {"id": id, "type": "agent_message"}}))
}

pub fn reset(id: &str) -> Event {
    event("interaction.stream.reset", json!({"id": id, "reason": "the connection broke"}))
}

/// An attempt that ended so, and the message that came of it.
pub fn said(id: &str, text: &str, stop: &str) -> [Event; 2] {
    let shown: String = text.chars().take(4096).collect();
    let output = json!({"text": shown, "truncated": shown.len() < text.len(), "bytes": text.len()});
    let item = json!({"id": id, "type": "agent_message", "output": output});
    let usage = json!({"input_tokens": 5, "output_tokens": 2});
    [
        event(
            "interaction.model.attempt",
            json!({"step": 1, "attempt": 1, "model": "m", "usage": usage,
            "latency_ms": 1, "stop": stop}),
        ),
        event("interaction.item.completed", json!({"item": item, "outcome": "ok", "elapsed_ms": 1})),
    ]
}

pub fn usage() -> Usage {
    Usage {
        input_tokens: 30,
        cached_tokens: 10,
        cache_write_tokens: 4,
        output_tokens: 7,
        reasoning_tokens: 3,
    }
}

/// What a turn does, in order.
pub enum Act {
    Hear(Box<Event>),
    Call(&'static str, &'static str, Value),
    End(AgentResponse),
}

pub fn hear(events: impl IntoIterator<Item = Event>) -> Vec<Act> {
    events.into_iter().map(|event| Act::Hear(Box::new(event))).collect()
}

pub fn play(encoder: &mut Encoder, acts: Vec<Act>) -> Vec<SseFrame> {
    let mut frames = encoder.begin();
    for act in acts {
        frames.extend(match act {
            Act::Hear(event) => encoder.event(&event),
            Act::Call(id, name, arguments) => {
                let arguments = arguments.as_object().cloned().unwrap_or_default();
                encoder.call(ClientCall { id: id.into(), name: name.into(), arguments })
            }
            Act::End(response) => encoder.end(&response, usage()),
        });
    }
    frames
}
