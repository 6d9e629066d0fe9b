//! The Model Context Protocol over connections that last: a WebSocket, a stream of events with requests beside it, and the pipes of
//! `drupe mcp`. The same is asked over each.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Child, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use tungstenite::{ClientRequestBuilder, Error, Message, WebSocket};

use super::{
    client::{Door, Open},
    daemon, daemon_with, door, token,
};
use crate::harness::{
    Daemon, PATIENCE,
    model_server::{ModelServer, Say, latest},
    until,
};

const OLD: &str = "2025-11-25";

/// A client at one end of a connection.
struct Client {
    line: Line,
    /// What was heard while something else was awaited.
    heard: Vec<Value>,
    next: u64,
}

enum Line {
    Socket(WebSocket<TcpStream>),
    Stream { door: Door, token: String, open: Open, rest: String, endpoint: String },
    Pipes(Child, BufReader<std::process::ChildStdout>),
}

/// Opens a WebSocket; the status where that is refused.
fn socket(door: &Door, authorization: &str) -> Result<WebSocket<TcpStream>, u16> {
    let stream = TcpStream::connect(door.host()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    let uri = format!("ws://{}/mcp/ws", door.host()).parse().expect("an address");
    let request = ClientRequestBuilder::new(uri)
        .with_sub_protocol("mcp")
        .with_header("authorization", authorization.to_owned());
    match tungstenite::client(request, stream) {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], "mcp");
            Ok(socket)
        }
        Err(tungstenite::HandshakeError::Failure(Error::Http(refused))) => Err(refused.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

impl Line {
    fn socket(door: &Door, token: &str) -> Self {
        Self::Socket(socket(door, &format!("Bearer {token}")).expect("it is opened"))
    }

    fn stream(door: &Door, token: &str) -> Self {
        let (host, bearer) = (door.host(), format!("Bearer {token}"));
        let headers = [("host", host.as_str()), ("authorization", bearer.as_str())];
        let mut open = door.open("GET", "/mcp/sse", &headers, "");
        assert_eq!(open.status, 200);
        let mut rest = String::new();
        while !rest.contains("\n\n") {
            rest.push_str(&open.chunk().expect("it begins"));
        }
        let (first, left) = rest.split_once("\n\n").expect("a frame");
        assert!(first.contains("event: endpoint"), "{first}");
        let endpoint =
            first.lines().find_map(|line| line.strip_prefix("data: ")).expect("an address").to_owned();
        let rest = left.to_owned();
        Self::Stream { door: *door, token: token.to_owned(), open, rest, endpoint }
    }

    fn pipes(daemon: &Daemon, token: &str) -> Self {
        daemon.write("of-pipes", &format!("{token}\n"));
        let mut command = daemon.command(&["mcp", "--token-file", "of-pipes"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Self::Pipes(child, lines)
    }

    fn all(daemon: &Daemon, door: &Door, token: &str) -> [Self; 3] {
        [Self::socket(door, token), Self::stream(door, token), Self::pipes(daemon, token)]
    }

    fn say(&mut self, message: &Value) {
        match self {
            Self::Socket(socket) => socket.send(Message::text(message.to_string())).expect("it is read"),
            Self::Stream { door, token, endpoint, .. } => {
                let taken = door.post(token, endpoint, message);
                assert_eq!(taken.status, 202, "{taken:?}");
            }
            Self::Pipes(child, _) => {
                writeln!(child.stdin.as_mut().expect("it is piped"), "{message}").expect("it is read");
            }
        }
    }

    /// The next message; none at the end.
    fn hear(&mut self) -> Option<Value> {
        match self {
            Self::Socket(socket) => {
                let begun = Instant::now();
                while begun.elapsed() < PATIENCE {
                    match socket.read() {
                        Ok(Message::Text(text)) => return serde_json::from_str(&text).ok(),
                        Ok(Message::Close(_)) | Err(_) => return None,
                        Ok(_) => {}
                    }
                }
                None
            }
            Self::Stream { open, rest, .. } => open.frame(rest).map(|(_, message)| message),
            Self::Pipes(_, lines) => {
                let mut line = String::new();
                lines.read_line(&mut line).ok()?;
                serde_json::from_str(&line).ok()
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Self::Pipes(child, _) = self {
            drop(child.stdin.take());
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Client {
    /// One that has shaken hands.
    fn ready(line: Line) -> Self {
        let mut client = Self { line, heard: Vec::new(), next: 1 };
        let own =
            json!({"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let welcome = client.ask("initialize", own)["result"].clone();
        assert_eq!(welcome["protocolVersion"], OLD, "{welcome}");
        let able = &welcome["capabilities"];
        for (what, how) in [("tools", "listChanged"), ("prompts", "listChanged"), ("resources", "subscribe")]
        {
            assert_eq!(able[what][how], true, "{able}");
        }
        client.line.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.line.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.line.hear().expect("it is answered");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    fn call(&mut self, arguments: Value, meta: Value) -> Value {
        self.ask("tools/call", json!({"name": "drupe", "arguments": arguments, "_meta": meta}))["result"]
            .clone()
    }

    /// Waits until something is told, or has been; what was heard before is forgotten then.
    fn told(&mut self, method: &str) -> Value {
        loop {
            let found = self.heard.iter().position(|message| message["method"] == method);
            if let Some(found) = found {
                return self.heard.drain(..=found).next_back().expect("it was found");
            }
            let message = self.line.hear().unwrap_or_else(|| panic!("{method} is not told"));
            self.heard.push(message);
        }
    }
}

#[test]
fn each_connection_tells_of_progress_of_a_log_and_of_what_changes() {
    let server = ModelServer::start(|request| match latest(request) {
        (role, _) if role == "tool" => Say::Text("done".into()),
        (_, text) if text.contains("work") => Say::Call(vec![("kv_list".to_owned(), json!({})); 1]),
        (_, text) => Say::Text(text),
    });
    let daemon = daemon_with(&server, &[], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    for (number, line) in Line::all(&daemon, &door, &ci).into_iter().enumerate() {
        let mut client = Client::ready(line);
        // Nobody who has not asked for it hears a log.
        let said = client.call(json!({"task": "work"}), json!({"progressToken": "p"}));
        assert_eq!(said["content"][0]["text"], "done", "{said}");
        let progress: Vec<_> =
            client.heard.iter().filter(|one| one["method"] == "notifications/progress").collect();
        assert!(progress.iter().any(|one| one["params"]["message"] == "kv_list"), "{:?}", client.heard);
        let far = |one: &&Value| one["params"]["progress"].as_f64();
        assert!(progress.is_sorted_by(|a, b| far(a) < far(b)) && progress.len() >= 2, "{progress:?}");
        assert!(
            !client.heard.iter().any(|one| one["method"] == "notifications/message"),
            "{:?}",
            client.heard
        );
        assert_eq!(client.ask("logging/setLevel", json!({"level": "info"}))["result"], json!({}));
        client.heard.clear();
        client.call(json!({"task": "work"}), json!({}));
        let logged = client.told("notifications/message");
        assert_eq!(logged["params"]["level"], "info", "{logged}");
        client.ask("logging/setLevel", json!({"level": "error"}));
        client.heard.clear();
        client.call(json!({"task": "work"}), json!({}));
        assert!(
            !client.heard.iter().any(|one| one["method"] == "notifications/message"),
            "{:?}",
            client.heard
        );

        client.told("notifications/resources/list_changed");
        let session = format!("token.ci:talk{number}");
        client.call(json!({"task": "hello", "session": session}), json!({}));
        let uri = format!("drupe://sessions/{session}");
        let nothing = client.ask("resources/subscribe", json!({"uri": "drupe://sessions/token.ci:nothing"}));
        assert!(nothing["error"]["code"].is_number(), "{nothing}");
        let foreign = client.ask("resources/subscribe", json!({"uri": "drupe://sessions/main"}));
        assert!(foreign["error"]["code"].is_number(), "{foreign}");
        assert_eq!(client.ask("resources/subscribe", json!({ "uri": uri }))["result"], json!({}));
        client.heard.clear();
        client.call(json!({"task": "again", "session": session}), json!({}));
        assert_eq!(client.told("notifications/resources/updated")["params"]["uri"], json!(uri));
        // Its end may come behind the answer.
        client.told("notifications/resources/updated");
        assert_eq!(client.ask("resources/unsubscribe", json!({ "uri": uri }))["result"], json!({}));
        client.heard.clear();
        client.call(json!({"task": "once more", "session": session}), json!({}));
        assert!(!client.heard.iter().any(|one| one["params"]["uri"] == json!(uri)), "{:?}", client.heard);

        let template = json!({"type": "ref/resource", "uri": "drupe://sessions/{id}"});
        let ask = json!({"ref": template, "argument": {"name": "id", "value": session[..session.len() - 1]}});
        let completed = client.ask("completion/complete", ask)["result"]["completion"]["values"].clone();
        assert!(completed.as_array().is_some_and(|all| all.contains(&json!(session))), "{completed}");

        client.heard.clear();
        let manifest = format!(
            "id: new{number}\nname: New\ndescription: Is new.\nagent: {{model: default, usage: as follows, instructions: \"Answer.\"}}\n"
        );
        daemon.write(&format!("extensions/new{number}/manifest.yaml"), &manifest);
        client.told("notifications/tools/list_changed");
        client.told("notifications/prompts/list_changed");
        let prompts = client.ask("prompts/list", json!({}))["result"]["prompts"].clone();
        let name = json!(format!("new{number}"));
        assert!(prompts.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == name)), "{prompts}");
    }
}

#[test]
fn a_call_is_taken_back_over_each_connection_and_stops_with_a_client_that_goes() {
    let silent = ModelServer::start(|_| {
        loop {
            std::thread::park();
        }
    });
    let daemon = daemon_with(&silent, &[], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let ended = |session: &str| {
        until("the turn is stopped", || {
            let shown = door.get(&ci, &format!("/v1/sessions/{session}")).json();
            (shown["turns"][0]["class"] == "cancelled").then_some(())
        })
    };
    for (number, line) in Line::all(&daemon, &door, &ci).into_iter().enumerate() {
        let mut client = Client::ready(line);
        let asked = silent.requests().len();
        let session = format!("token.ci:s{number}");
        let call = json!({"name": "drupe", "arguments": {"task": "wait", "session": session}});
        let id = client.send("tools/call", call);
        until("the model is asked", || (silent.requests().len() > asked).then_some(())).expect("it is asked");
        let params = json!({"requestId": id, "reason": "no more"});
        client.line.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
        ended(&session).expect("it is stopped");
        let asked = silent.requests().len();
        client.send("tools/call", json!({"name": "drupe", "arguments": {"task": "wait"}}));
        until("the model is asked", || (silent.requests().len() > asked).then_some(())).expect("it is asked");
        drop(client);
        let sessions = door.get(&ci, "/v1/sessions").json();
        let last = sessions.as_array().and_then(|all| all.iter().max_by_key(|one| one["created"].as_str()));
        ended(last.and_then(|one| one["id"].as_str()).expect("a session")).expect("it is stopped");
    }
}

/// The code with which a socket is closed, whatever comes before.
fn closed(line: &mut Line) -> u16 {
    let Line::Socket(socket) = line else { panic!("it is none") };
    // A ping comes each quarter of a minute.
    for _ in 0..4 {
        match socket.read() {
            Ok(Message::Close(frame)) => return frame.expect("it says why").code.into(),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it goes on");
}

#[test]
fn a_connection_is_its_beginners_ends_with_the_token_and_with_the_server() {
    let (_server, mut daemon) = daemon("");
    let (door, ci, other) = (door(&daemon), token(&daemon, &["ci"]), token(&daemon, &["other"]));
    assert_eq!(socket(&door, "Bearer drupe_wrong").err(), Some(401));
    // What the clients of the official SDKs make of `ws://any:TOKEN@…`.
    let packed = base64(&format!("any:{ci}"));
    Client::ready(Line::Socket(socket(&door, &format!("Basic {packed}")).expect("it is opened")));
    assert_eq!(door.get(&ci, "/mcp/ws").status, 400, "no WebSocket");

    let mut stream = Client::ready(Line::stream(&door, &ci));
    let Line::Stream { endpoint, .. } = &stream.line else { panic!("it is one") };
    let (endpoint, ping) = (endpoint.clone(), json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}));
    assert_eq!(door.post(&other, &endpoint, &ping).status, 404, "somebody else's");
    assert_eq!(door.post("drupe_wrong", &endpoint, &ping).status, 401);
    assert_eq!(door.post(&ci, "/mcp/messages?sessionId=x", &ping).status, 404);
    let nonsense = door.post(&ci, &endpoint, &json!("nonsense"));
    assert_eq!((nonsense.status, nonsense.json()["error"]["code"].clone()), (400, json!(-32600)));
    let huge = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x".repeat(5 << 20)}});
    assert_eq!(door.post(&ci, &endpoint, &huge).status, 413);
    assert_eq!(stream.ask("ping", json!({}))["result"], json!({}), "it goes on");

    let mut socket = Client::ready(Line::socket(&door, &ci));
    let Line::Socket(raw) = &mut socket.line else { panic!("it is one") };
    raw.send(Message::text("nonsense")).expect("it is read");
    assert_eq!(socket.line.hear().expect("it is answered")["error"]["code"], -32700);
    assert_eq!(socket.ask("ping", json!({}))["result"], json!({}), "it goes on");
    daemon.says(&["token", "revoke", "ci"]);
    assert_eq!(closed(&mut socket.line), 1008);
    assert_eq!(stream.line.hear(), None, "it ends");

    let mut socket = Client::ready(Line::socket(&door, &other));
    let mut stream = Client::ready(Line::stream(&door, &other));
    daemon.says(&["stop"]);
    assert_eq!(closed(&mut socket.line), 1012);
    assert_eq!(stream.line.hear(), None, "it ends");
    assert!(daemon.ended().is_some());
}

#[test]
fn a_client_is_told_once_however_often_it_says_that_it_is_ready() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let mut client = Client::ready(Line::socket(&door, &ci));
    for _ in 0..30 {
        client.line.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }
    client.ask("ping", json!({}));
    client.call(json!({"task": "hello", "session": "token.ci:talk"}), json!({}));
    // Whoever tells of a new agent has told of the session before.
    let session = client.told("notifications/resources/list_changed");
    client.heard.push(session);
    let manifest =
        "id: new\nname: New\ndescription: Is new.\nagent: {model: default, instructions: \"Answer.\"}\n";
    daemon.write("extensions/new/manifest.yaml", manifest);
    let of = |client: &Client, what: &str| client.heard.iter().filter(|one| one["method"] == what).count();
    while of(&client, "notifications/prompts/list_changed") == 0 {
        let message = client.line.hear().expect("it is told");
        client.heard.push(message);
    }
    assert_eq!(of(&client, "notifications/resources/list_changed"), 1);
}

#[test]
fn one_token_has_its_share_of_the_connections_and_of_the_sessions_that_are_followed() {
    let (_server, daemon) = daemon("");
    let (door, ci, other) = (door(&daemon), token(&daemon, &["ci"]), token(&daemon, &["other"]));
    let bearer = format!("Bearer {ci}");
    let mut first = Client::ready(Line::socket(&door, &ci));
    let mut held: Vec<_> = (1..64).map(|_| socket(&door, &bearer).expect("there is room")).collect();
    assert_eq!(socket(&door, &bearer).err(), Some(503));
    let refused = door.get(&ci, "/mcp/sse");
    assert!(refused.status == 503 && refused.body.contains("64 clients of MCP"), "{refused:?}");
    let mut foreign = Client::ready(Line::socket(&door, &other));
    assert_eq!(foreign.ask("ping", json!({}))["result"], json!({}), "others come in");
    held.truncate(60);
    let again = || socket(&door, &bearer).ok();
    held.push(until("a place is free", again).expect("it is"));
    let second = until("a place is free", again).expect("it is");
    let mut second = Client::ready(Line::Socket(second));
    let third = until("a place is free", again).expect("it is");
    let mut third = Client::ready(Line::Socket(third));

    // Each follows as many as one client may, asked for at the same time; the third finds the share of its token taken.
    for number in 0..65 {
        first.call(json!({"task": "hello", "session": format!("token.ci:{number}")}), json!({}));
    }
    let follow = |client: &mut Client, some: std::ops::Range<usize>| -> Vec<String> {
        let uri = |number| json!({"uri": format!("drupe://sessions/token.ci:{number}")});
        let ids: Vec<u64> = some.map(|number| client.send("resources/subscribe", uri(number))).collect();
        let mut refused = Vec::new();
        let mut answers = 0;
        while answers < ids.len() {
            let message = client.line.hear().expect("it is answered");
            if message["id"].as_u64().is_some_and(|id| ids.contains(&id)) {
                answers += 1;
                refused.extend(message["error"]["message"].as_str().map(str::to_owned));
            }
        }
        refused
    };
    for client in [&mut first, &mut second] {
        // No more than 64 requests at the same time.
        assert_eq!(follow(client, 0..40), Vec::<String>::new());
        let refused = follow(client, 40..65);
        assert!(refused.len() == 1 && refused[0].contains("64 resources are followed"), "{refused:?}");
    }
    let refused = follow(&mut third, 0..1);
    assert!(refused.len() == 1 && refused[0].contains("128 sessions are followed"), "{refused:?}");
}

#[test]
fn a_line_that_is_no_message_is_answered_and_those_behind_it_are_served() {
    let server = ModelServer::obedient();
    let daemon = daemon_with(&server, &[("DRUPE_EXTENSIONS__HTTP__MAX_BODY_KB", "1")], "");
    let (_door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let mut client = Client::ready(Line::pipes(&daemon, &ci));
    let long =
        json!({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"x": "y".repeat(2048)}}).to_string();
    for (line, code) in [("nonsense", -32700), (&long, -32700), (r#"{"id": 8}"#, -32600), ("", 0)] {
        let Line::Pipes(child, _) = &mut client.line else { unreachable!("it is one of pipes") };
        writeln!(child.stdin.as_mut().expect("it is piped"), "{line}").expect("it is read");
        if code != 0 {
            let refused = client.line.hear().expect("it is answered");
            assert_eq!(refused["error"]["code"], code, "{refused}");
        }
    }
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
}

/// As RFC 4648 has it, for a few bytes.
fn base64(text: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u32| char::from(LETTERS[(bits & 63) as usize]);
    let mut packed = String::new();
    for three in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(*three.get(at).unwrap_or(&0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            packed.push(if at <= three.len() { letter(bits >> shift) } else { '=' });
        }
    }
    packed
}
