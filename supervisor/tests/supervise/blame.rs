//! Kernels that die in an extension's code, and what the next one is told.

use serde_json::json;

use super::*;

impl Daemon {
    /// What the kernel that serves was told by its supervisor.
    fn told(&self) -> Value {
        self.client().ask("told").expect("it tells")
    }

    /// What the kernel was told, once it is so.
    fn eventually_told(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || Some(self.told()).filter(&so))
    }

    /// Lets the kernel die; returns when another one serves.
    pub fn die(&self, running: &[&str], how: impl serde::Serialize) {
        let first = self.kernel();
        self.client().request("die", json!({ "running": running, "how": how }));
        eventually("another kernel serves", || (self.kernel() != first).then_some(()));
    }

    /// Lets the kernel say something to its supervisor.
    fn send(&self, frame: Value) {
        self.client().request("send", frame).expect("an answer").expect("it agrees");
    }

    fn crashed(&self, extension: &str, loading: bool) {
        self.send(json!({
            "frame": "crashed", "extension": extension, "hash": "h1", "operation": "tool.call",
            "how": "signal 6 (SIGABRT)", "loading": loading,
        }));
    }

    fn notes(&self) -> String {
        self.log("note").iter().map(|note| format!("{}\n", note["text"])).collect()
    }
}

fn quarantined(told: &Value) -> Vec<&str> {
    let list = told["verdicts"]["quarantined"].as_array().expect("a list");
    list.iter().map(|found| found["extension"].as_str().expect("a name")).collect()
}

#[test]
fn an_extension_that_crashes_while_it_loads_is_left_out_at_once() {
    let daemon = Daemon::serving("loading:1");
    let told = daemon.told();
    let found = &told["verdicts"]["quarantined"][0];
    let expected = "crashed the kernel while it was loaded, in `initialize` with signal 11 (SIGSEGV)";
    assert_eq!((found["extension"].as_str(), found["hash"].as_str()), (Some("bad-1"), Some("h1")));
    assert_eq!(found["reason"], expected);
    assert_eq!(daemon.log("start").len(), 2, "one crash was enough");
    let exit = &daemon.log("exit")[0];
    assert_eq!(exit["how"], "signal 11 (SIGSEGV)");
    assert_eq!(exit["blamed"], json!([{ "extension": "bad-1", "operation": "initialize" }]));
    assert_eq!(told["exits"][0]["blamed"], exit["blamed"]);
    assert_eq!(told["notices"][0], "kernel 1 was ended by `bad-1` in `initialize`: signal 11 (SIGSEGV)");
}

#[test]
fn starts_that_are_explained_one_after_the_other_leave_the_set_of_extensions_as_it_is() {
    let daemon = Daemon::serving("serve,loading:3");
    let first = daemon.kernel();
    daemon.client().ask(method::RESTART).expect("it agrees");
    eventually("another kernel serves", || (daemon.kernel() != first).then_some(()));
    let told = daemon.told();
    assert_eq!(quarantined(&told), ["bad-1", "bad-2", "bad-3"]);
    assert_eq!(told["fallback"], Value::Null);
}

#[test]
fn what_an_earlier_kernel_noted_is_not_laid_to_a_later_one() {
    let daemon = Daemon::serving("serve");
    daemon.die(&["a tool.call"], "fault");
    daemon.die(&[], "fault");
    let exits = daemon.log("exit");
    assert_eq!(exits[0]["blamed"][0]["extension"], "a");
    assert!(exits[1].get("blamed").is_none(), "{}", exits[1]);
}

#[test]
fn three_crashes_in_ten_minutes_lead_to_quarantine_until_it_is_released() {
    let daemon = Daemon::serving("serve");
    for how in [json!("fault"), json!({ "exit": 0 })] {
        daemon.die(&["a tool.call", "b tool.call"], how);
        assert!(quarantined(&daemon.told()).is_empty());
    }
    daemon.die(&["a tool.call"], "fault");
    let told = daemon.told();
    assert_eq!(quarantined(&told), ["a"]);
    let expected =
        "crashed the kernel 3 times in 10 minutes, at last in `tool.call` with signal 11 (SIGSEGV)";
    assert_eq!(told["verdicts"]["quarantined"][0]["reason"], expected);
    assert!(daemon.notes().contains(expected));
    for exit in daemon.log("exit") {
        assert_eq!(exit["blamed"], json!([{ "extension": "a", "operation": "tool.call" }]));
    }

    daemon.send(json!({ "frame": "released", "extension": "a", "reason": "the operator released it" }));
    daemon.eventually_told("it is released", |told| quarantined(told).is_empty());
    daemon.die(&["a tool.call"], "fault");
    assert!(quarantined(&daemon.told()).is_empty(), "it is counted anew");
}

