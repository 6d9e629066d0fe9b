//! `drupe.yaml` and the layers above it: how this daemon is set up.
//!
//! Later layers win: built-in defaults, the file, `DRUPE_…` variables, the command line. What needs the loaded
//! extensions (whether an id exists, whether a tool does) is left to the kernel.

mod agents;
mod copies;
mod effective;
mod extensions;
mod kept;
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

use drupe_extension_api::wire::QueueMode;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

pub use agents::{AgentDefaults, AgentsConfig, OrchestratorConfig};
pub use copies::CopyRule;
pub use extensions::{ExtensionOverride, ExtensionsConfig};
pub use kept::{Archive, Interval};
pub use limits::{ConcurrencyConfig, LimitsConfig, ScopeLimitsConfig};
pub use models::ModelsConfig;
pub use providers::{ProviderConfig, ProviderKind};
pub use read::load_config;
pub use trust::{ApprovalsConfig, HostsConfig, NativeReload, Preauthorized, ReloadConfig, SandboxConfig};

use crate::{
    Overlay, Secret,
    declare::keys,
    forms,
    shape::{EMPTY, Shape, each_its_own},
};

/// Folders of skills beside that of the home: each is searched whenever everything is wired.
const MAX_SKILL_FOLDERS: usize = 16;

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

keys! {
    /// The validated configuration.
    pub struct Config in CONFIG("the configuration") {
        /// Version of the file's form.
        api (skip_serializing): u32 = 1 => Shape::Integer { min: 1, max: u32::MAX as u64 };
        /// Log levels, as in RUST_LOG: `info,drupe_kernel=debug`.
        log: String = "info" => Shape::Text(&forms::SETTING);
        /// The log as files of the home, beside the standard error stream.
        log_file: LogFileConfig = each_its_own() => Shape::Record(&LOG_FILE);
        /// Variables for `${NAME}`; they win over HOME/.env and the environment.
        env: BTreeMap<String, Secret> = each_its_own() =>
            Shape::Map { key: &forms::VARIABLE, value: &Shape::Text(&forms::VARIABLE_VALUE) };
        /// How long running turns may go on when the daemon stops or restarts.
        drain_timeout as "drain_timeout_ms" (with = "millis"): Duration = 30_000 =>
            Shape::Integer { min: 0, max: 3_600_000 };
        /// How often extensions with code are asked how they are.
        health_interval as "health_interval_ms" (with = "millis"): Duration = 30_000 =>
            Shape::Integer { min: 100, max: 3_600_000 };
        /// A tool's result above this is stored, and the model gets its head and tail.
        tool_response_max_bytes: usize = 12 * 1024 => Shape::Integer { min: 1024, max: 1024 * 1024 };
        /// The agent that talks with the user.
        orchestrator: OrchestratorConfig = each_its_own() => Shape::Record(&agents::ORCHESTRATOR);
        /// What holds for every agent.
        agents: AgentsConfig = each_its_own() => Shape::Record(&agents::AGENTS);
        /// Providers, aliases and prices.
        models: ModelsConfig = each_its_own() => Shape::Record(&models::MODELS);
        /// Folders to search, and the configuration of each extension.
        extensions: ExtensionsConfig = each_its_own() => Shape::Record(&extensions::EXTENSIONS);
        /// The record of what happened.
        journal: JournalConfig = each_its_own() => Shape::Record(&JOURNAL);
        /// What may happen without being asked about.
        approvals: ApprovalsConfig = each_its_own() => Shape::Record(&trust::APPROVALS);
        /// What changed extensions do to a running daemon.
        reload: ReloadConfig = each_its_own() => Shape::Record(&trust::RELOAD);
        /// How child processes are confined.
        sandbox: SandboxConfig = each_its_own() => Shape::Record(&trust::SANDBOX);
        /// What days, sessions and agents may spend, and how much goes on at once.
        limits: LimitsConfig = each_its_own() => Shape::Record(&limits::LIMITS);
        /// Messages that wait.
        inbox: InboxConfig = each_its_own() => Shape::Record(&INBOX);
        /// Where what people are told in conversations goes besides.
        copies: Vec<CopyRule> = EMPTY =>
            Shape::AtMost(copies::MOST, &Shape::List(&Shape::Record(&copies::COPY)));
        /// What is done at set times.
        schedules: SchedulesConfig = each_its_own() => Shape::Record(&SCHEDULES);
        /// What an agent with many tools is sent.
        tool_search: ToolSearchConfig = each_its_own() => Shape::Record(&TOOL_SEARCH);
        /// Where the orchestrator finds skills.
        skills: SkillsConfig = each_its_own() => Shape::Record(&SKILLS);
    }
    later { "mcp_servers" }
    beside {
        /// Where skills are found before all other folders.
        #[serde(skip)]
        pub skills_of_home: PathBuf,
        /// Every variable that `${NAME}` can name.
        #[serde(skip)]
        pub overlay: Overlay,
        /// Where each value that is no default was set, by its dotted key.
        #[serde(skip)]
        pub origins: BTreeMap<String, ValueOrigin>,
        /// Texts with placeholders as they were written, by their dotted key: what `effective` shows in their place.
        #[serde(skip)]
        written: BTreeMap<String, Value>,
    }
}

