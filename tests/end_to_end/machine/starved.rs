//! A kernel that gets no more memory.

use std::{sync::Mutex, thread};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use super::kernel;
use crate::harness::{Client, Daemon, unique, until};

/// Has a process get no more memory of its own than it has, and so many bytes.
fn no_more_than(pid: u32, more: u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let size = status.lines().find_map(|line| line.strip_prefix("VmData:")).expect("a size");
    let kilobytes: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    let most = Some(kilobytes * 1024 + more);
    let process = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    prlimit(Some(process), Resource::Data, Rlimit { current: most, maximum: most }).expect("a limit");
}

#[test]
fn a_kernel_without_memory_is_replaced_and_what_it_took_in_is_answered() {
    let daemon = Daemon::start("");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let first = kernel(&daemon);
    no_more_than(first, 1 << 20);
    let text = "x".repeat(900_000);
    let accepted = Mutex::new(Vec::new());
    // At once, and until it has had more of them than there is room for.
    let push = || {
        let message = json!({"external_id": unique(), "session": unique(), "text": text});
        let Ok(mut client) = Client::connect(daemon.path()) else { return };
        if let Ok(taken) = client.ask("turn.submit", message) {
            accepted.lock().expect("no panic").push(taken["turn"].as_str().expect("a turn").to_owned());
        }
    };
    let replaced = until("another kernel serves", || {
        thread::scope(|scope| (0..12).for_each(|_| drop(scope.spawn(push))));
        let status = Client::connect(daemon.path()).ok()?.ask("status", json!({})).ok()?;
        (status["kernel_pid"] != first).then_some(status)
    });
    let status = replaced.unwrap_or_else(|| panic!("{}", daemon.log()));
    let exits: Vec<Value> = status["exits"].as_array().expect("a list").clone();
    assert!(exits[0]["how"].as_str().is_some_and(|how| how.contains("SIGABRT")), "{exits:?}");
    assert!(exits[0]["last_lines"].to_string().contains("memory"), "it says why: {exits:?}");
    assert!(exits[0]["blamed"].as_array().is_none_or(Vec::is_empty), "{exits:?}");
    for turn in accepted.lock().expect("no panic").iter() {
        // They are larger than what the model reads, which is said.
        assert!(daemon.wait(turn)["status"].is_string(), "{}", daemon.log());
    }
    let after = daemon.until_ready();
    assert_eq!((&after["safe_mode"], &after["restarts"]), (&json!(false), &json!(1)), "{after}");
}
