//! The last set of extensions that worked comes back when a later one does not let the kernel become ready.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Daemon, model_server::ModelServer, until};

fn poet(version: u32) -> String {
    format!(
        "id: poet\nname: Poet\ndescription: Tells its version.\nagent:\n  model: default\n  instructions: x\n  usage: x\n  \
         output: {{format: text}}\n  offline: [{{when: '.*', say: version {version}}}]\n"
    )
}

/// What the supervisor holds against contents.
fn held(daemon: &Daemon) -> usize {
    let ledger = fs::read(daemon.path().join("state/quarantine.json")).unwrap_or_default();
    let ledger: Value = serde_json::from_slice(&ledger).unwrap_or_default();
    ledger["quarantined"].as_array().map_or(0, Vec::len)
}

/// The process of a kernel that is not `before`, and that the supervisor has heard of.
fn kernel(daemon: &Daemon, before: &[u32]) -> u32 {
    let log = || fs::read_to_string(daemon.path().join("state/supervisor.log")).unwrap_or_default();
    let started = || {
        let log = log();
        let starts = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let pids = starts.filter(|e| e["event"] == "start").filter_map(|e| e["pid"].as_u64());
        pids.filter_map(|pid| u32::try_from(pid).ok()).find(|pid| !before.contains(pid))
    };
    until("the next kernel starts", started).unwrap_or_else(|| panic!("{}\n{}", log(), daemon.log()))
}

#[test]
fn two_starts_that_end_before_they_are_ready_lead_back_to_what_worked() {
    let mut daemon = Daemon::home("approvals: {preauthorized: all}\n");
    daemon.write("extensions/poet/manifest.yaml", &poet(1));
    daemon.run();
    assert_eq!(daemon.turn("s", "@poet x")["content"], "version 1");
    until("the set is kept", || daemon.path().join("state/extensions.good").is_file().then_some(()))
        .unwrap_or_else(|| panic!("{}", daemon.log()));
    let first = kernel(&daemon, &[]);
    daemon.says(&["stop"]);

    // One that never gets ready holds the start up, so that there is time to end it from outside.
    daemon.write("extensions/poet/manifest.yaml", &poet(2));
    daemon.plugin_in("process", "torture", "torture", "config: {initialize: deadlock}\n");
    daemon.spawn();
    let mut known = vec![first];
    for _ in 0..2 {
        let pid = kernel(&daemon, &known);
        Daemon::signal(pid, rustix::process::Signal::KILL);
        known.push(pid);
    }

    let status = daemon.until_ready();
    assert!(status["notices"].to_string().contains("last"), "it is told: {status:#}");
    let (state, reason) = daemon.extension("torture");
    assert!(state == "failed" && reason.contains("did not become ready"), "{state}: {reason}");
    let (state, reason) = daemon.extension("poet");
    assert!(state == "active" && reason.contains("an earlier version stands in"), "{state}: {reason}");
    assert_eq!(daemon.turn("s", "@poet x")["content"], "version 1");

    // Mended, and asked to try again.
    fs::remove_dir_all(daemon.path().join("extensions/torture")).expect("it is there");
    daemon.client().ask("restart", json!({})).expect("it is agreed");
    daemon.until_status("the present set", |s| {
        s["state"] == "ready" && s["generation"] != status["generation"]
    });
    assert_eq!(daemon.turn("s", "@poet x")["content"], "version 2");
    assert_eq!(daemon.extension("poet"), ("active".into(), String::new()));
}

#[test]
fn a_quarantined_content_that_comes_back_with_an_earlier_set_stays_quarantined() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin_in("process", "faulty", "torture", "config: {prefix: faulty}\n");
    daemon.run();
    let first = kernel(&daemon, &[]);
    for run in 0..3 {
        daemon.until_extension("faulty", "active");
        daemon.turn(&format!("s{run}"), r#"faulty_do {"act": "abort"}"#);
    }
    daemon.until_extension("faulty", "quarantined");
    until("it is kept", || (held(&daemon) == 1).then_some(())).expect("it is quarantined");
    let ledger = daemon.path().join("state/quarantine.json");
    let verdict = fs::read(&ledger).expect("it was written");
    // It works once more, so that it is in the set that is kept; and its verdict is there again.
    daemon.says(&["ext", "release", "faulty"]);
    daemon.until_extension("faulty", "active");
    let sets = || {
        let good = fs::read_to_string(daemon.path().join("state/extensions.good")).ok()?;
        let set = daemon
            .path()
            .join("data/.generations/sets")
            .join(good.trim().trim_matches('"'))
            .with_extension("json");
        fs::read_to_string(set).ok()?.contains("\"faulty\"").then_some(())
    };
    until("the set is kept", sets).unwrap_or_else(|| panic!("{}", daemon.log()));
    daemon.says(&["stop"]);
    assert_eq!(daemon.ended(), Some(0));
    fs::write(&ledger, &verdict).expect("it is ours");

    // The present one cannot be read, and another one holds the start up, which is ended from outside.
    let manifest = daemon.path().join("extensions/faulty/manifest.yaml");
    let text = fs::read_to_string(&manifest).expect("a manifest");
    fs::write(&manifest, "id: faulty\nnome: x\n").expect("a manifest");
    daemon.plugin_in("process", "torture", "torture", "config: {initialize: deadlock}\n");
    daemon.spawn();
    let mut known = vec![first];
    for _ in 0..2 {
        let pid = kernel(&daemon, &known);
        Daemon::signal(pid, rustix::process::Signal::KILL);
        known.push(pid);
    }
    daemon.until_ready();
    let shown = daemon.client().ask("extensions.show", json!({"id": "faulty"})).expect("it is shown");
    assert!(shown["source"].as_str().is_some_and(|source| source.contains("run/restored")), "{shown:#}");
    assert_eq!(shown["state"], "quarantined", "{shown:#}");
    assert_eq!(held(&daemon), 1, "an earlier set lifts nothing");

    // What is mended in the place where the content lay lifts it.
    fs::remove_dir_all(daemon.path().join("extensions/torture")).expect("it is there");
    fs::write(&manifest, text + "summary: Mended.\n").expect("a manifest");
    daemon.client().ask("restart", json!({})).expect("it is agreed");
    daemon.until_extension("faulty", "active");
    until("nothing is held against it", || (held(&daemon) == 0).then_some(()))
        .expect("its place has other content");
}
