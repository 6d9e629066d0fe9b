//! The registry snapshot: who exists, and who may use what. Immutable; an invocation keeps the one it began with.

use std::{collections::BTreeMap, sync::Arc};

use drupe_agent::{Agent, HandoffLimits, LoopAgent, Registered, Registry};
use drupe_config::AgentApprovals;
use drupe_extension_api::{
    AgentId, DefinitionLimits, ExtensionId, Fault, IntegrationMode,
    control::{AgentDetail, AgentStatus, Exclusion, SkillStatus, ToolSize},
};
use drupe_host::Instance;
use drupe_prompts::skills::{Skill, Skills};

use crate::{
    Allowed, Away, Day, Followed, ORCHESTRATOR, Scheduled, bounds, contexts::Contexts, hooks::HookSet,
};

/// An extension that carries messages.
#[derive(Clone)]
pub struct WiredChannel {
    pub instance: Arc<Instance>,
    pub takes_files: bool,
    /// Whether these are to lie in its folder of data.
    pub reads_files: bool,
    /// Whether it sends to several addresses at the same time.
    pub sends_at_once: bool,
}

/// Everything that is wired together.
#[derive(Clone)]
pub struct Snapshot {
    /// The agent that talks with the user.
    pub orchestrator: Arc<LoopAgent>,
    /// What the orchestrator may use, whatever model answers.
    pub allowed: Allowed,
    /// The agents, by id.
    pub agents: BTreeMap<AgentId, AgentEntry>,
    pub tools: BTreeMap<ExtensionId, Vec<Arc<Registered>>>,
    /// The extensions that carry messages.
    pub channels: BTreeMap<ExtensionId, WiredChannel>,
    /// For native extensions: the tools that their `uses_tools` resolved to.
    pub resolved: BTreeMap<ExtensionId, Arc<Registry>>,
    pub hooks: Arc<HookSet>,
    /// The extensions that add texts to the orchestrator's turns.
    pub contexts: Contexts,
    /// The topics that agents follow.
    pub followed: Vec<Followed>,
    /// What is done at set times.
    pub schedules: Vec<Scheduled>,
    /// Remarks for the operator, such as a model that stands in for another.
    pub notices: Vec<String>,
    /// The day that stands in the prompts.
    pub day: Day,
    /// Extensions that come back by themselves.
    pub away: Vec<Away>,
    /// What the orchestrator can load.
    pub skills: Skills,
    /// What agents' manifests say of approvals.
    pub approvals: Arc<BTreeMap<AgentId, AgentApprovals>>,
}

#[derive(Clone)]
pub struct AgentEntry {
    pub agent: Arc<dyn Agent>,
    /// The same, where it runs in the loop.
    pub looping: Option<Arc<LoopAgent>>,
    pub name: String,
    pub description: String,
    /// How the orchestrator uses it.
    pub mode: IntegrationMode,
    /// Whether the orchestrator may choose it.
    pub infer: bool,
    /// The model that answers for it; none where the agent is code.
    pub model: Option<String>,
    pub allowed: Allowed,
    /// The tools that it is offered with its own model.
    pub registry: Arc<Registry>,
    pub usage: Option<String>,
    /// What a run may spend.
    pub limits: DefinitionLimits,
    pub tool: Arc<Registered>,
    /// Whether its tasks are JSON, which its tool validates.
    pub own_input: bool,
    /// How it takes conversations over; none where it does not.
    pub handoff: Option<Handoff>,
}

/// How an agent takes conversations over.
#[derive(Clone)]
pub struct Handoff {
    /// The tool by which the orchestrator hands it one.
    pub tool: Arc<Registered>,
    /// How long it may keep one.
    pub limits: HandoffLimits,
}

impl AgentEntry {
    /// The tool that it is to the orchestrator.
    pub fn to_the_orchestrator(&self) -> &Arc<Registered> {
        self.handoff.as_ref().map_or(&self.tool, |handoff| &handoff.tool)
    }

    pub fn status(&self, id: &AgentId) -> AgentStatus {
        AgentStatus {
            id: id.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            mode: self.mode,
            model: self.model.clone(),
            tools: names(&self.registry),
            infer: self.infer,
            usage: self.usage.clone(),
            input: self.own_input.then(|| self.tool.spec().input_schema.clone()),
            output: self.looping.as_ref().and_then(|agent| agent.definition().output.clone()),
        }
    }
}

