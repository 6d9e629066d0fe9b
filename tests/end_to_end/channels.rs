//! Answers on their way to people through channels.

use std::fs;

use serde_json::json;

use crate::harness::{Daemon, model_server::ModelServer, unique, until};

/// Hands a message in whose answer goes out through a channel; its turn.
fn submit(daemon: &Daemon, channel: &str, text: &str) -> String {
    let submit = json!({"external_id": unique(), "session": channel, "channel": channel, "text": text});
    let turn = daemon.client().ask("turn.submit", submit).expect("it is taken in");
    let turn = turn["turn"].as_str().expect("a turn").to_owned();
    assert_eq!(daemon.wait(&turn)["status"], "success");
    turn
}

fn until_there(daemon: &Daemon, channel: &str, file: &str, text: &str) {
    let path = daemon.path().join("data").join(channel).join(file);
    until("the channel has it", || fs::read_to_string(&path).ok().filter(|found| found == text))
        .unwrap_or_else(|| panic!("{}: {}", path.display(), daemon.log()));
}

#[test]
fn a_channel_that_takes_its_time_holds_up_no_other() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("slow", "serving", "config: {prefix: slow, holds: true}\n");
    daemon.plugin("quick", "serving", "config: {prefix: quick}\n");
    daemon.run();
    submit(&daemon, "slow", "one");
    until_there(&daemon, "slow", "asked", "one");
    for text in ["two", "three"] {
        submit(&daemon, "quick", text);
        until_there(&daemon, "quick", "sent", text);
    }
    // What the slow one was given is still under way: nobody waited for its end.
    assert!(!daemon.log().contains("nobody knows whether a message arrived"), "{}", daemon.log());
}

#[test]
fn what_a_channel_calls_a_message_is_told_in_a_short_line() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("quick", "serving", "config: {prefix: quick}\n");
    daemon.run();
    let text = format!("one\n- all is well\u{202e} {}", "x".repeat(2_000));
    let turn = submit(&daemon, "quick", &text);
    let told = || {
        let why = daemon.client().ask("why", json!({"id": turn})).ok()?;
        let all = why["sentences"].as_array()?.iter().filter_map(|s| s.as_str().map(str::to_owned));
        all.into_iter().find(|sentence| sentence.contains("there it is `"))
    };
    let told = until("it was sent", told).unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(told.contains("`one - all is well xxx") && told.len() < 500, "{} bytes: {told:.600}", told.len());
}

#[test]
fn a_notice_goes_out_through_the_channel_of_its_session() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("quick", "serving", "config: {prefix: quick}\n");
    daemon.plugin("torture", "torture", "");
    daemon.run();
    submit(&daemon, "quick", "hello");
    until_there(&daemon, "quick", "sent", "hello");
    // The operator's own message comes through no channel, so the latest that did says where the notice goes.
    let notice = json!({"text": "the kettle boils", "times": 1, "session": "quick"});
    daemon.turn("quick", &format!("torture_notify {notice}"));
    until_there(&daemon, "quick", "sent", "`torture`: the kettle boils");
}
