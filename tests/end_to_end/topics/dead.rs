//! Dead letters: how many are kept, and which are not delivered again.

use serde_json::json;

use super::{dead, follower, publish, put, scene, turns, until_dead, until_turns};
use crate::harness::{Daemon, text, until};

/// Waits until that many were let go; gives how many are left.
fn until_let_go(daemon: &Daemon, count: u64) -> usize {
    let there = || Some(dead(daemon)).filter(|all| all.first().is_some_and(|d| d["let_go"] == count));
    until("some were let go", there)
        .unwrap_or_else(|| panic!("{}\n{}", dead(daemon).len(), daemon.log()))
        .len()
}

/// How often the log says that some are let go.
fn said(daemon: &Daemon) -> usize {
    daemon.log().matches("the oldest are let go").count()
}

#[test]
fn a_thousand_dead_letters_are_kept_and_what_is_let_go_is_counted_over_a_crash_and_said_once() {
    const TURNS: u64 = 6;
    const EACH: u64 = 170;
    let away = |topic: &str| follower("clerk", &[topic], "depends_on: [helper]\n");
    let (_server, daemon) = scene(|d| {
        put(d, "clerk", &away("press.note"));
        let limits = "  limits: {max_tool_calls_per_step: 256}\n";
        put(d, "loud", &(follower("loud", &["press.never"], "") + limits));
    });
    for turn in 0..TURNS {
        let burst = format!("burst {}", json!({"from": turn * EACH, "to": (turn + 1) * EACH}));
        let ended = daemon.turn(&format!("s{turn}"), &format!("agent_loud {}", json!({"task": burst})));
        assert_eq!(ended["status"], "success", "{ended}");
    }
    // What waits for it when it follows another topic is given up.
    put(&daemon, "clerk", &away("press.else"));
    assert_eq!(until_let_go(&daemon, TURNS * EACH - 1_000), 1_000);
    assert_eq!(said(&daemon), 1, "{}", daemon.log());
    assert_eq!(dead(&daemon)[0]["id"], TURNS * EACH - 1_000 + 1, "the oldest are gone");
    daemon.kill_kernel();
    daemon.until_ready();
    assert_eq!(until_let_go(&daemon, 20), 1_000);
    let shown = daemon.says(&["bus", "dead"]);
    assert!(shown.contains("agent:clerk: 20 older messages were let go"), "{shown}");

    assert_eq!(said(&daemon), 1);
    for n in 0..2 {
        publish(&daemon, "else", &json!({"n": n}));
    }
    put(&daemon, "clerk", &away("press.note"));
    assert_eq!(until_let_go(&daemon, 22), 1_000);
    assert_eq!(said(&daemon), 2, "once for each start of the kernel");
}

#[test]
fn a_message_that_its_follower_does_not_follow_any_more_is_not_delivered_again() {
    let (_server, daemon) =
        scene(|d| put(d, "clerk", &follower("clerk", &["press.note"], "depends_on: [helper]\n")));
    publish(&daemon, "note", &json!({"n": 1}));
    put(&daemon, "clerk", &follower("clerk", &["press.else"], ""));
    let letter = until_dead(&daemon, 1).remove(0);
    let number = letter["id"].to_string();
    daemon.until_extension("clerk", "active");
    let refused = daemon.drupe(&["bus", "dead", "retry", &number]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("`agent:clerk` does not follow `press.note` any more"), "{said}");
    assert!(said.contains(&format!("`drupe bus dead drop {number}`")), "{said}");
    assert_eq!(dead(&daemon), [letter], "it is as it was");
    // What it says helps.
    put(&daemon, "clerk", &follower("clerk", &["press.note"], ""));
    let retried = || daemon.drupe(&["bus", "dead", "retry", &number]).status.success().then_some(());
    until("it follows again", retried).expect("it can be delivered again");
    assert_eq!(until_turns(&daemon, "clerk", 1)[0]["status"], "success");
    assert!(dead(&daemon).is_empty() && turns(&daemon, "clerk").len() == 1);
}
