//! Services: how they end, what a crash beside one is told as, and what one may use.

use super::{Row, print_head};
use crate::harness::{Daemon, model_server::ModelServer, until};

fn run(isolation: &str, config: &str, manifest: &str) -> (Daemon, ModelServer) {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&(server.config() + config));
    daemon.plugin_in(isolation, "serving", "serving", manifest);
    daemon.run();
    (daemon, server)
}

#[test]
fn a_restart_does_not_wait_for_a_service_that_ends_a_little_late() {
    for isolation in ["inproc", "process"] {
        // Longer than it takes until the kernel looks whether the extension still works at something.
        let (daemon, _server) = run(isolation, "", "config: {linger_ms: 300}\n");
        let before = daemon.until_ready();
        daemon.says(&["restart"]);
        daemon.until_status("the next kernel", |s| {
            s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"]
        });
        assert!(!daemon.log().contains("did not end"), "{isolation}: {}", daemon.log());
        assert_eq!(daemon.turn("s", "serving_hello {}")["content"], "hello", "{isolation}");
    }
}

#[test]
fn a_crash_in_a_call_beside_a_service_is_told_as_that_of_the_call() {
    print_head();
    let (daemon, _server) = run("process", "", "");
    daemon.turn("s", "serving_abort {}");
    let reason = lost(&daemon);
    assert_eq!(reason, "its process ended in `tool.call`: signal 6 (SIGABRT)");
    let (isolation, named, lost) = ("process", "tool.call", "nothing");
    Row { what: "abort", place: "beside a service", isolation, how: &reason, named, ready: None, lost }
        .print();
}

#[test]
fn a_service_that_computes_without_end_is_started_again() {
    print_head();
    // More threads than a busy machine has room for, so that they get their share of it.
    let (daemon, _server) = run("process", "health_interval_ms: 200\n", "config: {spinning: 8}\n");
    let reason = lost(&daemon);
    assert!(reason.contains("CPU time in each of 10 looks while nobody called it"), "{reason}");
    let (isolation, named, lost) = ("process", "serving", "nothing");
    Row { what: "spin", place: "service", isolation, how: &reason, named, ready: None, lost }.print();
}

/// Why it was taken out. It takes ten looks, each of which may wait for all extensions of a busy machine to say how they are.
fn lost(daemon: &Daemon) -> String {
    let found = (0..4).find_map(|_| {
        until("it is taken out", || {
            let shown = daemon.client().ask("extensions.show", serde_json::json!({"id": "serving"})).ok()?;
            let history = shown["history"].as_array()?.clone();
            let lost = history.iter().find(|change| change["state"] == "degraded")?;
            lost["reason"].as_str().map(str::to_owned)
        })
    });
    found.unwrap_or_else(|| panic!("{}", daemon.log()))
}
