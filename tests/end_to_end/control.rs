//! The control socket: who may use it, what it does with nonsense, and how a daemon ends.

use std::{
    io::{BufRead, BufReader, Write},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    Client, Daemon,
    model_server::{ModelServer, Say},
    unique,
};

fn raw(daemon: &Daemon, line: &[u8]) -> Vec<Value> {
    let home = drupe_link::Home::new(daemon.path()).expect("a home");
    let mut stream = home.connect().expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let _ = stream.write_all(line);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.filter_map(|l| serde_json::from_str(&l).ok()).collect()
}

#[test]
fn without_the_token_nothing_is_answered() {
    let daemon = Daemon::start("");
    for first in [
        json!({"id": 1, "method": "hello", "params": {"token": "wrong"}}),
        json!({"id": 1, "method": "status", "params": {}}),
        json!({"id": 1, "method": "hello"}),
    ] {
        let both = format!("{first}\n{}\n", json!({"id": 2, "method": "stop"}));
        let replies = raw(&daemon, both.as_bytes());
        assert_eq!(replies.len(), 1, "{replies:?}");
        assert_eq!(replies[0]["error"]["code"], "denied", "{replies:?}");
    }
    daemon.until_ready();
}

#[test]
fn nonsense_on_the_control_socket_harms_nobody() {
    let daemon = Daemon::start("");
    raw(&daemon, b"\n\n\n");
    raw(&daemon, &[0xff; 4096]);
    raw(&daemon, &vec![b'x'; 5 * 1024 * 1024]);
    let mut client = daemon.client();
    for (method, params) in [
        ("no.such.method", json!({})),
        ("turn.submit", json!({"text": 1})),
        ("turn.submit", json!({"external_id": "x", "session": "bad id with spaces", "text": "hi"})),
        ("turn.submit", json!({"external_id": "x", "session": "s", "text": "  "})),
        ("turn.submit", json!({"external_id": "x", "session": "s", "text": "hi", "agent": "nobody"})),
        (
            "turn.submit",
            json!({"external_id": "x", "session": "s", "text": "hi", "model": "scripted:/nowhere.yaml"}),
        ),
        ("turn.submit", json!({"external_id": "x".repeat(1_025), "session": "s", "text": "hi"})),
        (
            "turn.submit",
            json!({"external_id": "x", "session": "s", "text": "hi", "address": "x".repeat(100_000)}),
        ),
        ("turn.submit", json!({"external_id": "x", "session": "s", "text": "hi", "model": "a\nb\u{202e}c"})),
        (
            "turn.submit",
            json!({"external_id": "x", "session": "s", "text": "hi", "model": "x".repeat(100_000)}),
        ),
        ("turn.wait", json!({"turn": "t-nowhere"})),
        ("sessions.show", json!({"id": "nowhere"})),
        ("extensions.show", json!({"id": "nowhere"})),
    ] {
        let error = client.ask(method, params.clone()).expect_err("it is refused");
        assert!(error.len() < 1_000 && !error.contains('\u{202e}'), "{method}: {error}");
    }
    assert_eq!(client.ask("status", json!({})).expect("a status")["state"], "ready");
}

#[test]
fn a_term_signal_lets_a_turn_end_and_what_it_does_not_end_goes_on_after_the_next_start() {
    let (asked, answer) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel::<()>());
    let (told, held) = (std::sync::Mutex::new(asked.0), std::sync::Mutex::new(answer.1));
    let server = ModelServer::start(move |_| {
        let _ = told.lock().expect("one at a time").send(());
        let _ = held.lock().expect("one at a time").recv();
        Say::Text("answered".into())
    });
    let mut daemon = Daemon::start(&format!("{}drain_timeout_ms: 1000\n", server.config()));
    let turn = daemon.submit("s", "hello");
    asked.1.recv_timeout(crate::harness::PATIENCE).expect("the model is asked");
    let began = Instant::now();
    Daemon::signal(daemon.supervisor_pid(), Signal::TERM);
    assert_eq!(daemon.ended(), Some(0), "{}", daemon.log());
    assert!(began.elapsed() < Duration::from_secs(10));
    drop(answer.0);
    daemon.run();
    assert_eq!(daemon.wait(&turn)["content"], "answered");
}

#[test]
fn a_second_daemon_on_one_home_is_refused_and_names_the_first() {
    let daemon = Daemon::start("");
    let second = daemon.drupe(&["run"]);
    let err = crate::harness::text(&second.stderr);
    assert_eq!(second.status.code(), Some(69), "{err}");
    assert!(err.contains(&daemon.supervisor_pid().to_string()), "{err}");
}

