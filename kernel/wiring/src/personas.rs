//! Agents that one session was given at its beginning: they live and die with it.
//!
//! They are wired for each turn of the session, over what there is then. None of them can do more than the orchestrator.

use std::{collections::BTreeSet, fmt::Write, sync::Arc};

use drupe_agent::{Agent, AgentTool, LoopAgent, Registered, one_line};
use drupe_config::Config;
use drupe_extension_api::{AgentId, Definition, IntegrationMode, ToolName, control::Persona};

use crate::{AgentEntry, Allowed, MCP, Snapshot, Terms, core_tools, names, of_agent, offer};

/// The most that one session has.
const MOST: usize = 16;

/// The most bytes of instructions, and of a description.
const PROMPT: usize = 32 * 1024;
const DESCRIPTION: usize = 1024;

/// Bytes of the name of a server that a refusal quotes.
const SERVER: usize = 64;

/// Why a session cannot have such agents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitPersona {
    #[error("a session has at most {MOST} personas, and these are {0}")]
    TooMany(usize),
    #[error("two personas are named `{0}`")]
    Twice(AgentId),
    #[error("persona `{0}`: an agent of the daemon has this name, or one that looks like it")]
    Taken(AgentId),
    #[error("persona `{name}`: {why}")]
    Kept { name: AgentId, why: String },
    #[error(
        "persona `{0}`: its `prompt` has 1 to {PROMPT} bytes, and its `description` at most {DESCRIPTION}"
    )]
    Text(AgentId),
    #[error(
        "persona `{name}`: the orchestrator has no tool `{tool}` that it could have; leave it out of `tools`, or `tools` as a whole for all"
    )]
    Tool { name: AgentId, tool: ToolName },
    #[error("persona `{name}`: the orchestrator has no tools of an MCP server `{server}`{help}")]
    Server { name: AgentId, server: String, help: String },
    #[error("persona `{name}`: {why}")]
    Offer { name: AgentId, why: String },
}

/// Looks at what a session is to be given.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check(snapshot: &Snapshot, personas: &[Persona]) -> Result<(), UnfitPersona> {
    if personas.len() > MOST {
        return Err(UnfitPersona::TooMany(personas.len()));
    }
    for (nth, persona) in personas.iter().enumerate() {
        let name = persona.name.clone();
        let looks = |id: &AgentId| names::looks(id.as_str()) == names::looks(name.as_str());
        if personas[..nth].iter().any(|other| looks(&other.name)) {
            return Err(UnfitPersona::Twice(name));
        }
        if snapshot.agents.keys().any(looks) {
            return Err(UnfitPersona::Taken(name));
        }
        if let Some(why) = names::kept_id(name.as_str()) {
            return Err(UnfitPersona::Kept { name, why });
        }
        let prompt = persona.prompt.trim();
        if prompt.is_empty() || prompt.len() > PROMPT || persona.description.len() > DESCRIPTION {
            return Err(UnfitPersona::Text(name));
        }
        for tool in persona.tools.iter().flatten() {
            if !given(snapshot).any(|own| own.spec().name == *tool) {
                return Err(UnfitPersona::Tool { name, tool: tool.clone() });
            }
        }
        for server in &persona.mcp_servers {
            if served(snapshot, server).next().is_none() {
                let help = near(snapshot, server);
                let server = server[..server.floor_char_boundary(SERVER)].to_owned();
                return Err(UnfitPersona::Server { name, server, help });
            }
        }
    }
    Ok(())
}

/// What there is, with the agents of a session.
///
/// # Errors
/// Tools that one of them cannot have beside each other.
pub fn with(snapshot: &Snapshot, personas: &[Persona], config: &Config) -> Result<Snapshot, UnfitPersona> {
    let mut own = snapshot.clone();
    let mut lines = String::new();
    for persona in personas {
        // An agent that came since has the name by now: it stays what it is.
        if snapshot.agents.contains_key(&persona.name) {
            continue;
        }
        let entry = entry(snapshot, persona, config)?;
        if persona.infer {
            let description = one_line(&entry.description, DESCRIPTION);
            let _ = write!(lines, "\n- {}: {description}", persona.name);
            own.allowed.tools.push(Arc::clone(&entry.tool));
        }
        own.agents.insert(persona.name.clone(), entry);
    }
    let orchestrator = &snapshot.orchestrator;
    let model = Arc::clone(orchestrator.model());
    let registry = offer(&own.allowed, Terms::new(Some(model.profile()), config)).map_err(|clash| {
        let name = orchestrator.definition().id.clone();
        UnfitPersona::Offer { name, why: clash.to_string() }
    })?;
    let mut definition = orchestrator.definition().clone();
    if !lines.is_empty() {
        definition.instructions.push_str("\n\nAgents of this conversation alone:");
        definition.instructions.push_str(&lines);
    }
    own.orchestrator = Arc::new(LoopAgent::new(definition, registry, model, true));
    Ok(own)
}

