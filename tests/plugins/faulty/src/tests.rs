use std::{
    fs,
    pin::pin,
    task::{Context, Waker},
};

use drupe_extension_api::testing::{Harness, block_on};
use serde_json::json;

use super::*;

fn faulty() -> Harness<Faulty> {
    block_on(Harness::start(json!({}))).expect("it starts")
}

fn call(tool: &str, params: Value) -> Result<String, FaultCode> {
    block_on(faulty().call(tool, params)).map_err(|fault| fault.code)
}

#[test]
fn each_tool_does_what_its_name_says() {
    assert_eq!(call("faulty_echo", json!({"a": 1})), Ok(r#"{"a":1}"#.to_owned()));
    assert_eq!(call("faulty_sleep50", json!({})), Ok("slept".to_owned()));
    assert_eq!(call("faulty_slow", json!({"ms": 3})), Ok("slept".to_owned()));
    assert_eq!(call("faulty_big", json!({"bytes": 5})), Ok("xxxxx".to_owned()));
    assert_eq!(call("faulty_panic_task", json!({})), Ok("spawned".to_owned()));
    assert_eq!(call("faulty_error", json!({})), Err(FaultCode::Other));
    assert_eq!(call("faulty_panic", json!({})), Err(FaultCode::Panicked));
    assert_eq!(call("faulty_panic_later", json!({})), Err(FaultCode::Panicked));
}

#[test]
fn what_hangs_can_be_cancelled_and_panics_in_drop_where_it_says_so() {
    let faulty = faulty();
    for (tool, expected) in [("faulty_hang", 0), ("faulty_panic_drop", 1)] {
        {
            let mut call = pin!(faulty.call(tool, json!({})));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(faulty.host().logs().len(), expected, "{tool}");
    }
}

#[test]
fn the_effect_is_one_line_with_the_effect_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, until) = (folder.path().join("lines"), folder.path().join("go"));
    let faulty = faulty();
    let params = json!({"path": path, "nonce": "n1", "until": until});
    {
        let mut call = pin!(faulty.calling().effect("e1").call("faulty_effect_append", params.clone()));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(fs::read_to_string(&path).expect("lines"), "e1 n1\n");
    }
    fs::write(&until, "").expect("a file");
    assert_eq!(block_on(faulty.call("faulty_effect_append", params)), Ok("appended n1".to_owned()));
    assert_eq!(fs::read_to_string(&path).expect("lines"), "e1 n1\neffect-1 n1\n");
}

#[test]
fn each_switch_fails_its_stage() {
    for (switch, expected) in [
        ("fail_initialize", FaultCode::NotConfigured),
        ("panic_initialize", FaultCode::Panicked),
        ("fail_start", FaultCode::Other),
        ("panic_describe_tools", FaultCode::Panicked),
        ("misspelt", FaultCode::Invalid),
    ] {
        let fault = block_on(Harness::<Faulty>::start(json!({switch: true}))).expect_err("a fault");
        assert_eq!(fault.code, expected, "{switch}: {fault}");
    }
    let config = json!({"unhealthy": true, "hang_stop": true});
    let faulty = block_on(Harness::<Faulty>::start(config)).expect("it starts");
    assert!(!block_on(faulty.health()).expect("a health").ok);
    assert!(block_on(faulty.call("faulty_set_health", json!({"ok": true}))).is_ok());
    assert!(block_on(faulty.health()).expect("a health").ok);
    let mut stop = pin!(faulty.stop());
    assert!(stop.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn what_a_call_shows_meanwhile_and_parameters_that_do_not_fit_are_seen_in_a_test() {
    let faulty = faulty();
    assert_eq!(block_on(faulty.call("faulty_progress", json!({}))), Ok("one two three".to_owned()));
    assert_eq!(faulty.host().progress(), ["one", "two", "three"]);
    let misfit = block_on(faulty.call("faulty_slow", json!({"ms": "3"}))).expect_err("a number is needed");
    assert!(
        misfit.code == FaultCode::Invalid && misfit.message.contains("schema of `faulty_slow`: /ms"),
        "{misfit}"
    );
}