#[test]
fn a_quarantine_outlives_the_supervisor() {
    let mut daemon = Daemon::start("loading:1,hold");
    eventually("it is written", || fs::read_to_string(daemon.home.state().join("quarantine.json")).ok());
    eventually("the second kernel starts", || (daemon.log("start").len() == 2).then_some(()));
    let notices = daemon.status().notices.join("\n");
    assert!(notices.contains("`bad-1` is quarantined: crashed the kernel while it was loaded"), "{notices}");
    daemon.signal(Signal::KILL);
    daemon.end();
    daemon.process = command(&daemon.folder, "serve").spawn().expect("it starts");
    eventually("the next supervisor's kernel is ready", || (daemon.log("ready").len() == 1).then_some(()));
    assert_eq!(quarantined(&daemon.told()), ["bad-1"]);
}

#[test]
fn a_damaged_memory_of_crashes_is_said_and_does_not_keep_a_daemon_from_starting() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::create(folder.path().join("home")).expect("a home");
    fs::write(home.state().join("quarantine.json"), "{\"quarantined\":[{").expect("a file");
    fs::write(home.state().join("extensions.good"), "\0\u{fffd}").expect("a file");
    let process = command(&folder, "serve").spawn().expect("the example is built");
    let daemon = Daemon { folder, home, process };
    let told = daemon.told();
    assert!(quarantined(&told).is_empty());
    assert!(told["notices"][0].as_str().is_some_and(|notice| notice.contains("is damaged")), "{told}");
}

#[test]
fn where_several_are_possible_they_are_suspects_until_one_is_convicted() {
    let daemon = Daemon::serving("serve");
    daemon.die(&["a tool.call", "b agent.invoke", "c tool.call"], "wordless");
    let told = daemon.told();
    assert_eq!(told["verdicts"]["suspects"], json!(["a", "b", "c"]));
    assert!(quarantined(&told).is_empty());
    assert_eq!(daemon.log("exit")[0]["blamed"].as_array().map(Vec::len), Some(3));

    daemon.crashed("b", false);
    daemon.eventually_told("the others are cleared", |told| told["verdicts"]["suspects"] == json!(["b"]));
    assert!(daemon.notes().contains("it was `b`"));
    daemon.crashed("b", false);
    daemon.crashed("b", false);
    let told = daemon.eventually_told("it is left out", |told| !quarantined(told).is_empty());
    assert_eq!(quarantined(&told), ["b"]);
    assert!(daemon.log("exit").len() == 1, "no kernel ended for it");
}

#[test]
fn a_wordless_death_with_one_extension_running_is_that_ones() {
    let daemon = Daemon::serving("serve");
    daemon.die(&["a tool.call"], "wordless");
    assert_eq!(daemon.told()["verdicts"]["suspects"], json!([]));
    assert_eq!(daemon.log("exit")[0]["blamed"], json!([{ "extension": "a", "operation": "tool.call" }]));
}

#[test]
fn a_kill_from_outside_is_nobodys_fault() {
    let daemon = Daemon::serving("serve");
    let first = daemon.kernel();
    // It hangs in the code of both, and is killed before the watchdog would.
    daemon.client().request("die", json!({ "running": ["a tool.call", "b tool.call"], "how": "hang" }));
    kill_process(first, Signal::KILL).expect("it runs");
    eventually("another kernel serves", || (daemon.kernel() != first).then_some(()));
    let exit = &daemon.log("exit")[0];
    assert!(exit["how"].as_str().is_some_and(|how| how.contains("another process")), "{exit}");
    assert!(exit.get("blamed").is_none());
    assert_eq!(daemon.told()["verdicts"], json!({ "quarantined": [], "suspects": [] }));
}

#[test]
fn code_that_ran_at_two_kills_in_a_row_runs_in_a_process_of_its_own_from_then_on() {
    let daemon = Daemon::serving("serve");
    let kill = |running: &[&str]| {
        daemon.die(running, json!({ "raise": Signal::KILL.as_raw() }));
        daemon.told()["verdicts"]["suspects"].clone()
    };
    assert_eq!(kill(&["a initialize", "b tool.call"]), json!([]));
    assert_eq!(kill(&["c tool.call"]), json!([]));
    assert_eq!(kill(&["c tool.call", "a initialize"]), json!(["c"]));
    assert!(daemon.notes().contains("may have been ended by `c` in `tool.call`"), "{}", daemon.notes());
    // Once it crashes there it is known.
    daemon.crashed("c", true);
    daemon.eventually_told("it is left out", |told| quarantined(told) == ["c"]);
}

