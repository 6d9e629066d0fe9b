//! Extensions that come, change, break and go, and a configuration that changes, while the daemon works.

use std::{
    fs,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Instant,
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    plugins::switch,
    until,
};

/// Turns that run while everything changes.
const TURNS: usize = 20;

/// Lets those through that wait for it, once it is open.
#[derive(Default)]
struct Gate {
    /// Whether it is open, and how many have come to it.
    state: Mutex<(bool, usize)>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        drop(self.opened.wait_while(state, |state| !state.0));
    }

    fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = true;
        self.opened.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// A model that says which version of its instructions it was given; asked to `hold`, it waits at the gate, calls a
/// tool and says it then.
fn versions(gate: &Arc<Gate>) -> ModelServer {
    let gate = Arc::clone(gate);
    ModelServer::start(move |request| {
        let (role, text) = latest(request);
        if role == "user" && text.contains("hold") {
            gate.pass();
            return Say::Call(vec![("kv_list".into(), json!({}))]);
        }
        let system = request["messages"][0]["content"].as_str().unwrap_or_default();
        let version = system.split_whitespace().find(|word| word.starts_with("VERSION-"));
        Say::Text(version.unwrap_or("no version").to_owned())
    })
}

fn agent(id: &str, version: u32) -> String {
    format!(
        "id: {id}\nname: {id}\ndescription: Tells its version.\nagent: {{model: default, instructions: \"VERSION-{version} it is.\", uses_tools: [kv]}}\n"
    )
}

/// Whether a list of extensions has one.
fn listed(daemon: &Daemon, id: &str) -> bool {
    let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
    list.as_array().expect("a list").iter().any(|e| e["id"] == id)
}

/// Whether people may choose an agent.
fn offered(daemon: &Daemon, id: &str) -> bool {
    let list = daemon.client().ask("agents.list", json!({})).expect("a list");
    list.as_array().expect("a list").iter().any(|a| a["id"] == id)
}

/// Does something to a file and waits until it shows; prints how long that took, which depends on what else the machine does.
fn takes_effect(what: &str, change: impl FnOnce(), mut shows: impl FnMut() -> bool) {
    let began = Instant::now();
    change();
    until(what, || shows().then_some(())).unwrap_or_else(|| panic!("{what}: no effect"));
    println!("| {what} | {} |", began.elapsed().as_millis());
}

#[test]
fn an_agent_is_dropped_in_edited_broken_mended_and_removed_while_twenty_turns_run() {
    let gate = Arc::new(Gate::default());
    let server = versions(&gate);
    let mut daemon = Daemon::home(
        &(server.config() + "      concurrency: 64\nlimits: {concurrency: {runs_of_one_agent: 64}}\n"),
    );
    daemon.write("extensions/poet/manifest.yaml", &agent("poet", 1));
    daemon.run();
    let before = daemon.until_ready();
    let turns: Vec<String> =
        (0..TURNS).map(|n| daemon.submit(&format!("held{n}"), "@poet hold on")).collect();
    until("all turns ask the model", || (gate.waiting() == TURNS).then_some(()))
        .unwrap_or_else(|| panic!("{} of {TURNS} turns ask the model\n{}", gate.waiting(), daemon.log()));

    let says = |id: &str| daemon.turn(&format!("now-{id}"), &format!("@{id} hello"))["content"].clone();
    let manifest = |id: &str| format!("extensions/{id}/manifest.yaml");
    println!("| change | in use after ms |\n|---|---|");
    takes_effect(
        "a folder is dropped in",
        || daemon.write(&manifest("fresh"), &agent("fresh", 7)),
        || says("fresh") == "VERSION-7",
    );
    takes_effect(
        "it is edited",
        || daemon.write(&manifest("poet"), &agent("poet", 2)),
        || says("poet") == "VERSION-2",
    );
    takes_effect(
        "it is broken",
        || daemon.write(&manifest("poet"), &agent("poet", 3).replace("model:", "modell:")),
        || daemon.extension("poet").1.contains("its change is not in use"),
    );
    let (state, reason) = daemon.extension("poet");
    assert!(state == "active" && reason.contains("modell"), "{state}: {reason}");
    assert_eq!(says("poet"), "VERSION-2", "the old one stays");
    takes_effect(
        "it is mended",
        || daemon.write(&manifest("poet"), &agent("poet", 4)),
        || says("poet") == "VERSION-4",
    );
    assert!(!daemon.extension("poet").1.contains("its change"), "{:?}", daemon.extension("poet"));
    for id in ["fresh", "poet"] {
        let folder = daemon.path().join("extensions").join(id);
        takes_effect(
            "it is removed",
            || fs::remove_dir_all(folder).expect("it is there"),
            || !listed(&daemon, id) && !offered(&daemon, id),
        );
    }

    gate.open();
    for turn in &turns {
        let ended = daemon.wait(turn);
        assert_eq!(
            (&ended["status"], &ended["content"]),
            (&json!("success"), &json!("VERSION-1")),
            "a run keeps the definition with which it began: {ended}"
        );
    }
    println!("turns that ran meanwhile: {TURNS}, dropped: 0");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"], "no restart was needed");
}

