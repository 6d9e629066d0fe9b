//! Configurations that can be read, and with which no kernel can begin.

use std::{
    fs,
    process::Stdio,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say},
    text, until,
};

/// What a kernel refuses that has read its configuration: the price of the model is not known, or something is not there.
const REFUSED: [(&str, &str); 5] = [
    ("limits: {day: {max_cost_usd: 1}}\n", "price"),
    ("limits: {session: {max_cost_usd: 1}}\n", "price"),
    ("orchestrator: {limits: {max_cost_usd: 0.1}}\n", "price"),
    ("orchestrator: {model: nosuch}\n", "nosuch"),
    ("orchestrator: {instructions: \"Hi {{ nosuch }}\"}\n", "orchestrator.instructions"),
];

/// A server without prices, which answers at once.
fn server() -> ModelServer {
    ModelServer::start(|_| Say::Text("hello".to_owned()))
}

fn notices(status: &Value) -> String {
    status["notices"].to_string()
}

#[test]
fn a_restart_into_a_configuration_with_which_no_kernel_can_begin_is_refused_with_the_reason() {
    let server = server();
    let daemon = Daemon::start(&server.config());
    let before = daemon.until_ready();
    for (more, reason) in REFUSED {
        daemon.write("drupe.yaml", &(server.config() + more));
        for args in [&["restart"][..], &["restart", "--json"]] {
            let output = daemon.drupe(args);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(78), "{more}{}{said}", text(&output.stdout));
            assert!(said.contains(reason), "{more}{said}");
        }
        let shown = daemon.drupe(&["config", "show"]);
        assert_eq!(shown.status.code(), Some(78), "{more}{}", text(&shown.stderr));
        assert!(text(&shown.stderr).contains(reason), "{more}{}", text(&shown.stderr));
        assert_eq!(daemon.drupe(&["ext", "check"]).status.code(), Some(78), "{more}");
        let status = daemon.until_ready();
        assert_eq!(status["kernel_pid"], before["kernel_pid"], "nothing drains for {more}{status}");
        assert!(status["config_refused"].to_string().contains(reason), "{more}{status}");
        assert!(notices(&status).contains(reason), "{more}{status}");
    }
    daemon.write("drupe.yaml", &server.config());
    daemon.says(&["restart"]);
    assert_eq!(daemon.until_ready()["config_refused"], Value::Null);
}

#[test]
fn saving_a_configuration_with_which_no_kernel_can_begin_changes_nothing_and_is_logged() {
    let server = server();
    let daemon = Daemon::start(&server.config());
    let before = daemon.until_ready();
    daemon.write("drupe.yaml", &(server.config() + REFUSED[0].0));
    let status = daemon.until_status("it is refused", |s| s["config_refused"].is_string());
    assert_eq!(
        (&status["kernel_pid"], &status["exits"]),
        (&before["kernel_pid"], &before["exits"]),
        "nothing drains"
    );
    until("it is logged", || daemon.log().contains("the old one stays").then_some(()))
        .unwrap_or_else(|| panic!("{}", daemon.log()));
    daemon.write("drupe.yaml", &server.config());
    let status = daemon.until_status("what is in force is back", |s| s["config_refused"].is_null());
    assert_eq!(status["kernel_pid"], before["kernel_pid"], "{status}");
}

/// Lets the model answer, once it is open.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn pass(&self) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.1.wait_while(open, |open| !*open));
    }

    fn open(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }
}

#[test]
fn a_restart_that_ends_with_the_last_good_configuration_is_no_success() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let server = ModelServer::start(move |_| {
        held.pass();
        Say::Text("hello".to_owned())
    });
    let daemon = Daemon::start(&server.config());
    let turn = daemon.submit("s", "hold the restart up");
    until("the turn asks", || (!server.requests().is_empty()).then_some(())).expect("the turn asks");
    let mut command = daemon.command(&["restart", "--json"]);
    let restart = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let restart = restart.expect("drupe runs");
    daemon.until_status("the drain", |s| s["state"] == "draining");
    // After the kernel that ends has looked at it.
    daemon.write("drupe.yaml", &(server.config() + REFUSED[0].0));
    gate.open();
    let output = restart.wait_with_output().expect("it ends");
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(78), "{out}{said}\n{}", daemon.log());
    assert!(said.contains("last good") && said.contains("price"), "{said}");
    let done: Value = serde_json::from_str(&out).expect("it is JSON");
    assert!(done["config_refused"].to_string().contains("price"), "{out}");
    assert_eq!(daemon.wait(&turn)["status"], "success");
    assert!(daemon.says(&["status"]).contains("price"));
}

