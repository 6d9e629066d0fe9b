//! Turns that end without going on, beside a kernel that drains or dies: what was told to stop has stopped for good, and
//! what they had set aside for a model call that was cut off counts as used.

use rustix::process::Signal;

use super::*;

const BUDGET: &str = "limits: {day: {max_tokens: 1000000}}\n";

/// The least that is set aside for a model call here, in tokens; an answer takes 60.
const SET_ASIDE: u64 = 1_000;

impl Scene {
    fn ask(&self, method: &str, params: Value) -> Value {
        self.daemon.client().ask(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn kernel_pid(&self) -> u32 {
        let pid = self.daemon.until_ready()["kernel_pid"].as_u64().expect("a pid");
        u32::try_from(pid).expect("a pid")
    }

    /// Begins an orderly restart, which waits for the turn whose answer is held back.
    fn drain(&self) {
        self.ask("restart", json!({"reason": "a test"}));
        self.daemon.until_status("the drain", |status| status["state"] == "draining");
    }

    /// Kills that kernel and waits for the next one.
    fn kill(&self, pid: u32) {
        Daemon::signal(pid, Signal::KILL);
        self.daemon.until_status("the next kernel", |s| s["state"] == "ready" && s["kernel_pid"] != pid);
    }

    /// How often the model was asked something like that.
    fn times(&self, text: &str) -> usize {
        self.server.requests().iter().filter(|request| last(request).contains(text)).count()
    }

    /// Tokens of the day.
    fn used(&self) -> u64 {
        let status = self.ask("status", json!({}));
        let budgets = status["budgets"].as_array().expect("budgets").iter();
        let day = budgets.filter(|b| b["limit"] == "limits.day.max_tokens").find_map(|b| b["used"].as_u64());
        day.unwrap_or_else(|| panic!("{status}"))
    }

    /// What the next kernel reads of it.
    fn used_after_a_restart(&self) -> u64 {
        self.kill(self.kernel_pid());
        self.used()
    }
}

fn assert_cancelled(turn: &Value) {
    assert_eq!((&turn["status"], &turn["class"]), (&json!("error"), &json!("cancelled")), "{turn}");
}

#[test]
fn an_interrupt_that_is_accepted_while_the_kernel_drains_ends_the_turn_for_good() {
    let mut scene = scene("", nothing);
    let first = scene.submit("hold this", json!({}));
    scene.held();
    scene.drain();
    let second = scene.submit("at once", json!({"queue": "interrupt"}));
    assert_cancelled(&scene.daemon.wait(&first));
    assert_eq!(content(&scene.daemon.wait(&second)), "heard: at once");
    assert_eq!((scene.times("hold this"), scene.times("at once")), (1, 1));
    scene.let_all();
}

#[test]
fn what_was_told_to_stop_is_not_gone_on_with_when_the_kernel_is_killed_at_once() {
    for interrupt in [false, true] {
        let mut scene = scene(BUDGET, nothing);
        let first = scene.submit("hold this", json!({}));
        scene.held();
        let pid = scene.kernel_pid();
        match interrupt {
            true => drop(scene.submit("at once", json!({"queue": "interrupt"}))),
            false => drop(scene.ask("turn.stop", json!({"turn": first}))),
        }
        scene.kill(pid);
        assert_cancelled(&scene.daemon.wait(&first));
        assert_eq!(scene.times("hold this"), 1);
        let used = scene.used_after_a_restart();
        assert!(used > SET_ASIDE, "{used} tokens");
        scene.let_all();
    }
}

#[test]
fn a_turn_that_only_the_next_kernel_would_begin_is_stopped_by_itself_and_with_its_session() {
    for method in ["turn.stop", "sessions.stop"] {
        let mut scene = scene("", nothing);
        let first = scene.submit("hold this", json!({}));
        scene.held();
        let pid = scene.kernel_pid();
        scene.drain();
        let later = scene.submit("later", json!({"queue": "followup"}));
        scene.ask(method, json!({"turn": later, "id": "s"}));
        scene.kill(pid);
        scene.let_all();
        assert_cancelled(&scene.daemon.wait(&later));
        assert_eq!(scene.times("later"), 0, "{method}");
        match method {
            "turn.stop" => assert_eq!(content(&scene.daemon.wait(&first)), "heard: hold this"),
            _ => assert_cancelled(&scene.daemon.wait(&first)),
        }
    }
}

#[test]
fn a_turn_that_crashes_kernels_ends_and_each_of_its_calls_counts() {
    let mut scene = scene(BUDGET, nothing);
    let turn = scene.submit("hold this", json!({}));
    scene.held();
    scene.kill(scene.kernel_pid());
    scene.held();
    let one = scene.used();
    assert!(one > SET_ASIDE, "{one} tokens");
    scene.kill(scene.kernel_pid());
    scene.held();
    scene.kill(scene.kernel_pid());
    let ended = scene.daemon.wait(&turn);
    assert_eq!(ended["class"], "internal", "{ended}");
    assert_eq!((scene.times("hold this"), scene.used()), (3, 3 * one), "{ended}");
    assert_eq!(scene.used_after_a_restart(), 3 * one);
    scene.let_all();
}

#[test]
fn a_turn_whose_agent_is_gone_after_a_crash_ends_and_what_was_cut_off_counts() {
    let keeper =
        "id: keeper\nname: Keeper\ndescription: Keeps.\nagent: {model: default, instructions: You keep.}\n";
    let mut scene = scene(BUDGET, |d| d.write("extensions/keeper/manifest.yaml", keeper));
    let turn = scene.submit("hold this", json!({"agent": "keeper"}));
    scene.held();
    let pid = scene.kernel_pid();
    scene.ask("extensions.disable", json!({"id": "keeper"}));
    scene.kill(pid);
    let ended = scene.daemon.wait(&turn);
    assert_eq!((&ended["class"], scene.times("hold this")), (&json!("config"), 1), "{ended}");
    let used = scene.used_after_a_restart();
    assert!(used > SET_ASIDE, "{used} tokens");
    scene.let_all();
}

#[test]
fn a_turn_that_is_stopped_while_it_waits_for_room_to_go_on_counts_what_was_cut_off() {
    let mut scene = scene(BUDGET, nothing);
    let own = |session: &str| scene.submit(&format!("hold {session}"), json!({"session": session}));
    let (a, b) = (own("a"), own("b"));
    scene.held();
    scene.held();
    let config = std::fs::read_to_string(scene.daemon.path().join("drupe.yaml")).expect("a configuration");
    let narrow = config.replace("limits: {", "limits: {concurrency: {turns: 1}, ");
    let pid = scene.kernel_pid();
    scene.daemon.write("drupe.yaml", &narrow);
    scene.kill(pid);
    scene.held();
    // What was cut off of both counts before either goes on.
    let two = scene.used();
    // One goes on; the other waits for room, and is stopped first.
    let goes_on = scene.server.requests().last().map(last);
    for turn in if goes_on.is_some_and(|text| text.contains("hold a")) { [b, a] } else { [a, b] } {
        scene.ask("turn.stop", json!({"turn": turn}));
        assert_cancelled(&scene.daemon.wait(&turn));
    }
    assert_eq!(scene.times("hold"), 3, "the one that waited was not asked for again");
    assert_eq!(scene.used_after_a_restart(), 3 * (two / 2));
    scene.let_all();
}

#[test]
fn a_turn_outlives_the_crashes_that_an_extension_is_certainly_to_blame_for() {
    let mut scene = scene("", |d| d.plugin_in("inproc", "serving", "serving", ""));
    let turn = scene.submit("hold this", json!({}));
    scene.held();
    for crash in 0..3 {
        let pid = scene.kernel_pid();
        scene.submit("crash", json!({"session": format!("crash{crash}")}));
        scene.daemon.until_status("the next kernel", |s| s["state"] == "ready" && s["kernel_pid"] != pid);
        scene.held();
    }
    scene.let_all();
    let answered = scene.daemon.wait(&turn);
    assert_eq!(content(&answered), "heard: hold this", "{answered}");
    assert_eq!(scene.times("hold this"), 4);
}
