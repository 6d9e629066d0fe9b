//! What foreign code may try from a process of its own, one thing after another in one daemon, while a turn of another
//! session waits for another extension. That turn sees nothing of any of it.

use std::fs;

use jiff::Timestamp;
use serde_json::json;

use super::{
    Row, print_head,
    scene::{Scene, text, time},
};
use crate::harness::{Daemon, until};

/// What an attempt leads to.
enum Leads {
    /// Nothing ends.
    Nowhere,
    /// The process ends, and its end is told with these words.
    To(&'static str),
    /// The call does not come back. It is stopped, and the process is killed with these words.
    Late(&'static str),
}

use Leads::{Late, Nowhere, To};

const NOT_BACK: &str = "killed: a cancelled call did not return";

/// Nothing but the end of the process is certain: which part of it notices first is not.
const ANYHOW: &str = "";

const ATTACKS: &[(&str, Leads)] = &[
    ("double_panic", To("signal 6 (SIGABRT)")),
    ("exit_now", To("exit status 3")),
    ("end_thread", To("signal 6 (SIGABRT)")),
    ("double_free", To("signal 6 (SIGABRT)")),
    ("kill", To("signal 9 (SIGKILL)")),
    ("terminate", To("signal 15 (SIGTERM)")),
    ("pause", Late(NOT_BACK)),
    ("kill_parent", Nowhere),
    ("pause_parent", Nowhere),
    ("unsettle", Nowhere),
    ("noise", Nowhere),
    ("fork", Nowhere),
    ("threads", To("killed: it had more than 2048 processes and threads")),
    ("close", To(ANYHOW)),
    ("redirect", To(ANYHOW)),
    ("disconnect", To(ANYHOW)),
    ("garble", To("killed: it sent")),
];

#[test]
fn whatever_is_tried_in_a_process_of_its_own_the_turns_of_others_see_nothing() {
    print_head();
    let scene = Scene::run("process", "");
    let before = scene.daemon.until_ready();
    let others = Others::new(&scene);
    for (run, (act, leads)) in ATTACKS.iter().enumerate() {
        let since = last_loss(&scene);
        let call = json!({"text": act, "then": act});
        let turn = scene.daemon.submit(&format!("s{run}"), &format!("torture_append {call}"));
        let how = match leads {
            Nowhere => {
                let ended = scene.daemon.wait(&turn);
                assert_eq!(ended["content"], "appended", "{act}: {ended}");
                assert_eq!(last_loss(&scene), since, "{act}: {:?}", scene.history());
                "nothing ended".to_owned()
            }
            To(words) => ends(&scene, act, since, words),
            Late(words) => {
                stop_when_begun(&scene, act, &turn);
                ends(&scene, act, since, words)
            }
        };
        scene.daemon.wait(&turn);
        others.saw_nothing(&scene, act);
        row(act, "call", &how);
        scene.forgive(run);
    }
    assert_eq!(scene.daemon.until_ready()["kernel_pid"], before["kernel_pid"], "{}", scene.daemon.log());
    // Those that left their session, their parents and the process that started them all.
    let left = until("nothing is left of what it started", || (processes(&scene.daemon) == 2).then_some(()));
    assert!(left.is_some(), "{} processes run extensions", processes(&scene.daemon));
    others.end(&scene);
}

#[test]
fn what_is_hard_to_take_from_a_process_is_a_fault_of_its_call() {
    print_head();
    let scene = Scene::run("process", "");
    let before = scene.daemon.until_ready();
    let others = Others::new(&scene);
    for (what, params, told) in [
        ("32 MiB", json!({"bytes": 32 << 20}), "cannot be sent"),
        ("no text", json!({"bytes": 64, "garbled": true}), "unreadable"),
    ] {
        let turn = scene.daemon.turn("s", &format!("torture_answer {params}"));
        let content = text(&turn, "content");
        assert!(content.contains(told), "{what}: {turn}");
        others.saw_nothing(&scene, what);
        row(what, "answer", "a fault of the call");
    }
    scene.nothing_ended(&before);

    // A state that never lets go of its thread.
    let since = last_loss(&scene);
    let turn = scene.daemon.submit("s", r#"torture_hold {"act": "loop"}"#);
    stop_when_begun(&scene, "held", &turn);
    row("loop", "drop of a call", &ends(&scene, "a drop", since, NOT_BACK));
    others.saw_nothing(&scene, "a drop");

    let since = last_loss(&scene);
    let library = scene.daemon.library("torture");
    let half = fs::metadata(&library).expect("a library").len() / 2;
    fs::File::options().write(true).open(&library).expect("a library").set_len(half).expect("a library");
    assert_eq!(scene.daemon.turn("s", "torture_variant {}")["content"], "0", "what runs is a copy");
    fs::remove_file(&library).expect("a library");
    assert_eq!(scene.daemon.turn("s", "torture_variant {}")["content"], "0", "what runs is a copy");
    assert_eq!(last_loss(&scene), since);
    row("cut off and removed", "library", "nothing ended");
    others.end(&scene);
}

#[test]
fn a_crash_in_health_or_at_the_end_of_an_instance_harms_nobody_else() {
    print_head();
    let manifest = "config: {drop: abort}\n";
    let mut scene = Scene::prepare("process", manifest);
    let config = scene.daemon.path().join("drupe.yaml");
    let settings = fs::read_to_string(&config).expect("a configuration");
    fs::write(config, settings + "health_interval_ms: 200\n").expect("a configuration");
    scene.daemon.run();
    let others = Others::new(&scene);
    let since = last_loss(&scene);
    scene.daemon.turn("s", r#"torture_health {"health": "abort"}"#);
    let how = ends(&scene, "abort", since, "signal 6 (SIGABRT)");
    row("abort", "health", &how);
    others.end(&scene);
    scene.restart();
    assert_eq!(scene.daemon.extension("torture").0, "active");
    let crashes = &scene.daemon.until_ready()["exits"][0]["crash"];
    assert_eq!(*crashes, false, "the kernel ended in order");
    row("abort", "drop of the instance", "nothing else ended");
}

/// A turn of another session that waits for another extension.
struct Others {
    turn: String,
    events: usize,
}

impl Others {
    fn new(scene: &Scene) -> Self {
        let turn = scene.wait_meanwhile("others");
        Self { turn, events: scene.daemon.events("others").len() }
    }

    /// It neither ended nor was told of anything, and other turns are answered.
    fn saw_nothing(&self, scene: &Scene, what: &str) {
        let events = scene.daemon.events("others");
        assert_eq!(events.len(), self.events, "{what}: {events:#?}");
        assert_eq!(scene.daemon.extension("waiter").0, "active", "{what}");
        let turn = scene.daemon.turn("third", "waiter_wait {\"ms\": 1}");
        assert_eq!(turn["content"], "waited", "{what}: {turn}");
    }

    fn end(&self, scene: &Scene) {
        scene.end_wait(&self.turn);
    }
}

/// When it was last taken out.
fn last_loss(scene: &Scene) -> Option<Timestamp> {
    changes(scene, "degraded").into_iter().map(|(time, _)| time).max()
}

/// Waits until it has lost its process once more and works again; how that ended.
fn ends(scene: &Scene, what: &str, since: Option<Timestamp>, words: &str) -> String {
    let found = until("it has lost its process and works again", || {
        let lost = changes(scene, "degraded").into_iter().find(|(time, _)| Some(*time) > since)?;
        changes(scene, "active").iter().any(|(time, _)| *time >= lost.0).then_some(lost.1)
    });
    let reason = found.unwrap_or_else(|| panic!("{what}: {:#?}\n{}", scene.history(), scene.daemon.log()));
    assert!(reason.contains(words) && reason.contains("its process ended in `"), "{what}: {reason}");
    reason
}

/// When it came to a state, and why.
fn changes(scene: &Scene, state: &str) -> Vec<(Timestamp, String)> {
    let history = scene.history();
    let those = history.iter().filter(|change| change["state"] == state);
    those.map(|change| (time(&text(change, "time")), text(change, "reason"))).collect()
}

/// Stops a turn whose call has left this line.
fn stop_when_begun(scene: &Scene, line: &str, turn: &str) {
    let found = until("the call is under way", || (scene.lines(line) == 1).then_some(()));
    assert!(found.is_some(), "{}", scene.daemon.log());
    scene.daemon.client().ask("turn.stop", json!({"turn": turn})).expect("it is stopped");
}

/// The processes that run extensions of this daemon.
fn processes(daemon: &Daemon) -> usize {
    let home = daemon.path().display().to_string();
    let all = fs::read_dir("/proc").expect("a folder").flatten();
    let lines = all.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    let ours = |line: &Vec<u8>| {
        let line = String::from_utf8_lossy(line);
        line.contains(&home) && line.contains("ext-host")
    };
    lines.filter(ours).count()
}

fn row(what: &str, place: &str, how: &str) {
    let lost = "nothing: the other's turn saw nothing";
    Row { what, place, isolation: "process", how, named: "torture", ready: None, lost }.print();
}
