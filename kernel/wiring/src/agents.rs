//! The agents: each with exactly the tools that its manifest lists.

use std::{collections::BTreeMap, sync::Arc};

use drupe_agent::{
    Agent, AgentTool, HandoffLimits, LoopAgent, ModelProfile, Registered, hand_over, read_output, refuse,
    update_plan,
};
use drupe_config::{Config, HandoffSection, InputSpec};
use drupe_extension_api::{AgentId, Definition, Format, IntegrationMode, ToolName, wire::Capability};
use serde_json::{Value, json};

use drupe_models::NamedBy;
use drupe_prompts::Prompt;

use super::{Allowed, Context, Part, Terms, Tools, WireFault, cycle, offer};
use crate::{AgentEntry, adapters::NativeAgent, names, skills, snapshot::Handoff};

/// Builds all agents, those that others call first.
pub fn build(
    parts: &[Part],
    tools: &Tools,
    context: &Context<'_>,
    notices: &mut Vec<String>,
) -> Result<BTreeMap<AgentId, AgentEntry>, WireFault> {
    let all = parts;
    let parts: BTreeMap<AgentId, &Part> =
        parts.iter().filter(|p| p.is_agent()).map(|p| (AgentId::from(p.id().clone()), p)).collect();
    let mut uses: BTreeMap<AgentId, Vec<AgentId>> = BTreeMap::new();
    for (id, part) in &parts {
        let listed = part.manifest.agent.iter().flat_map(|a| &a.uses_agents);
        for other in listed.clone() {
            if !parts.contains_key(other) {
                let reason = format!("`uses_agents` lists `{other}`, but there is no such agent");
                return Err(part.fault(reason));
            }
        }
        uses.insert(id.clone(), listed.cloned().collect());
    }
    if let Some(cycle) = cycle(&uses) {
        let members: Vec<&str> = cycle.iter().map(AgentId::as_str).collect();
        let reason = format!("`uses_agents` goes in a circle: {} → {}", members.join(" → "), members[0]);
        return Err(WireFault { extension: Some(cycle[0].clone().into()), reason });
    }
    let mut built = BTreeMap::new();
    // Without a cycle each round finds at least one agent whose callees are all built.
    while built.len() < parts.len() {
        for (id, part) in &parts {
            if !built.contains_key(id) && uses[id].iter().all(|other| built.contains_key(other)) {
                let entry = entry(part, all, tools, &built, context, notices)?;
                built.insert(id.clone(), entry);
            }
        }
    }
    Ok(built)
}

