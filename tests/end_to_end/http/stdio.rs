//! `drupe acp`, as an editor starts it: the real program on pipes, a real daemon, lines of JSON-RPC.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread,
};

use serde_json::{Value, json};

use super::{daemon, daemon_with, door, token};
use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    text, until,
};

/// An editor with the program that it started.
struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    next: u64,
    /// Updates that came while something else was waited for.
    updates: Vec<Value>,
    /// What the editor says where it is asked for a permission.
    /// Nothing where it leaves the question open.
    permission: &'static str,
    asked: Vec<Value>,
    /// Requests of the agent that it has taken back.
    taken_back: Vec<Value>,
}

impl Editor {
    fn start(daemon: &Daemon, args: &[&str]) -> Self {
        let mut command = daemon.command(&[&["acp"], args].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("drupe starts");
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let (updates, asked, taken_back) = (Vec::new(), Vec::new(), Vec::new());
        Self { child, input, lines, next: 1, updates, permission: "allow", asked, taken_back }
    }

    /// One that has said hello.
    fn ready(daemon: &Daemon) -> Self {
        let mut editor = Self::start(daemon, &[]);
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        let welcome = editor.ask("initialize", hello).expect("it is welcome");
        assert_eq!(welcome["protocolVersion"], 1, "{welcome}");
        assert_eq!(welcome["agentCapabilities"]["loadSession"], true, "{welcome}");
        assert!(welcome["authMethods"].as_array().is_some_and(|methods| !methods.is_empty()), "{welcome}");
        editor
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("it is open"), "{line}").expect("it is read");
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        id
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(&json!(id))
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it answers");
        if line.is_empty() {
            let mut said = String::new();
            let _ = self.child.stderr.take().expect("it is piped").read_to_string(&mut said);
            panic!("the program ended: {said}");
        }
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Waits for an answer; keeps what is told meanwhile, and answers what is asked.
    fn answer(&mut self, id: &Value) -> Result<Value, Value> {
        loop {
            let line = self.line();
            match line["method"].as_str() {
                Some(_) => self.told(&line),
                None if line["id"] == *id => {
                    let error = line.get("error").cloned();
                    return error.map_or_else(|| Ok(line["result"].clone()), Err);
                }
                None => panic!("{line}"),
            }
        }
    }

    fn told(&mut self, line: &Value) {
        match line["method"].as_str() {
            Some("session/update") => self.updates.push(line["params"]["update"].clone()),
            Some("session/request_permission") => {
                self.asked.push(json!({ "id": line["id"], "params": line["params"] }));
                if !self.permission.is_empty() {
                    let outcome = json!({ "outcome": "selected", "optionId": self.permission });
                    let answer =
                        json!({ "jsonrpc": "2.0", "id": line["id"], "result": { "outcome": outcome } });
                    self.write(&answer.to_string());
                }
            }
            Some("$/cancel_request") => self.taken_back.push(line["params"]["requestId"].clone()),
            _ => {}
        }
    }

    /// Waits until the agent asks for a permission; the request's id and the call's.
    fn is_asked(&mut self) -> (Value, String) {
        loop {
            if let Some(asked) = self.asked.pop() {
                let call = asked["params"]["toolCall"]["toolCallId"].as_str().expect("an id").to_owned();
                return (asked["id"].clone(), call);
            }
            let line = self.line();
            self.told(&line);
        }
    }

    fn session(&mut self, daemon: &Daemon) -> String {
        let cwd = daemon.path().to_str().expect("a path").to_owned();
        let made = self.ask("session/new", json!({ "cwd": cwd, "mcpServers": [] })).expect("it is made");
        made["sessionId"].as_str().expect("an id").to_owned()
    }

    fn prompt(&mut self, session: &str, said: &str) -> Result<Value, Value> {
        self.ask("session/prompt", prompt(session, said))
    }

    /// The updates so far, and nothing is left of them.
    fn shown(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.updates)
    }

