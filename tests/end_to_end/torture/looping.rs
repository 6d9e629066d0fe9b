//! Crash after crash: the daemon still answers, and comes back whole when the cause is gone.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Row, print_head, scene::Scene};
use crate::harness::{Daemon, model_server::ModelServer, plugins::switch};

/// Extensions that each end the kernel once.
const CRASHES: usize = 10;

/// A kernel that is alive and serves nobody is replaced within this time.
const UNSERVING: Duration = Duration::from_secs(20);

fn id(n: usize) -> String {
    format!("bad{n}")
}

fn restart(daemon: &Daemon) -> Value {
    let before = daemon.until_ready();
    daemon.says(&["restart"]);
    daemon
        .until_status("the next kernel", |s| s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"])
}

#[test]
fn ten_crashes_in_a_row_end_in_safe_mode_and_mended_libraries_bring_everything_back() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    for n in 0..CRASHES {
        daemon.plugin_in("inproc", &id(n), "torture", &format!("config: {{prefix: {}}}\n", id(n)));
        switch(&daemon.library(&id(n)), "abort", "kernel", &n.to_string());
    }
    let began = Instant::now();
    daemon.run();
    let safe = daemon.until_ready();
    println!("6 crashes, and ready in safe mode after {} ms", began.elapsed().as_millis());
    assert_eq!((&safe["safe_mode"], &safe["restarts"]), (&json!(true), &json!(6)), "{safe}");
    let exits = safe["exits"].as_array().expect("exits");
    let blamed: Vec<String> = exits.iter().map(|exit| exit["blamed"].to_string()).collect();
    assert_eq!(blamed.len(), 6);
    for (at, one) in blamed.iter().enumerate() {
        assert!(one.contains("\"load\"") && one.matches("extension").count() == 1, "one is named: {one}");
        assert!(!blamed[..at].contains(one), "another one each time: {blamed:?}");
    }
    let answer = daemon.says(&["ask", "hello"]);
    assert!(answer.contains("hello"), "{answer}");
    for n in 0..CRASHES {
        assert!(daemon.extension(&id(n)).1.contains("safe mode"), "{:?}", daemon.extension(&id(n)));
    }

    let after = restart(&daemon);
    assert_eq!(after["safe_mode"], false, "{after}");
    let crashes = after["exits"].as_array().expect("exits").iter().filter(|e| e["crash"] == true).count();
    // The last ten ends are kept, and the orderly restart is one of them.
    assert_eq!(crashes, CRASHES - 1, "{after}");
    for n in 0..CRASHES {
        let (state, reason) = daemon.extension(&id(n));
        assert_eq!(state, "quarantined", "{}: {reason}", id(n));
        assert!(reason.contains(&format!("drupe ext release {}", id(n))), "{reason}");
    }

    // Given another chance as it is, it crashes again.
    let before = daemon.until_ready();
    daemon.drupe(&["ext", "release", &id(0)]);
    daemon.until_status("the next kernel", |s| {
        s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"]
    });
    let again = daemon.extension(&id(0));
    assert_eq!(again.0, "quarantined", "{again:?}\n{}", daemon.log());

    for n in 0..CRASHES {
        switch(&daemon.library(&id(n)), "none", "any", &format!("m{n}"));
    }
    for n in 0..CRASHES {
        daemon.until_extension(&id(n), "active");
        assert_eq!(daemon.turn("s", &format!("{}_variant {{}}", id(n)))["content"], format!("m{n}"));
    }
    let whole = daemon.until_ready();
    assert_eq!(whole["safe_mode"], false);
    assert!(!whole["notices"].to_string().contains("quarantined"), "{whole}");
}

#[test]
fn another_content_and_a_release_end_a_quarantine() {
    for isolation in ["inproc", "process"] {
        let failing = "config: {initialize: abort}\n";
        let scene = Scene::run(isolation, failing);
        scene.daemon.until_extension("torture", "quarantined");
        // The cause is gone and the content is the same.
        let manifest = scene.daemon.path().join("extensions/torture/manifest.yaml");
        let text = fs::read_to_string(&manifest).expect("a manifest");
        fs::write(&manifest, text.replace(failing, "")).expect("a manifest");
        scene.daemon.until_extension("torture", "active");
        assert_eq!(scene.daemon.turn("s", "torture_variant {}")["content"], "0", "{isolation}");
    }
    let scene = Scene::run("process", "");
    for run in 0..3 {
        let turn = scene.daemon.turn(&format!("s{run}"), r#"torture_do {"act": "abort"}"#);
        assert_eq!(turn["status"], "success", "{turn}");
        if run < 2 {
            scene.daemon.until_extension("torture", "active");
        }
    }
    scene.daemon.until_extension("torture", "quarantined");
    scene.daemon.says(&["ext", "release", "torture"]);
    scene.daemon.until_extension("torture", "active");
    assert_eq!(scene.daemon.turn("s", "torture_variant {}")["content"], "0");
}

#[test]
fn a_kernel_without_descriptors_is_replaced_and_a_process_without_them_harms_itself_alone() {
    print_head();
    let act = r#"torture_do {"act": "descriptors"}"#;
    let scene = Scene::run("process", "");
    let before = scene.daemon.until_ready();
    assert_eq!(scene.daemon.turn("s", act)["content"], "nothing happened");
    scene.nothing_ended(&before);

    let scene = Scene::run("inproc", "");
    let before = scene.daemon.until_ready();
    let began = Instant::now();
    scene.daemon.submit("s", act);
    let outcome = scene.kernel_ended(&before);
    let took = began.elapsed();
    let (how, named) = (outcome.how.unwrap_or_default(), outcome.named.join(", "));
    let lost = "nothing";
    Row {
        what: "descriptors",
        place: "call",
        isolation: "inproc",
        how: &how,
        named: &named,
        ready: Some(took),
        lost,
    }
    .print();
    assert!(took < UNSERVING, "{took:?}");
}
