//! The Model Context Protocol: agents as tools in both revisions, and whose a session of it is.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::{
    client::{Answer, Door},
    daemon, daemon_with, door, token,
};
use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
};

/// The revision with sessions, and the one without.
const OLD: &str = "2025-11-25";
const NEW: &str = "2026-07-28";

/// Somebody who speaks the protocol.
struct Client<'a> {
    door: &'a Door,
    token: &'a str,
    session: Option<String>,
}

impl<'a> Client<'a> {
    /// One that has shaken hands.
    fn of_sessions(door: &'a Door, token: &'a str) -> Self {
        let mut client = Self { door, token, session: None };
        let own =
            json!({"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer =
            client.send(OLD, &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": own}));
        assert_eq!(message(&answer)["result"]["protocolVersion"], OLD, "{answer:?}");
        client.session = answer.header("mcp-session-id").map(str::to_owned);
        assert!(client.session.is_some(), "{answer:?}");
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.send(OLD, &ready).status, 202);
        client
    }

    /// One of the revision without sessions.
    fn of_none(door: &'a Door, token: &'a str) -> Self {
        Self { door, token, session: None }
    }

    fn send(&self, revision: &str, message: &Value) -> Answer {
        let authorization = format!("Bearer {}", self.token);
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let name = message["params"]["name"].as_str().or_else(|| message["params"]["uri"].as_str());
        let mut headers = vec![
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", revision),
        ];
        headers.extend(self.session.as_deref().map(|id| ("mcp-session-id", id)));
        if revision == NEW {
            headers.push(("mcp-method", method.as_str()));
            headers.extend(name.map(|name| ("mcp-name", name)));
        }
        self.door.send("POST", "/mcp", &headers, &message.to_string())
    }

    /// Sends a message of a session and reads nothing.
    fn begin(&self, message: &Value) -> TcpStream {
        let (host, authorization) = (self.door.host(), format!("Bearer {}", self.token));
        let headers = [
            ("host", host.as_str()),
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", OLD),
            ("mcp-session-id", self.session.as_deref().expect("it has one")),
        ];
        self.door.begin("POST", "/mcp", &headers, &message.to_string())
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        let (revision, mut params) = (if self.session.is_some() { OLD } else { NEW }, params);
        if revision == NEW {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": NEW,
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let answer =
            self.send(revision, &json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}));
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
        message(&answer)
    }
}

/// The answer in a body that is one, or a stream that ends with it.
fn message(answer: &Answer) -> Value {
    let lines = answer.body.lines().filter_map(|line| line.strip_prefix("data:"));
    let all: Vec<Value> = lines.filter_map(|data| serde_json::from_str(data).ok()).collect();
    let last = all.into_iter().rfind(|message| message.get("id").is_some());
    last.unwrap_or_else(|| serde_json::from_str(&answer.body).unwrap_or_default())
}

#[test]
fn agents_are_tools_and_sessions_are_resources_in_both_revisions() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    for client in [Client::of_sessions(&door, &ci), Client::of_none(&door, &ci)] {
        let tools = client.ask("tools/list", json!({}))["result"]["tools"].clone();
        let names: Vec<_> =
            tools.as_array().expect("a list").iter().map(|tool| tool["name"].clone()).collect();
        assert!(names.contains(&json!("drupe")) && names.contains(&json!("haiku")), "{tools}");
        let call = |arguments: Value| {
            client.ask("tools/call", json!({"name": "haiku", "arguments": arguments}))["result"].clone()
        };
        let said = call(json!({"task": "hello", "session": "token.ci:talk"}));
        assert_eq!(said["content"][0], json!({"type": "text", "text": "hello"}), "{said}");
        assert_ne!(said["isError"], true, "{said}");
        let schema = json!({"type": "object", "required": ["a"]});
        let wrong = call(json!({"task": "hello", "schema": schema}));
        assert_eq!(wrong["isError"], true, "no JSON is no answer: {wrong}");
        for (arguments, words) in [
            (json!({"task": "hello", "format": "json"}), "has a schema"),
            (json!({"task": "hello", "colour": 1}), "`colour`"),
            (json!({}), "`task`"),
            (json!({"task": "hello", "session": "other"}), "does not reach session"),
        ] {
            let refused = call(arguments);
            assert_eq!(refused["isError"], true, "{refused}");
            assert!(
                refused["content"][0]["text"].as_str().is_some_and(|text| text.contains(words)),
                "{refused}"
            );
        }
        let unknown = client.ask("tools/call", json!({"name": "nobody", "arguments": {"task": "x"}}));
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        let resources = client.ask("resources/list", json!({}))["result"]["resources"].clone();
        let uri = "drupe://sessions/token.ci:talk";
        assert!(
            resources.as_array().is_some_and(|all| all.iter().any(|one| one["uri"] == uri)),
            "{resources}"
        );
        let read = client.ask("resources/read", json!({ "uri": uri }));
        let text = read["result"]["contents"][0]["text"].as_str().expect("a text").to_owned();
        assert!(text.contains("\"content\":\"hello\""), "{text}");
        let foreign = client.ask("resources/read", json!({"uri": "drupe://sessions/main"}));
        assert!(foreign["error"]["code"].is_number(), "{foreign}");
    }
}