impl Snapshot {
    /// What the orchestrator can load, as clients see it.
    pub fn skills(&self) -> Vec<SkillStatus> {
        let status = |skill: &Arc<Skill>| SkillStatus {
            name: skill.name.clone(),
            description: skill.description.clone(),
            display_name: skill.display.name.clone(),
            short_description: skill.display.description.clone(),
            folder: skill.folder.display().to_string(),
            hash: skill.hash(),
            allowed_tools: skill.allowed.clone(),
        };
        self.skills.all.values().map(status).collect()
    }

    /// An agent as clients see it, in full, with the reason for each tool that it does not have.
    pub fn detail(&self, id: &AgentId) -> Result<AgentDetail, Fault> {
        if id.as_str() == ORCHESTRATOR {
            return Ok(self.orchestrator());
        }
        let agent = self.agent(id)?;
        let mut excluded: Vec<Exclusion> = agent.registry.excluded().to_vec();
        for (owner, tools) in &self.tools {
            for tool in tools.iter().map(|t| t.spec().name.as_str()) {
                let decided = agent.registry.get(tool).is_some() || excluded.iter().any(|e| e.tool == tool);
                if !decided {
                    let reason =
                        format!("`uses_tools` of `{id}` does not list `{owner}`, or not this tool of it");
                    excluded.push(Exclusion { tool: tool.to_owned(), reason });
                }
            }
        }
        excluded.sort_by(|a, b| a.tool.cmp(&b.tool));
        Ok(AgentDetail {
            status: agent.status(id),
            limits: agent.limits.clone(),
            excluded,
            sizes: sizes(&agent.registry),
        })
    }

    fn orchestrator(&self) -> AgentDetail {
        let (definition, registry) = (self.orchestrator.definition(), self.orchestrator.registry());
        let status = AgentStatus {
            id: definition.id.clone(),
            name: definition.name.clone(),
            description: definition.description.clone(),
            mode: IntegrationMode::Tool,
            model: Some(self.orchestrator.model().profile().name.clone()),
            tools: names(registry),
            infer: false,
            usage: None,
            input: None,
            output: definition.output.clone(),
        };
        let limits = definition.limits.clone();
        AgentDetail { status, limits, excluded: registry.excluded().to_vec(), sizes: sizes(registry) }
    }

    /// Why an agent is offered no tools of its client.
    pub fn client_tools_fault(&self, id: &AgentId) -> Option<Fault> {
        let (allowed, key) = match self.agents.get(id) {
            Some(agent) if agent.looping.is_none() => {
                let why = format!("agent `{id}` is code: it takes no tools of its client");
                return Some(Fault::invalid(why).help("leave `tools` out"));
            }
            Some(agent) => {
                (&agent.allowed, "`client_tools` of its manifest or of `agents.defaults` is `false`")
            }
            None => (&self.allowed, "`orchestrator.client_tools` is `false`"),
        };
        let fault = || Fault::denied(format!("agent `{id}` takes no tools of its client: {key}"));
        allowed.no_client_tools.then(fault).map(|fault| fault.help("leave `tools` out"))
    }

    /// The agent that somebody named, or near matches.
    pub fn agent(&self, id: &AgentId) -> Result<&AgentEntry, Fault> {
        self.agents.get(id).ok_or_else(|| {
            let fault = Fault::not_found(format!("there is no agent `{id}`"));
            let mut near: Vec<(usize, &str)> = self
                .agents
                .keys()
                .map(|k| (strsim::damerau_levenshtein(k.as_str(), id.as_str()), k.as_str()))
                .filter(|(distance, k)| *distance <= 3 || k.contains(id.as_str()))
                .collect();
            near.sort_unstable();
            match near.as_slice() {
                [] => fault.help("`drupe agent list` shows the agents"),
                some => {
                    let names: Vec<String> = some.iter().take(3).map(|(_, k)| format!("`{k}`")).collect();
                    fault.help(format!("did you mean {}?", names.join(" or ")))
                }
            }
        })
    }
}

fn names(registry: &Registry) -> Vec<String> {
    registry.specs().iter().map(|spec| spec.name.to_string()).collect()
}

/// What the tools of a registry add to a request.
fn sizes(registry: &Registry) -> Vec<ToolSize> {
    let size = |tool: &Arc<Registered>| ToolSize {
        tool: tool.spec().name.to_string(),
        extension: tool.tool().origin().to_owned(),
        bytes: bounds::size(tool.spec()),
        on_demand: registry.deferred().iter().any(|deferred| deferred.name == tool.spec().name),
    };
    let mut sizes: Vec<ToolSize> = registry.iter().map(size).collect();
    sizes.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tool.cmp(&b.tool)));
    sizes
}