#[test]
fn a_hang_is_laid_to_the_code_that_holds_the_thread() {
    let daemon = Daemon::serving("serve");
    daemon.die(&["slow tool.call"], "hang");
    let exit = &daemon.log("exit")[0];
    assert_eq!(exit["how"], "signal 9 (SIGKILL): no beat for 10 s");
    assert_eq!(exit["blamed"], json!([{ "extension": "slow", "operation": "tool.call" }]));
}

#[test]
fn a_kernel_that_is_stopped_in_the_code_of_an_extension_is_killed_and_nobody_is_blamed() {
    let daemon = Daemon::serving("serve");
    daemon.die(&["a initialize"], json!({ "raise": Signal::STOP.as_raw() }));
    let exit = &daemon.log("exit")[0];
    assert_eq!(exit["how"], "signal 9 (SIGKILL): no beat for 10 s");
    assert!(exit.get("blamed").is_none(), "{exit}");
    assert!(quarantined(&daemon.told()).is_empty());
    assert!(daemon.notes().contains("stood still"));
}

#[test]
fn two_starts_that_nobody_explains_lead_back_to_the_last_good_extensions() {
    let daemon = Daemon::serving("serve,stuck");
    assert_eq!(daemon.told()["fallback"], Value::Null);
    let first = daemon.kernel();
    daemon.client().ask(method::RESTART).expect("it agrees");
    eventually("another kernel serves", || (daemon.kernel() != first).then_some(()));
    let told = daemon.told();
    assert_eq!(told["fallback"], "set-1");
    assert!(told["notices"][0].as_str().is_some_and(|notice| notice.contains("last good set")), "{told}");
    assert_eq!(daemon.log("start").len(), 4);

    // The next supervisor knows of it, too; a crash does not bring the present set back.
    let mut daemon = daemon;
    daemon.signal(Signal::TERM);
    daemon.end();
    daemon.process = command(&daemon.folder, "stuck").spawn().expect("it starts");
    let second = daemon.kernel();
    assert_eq!(daemon.told()["fallback"], "set-1");
    kill_process(second, Signal::KILL).expect("it runs");
    eventually("another kernel serves", || (daemon.kernel() != second).then_some(()));
    assert_eq!(daemon.told()["fallback"], "set-1");
}

#[test]
fn ten_crashes_lead_to_safe_mode_and_a_requested_restart_leaves_it() {
    let daemon = Daemon::serving("serve");
    for _ in 0..6 {
        daemon.die(&[], "fault");
    }
    let told = daemon.told();
    assert_eq!(told["safe_mode"], true);
    assert!(told["notices"].to_string().contains("safe mode"), "{told}");
    let good = fs::read_to_string(daemon.home.state().join("extensions.good"));
    assert_eq!(good.expect("it was kept"), "set-6\n", "a set without most of them is not a good one");
    for _ in 0..2 {
        daemon.die(&[], "fault");
        assert_eq!(daemon.told()["safe_mode"], true);
    }
    let first = daemon.kernel();
    daemon.client().ask(method::RESTART).expect("it agrees");
    eventually("another kernel serves", || (daemon.kernel() != first).then_some(()));
    assert_eq!(daemon.told()["safe_mode"], false);
    for _ in 0..2 {
        daemon.die(&[], "fault");
        assert_eq!(daemon.told()["safe_mode"], false);
    }
    assert_eq!(daemon.log("exit").len(), 11);
}

#[test]
fn a_kernel_that_floods_its_supervisor_with_invented_crashes_fills_nothing() {
    let daemon = Daemon::serving("flood");
    daemon.eventually_read_on();
    let kept = fs::read_to_string(daemon.home.state().join("quarantine.json")).expect("it is written");
    assert!(kept.len() < 512 * 1024, "{}", kept.len());
    let ledger: Value = serde_json::from_str(&kept).expect("it is JSON");
    let invented = ledger["quarantined"].as_array().expect("a list").len();
    assert!((1..=64).contains(&invented), "{invented}");
    daemon.eventually_told("what is kept", |told| quarantined(told).len() == invented);
    assert!(!daemon.notes().contains("\\u001b"));
    assert!(daemon.log("exit").is_empty());
}
