//! Plays a server: reads what is asked line by line, and answers as a test says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use drupe_extension_api::{
    prelude::*,
    testing::{FakeProcess, Harness, Setup, block_on},
    wire::op,
};
use serde_json::{Value, json};

use crate::Mcp;

/// What a server answers to a method; none for no answer at all.
type Answer = Box<dyn FnMut(&Value) -> Option<Result<Value, (i64, String)>> + Send>;

/// A server of the older revision with one tool, `say`, which says what it is told.
pub struct Played {
    answers: BTreeMap<&'static str, Answer>,
    asked: Arc<Mutex<Vec<Value>>>,
    /// Written for each answer to `tools/call` in place of it.
    raw: Option<Vec<u8>>,
    /// Written before each answer to `tools/call`.
    before: Vec<u8>,
}

pub fn tool(name: &str, description: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    json!({"name": name, "description": description, "inputSchema": schema, "annotations": {"readOnlyHint": true}})
}

impl Played {
    pub fn new() -> Self {
        let played = Self { answers: BTreeMap::new(), asked: Arc::default(), raw: None, before: Vec::new() };
        played
            .on("initialize", |ask| {
                let version = ask["params"]["protocolVersion"].clone();
                Some(Ok(json!({"protocolVersion": version, "capabilities": {"tools": {}},
                    "serverInfo": {"name": "played", "version": "1"}})))
            })
            .tools(&[tool("say", "Says it.")])
            .on("tools/call", |ask| {
                let text = ask["params"]["arguments"]["text"].as_str().unwrap_or("nothing").to_owned();
                Some(Ok(json!({"content": [{"type": "text", "text": text}]})))
            })
    }

    /// One of the newer revision, which has no `initialize`.
    pub fn newer() -> Self {
        let mut played = Self::new();
        played.answers.remove("initialize");
        played
            .on("server/discover", |_| {
                Some(Ok(json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}}, "serverInfo": {"name": "played", "version": "1"},
                    "ttlMs": 0, "cacheScope": "private"})))
            })
            .on("tools/list", |_| {
                Some(Ok(json!({"resultType": "complete", "tools": [tool("say", "Says it.")], "ttlMs": 0, "cacheScope": "private"})))
            })
            .on("tools/call", |_| {
                Some(Ok(json!({"resultType": "complete", "content": [{"type": "text", "text": "new"}]})))
            })
    }

    pub fn on(
        mut self,
        method: &'static str,
        answer: impl FnMut(&Value) -> Option<Result<Value, (i64, String)>> + Send + 'static,
    ) -> Self {
        self.answers.insert(method, Box::new(answer));
        self
    }

    pub fn tools(self, tools: &[Value]) -> Self {
        let tools = tools.to_vec();
        self.on("tools/list", move |_| Some(Ok(json!({"tools": tools}))))
    }

    pub fn raw(mut self, raw: impl Into<Vec<u8>>) -> Self {
        self.raw = Some(raw.into());
        self
    }

    pub fn before(mut self, raw: impl Into<Vec<u8>>) -> Self {
        self.before = raw.into();
        self
    }

    /// What it is asked.
    pub fn asked(&self) -> Arc<Mutex<Vec<Value>>> {
        Arc::clone(&self.asked)
    }

    pub fn process(mut self) -> FakeProcess {
        let mut kept = Vec::new();
        FakeProcess::ending(0).answers(move |bytes| {
            kept.extend_from_slice(bytes);
            let mut said = Vec::new();
            while let Some(end) = kept.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = kept.drain(..=end).collect();
                let ask: Value = serde_json::from_slice(&line).expect("a line is JSON");
                said.extend(self.answer(&ask));
                self.asked.lock().expect("a lock").push(ask);
            }
            said
        })
    }

    fn answer(&mut self, ask: &Value) -> Vec<u8> {
        let (Some(id), Some(method)) = (ask.get("id"), ask["method"].as_str()) else { return Vec::new() };
        if let (Some(raw), "tools/call") = (&self.raw, method) {
            return raw.clone();
        }
        let unknown = || Some(Err((-32601, "no such method".to_owned())));
        let answer = self.answers.get_mut(method).map_or_else(unknown, |answer| answer(ask));
        let message = match answer {
            None => return Vec::new(),
            Some(Ok(result)) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Some(Err((code, message))) => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
            }
        };
        let before = if method == "tools/call" { self.before.as_slice() } else { &[] };
        [before, format!("{message}\n").as_bytes()].concat()
    }
}

/// The extension with these servers configured. Its clock stands: no time passes but what a test lets pass.
pub fn setup(servers: Value, more: Value) -> Setup<Mcp> {
    let mut config = more;
    config["servers"] = servers;
    let setup = Harness::<Mcp>::setup().id("mcp").config(config);
    setup.host().hold_clock();
    setup
}

/// Plays a server for the next start of a program.
pub fn plays(setup: &Setup<Mcp>, program: &str, process: FakeProcess) {
    setup.host().answer_open_process(program, Ok(process));
}

/// The same for an extension that works.
pub fn plays_more(harness: &Harness<Mcp>, program: &str, played: Played) {
    harness.host().answer_open_process(program, Ok(played.process()));
}

/// Started, with the tools of these servers known.
pub fn started(setup: Setup<Mcp>, servers: &[&str]) -> Harness<Mcp> {
    let harness = block_on(setup.start()).expect("it starts");
    for server in servers {
        until(&format!("`{server}` is ready"), || {
            // What it told is written down before it is offered.
            state(&harness, server)["state"] == "ready" && !offered(&harness).is_empty()
        });
    }
    harness
}

pub fn ask(harness: &Harness<Mcp>, ask: &str, params: Value) -> Result<Value, Fault> {
    block_on(harness.ask(op::OPERATOR_ASK, &json!({"ask": ask, "params": params})))
}

pub fn state(harness: &Harness<Mcp>, server: &str) -> Value {
    let told = ask(harness, "servers", json!({})).expect("it tells");
    let servers = told["servers"].as_array().cloned().unwrap_or_default();
    servers.into_iter().find(|one| one["server"] == server).expect("it is configured")
}

/// The names of the tools that are offered.
pub fn offered(harness: &Harness<Mcp>) -> Vec<String> {
    let tools = harness.describe().expect("a description").tools;
    tools.iter().map(|tool| tool.name.to_string()).collect()
}

pub fn spec(harness: &Harness<Mcp>, name: &str) -> ToolSpec {
    let tools = harness.describe().expect("a description").tools;
    tools.into_iter().find(|tool| tool.name.as_str() == name).expect("it is offered")
}

/// Waits for what happens on another thread.
pub fn until(what: &str, mut good: impl FnMut() -> bool) {
    let began = Instant::now();
    while !good() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}: not after 20 s");
        thread::sleep(Duration::from_millis(2));
    }
}

pub fn calls(harness: &Harness<Mcp>, session: &str, tool: &str, params: Value) -> Result<String, Fault> {
    block_on(harness.calling().session(session).call(tool, params))
}