#[test]
fn a_configuration_with_faults_ends_a_cold_start_and_never_a_running_daemon() {
    let mut daemon = Daemon::home("orchestrater: {}\n");
    daemon.spawn();
    assert_eq!(daemon.ended(), Some(78), "{}", daemon.log());
    assert!(daemon.log().contains("did you mean") && daemon.log().contains("drupe.yaml"), "{}", daemon.log());
    daemon.write("drupe.yaml", "log: info\n");
    daemon.run();
    daemon.write("drupe.yaml", "orchestrater: {}\n");
    let before = daemon.until_ready();
    let error = daemon.client().ask("restart", json!({})).expect_err("it is refused");
    assert!(error.contains("orchestrater"), "{error}");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"]);
    daemon.kill_kernel();
    let after = daemon.until_ready();
    assert!(
        after["notices"].to_string().contains("configuration is refused"),
        "the operator is told: {after}"
    );
}

#[test]
fn a_surface_that_was_limited_to_some_agents_offers_no_others() {
    let mut daemon = Daemon::home("");
    daemon.write(
        "extensions/one/manifest.yaml",
        "id: one\nname: One\ndescription: One.\nagent: {model: default, instructions: \"\"}\n",
    );
    daemon.write(
        "extensions/two/manifest.yaml",
        "id: two\nname: Two\ndescription: Two.\nagent: {model: default, instructions: \"\"}\n",
    );
    let mut command = daemon.command(&["run", "--agent", "one"]);
    command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().expect("it starts");
    daemon.until_ready();
    let mut client: Client = daemon.client();
    let list = client.ask("agents.list", json!({})).expect("a list");
    let ids: Vec<&Value> = list.as_array().expect("a list").iter().map(|a| &a["id"]).collect();
    assert_eq!(ids, ["one"]);
    let submit = json!({"external_id": unique(), "session": "s", "text": "hi", "agent": "two"});
    assert!(client.ask("turn.submit", submit).expect_err("refused").contains("not offered"));
    Daemon::signal(child.id(), Signal::TERM);
    assert!(child.wait().expect("it ends").success());
    let _ = &mut daemon;
}

#[test]
fn a_reload_that_is_refused_spoils_nothing() {
    let daemon = Daemon::start("");
    daemon.write("drupe.yaml", "orchestrater: {}\n");
    Daemon::signal(daemon.supervisor_pid(), Signal::HUP);
    crate::harness::until("it is refused", || daemon.log().contains("the old one stays").then_some(()))
        .expect("it is refused");
    daemon.kill_kernel();
    let refused = daemon.turn("s", "create an agent called haiku that writes haikus");
    assert!(refused["transcript"].to_string().contains("the configuration has faults"), "{refused}");
    daemon.write("drupe.yaml", "orchestrator: {name: Ada}\n");
    let before = daemon.until_ready();
    Daemon::signal(daemon.supervisor_pid(), Signal::HUP);
    daemon.until_status("the new configuration", |s| {
        s["state"] == "ready" && s["generation"] != before["generation"]
    });
}

#[test]
fn the_agent_of_a_session_answers_until_another_is_chosen() {
    let daemon = Daemon::home("");
    daemon.write(
        "extensions/one/manifest.yaml",
        "id: one\nname: One\ndescription: One.\nagent: {model: default, instructions: \"\"}\n",
    );
    let mut daemon = daemon;
    daemon.run();
    let by = |turn: &Value| turn["invocations"][0]["agent"].clone();
    daemon.client().ask("session.select", json!({"session": "s", "agent": "one"})).expect("it is chosen");
    assert_eq!(by(&daemon.turn("s", "hello")), "one");
    assert!(daemon.client().ask("session.select", json!({"session": "s", "agent": "two"})).is_err());
    let unknown = daemon.client().ask("session.select", json!({"session": "nowhere"}));
    assert!(unknown.is_err_and(|error| error.contains("there is no session `nowhere`")));
    assert!(daemon.client().ask("sessions.show", json!({"id": "nowhere"})).is_err(), "nor was it made");
    daemon.client().ask("session.select", json!({"session": "s"})).expect("it is given back");
    assert_eq!(by(&daemon.turn("s", "hello")), "orchestrator");
}

#[test]
fn clients_that_are_idle_keep_neither_the_supervisor_nor_other_clients_out() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // This process needs a file for each of them.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("files");
    let daemon = Daemon::start("");
    let before = daemon.until_ready();
    let mut idle: Vec<Client> = (0..1_100).map(|_| daemon.client()).collect();
    let mut another = daemon.client();
    assert_eq!(another.ask("status", json!({})).expect("it is served")["kernel_pid"], before["kernel_pid"]);
    let first = idle.first_mut().map(|client| client.ask("status", json!({})));
    assert!(first.is_some_and(|answer| answer.is_err()), "who was idle longest had to leave");
    let last = idle.last_mut().map(|client| client.ask("status", json!({})));
    assert!(last.is_some_and(|answer| answer.is_ok()), "the others stay");
}
