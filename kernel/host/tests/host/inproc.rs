//! Extensions in this process, and who is blamed meanwhile.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use drupe_blame::{Operation, Page, Running};
use drupe_extension_api::FaultCode;
use drupe_host::{Header, Instance, OpenError, Place};
use serde_json::json;

use crate::{
    kernel::Kernel,
    setup::{code, eventually, initialize, soon, tool, tool_with},
};

/// The page of this process, which is made once.
fn page() -> &'static Page {
    static PAGE: OnceLock<Page> = OnceLock::new();
    PAGE.get_or_init(|| {
        let page = Page::create().unwrap();
        drupe_blame::install(page.fd().try_clone_to_owned().unwrap()).unwrap();
        page
    })
}

async fn open(name: &str, kernel: &Kernel) -> Instance {
    page();
    let (instance, _) = soon(drupe_host::open(code(name), Place::Inproc, kernel.table())).await.unwrap();
    initialize(&instance, name).await;
    instance
}

/// Whose code runs in this process now, on threads that are not an extension's own.
pub fn running() -> Vec<Running> {
    page().read().unwrap().running.into_iter().filter(|running| !running.own_thread).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_in_this_process_answers_like_one_in_its_own() {
    let kernel = Kernel::default();
    let instance = open("faulty", &kernel).await;
    assert_eq!((instance.process(), instance.cpu_time(), instance.calls()), (None, None, 0));
    assert_eq!(tool(&instance, "faulty_echo", json!({"a": 1})).await.unwrap(), r#"{"a":1}"#);
    let fault = tool(&instance, "faulty_panic_later", json!({})).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Panicked);
    let given_up = Header { timeout: Some(Duration::from_millis(20)), ..Header::default() };
    let fault = soon(tool_with(&instance, "faulty_slow", json!({"ms": 60_000}), given_up)).await.unwrap_err();
    assert_eq!((fault.code, kernel.under_way(), instance.calls()), (FaultCode::Timeout, 0, 0));
    let description = soon(instance.describe()).await.unwrap();
    assert!(!description.tools.is_empty());
    instance.kill("cannot be");
    soon(instance.close()).await;
    assert_eq!(kernel.closed(), 1);
    let fault = tool(&instance, "faulty_echo", json!({})).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(tokio::time::timeout(Duration::from_millis(20), instance.ended()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_runs_is_noted_while_it_runs_and_not_while_the_kernel_does() {
    let kernel = Kernel::default();
    let instance = Arc::new(open("faulty", &kernel).await);
    let own = Arc::clone(&instance);
    let runtime = tokio::runtime::Handle::current();
    let blocking = runtime.spawn(async move { tool(&own, "faulty_block", json!({"ms": 300})).await });
    let noted = || {
        running()
            .iter()
            .any(|r| r.extension == "faulty" && r.operation == Operation::ToolCall && r.hash.len() == 64)
    };
    eventually("the call is noted", noted).await;
    blocking.await.unwrap().unwrap();
    eventually("the note goes with the call", || !noted()).await;
}

#[tokio::test]
async fn nobody_is_blamed_in_the_kernels_own_code() {
    // One thread alone, and an extension that no other test runs in this process.
    let kernel = Kernel::default();
    let instance = open("crashing", &kernel).await;
    let header = Header { token: "t", ..Header::default() };
    let answer = soon(tool_with(&instance, "crashing_ask", json!({}), header)).await.unwrap();
    assert_eq!(answer, "for t in ");
    let heard = kernel.heard("tool.call");
    assert!(!heard[0].blamed.iter().any(|extension| extension == "crashing"), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_is_none_is_refused_with_a_sentence() {
    let mut code = code("faulty");
    code.file = "/etc/hostname".into();
    let error = soon(drupe_host::open(code, Place::Inproc, Kernel::default().table())).await.unwrap_err();
    assert!(matches!(error, OpenError::Library(_)), "{error}");
    assert!(error.to_string().contains("`/etc/hostname` cannot be opened as a library"), "{error}");
}
