//! The daemon that is attacked, all that is around it, and the person who is asked.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::model::{self, ModelCall, order};
use crate::{
    harness::{Client, Daemon, model_server::ModelServer, unique, until},
    http::{client::Door, door, hooks},
    web::Site,
};

/// A server of the Model Context Protocol in a shell: what it says of itself, and what its tool `look` gives, lies in files beside
/// it. It notes what is sent by it.
const SERVER: &str = r#"#!/bin/bash
here=$(dirname "$0")
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
    id=$(sed -n 's/.*"id":\([0-9]*\).*/\1/p' <<< "$line")
    case $line in
        *'"method":"initialize"'*)
            answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
        *'"method":"tools/list"'*) answer "$(cat "$here/tools.json")" ;;
        *'"name":"look"'*) answer "$(cat "$here/look.json")" ;;
        *'"method":"tools/call"'*)
            echo "$line" >> "$HOME/sent"
            answer '{"content":[{"type":"text","text":"It is sent."}]}' ;;
        *'"method":"notifications/'*) ;;
        *) exit 3 ;;
    esac
done
"#;

/// Agents that others reach, or that another agent calls.
const AGENTS: [(&str, &str); 2] =
    [("clerk", "[web, memory, scheduler, shell, files, kv]"), ("reader", "[web]")];

/// Sessions whose questions nobody answers yet.
pub const HELD: &str = "held";

/// The program of an MCP server with the tools `look`, of which it says this, and `send`, in a folder of its own.
pub fn mcp_server(described: &str) -> (tempfile::TempDir, PathBuf) {
    let programs = tempfile::Builder::new().prefix("drupe-mcp").tempdir().expect("a folder");
    let program = programs.path().join("server");
    fs::write(&program, SERVER).expect("a file");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it is ours");
    let tool = |name: &str, text: &str| {
        let properties = json!({"text": {"type": "string"}});
        json!({"name": name, "description": text, "inputSchema": {"type": "object", "properties": properties}})
    };
    let tools = json!({"tools": [tool("look", described), tool("send", "Sends a text.")]});
    fs::write(programs.path().join("tools.json"), tools.to_string()).expect("a file");
    look_gives(&programs, "Nothing of importance.");
    (programs, program)
}

/// What its tool `look` gives from now on.
pub fn look_gives(programs: &tempfile::TempDir, text: &str) {
    let result = json!({"content": [{"type": "text", "text": text}]}).to_string();
    fs::write(programs.path().join("look.json"), result).expect("a file");
}

/// Where things are.
pub struct Places {
    /// A site whose pages strangers write.
    pub site: String,
}

pub struct Scene {
    pub daemon: Daemon,
    pub model: ModelServer,
    pub places: Places,
    pub site: Site,
    pub search: Site,
    pub person: Person,
    /// What the page and the search give.
    page: Arc<Mutex<String>>,
    found: Arc<Mutex<Vec<String>>>,
    programs: tempfile::TempDir,
}

