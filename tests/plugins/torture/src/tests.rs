use std::{
    fs,
    pin::pin,
    task::{Context, Waker},
};

use drupe_extension_api::testing::{Harness, block_on};
use serde_json::{Value, json};

use super::*;

fn torture(config: Value) -> Harness<Torture> {
    block_on(Harness::start(config)).expect("it starts")
}

fn call(torture: &Harness<Torture>, tool: &str, params: Value) -> Result<String, FaultCode> {
    block_on(torture.call(tool, params)).map_err(|fault| fault.code)
}

#[test]
fn nothing_fails_that_was_not_asked_for() {
    let torture = torture(json!({}));
    for (tool, params, answer) in [
        ("torture_do", json!({"act": "none"}), "nothing happened"),
        ("torture_wait", json!({"ms": 1}), "waited"),
        ("torture_thread", json!({"act": "none"}), "the thread has ended"),
        ("torture_trigger", json!({}), "told"),
        ("torture_append", json!({"text": "x"}), "appended"),
    ] {
        assert_eq!(call(&torture, tool, params), Ok(answer.to_owned()), "{tool}");
    }
    assert!(block_on(torture.health()).expect("a health").ok);
    assert!(block_on(torture.stop()).is_ok());
}

#[test]
fn each_switch_acts_in_its_place() {
    for stage in ["initialize", "start"] {
        let started = block_on(Harness::<Torture>::start(json!({stage: "panic"})));
        assert_eq!(started.err().map(|fault| fault.code), Some(FaultCode::Panicked), "{stage}");
    }
    let torture = torture(json!({"stop": "panic", "thread": "panic"}));
    assert_eq!(call(&torture, "torture_do", json!({"act": "panic"})), Err(FaultCode::Panicked));
    let thread = call(&torture, "torture_thread", json!({"act": "panic"}));
    assert_eq!(thread, Ok("the thread panicked".to_owned()));
    let gone = || call(&torture, "torture_trigger", json!({})) == Ok("the thread has gone".to_owned());
    while !gone() {
        thread::yield_now();
    }
    assert_eq!(block_on(torture.stop()).err().map(|fault| fault.code), Some(FaultCode::Panicked));
}

#[test]
fn a_pure_call_fails_once_and_what_was_appended_stays() {
    let torture = torture(json!({}));
    let pure = json!({"act": "panic", "marker_file": "once"});
    assert_eq!(call(&torture, "torture_pure", pure.clone()), Err(FaultCode::Panicked));
    assert_eq!(call(&torture, "torture_pure", pure), Ok("worked the second time".to_owned()));
    let append = json!({"text": "x", "then": "panic"});
    assert_eq!(call(&torture, "torture_append", append), Err(FaultCode::Panicked));
    let line = fs::read_to_string(torture.data_folder().join("appended")).expect("a line");
    assert!(line.ends_with(" x\n"), "{line}");
}

#[test]
fn an_attempt_tells_the_systems_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let torture = torture(json!({}));
    let path = folder.path().join("file").display().to_string();
    for (what, argument, answer) in [
        ("read", path.as_str(), "ENOENT"),
        ("write", &path, "ok"),
        ("read", &path, "ok"),
        ("connect", &path, "ECONNREFUSED"),
        ("remove", &path, "ok"),
        ("list", &path, "ENOENT"),
        ("udp", "127.0.0.1:9", "ok"),
        ("kill", &std::process::id().to_string(), "ok"),
        ("allocate", "4096", "ok"),
        ("share", "4096", "ok"),
        ("nameless", "name", "ok"),
        ("watch", "/", "ok"),
        ("limit", "", "ok"),
        ("allocate", &usize::MAX.to_string(), "ENOMEM"),
    ] {
        let answered = call(&torture, "torture_try", json!({"what": what, "argument": argument}));
        assert_eq!(answered, Ok(answer.to_owned()), "{what} {argument}");
    }
}

#[test]
fn health_is_what_it_was_told_to_be() {
    let torture = torture(json!({"health": "sick"}));
    assert!(!block_on(torture.health()).expect("a health").ok);
    assert_eq!(call(&torture, "torture_health", json!({"health": "hang"})), Ok("null".to_owned()));
    let mut health = pin!(torture.health());
    assert!(health.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn every_act_has_a_word() {
    for (word, act) in Act::ALL {
        assert_eq!(serde_json::from_value::<Act>(json!(word)).ok(), Some(act));
    }
}
