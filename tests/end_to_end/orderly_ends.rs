//! What an orderly end of the kernel does to extensions that are busy then.

use serde_json::json;

use crate::harness::{Daemon, model_server::ModelServer, unique, until};

fn restart(daemon: &Daemon) {
    let before = daemon.until_ready();
    daemon.client().ask("restart", json!({})).expect("it is agreed");
    daemon.until_status("the next kernel", |s| {
        s["state"] == "ready" && s["generation"] != before["generation"]
    });
}

#[test]
fn the_end_of_a_kernel_is_no_crash_of_an_extension_that_is_slow_to_begin() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    // Neither returns while the kernel that asked for it lives, nor when it is told that nobody waits any more.
    daemon.plugin_in("process", "starting", "torture", "config: {prefix: starting, start: deadlock}\n");
    daemon.plugin_in("process", "opening", "torture", "config: {prefix: opening, initialize: deadlock}\n");
    daemon.run();
    for (id, state) in [("starting", "initialized"), ("opening", "loaded")] {
        assert_eq!(daemon.extension(id).0, state, "it still begins: {}", daemon.log());
    }
    restart(&daemon);
    for id in ["starting", "opening"] {
        let (state, reason) = daemon.extension(id);
        assert_ne!(state, "quarantined", "{id}: {reason}\n{}", daemon.log());
    }
}

#[test]
fn a_channel_that_holds_on_to_a_message_does_not_hold_up_the_end() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("slow", "serving", "config: {prefix: slow, holds: true}\n");
    daemon.run();
    let submit = json!({"external_id": unique(), "session": "slow", "channel": "slow", "text": "one"});
    let turn = daemon.client().ask("turn.submit", submit).expect("it is taken in");
    assert_eq!(daemon.wait(turn["turn"].as_str().expect("a turn"))["status"], "success");
    let asked = daemon.path().join("data/slow/asked");
    until("the channel has it", || asked.exists().then_some(()))
        .unwrap_or_else(|| panic!("{}", daemon.log()));
    restart(&daemon);
    let told = daemon.events("slow").into_iter().find(|event| event["data"]["code"] == "delivery.uncertain");
    // Had the kernel waited for the channel's own time, that would be the reason.
    let why = told.unwrap_or_else(|| panic!("{}", daemon.log()))["data"]["message"].to_string();
    assert!(why.contains("drupe ended while it was being sent"), "{why}");
}
