//! An agent that its caller describes: it narrows its caller.
//!
//! It has the caller's parameters and limits, of the caller's tools those that are named, and one of the models that the caller
//! reaches: its own, one of its own list, or one of those of the agents that it may call. These were found, priced and given
//! their keys when the agents were wired, and are used as they are. Nothing is looked up here.

use std::sync::Arc;

use drupe_extension_api::{AgentId, Definition, ToolName};

use super::{Refused, Spawning};
use crate::{
    agent::{Agent, LoopAgent, LoopParts},
    agent_tool::AgentTool,
    budget::UnknownPrice,
    core_tools::{read_output, refuse, update_plan},
    model::Model,
    registry::{Registered, RegistryBuilder},
    run::Run,
    tool::ToolError,
};

/// Models that a refusal names.
const NAMED: usize = 40;

/// The agent as a tool.
pub(super) fn agent(
    instructions: &str,
    asked: &Spawning,
    run: &Run,
    parts: &LoopParts,
) -> Result<Arc<Registered>, ToolError> {
    let caller = &parts.definition;
    let mut definition = Definition {
        name: "Inline agent".into(),
        description: format!("An agent that `{}` described.", caller.id),
        instructions: instructions.to_owned(),
        context: Vec::new(),
        output: None,
        ..Definition::clone(caller)
    };
    let model = match &asked.model {
        None => Arc::clone(&parts.model),
        Some(name) => {
            definition.models = vec![name.clone()];
            model(name, asked, run, parts)?
        }
    };
    let mut builder = RegistryBuilder::default();
    let own = asked.tools.iter().map(|name| tool(name, run, parts));
    let mut own: Vec<_> = own.collect::<Result<_, ToolError>>()?;
    if model.profile().tools {
        own.extend([refuse::tool(), read_output::tool(), update_plan::tool()]);
    }
    for tool in own {
        builder.add(tool).map_err(|error| ToolError::failed(error.to_string()))?;
    }
    const INLINE: &str = "-inline";
    const LONGEST: usize = 48;
    let own = caller.id.as_str();
    let id = format!("{}{INLINE}", &own[..own.len().min(LONGEST - INLINE.len())]);
    definition.id = AgentId::new(id).map_err(|error| ToolError::failed(error.to_string()))?;
    let name = ToolName::new("agent_inline").map_err(|error| ToolError::failed(error.to_string()))?;
    let description = definition.description.clone();
    let agent = LoopAgent::new(definition, Arc::new(builder.build()), model, false);
    let agent = LoopAgent::described_by(caller.id.clone(), agent);
    let tool = AgentTool::new(Arc::new(agent) as Arc<dyn Agent>, name, description, None);
    Registered::new(Arc::new(tool)).map_err(|error| ToolError::failed(error.to_string()))
}

/// A tool of the caller that it can give.
fn tool(name: &ToolName, run: &Run, parts: &LoopParts) -> Result<Arc<Registered>, ToolError> {
    let own = parts.registry.get(name.as_str()).filter(|tool| !tool.is_core());
    let own =
        own.ok_or_else(|| ToolError::failed(format!("you have no tool `{name}` that you could give")))?;
    match run.narrowed_out(name.as_str()) {
        Some(why) => Err(ToolError::failed(why)),
        None => Ok(Arc::clone(own)),
    }
}

/// The model of that name, of those that the caller reaches.
fn model(name: &str, asked: &Spawning, run: &Run, parts: &LoopParts) -> Result<Arc<dyn Model>, ToolError> {
    let reached = reached(run, parts);
    let Some(model) = reached.iter().find(|model| model.profile().name == name) else {
        let names: Vec<&str> = reached.iter().take(NAMED).map(|model| &*model.profile().name).collect();
        let name = &name[..name.floor_char_boundary(100)];
        let reason = format!("there is no model `{name}` for you; you can name {}", names.join(", "));
        return Err(Refused::NoModel(reason).into());
    };
    let caller = &parts.definition;
    let unpriced = model.unpriced().and_then(|model| UnknownPrice::under(&caller.limits, model));
    let toolless = (!model.profile().tools && !asked.tools.is_empty())
        .then(|| format!("`{name}` cannot call tools: leave `tools` out, or name another model"));
    // It is asked with the parameters of its caller.
    let unfit = unpriced.map(|unknown| unknown.to_string()).or(toolless);
    match unfit.or_else(|| model.unsupported(&caller.parameters)) {
        Some(why) => Err(Refused::UnfitModel(why).into()),
        None => Ok(Arc::clone(model)),
    }
}

/// The models that the caller reaches: its own first, then those of the agents that it may call now, by the names of their tools.
/// Of a name the first.
fn reached(run: &Run, parts: &LoopParts) -> Vec<Arc<dyn Model>> {
    let agents = parts.registry.iter().filter(|tool| run.narrowed_out(tool.spec().name.as_str()).is_none());
    let of_agents = agents.filter_map(|tool| tool.tool().agent()?.model);
    let mut reached: Vec<Arc<dyn Model>> = Vec::new();
    for model in [&parts.model].into_iter().chain(of_agents) {
        let members = model.members();
        let each = if members.is_empty() { vec![Arc::clone(model)] } else { members };
        for one in each {
            if reached.iter().all(|known| known.profile().name != one.profile().name) {
                reached.push(one);
            }
        }
    }
    reached
}
