//! Agents that are tried before they are active: one message, answered within the call of the extension that made the draft.
//!
//! The run is one below that call, with its budget, its policy and its records, and it is charged to whoever tries. What the
//! operator has not agreed to does not happen by it. Tools are offered as they would be; one runs where it changes nothing and
//! leaves nothing, and where an agent may have it without being asked about. Calls of all others are noted and not made. What
//! cannot be held back so keeps the agent from being tried.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use drupe_agent::{
    Agent, LoopAgent, Registered, Schema, Task, Tool, ToolContext, ToolError, ToolFuture, ids,
};
use drupe_config::{Config, Manifest};
use drupe_extension_api::{
    AgentId, EffectClass, EffectId, Fault, FaultCode, ToolAnnotations, ToolSpec,
    control::{CallKind, TraceNode, Trial, TrialResult},
    wire::Description,
};
use drupe_insight as insight;
use drupe_models::NamedBy;
use drupe_prompts::apart;
use drupe_surface::principal::{Principal, Who};
use drupe_wiring::{self as wiring, Allowed, Part, Terms, offer, tokens::Redeemed};
use serde_json::value::RawValue;

use crate::{
    check::{load, needs_agreement},
    draft::Draft,
    extension::Roster,
    kernel::Kernel,
};

/// What a model reads in place of what a tool gives.
const NOT_MADE: &str =
    "this is a trial: the call was noted, and nothing was done. Answer as if it had been made";

/// Bytes of a draft's id that stand in the name of its runs, so that this is one.
const NAMED: usize = 32;

pub async fn run(kernel: &Arc<Kernel>, by: &Principal, ask: Trial) -> Result<TrialResult, Fault> {
    let Who::Extension(caller) = &by.who else {
        return Err(Fault::denied("an agent is tried by an extension alone, on behalf of a call of it")
            .help("ask an agent that is active: `turn.submit`"));
    };
    let roster = &kernel.roster;
    let task = kernel.base.redactor.owned(ask.task);
    let Redeemed { run, asker, .. } = roster.wired.lasting.tokens.work(&caller.id, &caller.call)?;
    let (part, tools) = Draft::new(roster, ask.path, by)?.read(roster, prepare).await?;

    let config = &kernel.base.config;
    let mut definition = wiring::definition(&part, config);
    definition.id =
        of_trial(&definition.id, &ids::effect_for_code(asker.place(&run), "trial", &ask.name, 0))?;
    let limits = &mut definition.limits;
    limits.time_budget_ms = limits.time_budget_ms.min(ask.time_budget_ms.unwrap_or(u64::MAX));
    let fault = |output| wiring::bounds::answer_fault(output, &roster.wired.lasting.schemas);
    if let Some(why) = definition.output.as_ref().and_then(fault) {
        return Err(Fault::invalid(why));
    }
    let models = &roster.wired.models;
    let resolved = models.resolve_for(
        NamedBy::Extension,
        &definition.models,
        &definition.parameters,
        &definition.limits,
    );
    let model = resolved.map_err(|error| Fault::new(FaultCode::NotConfigured, error.to_string()))?.model;
    let mut allowed = Allowed { tools: wiring::core_tools().to_vec(), ..Allowed::default() };
    allowed.tools.extend(tools);
    let registry = offer(&allowed, Terms::new(Some(model.profile()), config))
        .map_err(|clash| Fault::invalid(clash.to_string()))?;
    let agent = LoopAgent::new(definition, registry, model, false);
    let agent: Arc<dyn Agent> = Arc::new(LoopAgent::described_by(caller.id.clone().into(), agent));

    let (id, response) = run.invoke_other(&asker, &agent, Task::new(task)).await;
    let rows = kernel.store.turn_rows(&run.scope.turn).await?;
    let nodes = rows.map(|rows| insight::trace(&rows).nodes).unwrap_or_default();
    let Some(node) = find(&nodes, id.as_str()) else {
        // One that was refused before it began has no records.
        return Err(Fault::new(FaultCode::Budget, response.error.unwrap_or(response.content)));
    };
    Ok(TrialResult {
        tools: called(node).into_iter().collect(),
        usage: node.usage.unwrap_or_default(),
        cost_usd: node.cost_usd,
        by_language_model: models.configured(),
        status: response.status,
        content: response.content,
        error: response.error,
    })
}

/// The name of the runs of one trial, beside those of the agent that there may be by then.
fn of_trial(id: &AgentId, place: &EffectId) -> Result<AgentId, Fault> {
    let place = place.as_str();
    let (own, place) = (id.as_str(), &place[place.len() - 8..]);
    Ok(AgentId::new(format!("{}-trial-{place}", &own[..own.len().min(NAMED)]))?)
}

