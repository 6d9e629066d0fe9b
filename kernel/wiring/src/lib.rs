//! From what the extensions are to a [`Snapshot`]: one pure function, for boot and for every change after it.
//!
//! It decides who is offered what, and refuses what cannot be wired, naming the extension at fault. It starts
//! nothing and asks nothing: extensions were asked before.

mod agents;
mod beginning;
pub mod bounds;
mod models;
mod names;
mod offer;
mod orchestrator;
pub mod personas;
mod portable;
mod rests;
mod scheduled;
mod schemas;
pub mod skills;
mod snapshot;

pub mod adapters;
pub mod contexts;
pub mod hooks;
pub mod live;
pub mod tokens;

pub use agents::{core_tools, definition};
pub use beginning::begin;
pub use models::models;
pub use names::kept_id;
pub use offer::{Allowed, Clash, Terms, offer};
pub use orchestrator::ID as ORCHESTRATOR;
pub use scheduled::Scheduled;
pub use schemas::Schemas;
pub use snapshot::{AgentEntry, Handoff, Snapshot, WiredChannel};

/// The extension that speaks with MCP servers, for those that agents' manifests name as well.
pub const MCP: &str = "mcp";

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use drupe_agent::{Registered, one_line, request_input};
use drupe_config::{AgentApprovals, Config, Manifest, Right, ToolSelector, UnfitSchedule};
use drupe_extension_api::{
    AgentId, ExtensionId, ToolName,
    wire::{Capability, Description},
};
use drupe_host::Instance;
use drupe_models::Models;
use drupe_prompts::{Day, Prompt};

use crate::{adapters::ExtensionTool, contexts::Contexts, hooks::HookSet, live::Live, tokens::Tokens};

/// The most bytes of a remark for the operator. It is one line, since each is an item of a list, and names what others wrote.
pub const NOTICE: usize = 1024;

/// One extension that is ready to be wired.
#[derive(Clone)]
pub struct Part {
    pub manifest: Arc<Manifest>,
    /// What it says of itself; empty where it has no code.
    pub description: Description,
    pub instance: Option<Arc<Instance>>,
    /// Its rendered instructions and default context, for an agent.
    pub prompt: Option<Prompt>,
}

/// What outlives each wiring.
#[derive(Default)]
pub struct Lasting {
    /// Proofs of running calls.
    pub tokens: Tokens,
    /// The instances that work now: where a call that a crash cut off finds the one that came after.
    pub live: Live,
    /// What was compiled.
    pub schemas: Schemas,
}

/// What wiring needs beside the parts.
pub struct Context<'a> {
    pub config: &'a Config,
    pub models: &'a Models,
    pub lasting: &'a Arc<Lasting>,
    pub orchestrator: &'a Prompt,
    /// The root of the file tools.
    pub workspace: &'a PathBuf,
    /// The day that stands in prompts.
    pub day: Day,
    /// Those that are not among the parts, and come back.
    pub away: &'a [Away],
}

/// An extension that broke while it worked, and comes back by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    pub extension: ExtensionId,
    /// The tools that whoever sees its shared tools had of it.
    pub tools: Vec<ToolName>,
    /// What became of it, as the end of a sentence about it.
    pub reason: String,
}

impl Away {
    pub fn told(&self) -> String {
        format!("`{}` {}", self.extension, self.reason)
    }
}

/// An extension that cannot be wired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireFault {
    /// Which; none if the orchestrator itself cannot be made.
    pub extension: Option<ExtensionId>,
    pub reason: String,
}

impl Part {
    pub fn id(&self) -> &ExtensionId {
        &self.manifest.id
    }

