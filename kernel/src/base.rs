//! What a kernel is made with: its folders, its configuration, the time, and how it was started. Nothing of it changes
//! while the kernel lives, so every part may have it.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use drupe_agent::Clock;
use drupe_config::{Config, Sources};
use drupe_extension_api::{AgentId, Fault, control::ExitRecord};
use drupe_host::home::Folders;
use drupe_prompts::Day;
use drupe_redact::Redactor;

/// What a kernel is made with.
pub struct Base {
    pub home: Folders,
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    /// Where the operator's configuration comes from.
    pub sources: Sources,
    /// The text of the configuration file that is in force.
    pub config_text: String,
    pub start: Start,
    /// The secrets that this process handed to somebody.
    pub redactor: Redactor,
}

/// How this kernel was started.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Number of the start in this home.
    pub generation: u64,
    /// Whether third-party extensions are left out.
    pub safe_mode: bool,
    /// Process of the supervisor.
    pub supervisor_pid: u32,
    /// Restarts since the supervisor began.
    pub restarts: u32,
    /// The last exits, newest first.
    pub exits: Vec<ExitRecord>,
    /// Remarks for the operator.
    pub notices: Vec<String>,
    /// Whether its configuration is the last good one, since the operator's was refused.
    pub last_good: bool,
    /// The set of extensions to return to.
    pub fallback: Option<String>,
    /// How often the supervisor wants a proof that the journal writes, if it does.
    pub proof: Option<Duration>,
    /// The agents that surfaces may offer; none for all.
    pub agents: Option<Vec<AgentId>>,
    /// When it began, by a clock that nobody sets.
    pub began: Option<Instant>,
    /// Whether an earlier kernel left the journal open, and not all of it was looked at for that.
    pub unread: bool,
    /// The program.
    pub exe: PathBuf,
}

impl Base {
    /// The day that stands in prompts.
    pub fn day(&self) -> Day {
        Day::of(self.clock.now_ms())
    }

    /// Refuses an agent that `--agent` does not let surfaces offer.
    pub fn offered(&self, agent: &AgentId) -> Result<(), Fault> {
        match &self.start.agents {
            Some(offered) if !offered.contains(agent) => {
                Err(Fault::not_found(format!("agent `{agent}` is not offered by this daemon"))
                    .help("it was started with `--agent`"))
            }
            _ => Ok(()),
        }
    }

    /// Whether this start leaves no extension out that another one would have.
    pub fn takes_all(&self) -> bool {
        !self.start.safe_mode && self.start.fallback.is_none()
    }
}
