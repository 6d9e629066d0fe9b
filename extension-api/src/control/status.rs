//! What the daemon is doing, and its configuration.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ExtensionStatus;

/// What the daemon is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DaemonState {
    /// A kernel is loading extensions.
    Starting,
    Ready,
    /// A kernel lets its turns end.
    Draining,
    /// Between two kernels.
    Restarting,
    Stopped,
}

/// Answer to [`method::STATUS`](super::method::STATUS).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Release of drupe.
    pub version: String,
    pub state: DaemonState,
    /// Process of the supervisor.
    pub supervisor_pid: u32,
    /// Process of the kernel.
    pub kernel_pid: Option<u32>,
    /// Number of the kernel's start in this home, from 1.
    pub generation: u64,
    /// Age of the kernel in milliseconds.
    pub uptime_ms: u64,
    /// Restarts since the supervisor began.
    pub restarts: u32,
    /// Whether third-party extensions were left out.
    pub safe_mode: bool,
    pub model: Option<String>,
    pub sessions: u64,
    #[serde(default)]
    pub running_turns: u64,
    /// Those of them that have their answer and sum up older turns of their conversations, for the next one.
    #[serde(default)]
    pub summing_up: u64,
    #[serde(default)]
    pub queued_turns: u64,
    /// Messages to people that wait in channels, or are being sent.
    #[serde(default)]
    pub queued_deliveries: u64,
    /// Messages of topics that wait for those who follow.
    #[serde(default)]
    pub queued_messages: u64,
    /// Messages of topics that were given up, and are kept.
    #[serde(default)]
    pub dead_messages: u64,
    /// What is used of the bounds for a day, and of those for an agent and a session by whoever has used most.
    #[serde(default)]
    pub budgets: Vec<crate::BudgetUse>,
    /// Extensions and their states.
    #[serde(default)]
    pub extensions: Vec<ExtensionStatus>,
    /// The last exits of kernels, newest first.
    #[serde(default)]
    pub exits: Vec<ExitRecord>,
    #[serde(default)]
    pub notices: Vec<String>,
    /// Why what the operator has configured is not in force, where it was refused: an earlier configuration is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_refused: Option<String>,
    /// Backups of the home; none where none is made and there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupStatus>,
}

/// How backups of the home stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackupStatus {
    pub directory: String,
    /// The newest that is whole.
    pub last: Option<BackupFile>,
    /// When the daemon makes the next one; none where it makes none.
    pub next: Option<Timestamp>,
    /// Where the last attempts of the daemon failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedBackup>,
}

/// A backup, by its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackupFile {
    pub file: String,
    pub made: Timestamp,
    pub bytes: u64,
}

/// Attempts that failed in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedBackup {
    pub since: Timestamp,
    /// When it is tried again.
    pub again: Timestamp,
    pub attempts: u32,
    /// The reason of the last one.
    pub why: String,
}

/// One end of a kernel process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExitRecord {
    pub time: Timestamp,
    pub pid: u32,
    pub generation: u64,
    /// `stopped`, `restart: …`, `exit status N`, `signal N (NAME)`.
    pub how: String,
    /// Whether it counts as a crash.
    pub crash: bool,
    /// Its last lines on the standard error stream.
    #[serde(default)]
    pub last_lines: Vec<String>,
    /// The extensions whose code may have ended it; one alone was at fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blamed: Vec<Blamed>,
}

/// An extension whose code ran when a kernel, or its own process, ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blamed {
    pub extension: String,
    /// What it was doing: an operation such as `tool.call`, `load`, or `thread` for a thread of its own.
    pub operation: String,
}

/// One value of the effective configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigValue {
    /// Its key, with dots.
    pub key: String,
    /// Its value; secrets are masked.
    pub value: Value,
    pub origin: String,
}