impl Scene {
    /// One whose MCP server describes its tool `look` so.
    pub fn start(described: impl FnOnce(&Places) -> String) -> Self {
        let (page, found) = (Arc::<Mutex<String>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (kept, shown) = (Arc::clone(&page), Arc::clone(&found));
        let site = Site::start("127.0.0.2", move |_| {
            let page = kept.lock().expect("a lock").clone();
            ("200 OK", "content-type: text/plain; charset=utf-8\r\n".to_owned(), page)
        });
        let search = Site::start("127.0.0.1", move |_| {
            let one = |text: &String| json!({"url": "https://one.example/", "title": "One", "content": text});
            let results: Vec<Value> = shown.lock().expect("a lock").iter().map(one).collect();
            let body = json!({"query": "x", "results": results}).to_string();
            ("200 OK", "content-type: application/json\r\n".to_owned(), body)
        });
        let places = Places { site: site.url("") };
        let (programs, program) = mcp_server(&described(&places));
        let model = model::start();
        let server = json!({"command": program, "tools": {"read_only": ["look"]}});
        let extensions = json!({
            "web": {"enabled": true, "allow": ["127.0.0.2"], "gap_ms": 0, "cache_minutes": 0,
                    "search": {"provider": "searxng", "address": search.url("")}},
            "shell": {"enabled": true, "network": "ask"},
            "memory": {"context_tokens": 1500},
            "mcp": {"enabled": true, "servers": {"sh": server}},
            "http": {"hooks": {"push": {"agent": "clerk", "signature": "github"}}},
        });
        let approvals = "approvals: {preauthorized: all}\n";
        let mut daemon = Daemon::home(&format!("{}{approvals}extensions: {extensions}\n", model.config()));
        for (id, tools) in AGENTS {
            let manifest = format!(
                "id: {id}\nname: Agent\ndescription: Works.\nagent: {{model: default, instructions: Work., uses_tools: {tools}}}\n"
            );
            daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
        }
        daemon.write("workspace/precious/notes", "What must not be lost.");
        daemon.variable("MCP_PROGRAM_FOLDER", &programs.path().display().to_string());
        daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
        daemon.variable("DRUPE_EXTENSIONS__HTTP__ADDRESS", "127.0.0.1:0");
        daemon.variable("DRUPE_EXTENSIONS__HTTP__HOOKS__PUSH__SECRET", hooks::GITHUB);
        daemon.run();
        let person = Person::start(daemon.path().to_owned());
        Self { daemon, model, places, site, search, person, page, found, programs }
    }

    /// What the site answers from now on.
    pub fn page_says(&self, text: String) {
        *self.page.lock().expect("a lock") = text;
    }

    pub fn page(&self) -> String {
        self.page.lock().expect("a lock").clone()
    }

    /// What a search finds from now on.
    pub fn search_finds(&self, texts: Vec<String>) {
        *self.found.lock().expect("a lock") = texts;
    }

    /// What the tool `look` of the MCP server gives from now on.
    pub fn server_says(&self, text: &str) {
        look_gives(&self.programs, text);
    }

    /// What the MCP server was made to send.
    pub fn sent(&self) -> String {
        fs::read_to_string(self.daemon.path().join("data/mcp/servers/sh/sent")).unwrap_or_default()
    }

    pub fn asks_mcp(&self, ask: &str, params: Value) -> Value {
        let asked = json!({"id": "mcp", "ask": ask, "params": params});
        self.daemon.client().ask("extensions.ask", asked).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Waits until the MCP server's tools are offered, looked at by the operator or not.
    pub fn server_is_offered(&self, unread: usize) {
        let offered = || {
            let state = self.asks_mcp("servers", json!({}))["servers"][0].clone();
            let known = state["unread"].as_array().is_some_and(|all| all.len() == unread);
            (known && self.daemon.offers("sh__look")).then_some(())
        };
        until("its tools are offered", offered).unwrap_or_else(|| panic!("{}", self.daemon.log()));
    }

    pub fn door(&self) -> Door {
        door(&self.daemon)
    }

    /// A message of the operator's, in a conversation of its own, that has the model do this first.
    pub fn does(&self, tool: &str, params: &Value) -> Value {
        self.says(&unique(), &order(tool, params))
    }

    pub fn says(&self, session: &str, text: &str) -> Value {
        self.daemon.turn(session, text)
    }

    /// The calls that models made since they had been asked so often, with what came of them.
    pub fn calls_since(&self, requests: usize) -> Vec<ModelCall> {
        self.model.requests()[requests..]
            .iter()
            .flat_map(model::calls)
            .filter(|call| call.result.is_some())
            .collect()
    }

    pub fn home(&self, within: &str) -> PathBuf {
        self.daemon.path().join(within)
    }
}

/// Somebody who answers every question of every channel: with no, but for what was arranged.
pub struct Person {
    state: Arc<PersonState>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct PersonState {
    /// Tool and parameters of calls that are agreed to.
    agreed: Mutex<Vec<(String, Value)>>,
    /// Questions that were asked.
    questions: Mutex<Vec<Value>>,
    gone: AtomicBool,
}

impl Person {
    fn start(home: PathBuf) -> Self {
        let state = Arc::<PersonState>::default();
        let own = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let mut client = None;
            while !own.gone.load(Ordering::SeqCst) {
                client = client.or_else(|| Client::connect(&home).ok());
                if let Some(known) = &mut client
                    && own.answers(known).is_err()
                {
                    client = None;
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self { state, thread: Some(thread) }
    }

    /// Agrees to one call, whenever it is asked about.
    pub fn agrees_to(&self, tool: &str, params: &Value) {
        self.state.agreed.lock().expect("a lock").push((tool.to_owned(), params.clone()));
    }

    /// The questions so far.
    pub fn questions(&self) -> Vec<Value> {
        self.state.questions.lock().expect("a lock").clone()
    }
}

impl PersonState {
    fn answers(&self, client: &mut Client) -> Result<(), String> {
        let list = client.ask("approvals.list", json!({}))?;
        let waits = |one: &&Value| one["call"].is_object() && one["state"] == "pending";
        for one in list.as_array().into_iter().flatten().filter(waits) {
            if one["call"]["session"].as_str().is_some_and(|session| session.starts_with(HELD)) {
                continue;
            }
            let asked = (
                one["call"]["tool"].as_str().unwrap_or_default().to_owned(),
                serde_json::from_str::<Value>(one["call"]["params"].as_str().unwrap_or_default())
                    .unwrap_or_default(),
            );
            let allow = self.agreed.lock().expect("a lock").contains(&asked);
            self.questions.lock().expect("a lock").push(one.clone());
            // It may have ended with its turn.
            let _ = client.ask("approvals.answer", json!({"id": one["id"], "allow": allow}));
        }
        Ok(())
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        self.state.gone.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
