//! The log in files of the home.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say},
    until,
};

const SECRET: &str = "sk-of-nobody-0123456789";

/// All of the log, the oldest first.
fn kept(daemon: &Daemon) -> String {
    let file = |name: String| fs::read_to_string(daemon.path().join("state").join(name)).unwrap_or_default();
    let older = (1..10).rev().map(|number| file(format!("drupe.log.{number}")));
    older.chain([file("drupe.log".into())]).collect()
}

#[test]
fn the_log_is_kept_in_files_of_the_home_over_restarts_whole_and_without_secrets() {
    let server = ModelServer::start(|_| Say::Text("hello".into()));
    // Everything is said, so that a file of the smallest size fills.
    let log = "log: trace\nlog_file: {enabled: true, max_mb: 1, keep: 2}\n";
    let mut daemon = Daemon::home(&(server.config().replace("api_key: none", "api_key: ${KEY}") + log));
    daemon.variable("KEY", SECRET);
    daemon.run();
    let first = until("it begins", || Some(kept(&daemon)).filter(|log| log.contains("\"ready\"")));
    let first = first.unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(
        first.contains("kernel 1 starts"),
        "what was said before the configuration was read is there: {first}"
    );
    let path = daemon.path().join("state/drupe.log");
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    daemon.kill_kernel();
    let second = until("it goes on", || Some(kept(&daemon)).filter(|log| log.contains("kernel 2 starts")));
    assert!(second.is_some_and(|log| log.contains("kernel 1 starts")));
    let full = || daemon.path().join("state/drupe.log.1").exists().then_some(());
    let filled = until("a file is full", || {
        let text = format!("{SECRET} {}", "x".repeat(2_000));
        daemon.turn("main", &text);
        full()
    });
    assert!(filled.is_some(), "{}", fs::metadata(&path).expect("it is there").len());
    daemon.says(&["stop"]);
    daemon.ended();
    let all = kept(&daemon);
    assert!(!all.contains(SECRET));
    for line in all.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    let size =
        |name: &str| fs::metadata(daemon.path().join("state").join(name)).map_or(0, |found| found.len());
    assert!(size("drupe.log") <= 1 << 20 && size("drupe.log.1") <= 1 << 20 && size("drupe.log.3") == 0);
}
