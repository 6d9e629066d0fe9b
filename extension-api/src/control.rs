//! The control API: what the command line and other surfaces ask of a running daemon.
//!
//! On the control socket each line is one JSON object. A client sends [`Request`]s; the first is
//! [`method::HELLO`]. The daemon answers each with one [`Reply`] of the same `id`, or, for
//! [`method::EVENTS_SUBSCRIBE`], with many events, after which the result is `null`.

mod agents;
mod extensions;
mod insight;
mod people;
mod replay;
mod schedules;
mod sessions;
mod status;
mod tokens;

pub use agents::{AgentDetail, AgentStatus, AgentTemplate, Exclusion, SkillStatus, TemplateQuery, ToolSize};
pub use extensions::{
    Approval, ApprovalAnswer, ApprovalState, AskedCall, CallPreview, ExtensionAsk, ExtensionDetail,
    ExtensionState, ExtensionStatus, Scaffold, StandingGrant, StateChange, Trial, TrialResult,
};

pub use insight::{
    CallKind, Cited, DeadMessage, Explanation, ItemArgument, ItemText, LATENCY_BOUNDS_MS, Latency, LatencyOf,
    Numbered, TraceArgument, TraceNode, TurnTrace, UsageBy, UsageQuery, UsageRow,
};

pub use people::{PersonAnswer, PersonState, PersonStatus};
pub use replay::{
    ComparedAnswer, ComparedTurn, ReplayArgument, ReplayDifference, ReplayReport, ReplayVerdict, ReplayedTurn,
};
pub use schedules::{
    ScheduleDetail, ScheduleNew, SchedulePause, ScheduleRun, ScheduleRunState, ScheduleStatus,
};
pub use sessions::{
    ArchivedTurn, DeletedSession, EventsSubscribe, HandoffStatus, InvocationRecord, KeptPlan, Persona,
    PlanStatus, PlanStep, SessionDetail, SessionPersonas, SessionSelect, SessionShow, SessionSnapshot,
    SessionStatus, SpawnedArgument, SpawnedQuery, SpawnedStatus, SpawnedTell, TranscriptEntry, TurnArgument,
    TurnResult,
};
pub use status::{
    BackupFile, BackupStatus, Blamed, ConfigValue, DaemonState, ExitRecord, FailedBackup, Status,
};
pub use tokens::{Allowance, Power, TokenMade, TokenNew, TokenPromised, TokenStatus, Whoami};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Event, Fault};

/// Version of the control API.
pub const CONTROL_VERSION: u32 = 1;

/// The longest request line, in bytes.
pub const MAX_REQUEST: usize = 4 * 1024 * 1024;

