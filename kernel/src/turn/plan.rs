//! With what a message is answered: the agent that its route leads to, and what that is told of earlier turns. Begins nothing
//! and records nothing.

use std::sync::Arc;

use drupe_agent::{Agent, Conditional, Conversation, HandoffLimits, LoopAgent, Reclaimed, Task, client_tool};
use drupe_extension_api::{
    AgentResponse, FailureClass, ModelParameters, ToolCallRequest,
    wire::{ClientTool, Submit},
};
use drupe_journal::{Origin, QueuedTurn, SessionState, StoreError};
use drupe_models::NamedBy;
use drupe_wiring::{self as wiring, AgentEntry, Allowed, Snapshot, Terms, offer};

use super::Turns;
use super::earlier::{Audience, Earlier, Older, ToldBefore};
use super::route::{ChosenBy, Route, asks_back, route};

/// Who answers, with what.
pub struct Plan {
    pub agent: Arc<dyn Agent>,
    pub task: Task,
    pub limits: drupe_extension_api::DefinitionLimits,
    /// How it was chosen; none for the orchestrator, which nobody chooses.
    pub chosen_by: Option<ChosenBy>,
    /// How long it may keep the conversation, where that was handed to it.
    pub keeps: Option<HandoffLimits>,
    /// What it is to sum up of the conversation once it has answered.
    pub older: Option<Older>,
}

impl Plan {
    /// Whether the orchestrator answers: it alone is told of the conversation, and of what is missing.
    pub fn is_the_orchestrators(&self) -> bool {
        self.chosen_by.is_none()
    }
}

/// Decides who answers, where `conversation` says who has it. An explicit choice that cannot be met is the turn's answer.
/// `again`: another agent has had the message before.
pub async fn plan(
    turns: &Turns,
    snapshot: &Snapshot,
    queued: &QueuedTurn,
    conversation: &Conversation,
    again: bool,
) -> Result<Result<Plan, AgentResponse>, StoreError> {
    let inbound = &queued.inbound;
    let refused = |reason: String| Ok(Err(AgentResponse::error(FailureClass::Config, reason)));
    let state = SessionState { conversation: conversation.clone(), ..queued.state.clone() };
    let Route { agent, text } = match route(&inbound.ask, &state) {
        Ok(route) => route,
        Err(reason) => return refused(reason),
    };
    // Who asked for the orchestrator with nothing to say is told that it listens.
    let text = match (conversation, asks_back(text)) {
        (Conversation::Reclaiming { reason: Reclaimed::Person, .. }, Some("")) => {
            let name = &turns.roster.base.config.orchestrator.name;
            return Ok(Err(AgentResponse::success(format!("You talk with {name} again."))));
        }
        (Conversation::Reclaiming { reason: Reclaimed::Person, .. }, Some(rest)) => rest,
        _ => text,
    };
    let mut plan = match agent {
        Some((id, by)) => {
            let entry = match turns.roster.agent(snapshot, &id) {
                Ok(entry) => entry,
                Err(fault) => return refused(fault.to_string()),
            };
            if let Some(Err(reason)) = entry.own_input.then(|| entry.tool.parameters(text)) {
                return refused(format!("agent `{id}` takes JSON: {reason}"));
            }
            let keeps = entry.handoff.as_ref().filter(|_| by.is_handoff()).map(|handoff| handoff.limits);
            let to = match by.is_handoff() {
                true => Audience::Handed { conversation, in_loop: entry.looping.is_some() },
                false => Audience::Addressed,
            };
            let ToldBefore { context, history, .. } = earlier(turns, queued).told(&inbound.ask, to).await?;
            Plan {
                agent: Arc::clone(&entry.agent),
                task: Task { text: text.to_owned(), context, history, ..Task::default() },
                limits: entry.limits.clone(),
                chosen_by: Some(by),
                keeps,
                older: None,
            }
        }
        None => {
            let told = earlier(turns, queued).told(&inbound.ask, Audience::Orchestrator).await?;
            // What follows rules sums nothing up, and a model that one message asks for has no part in the next.
            let sums_up = turns.roster.base.config.orchestrator.summarise_history
                && inbound.ask.model.is_none()
                && !drupe_models::is_offline(&snapshot.orchestrator.model().profile().name);
            let older = told.older.filter(|_| sums_up);
            Plan {
                agent: Arc::clone(&snapshot.orchestrator) as Arc<dyn Agent>,
                task: Task {
                    history: told.history,
                    to_sum_up: older.as_ref().map(|older| older.messages.clone()).unwrap_or_default(),
                    notes: came_back(conversation).into_iter().collect(),
                    ..Task::new(text)
                },
                limits: snapshot.orchestrator.definition().limits.clone(),
                chosen_by: None,
                keeps: None,
                older,
            }
        }
    };
    if let Some(budget) = inbound.ask.time_budget_ms {
        plan.limits.time_budget_ms = plan.limits.time_budget_ms.min(budget);
    }
    let changed = inbound.ask.model.is_some()
        || inbound.ask.output.is_some()
        || parameters(&inbound.ask).is_some()
        || !client_tools(&inbound.ask).is_empty();
    let keeps_it = again && plan.is_the_orchestrators();
    if changed || keeps_it {
        match altered(turns, snapshot, &plan, queued, keeps_it) {
            Ok(agent) => plan.agent = agent,
            Err(reason) => return refused(reason),
        }
    }
    if let Origin::Schedule(id) = &inbound.origin
        && let Some(condition) = condition(snapshot, id)
        && let Some(entry) = snapshot.agents.get(plan.agent.id())
    {
        let tools = Arc::clone(&entry.registry);
        plan.agent = Arc::new(Conditional::new(plan.agent, tools, condition));
    }
    Ok(Ok(plan))
}