#[test]
fn a_session_is_its_beginners_and_nobody_comes_in_without_a_token() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let some = token(&daemon, &["some", "--agent", "haiku"]);
    let own = Client::of_sessions(&door, &ci);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(own.send(OLD, &ping).status, 200);
    let thief = Client { token: &some, session: own.session.clone(), door: &door };
    let refused = thief.send(OLD, &ping);
    assert_eq!(refused.status, 404, "{refused:?}");
    let nobody = Client { token: "drupe_wrong", session: None, door: &door };
    assert_eq!(nobody.send(NEW, &ping).status, 401);
    let bare = Client::of_none(&door, &some);
    let tools = bare.ask("tools/list", json!({}))["result"]["tools"].clone();
    assert_eq!(tools.as_array().map(Vec::len), Some(1), "those that the token reaches: {tools}");
    let other = bare.ask("tools/call", json!({"name": "other", "arguments": {"task": "x"}}));
    assert!(other["error"]["code"].is_number() || other["result"]["isError"] == true, "{other}");
}

#[test]
fn a_call_tells_how_far_it_is_and_is_stopped_when_it_is_taken_back() {
    let server = ModelServer::start(|request| match latest(request) {
        (role, _) if role == "tool" => Say::Text("done".into()),
        (_, text) if text.contains("wait") => Say::Call(vec![("kv_list".to_owned(), json!({})); 1]),
        (_, text) => Say::Text(text),
    });
    let daemon = daemon_with(&server, &[], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let client = Client::of_sessions(&door, &ci);
    let params = json!({"name": "drupe", "arguments": {"task": "wait"}, "_meta": {"progressToken": "p"}});
    let answer =
        client.send(OLD, &json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}));
    assert!(answer.body.contains("notifications/progress") && answer.body.contains("kv_list"), "{answer:?}");
    assert_eq!(message(&answer)["result"]["content"][0]["text"], "done", "{answer:?}");
    let silent = ModelServer::start(|_| {
        loop {
            std::thread::park();
        }
    });
    let daemon = daemon_with(&silent, &[], "");
    let (door, ci) = (super::door(&daemon), token(&daemon, &["ci"]));
    let client = Client::of_sessions(&door, &ci);
    let params = json!({"name": "drupe", "arguments": {"task": "wait", "session": "token.ci:s"}});
    let call = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": params});
    let waiting = client.begin(&call);
    until("the model is asked", || (silent.requests().len() == 1).then_some(())).expect("it is asked");
    let back = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}});
    assert_eq!(client.send(OLD, &back).status, 202);
    let stopped = until("the turn is stopped", || {
        let shown = door.get(&ci, "/v1/sessions/token.ci:s").json();
        (shown["turns"][0]["class"] == "cancelled").then_some(())
    });
    assert!(stopped.is_some(), "{}", door.get(&ci, "/v1/sessions/token.ci:s").body);
    drop(waiting);
}

/// An agent that the repository has for clients of MCP.
fn put(daemon: &Daemon, id: &str) {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/clients/mcp/agents/");
    let text = std::fs::read_to_string(format!("{own}{id}.md")).expect("it is there");
    daemon.write(&format!("extensions/{id}.md"), &text);
}