/// The agent that lies there, and its tools as it has them in a trial.
fn prepare(roster: &Roster, path: &Path) -> Result<(Part, Vec<Arc<Registered>>), Fault> {
    let base = &roster.base;
    let manifest = load(path, base.home.root())
        .map_err(|faults| Fault::invalid(format!("the extension has faults:\n{}", faults.render(false))))?
        .value;
    if manifest.agent.is_none() {
        return Err(Fault::invalid(format!("`{}` is no agent", manifest.id)));
    }
    // The operator's values for that one are not for whoever takes its id.
    if !roster.extensions.named(manifest.id.as_str()).is_empty() {
        let taken = format!("there is an extension `{}` already", manifest.id);
        return Err(Fault::invalid(taken).help("choose another id"));
    }
    let kept = not_held_back(&manifest, &base.config);
    if !kept.is_empty() {
        let why =
            format!("`{}` cannot be tried before it is active: it brings {}", manifest.id, kept.join("; "));
        return Err(Fault::denied(why));
    }
    let snapshot = roster.snapshot();
    let mut part = Part {
        manifest: Arc::new(manifest),
        description: Description::default(),
        instance: None,
        prompt: None,
    };
    let listed = part.listed(&snapshot.tools).map_err(|fault| Fault::invalid(fault.reason))?;
    let specs: Vec<ToolSpec> = listed.iter().map(|tool| ToolSpec::clone(tool.spec())).collect();
    let fill = |template: &_, days: &[_]| apart::fill(&base.start.exe, template, days);
    part.prompt = drupe_prompts::of(&base.config, &part.manifest, &specs, base.day(), &fill)
        .map_err(|error| Fault::invalid(error.to_string()))?;
    let mut tools = Vec::with_capacity(listed.len());
    for tool in listed {
        tools.push(if changes_nothing(&tool, &base.config) { tool } else { NotMade::of(&tool)? });
    }
    for other in part.manifest.agent.iter().flat_map(|agent| &agent.uses_agents) {
        tools.push(NotMade::of(&snapshot.agent(other)?.tool)?);
    }
    Ok((part, tools))
}

/// What of it a trial cannot hold back: all that the operator would be asked about but tools and agents, whose calls are not
/// made, and what sets it off, which sets no trial off.
fn not_held_back(manifest: &Manifest, config: &Config) -> Vec<String> {
    let mut rest = manifest.clone();
    rest.schedules.clear();
    rest.subscribe.clear();
    if let Some(agent) = &mut rest.agent {
        agent.uses_tools.clear();
        agent.uses_agents.clear();
        agent.tool_name = None;
    }
    let mut kept = needs_agreement(&rest, config);
    if !manifest.skills.is_empty() {
        kept.push("skills, which it reads from its folder".into());
    }
    kept
}

/// Whether a call of it leaves everything as it was, by a tool that agents have without being asked about.
fn changes_nothing(tool: &Registered, config: &Config) -> bool {
    let ToolAnnotations { read_only, destructive, outward, needs_approval, needs_input, .. } =
        tool.spec().annotations;
    let mut open = config.orchestrator.builder_may_use.iter();
    read_only
        && !(destructive || outward || needs_approval || needs_input)
        && open.any(|id| id.as_str() == tool.tool().origin())
}

/// A tool that looks as it does, and whose calls are not made.
struct NotMade {
    spec: Arc<ToolSpec>,
    schema: Option<Arc<Schema>>,
    origin: String,
}

impl NotMade {
    fn of(tool: &Registered) -> Result<Arc<Registered>, Fault> {
        let spec = ToolSpec {
            annotations: ToolAnnotations {
                read_only: true,
                effect: EffectClass::Pure,
                ..ToolAnnotations::default()
            },
            ..ToolSpec::clone(tool.spec())
        };
        let (schema, origin) = (tool.tool().schema(), tool.tool().origin().to_owned());
        Registered::new(Arc::new(Self { spec: Arc::new(spec), schema, origin })).map_err(Fault::internal)
    }
}

impl Tool for NotMade {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        &self.origin
    }

    fn schema(&self) -> Option<Arc<Schema>> {
        self.schema.clone()
    }

    fn call(&self, _: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(std::future::ready(Err(ToolError::refused(NOT_MADE))))
    }
}

fn find<'a>(nodes: &'a [TraceNode], id: &str) -> Option<&'a TraceNode> {
    nodes.iter().find_map(|node| if node.id == id { Some(node) } else { find(&node.nodes, id) })
}

fn called(node: &TraceNode) -> BTreeSet<String> {
    let own = node.nodes.iter().filter(|below| below.kind == CallKind::Tool);
    own.map(|tool| tool.name.clone()).collect()
}