fn entry(
    part: &Part,
    parts: &[Part],
    tools: &Tools,
    built: &BTreeMap<AgentId, AgentEntry>,
    context: &Context<'_>,
    notices: &mut Vec<String>,
) -> Result<AgentEntry, WireFault> {
    let mut definition = definition(part, context.config);
    match part.prompt.as_ref().and_then(|prompt| prompt.on(context.day)) {
        Some(Ok(text)) => definition.instructions = text,
        // What was right when it was loaded serves until its author has mended it.
        Some(Err(why)) => {
            notices.push(format!("`{}`: its prompt is that of an earlier day: {why}", part.id()))
        }
        None => {}
    }
    let id = &definition.id;
    let limits = definition.limits.clone();
    let defaults = &context.config.agents.defaults;
    let takes = part.manifest.agent.as_ref().map_or(defaults.client_tools, |s| s.client_tools_over(defaults));
    let mut own = own_tools(part, tools, built)?;
    if mode(part) == IntegrationMode::Handoff {
        own.push(hand_over::return_control());
    }
    if let Some(prompt) = &part.prompt {
        let load_skill = skills::tool(&prompt.skills, context.workspace);
        own.extend(load_skill.map_err(|error| part.fault(error.to_string()))?);
    }
    let mut allowed = Allowed { tools: own, no_client_tools: !takes, ..Allowed::default() };
    allowed.spawns_what_is_listed(&part.manifest, &limits);
    let offered = |model: Option<&ModelProfile>| {
        let offered = offer(&allowed, Terms::new(model, context.config));
        offered.map_err(|clash| clash.blame(parts, Some(part.id())))
    };
    let (agent, looping, registry): (Arc<dyn Agent>, Option<Arc<LoopAgent>>, _) = match &part.instance {
        Some(instance) => {
            let native = NativeAgent {
                id: id.clone(),
                limits: limits.clone(),
                instance: Arc::clone(instance),
                lasting: Arc::clone(context.lasting),
            };
            (Arc::new(native), None, offered(None)?)
        }
        None => {
            let resolved = context
                .models
                .resolve_for(
                    NamedBy::Extension,
                    &definition.models,
                    &definition.parameters,
                    &definition.limits,
                )
                .map_err(|error| part.fault(format!("`agent.model`: {error}")))?;
            notices.extend(resolved.diagnostics);
            let registry = offered(Some(resolved.model.profile()))?;
            let agent =
                Arc::new(LoopAgent::new(definition.clone(), Arc::clone(&registry), resolved.model, false));
            (Arc::clone(&agent) as Arc<dyn Agent>, Some(agent), registry)
        }
    };
    let section = part.manifest.agent.as_ref();
    let input = section.and_then(|s| s.input.as_ref()).and_then(input_schema);
    let own_input = input.is_some();
    let tool = agent_tool(id, part, &agent, &definition.description, input)?;
    let handoff = handoff(id, part, &definition.description, own_input)?;
    Ok(AgentEntry {
        agent,
        name: definition.name,
        description: definition.description,
        mode: mode(part),
        infer: section.is_none_or(|s| s.infer),
        model: looping.as_ref().map(|a| a.model().profile().name.clone()),
        looping,
        allowed,
        registry,
        usage: section.and_then(|s| s.usage.clone()),
        limits,
        tool,
        own_input,
        handoff,
    })
}

/// How it takes conversations over, where it is to.
fn handoff(
    id: &AgentId,
    part: &Part,
    description: &str,
    own_input: bool,
) -> Result<Option<Handoff>, WireFault> {
    if mode(part) != IntegrationMode::Handoff {
        return Ok(None);
    }
    if own_input {
        let reason =
            "an agent with `integration_mode: handoff` answers people, so it cannot have an `input` of JSON";
        return Err(part.fault(reason.to_owned()));
    }
    let HandoffSection { max_turns, max_tokens, max_minutes, idle_minutes } =
        part.manifest.agent.as_ref().map_or_else(HandoffSection::default, |section| section.handoff);
    let minutes = |minutes: u32| u64::from(minutes) * 60_000;
    let limits =
        HandoffLimits { max_turns, max_tokens, max_ms: minutes(max_minutes), idle_ms: minutes(idle_minutes) };
    let name = own_name(id, part, "handoff")?;
    let tool =
        hand_over::tool(id.clone(), name, description).map_err(|error| part.fault(error.to_string()))?;
    Ok(Some(Handoff { tool, limits }))
}

/// The name of the tool that an agent is to the orchestrator: what its manifest says, else its id after `kind`.
fn own_name(id: &AgentId, part: &Part, kind: &str) -> Result<ToolName, WireFault> {
    match part.manifest.agent.as_ref().and_then(|section| section.tool_name.clone()) {
        Some(name) => match names::kept_from_agent(&name, id) {
            None => Ok(name),
            Some(why) => Err(part.fault(why)),
        },
        None => ToolName::new(format!("{kind}_{id}")).map_err(|error| part.fault(error.to_string())),
    }
}

