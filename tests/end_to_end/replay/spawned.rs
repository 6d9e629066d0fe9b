//! Agents that worked beside others, and beyond the turn, replayed each by itself.

use serde_json::{Value, json};

use super::{alter, scenes, the_same};
use crate::harness::{Daemon, text};

#[test]
fn agents_that_worked_beside_others_and_beyond_the_turn_are_replayed_by_themselves() {
    let (server, mut daemon) = scenes::start(Daemon::home);
    scenes::spawned(&daemon);
    let sessions = scenes::sessions(&daemon);
    let below = sessions.iter().find(|id| id.starts_with("work:a-")).expect("one outlived the turn");
    let asked = server.requests().len();
    let report = the_same(&daemon, "work");
    let turns = report["turns"].as_array().expect("a list");
    assert_eq!(turns.len(), 2, "{report:#}");
    // The orchestrator; one that was told more, one that was asked twice, the described one, and the closed one.
    assert_eq!((&turns[0]["runs"], &turns[1]["runs"]), (&json!(6), &json!(1)), "{report:#}");
    assert_eq!(
        turns[0]["remarks"],
        json!([
            "`keeper` is replayed up to where it was closed, or ended with whoever had spawned it: at which moment is not replayed"
        ]),
        "{report:#}"
    );
    let report = the_same(&daemon, below);
    assert_eq!(
        (&report["turns"][0]["runs"], &report["turns"][0]["steps"]),
        (&json!(1), &json!(2)),
        "{report:#}"
    );
    assert_eq!(server.requests().len(), asked, "no model is asked");

    daemon.says(&["stop"]);
    daemon.ended();
    // What the one read that was told more, and what the described one was given by its tool.
    let read = |entry: &mut Value| entry["entry"] == "note" && entry["given_by"].is_string();
    alter(daemon.path(), |entry| {
        let is_it = read(entry);
        if is_it {
            entry["message"]["content"] = json!("in German");
        }
        is_it
    });
    differs(&mut daemon, "of `keeper`, step 1: the note", Some("in German"));
    alter(daemon.path(), |entry| {
        let is_it = read(entry);
        if is_it {
            entry["message"]["content"] = json!("in French");
        }
        is_it
    });
    alter(daemon.path(), |entry| {
        let is_it = entry["entry"] == "result" && entry["tool"] == "kv_list";
        if is_it {
            entry["content"] = json!("something else");
        }
        is_it
    });
    differs(&mut daemon, "of `orchestrator-inline`, step 2: the request to the model", None);
}

/// The first turn differs so, and the one that came of it does not. Stops the daemon again.
fn differs(daemon: &mut Daemon, what: &str, recorded: Option<&str>) {
    daemon.run();
    let output = daemon.drupe(&["replay", "work"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}{}", text(&output.stderr));
    assert!(shown.contains(what) && shown.contains("1 the same, 1 with"), "{shown}");
    assert!(recorded.is_none_or(|recorded| shown.contains(recorded)), "{shown}");
    daemon.says(&["stop"]);
    daemon.ended();
}
