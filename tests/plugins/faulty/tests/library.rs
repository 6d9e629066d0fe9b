//! The extension as a library file: opened, checked, and made to fail across the real boundary.

use std::{
    path::PathBuf,
    pin::pin,
    task::{Context, Waker},
};

use drupe_extension_abi::{
    CallHeader, ExtensionBox, PluginRef, Reply,
    abi_stable::library::{AbiHeaderRef, ROOT_MODULE_LOADER_NAME_WITH_NUL},
};
use drupe_extension_api::{
    Fault, FaultCode,
    testing::{FakeHost, block_on},
    wire::{Description, op},
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde_json::{Value, json};

/// Cargo puts the library beside the test program, or one folder above it.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    let mut folders = program.ancestors().skip(1).map(|folder| folder.join("libfaulty.so"));
    folders.find(|file| file.exists()).expect("the library was built")
}

#[expect(clippy::disallowed_methods, reason = "this test is a loader: it needs no kernel")]
fn open(host: &FakeHost) -> ExtensionBox {
    // SAFETY: the library was built with this test; its constructors do nothing.
    let library = unsafe { Library::open(Some(library()), RTLD_NOW | RTLD_LOCAL) }.expect("a library");
    // SAFETY: the symbol of that name is an `AbiHeader`, whose version is checked by `upgrade`.
    let header = unsafe {
        *library.get::<AbiHeaderRef>(ROOT_MODULE_LOADER_NAME_WITH_NUL.as_bytes()).expect("a symbol")
    };
    std::mem::forget(library);
    let module =
        header.upgrade().expect("a header").init_root_module::<PluginRef>().expect("a module of this layout");
    (module.open())(host.table())
}

fn call(extension: &ExtensionBox, operation: &str, payload: &Value) -> Result<Value, Fault> {
    let header = CallHeader { call_id: 1, deadline_ms: 0, parent_token: "".into(), trace: "".into() };
    let reply = block_on(extension.call(header, operation.into(), payload.to_string().into_bytes().into()));
    match reply.status {
        Reply::OK => Ok(serde_json::from_slice(&reply.body).expect("JSON")),
        _ => Err(serde_json::from_slice(&reply.body).expect("a fault")),
    }
}

fn tool(name: &str, params: &Value) -> Value {
    json!({"name": name, "params": params, "context": {
        "session": "s", "turn": "t", "agent": "a", "base_folder": "/", "correlation_id": "c", "effect_id": "e",
    }})
}

fn initialized(host: &FakeHost) -> ExtensionBox {
    let extension = open(host);
    let given = json!({"id": "faulty", "data_folder": "/", "folder": "/", "workspace": "/"});
    assert_eq!(call(&extension, op::INITIALIZE, &given), Ok(Value::Null));
    extension
}

#[test]
fn the_library_is_an_extension_of_this_layout() {
    let extension = open(&FakeHost::default());
    let description: Description = serde_json::from_slice(&extension.describe()).expect("a description");
    assert_eq!(description.capabilities, ["tool"]);
}

#[test]
fn panics_come_across_as_faults_and_the_next_call_works() {
    let host = FakeHost::default();
    let extension = initialized(&host);
    for name in ["faulty_panic", "faulty_panic_later"] {
        let fault = call(&extension, op::TOOL_CALL, &tool(name, &json!({}))).expect_err("a fault");
        assert_eq!(fault.code, FaultCode::Panicked);
        assert!(fault.message.contains(&format!("tool `{name}` panicked at ")), "{fault}");
    }
    let echoed = call(&extension, op::TOOL_CALL, &tool("faulty_echo", &json!({"a": 1})));
    assert_eq!(echoed, Ok(json!({"content": r#"{"a":1}"#})));
    extension.close();
}

#[test]
fn a_panic_while_a_cancelled_call_is_dropped_does_not_end_the_process() {
    let host = FakeHost::default();
    let extension = initialized(&host);
    {
        let header = CallHeader { call_id: 1, deadline_ms: 0, parent_token: "".into(), trace: "".into() };
        let payload = tool("faulty_panic_drop", &json!({})).to_string().into_bytes();
        let mut call = pin!(extension.call(header, op::TOOL_CALL.into(), payload.into()));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let logs = host.logs();
    assert!(
        logs.iter().any(|line| line.contains("dropping tool `faulty_panic_drop` panicked at ")),
        "{logs:?}"
    );
}

#[test]
fn a_panic_in_a_task_of_the_library_is_logged() {
    let host = FakeHost::default();
    let extension = initialized(&host);
    assert!(call(&extension, op::TOOL_CALL, &tool("faulty_panic_task", &json!({}))).is_ok());
    while !host.logs().iter().any(|line| line.contains("a spawned task panicked at ")) {
        std::thread::yield_now();
    }
    assert!(call(&extension, op::HEALTH, &Value::Null).is_ok());
}
