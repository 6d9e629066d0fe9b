//! What an extension can do, as a table of functions.
//!
//! The traits cannot be made into objects, because their methods return futures of any kind; the table holds
//! one function a method. [`export!`](macro@crate::export) fills it, and thereby demands the traits.

use super::{
    AgentProvider, Call, Channel, ContextProvider, Extension, Hook, Scheduler, Service, Shutdown, Tool,
    ToolProvider, Turn, guard::BoxFuture,
};
use crate::{
    AgentDescriptor, AgentInvocationContext, AgentResponse, Fault,
    wire::{
        Capability, ChannelStream, ContextText, Delivery, HookCall, HookPoint, HookVerdict, OutboundMessage,
        Schedule,
    },
};

/// An extension with the list of what it can do. [`export!`](macro@crate::export) implements it.
pub trait Exported: Extension {
    /// What it can do.
    fn abilities() -> Abilities<Self>;
}

type Answer<'a, T> = BoxFuture<'a, Result<T, Fault>>;
type ToolList<E> = fn(&E) -> Vec<Tool<E>>;
type ServiceRun<E> = for<'a> fn(&'a E, Shutdown) -> Answer<'a, ()>;
type ContextGet<E> = for<'a> fn(&'a E, Turn) -> Answer<'a, Option<ContextText>>;

pub(crate) struct ChannelTable<E> {
    pub(crate) carries_files: bool,
    pub(crate) reads_files: bool,
    pub(crate) sends_at_once: bool,
    pub(crate) start: for<'a> fn(&'a E) -> Answer<'a, ()>,
    pub(crate) send: for<'a> fn(&'a E, OutboundMessage) -> Answer<'a, Delivery>,
    pub(crate) stream: for<'a> fn(&'a E, ChannelStream) -> Answer<'a, ()>,
}

pub(crate) struct SchedulerTable<E> {
    pub(crate) schedules: fn(&E) -> Vec<Schedule>,
    pub(crate) execute: for<'a> fn(&'a E, String) -> Answer<'a, Option<String>>,
}

pub(crate) struct AgentTable<E> {
    pub(crate) descriptor: fn(&E) -> AgentDescriptor,
    pub(crate) invoke:
        for<'a> fn(&'a E, String, AgentInvocationContext, Call) -> BoxFuture<'a, AgentResponse>,
}

pub(crate) struct HookTable<E> {
    pub(crate) points: fn(&E) -> Vec<HookPoint>,
    pub(crate) on: for<'a> fn(&'a E, HookCall) -> Answer<'a, HookVerdict>,
}

/// What an extension of type `E` can do.
pub struct Abilities<E> {
    pub(crate) tools: Option<ToolList<E>>,
    pub(crate) channel: Option<ChannelTable<E>>,
    pub(crate) service: Option<ServiceRun<E>>,
    pub(crate) scheduler: Option<SchedulerTable<E>>,
    pub(crate) agent: Option<AgentTable<E>>,
    pub(crate) context: Option<ContextGet<E>>,
    pub(crate) hook: Option<HookTable<E>>,
}

impl<E: Extension> Abilities<E> {
    /// Nothing.
    pub fn none() -> Self {
        Self {
            tools: None,
            channel: None,
            service: None,
            scheduler: None,
            agent: None,
            context: None,
            hook: None,
        }
    }

    /// Has tools.
    pub fn tool(mut self) -> Self
    where
        E: ToolProvider,
    {
        self.tools = Some(E::tools);
        self
    }

    /// Carries messages.
    pub fn channel(mut self) -> Self
    where
        E: Channel,
    {
        self.channel = Some(ChannelTable {
            carries_files: E::CARRIES_FILES,
            reads_files: E::READS_FILES,
            sends_at_once: E::SENDS_AT_ONCE,
            start: |e| Box::pin(Channel::start(e)),
            send: |e, message| Box::pin(e.send(message)),
            stream: |e, part| Box::pin(e.stream(part)),
        });
        self
    }

    /// Works in the background.
    pub fn service(mut self) -> Self
    where
        E: Service,
    {
        self.service = Some(|e, shutdown| Box::pin(e.run(shutdown)));
        self
    }

    /// Has tasks with a time.
    pub fn scheduler(mut self) -> Self
    where
        E: Scheduler,
    {
        self.scheduler =
            Some(SchedulerTable { schedules: E::schedules, execute: |e, name| Box::pin(e.execute(name)) });
        self
    }

    /// Is an agent.
    pub fn agent(mut self) -> Self
    where
        E: AgentProvider,
    {
        self.agent = Some(AgentTable {
            descriptor: E::descriptor,
            invoke: |e, task, context, call| Box::pin(e.invoke(task, context, call)),
        });
        self
    }

    /// Adds text to what the orchestrator is given with a message.
    pub fn context(mut self) -> Self
    where
        E: ContextProvider,
    {
        self.context = Some(|e, turn| Box::pin(e.context(turn)));
        self
    }

    /// Is asked before and after things run.
    pub fn hook(mut self) -> Self
    where
        E: Hook,
    {
        self.hook = Some(HookTable { points: E::points, on: |e, call| Box::pin(e.on(call)) });
        self
    }

    /// The names, in a fixed order.
    pub(crate) fn names(&self) -> Vec<String> {
        let has = [
            (Capability::Tool, self.tools.is_some()),
            (Capability::Channel, self.channel.is_some()),
            (Capability::Service, self.service.is_some()),
            (Capability::Scheduler, self.scheduler.is_some()),
            (Capability::Agent, self.agent.is_some()),
            (Capability::Context, self.context.is_some()),
            (Capability::Hook, self.hook.is_some()),
        ];
        has.into_iter().filter(|(_, has)| *has).map(|(capability, _)| capability.name().to_owned()).collect()
    }
}

impl<E> std::fmt::Debug for Abilities<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Abilities").finish_non_exhaustive()
    }
}
