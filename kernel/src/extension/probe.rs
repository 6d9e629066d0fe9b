//! Opens a library for the first time in a process that may die of it.
//!
//! Constructors run before any check can, a truncated file kills with `SIGBUS`, and either would take the kernel along.
//! So a library that was not seen before is opened by a throwaway, confined process, which asks it to describe itself
//! and does no more. The verdict is kept with what tells one build of a file from another.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use abi_stable::{
    sabi_trait::TD_Opaque,
    std_types::{RString, RVec},
};
use async_ffi::{FfiFuture, FutureExt as _};
use drupe_agent::ids::hex;
use drupe_confine::{Confined, Outcome, Profile};
use drupe_extension_abi::{CallHeader, Host, Host_TO, Reply};
use drupe_extension_api::Fault;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::library::PluginLibrary;
use crate::kernel::Kernel;

/// The verb under which the binary must call [`main`].
pub const VERB: &str = "probe";

/// How long a library may take to be opened: a sound one takes some milliseconds.
const DEADLINE: Duration = Duration::from_secs(2);

/// The most that is read of what the probe prints.
const MOST: usize = 64 * 1024;

/// What the probe prints after its work, so that a library that ends the process with status 0 is not taken for sound.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Sound,
    Refused(String),
}

/// The probe's own process: opens `library`, asks it to describe itself, prints the verdict.
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

/// What tells one build of a file from another without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    size: u64,
    inode: u64,
    modified_ns: i128,
    changed_ns: i128,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    identity: Identity,
    /// Why it is refused; none if it is sound.
    refused: Option<String>,
    /// The copy that is opened in its place.
    #[serde(default)]
    copy: Option<PathBuf>,
}

impl Identity {
    fn of(file: &Path) -> io::Result<Self> {
        let meta = fs::metadata(file)?;
        let ns = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Ok(Self {
            size: meta.len(),
            inode: meta.ino(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
            changed_ns: ns(meta.ctime(), meta.ctime_nsec()),
        })
    }
}

impl Kept {
    /// Whether it still tells what to open, through a copy or not.
    fn usable(&self, copy: bool) -> bool {
        if copy { self.copy.as_ref().is_some_and(|copy| copy.is_file()) } else { self.copy.is_none() }
    }
}

/// Removes copies that no verdict names any more. Before any library is opened: a copy may be in use later.
pub fn sweep(kernel: &Kernel) {
    let named: Vec<PathBuf> = kept(kernel).into_values().filter_map(|kept| kept.copy).collect();
    for entry in fs::read_dir(kernel.home.libraries()).into_iter().flatten().flatten() {
        if !named.contains(&entry.path()) {
            // One that stays only costs its space.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The file to open in place of `library`, once it is known to be sound. With `copy` it is a copy named by its content,
/// since an operator may replace the original while it is in use.
pub async fn checked(kernel: &Arc<Kernel>, library: &Path, copy: bool) -> Result<PathBuf, String> {
    let (kernel, library) = (Arc::clone(kernel), library.to_owned());
    let work = move || {
        let identity =
            Identity::of(&library).map_err(|e| format!("`{}` cannot be read: {e}", library.display()))?;
        let kept = kept(&kernel).remove(&library).filter(|k| k.identity == identity && k.usable(copy));
        let verdict = match kept {
            Some(kept) => kept,
            None => {
                let copy = if copy { Some(copied(&kernel, &library)?) } else { None };
                let refused = probe(&kernel.start.exe, copy.as_ref().unwrap_or(&library), &library);
                let verdict = Kept { identity, refused, copy };
                keep(&kernel, library.clone(), verdict.clone());
                verdict
            }
        };
        verdict.refused.map_or_else(|| Ok(verdict.copy.unwrap_or(library)), Err)
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
}

/// Runs the probe; why the library is refused.
fn probe(exe: &Path, file: &Path, shown: &Path) -> Option<String> {
    let run = Confined::new(exe, Profile::read_only(), exe).arg(VERB).arg(file).deadline(DEADLINE).run(MOST);
    let outcome = match run {
        Ok(outcome) => outcome,
        Err(error) => return Some(format!("`{}` could not be probed: {error}", shown.display())),
    };
    match serde_json::from_slice(&outcome.stdout) {
        Ok(Verdict::Sound) => None,
        Ok(Verdict::Refused(reason)) => {
            Some(reason.replace(&file.display().to_string(), &shown.display().to_string()))
        }
        Err(_) => {
            Some(format!("`{}` is refused: opening it {}; build it again", shown.display(), ended(&outcome)))
        }
    }
}

fn ended(outcome: &Outcome) -> String {
    if outcome.timed_out {
        return format!("did not finish within {DEADLINE:?}");
    }
    // A process that cannot die of its child's signal exits with 128 and the signal, as a shell does.
    let exit = outcome.status.code();
    match outcome.status.signal().or_else(|| exit.filter(|code| *code > 128).map(|code| code - 128)) {
        Some(signal) => format!("crashed the process with {}", signal_name(signal)),
        None => format!("ended the process with status {}", exit.unwrap_or(-1)),
    }
}

/// A signal as a person knows it.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS: is the file truncated?",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}

fn copied(kernel: &Kernel, library: &Path) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("`{}` cannot be copied: {error}", library.display());
    let bytes = fs::read(library).map_err(failed)?;
    let folder = kernel.home.libraries();
    fs::create_dir_all(&folder).map_err(failed)?;
    let target = folder.join(format!("{}.so", hex(&Sha256::digest(&bytes))));
    if !target.exists() {
        let part = folder.join(format!(".{}", uuid::Uuid::new_v4().simple()));
        fs::write(&part, &bytes).map_err(failed)?;
        fs::rename(&part, &target).map_err(failed)?;
    }
    Ok(target)
}

/// The verdicts so far. A file that cannot be read only costs a probe.
fn kept(kernel: &Kernel) -> BTreeMap<PathBuf, Kept> {
    fs::read(kernel.home.probes()).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
}

fn keep(kernel: &Kernel, library: PathBuf, verdict: Kept) {
    // Several libraries are probed at once, each of which adds its line to the same file.
    static WRITING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut all = kept(kernel);
    all.retain(|file, _| file.exists());
    all.insert(library, verdict);
    let file = kernel.home.probes();
    let part = file.with_extension("part");
    let written = serde_json::to_vec(&all).map_err(io::Error::other).and_then(|bytes| {
        fs::create_dir_all(file.parent().unwrap_or(&file))?;
        fs::write(&part, bytes)?;
        fs::rename(&part, &file)
    });
    if let Err(error) = written {
        tracing::warn!(%error, "verdicts about libraries could not be kept; they are probed again at the next start");
    }
}
