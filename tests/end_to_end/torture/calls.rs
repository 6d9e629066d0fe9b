//! Failures within a call, while another extension's call waits.

use std::time::Duration;

use serde_json::json;

use super::{
    Effort, Row, print_head,
    scene::{Scene, told_unknown},
    soon, stood_still,
};
use crate::harness::until;

/// Memory that the machine must have left for a call that takes 4 GiB of the kernel's.
const ENOUGH: u64 = 8 << 30;

/// Ways to end that the first ones stand for where time is short.
const ALIKE: [&str; 4] = ["double_panic", "double_free", "end_thread", "exit_now"];

#[test]
fn a_crash_in_a_call_in_process_is_blamed_on_its_extension_while_another_waits() {
    print_head();
    for (act, how) in [
        ("abort", "signal 6 (SIGABRT)"),
        ("segfault", "signal 11 (SIGSEGV)"),
        ("overflow", "signal"),
        ("exit", "exit status 0"),
        ("double_panic", "signal 6 (SIGABRT)"),
        ("double_free", "signal 6 (SIGABRT)"),
        ("end_thread", "signal 6 (SIGABRT)"),
        ("exit_now", "exit status 3"),
    ] {
        crashes("inproc", act, how);
    }
}

#[test]
fn a_call_that_holds_a_thread_in_process_ends_the_kernel_and_is_blamed() {
    print_head();
    for act in ["loop", "deadlock"] {
        crashes("inproc", act, "signal 9 (SIGKILL)");
    }
}

#[test]
fn a_crash_in_a_call_in_a_process_of_its_own_ends_that_alone() {
    print_head();
    for (act, how) in [
        ("abort", "signal 6 (SIGABRT)"),
        ("segfault", "signal 11 (SIGSEGV)"),
        ("overflow", "signal"),
        ("exit", "exit status 0"),
        ("allocate", "signal 6 (SIGABRT)"),
        ("loop", "killed"),
        ("deadlock", "killed"),
    ] {
        crashes("process", act, how);
    }
}

/// Fails so often, each time while `waiter` waits. The effect before the failure happens once, its outcome is told as
/// unknown, and the other call goes on.
fn crashes(isolation: &'static str, act: &str, expected: &str) {
    let hangs = ["loop", "deadlock"].contains(&act);
    let runs = match Effort::of_this_run() {
        // Each takes as long as the silence after which a kernel is killed, or ends as one of the others does.
        Effort { whole: false, .. } if isolation == "inproc" && (hangs || ALIKE.contains(&act)) => 1,
        Effort { runs, .. } => runs,
    };
    let scene = Scene::run(isolation, "");
    let (mut named, mut slowest, mut how) = (0, Duration::ZERO, String::new());
    for run in 0..runs {
        let (session, text) = (format!("s{run}"), format!("line-{run}"));
        let before = scene.daemon.until_ready();
        let waits = scene.wait_meanwhile(&format!("w{run}"));
        let append = json!({"text": text, "then": act});
        let turn = scene.daemon.submit(&session, &format!("torture_append {append}"));
        if hangs && isolation == "process" {
            until("the effect happened", || (scene.lines(&text) == 1).then_some(())).expect("it happened");
            scene.daemon.client().ask("turn.stop", json!({"turn": turn})).expect("it is stopped");
        }
        let outcome = scene.outcome(&before);
        let ended = scene.daemon.wait(&turn);
        assert_eq!(scene.lines(&text), 1, "the effect happened once: {ended}");
        if hangs && isolation == "process" {
            assert_eq!(ended["class"], "cancelled", "{ended}");
        } else {
            assert!(told_unknown(&ended), "the session is told: {ended}");
        }
        scene.end_wait(&waits);
        how = outcome.how.expect("something ended");
        assert!(how.contains(expected), "{act} {isolation}: {how}");
        named += usize::from(outcome.named == ["torture: tool.call"]);
        slowest = slowest.max(outcome.ready.unwrap_or_default());
        scene.forgive(run);
    }
    let misses = (runs - named).saturating_sub(stood_still(&scene.daemon));
    Row {
        what: act,
        place: "call",
        isolation,
        how: &how,
        named: &format!("torture: tool.call, {named} of {runs}"),
        ready: Some(slowest),
        lost: "nothing: the effect happened once, its outcome is told as unknown, the other's call went on",
    }
    .print();
    assert!(misses * 20 <= runs, "{act} {isolation}: named {named} times of {runs}");
    assert!(slowest < soon(), "{act} {isolation}: {slowest:?}");
}

