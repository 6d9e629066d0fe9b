//! From `initialize` on: the author's state with all that it said of itself.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use super::{Abilities, Exported, Host, Tool, guard, shared::Shared};
use crate::{
    AgentDescriptor, Fault, ToolName, ToolSpec,
    wire::{Description, HookPoint, Initialize, PAYLOAD_VERSION, Schedule},
};

/// An extension that is initialized.
pub(crate) struct Active<E> {
    pub(crate) host: Host,
    pub(crate) extension: Arc<E>,
    tools: RwLock<Arc<Toolbox<E>>>,
    /// Those before the last announcement, should the kernel refuse it.
    before: RwLock<Option<Arc<Toolbox<E>>>>,
    agent: Option<AgentDescriptor>,
    schedules: Vec<Schedule>,
    hooks: Vec<HookPoint>,
}

/// Tools that can be called though they are not described any more: those of a few announcements.
const KEPT: usize = 2_048;

/// The tools as they were described last.
pub(crate) struct Toolbox<E> {
    specs: Vec<ToolSpec>,
    by_name: HashMap<ToolName, Arc<Tool<E>>>,
}

impl<E> Toolbox<E> {
    fn of(tools: Vec<Tool<E>>) -> Result<Self, Fault> {
        let mut specs = Vec::with_capacity(tools.len());
        let mut by_name = HashMap::with_capacity(tools.len());
        for tool in tools {
            let spec = tool.spec()?;
            if by_name.insert(spec.name.clone(), Arc::new(tool)).is_some() {
                return Err(Fault::invalid(format!("tool `{}` is there twice", spec.name)));
            }
            specs.push(spec);
        }
        Ok(Self { specs, by_name })
    }

    /// The same, with those of before beside them. Turns that have begun go on with what they were offered, and the kernel
    /// may refuse the new ones.
    fn after(mut self, before: &Self) -> Self {
        if self.by_name.len() + before.by_name.len() <= KEPT {
            for (name, tool) in &before.by_name {
                self.by_name.entry(name.clone()).or_insert_with(|| Arc::clone(tool));
            }
        }
        self
    }

    pub(crate) fn get(&self, name: &ToolName) -> Result<&Tool<E>, Fault> {
        let tool = self.by_name.get(name).map(Arc::as_ref);
        tool.ok_or_else(|| Fault::not_found(format!("there is no tool `{name}` here")))
    }
}

impl<E: Exported> Active<E> {
    /// Makes the state, then asks it what it is. A fault in that is a fault of `initialize`: an extension
    /// that cannot say what it has cannot be wired.
    pub(crate) async fn make(
        shared: Arc<Shared>,
        abilities: &Abilities<E>,
        given: Initialize,
    ) -> Result<Self, Fault> {
        let host = Host::new(shared, given);
        let extension = E::initialize(host.clone()).await?;
        let tools = Toolbox::of(abilities.tools.map(|tools| tools(&extension)).unwrap_or_default())?;
        let agent = abilities.agent.as_ref().map(|agent| (agent.descriptor)(&extension));
        if let Some(agent) = agent.as_ref().filter(|agent| agent.id.as_str() != host.id().as_str()) {
            let message = format!("the agent calls itself `{}`, its extension is `{}`", agent.id, host.id());
            return Err(Fault::invalid(message));
        }
        let schedules = abilities.scheduler.as_ref().map(|s| (s.schedules)(&extension)).unwrap_or_default();
        let hooks = abilities.hook.as_ref().map(|hook| (hook.points)(&extension)).unwrap_or_default();
        let tools = RwLock::new(Arc::new(tools));
        let before = RwLock::new(None);
        Ok(Self { host, extension: Arc::new(extension), tools, before, agent, schedules, hooks })
    }

    pub(crate) fn tools(&self) -> Arc<Toolbox<E>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The kernel refused the last announcement: what is described is what was before.
    pub(crate) fn restore_tools(&self) {
        if let Some(before) = self.before.write().unwrap_or_else(PoisonError::into_inner).take() {
            *self.tools.write().unwrap_or_else(PoisonError::into_inner) = before;
        }
    }

    /// Asks for the tools again. Where that fails, those of before stay, and why is for whoever announced them.
    pub(crate) fn refresh_tools(&self, abilities: &Abilities<E>) -> Result<(), Fault> {
        let Some(tools) = abilities.tools else { return Ok(()) };
        let outcome = guard::catch(|| Toolbox::of(tools(&self.extension)));
        match outcome.unwrap_or_else(|panic| Err(panic.fault("the list of tools"))) {
            Ok(new) => {
                let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
                let after = Arc::new(new.after(&tools));
                let before = std::mem::replace(&mut *tools, after);
                *self.before.write().unwrap_or_else(PoisonError::into_inner) = Some(before);
                Ok(())
            }
            Err(fault) => {
                self.host.error(format!("the tools stay as they were: {fault}"));
                Err(fault)
            }
        }
    }
}

/// What the extension says of itself; without `active`, only what the code tells.
pub(crate) fn describe<E: Exported>(abilities: &Abilities<E>, active: Option<&Active<E>>) -> Description {
    let code = Description {
        payload_version: PAYLOAD_VERSION,
        api_release: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: abilities.names(),
        carries_files: abilities.channel.as_ref().is_some_and(|channel| channel.carries_files),
        reads_files: abilities.channel.as_ref().is_some_and(|channel| channel.reads_files),
        sends_at_once: abilities.channel.as_ref().is_some_and(|channel| channel.sends_at_once),
        ..Description::default()
    };
    let Some(active) = active else { return code };
    Description {
        tools: active.tools().specs.clone(),
        agent: active.agent.clone(),
        schedules: active.schedules.clone(),
        hooks: active.hooks.clone(),
        ..code
    }
}
