//! How a process ends, and what its calls and the kernel learn of it.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use drupe_confine::{Limits, Profile};
use drupe_extension_api::FaultCode;
use drupe_host::{Header, HostProcess, OpenError};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    kernel::Kernel,
    setup::{alive, eventually, exe, initialize, initialized, open_in, place, soon, tool, tool_with},
};

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_die_ends_the_call_as_crashed_and_is_told_with_its_operation() {
    for (extension, name, params, how) in [
        ("faulty", "faulty_abort", json!({}), "signal 6 (SIGABRT)"),
        ("crashing", "crashing_segfault", json!({}), "signal 11 (SIGSEGV)"),
        ("crashing", "crashing_exit", json!({"number": 0}), "exit status 0"),
        ("crashing", "crashing_exit", json!({"number": 3}), "exit status 3"),
        ("crashing", "crashing_overflow", json!({}), "signal 6 (SIGABRT)"),
    ] {
        let kernel = Kernel::default();
        let instance = initialized(extension, &kernel).await;
        let pid = instance.process().unwrap();
        // One waits beside it, and ends with it.
        let other = if extension == "faulty" { "faulty_hang" } else { "crashing_wait" };
        let dying = async {
            eventually("the other call waits", || instance.calls() == 1).await;
            tool(&instance, name, params).await.unwrap_err()
        };
        let (other, fault) = tokio::join!(tool(&instance, other, json!({})), dying);
        assert_eq!(other.unwrap_err(), fault);
        assert_eq!(fault.code, FaultCode::Crashed, "{name}: {fault}");
        assert_eq!(fault.message, format!("extension `{extension}` ended during `tool.call`: {how}"));
        let ended = soon(instance.ended()).await;
        assert_eq!((ended.how.as_str(), ended.operation.as_str()), (how, "tool.call"));
        assert!(!alive(pid), "{name}");
        let late = tool(&instance, name, json!({})).await.unwrap_err();
        assert_eq!(late.code, FaultCode::Unavailable, "{late}");
        assert_eq!(kernel.closed(), 1, "what it had open ends with it");
        assert_eq!((instance.calls(), instance.cpu_time()), (0, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_beside_a_service_is_told_with_the_call_and_not_with_the_service() {
    for (tool_name, params, operation) in
        [("crashing_segfault", json!({}), "tool.call"), ("crashing_thread", json!({}), "service.run")]
    {
        let instance = initialized("crashing", &Kernel::default()).await;
        let service = instance.call::<Value>("service.run", &Value::Null, Header::default());
        let crashing = async {
            eventually("the service runs", || instance.calls() == 1).await;
            assert_eq!(instance.calls_beside_service(), 0);
            let _ = tool(&instance, tool_name, params).await;
        };
        let (served, ()) = tokio::join!(soon(service), crashing);
        assert_eq!(served.unwrap_err().code, FaultCode::Crashed);
        assert_eq!(soon(instance.ended()).await.operation, operation);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_lines_of_its_standard_error_stream_are_kept() {
    let instance = initialized("crashing", &Kernel::default()).await;
    tool(&instance, "crashing_complain", json!({"number": 3})).await.unwrap();
    tool(&instance, "crashing_overflow", json!({})).await.unwrap_err();
    let tail = soon(instance.ended()).await.stderr_tail;
    assert_eq!(tail[..3], ["complaint 0", "complaint 1", "complaint 2"]);
    assert!(tail.iter().any(|line| line.contains("overflowed its stack")), "{tail:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_complains_without_end_waits_and_costs_no_memory() {
    let instance = initialized("crashing", &Kernel::default()).await;
    let complaining = Header { timeout: Some(Duration::from_millis(300)), ..Header::default() };
    soon(tool_with(&instance, "crashing_complain", json!({"number": 100_000_000}), complaining))
        .await
        .unwrap_err();
    // It does not return, since nobody reads on.
    let ended = soon(instance.ended()).await;
    assert_eq!(ended.how, "killed: a cancelled call did not return");
    assert_eq!(ended.stderr_tail.len(), 20);
    // The very last may have been cut.
    let last = ended.stderr_tail[18].trim_start_matches("complaint ");
    // Some seconds of reading at the bounded pace.
    assert!(last.parse::<u32>().unwrap() < 150_000, "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_on_a_thread_of_its_own_is_told_as_that() {
    let instance = initialized("crashing", &Kernel::default()).await;
    tool(&instance, "crashing_thread", json!({})).await.unwrap();
    let ended = soon(instance.ended()).await;
    assert_eq!((ended.how.as_str(), ended.operation.as_str()), ("signal 11 (SIGSEGV)", "thread"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_that_does_not_return_ends_the_process() {
    let instance = initialized("crashing", &Kernel::default()).await;
    let given_up = Header { timeout: Some(Duration::from_millis(20)), ..Header::default() };
    let started = Instant::now();
    soon(tool_with(&instance, "crashing_spin", json!({}), given_up)).await.unwrap_err();
    // The other thread still works until then.
    tool(&instance, "crashing_burst", json!({"number": 2, "ms": 5})).await.unwrap();
    let ended = soon(instance.ended()).await;
    assert_eq!(ended.how, "killed: a cancelled call did not return");
    assert_eq!(ended.operation, "tool.call");
    let took = started.elapsed();
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_beyond_its_bound_ends_that_process_alone() {
    let limits = Limits { data: Some(256 << 20), ..Limits::default() };
    let profile = Profile { limits, ..place().profile };
    let place = HostProcess { profile, ..place() };
    let (instance, _) = open_in("crashing", place, &Kernel::default()).await.unwrap();
    initialize(&instance, "crashing").await;
    let eaten = tool(&instance, "crashing_eat", json!({"number": 16 << 20})).await;
    assert_eq!(eaten.unwrap(), (16 << 20).to_string());
    let fault = tool(&instance, "crashing_eat", json!({"number": 1 << 30})).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Crashed);
    let ended = soon(instance.ended()).await;
    assert!(ended.stderr_tail.iter().any(|line| line.contains("memory allocation of")), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_for_cause_is_told_with_its_cause() {
    let instance = initialized("faulty", &Kernel::default()).await;
    let hanging = tool(&instance, "faulty_hang", json!({}));
    let killing = async {
        eventually("the call is under way", || instance.calls() == 1).await;
        instance.kill("its health check did not return");
        instance.kill("a later cause does not count");
    };
    let (fault, ()) = tokio::join!(hanging, killing);
    let how = "killed: its health check did not return";
    assert_eq!(fault.unwrap_err().message, format!("extension `faulty` ended during `tool.call`: {how}"));
    assert_eq!(soon(instance.ended()).await.how, how);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_from_outside_is_no_fault_of_a_thread() {
    let instance = initialized("faulty", &Kernel::default()).await;
    let pid = Pid::from_raw(i32::try_from(instance.process().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let ended = soon(instance.ended()).await;
    assert_eq!((ended.how.as_str(), ended.operation.as_str()), ("signal 9 (SIGKILL)", "idle"));
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_is_orderly_and_no_crash() {
    let kernel = Kernel::default();
    let instance = initialized("faulty", &kernel).await;
    let pid = instance.process().unwrap();
    let started = Instant::now();
    soon(instance.close()).await;
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(!alive(pid));
    assert!(kernel.closed() >= 1, "the extension was told, and told the kernel");
    assert!(tokio::time::timeout(Duration::from_millis(50), instance.ended()).await.is_err());
    let fault = tool(&instance, "faulty_echo", json!({})).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    soon(instance.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_one_that_does_not_end_kills_it() {
    let instance = initialized("crashing", &Kernel::default()).await;
    let pid = instance.process().unwrap();
    // Both threads are held, so that it hears nothing.
    let spins = [(); 2].map(|()| Box::pin(tool(&instance, "crashing_spin", json!({}))));
    let spins = futures_util::future::join_all(spins);
    let closing = async {
        eventually("the calls are under way", || instance.calls() == 2).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        instance.close().await;
    };
    let (faults, ()) = soon(async { tokio::join!(spins, closing) }).await;
    assert!(faults.into_iter().all(|fault| fault.unwrap_err().code == FaultCode::OutcomeUnknown));
    assert!(!alive(pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_an_instance_ends_its_process() {
    let kernel = Kernel::default();
    let instance = initialized("faulty", &kernel).await;
    let pid = instance.process().unwrap();
    drop(instance);
    eventually("the process is gone", || !alive(pid)).await;
    eventually("what it had open ends with it", || kernel.closed() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_aborts_when_it_is_opened_is_told_as_that() {
    let error = open_in("ctor_abort", place(), &Kernel::default()).await.unwrap_err();
    let OpenError::Ended { ended, .. } = &error else { panic!("{error:?}") };
    assert_eq!((ended.how.as_str(), ended.operation.as_str()), ("signal 6 (SIGABRT)", "load"));
    assert_eq!(error.to_string(), "extension `ctor_abort` ended its process in `load`: signal 6 (SIGABRT)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_is_refused_is_refused_with_a_sentence() {
    let error = open_in("other_layout", place(), &Kernel::default()).await.unwrap_err();
    assert!(error.to_string().contains("has another layout of the tables"), "{error}");
    // What the profile does not let it read is no crash.
    let blind = HostProcess { profile: drupe_confine::Profile::program().read(exe()), ..place() };
    let error = open_in("faulty", blind, &Kernel::default()).await.unwrap_err();
    assert!(error.to_string().contains("cannot be opened as a library"), "{error}");
    let nothing = HostProcess { exe: "/does/not/exist".into(), ..place() };
    let error = open_in("faulty", nothing, &Kernel::default()).await.unwrap_err();
    assert!(matches!(error, OpenError::Process { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_kernel_is_killed_the_process_goes_with_it() {
    #[expect(clippy::disallowed_methods, reason = "a test starts the process that it is about")]
    let mut kernel = Command::new(exe())
        .args(["kernel".as_ref(), crate::setup::library("faulty").as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(kernel.stdout.take().unwrap()), &mut line)
        .unwrap();
    let pid: u32 = line.trim().parse().unwrap();
    assert!(alive(pid));
    kernel.kill().unwrap();
    kernel.wait().unwrap();
    let started = Instant::now();
    eventually("the process is gone", || !alive(pid)).await;
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_check_is_a_call_like_others() {
    let instance = initialized("faulty", &Kernel::default()).await;
    let health: Value = soon(instance.call("health", &Value::Null, Header::default())).await.unwrap();
    assert_eq!(health["ok"], true);
}
