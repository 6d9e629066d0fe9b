//! A provider that repeats its key, in every encoding and in every place of what it says that drupe shows or keeps.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

use crate::{
    encodings::encodings,
    harness::{Daemon, text, unique},
};

const KEY: &str = "sk-proj-Ab1_Cd2/Ef3Gh4Ij5+Kl6Mn7Op8Qr9St0Uv1Wx2Yz3";
const KINDS: [&str; 4] = ["openai_chat", "openai", "anthropic", "gemini"];

/// A response whose body ends with the connection.
fn response(head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

fn stream(events: &[Value]) -> Vec<u8> {
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    response("200 OK\r\ncontent-type: text/event-stream", &events)
}

/// Each place of a provider's message that words of it can stand in: the kind of the provider, and what it answers.
fn places(words: &str) -> Vec<(&'static str, Vec<u8>)> {
    // What a header can hold.
    let line: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let json = "content-type: application/json";
    let error = |error: Value| json!({"error": error}).to_string();
    let chat = |delta: Value, end: &str| {
        stream(&[
            json!({"id": words, "model": words, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}),
        ])
    };
    let call =
        json!({"tool_calls": [{"index": 0, "id": words, "function": {"name": words, "arguments": "{}"}}]});
    let refused =
        json!({"stop_reason": "refusal", "stop_details": {"category": words, "explanation": words}});
    let cut = json!({"stop_reason": "refusal", "stop_details": {"category": words, "explanation": words}});
    let begun =
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "so"}});
    let blocked = json!({"candidates": [{"finishReason": "SAFETY", "finishMessage": words}]});
    let mut all = vec![
        (
            "openai_chat",
            response(&format!("400 {line}\r\nx-note: {line}\r\n{json}"), &error(json!({"message": words}))),
        ),
        (
            "openai_chat",
            response(
                &format!("400 Bad\r\n{json}"),
                &error(json!({"code": words, "type": words, "status": words})),
            ),
        ),
        (
            "openai_chat",
            response(
                &format!("400 Bad\r\n{json}"),
                &json!({"detail": [{"msg": words}], words: words}).to_string(),
            ),
        ),
        ("openai_chat", response("401 No\r\ncontent-type: text/plain", words)),
        (
            "openai_chat",
            response("404 No\r\ncontent-type: text/html", &format!("<html><title>{words}</title>")),
        ),
        ("openai_chat", response(&format!("200 OK\r\ncontent-type: text/html; {line}"), "x")),
        ("openai_chat", response(&format!("200 OK\r\ncontent-encoding: {line}"), "x")),
        (
            "openai_chat",
            response(&format!("429 Slow\r\nretry-after: {line}\r\n{json}"), &error(json!(words))),
        ),
        ("openai_chat", response(&format!("302 Else\r\nlocation: /{line}"), words)),
        (
            "openai_chat",
            response(&format!("200 OK\r\n{json}"), &json!({"choices": words, "ok": words}).to_string()),
        ),
        ("openai_chat", response(&format!("200 OK\r\n{json}"), words)),
        (
            "openai_chat",
            response(
                "200 OK\r\ncontent-type: text/event-stream",
                &format!("event: {line}\nid: {line}\ndata: {line}\n\n"),
            ),
        ),
        ("openai_chat", chat(json!({}), words)),
        ("openai_chat", chat(json!({"refusal": words}), "stop")),
        ("openai_chat", chat(call, "tool_calls")),
        ("openai_chat", stream(&[json!({"choices": words})])),
        (
            "openai",
            stream(&[
                json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": words}}}),
            ]),
        ),
        (
            "openai",
            stream(&[
                json!({"type": "response.refusal.delta", "delta": words}),
                json!({"type": "response.completed", "response": {"status": "completed"}}),
            ]),
        ),
        ("anthropic", stream(&[json!({"type": "message_delta", "delta": refused})])),
        ("anthropic", stream(&[begun, json!({"type": "message_delta", "delta": cut})])),
        ("gemini", stream(&[blocked])),
        ("gemini", stream(&[json!({"promptFeedback": {"blockReason": words, "blockReasonMessage": words}})])),
    ];
    all.extend(
        KINDS.map(|kind| {
            (kind, stream(&[json!({"type": "error", "error": {"message": words, "code": words}})]))
        }),
    );
    all
}

/// A server that answers requests in turn with these, and then shortly and well.
struct Repeater {
    address: String,
    answers: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

impl Repeater {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let answers: Arc<Mutex<VecDeque<Vec<u8>>>> = Arc::default();
        let own = Arc::clone(&answers);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let next = own.lock().expect("no test panics while it holds this").pop_front();
                let good =
                    json!({"choices": [{"index": 0, "delta": {"content": "well"}, "finish_reason": "stop"}]});
                // Who has gone needs no answer.
                let _ = answer(socket, &next.unwrap_or_else(|| stream(&[good])));
            }
        });
        Self { address, answers }
    }

    fn next(&self, answer: Vec<u8>) {
        *self.answers.lock().expect("no test panics while it holds this") = [answer].into();
    }
}

