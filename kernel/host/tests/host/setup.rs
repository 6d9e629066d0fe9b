//! What the tests start, and how they ask it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use drupe_confine::Profile;
use drupe_extension_api::{ExtensionId, Fault, wire::Description};
use drupe_host::{Code, Header, HostProcess, Instance, OpenError, Place};
use drupe_redact::Redactor;
use serde_json::{Value, json};

use crate::kernel::Kernel;

/// The folder of what was built with this test.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

/// The program that stands for drupe.
pub fn exe() -> PathBuf {
    built().join("examples/host_program")
}

/// The file of an extension.
pub fn library(name: &str) -> PathBuf {
    let file = format!("lib{name}.so");
    let places = ["deps", "examples", "."].map(|folder| built().join(folder).join(&file));
    places.into_iter().find(|place| place.exists()).unwrap_or_else(|| panic!("{file} was not built"))
}

pub fn code(name: &str) -> Code {
    let id: ExtensionId = name.parse().unwrap();
    Code {
        id,
        file: library(name),
        hash: "0".repeat(64),
        listening: Vec::new(),
        redactor: Redactor::default(),
    }
}

/// A confined process that reads what it must.
pub fn place() -> HostProcess {
    HostProcess {
        exe: exe(),
        profile: Profile::program().read(built()),
        env: BTreeMap::new(),
        directory: "/".into(),
    }
}

/// A process that does not keep to the frames.
pub fn rogue(how: &str) -> HostProcess {
    HostProcess { env: BTreeMap::from([("MISBEHAVE".into(), OsString::from(how))]), ..place() }
}

/// Opens an extension in a process of its own.
pub async fn open(name: &str, kernel: &Kernel) -> Instance {
    open_in(name, place(), kernel).await.unwrap().0
}

pub async fn open_in(
    name: &str,
    place: HostProcess,
    kernel: &Kernel,
) -> Result<(Instance, Description), OpenError> {
    soon(drupe_host::open(code(name), Place::Process(place), kernel.table())).await
}

/// Initializes it.
pub async fn initialized(name: &str, kernel: &Kernel) -> Instance {
    let instance = open(name, kernel).await;
    initialize(&instance, name).await;
    instance
}

pub async fn initialize(instance: &Instance, name: &str) {
    let given = json!({"id": name, "data_folder": "/", "folder": "/", "workspace": "/"});
    let done: Value = soon(instance.call("initialize", &given, Header::default())).await.unwrap();
    assert_eq!(done, Value::Null);
}

/// Calls a tool and waits as long as it takes.
pub async fn tool(instance: &Instance, name: &str, params: Value) -> Result<String, Fault> {
    soon(tool_with(instance, name, params, Header::default())).await
}

pub async fn tool_with(
    instance: &Instance,
    name: &str,
    params: Value,
    header: Header<'_>,
) -> Result<String, Fault> {
    let payload = json!({"name": name, "params": params, "context": {
        "session": "s", "turn": "t", "agent": "a", "base_folder": "/", "correlation_id": "c", "effect_id": "e",
    }});
    let result: Value = instance.call("tool.call", &payload, header).await?;
    Ok(result["content"].as_str().unwrap().to_owned())
}

/// What takes longer than this has failed.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("it does not come to an end")
}

/// Waits until something is so, because another process or thread must get there.
pub async fn eventually(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn alive(process: u32) -> bool {
    // A dead process that nobody has buried yet is still listed.
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
