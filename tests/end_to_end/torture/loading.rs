//! Failures before an extension works: in the constructor of its library, in `initialize` and in `start`.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    Effort, Row, print_head,
    scene::{Outcome, Scene},
    soon, stood_still,
};
use crate::harness::plugins::switch;

/// Ends of a process, as against a fault.
const CRASHES: [&str; 4] = ["abort", "segfault", "overflow", "exit"];

#[test]
fn a_library_that_fails_when_it_is_opened_is_seen_by_the_probe_and_by_nobody_else() {
    print_head();
    let acts: &[&str] = match Effort::of_this_run().whole {
        true => &["panic", "abort", "segfault", "overflow", "exit", "loop", "allocate", "deadlock"],
        false => &["segfault", "exit", "deadlock"],
    };
    for isolation in ["inproc", "process"] {
        for act in acts {
            let mut scene = Scene::prepare(isolation, "");
            switch(&scene.daemon.library("torture"), act, "any", "0");
            scene.daemon.run();
            let (state, reason) = scene.daemon.extension("torture");
            assert_eq!(state, "failed", "{act} {isolation}: {reason}");
            assert!(reason.contains("libtorture"), "the file is named: {reason}");
            let status = others_work(&scene);
            assert_eq!(status["restarts"], 0, "{status}");
            let how = reason.rsplit_once("opening it ").map_or(reason.as_str(), |(_, how)| how);
            let place = "constructor";
            let lost = "it alone is left out";
            Row { what: act, place, isolation, how, named: "torture", ready: None, lost }.print();
        }
    }
}

#[test]
fn a_library_that_deceives_the_probe_is_quarantined_at_its_first_crash() {
    print_head();
    let mut crashes = CRASHES.to_vec();
    if !Effort::of_this_run().whole {
        crashes.truncate(2);
    }
    for (isolation, verb) in [("inproc", "kernel"), ("process", "ext-host")] {
        for act in &crashes {
            let mut scene = Scene::prepare(isolation, "");
            switch(&scene.daemon.library("torture"), act, verb, "0");
            scene.daemon.run();
            quarantined(&scene, act, "constructor", "load");
        }
    }
}

#[test]
fn a_crash_while_it_is_loaded_quarantines_it_at_once_and_all_others_work() {
    print_head();
    let mut crashes = CRASHES.to_vec();
    if !Effort::of_this_run().whole {
        crashes.truncate(2);
    }
    for isolation in ["inproc", "process"] {
        for stage in ["initialize", "start"] {
            for act in &crashes {
                let mut scene = Scene::prepare(isolation, &format!("config: {{{stage}: {act}}}\n"));
                scene.daemon.run();
                quarantined(&scene, act, stage, stage);
            }
        }
    }
}

/// After one crash it is left out, its extension is named, and everything else works.
fn quarantined(scene: &Scene, act: &str, place: &str, operation: &str) {
    let isolation = scene.isolation;
    let reason = scene.daemon.until_extension("torture", "quarantined");
    assert!(reason.contains(&format!("`{operation}`")), "{act} in {place}, {isolation}: {reason}");
    let status = others_work(scene);
    let restarts = u64::from(scene.in_process());
    assert_eq!(status["restarts"], restarts, "{act} in {place}, {isolation}: {status}");
    let (how, named, ready) = if scene.in_process() {
        let Outcome { how, named, ready } = scene.last_end();
        (how.unwrap_or_default(), named.join(", "), ready)
    } else {
        let how = reason.rsplit_once(" with ").map_or(reason.as_str(), |(_, how)| how);
        let how = how.split_once(';').map_or(how, |(how, _)| how);
        (how.to_owned(), format!("torture: {operation}"), None)
    };
    assert_eq!(named, format!("torture: {operation}"), "{act} in {place}, {isolation}: {status}");
    let lost = "it alone is quarantined";
    Row { what: act, place, isolation, how: &how, named: &named, ready, lost }.print();
    assert!(ready.is_none_or(|ready| ready < soon()), "{act} in {place}: {ready:?}");
}

#[test]
fn a_panic_while_it_is_loaded_is_its_failure_alone() {
    print_head();
    for isolation in ["inproc", "process"] {
        for stage in ["initialize", "start"] {
            let scene = Scene::run(isolation, &format!("config: {{{stage}: panic}}\n"));
            let (state, reason) = scene.daemon.extension("torture");
            assert!(state == "failed" && reason.contains("it was told to panic"), "{state}: {reason}");
            let status = others_work(&scene);
            assert_eq!(status["restarts"], 0, "{status}");
            let how = "an error of the stage";
            let lost = "it alone has failed";
            Row { what: "panic", place: stage, isolation, how, named: "torture", ready: None, lost }.print();
        }
    }
}

#[test]
fn an_extension_that_hangs_while_it_is_loaded_is_left_out_and_all_others_work() {
    print_head();
    let whole = Effort::of_this_run().whole;
    let acts: &[&str] = if whole { &["loop", "deadlock"] } else { &["deadlock"] };
    let stages: &[&str] = if whole { &["initialize", "start"] } else { &["initialize"] };
    for isolation in ["inproc", "process"] {
        for stage in stages {
            for act in acts {
                let mut scene = Scene::prepare(isolation, &format!("config: {{{stage}: {act}}}\n"));
                let began = Instant::now();
                scene.daemon.spawn();
                hangs(&scene, act, stage, began);
            }
        }
    }
}

fn hangs(scene: &Scene, act: &str, stage: &str, began: Instant) {
    let isolation = scene.isolation;
    let out = |status: &Value| {
        let state = |id: &str| {
            let all = status["extensions"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|e| e["id"] == id).map_or(Value::Null, |e| e["state"].clone())
        };
        let torture = state("torture");
        status["state"] == "ready"
            && state("waiter") == "active"
            && (torture == "failed" || torture == "quarantined")
    };
    // A stage has 30 s, after which a test's patience would end as well.
    let mut status = None;
    while status.is_none() && began.elapsed() < Duration::from_secs(90) {
        status = crate::harness::until("it is left out", || {
            let mut client = crate::harness::Client::connect(scene.daemon.path()).ok()?;
            client.ask("status", serde_json::json!({})).ok().filter(out)
        });
    }
    let took = began.elapsed();
    let status = status.unwrap_or_else(|| panic!("{act} in {stage}, {isolation}:\n{}", scene.daemon.log()));
    let (state, reason) = scene.daemon.extension("torture");
    let restarts = usize::from(scene.in_process()) + stood_still(&scene.daemon);
    assert_eq!(status["restarts"], restarts, "{act} in {stage}, {isolation}: {status}");
    if scene.in_process() {
        assert_eq!(state, "quarantined", "{reason}");
        assert_eq!(status["exits"][0]["blamed"][0]["extension"], "torture", "{status}");
    }
    others_work(scene);
    let how = format!("{state}: {reason}");
    let lost = "it alone is left out";
    Row { what: act, place: stage, isolation, how: &how, named: "torture", ready: Some(took), lost }.print();
}

/// Another native extension, a shipped one and a turn; the status.
fn others_work(scene: &Scene) -> Value {
    for id in ["waiter", "kv"] {
        assert_eq!(scene.daemon.extension(id).0, "active", "{id}");
    }
    assert_eq!(scene.daemon.turn("s", "waiter_variant {}")["content"], "0");
    scene.daemon.until_ready()
}
