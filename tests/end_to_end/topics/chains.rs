//! Where chains of messages end: at an agent that is part of them, and at their length.

use serde_json::json;

use super::{
    correlation, dead, follower, publish, put, requests, scene, told, turns, until_dead, until_turns,
};
use crate::harness::until;

#[test]
fn an_agent_that_its_own_message_would_set_off_is_not_asked() {
    let (server, daemon) = scene(|d| put(d, "clerk", &follower("clerk", &["press.note"], "")));
    publish(&daemon, "note", &json!({"then": {"topic": "note", "payload": {"n": 2}}}));
    let given_up = until_dead(&daemon, 1);
    until_turns(&daemon, "clerk", 1);
    assert_eq!(given_up.len(), 1, "{given_up:#?}");
    assert_eq!(
        (&given_up[0]["subscriber"], &given_up[0]["topic"]),
        (&json!("agent:clerk"), &json!("press.note"))
    );
    let reason = given_up[0]["reason"].as_str().expect("text");
    assert!(reason.contains("comes back to agent `clerk`"), "{reason}");
    assert_eq!(vec![given_up[0]["correlation_id"].clone()], correlation(&daemon, "s"));
    // Behind it in the same order comes one that is answered, so the other one was not.
    publish(&daemon, "note", &json!({"n": 3}));
    assert_eq!(until_turns(&daemon, "clerk", 2).len(), 2);
    let asked = requests(&server, "clerk");
    assert_eq!(asked.len(), 3, "two steps of the first turn, one of the last: {asked:#?}");
    assert_eq!(told(&daemon, "clerk"), 1);
}

#[test]
fn two_agents_that_set_each_other_off_end_after_one_round() {
    let (server, daemon) = scene(|d| {
        put(d, "ping", &follower("ping", &["press.ping"], ""));
        put(d, "pong", &follower("pong", &["press.pong"], ""));
    });
    let back = json!({"topic": "ping", "payload": {"n": 3}});
    publish(&daemon, "ping", &json!({"then": {"topic": "pong", "payload": {"then": back}}}));
    let given_up = until_dead(&daemon, 1);
    assert_eq!(given_up[0]["subscriber"], "agent:ping");
    assert!(given_up[0]["reason"].as_str().is_some_and(|r| r.contains("ping, pong")), "{given_up:#?}");
    until_turns(&daemon, "pong", 1);
    assert_eq!((turns(&daemon, "ping").len(), turns(&daemon, "pong").len()), (1, 1));
    assert_eq!((requests(&server, "ping").len(), requests(&server, "pong").len()), (2, 2));
}

#[test]
fn a_chain_is_cut_after_eight_links_and_told_once_and_the_operator_decides_what_becomes_of_it() {
    const AGENTS: usize = 10;
    let id = |n: usize| format!("a{n}");
    let (server, daemon) = scene(|d| {
        for n in 0..AGENTS {
            put(d, &id(n), &follower(&id(n), &[&format!("press.t{n}")], ""));
        }
    });
    let chain = (1..AGENTS).rev().fold(
        json!({"end": true}),
        |payload, n| json!({"then": {"topic": format!("t{n}"), "payload": payload}}),
    );
    publish(&daemon, "t0", &chain);
    let given_up = until_dead(&daemon, 1);
    for n in 0..8 {
        assert_eq!(until_turns(&daemon, &id(n), 1).len(), 1, "{n}");
    }
    assert_eq!((turns(&daemon, "a8").len(), turns(&daemon, "a9").len()), (0, 0));
    assert!(requests(&server, "a8").is_empty());
    assert_eq!((given_up.len(), &given_up[0]["subscriber"]), (1, &json!("agent:a8")), "{given_up:#?}");
    assert!(given_up[0]["reason"].as_str().is_some_and(|r| r.contains("after 8 links")), "{given_up:#?}");
    let number = given_up[0]["id"].to_string();
    let why = daemon.says(&["why", &number]);
    assert!(why.contains("was given up for `agent:a8`") && why.contains("deliveries"), "{why}");
    // Tried again it is cut again, and not told again.
    daemon.says(&["bus", "dead", "retry", &number]);
    let again = until_dead(&daemon, 1);
    assert_eq!((again.len(), &again[0]["id"]), (1, &given_up[0]["id"]), "{again:#?}");
    until("it was told", || (told(&daemon, "a8") > 0).then_some(())).expect("it was told");
    assert_eq!(told(&daemon, "a8"), 1);
    daemon.says(&["bus", "dead", "drop", &number]);
    assert!(dead(&daemon).is_empty());
    let gone = daemon.drupe(&["bus", "dead", "drop", &number]);
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
}
