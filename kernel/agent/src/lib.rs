//! The one loop in which every agent of drupe runs.
//!
//! An agent is data ([`Definition`]); a run of it assembles a request, streams a [`Model`], validates and
//! dispatches the tool calls that it asked for, and goes on until there is an answer or a limit. Orchestrator,
//! declarative agents, native agents and their children all run here, and to each other they are tools.
//!
//! This crate does no I/O: what it needs from outside are the traits [`Model`], [`Tool`], [`Journal`],
//! [`Policy`], [`Observer`] and [`Clock`]. It deliberately does not know where a tool comes from, what a
//! session is for, or that there is a kernel.
//!
//! The records of a run ([`Entry`]) are committed before what they announce happens, so that a run that was cut
//! off at any point is continued by running it again with the same ids: see [`journal`].

pub mod agent;
pub mod agent_tool;
pub mod budget;
pub mod clock;
mod core_tools;
mod dispatch;
pub mod ids;
pub mod journal;
mod ledger;
pub mod model;
pub mod policy;
pub mod prompt;
pub mod registry;
mod results;
pub mod run;
mod scripted;
mod share;
pub mod tool;
pub mod turn_loop;

pub use agent::{Agent, LoopAgent, Task};
pub use agent_tool::AgentTool;
pub use budget::{Budget, Exceeded, Limit};
pub use clock::{Clock, ManualClock, SystemClock};
pub use core_tools::{read_output, refuse};
pub use dispatch::call_tool;
pub use drupe_extension_api::{Definition, Usage};
pub use journal::{
    Batch, Entry, Journal, JournalFault, MemoryJournal, RecordedEffect, RecordedInvocation, RecordedStep,
};
pub use model::{AgentCard, Model, ModelEvent, ModelFault, ModelProfile, ModelRequest, Price, StopReason};
pub use policy::{Allowlist, Decision, Policy, PolicyCall};
pub use registry::{Registered, Registry, RegistryBuilder, RegistryError};
pub use results::{KEPT_MAX_BYTES, TOOL_RESPONSE_MAX_BYTES};
pub use run::{Observer, Run, Silent, TurnOutcome, TurnScope, run_turn};
pub use scripted::ScriptedModel;
pub use tool::{Tool, ToolContext, ToolError, ToolOutput};

#[cfg(test)]
mod tests;