#[test]
fn a_panic_in_a_call_and_memory_that_is_there_end_nothing() {
    print_head();
    for (isolation, act) in [("inproc", "panic"), ("process", "panic"), ("inproc", "allocate")] {
        // Four gigabytes are touched within one poll: a machine that is short of memory takes longer than a kernel may be
        // silent, so the suite that runs everywhere leaves it out.
        if act == "allocate" && (available_memory() < ENOUGH || std::env::var("DRUPE_TORTURE").is_err()) {
            println!("| allocate | call | inproc | not tried: it needs 8 GiB, and `DRUPE_TORTURE` | | | |");
            continue;
        }
        let scene = Scene::run(isolation, "");
        let before = scene.daemon.until_ready();
        let waits = scene.wait_meanwhile("w");
        let turn = scene.daemon.turn("s", &format!("torture_do {}", json!({"act": act})));
        let content = turn["content"].as_str().unwrap_or_default();
        let expected = if act == "panic" { "it was told to panic" } else { "nothing happened" };
        assert!(content.contains(expected), "{turn}");
        assert!(act != "panic" || content.contains("torture_do"), "the tool is named: {turn}");
        scene.nothing_ended(&before);
        scene.end_wait(&waits);
        let how = if act == "panic" { "an error of the call" } else { "it got the memory" };
        let named = if act == "panic" { "torture_do" } else { "–" };
        Row { what: act, place: "call", isolation, how, named, ready: None, lost: "nothing" }.print();
    }
}

#[test]
fn a_call_without_effects_that_was_cut_off_by_a_crash_is_made_again() {
    for isolation in ["inproc", "process"] {
        let scene = Scene::run(isolation, "");
        let before = scene.daemon.until_ready();
        let turn = scene.daemon.submit("s", r#"torture_pure {"act": "abort"}"#);
        scene.outcome(&before);
        let ended = scene.daemon.wait(&turn);
        assert_eq!(ended["content"], "worked the second time", "{isolation}: {ended}");
        assert!(!told_unknown(&ended), "{ended}");
    }
}

#[test]
fn three_crashes_of_one_content_lead_to_quarantine_and_another_content_lifts_it() {
    for isolation in ["inproc", "process"] {
        let scene = Scene::run(isolation, "");
        for run in 0..3 {
            let before = scene.daemon.until_ready();
            let turn = scene.daemon.submit(&format!("s{run}"), r#"torture_do {"act": "abort"}"#);
            match (run, isolation) {
                (_, "inproc") => drop(scene.kernel_ended(&before)),
                (2, _) => {}
                _ => drop(scene.outcome(&before)),
            }
            scene.daemon.wait(&turn);
        }
        let reason = scene.daemon.until_extension("torture", "quarantined");
        assert!(
            reason.contains("3 times") && reason.contains("ext release torture"),
            "{isolation}: {reason}"
        );
        assert_eq!(scene.daemon.extension("waiter").0, "active");
        let absent = scene.daemon.turn("s", r#"torture_do {"act": "none"}"#);
        assert_ne!(absent["content"], "nothing happened", "{absent}");
        crate::harness::plugins::switch(&scene.daemon.library("torture"), "none", "any", "mended");
        scene.restart();
        assert_eq!(scene.daemon.extension("torture").0, "active", "{:?}", scene.daemon.extension("torture"));
        assert_eq!(scene.daemon.turn("s", "torture_variant {}")["content"], "mended");
    }
}

fn available_memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1024
}
