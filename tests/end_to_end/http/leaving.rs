//! Clients that go before they have their answer, and those that wait to be taken in.

use std::{io::Read, thread, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::{daemon_with, door, token};
use crate::harness::{model_server::ModelServer, until};

/// How a model is asked that never answers.
fn silent() -> ModelServer {
    ModelServer::start(|_| {
        loop {
            thread::park();
        }
    })
}

/// The one turn of a session, once it has ended.
fn ended(turns: &Value) -> Option<Value> {
    turns["turns"][0]["status"].is_string().then(|| turns["turns"][0].clone())
}

#[test]
fn a_task_without_a_session_is_stopped_when_its_client_goes_and_one_in_a_session_goes_on() {
    let server = silent();
    let daemon = daemon_with(&server, &[], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let (host, bearer) = (door.host(), format!("Bearer {ci}"));
    let headers = [("host", host.as_str()), ("authorization", bearer.as_str())];
    let user = json!([{"role": "user", "content": "hello"}]);
    for (path, body) in [
        ("/v1/agents/haiku/run", json!({"task": "hello"})),
        ("/v1/chat/completions", json!({"model": "haiku", "messages": user})),
        ("/v1/messages", json!({"model": "haiku", "max_tokens": 9, "messages": user, "stream": true})),
    ] {
        let asked = server.requests().len();
        let client = door.begin("POST", path, &headers, &body.to_string());
        until("the model is asked", || (server.requests().len() > asked).then_some(())).expect("it is asked");
        drop(client);
        let stopped = until("it is stopped", || {
            let sessions = door.get(&ci, "/v1/sessions").json();
            let last = sessions.as_array()?.iter().max_by_key(|one| one["created"].as_str())?["id"].clone();
            ended(&door.get(&ci, &format!("/v1/sessions/{}", last.as_str()?)).json())
        });
        assert_eq!(stopped.expect("the turn ends")["class"], "cancelled", "{path}");
    }
    let asked = server.requests().len();
    let body = json!({"task": "hello", "session": "token.ci:lasts"}).to_string();
    let client = door.begin("POST", "/v1/agents/haiku/run", &headers, &body);
    until("the model is asked", || (server.requests().len() > asked).then_some(())).expect("it is asked");
    drop(client);
    // By then the door has seen the connection end.
    assert_eq!(door.get(&ci, "/readyz").status, 200);
    let session = door.get(&ci, "/v1/sessions/token.ci:lasts").json();
    assert!(session["turns"][0]["status"].is_null(), "it goes on: {session}");
    assert_eq!(door.post(&ci, "/v1/sessions/token.ci:lasts/stop", &json!({})).json()["stopped"], 1);
}

#[test]
fn a_task_whose_client_goes_while_it_is_handed_in_is_stopped_as_well() {
    let server = silent();
    let daemon = daemon_with(&server, &[], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let (host, bearer) = (door.host(), format!("Bearer {ci}"));
    let headers = [("host", host.as_str()), ("authorization", bearer.as_str())];
    let body = json!({"task": "hello"}).to_string();
    // Each at another moment of what is done then.
    for moment in 0..60 {
        let client = door.begin("POST", "/v1/agents/haiku/run", &headers, &body);
        thread::sleep(Duration::from_micros(100 * moment));
        drop(client);
    }
    let client = door.begin("POST", "/v1/agents/haiku/run", &headers, &body);
    until("a model is asked", || (!server.requests().is_empty()).then_some(())).expect("it is asked");
    drop(client);
    let open = || {
        let sessions = door.get(&ci, "/v1/sessions").json();
        let ids = sessions.as_array().expect("a list").iter().filter_map(|one| one["id"].as_str());
        ids.filter(|id| ended(&door.get(&ci, &format!("/v1/sessions/{id}")).json()).is_none()).count()
    };
    until("all are stopped", || (open() == 0).then_some(())).expect("none goes on");
}

#[test]
fn a_connection_too_many_is_taken_in_when_there_is_room() {
    let server = ModelServer::obedient();
    let daemon = daemon_with(&server, &[("DRUPE_EXTENSIONS__HTTP__MAX_CONNECTIONS", "2")], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let (host, bearer) = (door.host(), format!("Bearer {ci}"));
    let headers = [("host", host.as_str()), ("authorization", bearer.as_str())];
    let open = || door.open("GET", "/events?session=token.ci", &headers, "");
    let (first, second) = (open(), open());
    assert_eq!((first.status, second.status), (200, 200));
    let mut third = door.begin("GET", "/healthz", &[("host", host.as_str()), ("connection", "close")], "");
    // A slow machine makes this pass, never fail.
    third.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket has one");
    let mut answer = String::new();
    assert!(third.read_to_string(&mut answer).is_err(), "there is no room: {answer}");
    drop(first);
    third.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a socket has one");
    third.read_to_string(&mut answer).expect("there is room");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn more_idle_connections_than_a_process_usually_has_files_keep_nobody_waiting() {
    const IDLE: usize = 1500;
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if most < 4 * IDLE as u64 {
        println!("skipped: the system allows {most} files");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) })
        .expect("it may be raised");
    let server = ModelServer::obedient();
    let daemon = daemon_with(&server, &[], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let host = door.host();
    let idle: Vec<_> = (0..IDLE).map(|_| door.begin("GET", "/healthz", &[("host", &host)], "")).collect();
    assert_eq!(door.get(&ci, "/v1/haiku?q=hello").status, 200);
    drop(idle);
}