    /// Whether both are the same instance.
    pub fn is(&self, other: &Self) -> bool {
        self.instance.as_ref().zip(other.instance.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b))
    }

    fn fault(&self, reason: String) -> WireFault {
        WireFault { extension: Some(self.id().clone()), reason }
    }

    /// The tools that its `uses_tools` names, and those of its own servers, which go before others of their names.
    pub fn listed(&self, tools: &Tools) -> Result<Vec<Arc<Registered>>, WireFault> {
        let mut listed = Vec::new();
        for selector in self.manifest.agent.iter().flat_map(|a| &a.uses_tools) {
            listed.extend(select(selector, tools).map_err(|reason| self.fault(reason))?);
        }
        if self.manifest.mcp_servers.is_empty() {
            return Ok(listed);
        }
        let served = tools.get(MCP).map(Vec::as_slice).unwrap_or_default();
        listed.retain(|tool| {
            let server = tool.spec().name.as_str().split_once("__").map(|(server, _)| server);
            let replaced = server.is_some_and(|server| self.manifest.mcp_servers.contains_key(server));
            !(replaced && tool.tool().origin() == MCP)
        });
        let own = AgentId::from(self.id().clone());
        listed.extend(served.iter().filter(|tool| of_agent(tool) == Some(&own)).cloned());
        Ok(listed)
    }

    pub fn can(&self, capability: Capability) -> bool {
        self.description.capabilities.iter().any(|c| c == capability.name())
    }

    /// Whether it is an agent, by code or by manifest.
    pub fn is_agent(&self) -> bool {
        self.can(Capability::Agent) || (self.instance.is_none() && self.manifest.agent.is_some())
    }
}

/// A topic that an agent's manifest follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    pub agent: AgentId,
    pub topic: String,
    /// What it shall do with each message.
    pub task: String,
}

pub type Tools = BTreeMap<ExtensionId, Vec<Arc<Registered>>>;

/// Wires the parts together. Of two that collide the later one is at fault: the caller gives those that were there first
/// before the others. On a fault nothing is wired: leave the extension out and try again.
pub fn wire(parts: &[Part], context: &Context<'_>) -> Result<Snapshot, WireFault> {
    let mut tools = Tools::new();
    let agents: Vec<AgentId> = parts.iter().filter(|p| p.is_agent()).map(|p| p.id().clone().into()).collect();
    for part in parts {
        let own = own_tools(part, &agents, context)?;
        if !own.is_empty() {
            tools.insert(part.id().clone(), own);
        }
    }
    let mut resolved = BTreeMap::new();
    for part in parts.iter().filter(|p| p.instance.is_some()) {
        let mut listed = part.listed(&tools)?;
        if part.manifest.rights.contains(&Right::SecureInput) {
            listed.extend([request_input::secret(), request_input::answers()]);
        }
        let allowed = Allowed { tools: listed, ..Allowed::default() };
        let offered = offer(&allowed, Terms::new(None, context.config));
        resolved.insert(part.id().clone(), offered.map_err(|clash| clash.blame(parts, Some(part.id())))?);
    }
    let mut notices = Vec::new();
    let agents = agents::build(parts, &tools, context, &mut notices)?;
    let (orchestrator, allowed) = orchestrator::build(parts, &tools, &agents, context, &mut notices)?;
    let channels = parts
        .iter()
        .filter(|p| p.can(Capability::Channel))
        .filter_map(|p| {
            let (instance, said) = (Arc::clone(p.instance.as_ref()?), &p.description);
            let (takes_files, reads_files) = (said.carries_files, said.reads_files);
            let sends_at_once = said.sends_at_once;
            Some((p.id().clone(), WiredChannel { instance, takes_files, reads_files, sends_at_once }))
        })
        .collect();
    let hooks = Arc::new(HookSet::of(parts.iter().filter(|p| p.can(Capability::Hook)), context.lasting));
    let contexts = Contexts::of(parts.iter().filter(|p| p.can(Capability::Context)), context.lasting);
    let followed = parts.iter().filter(|p| p.is_agent()).flat_map(|part| {
        part.manifest.subscribe.iter().map(|follows| Followed {
            agent: part.id().clone().into(),
            topic: follows.topic.clone(),
            task: follows.task.clone(),
        })
    });
    let followed = followed.collect();
    let mut schedules = Vec::new();
    for part in parts {
        let own = scheduled::of(part, &context.config.schedules.timezone);
        let own = own.map_err(|UnfitSchedule(reason)| part.fault(reason))?;
        let agent = agents.get(&AgentId::from(part.id().clone()));
        if let Some(why) = own.iter().find_map(|schedule| scheduled::unfit_condition(schedule, agent)) {
            return Err(part.fault(why));
        }
        schedules.extend(own);
    }
    let approvals = parts.iter().filter_map(|part| {
        let own = part.manifest.agent.as_ref().map(|agent| &agent.approvals)?;
        (*own != AgentApprovals::default()).then(|| (part.id().clone().into(), own.clone()))
    });
    let mut notices: Vec<String> = notices.iter().map(|notice| one_line(notice, NOTICE)).collect();
    notices.sort();
    notices.dedup();
    Ok(Snapshot {
        orchestrator,
        skills: context.orchestrator.skills.clone(),
        allowed,
        agents,
        tools,
        channels,
        resolved,
        hooks,
        contexts,
        followed,
        schedules,
        notices,
        day: context.day,
        away: context.away.to_vec(),
        approvals: Arc::new(approvals.collect()),
    })
}