#[test]
fn an_agent_in_a_single_file_comes_changes_and_goes() {
    let server = versions(&Arc::default());
    let daemon = Daemon::start(&server.config());
    let text = |version: u32| {
        format!("---\nname: Bard\ndescription: Tells its version.\n---\nVERSION-{version} it is.\n")
    };
    let says = || daemon.turn("s", "@bard hello")["content"].clone();
    for version in [1, 2] {
        takes_effect(
            "a file is written",
            || daemon.write("extensions/bard.md", &text(version)),
            || says() == format!("VERSION-{version}"),
        );
    }
    let file = daemon.path().join("extensions/bard.md");
    takes_effect(
        "it is removed",
        || fs::remove_file(file).expect("it is there"),
        || !listed(&daemon, "bard"),
    );
}

#[test]
fn what_depends_on_a_folder_comes_and_goes_with_it() {
    let daemon = Daemon::start("");
    let needs = agent("leans", 1).replace("agent:", "depends_on: [pillar]\nagent:");
    daemon.write("extensions/leans/manifest.yaml", &needs);
    takes_effect(
        "it waits for another",
        || {},
        || listed(&daemon, "leans") && daemon.extension("leans").1.contains("pillar"),
    );
    daemon.write("extensions/pillar/manifest.yaml", &agent("pillar", 1));
    daemon.until_extension("leans", "active");
    fs::remove_dir_all(daemon.path().join("extensions/pillar")).expect("it is there");
    let found = until("it goes", || (daemon.extension("leans").0 != "active").then_some(()));
    assert!(found.is_some(), "{:?}", daemon.extension("leans"));
    assert!(daemon.extension("leans").1.contains("pillar"), "{:?}", daemon.extension("leans"));
}

/// A daemon whose model calls the tool that the user's message names.
fn with_torture(config: &str, isolation: &str) -> (ModelServer, Daemon) {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&(server.config() + config));
    daemon.plugin_in(isolation, "torture", "torture", "");
    daemon.run();
    (server, daemon)
}

fn variant(daemon: &Daemon) -> Value {
    daemon.turn("s", "torture_variant {}")["content"].clone()
}

#[test]
fn a_changed_library_is_announced_and_never_replaced_under_a_running_kernel() {
    for isolation in ["inproc", "process"] {
        let (_server, daemon) = with_torture("", isolation);
        let before = daemon.until_ready();
        takes_effect(
            "a library is replaced",
            || switch(&daemon.library("torture"), "none", "any", "second"),
            || daemon.extension("torture").1.contains("`drupe restart` takes them in"),
        );
        assert_eq!(daemon.extension("torture").0, "active");
        assert_eq!(variant(&daemon), "0");
        assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"]);
        daemon.client().ask("restart", json!({})).expect("it is agreed");
        daemon.until_status("the next kernel", |s| {
            s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"]
        });
        assert_eq!(variant(&daemon), "second", "{isolation}: {:?}", daemon.extension("torture"));
        assert_eq!(daemon.extension("torture"), ("active".into(), String::new()));
    }
}

