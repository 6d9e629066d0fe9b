//! Starts and stops that take long: of the daemon, whose journal another process has, and of an extension.

use std::{
    fs::File,
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use rustix::{fs::FlockOperation, process::Signal};
use serde_json::{Value, json};

use crate::{
    harness::{Daemon, model_server::ModelServer, until},
    http::door,
};

/// A home with a journal, which is locked as by a process that makes a copy of it.
fn with_a_locked_journal() -> (Daemon, File) {
    let mut daemon = Daemon::start("");
    daemon.turn("s", "hello");
    Daemon::signal(daemon.supervisor_pid(), Signal::TERM);
    assert_eq!(daemon.ended(), Some(0));
    let journal = File::options().read(true).write(true).open(daemon.path().join("journal.db"));
    let journal = journal.expect("the journal is a file");
    rustix::fs::fcntl_lock(&journal, FlockOperation::LockExclusive).expect("nobody else has it");
    (daemon, journal)
}

/// Waits until the status says that the journal is being opened. It says so with the second beat.
fn until_it_says_so(daemon: &Daemon) -> Value {
    let says = || {
        let output = daemon.drupe(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        status["notices"].to_string().contains("kernel 2 opens the journal of 1 MB").then_some(status)
    };
    until("the status names the journal", says).unwrap_or_else(|| panic!("{}", daemon.log()))
}

#[test]
fn a_kernel_beats_and_says_what_it_does_while_another_process_has_its_journal() {
    let (mut daemon, journal) = with_a_locked_journal();
    daemon.spawn();
    let status = until_it_says_so(&daemon);
    assert_eq!(status["state"], "starting", "{status}");
    assert!(daemon.log().contains("kernel 2 opens the journal of 1 MB"), "{}", daemon.log());
    drop(journal);
    let ready = daemon.until_ready();
    assert_eq!((&ready["restarts"], &ready["kernel_pid"]), (&json!(0), &status["kernel_pid"]), "{ready}");
    assert!(!ready["notices"].to_string().contains("opens the journal"), "{ready}");
    assert_eq!(daemon.turn("s", "hello again")["status"], "success");
}

#[test]
fn a_daemon_whose_journal_another_process_has_stops_in_order_and_at_once() {
    let (mut daemon, _journal) = with_a_locked_journal();
    daemon.spawn();
    until_it_says_so(&daemon);
    Daemon::signal(daemon.supervisor_pid(), Signal::TERM);
    assert_eq!(daemon.ended(), Some(0), "{}", daemon.log());
}

const DRAFT: &str =
    "id: draft\nname: Draft\ndescription: Works.\nagent: {model: default, instructions: \"\"}\n";

#[test]
fn an_extension_whose_start_hangs_keeps_nobody_from_work_and_whoever_tries_it_again_learns_how_that_went() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin_in("process", "torture", "torture", "config: {start: deadlock}\n");
    daemon.write(
        "extensions/after/manifest.yaml",
        "id: after\nname: After\ndescription: Waits.\ndepends_on: [torture]\n\
         agent: {model: default, instructions: \"\"}\n",
    );
    daemon.run();
    assert_eq!(daemon.extension("torture").0, "initialized", "it still starts");
    assert_ne!(daemon.extension("after").0, "active", "it waits for that one");
    assert_eq!(daemon.extension("kv").0, "active");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    daemon.write("extensions/draft/manifest.yaml", DRAFT);
    daemon.until_extension("draft", "active");
    assert_eq!(daemon.extension("torture").0, "initialized", "a new one does not wait for it");
    let reason = daemon.until_extension("torture", "failed");
    assert!(reason.contains("`start` failed"), "{reason}");
    daemon.until_extension("after", "skipped");

    let output = daemon.drupe(&["ext", "release", "torture", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert_eq!(told["state"], "failed", "{output:?}");
}

#[test]
fn one_extension_that_announces_tools_all_the_time_does_not_keep_others_from_being_added() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    let tool = json!({"tools": [{"name": "faulty_more"}]});
    daemon.plugin("faulty", "faulty", &format!("config: {tool}\n"));
    daemon.run();
    let (over, announced) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for session in ["a", "b", "c"] {
            let (daemon, over, announced, tool) = (&daemon, &over, &announced, &tool);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let told = daemon.turn(session, &format!("faulty_announce {tool}"));
                    announced.fetch_add(usize::from(told["content"] == "announced"), Ordering::Relaxed);
                }
            });
        }
        until("some are announced", || (announced.load(Ordering::Relaxed) > 2).then_some(()));
        let added = (0..5).map(|number| {
            let id = format!("draft_{number}");
            daemon
                .write(&format!("new/{id}/manifest.yaml"), &DRAFT.replace("id: draft", &format!("id: {id}")));
            let folder = daemon.path().join("new").join(&id);
            daemon.client().ask("extensions.add", json!({"path": folder})).map(|added| added["state"].clone())
        });
        let added: Vec<_> = added.collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(added, vec![Ok(json!("active")); 5]);
    });
    // More than that in a minute are refused, so that nobody has everything wired again all the time.
    assert!((3..=30).contains(&announced.into_inner()), "{}", daemon.log());
}

#[test]
fn whoever_comes_through_a_door_before_all_extensions_work_is_known_there() {
    let server = ModelServer::obedient();
    let http =
        |address: &str| format!("{}extensions: {{http: {{address: \"{address}\"}}}}\n", server.config());
    let mut daemon = Daemon::home(&http("127.0.0.1:0"));
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
    daemon.run();
    let (door, token) = (door(&daemon), daemon.says(&["token", "new", "ci"]));
    Daemon::signal(daemon.supervisor_pid(), Signal::TERM);
    assert_eq!(daemon.ended(), Some(0));
    daemon.write("drupe.yaml", &http(&door.host()));
    // The kernel waits for it for a while, with the door open.
    daemon.plugin_in("process", "torture", "torture", "config: {start: deadlock}\n");
    daemon.spawn();
    until("the door is open", || TcpStream::connect(door.host()).ok()).expect("it is opened");
    assert_ne!(daemon.json(&["status", "--json"])["state"], "ready", "it is still starting");
    assert_eq!(door.get(token.trim(), "/v1/sessions").status, 200);
}