fn agent_tool(
    id: &AgentId,
    part: &Part,
    agent: &Arc<dyn Agent>,
    description: &str,
    input: Option<Value>,
) -> Result<Arc<Registered>, WireFault> {
    let name = match mode(part) {
        IntegrationMode::Tool => own_name(id, part, "agent")?,
        // Its manifest's name is that of the tool by which it takes conversations over.
        IntegrationMode::Handoff => {
            ToolName::new(format!("agent_{id}")).map_err(|error| part.fault(error.to_string()))?
        }
    };
    let tool = AgentTool::new(Arc::clone(agent), name, description.to_owned(), input);
    Registered::new(Arc::new(tool)).map_err(|error| part.fault(error.to_string()))
}

/// The schema of an agent's JSON input; any object where its manifest gives none.
fn input_schema(input: &InputSpec) -> Option<Value> {
    (input.format == Format::Json).then(|| input.schema.clone().unwrap_or_else(|| json!({"type": "object"})))
}

/// The core tools that every sub-agent has.
pub fn core_tools() -> [Arc<Registered>; 3] {
    [refuse::tool(), read_output::tool(), update_plan::tool()]
}

/// Exactly what the manifest lists, and the core tools that a sub-agent has.
fn own_tools(
    part: &Part,
    tools: &Tools,
    built: &BTreeMap<AgentId, AgentEntry>,
) -> Result<Vec<Arc<Registered>>, WireFault> {
    let mut own = core_tools().to_vec();
    own.extend(part.listed(tools)?);
    let called = part.manifest.agent.iter().flat_map(|a| &a.uses_agents);
    own.extend(called.map(|other| Arc::clone(&built[other].tool)));
    Ok(own)
}

/// The definition of an agent: its manifest over the defaults.
pub fn definition(part: &Part, config: &Config) -> Definition {
    let Prompt { instructions, context: documents, .. } = part.prompt.clone().unwrap_or_default();
    let defaults = &config.agents.defaults;
    let described = part.description.agent.as_ref();
    let section = part.manifest.agent.as_ref();
    let manifest = &part.manifest;
    let description = match (manifest.description.is_empty(), described) {
        (true, Some(own)) => own.description.clone(),
        _ => manifest.description.clone(),
    };
    Definition {
        id: manifest.id.clone().into(),
        name: manifest.name.clone(),
        description,
        instructions,
        context: documents,
        models: section.map_or_else(|| defaults.models.clone(), |s| s.models_over(defaults)),
        parameters: section.map_or_else(|| defaults.parameters.clone(), |s| s.parameters_over(defaults)),
        output: section.and_then(|s| s.output.clone()),
        limits: section.map_or_else(|| defaults.limits.clone(), |s| s.limits_over(defaults)),
        offline: section.map(|s| s.offline.clone()).unwrap_or_default(),
    }
}

fn mode(part: &Part) -> IntegrationMode {
    match &part.manifest.agent {
        Some(section) => section.integration_mode,
        None => part.description.agent.as_ref().map(|d| d.integration_mode).unwrap_or_default(),
    }
}

/// Where code and manifest both say what an agent is, and differ.
pub(crate) fn disagreement(part: &Part) -> Option<String> {
    let section = part.manifest.agent.as_ref();
    let code = part.can(Capability::Agent);
    let described = part.description.agent.as_ref();
    match (section, code, described) {
        (Some(_), false, _) if part.instance.is_some() => {
            Some("its manifest has an `agent` section, but its code has no Agent capability".into())
        }
        (_, true, None) => Some("its code has the Agent capability but describes no agent".into()),
        (_, true, Some(own)) if own.id.as_str() != part.id().as_str() => {
            Some(format!("its code calls the agent `{}`, its manifest `{}`", own.id, part.id()))
        }
        (Some(section), true, Some(own)) if own.integration_mode != section.integration_mode => {
            Some("its code and its manifest give different values of `integration_mode`".into())
        }
        (_, true, Some(own)) if own.description.is_empty() && part.manifest.description.is_empty() => {
            Some("an agent needs a `description`".into())
        }
        _ => None,
    }
}
