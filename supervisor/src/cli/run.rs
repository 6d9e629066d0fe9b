//! `drupe run`: the daemon in the foreground, for systemd, containers, and the verbs that need one.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
};

use drupe_extension_api::AgentId;

use super::{Global, home};
use crate::supervise::{self, Notify, Options};

/// Arguments of `drupe run`.
#[derive(clap::Args)]
pub struct Run {
    /// Leave third-party extensions out
    #[arg(long)]
    pub safe_mode: bool,
    /// Offer only this agent; may be repeated
    #[arg(long = "agent", value_name = "ID")]
    pub agents: Vec<AgentId>,
}

impl Run {
    /// Supervises to the end; the status to end with.
    pub fn execute(self, global: &Global, environment: &BTreeMap<String, String>) -> anyhow::Result<u8> {
        let notify = environment.get("NOTIFY_SOCKET").and_then(|socket| {
            let usec = environment.get("WATCHDOG_USEC").and_then(|usec| usec.parse().ok());
            // An address that is none is systemd's fault, and no reason not to serve.
            Notify::new(&socket.into(), usec).ok()
        });
        let here = std::env::current_dir()?;
        Ok(supervise::run(Options {
            home: home::find(global.home.as_deref(), &here, environment)?,
            config: global.config.as_ref().map(std::path::absolute).transpose()?,
            safe_mode: self.safe_mode,
            agents: self.agents,
            exe: std::env::current_exe()?,
            notify,
            human_log: io::stderr().is_terminal(),
            kernel_args: Vec::new(),
        }))
    }
}
