//! A stand-in for an OpenTelemetry collector on loopback: real HTTP with connections that are kept, `POST /v1/traces` as JSON, and the faults of
//! a collector and of the way to it. Answers as in <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>, read on 2026-11-27.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use serde_json::{Value, json};

/// What happens to a request in place of what should.
#[derive(Clone)]
pub enum Trouble {
    /// It is answered so, with these further headers, and nothing is taken.
    Status(u16, &'static str, &'static str),
    /// It is taken, and the connection ends before that is said.
    TakenAndCut,
    /// It is taken in part.
    Partly,
}

#[derive(Default)]
struct State {
    /// Bodies that were taken, each with the head of its request.
    taken: Vec<(String, String)>,
    /// All requests.
    asked: usize,
    troubles: VecDeque<Trouble>,
    /// Whether every request is answered with 503.
    is_away: bool,
    /// Whatever holds this text makes it break off without an answer.
    breaks_at: Option<&'static str>,
}

#[derive(Clone)]
pub struct OtelCollector {
    pub address: String,
    state: Arc<Mutex<State>>,
}

impl OtelCollector {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let collector = Self { address, state: Arc::default() };
        let serving = collector.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        collector
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds this")
    }

    /// The next request goes wrong.
    pub fn trouble(&self, trouble: Trouble) {
        self.state().troubles.push_back(trouble);
    }

    /// Whether it takes nothing from now on.
    pub fn be_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    /// From now on it breaks off at each request that holds this text, as one does that fails at what is in it.
    pub fn break_at(&self, text: &'static str) {
        self.state().breaks_at = Some(text);
    }

    pub fn asked(&self) -> usize {
        self.state().asked
    }

    /// What was taken: heads and bodies.
    pub fn taken(&self) -> Vec<(String, String)> {
        self.state().taken.clone()
    }

    /// All spans that were taken.
    pub fn spans(&self) -> Vec<Value> {
        let bodies = self.taken();
        let bodies = bodies.iter().map(|(_, body)| serde_json::from_str::<Value>(body).expect("JSON"));
        bodies
            .flat_map(|body| {
                body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone()
            })
            .collect()
    }

    /// The traces of which anything was taken.
    pub fn traces(&self) -> BTreeSet<String> {
        self.spans().iter().map(|span| span["traceId"].as_str().expect("an id").to_owned()).collect()
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let body = String::from_utf8_lossy(&body).into_owned();
            let trouble = {
                let mut state = self.state();
                state.asked += 1;
                if state.breaks_at.is_some_and(|text| body.contains(text)) {
                    return Ok(());
                }
                let away = state.is_away.then_some(Trouble::Status(503, "", "not now"));
                let next = if away.is_some() { away } else { state.troubles.pop_front() };
                if !matches!(next, Some(Trouble::Status(..))) {
                    state.taken.push((head, body));
                }
                next
            };
            let (code, more, said) = match trouble {
                None => (200, "", json!({}).to_string()),
                Some(Trouble::Partly) => {
                    let partly = json!({"rejectedSpans": "1", "errorMessage": "one is too old"});
                    (200, "", json!({"partialSuccess": partly}).to_string())
                }
                Some(Trouble::Status(code, more, said)) => (code, more, said.to_owned()),
                Some(Trouble::TakenAndCut) => return Ok(()),
            };
            let head = format!(
                "HTTP/1.1 {code} Said\r\ncontent-type: application/json\r\n{more}content-length: {}\r\n\r\n",
                said.len()
            );
            stream.write_all((head + &said).as_bytes())?;
        }
    }
}
