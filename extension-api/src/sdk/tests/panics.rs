//! Whatever the author's code does, the caller gets a fault and goes on.

use std::{panic::panic_any, time::Duration};

use serde_json::json;

use super::{cancel, message, started};
use crate::{
    prelude::*,
    testing::{Harness, block_on},
};

struct Faulty {
    host: Host,
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("while it was dropped");
    }
}

#[derive(Deserialize, JsonSchema)]
struct Way {
    way: String,
}

impl Extension for Faulty {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Faulty { host })
    }

    async fn health(&self) -> Result<(), Fault> {
        panic!("in health")
    }
}

impl ToolProvider for Faulty {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![Tool::new("faulty_do", "Fails.", Faulty::act)]
    }
}

impl Service for Faulty {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        self.host.sleep(Duration::from_secs(1)).await?;
        assert!(shutdown.is_set(), "nobody said stop");
        Ok(())
    }
}

crate::abilities!(Faulty: Tool, Service);

impl Faulty {
    async fn act(&self, input: Way, _call: Call) -> Result<String, Fault> {
        match input.way.as_str() {
            "at once" => panic!("at once {}", 7),
            "after await" => {
                self.host.sleep(Duration::from_millis(5)).await?;
                panic!("after await")
            }
            "in drop at the end" => {
                let _last = PanicsInDrop;
                Ok("done".to_owned())
            }
            "in drop of a cancelled call" => {
                let _held = PanicsInDrop;
                self.host.sleep(Duration::from_secs(3600)).await?;
                Ok("never".to_owned())
            }
            "with a payload that panics" => panic_any(PanicsInDrop),
            "in a task" => {
                self.host.spawn(async { panic!("in a task") })?;
                Ok("begun".to_owned())
            }
            "in blocking work" => self.host.blocking(|| panic!("in blocking work")).await,
            "in a thread" => {
                let ended = std::thread::spawn(|| panic!("in a thread")).join();
                Ok(format!("ended well: {}", ended.is_ok()))
            }
            _ => Ok("well".to_owned()),
        }
    }
}

fn check(way: &str, expected: &str) {
    let faulty = started::<Faulty>();
    let said = message(block_on(faulty.call("faulty_do", json!({"way": way}))), FaultCode::Panicked);
    assert!(said.contains("tool `faulty_do` panicked at "), "{said}");
    assert!(said.contains("sdk/tests/panics.rs:") && said.ends_with(expected), "{said}");
    assert!(faulty.host().logs().iter().any(|line| line.starts_with("error: ") && line.contains(&said)));
    assert_eq!(block_on(faulty.call("faulty_do", json!({"way": ""}))), Ok("well".to_owned()));
}

#[test]
fn a_panic_is_a_fault_that_names_the_tool_and_the_place() {
    check("at once", "at once 7");
    check("after await", "after await");
    check("in drop at the end", "while it was dropped");
}

#[test]
fn a_panic_in_blocking_work_is_a_fault() {
    let faulty = started::<Faulty>();
    let said =
        message(block_on(faulty.call("faulty_do", json!({"way": "in blocking work"}))), FaultCode::Panicked);
    assert!(said.starts_with("blocking work panicked at ") && said.ends_with("in blocking work"), "{said}");
    assert_eq!(block_on(faulty.call("faulty_do", json!({"way": ""}))), Ok("well".to_owned()));
}

#[test]
fn a_payload_that_panics_when_dropped_harms_nothing() {
    let faulty = started::<Faulty>();
    let said = block_on(faulty.call("faulty_do", json!({"way": "with a payload that panics"})));
    assert!(message(said, FaultCode::Panicked).contains("(no message)"));
    assert_eq!(block_on(faulty.call("faulty_do", json!({"way": ""}))), Ok("well".to_owned()));
}

#[test]
fn a_panic_while_a_cancelled_call_is_dropped_is_logged() {
    let faulty = started::<Faulty>();
    faulty.host().hold_clock();
    cancel(faulty.call("faulty_do", json!({"way": "in drop of a cancelled call"})));
    let logs = faulty.host().logs();
    assert!(logs.iter().any(|line| line.contains("dropping tool `faulty_do` panicked at ")), "{logs:?}");
    assert_eq!(block_on(faulty.call("faulty_do", json!({"way": ""}))), Ok("well".to_owned()));
}

#[test]
fn a_panic_in_a_spawned_task_is_logged_and_ends_it_alone() {
    let faulty = started::<Faulty>();
    assert_eq!(block_on(faulty.call("faulty_do", json!({"way": "in a task"}))), Ok("begun".to_owned()));
    let seen = || faulty.host().logs().iter().any(|line| line.contains("a spawned task panicked at "));
    while !seen() {
        std::thread::yield_now();
    }
    assert_eq!(block_on(faulty.call("faulty_do", json!({"way": ""}))), Ok("well".to_owned()));
}

#[test]
fn a_panic_in_a_thread_of_the_author_is_logged() {
    let faulty = started::<Faulty>();
    let said = block_on(faulty.call("faulty_do", json!({"way": "in a thread"})));
    assert_eq!(said, Ok("ended well: false".to_owned()));
    let logs = faulty.host().logs();
    assert!(logs.iter().any(|line| line.contains("a thread of the extension panicked at ")), "{logs:?}");
}

#[test]
fn a_panic_in_health_and_service_is_a_fault_of_that_operation() {
    let faulty = started::<Faulty>();
    assert!(message(block_on(faulty.health()), FaultCode::Panicked).contains("operation `health` panicked"));
    assert!(message(block_on(faulty.run_service()), FaultCode::Panicked).ends_with("nobody said stop"));
}

/// Panics where the kernel asks what it is.
struct Mute;

impl Extension for Mute {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        if host.config::<bool>().is_err() && host.secret("PANIC").is_ok() {
            panic!("in initialize");
        }
        Ok(Mute)
    }
}

impl ToolProvider for Mute {
    fn tools(&self) -> Vec<Tool<Self>> {
        panic!("in tools")
    }
}

crate::abilities!(Mute: Tool);

#[test]
fn a_panic_in_initialize_or_in_the_list_of_tools_fails_initialize() {
    let said = message(block_on(Harness::<Mute>::start(json!({}))), FaultCode::Panicked);
    assert!(said.contains("operation `initialize` panicked at ") && said.ends_with("in tools"), "{said}");
    let setup = Harness::<Mute>::setup().secret("PANIC", "1");
    assert!(message(block_on(setup.start()), FaultCode::Panicked).ends_with("in initialize"));
}
