//! Opens a library for the first time in a process that may die of it.
//!
//! Constructors run before any check can, a truncated file kills with `SIGBUS`, and either would take the kernel along.
//! So a library that was not seen before is opened by a throwaway, confined process, which asks it to describe itself
//! and does no more. [`checked`] keeps the verdict with the content's hash, and gives the file to open.

mod look;
mod verdicts;

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

use abi_stable::{
    sabi_trait::TD_Opaque,
    std_types::{RString, RVec},
};
use async_ffi::{FfiFuture, FutureExt as _};
use drupe_confine::{Confined, Limits, Outcome, Profile};
use drupe_extension_abi::{CallHeader, Host, Host_TO, Reply};
use drupe_extension_api::Fault;
use serde::{Deserialize, Serialize};

pub use self::look::{Said, look};
pub use self::verdicts::{Caches, Checked, checked, hash, sweep};
use crate::{PluginLibrary, ended};

/// The verb under which the binary must call [`main`].
pub const VERB: &str = "probe";

/// How long a library may take to be opened: a sound one takes some milliseconds.
const DEADLINE: Duration = Duration::from_secs(2);

/// The most that is read of what the probe prints.
const MOST: usize = 64 * 1024;

/// The signal by which a system that is short of memory ends a process.
const KILLED: i32 = 9;

/// Memory that a library may take to be opened.
const MEMORY: u64 = 1024 * 1024 * 1024;

/// Processes and threads that it may have then.
const TASKS: u64 = 256;

/// What the probe prints after its work, so that a library that ends the process with status 0 is not taken for sound.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Sound,
    Refused(String),
}

/// The probe's own process: opens `library`, asks it to describe itself, prints the verdict. Returns the status to
/// exit with.
pub fn main(library: &Path) -> u8 {
    drupe_confine::take_name();
    let verdict = match PluginLibrary::open(library) {
        Ok(library) => {
            library.instance(Host_TO::from_value(Nobody, TD_Opaque)).describe();
            Verdict::Sound
        }
        Err(error) => Verdict::Refused(error.to_string()),
    };
    let text = serde_json::to_string(&verdict).unwrap_or_default();
    u8::from(writeln!(io::stdout(), "{text}").is_err())
}

/// The kernel of a library that is only looked at.
#[derive(Clone)]
struct Nobody;

impl Host for Nobody {
    fn describe(&self) -> RVec<u8> {
        b"{}".as_slice().into()
    }

    fn call(&self, _: CallHeader, operation: RString, _: RVec<u8>) -> FfiFuture<Reply> {
        let body = serde_json::to_vec(&Fault::unsupported(&operation)).unwrap_or_default();
        std::future::ready(Reply { status: Reply::FAULT, body: body.into() }).into_ffi()
    }

    fn close(&self) {}
}

/// What came of opening a library.
#[derive(Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It may be opened.
    Sound,
    /// It must not, whenever it is tried: why, and what to do.
    Refused(String),
    /// It was not tried, or what ended the attempt may have been the machine's fault. Another time it may be sound.
    Unknown(String),
}

/// Opens `file` in a process of its own, as `caches` say. People know it as `shown`, of which it may be a copy. Blocks
/// for some milliseconds, at most 2 s.
pub fn judge(caches: &Caches, file: &Path, shown: &Path) -> Judgement {
    let name = shown.display();
    if let Some(missing) = drupe_confine::support().missing().filter(|_| caches.strict) {
        let all_the_same = "`sandbox.allow_unconfined: true` opens it all the same";
        return Judgement::Unknown(format!("`{name}` is not opened: {missing}; {all_the_same}"));
    }
    let (tree_memory, tree_tasks) = (Some(MEMORY), Some(TASKS));
    let limits = Limits { data: Some(MEMORY), tree_memory, tree_tasks, ..Limits::default() };
    let exe = &caches.exe;
    let profile = Profile { limits, strict: caches.strict, ..Profile::program() }.read(exe).read(file);
    let run = Confined::new(exe, profile, exe).arg(VERB).arg(file).deadline(DEADLINE).run(MOST);
    let outcome = match run {
        Ok(outcome) => outcome,
        Err(error) => return Judgement::Unknown(format!("`{name}` could not be looked at: {error}")),
    };
    match serde_json::from_slice(&outcome.stdout) {
        Ok(Verdict::Sound) => Judgement::Sound,
        Ok(Verdict::Refused(reason)) => {
            Judgement::Refused(reason.replace(&file.display().to_string(), &name.to_string()))
        }
        Err(_) => {
            let why = format!("`{name}` is refused: opening it {}; build it again", told(&outcome));
            // A machine that is busy or short of memory does the same to a sound library.
            let perhaps = outcome.timed_out || ended::signal(outcome.status) == Some(KILLED);
            if perhaps { Judgement::Unknown(why) } else { Judgement::Refused(why) }
        }
    }
}

fn told(outcome: &Outcome) -> String {
    if let Some(what) = &outcome.exceeded {
        return what.clone();
    }
    if outcome.timed_out {
        return format!("did not finish within {DEADLINE:?}");
    }
    match ended::signal(outcome.status) {
        Some(7) => "crashed the process with signal 7 (SIGBUS: is the file truncated?)".into(),
        Some(signal) => format!("crashed the process with {}", ended::signal_name(signal)),
        None => format!("ended the process with status {}", outcome.status.code().unwrap_or(-1)),
    }
}
