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
mod log_file;
mod notify;
mod output;
mod probe;
pub mod record;
mod signals;
mod stall;
mod state;

use std::{
    ffi::OsString,
    io::ErrorKind,
    path::{Path, PathBuf},
};

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
    pub kernel_args: Vec<OsString>,
}

/// Supervises until the daemon is stopped or nothing is left to try. Returns the status to end with: 0 stopped,
/// 1 stopped by force, 69 home in use, 70 not even safe mode works, 73 home cannot be made or was moved,
/// 74 journal that cannot be used, 75 no room to begin in, 78 configuration refused.
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
    #[error("there is no room to begin in `{path}`: {error}; make room on its disk, then start it again")]
    NoRoom { path: String, error: std::io::Error },
    #[error("the file system of `{path}` is read-only: {error}; make it writable, then start it again")]
    ReadOnly { path: String, error: std::io::Error },
}

impl Failure {
    /// A home that cannot be used. Want of room passes, and so does an error for which a file system takes nothing more; a home that is
    /// wrongly set up does not.
    fn of_home(home: &Path, error: std::io::Error) -> Self {
        let path = home.display().to_string();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoRoom { path, error },
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path, error },
            _ => Self::Home { path, error },
        }
    }

    fn status(&self) -> u8 {
        match self {
            Self::InUse { .. } => state::status::IN_USE,
            Self::Home { .. } => state::status::NO_HOME,
            Self::NoRoom { .. } | Self::ReadOnly { .. } => state::status::LATER,
        }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "unknown".into(), |pid| pid.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn want_of_room_is_told_from_a_home_that_is_wrongly_set_up_so_that_a_start_is_tried_again() {
        let failed = |kind: ErrorKind| Failure::of_home(Path::new("/home"), Error::from(kind));
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            let failure = failed(kind);
            assert_eq!(failure.status(), 75);
            assert!(failure.to_string().contains("make room"), "{failure}");
            let token = drupe_link::TokenError::Io(Error::from(kind));
            assert_eq!(Failure::of_home(Path::new("/home"), control::without_token(token)).status(), 75);
        }
        let failure = failed(ErrorKind::ReadOnlyFilesystem);
        assert!(failure.status() == 75 && failure.to_string().contains("read-only"), "{failure}");
        for kind in [ErrorKind::PermissionDenied, ErrorKind::NotADirectory] {
            assert_eq!(failed(kind).status(), 73, "{kind:?}");
        }
    }
}
