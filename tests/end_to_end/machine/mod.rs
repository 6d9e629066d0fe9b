//! Faults of the machine below the daemon, and what the operator sees of them: the table is in `docs/operations.md`.

mod clock;
mod corrupt;
mod descriptors;
mod read_only;
mod starved;
mod suspended;

use crate::harness::Daemon;

/// The process of the kernel that serves.
fn kernel(daemon: &Daemon) -> u32 {
    let status = daemon.until_ready();
    u32::try_from(status["kernel_pid"].as_u64().expect("a pid")).expect("a pid")
}

/// How many kernels were started.
fn starts(daemon: &Daemon) -> usize {
    let log = daemon.log();
    log.matches(" starts (process").count() + log.matches(" starts in safe mode (process").count()
}
