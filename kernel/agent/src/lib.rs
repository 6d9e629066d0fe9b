//! The one loop in which every agent of drupe runs.
//!
//! An agent is data ([`Definition`]); a run of it assembles a request, streams a [`Model`], validates and
//! dispatches the tool calls that it asked for, and goes on until there is an answer or a limit. Orchestrator,
//! declarative agents, native agents and their children all run here, and to each other they are tools.
//!
//! This crate does no I/O: what it needs from outside are the traits [`Model`], [`Tool`], [`Journal`], [`Policy`],
//! [`Hooks`], [`Topics`], [`Observer`] and [`Clock`]. It deliberately does not know where a tool comes from, what a
//! session is for, or that there is a kernel.
//!
//! The records of a run ([`Entry`]) are committed before what they announce happens, so that a run that was cut
//! off at any point is continued by running it again with the same ids: see [`journal`].
//!
//! # Example
//!
//! An agent with one tool, on a model that answers from a list:
//!
//! ```
//! use std::sync::Arc;
//!
//! use drupe_agent::{
//!     Agent, Definition, LoopAgent, MemoryJournal, Registered, RegistryBuilder, ScriptedModel, Task, Tool,
//!     ToolContext, ToolFuture, ToolOutput, TurnScope, run_turn,
//! };
//! use drupe_extension_api::ToolSpec;
//! use serde_json::{json, value::RawValue};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Dice(Arc<ToolSpec>);
//!
//! impl Tool for Dice {
//!     fn spec(&self) -> &Arc<ToolSpec> {
//!         &self.0
//!     }
//!
//!     fn origin(&self) -> &str {
//!         "example"
//!     }
//!
//!     fn call(&self, _: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
//!         Box::pin(async { Ok(ToolOutput::text("4")) })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec: ToolSpec = serde_json::from_value(json!({
//!     "name": "dice",
//!     "description": "Rolls a die.",
//!     "input_schema": {"type": "object", "additionalProperties": false},
//! }))?;
//! let mut tools = RegistryBuilder::default();
//! tools.add(Registered::new(Arc::new(Dice(Arc::new(spec))))?)?;
//!
//! let definition: Definition = serde_json::from_value(json!({
//!     "id": "player",
//!     "instructions": "Play fair.",
//!     "limits": {"max_turns": 4},
//! }))?;
//! let limits = definition.limits.clone();
//! let model = ScriptedModel::new([ScriptedModel::call(&[("dice", "{}")]), ScriptedModel::say("I rolled a 4.")]);
//! let agent: Arc<dyn Agent> =
//!     Arc::new(LoopAgent::new(definition, Arc::new(tools.build()), Arc::new(model), true));
//!
//! let journal = Arc::new(MemoryJournal::default());
//! let scope =
//!     TurnScope::new("a-session".parse()?, "a-turn".parse()?, "Your move.".into(), journal.clone());
//! let outcome =
//!     run_turn(Arc::new(scope), &agent, Task::new("Your move."), &limits, CancellationToken::new()).await;
//!
//! assert_eq!(outcome.response.content, "I rolled a 4.");
//! assert_eq!((outcome.spend.turns, outcome.spend.tool_calls), (2, 1));
//! // All but the last records are committed; those are the caller's to commit with its own.
//! assert!(!journal.batches().is_empty() && !outcome.last.entries.is_empty());
//! # Ok(())
//! # }
//! ```

// Others build on this crate, and read it without its sources.
#![warn(missing_docs)]

pub mod agent;
pub mod agent_tool;
mod asker;
mod behind;
pub mod budget;
pub mod clock;
mod condition;
pub mod conversation;
mod core_tools;
mod dispatch;
mod embedding;
pub mod hooks;
pub mod ids;
pub mod images;
mod input_form;
pub mod journal;
mod ledger;
pub mod long_work;
pub mod model;
mod parameters;
pub mod policy;
pub mod prompt;
mod ratios;
mod recipe;
pub mod registry;
mod results;
pub mod run;
mod scope;
mod scripted;
mod share;
mod spawned;
mod steering;
pub mod stopwatch;
mod taint;
mod told;
pub mod tool;
pub mod topics;
pub mod turn_loop;

pub use agent::{Agent, LoopAgent, Task};
pub use agent_tool::AgentTool;
pub use asker::Asker;
pub use behind::BehindAnswers;
pub use budget::{Budget, Exceeded, Limit};
pub use clock::{Clock, ManualClock, SystemClock};
pub use condition::Conditional;
pub use conversation::{Conversation, HandoffLimits, Happened, Reclaimed, Tenure};
pub use core_tools::{
    client_tool, hand_over, load_skill, read_output, refuse, request_input, search_tools, session_search,
    spawn_agent, update_plan,
};
pub use dispatch::call_tool;
pub use drupe_extension_api::{Definition, Usage};
pub use drupe_json_schema::{Schema, SchemaFault};
pub use drupe_limits::grouped;
pub use embedding::{EmbedError, EmbeddingModel, Embeddings, embed};
pub use hooks::{HookAnswer, Hooks, NoHooks};
pub use input_form::{FilledForm, InputForm};
pub use journal::{
    Attempted, Batch, BrokenAnswer, Compaction, EarlierTurn, Entry, Journal, JournalFault, JournalFuture,
    MemoryJournal, Reached, RecordedEffect, RecordedInvocation, RecordedStep, RecordedTurn, ShownAnswer,
    told,
};
pub use model::{
    AgentCard, Dispatch, LongPrompts, Model, ModelEvent, ModelFault, ModelProfile, ModelRequest, Price, Room,
    StopReason,
};
pub use policy::{Allowlist, Answer, Decision, Need, Policy, PolicyCall, Question};
pub use ratios::Ratios;
pub use recipe::{KeptRecipe, ModelBounds, Recipe, RecipeChange};
pub use registry::{Registered, Registry, RegistryBuilder, RegistryError};
pub use results::{KEPT_MAX_BYTES, TOOL_RESPONSE_MAX_BYTES};
pub use run::{Behalf, CHANGED, Run, TurnOutcome, TurnRoot, abandon_turn, run_turn};
pub use scope::{DetachedTask, Detaches, Observer, Silent, TurnScope, Used};
pub use scripted::ScriptedModel;
pub use spawned::{SpawnedAgents, SpawnedState, Unread};
pub use steering::{Steered, Steering};
pub use stopwatch::Stopwatch;
pub use taint::Taint;
pub use told::{is_blank, one_line};
pub use tool::{CalledAgent, RunEnd, Tool, ToolContext, ToolError, ToolFuture, ToolOutput};
pub use topics::{Chain, MAX_HOPS, NoTopics, TopicMessage, Topics};

#[cfg(test)]
mod tests;
