//! Failures in threads that an extension has started: in a call, or when it began.

use serde_json::json;

use super::{Effort, Row, print_head, scene::Scene, soon};

#[test]
fn a_crash_in_a_thread_of_an_extensions_own_is_blamed_on_it_while_another_waits() {
    print_head();
    let mut acts = vec![
        ("abort", "signal 6 (SIGABRT)"),
        ("segfault", "signal 11 (SIGSEGV)"),
        ("overflow", "signal"),
        ("exit", "exit status 0"),
    ];
    if !Effort::of_this_run().whole {
        acts.retain(|(act, _)| ["segfault", "exit"].contains(act));
    }
    for isolation in ["inproc", "process"] {
        for &(act, how) in &acts {
            for place in ["thread of a call", "thread of its own"] {
                crashes(isolation, place, act, how);
            }
        }
    }
}

fn crashes(isolation: &'static str, place: &str, act: &str, expected: &str) {
    let own = place == "thread of its own";
    let scene = Scene::run(isolation, &format!("config: {{thread: {act}}}\n"));
    let before = scene.daemon.until_ready();
    let waits = scene.wait_meanwhile("w");
    let message =
        if own { "torture_trigger {}".into() } else { format!("torture_thread {}", json!({"act": act})) };
    let turn = scene.daemon.submit("s", &message);
    let outcome = scene.outcome(&before);
    scene.daemon.wait(&turn);
    scene.end_wait(&waits);
    let (how, named) = (outcome.how.unwrap_or_default(), outcome.named.join(", "));
    let lost = "nothing: the other's call went on";
    Row { what: act, place, isolation, how: &how, named: &named, ready: outcome.ready, lost }.print();
    assert!(how.contains(expected), "{act} in a {place}, {isolation}: {how}");
    // In a process of its own the call that waits is as good a name as the thread.
    assert!(
        named == "torture: thread" || !scene.in_process() && named == "torture: tool.call",
        "{act} in a {place}, {isolation}: {named}"
    );
    assert!(outcome.ready < Some(soon()), "{act} in a {place}, {isolation}: {:?}", outcome.ready);
}

#[test]
fn a_thread_of_its_own_that_panics_or_hangs_ends_nothing() {
    print_head();
    for isolation in ["inproc", "process"] {
        for (act, ms, answer) in [
            ("panic", 30_000, "the thread panicked"),
            ("loop", 50, "the thread goes on"),
            ("deadlock", 50, "the thread goes on"),
        ] {
            let scene = Scene::run(isolation, "");
            let before = scene.daemon.until_ready();
            let message = format!("torture_thread {}", json!({"act": act, "ms": ms}));
            assert_eq!(scene.daemon.turn("s", &message)["content"], answer, "{act} {isolation}");
            scene.nothing_ended(&before);
            assert_eq!(scene.daemon.turn("s", "torture_variant {}")["content"], "0");
            let how = "nothing ended";
            let place = "thread of a call";
            Row { what: act, place, isolation, how, named: "–", ready: None, lost: "nothing" }.print();
        }
    }
}
