//! With what a message is answered: the agent that its route leads to, and what that is told of earlier turns. Begins nothing and records nothing.

use std::sync::Arc;

use drupe_agent::{Agent, Conditional, LoopAgent, Task, client_tool};
use drupe_extension_api::{
    AgentInvocationContext, AgentResponse, FailureClass, Message, ModelParameters, Preview, ToolCallRequest,
    wire::{ClientTool, Submit},
};
use drupe_journal::{Origin, QueuedTurn, StoreError};
use drupe_models::NamedBy;
use drupe_wiring::{self as wiring, AgentEntry, Snapshot, Terms, offer};

use super::Turns;
use super::route::{ChosenBy, Route, route};

/// Earlier turns that the orchestrator is shown.
const HISTORY: usize = 20;

/// The most bytes of them; older ones are left out first.
const HISTORY_BYTES: usize = 32 * 1024;

/// The most bytes of one of their texts.
const EXCERPT: usize = 8 * 1024;

/// Earlier turns that an agent which is addressed directly is told of.
const SUMMARY: usize = 3;

/// Who answers, with what.
pub struct Plan {
    pub agent: Arc<dyn Agent>,
    pub task: Task,
    pub limits: drupe_extension_api::DefinitionLimits,
    /// How it was chosen; none for the orchestrator, which nobody chooses.
    pub chosen_by: Option<ChosenBy>,
}

impl Plan {
    /// Whether the orchestrator answers: it alone is told of the conversation, and of what is missing.
    pub fn is_the_orchestrators(&self) -> bool {
        self.chosen_by.is_none()
    }
}

/// Decides who answers. An explicit choice that cannot be met is the turn's answer.
pub async fn plan(
    turns: &Turns,
    snapshot: &Snapshot,
    queued: &QueuedTurn,
) -> Result<Result<Plan, AgentResponse>, StoreError> {
    let inbound = &queued.inbound;
    let refused = |reason: String| Ok(Err(AgentResponse::error(FailureClass::Config, reason)));
    let Route { agent, text } = match route(&inbound.ask, &queued.state) {
        Ok(route) => route,
        Err(reason) => return refused(reason),
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
            let (summary, history) = match carried(&inbound.ask) {
                Some(history) => (None, history),
                None => (summary(turns, queued).await?, Vec::new()),
            };
            let context = AgentInvocationContext {
                conversation_summary: summary,
                user_message: None,
                correlation_id: None,
            };
            Plan {
                agent: Arc::clone(&entry.agent),
                task: Task { text: text.to_owned(), context, history, ..Task::default() },
                limits: entry.limits.clone(),
                chosen_by: Some(by),
            }
        }
        None => Plan {
            agent: Arc::clone(&snapshot.orchestrator) as Arc<dyn Agent>,
            task: Task {
                history: match carried(&inbound.ask) {
                    Some(history) => history,
                    None => history(turns, queued).await?,
                },
                ..Task::new(text)
            },
            limits: snapshot.orchestrator.definition().limits.clone(),
            chosen_by: None,
        },
    };
    if let Some(budget) = inbound.ask.time_budget_ms {
        plan.limits.time_budget_ms = plan.limits.time_budget_ms.min(budget);
    }
    let changed = inbound.ask.model.is_some()
        || inbound.ask.output.is_some()
        || parameters(&inbound.ask).is_some()
        || !client_tools(&inbound.ask).is_empty();
    if changed {
        match altered(turns, snapshot, &plan, queued) {
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

/// What is looked at before the agent of a schedule is asked.
fn condition(snapshot: &Snapshot, id: &str) -> Option<ToolCallRequest> {
    snapshot.schedules.iter().find(|schedule| schedule.id == *id)?.only_if.clone()
}

/// The root with another model, further tools or another form of answer, for this turn.
fn altered(
    turns: &Turns,
    snapshot: &Snapshot,
    plan: &Plan,
    queued: &QueuedTurn,
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
    if asked || !tools.is_empty() {
        if let (Some(fault), false) = (snapshot.client_tools_fault(id), tools.is_empty()) {
            return Err(fault.to_string());
        }
        let mut allowed = allowed.clone();
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

/// The conversation that a client brings along.
fn carried(ask: &Submit) -> Option<Vec<Arc<Message>>> {
    let history = ask.carried.as_ref()?.history.as_ref()?;
    Some(history.iter().cloned().map(Arc::new).collect())
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

/// Earlier turns as messages, newest kept first where they are too long.
async fn history(turns: &Turns, queued: &QueuedTurn) -> Result<Vec<Arc<Message>>, StoreError> {
    if queued.earlier_turns == 0 {
        return Ok(Vec::new());
    }
    let turns = turns.store.conversation(&queued.inbound.ask.session, HISTORY).await?;
    let mut left = HISTORY_BYTES;
    let kept = turns.iter().rev().take_while(|(input, answer)| {
        let size = input.len().min(EXCERPT) + answer.len().min(EXCERPT);
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    let kept: Vec<_> = kept.collect();
    let messages = kept.into_iter().rev().flat_map(|(input, answer)| {
        let asked = Message::User { content: excerpt(input) };
        let said = Message::Assistant {
            content: excerpt(answer),
            reasoning: None,
            tool_calls: Vec::new(),
            provider_items: None,
        };
        [Arc::new(asked), Arc::new(said)]
    });
    Ok(messages.collect())
}

/// A text of an earlier turn: whole, or its beginning and its end.
fn excerpt(text: &str) -> String {
    if text.len() <= EXCERPT {
        return text.to_owned();
    }
    let half = EXCERPT / 2;
    let (head, tail) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    format!("{}\n… ({} bytes left out) …\n{}", &text[..head], tail - head, &text[tail..])
}

/// The latest turns in short, for an agent that is addressed directly.
async fn summary(turns: &Turns, queued: &QueuedTurn) -> Result<Option<String>, StoreError> {
    if queued.earlier_turns == 0 {
        return Ok(None);
    }
    let turns = turns.store.conversation(&queued.inbound.ask.session, SUMMARY).await?;
    let line = |(input, answer): &(String, String)| {
        format!(
            "- the user said: {}\n  the answer was: {}",
            Preview::of(input).text,
            Preview::of(answer).text
        )
    };
    let text = turns.iter().map(line).collect::<Vec<_>>().join("\n");
    Ok((!text.is_empty()).then_some(text))
}
