//! The traits that an author implements: [`Extension`], and one for each thing that an extension can do.
//!
//! An `async fn` in the implementation is enough for each method that returns a future. A future is dropped
//! when its call is cancelled or its deadline passes; it must not block the thread that polls it.

use std::future::{Future, ready};

use serde_json::Value;

use super::{Call, Host, Shutdown, Tool, Turn};
use crate::{
    AgentDescriptor, AgentInvocationContext, AgentResponse, Fault,
    wire::{
        AgentServers, ChannelStream, ContextText, Delivery, HookCall, HookPoint, HookVerdict,
        OutboundMessage, Schedule, op,
    },
};

/// The life of an extension: `initialize`, `start`, work, `stop`, drop. Each stage happens once.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported but does not implement `Extension`",
    note = "every extension needs `impl Extension for {Self}` with `async fn initialize`"
)]
pub trait Extension: Sized + Send + Sync + 'static {
    /// Makes the extension from its configuration; called once, before anything else, with a deadline of
    /// 30 s. It may read and check what it needs; it must not begin work that others notice.
    fn initialize(host: Host) -> impl Future<Output = Result<Self, Fault>> + Send;

    /// Work may begin; called once, when every extension that this one depends on has started.
    fn start(&self) -> impl Future<Output = Result<(), Fault>> + Send {
        ready(Ok(()))
    }

    /// Work ends; called at most once, after [`Host::shutdown`] has fired. The deadline is 10 s.
    fn stop(&self) -> impl Future<Output = Result<(), Fault>> + Send {
        ready(Ok(()))
    }

    /// Whether it can do its work. Asked every 30 s (`health_interval_ms`), with a deadline of 5 s; after two faults in a row
    /// it is stopped and started again, so say it for what a start would mend.
    fn health(&self) -> impl Future<Output = Result<(), Fault>> + Send {
        ready(Ok(()))
    }

    /// The operator asks something that is this extension's own, such as what it keeps, by the control method
    /// `extensions.ask`. Models cannot, so there is no policy about it. The deadline is 60 s. Without an implementation
    /// each ask is answered with `unsupported`.
    fn asked(&self, ask: String, params: Value) -> impl Future<Output = Result<Value, Fault>> + Send {
        drop(params);
        ready(Err(Fault::unsupported(&ask)))
    }

    /// The MCP servers of agents, all of them, when this works and whenever they change. The kernel tells only the extension
    /// `mcp`.
    fn agent_servers(&self, given: AgentServers) -> impl Future<Output = Result<(), Fault>> + Send {
        drop(given);
        ready(Err(Fault::unsupported(op::AGENT_SERVERS)))
    }
}

/// Has tools: things that a model can call.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a `Tool` but does not implement `ToolProvider`",
    label = "`impl ToolProvider for {Self}` is missing"
)]
pub trait ToolProvider: Extension {
    /// Its tools; called after `initialize` and again after [`Host::tools_changed`]. It must be quick: what a
    /// tool needs to fetch belongs in its call.
    fn tools(&self) -> Vec<Tool<Self>>;
}

/// Carries messages from and to people. What comes in is handed to the kernel with [`Host::submit`], which needs the right
/// `submit`; the guide has a whole one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a `Channel` but does not implement the trait `Channel`",
    label = "`impl Channel for {Self}` is missing"
)]
pub trait Channel: Extension {
    /// Whether [`send`](Self::send) is given [files](crate::wire::OutboundFile). Where it is not, agents and people are told so.
    const CARRIES_FILES: bool = false;
    /// Whether each of these lies in its folder of data as well [until `send` returns](crate::wire::OutboundFile::data_file): for a channel
    /// with a network of its own.
    const READS_FILES: bool = false;

    /// Whether [`send`](Self::send) may be called with texts to several addresses at the same time: so nobody waits for whoever is slow. Those
    /// to one address come one after another in any case.
    const SENDS_AT_ONCE: bool = false;

    /// Begins to listen; returns when it does. Listening itself belongs in a [`Service`] or a spawned task.
    fn start(&self) -> impl Future<Output = Result<(), Fault>> + Send {
        ready(Ok(()))
    }

    /// Delivers one message. The same `delivery` may come again after a fault or a restart: a channel that
    /// can recognise it should show it once.
    fn send(&self, message: OutboundMessage) -> impl Future<Output = Result<Delivery, Fault>> + Send;

    /// Shows a part of an answer while it is made. Without an implementation the kernel learns that this
    /// channel does not stream.
    fn stream(&self, part: ChannelStream) -> impl Future<Output = Result<(), Fault>> + Send {
        let _ = part;
        ready(Err(Fault::unsupported(op::CHANNEL_STREAM)))
    }
}

/// Works in the background.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a `Service` but does not implement the trait `Service`",
    label = "`impl Service for {Self}` is missing"
)]
pub trait Service: Extension {
    /// Runs until `shutdown` fires. Returning earlier, with or without a fault, or panicking makes the kernel
    /// call it again after a pause that grows.
    fn run(&self, shutdown: Shutdown) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// Has tasks with a time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a `Scheduler` but does not implement the trait `Scheduler`",
    label = "`impl Scheduler for {Self}` is missing"
)]
pub trait Scheduler: Extension {
    /// Its schedules; asked once, after `initialize`.
    fn schedules(&self) -> Vec<Schedule>;

    /// Does the task of one schedule; a text in the answer is shown to the user.
    fn execute(&self, name: String) -> impl Future<Output = Result<Option<String>, Fault>> + Send;
}

/// Is an agent.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as an `Agent` but does not implement `AgentProvider`",
    label = "`impl AgentProvider for {Self}` is missing"
)]
pub trait AgentProvider: Extension {
    /// What it is; asked once, after `initialize`. Its id is the extension's.
    fn descriptor(&self) -> AgentDescriptor;

    /// Does a task, given in words, or as JSON text that was validated where the agent has a JSON input.
    /// `context` is all that it learns of the conversation. What it spends through `call` is counted by the
    /// kernel; what it spends elsewhere it reports in the answer.
    fn invoke(
        &self,
        task: String,
        context: AgentInvocationContext,
        call: Call,
    ) -> impl Future<Output = AgentResponse> + Send;
}

/// Adds text to what the orchestrator is given with a message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as `Context` but does not implement `ContextProvider`",
    label = "`impl ContextProvider for {Self}` is missing"
)]
pub trait ContextProvider: Extension {
    /// Text for one turn, or nothing. The kernel keeps within a budget: low priorities are dropped first.
    fn context(&self, turn: Turn) -> impl Future<Output = Result<Option<ContextText>, Fault>> + Send;
}

/// Is asked before and after models, tools and sub-agents run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is exported as a `Hook` but does not implement the trait `Hook`",
    label = "`impl Hook for {Self}` is missing"
)]
pub trait Hook: Extension {
    /// Where it wants to be called; asked once, after `initialize`.
    fn points(&self) -> Vec<HookPoint>;

    /// Decides at one point, within 1 s; a late answer or a fault lets the work go on and is reported.
    fn on(&self, call: HookCall) -> impl Future<Output = Result<HookVerdict, Fault>> + Send;
}