pub mod method {
    /// [`Hello`](super::Hello) → [`Welcome`](super::Welcome).
    pub const HELLO: &str = "hello";
    /// → [`Status`](super::Status).
    pub const STATUS: &str = "status";
    /// Ends the daemon after its running turns. → `null`.
    pub const STOP: &str = "stop";
    /// [`Restart`](super::Restart) → `null`, once it is agreed.
    pub const RESTART: &str = "restart";
    /// → list of [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_LIST: &str = "extensions.list";
    /// [`Named`](super::Named) → [`ExtensionDetail`](super::ExtensionDetail).
    pub const EXTENSIONS_SHOW: &str = "extensions.show";
    /// [`PathArgument`](super::PathArgument) → [`CheckReport`](super::CheckReport).
    pub const EXTENSIONS_CHECK: &str = "extensions.check";
    /// [`PathArgument`](super::PathArgument): copies a checked folder to where extensions live and takes it in. →
    /// [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_ADD: &str = "extensions.add";
    /// [`Named`](super::Named): turns an extension on, over its manifest. → [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_ENABLE: &str = "extensions.enable";
    /// [`Named`](super::Named): turns an extension off, over its manifest. → [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_DISABLE: &str = "extensions.disable";
    /// [`Named`](super::Named): lifts a quarantine and tries the extension again. →
    /// [`ExtensionStatus`](super::ExtensionStatus).
    pub const EXTENSIONS_RELEASE: &str = "extensions.release";
    /// [`ExtensionAsk`](super::ExtensionAsk): asks something that is an extension's own. → any JSON, as its reference says.
    pub const EXTENSIONS_ASK: &str = "extensions.ask";
    /// [`Scaffold`](super::Scaffold): writes the beginning of a native extension. → `null`.
    pub const EXTENSIONS_SCAFFOLD: &str = "extensions.scaffold";
    /// [`Trial`](super::Trial) → [`TrialResult`](super::TrialResult); for an extension, on behalf of a call.
    pub const EXTENSIONS_TRY: &str = "extensions.try";
    /// → list of [`Approval`](super::Approval), those that wait first.
    pub const APPROVALS_LIST: &str = "approvals.list";
    /// [`ApprovalAnswer`](super::ApprovalAnswer) → [`Approval`](super::Approval) as it is then.
    pub const APPROVALS_ANSWER: &str = "approvals.answer";
    /// → list of [`StandingGrant`](super::StandingGrant), the newest first.
    pub const APPROVALS_GRANTS: &str = "approvals.grants";
    /// [`Named`](super::Named): takes back what was allowed for the rest of a session, and gives it as it was. →
    /// [`StandingGrant`](super::StandingGrant).
    pub const APPROVALS_REVOKE: &str = "approvals.revoke";
    /// → list of [`AgentStatus`](super::AgentStatus).
    pub const AGENTS_LIST: &str = "agents.list";
    /// [`Named`](super::Named) → [`AgentDetail`](super::AgentDetail).
    pub const AGENTS_SHOW: &str = "agents.show";
    /// [`TemplateQuery`](super::TemplateQuery), or nothing → [`AgentTemplate`](super::AgentTemplate).
    pub const AGENTS_TEMPLATE: &str = "agents.template";
    /// → list of [`SkillStatus`](super::SkillStatus): the skills that the orchestrator can load, by name.
    pub const SKILLS_LIST: &str = "skills.list";
    /// → list of [`SessionStatus`](super::SessionStatus).
    pub const SESSIONS_LIST: &str = "sessions.list";
    /// [`SessionShow`](super::SessionShow) → [`SessionDetail`](super::SessionDetail).
    pub const SESSIONS_SHOW: &str = "sessions.show";
    /// [`SessionSelect`](super::SessionSelect) → `null`; the agent that answers in a session from now on.
    pub const SESSION_SELECT: &str = "session.select";
    /// [`SessionPersonas`](super::SessionPersonas) → `null`; the agents that a session has beside those of the daemon.
    pub const SESSION_PERSONAS: &str = "session.personas";
    /// [`Submit`](crate::wire::Submit) → [`Submitted`](crate::wire::Submitted).
    pub const TURN_SUBMIT: &str = "turn.submit";
    /// [`TurnArgument`](super::TurnArgument) → [`TurnResult`](super::TurnResult), when the turn has ended.
    pub const TURN_WAIT: &str = "turn.wait";
    /// [`TurnArgument`](super::TurnArgument) → `null`; cancels it.
    pub const TURN_STOP: &str = "turn.stop";
    /// [`Named`](super::Named): cancels the session's running turn and those that wait. → number of turns.
    pub const SESSIONS_STOP: &str = "sessions.stop";
    /// [`Named`](super::Named): deletes a session with those of agents that were spawned in it, for good. →
    /// [`DeletedSession`](super::DeletedSession).
    pub const SESSIONS_DELETE: &str = "sessions.delete";
    /// [`SpawnedQuery`](super::SpawnedQuery) → list of [`SpawnedStatus`](super::SpawnedStatus), by session and handle.
    pub const SPAWNED_LIST: &str = "spawned.list";
    /// [`SpawnedArgument`](super::SpawnedArgument): ends an agent that works beside a turn. → `null`, when it has ended.
    pub const SPAWNED_STOP: &str = "spawned.stop";
    /// [`SpawnedTell`](super::SpawnedTell) → `null`, when the agent has read it.
    pub const SPAWNED_TELL: &str = "spawned.tell";
    /// [`TraceArgument`](super::TraceArgument) → list of [`TurnTrace`](super::TurnTrace), oldest first.
    pub const TRACE_SHOW: &str = "trace.show";
    /// [`ReplayArgument`](super::ReplayArgument): runs recorded turns again. → [`ReplayReport`](super::ReplayReport).
    pub const REPLAY_RUN: &str = "replay.run";
    /// [`UsageQuery`](super::UsageQuery) → list of [`UsageRow`](super::UsageRow).
    pub const USAGE_SHOW: &str = "usage.show";
    /// How long turns, models and tools took. → list of [`Latency`](super::Latency).
    pub const LATENCIES_SHOW: &str = "latencies.show";
    /// [`Named`](super::Named): a turn, session, run, tool call, extension, limit or message of the bus. →
    /// [`Explanation`](super::Explanation).
    pub const WHY: &str = "why";
    /// [`ItemArgument`](super::ItemArgument) → [`ItemText`](super::ItemText): what a preview shows the beginning of.
    pub const ITEMS_SHOW: &str = "items.show";
    /// What is done at set times, by id. → list of [`ScheduleStatus`](super::ScheduleStatus).
    pub const SCHEDULES_LIST: &str = "schedules.list";
    /// [`Named`](super::Named): a schedule with its last times. → [`ScheduleDetail`](super::ScheduleDetail).
    pub const SCHEDULES_SHOW: &str = "schedules.show";
    /// [`ScheduleNew`](super::ScheduleNew): adds a schedule. → [`ScheduleStatus`](super::ScheduleStatus).
    pub const SCHEDULES_ADD: &str = "schedules.add";
    /// [`Named`](super::Named): removes one that somebody added. → `null`.
    pub const SCHEDULES_REMOVE: &str = "schedules.remove";
    /// [`Named`](super::Named): does it now, beside its times. → [`ScheduleRun`](super::ScheduleRun).
    pub const SCHEDULES_RUN: &str = "schedules.run";
    /// [`SchedulePause`](super::SchedulePause): has it do nothing, or go on. → [`ScheduleStatus`](super::ScheduleStatus).
    pub const SCHEDULES_PAUSE: &str = "schedules.pause";
    /// → list of [`DeadMessage`](super::DeadMessage).
    pub const BUS_DEAD: &str = "bus.dead";
    /// [`Numbered`](super::Numbered): delivers a dead message again. → `null`.
    pub const BUS_RETRY: &str = "bus.retry";
    /// [`Numbered`](super::Numbered): forgets a dead message. → `null`.
    pub const BUS_DROP: &str = "bus.drop";
    /// [`EventsSubscribe`](super::EventsSubscribe) → [`Event`](crate::Event)s.
    pub const EVENTS_SUBSCRIBE: &str = "events.subscribe";
    /// → list of [`ConfigValue`](super::ConfigValue).
    pub const CONFIG_SHOW: &str = "config.show";
    /// The methods that stream: many answers, until an end or for ever.
    pub const STREAMING: &[&str] = &[EVENTS_SUBSCRIBE];
    /// Who asks. → [`Whoami`](super::Whoami).
    pub const WHOAMI: &str = "whoami";
    /// → list of [`TokenStatus`](super::TokenStatus).
    pub const TOKENS_LIST: &str = "tokens.list";
    /// [`TokenNew`](super::TokenNew) → [`TokenMade`](super::TokenMade).
    pub const TOKENS_NEW: &str = "tokens.new";
    /// [`TokenNew`](super::TokenNew) → [`TokenPromised`](super::TokenPromised).
    pub const TOKENS_PROMISE: &str = "tokens.promise";
    /// [`Named`](super::Named): the code of a token that was promised. → [`TokenMade`](super::TokenMade).
    pub const TOKENS_REDEEM: &str = "tokens.redeem";
    /// [`Named`](super::Named): nobody reaches anything with it from now on. → `null`.
    pub const TOKENS_REVOKE: &str = "tokens.revoke";
    /// Its bearer gives a named token up: as if it was revoked. → `null`.
    pub const TOKENS_LEAVE: &str = "tokens.leave";
    /// Those who wait first. → list of [`PersonStatus`](super::PersonStatus).
    pub const PEOPLE_LIST: &str = "people.list";
    /// [`PersonAnswer`](super::PersonAnswer): they are let in or kept out. → [`PersonStatus`](super::PersonStatus).
    pub const PEOPLE_ANSWER: &str = "people.answer";
    /// [`Named`](super::Named): what was said of them is forgotten, and what waits for them ends. → [`PersonStatus`](super::PersonStatus),
    /// as it was.
    pub const PEOPLE_REVOKE: &str = "people.revoke";
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The client's number for it; replies bear it.
    pub id: u64,
    pub method: String,
    #[serde(default)]
    pub params: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    pub id: u64,
    #[serde(flatten)]
    pub body: ReplyBody,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyBody {
    Result(Value),
    Error(Fault),
    Event(Box<Event>),
}

/// The first request of a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The content of the home's token file.
    pub token: String,
    /// [`CONTROL_VERSION`] of the client.
    #[serde(default)]
    pub version: u32,
}

/// Answer to [`Hello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Welcome {
    /// [`CONTROL_VERSION`] of the daemon.
    pub version: u32,
    /// Who answers: `kernel`, or `supervisor` while there is no kernel.
    pub from: String,
}

/// Parameters of [`method::RESTART`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Restart {
    /// For the log and the sessions.
    #[serde(default)]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Named {
    pub id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathArgument {
    /// An absolute path.
    pub path: String,
}

/// What a check of a folder found.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckReport {
    /// Whether there is no error, and it would come to work or wait for what the operator says.
    pub ok: bool,
    /// Errors and warnings of its manifest, with their places.
    pub diagnostics: Value,
    /// All that keeps it from working, and what it waits for, for people.
    pub rendered: String,
    /// The state in which the daemon would leave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ExtensionState>,
    /// Why, where it would not work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether its manifest makes it an agent.
    #[serde(default)]
    pub agent: bool,
}
