//! What goes out to people and programs that wrote nothing: copies of what is told in conversations, and the channels that carry them.

mod push;
mod receiver;
mod webhooks;

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    unique, until,
};

/// All that a channel of the library `serving` was given.
fn carried(daemon: &Daemon, channel: &str) -> Vec<String> {
    let file = daemon.path().join("data").join(channel).join("all");
    let all = fs::read_to_string(file).unwrap_or_default();
    all.lines().map(|line| serde_json::from_str(line).expect("a text")).collect()
}

/// Waits until a channel was given so many messages.
fn until_carried(daemon: &Daemon, channel: &str, count: usize) -> Vec<String> {
    until("they are sent", || Some(carried(daemon, channel)).filter(|all| all.len() >= count))
        .unwrap_or_else(|| panic!("{:?}\n{}", carried(daemon, channel), daemon.log()))
}

/// Has a schedule done soon, once, with a model that says what the first line of its message is.
fn briefing() -> ModelServer {
    ModelServer::start(|request| {
        let (_, text) = latest(request);
        Say::Text(format!("I did: {}", text.lines().next().unwrap_or_default()))
    })
}

#[test]
fn a_briefing_reaches_a_phone_once_and_nobody_else_is_disturbed() {
    let server = briefing();
    let copies = "copies:\n  - { session: 'schedule:briefing:*', channel: phone }\n  - { session: talk, channel: phone, address: a }\n";
    let mut daemon = Daemon::home(&(server.config() + copies));
    daemon.plugin("phone", "serving", "config: {prefix: phone}\n");
    daemon.plugin("other", "serving", "config: {prefix: other}\n");
    daemon.run();
    // Nobody has ever written, so there is no conversation that it could be shown in.
    daemon.says(&["schedule", "add", "briefing", "in 1s", "the news"]);
    assert_eq!(until_carried(&daemon, "phone", 1), ["I did: the news"]);
    daemon.kill_kernel();
    // What is said elsewhere is nobody's to copy; what is empty is not sent.
    daemon.turn("main", "hello");
    daemon.turn("talk", "good day");
    assert_eq!(until_carried(&daemon, "phone", 2)[1], "I did: good day");
    assert_eq!(
        (carried(&daemon, "phone").len(), carried(&daemon, "other").len()),
        (2, 0),
        "{}",
        daemon.log()
    );
}

#[test]
fn what_a_schedule_says_reaches_a_place_once_although_rules_hold_of_both_conversations_that_are_told() {
    let server = briefing();
    let copies = "copies:\n  - { session: '*', channel: phone }\n  - { session: main, channel: other }\n";
    let mut daemon = Daemon::home(&(server.config() + copies));
    daemon.plugin("phone", "serving", "config: {prefix: phone}\n");
    daemon.plugin("other", "serving", "config: {prefix: other}\n");
    daemon.run();
    daemon.turn("main", "hello");
    daemon.says(&["schedule", "add", "briefing", "in 1s", "the news"]);
    // Where no rule holds of the schedule's own conversation, the other one's is copied.
    assert_eq!(until_carried(&daemon, "other", 2), ["I did: hello", "`briefing`: I did: the news"]);
    daemon.turn("main", "good day");
    assert_eq!(until_carried(&daemon, "phone", 3), ["I did: hello", "I did: the news", "I did: good day"]);
}

#[test]
fn a_question_is_copied_and_answered_elsewhere() {
    let effects = std::env::temp_dir().join(format!("copies-{}", unique()));
    let call = json!({"path": effects, "nonce": "n"});
    let server = ModelServer::start(move |request| match latest(request) {
        (role, text) if role == "tool" => Say::Text(text),
        _ => Say::Call(vec![("careful_effect_append".to_owned(), call.clone())]),
    });
    let copies = "copies: [{ session: main, channel: phone }]\n";
    let mut daemon = Daemon::home(&(server.config() + copies));
    daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
    daemon.plugin("phone", "serving", "config: {prefix: phone}\n");
    daemon.run();
    let turn = daemon.submit("main", "go");
    let question = until_carried(&daemon, "phone", 1).remove(0);
    assert!(question.contains("may call `careful_effect_append`"), "{question}");
    assert!(question.contains("`drupe approvals allow "), "{question}");
    let list = daemon.client().ask("approvals.list", json!({})).expect("a list");
    let waits = |one: &&Value| one["state"] == "pending" && one["call"].is_object();
    let waiting = list.as_array().expect("a list").iter().find(waits).expect("it waits").clone();
    daemon
        .client()
        .ask("approvals.answer", json!({"id": waiting["id"], "allow": false}))
        .expect("it is taken");
    daemon.wait(&turn);
    until_carried(&daemon, "phone", 2);
    assert_eq!(
        carried(&daemon, "phone").len(),
        2,
        "the question comes once: {:?}",
        carried(&daemon, "phone")
    );
}