#[test]
fn a_changed_library_restarts_a_daemon_that_was_told_to_after_its_running_turns() {
    let (_server, daemon) = with_torture("reload: {native: restart}\n", "process");
    let before = daemon.until_ready();
    let turn = daemon.submit("running", "torture_wait {\"ms\": 700}");
    until("the call runs", || {
        daemon.events("running").iter().any(|e| e["kind"] == "interaction.item.started").then_some(())
    })
    .expect("the call runs");
    switch(&daemon.library("torture"), "none", "any", "second");
    let after = daemon.until_status("the next kernel", |s| {
        s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"]
    });
    assert_eq!(after["exits"][0]["crash"], false, "{after}");
    assert!(after["exits"][0]["how"].to_string().contains("torture"), "{after}");
    assert_eq!(daemon.wait(&turn)["content"], "waited");
    assert_eq!(variant(&daemon), "second");
}

#[test]
fn a_changed_library_that_is_broken_is_refused_at_the_restart_and_the_rest_works() {
    let (_server, daemon) = with_torture("", "inproc");
    switch(&daemon.library("torture"), "segfault", "any", "bad");
    let before = daemon.until_ready();
    daemon.client().ask("restart", json!({})).expect("it is agreed");
    let after = daemon.until_status("the next kernel", |s| {
        s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"]
    });
    assert_eq!(after["restarts"], 1, "{after}");
    let (state, reason) = daemon.extension("torture");
    assert!(state == "failed" && reason.contains("signal 11"), "{state}: {reason}");
    assert_eq!(daemon.turn("s", "kv_list {}")["status"], "success");
}

#[test]
fn a_native_folder_comes_and_goes_without_a_restart() {
    let server = ModelServer::obedient();
    let daemon = Daemon::home(&(server.config() + "approvals: {preauthorized: all}\n"));
    let mut daemon = daemon;
    daemon.run();
    let before = daemon.until_ready();
    daemon.plugin_in("process", "torture", "torture", "");
    daemon.until_extension("torture", "active");
    assert_eq!(variant(&daemon), "0");
    fs::remove_dir_all(daemon.path().join("extensions/torture")).expect("it is there");
    takes_effect("it is removed", || {}, || !listed(&daemon, "torture"));
    assert_ne!(variant(&daemon), "0", "its tools are gone");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"]);
}

#[test]
fn a_changed_configuration_is_taken_in_by_a_drained_restart_and_one_with_faults_is_not() {
    let daemon = Daemon::start("orchestrator: {name: Ada}\n");
    let before = daemon.until_ready();
    daemon.write("drupe.yaml", "orchestrater: {}\n");
    until("it is refused", || daemon.log().contains("the old one stays").then_some(()))
        .unwrap_or_else(|| panic!("it is refused\n{}", daemon.log()));
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"]);
    daemon.write("drupe.yaml", "orchestrator: {name: Grace}\n");
    let after = daemon.until_status("the new configuration", |s| {
        s["state"] == "ready" && s["generation"] != before["generation"]
    });
    assert_eq!(after["exits"][0]["crash"], false, "{after}");
    let shown = daemon.client().ask("config.show", json!({})).expect("it is shown");
    assert!(shown.to_string().contains("Grace"), "{shown}");
}

#[test]
fn folders_are_left_alone_where_the_configuration_says_so() {
    let daemon = Daemon::start("reload: {declarative: false}\n");
    daemon.write("extensions/late/manifest.yaml", &agent("late", 1));
    // Another way to take changes in, which has looked at everything when it answers.
    assert!(!listed(&daemon, "late"));
    daemon.client().ask("extensions.disable", json!({"id": "files"})).expect("it is turned off");
    assert_eq!(daemon.extension("files").0, "disabled");
}
