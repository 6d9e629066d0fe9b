//! Where chains of messages end: at an agent that is part of them, and at their length.

use serde_json::json;

use super::{
    correlation, dead, follower, publish, put, requests, scene, session_of, told, turns, until_cut,
    until_dead, until_turns,
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
fn what_an_extension_says_by_itself_reaches_an_agent_for_which_it_works_at_something_else() {
    let (_server, daemon) = scene(|d| put(d, "clerk", &follower("clerk", &["press.note"], "")));
    let file = daemon.path().join("go");
    let held = daemon.submit("held", &format!("@clerk press_hold {}", json!({"until": file})));
    let begun = || file.with_extension("begun").exists().then_some(());
    until("the call goes on", begun).unwrap_or_else(|| panic!("{}", daemon.log()));
    let said = json!({"topic": "note", "payload": {"n": 1}, "detached": true});
    assert_eq!(daemon.turn("s", &format!("press_emit {said}"))["status"], "success");
    assert_eq!(until_turns(&daemon, "clerk", 1)[0]["status"], "success");
    assert!(dead(&daemon).is_empty(), "{:#?}", dead(&daemon));
    std::fs::write(&file, "").expect("a file");
    assert_eq!(daemon.wait(&held)["status"], "success");
}

#[test]
fn a_circle_of_messages_that_an_extension_says_by_itself_in_its_calls_ends() {
    let (server, daemon) = scene(|d| put(d, "clerk", &follower("clerk", &["press.note"], "")));
    let again = |payload| json!({"topic": "note", "detached": true, "payload": payload});
    let circle = (0..12).fold(json!({"end": true}), |payload, _| json!({"then": again(payload)}));
    assert_eq!(daemon.turn("s", &format!("press_emit {}", again(circle)))["status"], "success");
    let given_up = until_dead(&daemon, 1);
    assert!(given_up[0]["reason"].as_str().is_some_and(|r| r.contains("after 8 links")), "{given_up:#?}");
    assert_eq!(until_turns(&daemon, "clerk", 8).len(), 8);
    assert_eq!(requests(&server, "clerk").len(), 16, "two steps each");
}

#[test]
fn an_agent_that_follows_its_own_results_has_one_dead_letter_however_often_it_runs() {
    const RUNS: u64 = 4;
    let (server, daemon) = scene(|d| put(d, "clerk", &follower("clerk", &["agent_result"], "")));
    for run in 1..=RUNS {
        // A turn of another agent sets it off, and its own result is cut.
        assert_eq!(daemon.turn(&format!("s{run}"), "hello")["status"], "success");
        let letters = until_cut(&daemon, run);
        assert_eq!((letters.len(), &letters[0]["cut"]), (1, &json!(run)), "{letters:#?}");
        assert_eq!(letters[0]["payload"]["agent"], "clerk");
        assert_eq!(vec![letters[0]["correlation_id"].clone()], correlation(&daemon, &format!("s{run}")));
        let heard = || (told(&daemon, "clerk") as u64 == run).then_some(());
        until("it was told", heard).unwrap_or_else(|| panic!("{}", daemon.log()));
        if run == 2 {
            daemon.kill_kernel();
        }
    }
    assert_eq!(requests(&server, "clerk").len() as u64, RUNS);
    let letter = dead(&daemon).remove(0);
    let number = letter["id"].to_string();
    let shown = daemon.says(&["bus", "dead"]);
    assert!(shown.contains("the latest of 4 that were cut: the chain of events is cut"), "{shown}");
    let why = daemon.says(&["why", &number]);
    assert!(
        why.contains("latest of 4 that were cut") && why.contains("comes back to agent `clerk`"),
        "{why}"
    );
    // What is told names the letter, whatever message it was told of.
    let named = format!("message {number} of `agent_result`");
    let given_up = |e: &serde_json::Value| e["data"]["code"] == "event_given_up";
    let mut events = daemon.events(&session_of(&daemon, "clerk"));
    events.retain(given_up);
    assert!(events.iter().all(|e| e.to_string().contains(&named)), "{events:#?}");
    // Delivered again it is cut again, and no message more.
    daemon.says(&["bus", "dead", "retry", &number]);
    assert_eq!(until_dead(&daemon, 1), [letter]);
    assert_eq!(requests(&server, "clerk").len() as u64, RUNS);
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
