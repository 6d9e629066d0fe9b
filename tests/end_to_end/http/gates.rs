//! What there is room for, and what a client is told when too much waits already: to come again, in the words of whoever's
//! client it is.

use std::{
    io::{ErrorKind, Read},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{daemon_with, door, token};
use crate::harness::{PATIENCE, model_server::ModelServer};

/// Messages of the bearer of one token that may wait: `MOST_OF_ONE` of the kernel.
const MOST: usize = 256;

#[test]
fn whoever_has_too_many_turns_waiting_is_told_to_come_again_in_every_form() {
    let server = ModelServer::start(|_| {
        loop {
            thread::park();
        }
    });
    let daemon = daemon_with(&server, &[], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci", "--may", "read,submit,direct"]));
    let bearer = format!("Bearer {ci}");
    let path = "/v1/sessions/token.ci:busy/messages";
    // The first of them runs.
    let mut answers = (0..MOST + 2).map(|_| door.post(&ci, path, &json!({"text": "hello"})));
    let refused = answers.find(|answer| answer.status != 202).expect("there is no room any more");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "busy");
    let user = json!([{"role": "user", "content": "hello"}]);
    for (path, body, status, said) in [
        ("/v1/agents/haiku/run", json!({"task": "hello"}), 503, "busy"),
        ("/v1/chat/completions", json!({"model": "haiku", "messages": user}), 503, "overloaded"),
        ("/v1/responses", json!({"model": "haiku", "input": "hello"}), 503, "overloaded"),
        (
            "/v1/messages",
            json!({"model": "haiku", "max_tokens": 9, "messages": user}),
            529,
            "overloaded_error",
        ),
    ] {
        let refused = door.send("POST", path, &[("authorization", &bearer)], &body.to_string());
        assert_eq!(
            (refused.status, refused.header("retry-after")),
            (status, Some("1")),
            "{path}: {refused:?}"
        );
        let error: Value = refused.json()["error"].clone();
        assert!([&error["code"], &error["type"]].contains(&&json!(said)), "{path}: {error}");
        if path != "/v1/agents/haiku/run" {
            assert_eq!(refused.header("x-should-retry"), Some("true"), "{path}");
        }
    }
    // Those of others are taken in.
    let other = token(&daemon, &["other"]);
    assert_eq!(door.post(&other, "/v1/sessions/token.other/messages", &json!({"text": "hello"})).status, 202);
}

#[test]
fn so_many_connections_are_held_and_bodies_are_so_long() {
    let server = ModelServer::obedient();
    let [most, longest] =
        ["MAX_CONNECTIONS", "MAX_BODY_KB"].map(|key| format!("DRUPE_EXTENSIONS__HTTP__{key}"));
    let daemon = daemon_with(&server, &[(&most, "2"), (&longest, "1")], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let long = door.post(&ci, "/v1/agents/haiku/run", &json!({"task": "x".repeat(1024)}));
    assert!(long.status == 413 && long.body.contains("extensions.http.max_body_kb"), "{long:?}");
    assert_eq!(door.post(&ci, "/v1/agents/haiku/run", &json!({"task": "hello"})).status, 200);

    let (host, mut first) = (door.host(), [0]);
    let begin = || door.begin("GET", "/healthz", &[("host", &host)], "");
    let [mut held, mut other] = [begin(), begin()];
    // Each is answered and stays open.
    assert!([&mut held, &mut other].into_iter().all(|one| one.read_exact(&mut first).is_ok()));
    let mut waits = begin();
    waits.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket has one");
    let nothing = waits.read_exact(&mut first).expect_err("there is no room").kind();
    assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&nothing), "{nothing:?}");
    waits.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    drop(held);
    waits.read_exact(&mut first).expect("a place is free again");
}