fn answer(mut socket: TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    socket.write_all(bytes)
}

struct House {
    server: Repeater,
    daemon: Daemon,
    /// All that was shown.
    shown: String,
}

impl House {
    fn start() -> Self {
        let server = Repeater::start();
        let address = &server.address;
        let providers: String = KINDS
            .map(|kind| {
                format!(
                    "    p_{kind}: {{kind: {kind}, base_url: \"{address}\", api_key: \"${{OWN_KEY}}\"}}\n"
                )
            })
            .concat();
        let many = "{max_tokens: 1000000000, max_invocations: 1000000}";
        let mut daemon = Daemon::home(&format!(
            "models:\n  aliases: {{default: p_openai_chat/m}}\n  providers:\n{providers}orchestrator: {{limits: {{max_retries: 0}}}}\nlimits: {{day: {many}, session: {many}, agent: {many}}}\n"
        ));
        daemon.variable("OWN_KEY", KEY);
        daemon.run();
        Self { server, daemon, shown: String::new() }
    }

    /// A turn whose model is answered so.
    fn turn(&mut self, kind: &str, answer: Vec<u8>) {
        self.server.next(answer);
        // Each is a model of its own: what fails often rests.
        let model = format!("p_{kind}/m{}", unique());
        let message = json!({"external_id": unique(), "session": "s", "text": "go", "model": model});
        let turn = self.daemon.client().ask("turn.submit", message).expect("it is taken in");
        let id = turn["turn"].as_str().expect("a turn");
        let answer = self.daemon.wait(id);
        let why = self.daemon.client().ask("why", json!({"id": id})).expect("it is explained");
        self.shown += &format!("{answer}\n{why}\n");
    }

    /// Everything that was shown or is kept, each with where it stands.
    fn everything(mut self) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for args in [
            &["trace", "s"][..],
            &["trace", "s", "--json"],
            &["session", "show", "s"],
            &["session", "export", "s"],
            &["usage"],
            &["status"],
        ] {
            let output = self.daemon.drupe(args);
            all.push((format!("{args:?}"), [output.stdout, output.stderr].concat()));
        }
        let events = self.daemon.events("s").iter().map(Value::to_string).collect::<String>();
        all.push(("events".to_owned(), events.into_bytes()));
        all.push(("answers".to_owned(), std::mem::take(&mut self.shown).into_bytes()));
        let mut folders = vec![self.daemon.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
                let kind = entry.file_type().expect("a kind");
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    all.push((
                        entry.path().display().to_string(),
                        std::fs::read(entry.path()).unwrap_or_default(),
                    ));
                }
            }
        }
        all
    }
}

/// The encoded key, and a part of it that is of use, as it is and as JSON writes it.
fn needles() -> Vec<String> {
    let parts = encodings(KEY).into_iter().flat_map(|encoded| {
        let most = encoded.len() * 3 / 5;
        [encoded[..most].to_owned(), encoded[encoded.len() - most..].to_owned()]
    });
    let both = parts.flat_map(|part| {
        let written = json!(part).to_string();
        [part.clone(), written[1..written.len() - 1].to_owned()]
    });
    both.collect()
}

fn nothing_leaks(everything: &[(String, Vec<u8>)]) {
    let needles = needles();
    let mut masked = false;
    for (place, bytes) in everything {
        let written = String::from_utf8_lossy(bytes);
        for needle in &needles {
            let found = written.find(needle.as_str()).map(|at| &written.as_bytes()[at.saturating_sub(200)..]);
            assert!(
                found.is_none(),
                "{needle} in {place}: {}",
                text(found.map_or(&[][..], |around| &around[..around.len().min(400)]))
            );
        }
        masked |= place.ends_with("journal.db") && written.contains("[secret]");
    }
    assert!(masked, "what was masked is kept");
}

#[test]
fn a_key_that_a_provider_repeats_in_any_encoding_anywhere_is_neither_shown_nor_kept() {
    let mut house = House::start();
    for encoded in encodings(KEY) {
        for (kind, answer) in places(&format!("the key {encoded} is wrong")) {
            house.turn(kind, answer);
        }
    }
    nothing_leaks(&house.everything());
}

#[test]
fn no_cut_of_a_long_message_leaves_a_part_of_a_key_that_is_of_use() {
    let mut house = House::start();
    let all = encodings(KEY);
    let encodings = [&all[0], &all[2], &all[12]];
    for encoded in encodings {
        // Around each bound at which words are cut short, from far before it to far behind.
        for bound in [300, 900, 4_096, 16 << 10, 64 << 10] {
            for before in (bound - encoded.len() - 40..bound).step_by(encoded.len() / 6) {
                let words = format!("{}{encoded} is wrong", "x ".repeat(before / 2));
                let error = json!({"error": {"message": words}}).to_string();
                house.turn("openai_chat", response("400 Bad\r\ncontent-type: application/json", &error));
                let refused = json!({"stop_reason": "refusal", "stop_details": {"explanation": words}});
                house.turn("anthropic", stream(&[json!({"type": "message_delta", "delta": refused})]));
            }
        }
    }
    nothing_leaks(&house.everything());
}
