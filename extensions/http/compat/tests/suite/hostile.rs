//! Requests and events that nobody sane sends: nothing panics, and whatever is written can be read.
//!
//! The generator is small and its seeds are fixed: the same inputs in each run.

use std::collections::BTreeSet;

use drupe_extension_api::{AgentResponse, Event, FailureClass};
use drupe_http_compat::{
    ChatRequest, ClientCall, MessagesRequest, Rejection, RejectionKind, ResponsesRequest, SseFrame, Vendor,
    messages::ApiVersion,
};
use serde_json::{Value, json};

use crate::script::{FORMATS, at, begun, delta, encoder, event, reset, said, usage};

/// SplitMix64: good enough to wander, and ours.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.roll() % most as u64).unwrap_or(0)
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Bodies with every field that is looked for.
fn bodies() -> Vec<Value> {
    let schema = json!({"type": "object", "properties": {}});
    vec![
        json!({"model": "drupe", "stream": true, "stream_options": {"include_usage": true}, "n": 1, "seed": 3, "stop": ["a"],
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "c", "content": "r"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}}, "metadata": {"session": "s"},
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}, "max_tokens": 5}),
        json!({"model": "haiku", "instructions": "i", "conversation": {"id": "c"}, "store": true, "background": true,
            "input": [{"role": "user", "content": "u"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r"}]}],
            "tools": [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": null}],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            "text": {"format": {"type": "json_schema", "schema": schema}}, "include": ["x"], "reasoning": {"effort": "low"}}),
        json!({"model": "drupe", "max_tokens": 5, "system": [{"type": "text", "text": "s"}], "stop_sequences": ["x"],
            "messages": [{"role": "user", "content": "u"},
                {"role": "assistant", "content": [{"type": "thinking"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": true},
                    {"type": "document", "source": {"type": "text", "data": "d"}}]}],
            "tools": [{"name": "f", "input_schema": schema}], "tool_choice": {"type": "tool", "name": "f"},
            "thinking": {"type": "disabled"}, "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}}}),
    ]
}

fn junk(dice: &mut Dice, words: &[String]) -> Value {
    match dice.below(12) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => json!(dice.roll()),
        3 => json!(-1),
        4 => json!(1.5e300),
        5 => json!(""),
        6 => json!("\u{0}\u{202e}é🙂\n\r"),
        7 => json!("x".repeat(3000)),
        8 => json!([junk(dice, words)]),
        9 => {
            let (key, value) = (dice.of(words).clone(), junk(dice, words));
            json!({key: value})
        }
        _ => json!(dice.of(words)),
    }
}

/// Every key and every text of a value.
fn words(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => drop(found.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| words(item, found)),
        Value::Object(fields) => fields.iter().for_each(|(key, item)| {
            found.insert(key.clone());
            words(item, found);
        }),
        _ => {}
    }
}

/// Changes something somewhere.
fn spoil(value: &mut Value, dice: &mut Dice, words: &[String]) {
    let deeper = dice.below(4) > 0;
    match value {
        Value::Array(items) if deeper && !items.is_empty() => {
            let place = dice.below(items.len());
            match dice.below(6) {
                0 => drop(items.remove(place)),
                1 => items.push(items[place].clone()),
                _ => spoil(&mut items[place], dice, words),
            }
        }
        Value::Object(fields) if deeper && !fields.is_empty() => {
            let key = fields.keys().nth(dice.below(fields.len())).cloned().unwrap_or_default();
            match dice.below(8) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(dice.of(words).clone(), junk(dice, words))),
                _ => spoil(&mut fields[&key], dice, words),
            }
        }
        _ => *value = junk(dice, words),
    }
}

fn told(refused: Rejection) -> bool {
    for vendor in [Vendor::OpenAi, Vendor::Anthropic] {
        let body = refused.body(vendor, "r");
        assert!((400..600).contains(&refused.status(vendor)));
        assert!(body["error"]["type"].is_string() && body["error"]["message"] != "", "{body}");
        assert!(body.to_string().len() < 2000, "a refusal repeats too much: {body}");
    }
    matches!(refused.kind, RejectionKind::Invalid | RejectionKind::NotFound)
}

#[test]
fn each_body_gives_a_request_or_a_refusal() {
    let mut found = BTreeSet::new();
    bodies().iter().for_each(|body| words(body, &mut found));
    let words: Vec<String> = found.into_iter().collect();
    let mut dice = Dice(7);
    let (mut taken, mut refused) = (0, 0);
    let bodies = bodies();
    for _ in 0..2000 {
        let mut body = dice.of(&bodies).clone();
        for _ in 0..dice.below(4) {
            spoil(&mut body, &mut dice, &words);
        }
        let mut bytes = body.to_string().into_bytes();
        if dice.below(20) == 0 {
            bytes.truncate(dice.below(bytes.len() + 1));
        }
        let versions = [ApiVersion::V2023, ApiVersion::V2026];
        let version = *dice.of(&versions);
        let results = [
            ChatRequest::parse(&bytes).map(|request| request.ask),
            ResponsesRequest::parse(&bytes).map(|request| request.ask),
            MessagesRequest::parse(&bytes, version).map(|request| request.ask),
            MessagesRequest::parse_count(&bytes, version).map(|request| request.ask),
        ];
        for result in results {
            match result {
                Ok(ask) => {
                    taken += 1;
                    assert!(!ask.messages.is_empty() && ask.estimated_tokens() > 0);
                }
                Err(no) => {
                    refused += 1;
                    assert!(told(no));
                }
            }
        }
    }
    assert!(taken > 500 && refused > 500, "{taken} taken, {refused} refused: the inputs say little");
}

/// What a client reads of a stream, as strict as the strictest of them.
#[derive(Default)]
struct Listener {
    open: Option<usize>,
    items: Vec<String>,
    text: String,
    /// How much text there was before the item that is open.
    before: usize,
    /// `end`, `error`, or nothing so far.
    over: Option<&'static str>,
    frames: u64,
}

impl Listener {
    fn read(&mut self, format: &str, frame: &SseFrame) {
        if frame.data.is_empty() {
            assert_eq!(frame.text(), ":\n\n");
            return;
        }
        assert!(!frame.data.contains(['\n', '\r']), "a frame is one line");
        assert_eq!(self.over, None, "something follows the end: {}", frame.data);
        if frame.data == "[DONE]" {
            assert_eq!(format, "chat");
            self.over = Some("end");
            return;
        }
        let data: Value = serde_json::from_str(&frame.data).expect("a frame is JSON");
        match format {
            "chat" => self.chat(&data),
            "responses" => self.response(&data),
            _ => self.message(frame.event.expect("a name"), &data),
        }
        self.frames += 1;
    }

    fn chat(&mut self, data: &Value) {
        if data["error"].is_object() {
            self.over = Some("error");
            return;
        }
        let delta = &data["choices"][0]["delta"];
        assert_eq!(delta["role"] == "assistant", self.frames == 0);
        self.text.push_str(delta["content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["index"], json!(self.items.len()));
            self.items.push(call["id"].to_string());
        }
    }

    fn message(&mut self, event: &str, data: &Value) {
        assert_eq!(data["type"], event);
        let at = data["index"].as_u64().and_then(|at| usize::try_from(at).ok());
        match event {
            "message_start" => assert_eq!(self.frames, 0),
            "ping" => assert!(self.frames > 0),
            "content_block_start" => {
                assert_eq!((self.open, at), (None, Some(self.items.len())));
                self.items.push(data["content_block"]["type"].to_string());
                self.open = at;
            }
            "content_block_delta" => {
                assert_eq!((self.open, at.is_some()), (at, true));
                self.text.push_str(data["delta"]["text"].as_str().unwrap_or_default());
                if let Some(json) = data["delta"]["partial_json"].as_str() {
                    assert!(serde_json::from_str::<Value>(json).is_ok_and(|input| input.is_object()));
                }
            }
            "content_block_stop" => assert_eq!((self.open.take(), at.is_some()), (at, true)),
            "message_delta" => assert!(self.open.is_none() && data["delta"]["stop_reason"].is_string()),
            "message_stop" => self.over = Some("end"),
            "error" => self.over = Some("error"),
            other => panic!("no client knows `{other}`"),
        }
    }

    fn response(&mut self, data: &Value) {
        assert_eq!(data["sequence_number"], json!(self.frames));
        let at = data["output_index"].as_u64().and_then(|at| usize::try_from(at).ok());
        let id = |at: Option<usize>| at.map(|at| self.items[at].as_str());
        match data["type"].as_str().expect("a type") {
            "response.created" => assert_eq!(self.frames, 0),
            "response.in_progress" => assert_eq!(self.frames, 1),
            "response.output_item.added" => {
                assert_eq!((self.open, at), (None, Some(self.items.len())));
                self.items.push(data["item"]["id"].as_str().expect("an id").to_owned());
                self.open = at;
                self.before = self.text.len();
            }
            "response.output_item.done" => {
                assert_eq!(id(at), data["item"]["id"].as_str());
                assert_eq!(self.open.take(), at);
                if data["item"]["status"] == "incomplete" {
                    self.text.truncate(self.before);
                }
            }
            last @ ("response.completed" | "response.incomplete" | "response.failed") => {
                let output = data["response"]["output"].as_array().expect("items");
                assert_eq!(output.len(), self.items.len());
                assert!(output.iter().zip(&self.items).all(|(item, id)| item["id"] == *id));
                assert!(data["response"]["usage"]["total_tokens"].is_u64());
                self.over = Some(if last == "response.failed" { "error" } else { "end" });
            }
            kind => {
                assert_eq!(
                    (id(self.open), id(at)),
                    (data["item_id"].as_str(), data["item_id"].as_str()),
                    "{kind}"
                );
                if kind == "response.output_text.delta" {
                    self.text.push_str(data["delta"].as_str().expect("a text"));
                }
            }
        }
    }
}

#[test]
fn each_order_of_events_gives_a_stream_that_can_be_read() {
    const TEXTS: [&str; 6] = ["", "Par", "is.", "Paris.", " é🙂", "Let me look."];
    let mut dice = Dice(11);
    let (mut ended, mut failed) = (0, 0);
    for round in 0..1500 {
        let format = FORMATS[round % 3];
        let mut encoder = encoder(format, dice.below(4) > 0, false);
        let mut listener = Listener::default();
        let mut calls = 0;
        for _ in 0..dice.below(14) {
            let id = *dice.of(&["m1", "m2", "m3"]);
            let text = *dice.of(&TEXTS);
            let frames = match dice.below(16) {
                0..=5 => encoder.event(&delta(id, text)),
                6 => encoder.event(&begun(id)),
                7 => encoder.event(&reset(id)),
                8 | 9 => {
                    let stop = *dice.of(&["end", "tool_calls", "length", "filter", "broken"]);
                    let text = if dice.below(8) == 0 { "word ".repeat(900) } else { text.to_owned() };
                    let mut events = said(id, &text, stop);
                    if dice.below(4) == 0 {
                        let item = json!({"id": id, "type": "agent_message"});
                        let outcome = json!({"item": item, "outcome": "interrupted", "elapsed_ms": 1});
                        events[1] = event("interaction.item.completed", outcome);
                    }
                    events.iter().flat_map(|event| encoder.event(event)).collect()
                }
                10 => encoder.event(&event("interaction.stream.skipped", Value::Null)),
                11 => encoder.event(&at(
                    1,
                    "interaction.item.updated",
                    json!({"id": "x", "item": "agent_message", "delta": "below"}),
                )),
                12 => encoder.ping().into_iter().collect(),
                13 => encoder.begin(),
                14 => {
                    calls += 1;
                    let arguments = json!({"text": text}).as_object().cloned().unwrap_or_default();
                    encoder.call(ClientCall { id: format!("c{calls}"), name: "f".into(), arguments })
                }
                _ => encoder
                    .event(&event("interaction.turn.completed", json!({"status": "success", "spend": {}}))),
            };
            frames.iter().for_each(|frame| listener.read(format, frame));
            assert!(!encoder.object().is_null());
        }
        let answer = *dice.of(&TEXTS[1..]);
        let response = match dice.below(6) {
            0 => AgentResponse::error(FailureClass::Model, answer),
            1 => AgentResponse::refused(answer),
            _ => AgentResponse::success(answer),
        };
        let last = if dice.below(12) == 0 {
            encoder.fail(&Rejection::new(RejectionKind::Overloaded, "too much"))
        } else {
            encoder.end(&response, usage())
        };
        last.iter().for_each(|frame| listener.read(format, frame));
        assert!(listener.over.is_some(), "each stream has an end");
        assert!(!listener.text.contains("below"), "a sub-agent was heard");
        if listener.over == Some("end") {
            ended += 1;
            assert_eq!(listener.open, None);
            if response.error.is_none() {
                let told = listener.text.trim();
                let tail: String = told.chars().skip(told.chars().count().saturating_sub(80)).collect();
                assert!(
                    told.ends_with(answer.trim()),
                    "round {round}, {format}: …{tail:?} without {answer:?}"
                );
            }
        } else {
            failed += 1;
        }
        assert_eq!(encoder.answer().is_err(), listener.over == Some("error"));
    }
    assert!(ended > 500 && failed > 150, "{ended} ended, {failed} failed: the orders say little");
}

/// A step of a turn as a model with a bad connection takes it: it breaks off, says the same again, and parts get lost.
fn stumble(dice: &mut Dice, id: &str, text: &str, stop: &str) -> Vec<Event> {
    let mut events = vec![begun(id)];
    for _ in 0..dice.below(3) {
        let broken = dice.below(text.len() + 1);
        events.extend(pieces(dice, id, &text[..broken]));
        events.push(reset(id));
    }
    let mut whole = pieces(dice, id, text);
    if dice.below(3) == 0 {
        whole.truncate(dice.below(whole.len() + 1));
        whole.push(event("interaction.stream.skipped", Value::Null));
    }
    events.extend(whole);
    events.extend(said(id, text, stop));
    events
}

fn pieces(dice: &mut Dice, id: &str, text: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(1 + dice.below(rest.len()));
        events.push(delta(id, piece));
        rest = after;
    }
    events
}

#[test]
fn a_turn_that_stumbles_and_says_the_same_again_reads_as_if_it_had_not() {
    let mut dice = Dice(13);
    for round in 0..1500 {
        let format = FORMATS[round % 3];
        let mut encoder = encoder(format, true, false);
        let mut listener = Listener::default();
        let mut events = Vec::new();
        let mut messages = vec![String::new()];
        let steps = 1 + dice.below(4);
        for step in 0..steps {
            let text = format!("step {step} says {}", "some words ".repeat(dice.below(4)));
            let stop = match step + 1 == steps {
                true => "end",
                false => *dice.of(&["tool_calls", "length"]),
            };
            events.extend(stumble(&mut dice, &format!("m{step}"), &text, stop));
            if let Some(last) = messages.last_mut() {
                last.push_str(&text);
            }
            if stop == "tool_calls" {
                messages.push(String::new());
            }
        }
        let frames = events.iter().flat_map(|event| encoder.event(event)).collect::<Vec<_>>();
        let answer = messages.last().cloned().unwrap_or_default();
        let end = encoder.end(&AgentResponse::success(answer), usage());
        frames.iter().chain(&end).for_each(|frame| listener.read(format, frame));
        let between = if format == "responses" { "" } else { "\n\n" };
        assert_eq!(
            (listener.over, listener.text),
            (Some("end"), messages.join(between)),
            "round {round}, {format}"
        );
    }
}
