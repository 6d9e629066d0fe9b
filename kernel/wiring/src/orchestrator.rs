//! The orchestrator: the one agent that the kernel makes by itself.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use drupe_agent::{LoopAgent, one_line, read_output, request_input, session_search, update_plan};
use drupe_config::Scope;
use drupe_extension_api::{AgentId, Definition, ExtensionId, ToolName};
use serde_json::json;

use drupe_models::NamedBy;

use super::{Allowed, Context, Part, Terms, Tools, WireFault, of_agent, offer, select, skills};
use crate::{AgentEntry, Away};

/// The id of the orchestrator; no extension may take it.
pub const ID: &str = "orchestrator";

/// The most bytes that the two lists in its prompt take.
const SUMMARY: usize = 8 * 1024;

/// The most bytes of what one tool or agent says of itself there.
const DESCRIBED: usize = 1024;

/// The most bytes of why tools of one extension are missing.
const REASON: usize = 300;

/// The most tools of one extension that are named as missing.
const AWAY: usize = 20;

/// Makes it, with the shared tools, or the allowlist's, and a tool for each agent that it may choose.
pub fn build(
    parts: &[Part],
    tools: &Tools,
    agents: &BTreeMap<AgentId, AgentEntry>,
    context: &Context<'_>,
    notices: &mut Vec<String>,
) -> Result<(Arc<LoopAgent>, Allowed), WireFault> {
    let settings = &context.config.orchestrator;
    let fault = |extension, reason| WireFault { extension, reason };
    let resolved = context
        .models
        .resolve_for(NamedBy::Operator, &settings.models, &settings.parameters, &settings.limits)
        .map_err(|error| fault(None, format!("`orchestrator.model`: {error}")))?;
    notices.extend(resolved.diagnostics);
    let model = resolved.model;
    let mut allowed = Allowed {
        tools: vec![
            read_output::tool(),
            update_plan::tool(),
            request_input::secret(),
            session_search::tool(),
        ],
        no_client_tools: !settings.client_tools,
        ..Allowed::default()
    };
    let load_skill = skills::tool(&context.orchestrator.skills, context.workspace);
    allowed.tools.extend(load_skill.map_err(|error| fault(None, error.to_string()))?);
    notices.extend(context.orchestrator.skills.passed_over.iter().cloned());
    match &settings.uses_tools {
        Some(listed) => {
            for selector in listed {
                // A tool that is gone is a remark: the assistant goes on with what is there.
                match select(selector, tools) {
                    Ok(selected) => allowed.tools.extend(selected),
                    Err(reason) => notices.push(format!("`orchestrator`: {reason}")),
                }
            }
        }
        None => {
            for part in parts {
                for tool in tools.get(part.id()).into_iter().flatten().filter(|tool| of_agent(tool).is_none())
                {
                    match part.manifest.scope {
                        Scope::Shared => allowed.tools.push(Arc::clone(tool)),
                        Scope::Agents => allowed.exclude(
                            tool.spec().name.as_str(),
                            format!("`{}` has `scope: agents`: only agents that list it see it", part.id()),
                        ),
                    }
                }
            }
        }
    }
    for part in parts {
        let id = AgentId::from(part.id().clone());
        let Some(agent) = agents.get(&id) else { continue };
        let tool = agent.to_the_orchestrator();
        match agent.infer {
            true => allowed.tools.push(Arc::clone(tool)),
            false => allowed.exclude(tool.spec().name.as_str(), format!("agent `{id}` has `infer: false`")),
        }
    }
    let listed_or_shared = |id: &ExtensionId| {
        settings
            .uses_tools
            .as_ref()
            .is_none_or(|listed| listed.iter().any(|selector| selector.extension == *id))
    };
    for away in context.away.iter().filter(|away| listed_or_shared(&away.extension)) {
        for tool in &away.tools {
            allowed.exclude(tool.as_str(), away.told());
        }
    }
    // Without an agent and without a tool that one could have there is nobody to spawn.
    if allowed.tools.iter().any(|tool| !tool.is_core()) {
        allowed.spawns(&settings.limits);
    }
    let registry = offer(&allowed, Terms::new(Some(model.profile()), context.config))
        .map_err(|clash| clash.blame(parts, None))?;
    let capabilities = away(context.away) + &capabilities(&registry, agents);
    let listed = |agents: &BTreeMap<AgentId, AgentEntry>| {
        let one =
            |(id, a): (&AgentId, &AgentEntry)| json!({"id": id, "description": described(&a.description)});
        agents.iter().map(one).collect::<Vec<_>>()
    };
    let variables = json!({
        "name": settings.name,
        "capabilities": capabilities,
        "tools": registry.specs().iter().map(|s| json!({"id": s.name, "description": described(&s.description)})).collect::<Vec<_>>(),
        "agents": listed(agents),
        "now": context.day.to_string(),
        "user": drupe_prompts::user(context.config),
        "workspace": context.workspace.display().to_string(),
    });
    let text = drupe_prompts::template::fill(&context.orchestrator.instructions, &variables)
        .map_err(|reason| fault(None, format!("`orchestrator.instructions`: {reason}")))?;
    let definition = Definition {
        id: AgentId::new(ID).map_err(|error| fault(None, error.to_string()))?,
        name: settings.name.clone(),
        description: "Talks with the user and lets tools and agents do the work.".into(),
        instructions: text,
        context: context.orchestrator.context.clone(),
        models: settings.models.clone(),
        parameters: settings.parameters.clone(),
        output: None,
        limits: settings.limits.clone(),
        offline: Vec::new(),
    };
    Ok((Arc::new(LoopAgent::new(definition, registry, model, true)), allowed))
}