fn own_tools(
    part: &Part,
    agents: &[AgentId],
    context: &Context<'_>,
) -> Result<Vec<Arc<Registered>>, WireFault> {
    // Before a schema of any size is compiled. What an instance announces later was not looked at before.
    if let Some(why) = bounds::exceeded(part, &context.lasting.schemas) {
        return Err(part.fault(why));
    }
    let Some(instance) = part.instance.as_ref().filter(|_| part.can(Capability::Tool)) else {
        return Ok(Vec::new());
    };
    let mut names = BTreeSet::new();
    let mut own = Vec::new();
    for spec in &part.description.tools {
        if !names.insert(spec.name.clone()) {
            return Err(part.fault(format!("it provides the tool `{}` twice", spec.name)));
        }
        if let Some(why) = names::kept_from_tool(&spec.name, part.id(), agents) {
            return Err(part.fault(why));
        }
        let tool = ExtensionTool {
            owner: part.id().clone(),
            spec: Arc::new(spec.clone()),
            schema: context
                .lasting
                .schemas
                .compiled(&spec.input_schema)
                .map_err(|why| part.fault(why.to_string()))?,
            instance: Arc::clone(instance),
            lasting: Arc::clone(context.lasting),
        };
        own.push(Registered::new(Arc::new(tool)).map_err(|error| part.fault(error.to_string()))?);
    }
    own.sort_by(|a, b| a.spec().name.cmp(&b.spec().name));
    Ok(own)
}

/// The agent whose server a tool is of: nobody else is offered it, whatever they list.
fn of_agent(tool: &Registered) -> Option<&AgentId> {
    tool.spec().annotations.only_for.as_ref()
}

/// The tools that an entry of an allowlist names, without those that are of one agent's servers.
fn select(selector: &ToolSelector, tools: &Tools) -> Result<Vec<Arc<Registered>>, String> {
    let Some(all) = tools.get(&selector.extension) else {
        return Err(format!(
            "`uses_tools` lists `{}`, but no extension of that id provides tools",
            selector.extension
        ));
    };
    let all: Vec<&Arc<Registered>> = all.iter().filter(|tool| of_agent(tool).is_none()).collect();
    let Some(name) = &selector.tool else { return Ok(all.into_iter().cloned().collect()) };
    match all.iter().find(|t| t.spec().name == *name) {
        Some(tool) => Ok(vec![Arc::clone(tool)]),
        None => {
            let have: Vec<&str> = all.iter().map(|t| t.spec().name.as_str()).collect();
            Err(format!(
                "`uses_tools` lists `{selector}`, but `{}` provides {}",
                selector.extension,
                have.join(", ")
            ))
        }
    }
}

/// Why an extension cannot be wired with anybody, as far as what it says of itself tells.
pub fn unfit(part: &Part, schemas: &Schemas) -> Option<String> {
    agents::disagreement(part).or_else(|| bounds::exceeded(part, schemas))
}

/// The members of a circle, if there is one, in its order.
pub fn cycle<T: Ord + Clone>(uses: &BTreeMap<T, Vec<T>>) -> Option<Vec<T>> {
    fn visit<T: Ord + Clone>(
        at: &T,
        uses: &BTreeMap<T, Vec<T>>,
        path: &mut Vec<T>,
        done: &mut BTreeSet<T>,
    ) -> Option<Vec<T>> {
        if let Some(start) = path.iter().position(|p| p == at) {
            return Some(path[start..].to_vec());
        }
        if done.contains(at) {
            return None;
        }
        path.push(at.clone());
        let found = uses.get(at).into_iter().flatten().find_map(|next| visit(next, uses, path, done));
        path.pop();
        done.insert(at.clone());
        found
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|at| visit(at, uses, &mut Vec::new(), &mut done))
}

#[cfg(test)]
mod tests;
