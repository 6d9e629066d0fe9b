//! Messages that an extension hands in: what they wait for, what keeps them from others, and where they end.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::harness::{Daemon, until};

/// A daemon with an extension that hands messages in.
fn house(config: &str) -> Daemon {
    let mut daemon = Daemon::home(config);
    daemon.plugin("post", "watcher", "rights: [submit]\nconfig: {prefix: post}\n");
    daemon.run();
    daemon
}

/// A message whose turn goes on until that file is there.
fn hold(file: &PathBuf) -> String {
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

fn until_there(daemon: &Daemon, file: &PathBuf) {
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
