//! The events of a session over a WebSocket, alone and beside others who watch the same.

use std::{
    net::TcpStream,
    sync::mpsc::{Sender, channel},
    thread,
};

use serde_json::{Value, json};
use tungstenite::{ClientRequestBuilder, Error, Message, WebSocket, http::StatusCode};

use super::{client::Door, daemon, daemon_with, door, token};
use crate::harness::{
    Daemon, PATIENCE,
    model_server::{ModelServer, Say},
    wire::Wire,
};

const SESSION: &str = "token.ci:1";

type Socket = WebSocket<TcpStream>;

/// Opens a WebSocket; the status where that is refused.
fn open(door: &Door, path: &str, headers: &[(&str, &str)]) -> Result<Socket, u16> {
    let stream = TcpStream::connect(door.host()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    let uri = format!("ws://{}{path}", door.host()).parse().expect("an address");
    let request = headers
        .iter()
        .fold(ClientRequestBuilder::new(uri), |request, (name, value)| request.with_header(*name, *value));
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::HandshakeError::Failure(Error::Http(refused))) => Err(refused.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

fn events_of(session: &str, after: u64) -> String {
    format!("/v1/sessions/{session}/events?after={after}")
}

/// The next event; none at the end.
fn event(socket: &mut Socket) -> Option<Value> {
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).expect("an event is JSON")),
            Ok(Message::Close(_)) | Err(Error::ConnectionClosed) => return None,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The code with which it is closed, whatever comes before.
fn closed(socket: &mut Socket) -> (u16, String) {
    loop {
        match socket.read() {
            Ok(Message::Close(frame)) => {
                let frame = frame.expect("it says why");
                return (frame.code.into(), frame.reason.to_string());
            }
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A model that says a part of its first answer and no more, and all of its second.
fn interrupted() -> ModelServer {
    let first = std::sync::atomic::AtomicBool::new(true);
    ModelServer::start(move |_| match first.swap(false, std::sync::atomic::Ordering::SeqCst) {
        true => Say::Fail(Wire::Stall("the first part")),
        false => Say::Text("the whole answer".into()),
    })
}

/// Where one watches from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surface {
    Terminal,
    Stream,
    Socket,
}

/// Follows the session from behind an event; gives the next at each call, and none at the end.
fn follow(daemon: &Daemon, ci: &str, surface: Surface, after: u64) -> Box<dyn FnMut() -> Option<Value>> {
    let bearer = format!("Bearer {ci}");
    match surface {
        Surface::Terminal => {
            let mut client = daemon.client();
            let ask = json!({"session": SESSION, "after": after, "follow": true});
            client.send("events.subscribe", ask).expect("it is asked");
            Box::new(move || client.reply().ok()?.get_mut("event").map(Value::take))
        }
        Surface::Stream => {
            let door = door(daemon);
            let host = door.host();
            let headers = [("host", host.as_str()), ("authorization", bearer.as_str())];
            let mut open = door.open("GET", &events_of(SESSION, after), &headers, "");
            let mut rest = String::new();
            Box::new(move || open.frame(&mut rest).map(|(_, event)| event))
        }
        Surface::Socket => {
            let headers = [("authorization", bearer.as_str())];
            let mut socket = open(&door(daemon), &events_of(SESSION, after), &headers).expect("it is opened");
            Box::new(move || event(&mut socket))
        }
    }
}

/// Watches over a restart until the turn ends; the kept events. Tells when it watches, and when it has seen a part of the answer.
fn watch(daemon: &Daemon, ci: &str, surface: Surface, told: &Sender<(Surface, &'static str)>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for kernel in 0..2 {
        daemon.until_status("a kernel", |status| status["generation"].as_u64() > Some(kernel));
        let last = kept.last().and_then(|event| event["seq"].as_u64()).unwrap_or(0);
        let mut next = follow(daemon, ci, surface, last);
        told.send((surface, "watches")).expect("the test waits");
        while let Some(event) = next() {
            let ended = event["kind"] == "interaction.turn.completed";
            let live = event["seq"] == 0;
            if live && kernel == 0 {
                let _ = told.send((surface, "saw"));
            }
            if !live {
                kept.push(event);
            }
            if ended {
                return kept;
            }
        }
    }
    panic!("{surface:?}: no end after {kept:?}\n{}", daemon.log());
}

/// Has a kernel restart in the middle of an answer that these watch; what each of them was told.
fn over_a_restart(surfaces: &[Surface]) -> Vec<Vec<Value>> {
    let server = interrupted();
    let daemon = daemon_with(&server, &[], "drain_timeout_ms: 100\n");
    let ci = token(&daemon, &["ci"]);
    thread::scope(|scope| {
        let (told, heard) = channel();
        let (daemon, ci) = (&daemon, ci.as_str());
        let watchers: Vec<_> = surfaces
            .iter()
            .map(|surface| {
                let told = told.clone();
                scope.spawn(move || watch(daemon, ci, *surface, &told))
            })
            .collect();
        let all = |what| {
            let mut waited_for = surfaces.to_vec();
            while !waited_for.is_empty() {
                let (surface, said) = heard.recv_timeout(PATIENCE).expect("all of them watch");
                waited_for.retain(|one| said != what || *one != surface);
            }
        };
        all("watches");
        let said = json!({"text": "hello", "agent": "haiku"});
        let path = format!("/v1/sessions/{SESSION}/messages");
        assert_eq!(door(daemon).post(ci, &path, &said).status, 202);
        all("saw");
        daemon.says(&["restart"]);
        watchers
            .into_iter()
            .map(|watcher| {
                watcher.join().unwrap_or_else(|_| panic!("it watches to the end\n{}", daemon.log()))
            })
            .collect()
    })
}

fn assert_whole(events: &[Value]) {
    let numbers: Vec<_> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    let whole: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(numbers, whole, "nothing is missed and nothing comes twice");
    let last = events.last().expect("events").to_string();
    assert!(last.contains("success"), "{last}");
}

#[test]
fn a_reader_goes_on_where_it_was_when_a_kernel_ends_in_the_middle_of_an_answer() {
    let seen = over_a_restart(&[Surface::Socket]);
    assert_whole(&seen[0]);
}

#[test]
fn a_terminal_a_stream_and_a_socket_see_one_session_alike_over_a_restart() {
    let seen = over_a_restart(&[Surface::Terminal, Surface::Stream, Surface::Socket]);
    assert_whole(&seen[0]);
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[test]
fn who_may_not_read_a_session_gets_no_socket_and_is_told_why() {
    let server = ModelServer::obedient();
    let allowed = ("DRUPE_EXTENSIONS__HTTP__ORIGINS", "[https://app.example.org]");
    let daemon = daemon_with(&server, &[allowed], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let (bearer, cookie) = (format!("Bearer {ci}"), format!("drupe={ci}"));
    let own = format!("http://{}", door.host());
    let (bearer, cookie) = (("authorization", bearer.as_str()), ("cookie", cookie.as_str()));
    let (app, evil) = (("origin", "https://app.example.org"), ("origin", "https://evil.example.org"));
    for (path, headers, status) in [
        (events_of(SESSION, 0), vec![bearer], 101),
        (events_of(SESSION, 0), vec![("x-api-key", ci.as_str())], 101),
        (events_of(SESSION, 0), vec![cookie], 101),
        (events_of(SESSION, 0), vec![cookie, ("origin", own.as_str())], 101),
        (format!("/events?session={SESSION}&after=3"), vec![bearer], 101),
        (events_of(SESSION, 0), vec![bearer, app], 101),
        (events_of(SESSION, 0), vec![], 401),
        (events_of(SESSION, 0), vec![("authorization", "Bearer drupe_wrong")], 401),
        (events_of(SESSION, 0), vec![bearer, evil], 403),
        (events_of(SESSION, 0), vec![bearer, ("origin", "null")], 403),
        (events_of(SESSION, 0), vec![cookie, evil], 403),
        // A WebSocket may be read by any page that opens it: the cookie is for our own alone.
        (events_of(SESSION, 0), vec![cookie, app], 403),
        (events_of("elsewhere", 0), vec![bearer], 403),
        ("/v1/sessions/token.ci:1/events?after=soon".to_owned(), vec![bearer], 400),
    ] {
        let opened = open(&door, &path, &headers).err().unwrap_or(StatusCode::SWITCHING_PROTOCOLS.as_u16());
        assert_eq!(opened, status, "{path} {headers:?}");
    }
    let host = door.host();
    let half = [("host", host.as_str()), bearer, ("connection", "upgrade"), ("upgrade", "websocket")];
    assert_eq!(door.open("GET", &events_of(SESSION, 0), &half, "").status, 400, "no version, no key");
}

#[test]
fn a_socket_ends_with_a_code_that_says_what_was_wrong() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let bearer = format!("Bearer {ci}");
    let open = || open(&door, &events_of(SESSION, 0), &[("authorization", &bearer)]).expect("it is opened");
    let mut talks = open();
    talks.send(Message::text("hello")).expect("it is sent");
    let (code, reason) = closed(&mut talks);
    assert!(code == 1003 && reason.contains("/messages"), "{code} {reason}");
    let mut shouts = open();
    // Refused by the size that its head tells, however much of it still comes.
    let _ = shouts.send(Message::text("x".repeat(1_000_000)));
    let mut answers = open();
    answers.send(Message::Ping(Vec::new().into())).expect("it is sent");
    loop {
        match answers.read() {
            Ok(Message::Pong(_)) => break,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    daemon.says(&["token", "revoke", "ci"]);
    let (code, reason) = closed(&mut answers);
    assert_eq!(code, 1008, "{reason}");
    assert_eq!(door.send("GET", "/healthz", &[], "").status, 200, "{}", daemon.log());
}

#[test]
fn a_socket_holds_a_place_until_it_ends() {
    let server = ModelServer::obedient();
    let daemon = daemon_with(&server, &[("DRUPE_EXTENSIONS__HTTP__MAX_CONNECTIONS", "1")], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let bearer = format!("Bearer {ci}");
    let mut socket =
        open(&door, &events_of(SESSION, 0), &[("authorization", &bearer)]).expect("it is opened");
    let host = door.host();
    let mut waits = door.begin("GET", "/healthz", &[("host", host.as_str()), ("connection", "close")], "");
    // A slow machine makes this pass, never fail.
    waits.set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a socket has one");
    let mut answer = String::new();
    assert!(std::io::Read::read_to_string(&mut waits, &mut answer).is_err(), "there is no room: {answer}");
    socket.close(None).expect("it takes leave");
    while socket.read().is_ok() {}
    waits.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    std::io::Read::read_to_string(&mut waits, &mut answer).expect("there is room");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
