//! Calls of an extension in a process of its own to the kernel.

use std::time::Duration;

use drupe_extension_api::FaultCode;
use drupe_host::Header;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{
    kernel::Kernel,
    setup::{eventually, initialized, soon, tool, tool_with},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_back_bears_the_token_and_trace_of_the_call() {
    let kernel = Kernel::default();
    let instance = initialized("crashing", &kernel).await;
    let (one, other) = tokio::join!(
        tool_with(&instance, "crashing_ask", json!({}), Header { token: "t1", trace: "r1", timeout: None }),
        tool_with(&instance, "crashing_ask", json!({}), Header { token: "t2", trace: "r2", timeout: None }),
    );
    assert_eq!((one.unwrap().as_str(), other.unwrap().as_str()), ("for t1 in r1", "for t2 in r2"));
    tool(&instance, "crashing_emit", json!({"number": 10})).await.unwrap();
    assert_eq!(kernel.heard("host.emit")[0].token, "", "outside a call there is no token");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_extension_waits_for_is_cancelled_with_the_call_and_with_the_process() {
    let kernel = Kernel::default();
    let instance = initialized("crashing", &kernel).await;
    let given_up = Header { timeout: Some(Duration::from_millis(50)), ..Header::default() };
    soon(tool_with(&instance, "crashing_wait", json!({}), given_up)).await.unwrap_err();
    assert_eq!(kernel.heard("tool.call").len(), 1);
    eventually("the kernel's part is cancelled", || kernel.under_way() == 0).await;
    let waiting = tool(&instance, "crashing_wait", json!({}));
    let killing = async {
        eventually("it waits", || kernel.under_way() == 1).await;
        instance.kill("the test says so");
    };
    let (fault, ()) = tokio::join!(waiting, killing);
    assert_eq!(fault.unwrap_err().code, FaultCode::Crashed);
    eventually("the kernel's part is cancelled", || kernel.under_way() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_and_long_calls_back_pass_and_too_long_ones_are_a_fault() {
    let kernel = Kernel::default();
    let instance = initialized("crashing", &kernel).await;
    assert_eq!(tool(&instance, "crashing_burst", json!({"number": 2000, "ms": 20})).await.unwrap(), "2000");
    tool(&instance, "crashing_emit", json!({"number": 8 << 20})).await.unwrap();
    assert!(kernel.heard("host.emit")[0].bytes > 8 << 20);
    let fault = tool(&instance, "crashing_emit", json!({"number": 17 << 20})).await.unwrap_err();
    assert!(fault.message.contains("`host.emit` cannot be sent to the kernel"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_back_beyond_the_bound_are_refused_and_the_others_are_answered() {
    let kernel = Kernel::default();
    let instance = initialized("crashing", &kernel).await;
    let answered: usize = tool(&instance, "crashing_burst", json!({"number": 8000, "ms": 1500}))
        .await
        .unwrap()
        .parse()
        .unwrap();
    assert!((4096..8000).contains(&answered), "{answered}");
    assert_eq!(kernel.most_under_way(), 4096);
    assert_eq!(tool(&instance, "crashing_burst", json!({"number": 10, "ms": 1})).await.unwrap(), "10");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_wait_unread_are_bounded() {
    let kernel = Kernel::default();
    let instance = initialized("crashing", &kernel).await;
    let pid = Pid::from_raw(i32::try_from(instance.process().unwrap()).unwrap()).unwrap();
    // Eight answers of 15 MiB each are ready while the process does not read.
    let gathering = tool(&instance, "crashing_gather", json!({"number": 8}));
    let holding = async {
        eventually("all calls have come", || kernel.under_way() == 8).await;
        kill_process(pid, Signal::STOP).unwrap();
        kernel.release();
        eventually("all answers are ready", || kernel.under_way() == 0).await;
        kill_process(pid, Signal::CONT).unwrap();
    };
    let (results, ()) = tokio::join!(gathering, holding);
    let results = results.unwrap();
    let (answered, busy) = results.split_once(' ').unwrap();
    let (answered, busy): (usize, usize) = (answered.parse().unwrap(), busy.parse().unwrap());
    assert!(answered >= 1 && busy >= 1 && answered + busy == 8, "{results}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_the_log_passes_and_a_flood_of_them_is_thinned() {
    let kernel = Kernel::default();
    let instance = initialized("crashing", &kernel).await;
    tool(&instance, "crashing_chatter", json!({"number": 10})).await.unwrap();
    eventually("all lines are logged", || kernel.heard("host.log").len() == 10).await;
    tool(&instance, "crashing_chatter", json!({"number": 5000})).await.unwrap();
    let lines = kernel.heard("host.log").len();
    assert!((1000..4000).contains(&lines), "{lines}");
}
