//! What the system can do, and what its clock says.

use drupe_config::Config;
use drupe_kernel::examine::Examined;
use jiff::{SignedDuration, Timestamp};
use rustix::process::{Resource, getrlimit};

use super::finding::Finding;

const SYSTEM: &str = "system";
const CLOCK: &str = "clock";

/// Clocks of two machines differ by so much without a fault.
const APART: SignedDuration = SignedDuration::from_mins(5);

/// A clock that says an earlier time has not been set: this release is younger. 2026-11-01 in seconds since 1970.
const RELEASED: i64 = 1_793_491_200;

/// Files that a kernel with a hundred clients and some dozens of programs has open.
const FILES: u64 = 1024;

/// Memory in bytes that a daemon with its extensions takes, with room for one large answer.
const MEMORY: u64 = 128 << 20;

pub fn look(
    config: Option<&Config>,
    journal: Option<&Examined>,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) {
    let before = findings.len();
    if let Some(missing) = drupe_confine::support().missing() {
        let allowed = config.is_some_and(|config| config.sandbox.allow_unconfined);
        findings.push(match allowed {
            true => Finding::warning(SYSTEM, missing)
                .fix("`sandbox.allow_unconfined` lets them run all the same; a newer kernel would confine them"),
            false => Finding::fault(SYSTEM, missing).fix(
                "boot a kernel with Landlock; until then extensions with code of their own, and commands, do not run",
            ),
        });
    }
    // No bound counts as enough.
    if let Some(files) = getrlimit(Resource::Nofile).current.filter(|files| *files < FILES) {
        let message = format!("a process may open {files} files");
        findings.push(
            Finding::warning(SYSTEM, message)
                .fix(format!("`ulimit -n {FILES}`, or `LimitNOFILE=` of its unit")),
        );
    }
    if let Some(available) = available().filter(|available| *available < MEMORY) {
        let message = format!("{} MiB of memory are left", available >> 20);
        findings.push(Finding::warning(SYSTEM, message).fix("end programs that nobody needs, or add swap"));
    }
    if findings.len() == before {
        findings.push(Finding::fine(SYSTEM, "it can confine programs, and has room"));
    }
    clock(journal, now, findings);
}

fn clock(journal: Option<&Examined>, now: Timestamp, findings: &mut Vec<Finding>) {
    if now.as_second() < RELEASED {
        let message = format!("it says {now}, which is before this release was made");
        findings.push(Finding::fault(CLOCK, message).fix("set it; schedules and limits of a day follow it"));
        return;
    }
    let last = journal.and_then(|journal| journal.waiting.as_ref()?.last_message);
    if let Some(ahead) = last.filter(|last| last.duration_since(now) > APART) {
        let message = format!("it says {now}, and the journal has a message of {ahead}");
        findings.push(
            Finding::warning(CLOCK, message).fix(
                "set it, if it went back; if it was ahead then, schedules go on once that time has come",
            ),
        );
        return;
    }
    findings.push(Finding::fine(CLOCK, format!("it says {}", now.strftime("%F %T UTC"))));
}

/// Memory that programs may still get, in bytes, by the system's own reckoning.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}
