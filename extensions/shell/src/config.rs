//! The keys of the configuration.

use std::{
    path::{Component, Path},
    time::Duration,
};

use drupe_extension_api::prelude::*;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShellConfig {
    network: Network,
    timeout_s: u64,
    max_timeout_s: u64,
    pub memory_mb: u64,
    pub tasks: u64,
    output_kb: usize,
    max_output_mb: u64,
    pub background: usize,
    idle_minutes: u64,
    pub keep: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Network {
    Never,
    Ask,
}

impl Default for ShellConfig {
    fn default() -> Self {
        Self {
            network: Network::Never,
            timeout_s: 60,
            max_timeout_s: 1800,
            memory_mb: 2048,
            tasks: 512,
            output_kb: 10,
            max_output_mb: 64,
            background: 4,
            idle_minutes: 30,
            keep: vec![".git".to_owned()],
        }
    }
}

impl ShellConfig {
    pub fn read(host: &Host) -> Result<Self, Fault> {
        let config: Self = host.config()?;
        let plain = |path: &String| {
            let mut parts = Path::new(path).components();
            !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        match config.keep.iter().find(|path| !plain(path)) {
            Some(path) => {
                Err(Fault::invalid(format!("`{path}` of `extensions.shell.keep` leaves the workspace"))
                    .help("name files and folders relative to the workspace, without `..`"))
            }
            None => Ok(config),
        }
    }

    /// Whether a call can ask for the network.
    pub fn network(&self) -> bool {
        self.network == Network::Ask
    }

    /// The time of a command that says nothing of it.
    pub fn usual_time(&self, background: bool) -> Duration {
        let seconds = if background { self.max_timeout_s } else { self.timeout_s.min(self.max_timeout_s) };
        Duration::from_secs(seconds)
    }

    pub fn longest_time(&self) -> Duration {
        Duration::from_secs(self.max_timeout_s)
    }

    /// Bytes of output that one call shows.
    pub fn shown(&self) -> usize {
        self.output_kb << 10
    }

    /// Bytes that a command may write in all.
    pub fn written(&self) -> u64 {
        self.max_output_mb << 20
    }

    pub fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_minutes * 60)
    }
}
