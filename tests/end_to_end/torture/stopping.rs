//! Failures while an extension stops: at a restart that was asked for, and at the end of the daemon.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::{Effort, Row, print_head, scene::Scene};
use crate::harness::Daemon;

#[test]
fn whatever_an_extension_does_in_its_stop_the_daemon_restarts_and_ends() {
    print_head();
    let acts: &[&str] = match Effort::of_this_run().whole {
        true => &["none", "panic", "abort", "segfault", "overflow", "exit", "loop", "deadlock"],
        false => &["none", "panic", "abort", "exit", "deadlock"],
    };
    for isolation in ["inproc", "process"] {
        for act in acts {
            stops(isolation, act);
        }
    }
}

fn stops(isolation: &'static str, act: &str) {
    let mut scene = Scene::run(isolation, &format!("config: {{stop: {act}}}\n"));
    let before = scene.daemon.until_ready();
    let began = Instant::now();
    let agreed = scene.daemon.client().ask("restart", json!({}));
    let after = scene.daemon.until_status("the next kernel", |s| {
        s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"]
    });
    let took = began.elapsed();
    let exit = &after["exits"][0];
    let how = exit["how"].as_str().unwrap_or_default();
    let blamed = exit["blamed"].as_array().cloned().unwrap_or_default();
    let named: Vec<&str> = blamed.iter().filter_map(|b| b["extension"].as_str()).collect();
    let crashes = ["abort", "segfault", "overflow", "exit", "loop", "deadlock"].contains(&act);
    let kernel = crashes && isolation == "inproc";
    // A process that ends in the middle of its stop may end before its answer is on the way.
    assert!(agreed.is_ok() || kernel, "{act} in `stop`, {isolation}: {agreed:?}");
    assert_eq!(exit["crash"], kernel, "{act} in `stop`, {isolation}: {after}");
    Row {
        what: act,
        place: "stop",
        isolation,
        how,
        named: if named.is_empty() { "–" } else { named[0] },
        ready: Some(took),
        lost: "nothing",
    }
    .print();
    if kernel {
        assert_eq!(named, ["torture"], "{act} in `stop`, {isolation}: {after}");
    }
    assert_eq!(scene.daemon.extension("waiter").0, "active");
    let began = Instant::now();
    Daemon::signal(scene.daemon.supervisor_pid(), Signal::TERM);
    let status = scene.daemon.ended();
    assert!(status == Some(0) || kernel && status == Some(1), "{act} in `stop`, {isolation}: {status:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{act} in `stop`, {isolation}: {:?}", began.elapsed());
}
