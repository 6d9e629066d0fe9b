//! `drupe.yaml` and the layers above it: how this daemon is set up.
//!
//! Later layers win: built-in defaults, the file, `DRUPE_…` variables, the command line. What needs the loaded
//! extensions (whether an id exists, whether a tool does) is left to the kernel.

mod effective;
mod keys;
mod layers;
mod limits;
mod models;
mod providers;
mod read;
mod trust;
mod unknown;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use drupe_extension_api::{DefinitionLimits, ExtensionId, ModelParameters, wire::QueueMode};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub(crate) use keys::CONFIG;
pub use limits::{ConcurrencyConfig, LimitsConfig, ScopeLimitsConfig};
pub use models::ModelsConfig;
pub use providers::{ProviderConfig, ProviderKind};
pub use read::load_config;
pub use trust::{ApprovalsConfig, HostsConfig, NativeReload, Preauthorized, ReloadConfig, SandboxConfig};

use crate::{ContextSource, Instructions, Overlay, PartialLimits, ToolSelector, tree::Node};

/// Where the configuration comes from. The caller reads the process environment; this crate does not.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file; none means built-in defaults beneath the other layers.
    pub file: Option<PathBuf>,
    /// The home; `.env` in it is read.
    pub home: PathBuf,
    /// The process environment. `DRUPE_ORCHESTRATOR__MODEL` sets `orchestrator.model`: two underscores for a dot,
    /// lower case throughout. All of it can be named by `${NAME}`.
    pub environment: BTreeMap<String, String>,
    /// Dotted keys and values of the command line; values are YAML, except where the key takes text.
    pub overrides: Vec<(String, String)>,
}

/// The file of a home, where it has one.
pub fn default_file(home: &Path) -> Option<PathBuf> {
    let file = home.join("drupe.yaml");
    // Even a broken link counts: reading it then says what is wrong.
    file.symlink_metadata().is_ok().then_some(file)
}

/// The validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The agent that talks with the user.
    pub orchestrator: OrchestratorConfig,
    /// What holds where a manifest says nothing.
    pub agents_defaults: AgentDefaults,
    /// Providers, aliases and prices.
    pub models: ModelsConfig,
    /// Folders to search, and overrides for each extension.
    pub extensions: ExtensionsConfig,
    /// The record of what happened.
    pub journal: JournalConfig,
    /// What may happen without being asked about.
    pub approvals: ApprovalsConfig,
    /// What changed extensions do to a running daemon.
    pub reload: ReloadConfig,
    /// How child processes are confined.
    pub sandbox: SandboxConfig,
    /// What days, sessions and agents may spend, and how much goes on at the same time.
    pub limits: LimitsConfig,
    /// Messages that wait.
    pub inbox: InboxConfig,
    /// What an agent with many tools is sent.
    pub tool_search: ToolSearchConfig,
    /// Log levels, in the form of `RUST_LOG`.
    pub log: String,
    /// How long running turns may go on when the daemon stops or restarts.
    pub drain_timeout: Duration,
    /// How often extensions with code are asked how they are; by default every 30 s.
    pub health_interval: Duration,
    /// A tool's result above this is stored, and the model gets its head and tail.
    pub tool_response_max_bytes: usize,
    /// Every variable that `${NAME}` can name.
    pub overlay: Overlay,
    /// Where each value that is no default was set, by its dotted key.
    pub origins: BTreeMap<String, Origin>,
    /// Texts with placeholders as they were written, by their dotted key: what `effective` shows in their place.
    written: BTreeMap<String, Value>,
}

/// The orchestrator.
#[derive(Debug, Clone, PartialEq)]
pub struct OrchestratorConfig {
    /// How the assistant calls itself.
    pub name: String,
    /// In order of preference; `default` is an alias.
    pub models: Vec<String>,
    /// None means [`crate::ORCHESTRATOR_PROMPT`].
    pub instructions: Option<Instructions>,
    /// How the model is asked.
    pub parameters: ModelParameters,
    /// What a turn may spend, over the built-in limits.
    pub limits: DefinitionLimits,
    /// The allowlist; none means every shared tool.
    pub uses_tools: Option<Vec<ToolSelector>>,
    /// Given to the model before the task, as data.
    pub context: Vec<ContextSource>,
    /// Tokens that the texts of extensions which add to its context may take together; 0 to 100,000, by default
    /// 2,000.
    pub context_tokens: u32,
    /// Extensions whose tools an agent from the builder may use without being asked about.
    pub builder_may_use: Vec<ExtensionId>,
}

/// What holds where a manifest says nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentDefaults {
    /// In order of preference.
    pub models: Vec<String>,
    /// How the model is asked.
    pub parameters: ModelParameters,
    /// What a run may spend; what is not set here is built in.
    pub limits: PartialLimits,
}

/// Folders to search, and overrides for each extension.
#[derive(Debug, Clone, Default)]
pub struct ExtensionsConfig {
    /// Absolute, searched after the shipped ones and those of the home.
    pub paths: Vec<PathBuf>,
    /// By the extension's id.
    pub overrides: BTreeMap<ExtensionId, ExtensionOverride>,
}

/// What `drupe.yaml` says about one extension.
#[derive(Debug, Clone, Default)]
pub struct ExtensionOverride {
    /// Wins over the manifest's.
    pub enabled: Option<bool>,
    /// Keys over those of the manifest's `config`, placeholders unresolved.
    pub config: Map<String, Value>,
    /// The same with places, for faults that show later.
    pub(crate) node: Option<Node>,
}

/// Messages that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct InboxConfig {
    /// What becomes of a message during a turn of its session, where the message itself does not say.
    pub queue: QueueMode,
}

/// What an agent with many tools is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ToolSearchConfig {
    /// With more tools than this, schemas are sent once the agent asks for them; 1 to 1000, by default 40.
    pub threshold: usize,
}

/// The record of what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct JournalConfig {
    /// What it survives.
    pub durability: Durability,
    /// For how long turns that have ended are kept.
    pub retention: RetentionConfig,
}

/// For how long turns that have ended are kept; without a bound for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RetentionConfig {
    /// Days after their end; 1 to 36,500.
    pub max_age_days: Option<u32>,
    /// Mebibytes of the journal; 16 to 1,048,576.
    pub max_mb: Option<u32>,
}

/// What the journal survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut.
    #[default]
    Full,
    /// The end of the daemon.
    Process,
    /// Nothing: no file is kept.
    Memory,
}

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody: it is built in.
    Default,
    /// A line of the file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u32,
    },
    /// A variable.
    Environment(String),
    /// The command line.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One line of the effective configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectiveValue {
    /// Dotted.
    pub key: String,
    /// Secrets are `***`; a text that was written with placeholders still has them.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}