/// The tools of the orchestrator that it can share.
fn given(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Registered>> {
    let handoffs: Vec<&ToolName> = snapshot
        .agents
        .values()
        .filter_map(|agent| Some(&agent.handoff.as_ref()?.tool.spec().name))
        .collect();
    let own = snapshot.allowed.tools.iter();
    own.filter(move |tool| !tool.is_core() && !handoffs.contains(&&tool.spec().name))
}

/// Those of them that an MCP server of the operator gives.
fn served<'a>(snapshot: &'a Snapshot, server: &'a str) -> impl Iterator<Item = &'a Arc<Registered>> {
    given(snapshot).filter(move |tool| server_of(tool) == Some(server))
}

/// The MCP server of the operator that gives a tool.
fn server_of(tool: &Registered) -> Option<&str> {
    let of_servers = tool.tool().origin() == MCP && of_agent(tool).is_none();
    of_servers.then(|| Some(tool.spec().name.as_str().split_once("__")?.0)).flatten()
}

/// What may have been meant by a server that the orchestrator has no tools of.
fn near(snapshot: &Snapshot, server: &str) -> String {
    let servers: BTreeSet<&str> = given(snapshot).filter_map(|tool| server_of(tool)).collect();
    let of_all = given(snapshot).filter(|tool| tool.tool().origin() == MCP && server_of(tool).is_none());
    let of_all: Vec<String> = of_all.map(|tool| format!("`{}`", tool.spec().name)).collect();
    let mut ranked: Vec<(usize, &str)> =
        servers.iter().map(|known| (strsim::damerau_levenshtein(known, server), *known)).collect();
    ranked.sort_unstable();
    let alike = ranked.iter().filter(|(distance, known)| *distance <= 2 || known.contains(server));
    let alike: Vec<String> = alike.take(3).map(|(_, known)| format!("`{known}`")).collect();
    let has = ranked.iter().map(|(_, known)| format!("`{known}`")).take(MOST).collect::<Vec<_>>().join(", ");
    match (alike.as_slice(), servers.is_empty(), of_all.is_empty()) {
        ([], true, true) => "; it has those of none: `drupe mcp servers` says how each stands".into(),
        // With very many tools they are looked up.
        ([], true, false) => {
            format!("; it has {}, which are for all servers: name these in `tools`", of_all.join(", "))
        }
        ([], false, _) => format!("; it has those of {has}: `drupe mcp servers` says how each stands"),
        (alike, ..) => format!("; did you mean {}?", alike.join(" or ")),
    }
}

fn entry(snapshot: &Snapshot, persona: &Persona, config: &Config) -> Result<AgentEntry, UnfitPersona> {
    let Persona { name: id, display_name, description, prompt, tools, mcp_servers, infer } = persona;
    let fault = |why: String| UnfitPersona::Offer { name: id.clone(), why };
    let orchestrator = &snapshot.orchestrator;
    let name = display_name.clone().unwrap_or_else(|| id.to_string());
    let definition = Definition {
        id: id.clone(),
        name: name.clone(),
        description: description.clone(),
        instructions: prompt.clone(),
        context: Vec::new(),
        output: None,
        limits: config.agents.defaults.limits.clone(),
        offline: Vec::new(),
        ..orchestrator.definition().clone()
    };
    let mut allowed = Allowed {
        tools: core_tools().to_vec(),
        no_client_tools: snapshot.allowed.no_client_tools,
        ..Allowed::default()
    };
    if tools.is_none() && mcp_servers.is_empty() {
        allowed.tools.extend(given(snapshot).filter(|tool| tool.tool().agent().is_none()).cloned());
    }
    let gone = || "the orchestrator does not have it any more".to_owned();
    for tool in tools.iter().flatten() {
        match given(snapshot).find(|own| own.spec().name == *tool) {
            Some(own) => allowed.tools.push(Arc::clone(own)),
            None => allowed.exclude(tool.as_str(), gone()),
        }
    }
    for server in mcp_servers {
        let before = allowed.tools.len();
        allowed.tools.extend(served(snapshot, server).cloned());
        if allowed.tools.len() == before {
            allowed.exclude(&format!("{server}__*"), gone());
        }
    }
    let model = Arc::clone(orchestrator.model());
    let registry = offer(&allowed, Terms::new(Some(model.profile()), config))
        .map_err(|clash| fault(clash.to_string()))?;
    let limits = definition.limits.clone();
    let looping = Arc::new(LoopAgent::new(definition, Arc::clone(&registry), model, false));
    let agent = Arc::clone(&looping) as Arc<dyn Agent>;
    let tool_name = ToolName::new(format!("agent_{id}")).map_err(|error| fault(error.to_string()))?;
    let described = if description.is_empty() { name.clone() } else { description.clone() };
    let tool = AgentTool::new(Arc::clone(&agent), tool_name, described.clone(), None);
    Ok(AgentEntry {
        agent,
        name,
        description: described,
        mode: IntegrationMode::Tool,
        infer: *infer,
        model: Some(looping.model().profile().name.clone()),
        looping: Some(looping),
        allowed,
        registry,
        usage: None,
        limits,
        tool: Registered::new(Arc::new(tool)).map_err(|error| fault(error.to_string()))?,
        own_input: false,
        handoff: None,
    })
}
