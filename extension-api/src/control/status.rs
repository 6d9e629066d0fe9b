//! What the daemon is doing, and its configuration.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ExtensionStatus;

/// What the daemon is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonState {
    /// A kernel is loading extensions.
    Starting,
    /// A kernel serves.
    Ready,
    /// A kernel lets its turns end.
    Draining,
    /// Between two kernels.
    Restarting,
    /// Ending.
    Stopped,
}

/// Answer to [`method::STATUS`](super::method::STATUS).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Release of drupe.
    pub version: String,
    /// What it is doing.
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
    /// The default model.
    pub model: Option<String>,
    /// Number of sessions.
    pub sessions: u64,
    /// Turns that run.
    #[serde(default)]
    pub running_turns: u64,
    /// Turns that wait.
    #[serde(default)]
    pub queued_turns: u64,
    /// What is used of the bounds for a day, and of those for an agent and a session by whoever has used most.
    #[serde(default)]
    pub budgets: Vec<crate::BudgetUse>,
    /// Extensions and their states.
    #[serde(default)]
    pub extensions: Vec<ExtensionStatus>,
    /// The last exits of kernels, newest first.
    #[serde(default)]
    pub exits: Vec<ExitRecord>,
    /// Remarks for the operator.
    #[serde(default)]
    pub notices: Vec<String>,
    /// Why what the operator has configured is not in force, where it was refused: an earlier configuration is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_refused: Option<String>,
}

/// One end of a kernel process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// When.
    pub time: Timestamp,
    /// The process.
    pub pid: u32,
    /// Its generation.
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
pub struct Blamed {
    /// The extension.
    pub extension: String,
    /// What it was doing: an operation such as `tool.call`, `load`, or `thread` for a thread of its own.
    pub operation: String,
}

/// One value of the effective configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConfigValue {
    /// Its key, with dots.
    pub key: String,
    /// Its value; secrets are masked.
    pub value: Value,
    /// Where it comes from.
    pub origin: String,
}