keys! {
    /// The log as files of the home.
    #[derive(Copy, PartialEq, Eq)]
    pub struct LogFileConfig in LOG_FILE("`log_file`") {
        /// Whether the log goes there at all.
        enabled: bool = false => Shape::Bool;
        /// Mebibytes of one; a line that has no room begins the next.
        max_mb: u32 = 10 => Shape::Integer { min: 1, max: 1024 };
        /// How many older ones are kept.
        keep: u32 = 5 => Shape::Integer { min: 0, max: 100 };
    }
}

keys! {
    /// Messages that wait.
    #[derive(Copy, PartialEq, Eq)]
    pub struct InboxConfig in INBOX("`inbox`") {
        /// A message during a turn waits for its own, is taken into it, or stops it.
        queue: QueueMode = "followup" => Shape::choice(&["followup", "steer", "interrupt"]);
    }
    later { "max_age" }
}

keys! {
    /// What holds of all schedules.
    #[derive(PartialEq, Eq)]
    pub struct SchedulesConfig in SCHEDULES("`schedules`") {
        /// The time zone of schedules that name none; `system` is that of this machine.
        timezone: String = "system" => Shape::Text(&forms::NON_EMPTY);
        /// How many runs that schedules set off go on at a time; the others wait.
        at_once: usize = 4 => Shape::Integer { min: 1, max: 64 };
    }
}

keys! {
    /// Where the skills of the orchestrator are found.
    #[derive(PartialEq, Eq)]
    pub struct SkillsConfig in SKILLS("`skills`") {
        /// Folders of skills to search behind HOME/skills, which goes before all of them.
        directories (serialize_with = "crate::files::shown_paths"): Vec<PathBuf> = EMPTY =>
            Shape::AtMost(MAX_SKILL_FOLDERS, &Shape::List(&Shape::Text(&forms::SETTING)));
        /// Names of skills that nobody is offered.
        disabled: Vec<String> = EMPTY => Shape::List(&Shape::Text(&forms::SKILL));
    }
}

keys! {
    /// What an agent with many tools is sent.
    #[derive(Copy, PartialEq, Eq)]
    pub struct ToolSearchConfig in TOOL_SEARCH("`tool_search`") {
        /// With more tools than this, schemas are sent once the agent asks for them.
        threshold: usize = 40 => Shape::Integer { min: 1, max: 1000 };
    }
}

keys! {
    /// The record of what happened.
    #[derive(PartialEq, Eq)]
    pub struct JournalConfig in JOURNAL("`journal`") {
        /// `full` survives a power cut, `process` the end of the daemon, `memory` nothing.
        durability: Durability = "full" => Shape::choice(&["full", "process", "memory"]);
        /// For how long turns that have ended are kept; for ever without it.
        retention: RetentionConfig = each_its_own() => Shape::Record(&RETENTION);
        /// Backups of the home that the daemon makes by itself; none without `every`.
        backup: BackupConfig = each_its_own() => Shape::Record(&BACKUP);
    }
}

keys! {
    /// Backups of the home that the daemon makes by itself.
    #[derive(Default, PartialEq, Eq)]
    pub struct BackupConfig in BACKUP("`journal.backup`") {
        /// `daily`, `hourly`, or a time such as `90m`, `6h` or `2d`; without it none is made.
        every: Option<Interval> => Shape::Text(&forms::INTERVAL);
        /// How many of them are kept; the oldest goes once a newer one is whole.
        keep: usize = 7 => Shape::Integer { min: 1, max: 1000 };
        /// Where they are, by default `backups` in the home.
        directory (serialize_with = "crate::files::shown_path"): Option<PathBuf> => Shape::Text(&forms::SETTING);
        /// For whom they are encrypted by the program `age`, secrets included, and those of `drupe backup`; without any they are not.
        recipients: Vec<String> = EMPTY => Shape::AtMost(16, &Shape::List(&Shape::Text(&forms::RECIPIENT)));
    }
}

keys! {
    /// For how long turns that have ended are kept; without a bound for ever.
    #[derive(Default, PartialEq, Eq)]
    pub struct RetentionConfig in RETENTION("`journal.retention`") {
        /// Turns that ended longer ago are deleted; without it none is for its age.
        max_age_days: Option<u32> => Shape::Integer { min: 1, max: 36_500 };
        /// Mebibytes of the journal beyond which the oldest turns are deleted; without it none is for its size.
        max_mb: Option<u32> => Shape::Integer { min: 16, max: 1024 * 1024 };
        /// Whether turns are written to files before they are deleted, and where: true for `archive` in the home.
        archive: Archive = false => Shape::SwitchOrText(&forms::SETTING);
    }
}

/// Durations of files, in milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    Full,
    /// The end of the daemon.
    Process,
    /// Nothing: no file is kept.
    Memory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Nobody: it is built in.
    Default,
    File {
        path: PathBuf,
        /// Counted from 1.
        line: u32,
    },
    Environment(String),
    CommandLine,
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

impl Serialize for ValueOrigin {
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
    pub origin: ValueOrigin,
}

impl Config {
    /// The folders of skills, in the order in which they are searched.
    pub fn skill_folders(&self) -> Vec<PathBuf> {
        std::iter::once(&self.skills_of_home).chain(&self.skills.directories).cloned().collect()
    }
}
