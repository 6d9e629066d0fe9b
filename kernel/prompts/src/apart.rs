//! Fills a template in by a process that may die of it.
//!
//! Fuel bounds the steps of a template and a bound what it writes, but one step can ask for any amount of memory:
//! `'x' * 1000000000000`, a filter that indents by as much, a text that is doubled forty times. In the kernel that would
//! end everything. So a throwaway process of drupe's own program does it, with little memory and little time, and the
//! extension is told what it asked for.

use std::{
    io::{self, Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Stdio,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use drupe_config::{Config, Manifest};
use drupe_confine::{Confined, Limits, Outcome, Profile, own_program};
use drupe_extension_api::ToolSpec;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::{
    Dated, Day, NoText, Prompt,
    template::{Filled, Template},
};

/// The verb under which the binary must call [`main`].
pub const VERB: &str = "fill-template";

/// Memory that it may take, in bytes. What it begins with is a small part of it.
const MEMORY: u64 = 128 * 1024 * 1024;

/// Time that it may compute, in seconds. A long prompt takes some milliseconds.
const COMPUTING_S: u64 = 1;

/// How long it may take altogether: a busy machine may leave it little of each second.
const DEADLINE: Duration = Duration::from_secs(20);

/// How many templates are filled in at the same time: each may take its whole memory.
const SLOTS: usize = 4;

/// The most that is read of what the process prints: two texts and what they include, each as long as it may be, all of it
/// escaped.
const MOST: usize = 3 * 6 * 1024 * 1024 + 4096;

/// What the process is asked to do.
#[derive(Serialize, Deserialize)]
struct Order<T> {
    template: T,
    days: Vec<Day>,
}

/// The process: reads a template from its standard input, fills it in, prints what came of it. `folder` is where its
/// includes are. Returns the status to exit with.
pub fn main(folder: &Path) -> u8 {
    drupe_confine::take_name();
    u8::from(work(folder).is_err())
}

fn work(folder: &Path) -> io::Result<()> {
    let mut order = Vec::new();
    io::stdin().read_to_end(&mut order)?;
    let order: Order<Template> = serde_json::from_slice(&order)?;
    let filled = order.template.beneath(folder).fill(&order.days);
    io::stdout().write_all(&serde_json::to_vec(&filled)?)
}

/// Fills a template in; `exe` is drupe's own program. Blocks for some milliseconds, at most as long as the process may
/// take and those before it.
pub fn fill(exe: &Path, template: &Template, days: &[Day]) -> Result<Filled, NoText> {
    if template.only_names() {
        // A process takes some milliseconds.
        return Ok(template.fill(days));
    }
    let _slot = Slot::taken();
    let told =
        |why: &dyn std::fmt::Display| NoText(format!("{}it cannot be filled in: {why}", template.named()));
    let order = Order { template, days: days.to_vec() };
    let order = serde_json::to_vec(&order).map_err(|error| told(&error))?;
    // Its file may have been exchanged since, or be half of another one.
    let exe = &own_program(exe);
    let limits = Limits { data: Some(MEMORY), cpu_seconds: Some(COMPUTING_S), ..Limits::default() };
    let profile = Profile { limits, ..Profile::program() }.read(exe).read(template.folder());
    let process = Confined::new(exe, profile, exe).arg(VERB).arg(template.folder());
    let started = process.deadline(DEADLINE).stdin(Stdio::piped()).spawn_captured();
    let mut child = started.map_err(|error| told(&error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that reads no more has ended: how, is told below.
        let _ = stdin.write_all(&order);
    }
    let outcome = child.finish(MOST).map_err(|error| told(&error))?;
    serde_json::from_slice(&outcome.stdout).map_err(|_| told(&ended(&outcome)))
}

/// The texts of an agent as [`of`](crate::of) makes them, on a thread that may wait.
pub async fn prompt(
    exe: &Path,
    config: &Arc<Config>,
    manifest: &Arc<Manifest>,
    tools: Vec<ToolSpec>,
    day: Day,
) -> Result<Option<Prompt>, NoText> {
    let (exe, config, manifest) = (exe.to_owned(), Arc::clone(config), Arc::clone(manifest));
    let work =
        move || crate::of(&config, &manifest, &tools, day, &|template, days| fill(&exe, template, days));
    spawn_blocking(work).await.map_err(|error| NoText(error.to_string()))?
}

/// Makes the prompts of a day that are yet to be made, each on a thread that may wait.
pub async fn renew(exe: &Path, prompts: impl Iterator<Item = Arc<Dated>>, day: Day) {
    let renewed = prompts.filter(|dated| dated.lacks(day)).map(|dated| {
        let exe = exe.to_owned();
        spawn_blocking(move || dated.renew(day, &|template, days| fill(&exe, template, days)))
    });
    // One that panicked leaves the prompt of an earlier day.
    join_all(renewed).await;
}

/// How the process ended that did not do its work.
fn ended(outcome: &Outcome) -> String {
    let bounds =
        format!("a template may hold {} MiB of memory and compute for {COMPUTING_S} s", MEMORY / 1024 / 1024);
    if outcome.timed_out {
        return format!("it took more than {DEADLINE:?}; {bounds}");
    }
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let said = stderr.lines().map(str::trim).find(|line| !line.is_empty());
    match (outcome.status.signal().or(outcome.status.code()), said) {
        (_, Some(said)) => format!("{said:.200}; {bounds}"),
        (Some(status), None) => format!("the process that does it ended with {status}; {bounds}"),
        (None, None) => bounds,
    }
}

/// One of the [`SLOTS`].
struct Slot;

static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl Slot {
    fn taken() -> Self {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken =
            FREED.wait_while(taken, |taken| *taken >= SLOTS).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FREED.notify_one();
    }
}
