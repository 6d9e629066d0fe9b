//! The supervisor: starts the kernel, watches it, starts it again, and knows why.
//!
//! One thread, no async runtime, no plugins, no network. It writes below `HOME/state` and `HOME/run` and nowhere
//! else. It must hold when the journal, the configuration and the kernel do not, so it reads none of them.
//!
//! [`state`] decides about kernels, [`judge`] and [`ledger`] about extensions that end them, [`driver`] does; the rest
//! are the driver's hands.

mod arguments;
mod control;
mod driver;
mod judge;
mod kernel;
mod ledger;
mod notify;
mod output;
mod probe;
pub mod record;
mod signals;
mod stall;
mod state;

use std::{ffi::OsString, path::PathBuf};

use drupe_extension_api::AgentId;

pub use arguments::KernelArguments;
pub use notify::Notify;

/// What a supervisor is told.
#[derive(Debug)]
pub struct Options {
    /// The home, made if it is missing.
    pub home: PathBuf,
    /// The operator's `drupe.yaml`; the kernel looks for it where there is none.
    pub config: Option<PathBuf>,
    /// Whether to leave third-party extensions out.
    pub safe_mode: bool,
    /// The agents that the surfaces offer; all if empty.
    pub agents: Vec<AgentId>,
    /// The binary whose `kernel` verb is the kernel: this one.
    pub exe: PathBuf,
    /// Where systemd wants to be told, if it does.
    pub notify: Option<Notify>,
    /// Log lines for people, not for programs.
    pub human_log: bool,
    /// More arguments of the kernel.
    pub kernel_args: Vec<OsString>,
}

/// Supervises until the daemon is stopped or nothing is left to try. Returns the status to end with: 0 stopped,
/// 1 stopped by force, 69 home in use, 70 not even safe mode works, 73 home cannot be made or was moved, 78 configuration refused.
///
/// Takes over `SIGTERM`, `SIGINT`, `SIGHUP` and `SIGCHLD` of the process, which must have no other thread: a process
/// that another thread starts at the wrong moment would inherit the kernel's descriptors.
pub fn run(options: Options) -> u8 {
    let mut output = output::Output::stderr(options.human_log);
    let status = match driver::Driver::new(options, &mut output) {
        Ok(driver) => driver.run(&mut output),
        Err(failure) => {
            output.say(output::Level::Error, &failure.to_string());
            failure.status()
        }
    };
    output.finish();
    status
}

/// Why a supervisor does not even begin.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("another daemon (process {pid}) serves `{home}`; stop it with `drupe stop`, or choose another home", pid = holder(*.pid))]
    InUse { home: String, pid: Option<u32> },
    #[error("`{path}` cannot be made or written: {error}; choose another home with `--home`")]
    Home { path: String, error: std::io::Error },
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Self::InUse { .. } => state::status::IN_USE,
            Self::Home { .. } => state::status::NO_HOME,
        }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "unknown".into(), |pid| pid.to_string())
}