/// A daemon that goes on with the last good configuration: its kernel died while the file was refused.
fn on_the_last_good(file: &str, run: impl FnOnce(&mut Daemon)) -> (Daemon, Value) {
    let mut daemon = Daemon::home("");
    daemon.write(file, "orchestrator: {name: Ada}\n");
    run(&mut daemon);
    daemon.until_ready();
    daemon.write(file, "orchestrator: {instructions: \"Hi {{ nosuch }}\"}\n");
    daemon.until_status("it is refused", |s| s["config_refused"].is_string());
    daemon.kill_kernel();
    let status = daemon
        .until_status("the last good one", |s| s["state"] == "ready" && notices(s).contains("last good"));
    assert!(notices(&status).contains("nosuch"), "{status}");
    (daemon, status)
}

/// Waits until the operator's configuration is in force again; the name that it gives.
fn in_force_again(daemon: &Daemon, before: &Value) -> Value {
    let after = daemon.until_status("the operator's configuration", |s| {
        s["state"] == "ready" && s["generation"].as_u64() > before["generation"].as_u64()
    });
    assert_eq!(after["config_refused"], Value::Null, "{after}");
    assert!(!notices(&after).contains("last good"), "{after}");
    let shown = daemon.client().ask("config.show", json!({})).expect("it is shown");
    let shown = shown.as_array().expect("a list").iter().find(|value| value["key"] == "orchestrator.name");
    shown.expect("it has a default")["value"].clone()
}

#[test]
fn a_daemon_on_the_last_good_configuration_takes_a_mended_a_removed_and_a_restored_file_by_itself() {
    let file = |daemon: &Daemon| daemon.path().join("drupe.yaml");
    let run = |daemon: &mut Daemon| daemon.run();

    let (daemon, before) = on_the_last_good("drupe.yaml", run);
    daemon.write("drupe.yaml", "orchestrator: {name: Grace}\n");
    assert_eq!(in_force_again(&daemon, &before), "Grace", "it is mended");

    let (daemon, before) = on_the_last_good("drupe.yaml", run);
    fs::remove_file(file(&daemon)).expect("it is there");
    assert_eq!(in_force_again(&daemon, &before), "drupe", "it is removed");

    let (daemon, before) = on_the_last_good("drupe.yaml", run);
    daemon.write("drupe.yaml", "orchestrator: {name: Ada}\n");
    assert_eq!(in_force_again(&daemon, &before), "Ada", "it is put back");
}

#[test]
fn a_named_configuration_file_is_the_one_that_is_looked_at_after_the_last_good_one_stood_in() {
    let (daemon, before) = on_the_last_good("named.yaml", |daemon| {
        daemon.write("drupe.yaml", "orchestrator: {name: Nobody}\n");
        daemon.run_with(&["--config", "named.yaml"]);
    });
    daemon.write("named.yaml", "orchestrator: {name: Grace}\n");
    assert_eq!(in_force_again(&daemon, &before), "Grace");
}

#[test]
fn an_id_that_no_extension_has_is_told_by_status_and_by_the_check_of_extensions() {
    let daemon = Daemon::start("extensions: {builder_agnt: {enabled: false}, kv: {enabled: true}}\n");
    let check = daemon.drupe(&["ext", "check"]);
    assert_eq!(check.status.code(), Some(0), "it is no fault");
    for told in [daemon.says(&["status"]), text(&check.stderr)] {
        assert!(told.contains("no extension has the id `builder_agnt`"), "{told}");
        assert!(told.contains("did you mean `builder_agent`?"), "{told}");
        assert!(!told.contains("the id `kv`"), "{told}");
    }
}