#[test]
fn an_agent_takes_and_gives_what_it_declares() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let all = ["structured", "test_error_handling", "test_prompt_with_arguments", "test_tool_with_progress"];
    all.iter().for_each(|id| put(&daemon, id));
    until("they are there", || {
        let listed = door.get(&ci, "/v1/agents").json();
        let ids: Vec<_> = listed.as_array()?.iter().filter_map(|one| one["id"].as_str()).collect();
        all.iter().all(|id| ids.contains(id)).then_some(())
    })
    .expect("they are there");
    for client in [Client::of_sessions(&door, &ci), Client::of_none(&door, &ci)] {
        let tools = client.ask("tools/list", json!({}))["result"]["tools"].clone();
        let found = tools.as_array().and_then(|all| all.iter().find(|one| one["name"] == "structured"));
        let tool = found.expect("it is a tool");
        assert_eq!(tool["inputSchema"]["required"], json!(["city"]), "{tool}");
        assert_eq!(tool["outputSchema"]["required"], json!(["city", "degrees"]), "{tool}");
        assert_eq!(tool["annotations"]["readOnlyHint"], false, "{tool}");
        let call = |name: &str, arguments: Value| {
            client.ask("tools/call", json!({"name": name, "arguments": arguments}))["result"].clone()
        };
        let said = call("structured", json!({"city": "Bern"}));
        assert_eq!(said["structuredContent"], json!({"city": "Bern", "degrees": 7}), "{said}");
        for (arguments, words) in [
            (json!({"task": "Bern"}), "do not fit"),
            (json!({"city": 1}), "do not fit"),
            (json!({"city": "Bern", "format": "text"}), "of its own"),
            (json!({"city": "Basel"}), "only Bern"),
        ] {
            let refused = call("structured", arguments);
            let text = refused["content"][0]["text"].as_str().unwrap_or_default();
            assert!(refused["isError"] == true && text.contains(words), "{refused}");
            assert!(refused["structuredContent"].is_null(), "{refused}");
        }
        let refused = call("test_error_handling", json!({}));
        assert_eq!(refused["isError"], true, "{refused}");
        let given = json!({"arg1": "one", "arg2": "two"});
        let prompt =
            client.ask("prompts/get", json!({"name": "test_prompt_with_arguments", "arguments": given}));
        let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap_or_default();
        assert!(text.contains("one") && text.contains("two"), "{prompt}");
        let by = json!({"type": "ref/prompt", "name": "test_prompt_with_arguments"});
        let ask = json!({"ref": by, "argument": {"name": "arg1", "value": "test"}});
        let completed = client.ask("completion/complete", ask)["result"]["completion"].clone();
        assert_eq!(completed["values"], json!(["testValue1"]), "{completed}");
    }
}

#[test]
fn a_request_of_the_newer_revision_follows_what_changes_until_it_is_taken_back() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let client = Client::of_none(&door, &ci);
    let said = client.ask(
        "tools/call",
        json!({"name": "haiku", "arguments": {"task": "hello", "session": "token.ci:talk"}}),
    );
    assert_eq!(said["result"]["content"][0]["text"], "hello", "{said}");
    let uri = "drupe://sessions/token.ci:talk";
    let wanted = json!({
        "toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": [uri, "test://other"],
    });
    let params = json!({
        "notifications": wanted,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": NEW,
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params});
    let (host, bearer) = (door.host(), format!("Bearer {ci}"));
    let headers = [
        ("host", host.as_str()),
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", NEW),
        ("mcp-method", "subscriptions/listen"),
    ];
    let mut open = door.open("POST", "/mcp", &headers, &listen.to_string());
    assert_eq!(open.status, 200);
    let mut rest = String::new();
    let mut told = |method: &str| loop {
        let (_, message) = open.frame(&mut rest).unwrap_or_else(|| panic!("{method} is not told"));
        if message["method"] == method {
            return message;
        }
    };
    let accepted = told("notifications/subscriptions/acknowledged");
    assert_eq!(accepted["params"]["notifications"]["resourceSubscriptions"], json!([uri]), "{accepted}");
    let again = json!({"name": "haiku", "arguments": {"task": "hello", "session": "token.ci:talk"}});
    client.ask("tools/call", again);
    assert_eq!(told("notifications/resources/updated")["params"]["uri"], uri);
    let new = json!({"name": "haiku", "arguments": {"task": "hello", "session": "token.ci:new"}});
    client.ask("tools/call", new);
    told("notifications/resources/list_changed");
    put(&daemon, "structured");
    told("notifications/tools/list_changed");
}

#[test]
fn a_parameter_that_stands_in_a_header_too_is_the_same_there() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    put(&daemon, "test_x_mcp_header");
    until("it is there", || (door.get(&ci, "/v1/agents/test_x_mcp_header").status == 200).then_some(()));
    let params = json!({
        "name": "test_x_mcp_header", "arguments": {"region": "eu"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": NEW,
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let bearer = format!("Bearer {ci}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", NEW),
        ("mcp-method", "tools/call"),
        ("mcp-name", "test_x_mcp_header"),
    ];
    for (region, status) in [(None, 400), (Some("us"), 400), (Some("=?base64?!?="), 400), (Some("eu"), 200)] {
        let region = region.map(|region| ("mcp-param-region", region));
        let headers: Vec<_> = headers.into_iter().chain(region).collect();
        let answer = door.send("POST", "/mcp", &headers, &call);
        assert_eq!(answer.status, status, "{region:?}: {answer:?}");
    }
}
