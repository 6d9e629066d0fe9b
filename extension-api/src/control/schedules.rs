//! What is done at set times, as the control API shows it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::method;
use crate::{AgentId, SessionId, TurnId};

/// A schedule, and how it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleStatus {
    /// `<extension>/<name>`, or the name that a person gave it.
    pub id: String,
    /// When it is due: cron, an interval or a date.
    pub when: String,
    /// The time zone of that.
    pub timezone: String,
    /// What an agent does then; none where the extension's own code does something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The call of a tool that is made before the agent is asked, as `tool {"parameter": …}`; none where the agent is asked each
    /// time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_if: Option<String>,
    /// The agent; none for the orchestrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Where its answers are shown; none for where a person wrote last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Who made it: `extension`, or who asked for it.
    pub made_by: String,
    /// When it is done next; none while it is paused, or where it is never due again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// What became of the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<ScheduleRun>,
    /// Runs that failed in a row.
    #[serde(default)]
    pub failures: u32,
    /// After failures, times before this one are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// Why nothing is done until somebody lets it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
}

/// A schedule with what became of its last times.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleDetail {
    #[serde(flatten)]
    pub status: ScheduleStatus,
    /// The newest first; at most 50.
    pub runs: Vec<ScheduleRun>,
}

/// What became of one time of a schedule, or of several that were missed together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleRun {
    /// When it was due; of several the first.
    pub slot: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<Timestamp>,
    /// How many times this stands for.
    pub slots: u32,
    pub state: ScheduleRunState,
    /// The turn that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Why it failed, was missed or was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Since when it is in that state.
    pub changed: Timestamp,
}

/// How one time of a schedule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ScheduleRunState {
    /// It is due, and others go first.
    Waiting,
    Running,
    Done,
    Failed,
    /// Nobody was there to do it, and it was too late afterwards.
    Missed,
    /// It was left out: the run before still went on, or failures held it back.
    Skipped,
    /// The daemon ended while it ran, and what came of it is not known.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleNew {
    /// A name of 1 to 48 characters of `a-z`, `0-9`, `_` and `-`; its id.
    pub name: String,
    /// When: cron (`0 8 * * 1-5`), `@every 30m`, or a date (`2026-12-24 18:00`).
    pub when: String,
    /// The time zone of that; none for that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// What is to be done then.
    pub task: String,
    /// The agent that does it; none for the orchestrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The conversation in which its answers are shown; none for where a person wrote last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// How late it may still be done, in milliseconds; none for five minutes, or a day where it is due but once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SchedulePause {
    pub id: String,
    /// Whether it is to do nothing, or to go on.
    pub pause: bool,
}