/// The turns before that of this message.
fn earlier<'a>(turns: &'a Turns, queued: &'a QueuedTurn) -> Earlier<'a> {
    let session = &queued.inbound.ask.session;
    Earlier { store: &turns.store, session, before: None, any: queued.earlier_turns > 0 }
}

/// What is looked at before the agent of a schedule is asked.
fn condition(snapshot: &Snapshot, id: &str) -> Option<ToolCallRequest> {
    snapshot.schedules.iter().find(|schedule| schedule.id == *id)?.only_if.clone()
}

/// The root with another model, further tools or another form of answer, for this turn; with `keeps_it`, without the tools
/// by which it hands a conversation over.
fn altered(
    turns: &Turns,
    snapshot: &Snapshot,
    plan: &Plan,
    queued: &QueuedTurn,
    keeps_it: bool,
) -> Result<Arc<dyn Agent>, String> {
    let id = plan.agent.id();
    let (looping, allowed): (&LoopAgent, _) = match snapshot.agents.get(id) {
        _ if plan.is_the_orchestrators() => (&snapshot.orchestrator, &snapshot.allowed),
        Some(AgentEntry { looping: Some(looping), allowed, .. }) => (looping, allowed),
        // Clients of Messages have to send a bound on tokens. An agent that is code bounds its answers itself.
        _ if asks_for_a_bound_alone(&queued.inbound.ask) => return Ok(Arc::clone(&plan.agent)),
        _ => {
            return Err(format!(
                "agent `{id}` is code: it takes no model, parameters, form of answer or tools of its client"
            ));
        }
    };
    let mut definition = looping.definition().clone();
    let (mut model, mut registry) = (Arc::clone(looping.model()), Arc::clone(looping.registry()));
    let ask = &queued.inbound.ask;
    let (asked, tools) = (ask.model.is_some() || parameters(ask).is_some(), client_tools(ask));
    if asked {
        definition.models = ask.model.clone().map_or(definition.models, |name| vec![name]);
        definition.parameters = parameters(ask).cloned().unwrap_or_default().over(&definition.parameters);
        model = turns
            .roster
            .wired
            .models
            // Whoever handed it in was asked then.
            .resolve_for(NamedBy::Operator, &definition.models, &definition.parameters, &definition.limits)
            .map_err(|e| e.to_string())?
            .model;
    }
    if asked || !tools.is_empty() || keeps_it {
        if let (Some(fault), false) = (snapshot.client_tools_fault(id), tools.is_empty()) {
            return Err(fault.to_string());
        }
        let mut allowed = allowed.clone();
        if keeps_it {
            without_handoffs(&mut allowed, snapshot);
        }
        for tool in tools {
            allowed.tools.push(client_tool::tool(tool).map_err(|error| error.to_string())?);
        }
        if let (Some(tool), false) = (tools.first(), model.profile().tools) {
            let model = &model.profile().name;
            return Err(format!(
                "the model `{model}` calls no tools, and the client brought `{}`",
                tool.name
            ));
        }
        let terms = Terms::new(Some(model.profile()), &turns.roster.base.config);
        registry = offer(&allowed, terms).map_err(|clash| clash.to_string())?;
    }
    if let Some(output) = &queued.inbound.ask.output {
        // An earlier release may have taken it in.
        wiring::bounds::answer_fault(output, &turns.roster.wired.lasting.schemas).map_or(Ok(()), Err)?;
        definition.output = Some(output.clone());
    }
    Ok(Arc::new(LoopAgent::new(definition, registry, model, plan.is_the_orchestrators())))
}

/// Leaves out the tools by which a conversation is handed over: it has come back with this very message.
fn without_handoffs(allowed: &mut Allowed, snapshot: &Snapshot) {
    for handoff in snapshot.agents.values().filter_map(|entry| entry.handoff.as_ref()) {
        let name = &handoff.tool.spec().name;
        let before = allowed.tools.len();
        allowed.tools.retain(|tool| tool.spec().name != *name);
        if allowed.tools.len() < before {
            allowed.exclude(name.as_str(), "the conversation has come back with this message".into());
        }
    }
}

/// What the orchestrator is told of an agent that had the conversation, once it has it again.
fn came_back(conversation: &Conversation) -> Option<String> {
    let Conversation::Reclaiming { from, reason, summary } = conversation else { return None };
    let said = if summary.is_empty() { String::new() } else { format!(" It said of its part:\n{summary}") };
    Some(format!("The agent `{from}` had this conversation, and you have it again: {reason}.{said}"))
}

/// Whether of all that a client can want otherwise it names a bound on the tokens of the answer and nothing else.
fn asks_for_a_bound_alone(ask: &Submit) -> bool {
    let bound = |given: &ModelParameters| {
        *given == ModelParameters { max_output_tokens: given.max_output_tokens, ..ModelParameters::default() }
    };
    ask.model.is_none()
        && ask.output.is_none()
        && client_tools(ask).is_empty()
        && parameters(ask).is_some_and(bound)
}

/// The tools that a client brings along.
fn client_tools(ask: &Submit) -> &[ClientTool] {
    ask.carried.as_ref().map(|carried| carried.tools.as_slice()).unwrap_or_default()
}

/// How its client wants the model asked, where it says anything of it.
fn parameters(ask: &Submit) -> Option<&ModelParameters> {
    ask.carried
        .as_ref()
        .map(|carried| &carried.parameters)
        .filter(|given| **given != ModelParameters::default())
}
