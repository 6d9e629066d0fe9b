//! Messages that an extension hands in: what they wait for, what keeps them from others, and where they end.

use std::{fs, path::Path};

use drupe_link::Home;
use serde_json::{Value, json};

use crate::harness::{Client, Daemon, until};

/// A daemon with an extension that hands messages in.
fn house(config: &str) -> Daemon {
    let mut daemon = Daemon::home(config);
    daemon.plugin("post", "watcher", "rights: [submit]\nconfig: {prefix: post}\n");
    daemon.run();
    daemon
}

/// A message whose turn goes on until that file is there.
fn hold(file: &Path) -> String {
    format!("post_hold {}", json!({"until": file}))
}

fn send(message: &Value) -> String {
    format!("post_send {message}")
}

/// Has the extension hand messages in by itself; what came of it.
fn hand_in(daemon: &Daemon, message: &Value) -> String {
    let file = daemon.path().join("data/post/handed_in.jsonl");
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("text")).collect()
    };
    let before = lines().len();
    let mut detached = message.clone();
    detached["detached"] = json!(true);
    let turn = daemon.turn("sender", &send(&detached));
    assert_eq!(turn["status"], "success", "{turn}");
    until("it was handed in", || lines().into_iter().nth(before))
        .unwrap_or_else(|| panic!("{}", daemon.log()))
}

/// The turns of a session, which need not be there.
fn turns(daemon: &Daemon, session: &str) -> Vec<Value> {
    let shown = daemon.client().ask("sessions.show", json!({"id": session}));
    shown.map_or_else(|_| Vec::new(), |shown| shown["turns"].as_array().expect("turns").clone())
}

/// Waits until all of them have ended.
fn until_ended(daemon: &Daemon, session: &str) -> Vec<Value> {
    let ended = || {
        let turns = turns(daemon, session);
        (!turns.is_empty() && turns.iter().all(|turn| !turn["status"].is_null())).then_some(turns)
    };
    until("the turns have ended", ended).unwrap_or_else(|| panic!("{session}\n{}", daemon.log()))
}

fn until_there(daemon: &Daemon, file: &Path) {
    until("the file is there", || file.exists().then_some(())).unwrap_or_else(|| panic!("{}", daemon.log()));
}

#[test]
fn a_message_is_answered_while_a_tool_of_the_same_extension_works_for_another_one() {
    let daemon = house("");
    let file = daemon.path().join("go");
    assert_eq!(hand_in(&daemon, &json!({"session": "post:alice", "text": hold(&file)})), "all taken in");
    until_there(&daemon, &file.with_extension("begun"));
    // More than a chain of messages may have links.
    for n in 0..10 {
        let session = format!("post:bob{n}");
        assert_eq!(hand_in(&daemon, &json!({"session": session, "text": "hello"})), "all taken in");
        let turns = until_ended(&daemon, &session);
        assert_eq!(turns[0]["status"], "success", "{turns:#?}");
    }
    fs::write(&file, "").expect("a file");
    assert_eq!(until_ended(&daemon, "post:alice")[0]["status"], "success");
}

#[test]
fn a_tool_that_hands_in_messages_whose_turns_call_it_again_ends() {
    let daemon = house("");
    let last = json!({"session": "post:two", "text": "hello"});
    let again = json!({"session": "post:one", "text": send(&last)});
    let turn = daemon.turn("s", &send(&again));
    assert_eq!(turn["status"], "success", "{turn}");
    let turns = until_ended(&daemon, "post:one");
    assert_eq!((turns.len(), &turns[0]["status"]), (1, &json!("error")), "{turns:#?}");
    assert!(turns[0].to_string().contains("already working on this"), "{turns:#?}");
    assert!(self::turns(&daemon, "post:two").is_empty());
}

#[test]
fn what_one_extension_hands_in_leaves_room_for_others_and_ends_when_the_operator_turns_it_off() {
    let daemon = house("limits: {concurrency: {turns: 2}}\n");
    let file = daemon.path().join("go");
    hand_in(&daemon, &json!({"session": "post:works", "text": hold(&file)}));
    until_there(&daemon, &file.with_extension("begun"));
    let told = hand_in(&daemon, &json!({"session": "post:waits", "text": "hello", "count": 300}));
    assert!(told.starts_with("256 taken in; then: "), "{told}");
    assert!(told.contains("256 messages of extension `post` wait to be answered already"), "{told}");
    // The operator's own are answered beside them.
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    assert!(turns(&daemon, "post:waits0")[0]["status"].is_null(), "it waits for its share");
    daemon.says(&["ext", "disable", "post"]);
    daemon.until_status("what waited has ended", |status| status["queued_turns"] == 0);
    for n in [0, 255] {
        let turns = until_ended(&daemon, &format!("post:waits{n}"));
        assert_eq!(turns[0]["status"], "error", "{turns:#?}");
        assert!(turns[0].to_string().contains("extension `post` does not work"), "{turns:#?}");
    }
    fs::write(&file, "").expect("a file");
    let turns = until_ended(&daemon, "post:works");
    assert_eq!(turns[0]["status"], "success", "what has begun goes on to its end: {turns:#?}");
}

#[test]
fn what_waits_of_an_extension_that_the_next_kernel_does_not_start_ends_with_the_reason() {
    let daemon = house("limits: {concurrency: {turns: 2}}\ndrain_timeout_ms: 100\n");
    let file = daemon.path().join("go");
    hand_in(&daemon, &json!({"session": "post:works", "text": hold(&file)}));
    until_there(&daemon, &file.with_extension("begun"));
    assert_eq!(
        hand_in(&daemon, &json!({"session": "post:waits", "text": "hello", "count": 3})),
        "all taken in"
    );
    let config = fs::read_to_string(daemon.path().join("drupe.yaml")).expect("a configuration");
    daemon.write("drupe.yaml", &(config + "extensions: {post: {enabled: false}}\n"));
    for n in 0..3 {
        let turns = until_ended(&daemon, &format!("post:waits{n}"));
        assert!(turns[0].to_string().contains("extension `post` does not work"), "{turns:#?}");
    }
    // What has begun goes on, without the tool that it called.
    until_ended(&daemon, "post:works");
}

#[test]
fn what_the_bearer_of_a_token_hands_in_leaves_room_for_others() {
    let daemon = house("limits: {concurrency: {turns: 2}}\n");
    let made = daemon.drupe(&["token", "new", "ci", "--may", "submit,read"]);
    let token = String::from_utf8(made.stdout).expect("a token");
    let home = Home::new(daemon.path()).expect("a home");
    let mut ci = Client::with_token(&home, token.trim()).expect("it is let in");
    let mut submit = |n: usize, text: &str| {
        let session = format!("token.ci:{n}");
        ci.ask("turn.submit", json!({"session": session, "external_id": n.to_string(), "text": text}))
    };
    let file = daemon.path().join("go");
    submit(0, &hold(&file)).expect("it is taken in");
    until_there(&daemon, &file.with_extension("begun"));
    let refused = (1..300).find_map(|n| submit(n, "hello").err().map(|error| (n, error)));
    let (taken, error) = refused.expect("not all are taken in");
    assert_eq!(taken, 257, "{error}");
    assert!(error.contains("256 messages of the bearer of `token:ci` wait"), "{error}");
    // The operator's own are answered beside them.
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    assert!(turns(&daemon, "token.ci:1")[0]["status"].is_null(), "it waits for its share");
    fs::write(&file, "").expect("a file");
    for n in [0, 1, 256] {
        assert_eq!(until_ended(&daemon, &format!("token.ci:{n}"))[0]["status"], "success");
    }
}
