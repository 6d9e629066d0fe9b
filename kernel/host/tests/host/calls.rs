//! Calls to an extension in a process of its own.

use std::time::{Duration, Instant};

use drupe_extension_api::FaultCode;
use drupe_host::Header;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::{
    kernel::Kernel,
    setup::{alive, eventually, initialize, initialized, open, open_in, place, soon, tool, tool_with},
};

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_says_what_it_is_before_and_after_it_is_initialized() {
    let (instance, description) = open_in("faulty", place(), &Kernel::default()).await.unwrap();
    assert_eq!(
        (description.capabilities.as_slice(), description.tools.len()),
        (["tool".to_owned()].as_slice(), 0)
    );
    initialize(&instance, "faulty").await;
    let description = soon(instance.describe()).await.unwrap();
    assert!(description.tools.iter().any(|tool| tool.name.as_str() == "faulty_echo"));
    let pid = instance.process().unwrap();
    assert!(alive(pid) && pid != std::process::id());
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(String::from_utf8_lossy(&command).contains("ext-host"), "it is the process that runs the code");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_calls_run_at_once_and_each_gets_its_own_answer() {
    let instance = initialized("faulty", &Kernel::default()).await;
    let started = Instant::now();
    let slept = join_all((0..1000).map(|_| tool(&instance, "faulty_sleep50", json!({}))));
    let echoed = join_all((0..1000).map(|number| tool(&instance, "faulty_echo", json!({"number": number}))));
    let (slept, echoed) = tokio::join!(slept, echoed);
    assert!(slept.into_iter().all(|result| result.unwrap() == "slept"));
    for (number, result) in echoed.into_iter().enumerate() {
        assert_eq!(result.unwrap(), json!({"number": number}).to_string());
    }
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "a thousand times 50 ms one after another would be 50 s"
    );
    assert_eq!(instance.calls(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_and_a_panic_are_faults_of_the_call_alone() {
    let kernel = Kernel::default();
    let instance = initialized("faulty", &kernel).await;
    let fault = tool(&instance, "faulty_error", json!({})).await.unwrap_err();
    assert_eq!((fault.code, fault.help.as_deref()), (FaultCode::Other, Some("do not call it")));
    for name in ["faulty_panic", "faulty_panic_later"] {
        let fault = tool(&instance, name, json!({})).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Panicked);
        assert!(fault.message.contains(&format!("tool `{name}` panicked at ")), "{fault}");
    }
    assert_eq!(tool(&instance, "faulty_echo", json!({"a": 1})).await.unwrap(), r#"{"a":1}"#);
    eventually("the panics are logged", || kernel.heard("host.log").len() >= 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_is_cancelled_over_there() {
    let kernel = Kernel::default();
    let instance = initialized("faulty", &kernel).await;
    let given_up = Header { timeout: Some(Duration::from_millis(20)), ..Header::default() };
    let fault = soon(tool_with(&instance, "faulty_hang", json!({}), given_up)).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Timeout);
    eventually("the process says that the call is gone", || instance.calls() == 0).await;
    // What it had asked of the kernel is cancelled with it.
    soon(tool_with(&instance, "faulty_slow", json!({"ms": 60_000}), given_up)).await.unwrap_err();
    eventually("the kernel's part is cancelled", || kernel.under_way() == 0).await;
    assert_eq!(kernel.heard("host.sleep").len(), 1);
    assert_eq!(tool(&instance, "faulty_echo", json!({})).await.unwrap(), "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_while_a_cancelled_call_is_dropped_ends_nothing() {
    let kernel = Kernel::default();
    let instance = initialized("faulty", &kernel).await;
    let given_up = Header { timeout: Some(Duration::from_millis(20)), ..Header::default() };
    soon(tool_with(&instance, "faulty_panic_drop", json!({}), given_up)).await.unwrap_err();
    eventually("the call is gone", || instance.calls() == 0).await;
    assert_eq!(tool(&instance, "faulty_echo", json!({})).await.unwrap(), "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_payloads_pass_and_longer_ones_are_a_fault_of_the_call() {
    let instance = initialized("faulty", &Kernel::default()).await;
    let text = "x".repeat(8 * 1024 * 1024);
    let echoed = tool(&instance, "faulty_echo", json!({"text": text})).await.unwrap();
    assert_eq!(echoed.len(), text.len() + r#"{"text":""}"#.len());
    let fault = tool(&instance, "faulty_big", json!({"bytes": 17 * 1024 * 1024})).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Invalid, "{fault}");
    assert!(fault.message.contains("at most 16777216 go through"), "{fault}");
    let fault = tool(&instance, "faulty_echo", json!({"text": text.repeat(3)})).await.unwrap_err();
    assert!(fault.message.contains("`tool.call` cannot be sent to extension `faulty`"), "{fault}");
    assert_eq!(tool(&instance, "faulty_echo", json!({})).await.unwrap(), "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_form_is_a_fault() {
    let instance = open("faulty", &Kernel::default()).await;
    let fault = soon(instance.call::<u8>("health", &Value::Null, Header::default())).await.unwrap_err();
    assert!(matches!(fault.code, FaultCode::Invalid | FaultCode::Unavailable), "{fault:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_time_is_that_of_the_extension() {
    let instance = initialized("crashing", &Kernel::default()).await;
    let before = instance.cpu_time().unwrap();
    let spinning = tool(&instance, "crashing_spin", json!({}));
    let watching = async {
        let used = || instance.cpu_time().unwrap() - before;
        eventually("it uses time", || used() >= Duration::from_millis(50)).await;
        instance.kill("it uses time");
    };
    let (fault, ()) = tokio::join!(spinning, watching);
    assert_eq!(fault.unwrap_err().code, FaultCode::Crashed);
    assert_eq!(instance.cpu_time(), None);
}

/// How often the threads of a process have slept and were woken.
fn wakes(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let of = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    threads.filter_map(|thread| of(&std::fs::read_to_string(thread.path().join("status")).ok()?)).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_of_an_extension_that_rests_sleeps_and_does_so_again_after_a_call() {
    let instance = initialized("faulty", &Kernel::default()).await;
    let process = instance.process().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    for _ in 0..2 {
        tool(&instance, "faulty_echo", json!({})).await.unwrap();
        loop {
            let before = wakes(process);
            // Longer than any look that would be made time and again.
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            if wakes(process) == before {
                break;
            }
            assert!(Instant::now() < end, "it wakes time and again");
        }
    }
}
