//! `drupe run`: the daemon in the foreground, for systemd, containers, and the verbs that need one.

use std::io::{self, IsTerminal};

use drupe_extension_api::AgentId;

use super::{Context, failure::Failure};
use crate::supervise::{self, Notify, Options};

/// Arguments of `drupe run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Leave third-party extensions out
    #[arg(long)]
    safe_mode: bool,
    /// Offer only this agent; may be repeated
    #[arg(long = "agent", value_name = "ID")]
    agents: Vec<AgentId>,
}

impl Run {
    /// Supervises to the end.
    pub fn execute(self, context: Context) -> Result<u8, Failure> {
        let notify = context.environment.bytes("NOTIFY_SOCKET").and_then(|socket| {
            let usec = context.environment.text.get("WATCHDOG_USEC").and_then(|usec| usec.parse().ok());
            // An address that is none is systemd's fault, and no reason not to serve.
            Notify::new(&socket.into(), usec).ok()
        });
        Ok(supervise::run(Options {
            home: context.home.path().to_owned(),
            config: context.config,
            safe_mode: self.safe_mode,
            agents: self.agents,
            exe: context.exe,
            notify,
            human_log: io::stderr().is_terminal(),
            kernel_args: Vec::new(),
        }))
    }
}