/// The tools that are not there for the moment, so that nobody takes them for gone.
fn away(away: &[Away]) -> String {
    let mut lines = String::new();
    for one in away.iter().filter(|one| !one.tools.is_empty()) {
        let names: Vec<&str> = one.tools.iter().map(ToolName::as_str).take(AWAY).collect();
        let more = if names.len() < one.tools.len() { ", …" } else { "" };
        let why = one_line(&one.told(), REASON);
        let _ = writeln!(lines, "- {}{more}: {why}", names.join(", "));
    }
    if lines.is_empty() { lines } else { format!("Tools that are not there for the moment:\n{lines}\n") }
}

/// The two lists of the prompt. Too long, descriptions shorten to their first sentence, then to nothing.
fn capabilities(registry: &drupe_agent::Registry, agents: &BTreeMap<AgentId, AgentEntry>) -> String {
    let agent_tools: Vec<&str> =
        agents.values().map(|a| a.to_the_orchestrator().spec().name.as_str()).collect();
    // Those that are brought on demand have their lines where the prompt tells how.
    let tools: Vec<(&str, String)> = registry
        .offered()
        .iter()
        .map(|s| (s.name.as_str(), described(&s.description)))
        .filter(|(name, _)| !agent_tools.contains(name))
        .collect();
    let agents: Vec<(&str, String)> = agents
        .iter()
        .filter(|(_, a)| registry.offered().iter().any(|s| s.name == a.to_the_orchestrator().spec().name))
        .map(|(id, a)| (id.as_str(), described(&a.description)))
        .collect();
    let whole: fn(&str) -> &str = |d| d;
    let first: fn(&str) -> &str = |d| d.split_inclusive(". ").next().unwrap_or(d).trim_end();
    let none: fn(&str) -> &str = |_| "";
    let lists = |short: fn(&str) -> &str| {
        list("Available tools:", &tools, short) + "\n" + &list("Available agents:", &agents, short)
    };
    let mut text = lists(whole);
    for short in [first, none] {
        if text.len() > SUMMARY {
            text = lists(short);
        }
    }
    text.truncate(text.floor_char_boundary(SUMMARY));
    text
}

/// What a tool or an agent says of itself, as it stands in the prompt: nobody was asked about these words, and within a line
/// of a list they cannot look like a part of the prompt.
fn described(description: &str) -> String {
    one_line(description, DESCRIBED)
}

fn list(title: &str, entries: &[(&str, String)], short: fn(&str) -> &str) -> String {
    let mut out = format!("{title}\n");
    for (id, description) in entries {
        let _ = match short(description) {
            "" => writeln!(out, "- {id}"),
            text => writeln!(out, "- {id}: {text}"),
        };
    }
    if entries.is_empty() {
        out.push_str("(none)\n");
    }
    out
}
