//! Opens a library for the first time in a process that may die of it.
//!
//! Constructors run before any check can, a truncated file kills with `SIGBUS`, and either would take the kernel along.
//! So a library that was not seen before is opened by a throwaway, confined process, which asks it to describe itself
//! and does no more. [`checked`] keeps the verdict with the content's hash, and gives the file to open.

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

pub use self::verdicts::{Caches, Checked, checked, hash, sweep};
use crate::{PluginLibrary, ended};

/// The verb under which the binary must call [`main`].
pub const VERB: &str = "probe";

/// How long a library may take to be opened: a sound one takes some milliseconds.
const DEADLINE: Duration = Duration::from_secs(2);

/// The most that is read of what the probe prints.
const MOST: usize = 64 * 1024;

/// Memory that a library may take to be opened.
const MEMORY: u64 = 1024 * 1024 * 1024;

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

/// Opens `file` in a process of its own: `exe` is drupe's own program. An error says why the library is refused, and
/// what to do. Blocks for some milliseconds, at most 2 s.
pub fn judge(exe: &Path, file: &Path) -> Result<(), String> {
    judge_copy(exe, file, file)
}

/// The same for a copy, of which people know the original.
fn judge_copy(exe: &Path, file: &Path, shown: &Path) -> Result<(), String> {
    let limits = Limits { data: Some(MEMORY), ..Limits::default() };
    let profile = Profile::program().read(exe).read(file).limits(limits);
    let run = Confined::new(exe, profile, exe).arg(VERB).arg(file).deadline(DEADLINE).run(MOST);
    let outcome = run.map_err(|error| format!("`{}` could not be probed: {error}", shown.display()))?;
    match serde_json::from_slice(&outcome.stdout) {
        Ok(Verdict::Sound) => Ok(()),
        Ok(Verdict::Refused(reason)) => {
            Err(reason.replace(&file.display().to_string(), &shown.display().to_string()))
        }
        Err(_) => {
            Err(format!("`{}` is refused: opening it {}; build it again", shown.display(), told(&outcome)))
        }
    }
}

fn told(outcome: &Outcome) -> String {
    if outcome.timed_out {
        return format!("did not finish within {DEADLINE:?}");
    }
    match ended::signal(outcome.status) {
        Some(7) => "crashed the process with signal 7 (SIGBUS: is the file truncated?)".into(),
        Some(signal) => format!("crashed the process with {}", ended::signal_name(signal)),
        None => format!("ended the process with status {}", outcome.status.code().unwrap_or(-1)),
    }
}