    fn load(&mut self, daemon: &Daemon, session: &str) -> Result<Value, Value> {
        let cwd = daemon.path().to_str().expect("a path").to_owned();
        self.ask("session/load", json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }))
    }

    /// Closes the input and waits for the end; the status.
    fn leave(mut self) -> Option<i32> {
        drop(self.input.take());
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn prompt(session: &str, said: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": said }] })
}

/// All text of chunks of one kind.
fn texts(updates: &[Value], kind: &str) -> String {
    let of = updates.iter().filter(|update| update["sessionUpdate"] == kind);
    of.filter_map(|update| update["content"]["text"].as_str()).collect()
}

#[test]
fn an_editor_talks_and_loads_all_of_it_after_the_kernel_died() {
    let (_server, daemon) = daemon("");
    door(&daemon);
    let mut editor = Editor::ready(&daemon);
    let session = editor.session(&daemon);
    let long = "hello ".repeat(1500);
    for said in [long.trim(), "again"] {
        let ended = editor.prompt(&session, said).expect("it ends");
        assert_eq!(ended["stopReason"], "end_turn", "{ended}");
        assert!(ended["usage"]["totalTokens"].as_u64().is_some_and(|tokens| tokens > 0), "{ended}");
        let shown = editor.shown();
        assert_eq!(texts(&shown, "agent_message_chunk"), said);
        assert_eq!(texts(&shown, "user_message_chunk"), "", "its author sees it");
    }
    let chosen = editor.ask("session/set_mode", json!({ "sessionId": session, "modeId": "haiku" }));
    assert_eq!(chosen, Ok(json!({})));
    let unknown = editor.ask("session/set_mode", json!({ "sessionId": session, "modeId": "nobody" }));
    assert!(unknown.expect_err("there is none")["message"].to_string().contains("nobody"));
    daemon.kill_kernel();
    door(&daemon);
    let mut said = String::new();
    editor.child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it ends");
    assert!(said.contains("load the session"), "{said}");
    assert_eq!(editor.leave(), Some(75));

    let mut editor = Editor::ready(&daemon);
    let list = editor.ask("session/list", json!({})).expect("a list");
    assert_eq!(list["sessions"][0]["sessionId"], json!(session), "{list}");
    let loaded = editor.load(&daemon, &session).expect("it is there");
    assert_eq!(loaded["modes"]["currentModeId"], "haiku", "{loaded}");
    let shown = editor.shown();
    let both = format!("{}again", long.trim());
    assert_eq!(texts(&shown, "user_message_chunk"), both);
    assert_eq!(texts(&shown, "agent_message_chunk"), both);
    assert_eq!(editor.prompt(&session, "third").expect("it ends")["stopReason"], "end_turn");
    assert_eq!(texts(&editor.shown(), "agent_message_chunk"), "third");
    let missing = editor.load(&daemon, "acp:nothing").expect_err("there is none");
    assert_eq!(missing["code"], -32002, "{missing}");
    assert_eq!(editor.leave(), Some(0));
    let left = daemon.json(&["token", "list", "--json"]);
    assert_eq!(left, json!([]), "each token of a pipe is revoked, also of one whose kernel died");
}

#[test]
fn a_call_that_needs_approval_is_asked_of_the_editor() {
    let server = ModelServer::start(|request| match latest(request).0.as_str() {
        "tool" => Say::Text(latest(request).1),
        _ => {
            let path = latest(request).1;
            Say::Call(vec![("careful_effect_append".into(), json!({ "path": path, "nonce": "n" }))])
        }
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ADDRESS", "127.0.0.1:0");
    daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
    daemon.run();
    let file = std::env::temp_dir().join(format!("asked-{}", crate::harness::unique()));
    let path = file.to_str().expect("a path");
    let mut editor = Editor::ready(&daemon);
    let session = editor.session(&daemon);
    for (permission, ran) in [("deny", 0), ("allow", 1)] {
        editor.permission = permission;
        let ended = editor.prompt(&session, path).expect("it ends");
        assert_eq!(ended["stopReason"], "end_turn", "{ended}");
        let asked = editor.asked.pop().expect("it was asked")["params"].clone();
        assert_eq!(asked["toolCall"]["rawInput"]["path"], path, "{asked}");
        let calls = editor.shown();
        let of = calls.iter().filter(|update| update["toolCallId"] == asked["toolCall"]["toolCallId"]);
        let states: Vec<_> = of.filter_map(|update| update["status"].as_str()).collect();
        assert_eq!(states.first(), Some(&"in_progress"), "{calls:#?}");
        assert!(states.contains(&"pending"), "{calls:#?}");
        assert_eq!(states.last(), Some(&if ran == 1 { "completed" } else { "failed" }), "{calls:#?}");
        let lines = std::fs::read_to_string(&file).unwrap_or_default().lines().count();
        assert_eq!(lines, ran, "{permission}");
    }
    let _ = std::fs::remove_file(&file);
}

#[test]
fn a_question_that_the_editor_leaves_open_ends_with_its_turn_or_waits_for_others() {
    let server = ModelServer::start(|request| match latest(request).0.as_str() {
        "tool" => Say::Text("done".into()),
        _ => {
            let path = latest(request).1;
            Say::Call(vec![("careful_effect_append".into(), json!({ "path": path, "nonce": "n" }))])
        }
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ADDRESS", "127.0.0.1:0");
    daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
    daemon.run();
    let file = std::env::temp_dir().join(format!("open-{}", crate::harness::unique()));
    let path = file.to_str().expect("a path");
    let mut editor = Editor::ready(&daemon);
    editor.permission = "";
    // A cancelled prompt takes its question back, and so does a session that is closed.
    for close in [false, true] {
        let session = editor.session(&daemon);
        let id = editor.send("session/prompt", prompt(&session, path));
        let (request, call) = editor.is_asked();
        let of = json!({ "sessionId": session });
        if close {
            editor.send("session/close", of);
        } else {
            editor.write(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": of }).to_string());
        }
        let mut ended = None;
        while ended.is_none() || editor.taken_back.is_empty() {
            let line = editor.line();
            editor.told(&line);
            if line["id"] == id {
                ended = Some(line["result"]["stopReason"].clone());
            }
        }
        assert_eq!(ended, Some(json!("cancelled")));
        assert_eq!(editor.taken_back.pop(), Some(request));
        let withdrawn = until("the question is withdrawn", || {
            let all = daemon.client().ask("approvals.list", json!({})).ok()?;
            let one = all.as_array()?.iter().find(|one| one["id"] == json!(call))?.clone();
            (one["state"] == "withdrawn").then_some(())
        });
        assert!(withdrawn.is_some(), "nobody is asked about it any more");
    }
    let session = editor.session(&daemon);
    editor.send("session/prompt", prompt(&session, path));
    let (_, call) = editor.is_asked();
    drop(editor);
    // It waits for whoever answers.
    let mut client = daemon.client();
    let all = client.ask("approvals.list", json!({})).expect("a list");
    let waits = all.as_array().and_then(|all| all.iter().find(|one| one["id"] == json!(call)));
    assert_eq!(waits.expect("it is a row")["state"], "pending", "{all}");
    client.ask("approvals.answer", json!({ "id": call, "allow": true })).expect("it is taken");
    let detail = client.ask("sessions.show", json!({ "id": session })).expect("it is there");
    let turn = detail["turns"][0]["turn"].as_str().expect("an id").to_owned();
    assert_eq!(daemon.wait(&turn)["content"], "done");
    assert_eq!(std::fs::read_to_string(&file).unwrap_or_default().lines().count(), 1);
    let _ = std::fs::remove_file(&file);
}

/// A model that never answers.
fn silent() -> ModelServer {
    ModelServer::start(|_| {
        loop {
            thread::park();
        }
    })
}

#[test]
fn a_prompt_is_taken_back_and_a_turn_goes_on_without_its_editor() {
    let server = silent();
    let daemon = daemon_with(&server, &[], "");
    let mut editor = Editor::ready(&daemon);
    let session = editor.session(&daemon);
    // At once, and once the model is at it.
    for awaited in [0, 1] {
        let id = editor.send("session/prompt", prompt(&session, "think"));
        until("the model is asked", || (server.requests().len() >= awaited).then_some(())).expect("it is");
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
        editor.write(&cancel.to_string());
        let ended = editor.answer(&json!(id)).expect("it ends");
        assert_eq!(ended["stopReason"], "cancelled", "{ended}");
    }
    let asked = server.requests().len();
    let id = editor.send("session/prompt", prompt(&session, "think"));
    until("the model is asked", || (server.requests().len() > asked).then_some(())).expect("it is");
    editor.send("session/close", json!({ "sessionId": session }));
    let ended = loop {
        // The order of the two answers is nobody's concern.
        let line = editor.line();
        if line["id"] == id {
            break line;
        }
    };
    assert_eq!(ended["result"]["stopReason"], "cancelled", "{ended}");
    let asked = server.requests().len();
    editor.send("session/prompt", prompt(&session, "go on"));
    until("the model is asked", || (server.requests().len() > asked).then_some(())).expect("it is");
    drop(editor);
    let mut editor = Editor::ready(&daemon);
    editor.load(&daemon, &session).expect("it is there");
    assert!(texts(&editor.shown(), "user_message_chunk").ends_with("go on"));
    let detail = daemon.client().ask("sessions.show", json!({ "id": session })).expect("it is there");
    let last = detail["turns"].as_array().and_then(|turns| turns.last()).expect("a turn");
    assert!(last["status"].is_null(), "it goes on: {last}");
    assert_eq!(editor.ask("session/close", json!({ "sessionId": session })), Ok(json!({})));
    let turn = last["turn"].as_str().expect("an id");
    assert_eq!(daemon.wait(turn)["class"], "cancelled", "closing stops it");
}

#[test]
fn nobody_comes_in_without_a_token_and_nonsense_is_answered() {
    let (_server, daemon) = daemon("");
    let (door, reads) = (door(&daemon), token(&daemon, &["reads", "--may", "read"]));
    assert_eq!(door.get(&reads, "/stdio/acp").status, 426);
    daemon.write("wrong", "drupe_wrong\n");
    daemon.write("reads", &format!("{reads}\n"));
    let output = daemon.drupe(&["acp", "--token-file", "wrong"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(text(&output.stderr).contains("nobody was given this token"), "{}", text(&output.stderr));
    let mut editor = Editor::start(&daemon, &["--token-file", "reads"]);
    editor.write("nonsense");
    assert_eq!(editor.answer(&Value::Null).expect_err("it is none")["code"], -32700);
    let huge = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}", "x".repeat(6 * 1024 * 1024));
    editor.write(&huge);
    assert_eq!(editor.answer(&Value::Null).expect_err("it is too long")["code"], -32600);
    assert_eq!(editor.ask("session/fork", json!({})).expect_err("there is none")["code"], -32601);
    assert_eq!(editor.ask("session/new", json!({ "cwd": 1 })).expect_err("it is wrong")["code"], -32602);
    let session = editor.session(&daemon);
    assert!(session.starts_with("token.reads:"), "{session}");
    let refused = editor.prompt(&session, "hello").expect_err("it may only read");
    assert!(refused["message"].to_string().contains("may not use"), "{refused}");
    let image =
        json!({ "sessionId": session, "prompt": [{ "type": "image", "data": "", "mimeType": "image/png" }] });
    assert_eq!(editor.ask("session/prompt", image).expect_err("it takes none")["code"], -32602);
    assert_eq!(editor.leave(), Some(0));
}
