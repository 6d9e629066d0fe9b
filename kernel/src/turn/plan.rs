//! Who answers a message, with what: the choice that the message or its session made, and what it is told of earlier
//! turns. Begins nothing and records nothing.

use std::sync::Arc;

use drupe_agent::{Agent, LoopAgent, Task};
use drupe_extension_api::{AgentId, AgentInvocationContext, AgentResponse, FailureClass, Message, Preview};
use drupe_journal::{Inbound, QueuedTurn, StoreError};
use drupe_models::NamedBy;
use drupe_wiring::{self as wiring, Snapshot};

use crate::kernel::Kernel;

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
    /// How it was chosen, where it was.
    pub selected_by: Option<&'static str>,
}

/// Decides who answers. An explicit choice that cannot be met is the turn's answer.
pub async fn plan(
    kernel: &Arc<Kernel>,
    snapshot: &Snapshot,
    queued: &QueuedTurn,
) -> Result<Result<Plan, AgentResponse>, StoreError> {
    let inbound = &queued.inbound;
    let (addressed, text) = addressed(&inbound.ask.text);
    let chosen = match (&inbound.ask.agent, addressed) {
        (Some(agent), _) => Some((agent.clone(), "agent", inbound.ask.text.as_str())),
        (None, Some(Ok(agent))) => Some((agent, "@id", text)),
        (None, Some(Err(reason))) => return Ok(Err(AgentResponse::error(FailureClass::Config, reason))),
        (None, None) => queued.selected.clone().map(|agent| (agent, "session", inbound.ask.text.as_str())),
    };
    let mut plan = match chosen {
        Some((id, by, text)) => {
            let entry = match kernel.agent(snapshot, &id) {
                Ok(entry) => entry,
                Err(fault) => return Ok(Err(AgentResponse::error(FailureClass::Config, fault.to_string()))),
            };
            if let Some(Err(reason)) = entry.own_input.then(|| entry.tool.parameters(text)) {
                return Ok(Err(AgentResponse::error(
                    FailureClass::Config,
                    format!("agent `{id}` takes JSON: {reason}"),
                )));
            }
            let context = AgentInvocationContext {
                conversation_summary: summary(kernel, queued).await?,
                user_message: None,
                correlation_id: None,
            };
            Plan {
                agent: Arc::clone(&entry.agent),
                task: Task { text: text.to_owned(), context, ..Task::default() },
                limits: entry.limits.clone(),
                selected_by: Some(by),
            }
        }
        None => Plan {
            agent: Arc::clone(&snapshot.orchestrator) as Arc<dyn Agent>,
            task: Task { history: history(kernel, queued).await?, ..Task::new(inbound.ask.text.as_str()) },
            limits: snapshot.orchestrator.definition().limits.clone(),
            selected_by: None,
        },
    };
    if let Some(budget) = inbound.ask.time_budget_ms {
        plan.limits.time_budget_ms = plan.limits.time_budget_ms.min(budget);
    }
    if inbound.ask.model.is_some() || inbound.ask.output.is_some() {
        match altered(kernel, snapshot, &plan, queued) {
            Ok(agent) => plan.agent = agent,
            Err(reason) => return Ok(Err(AgentResponse::error(FailureClass::Config, reason))),
        }
    }
    Ok(Ok(plan))
}

/// The root with another model or form of answer, for this turn.
fn altered(
    kernel: &Kernel,
    snapshot: &Snapshot,
    plan: &Plan,
    queued: &QueuedTurn,
) -> Result<Arc<dyn Agent>, String> {
    let id = plan.agent.id();
    let looping: &LoopAgent =
        if id == &snapshot.orchestrator.definition().id {
            &snapshot.orchestrator
        } else {
            snapshot.agents.get(id).and_then(|a| a.looping.as_deref()).ok_or_else(|| {
                format!("agent `{id}` is code: it takes neither a model nor a form of answer")
            })?
        };
    let mut definition = looping.definition().clone();
    let mut model = Arc::clone(looping.model());
    if let Some(name) = &queued.inbound.ask.model {
        definition.models = vec![name.clone()];
        model = kernel
            .models
            // Whoever handed it in was asked then.
            .resolve_for(NamedBy::Operator, &definition.models, &definition.parameters, &definition.limits)
            .map_err(|e| e.to_string())?
            .model;
    }
    if let Some(output) = &queued.inbound.ask.output {
        // An earlier release may have taken it in.
        wiring::bounds::answer_fault(output).map_or(Ok(()), Err)?;
        definition.output = Some(output.clone());
    }
    let root = id == &snapshot.orchestrator.definition().id;
    Ok(Arc::new(LoopAgent::new(definition, Arc::clone(looping.registry()), model, root)))
}

/// Whether a message says who shall answer it, or how.
pub fn wants_its_own(inbound: &Inbound) -> bool {
    let chosen = inbound.ask.agent.is_some() || inbound.ask.model.is_some() || inbound.ask.output.is_some();
    chosen || inbound.ask.time_budget_ms.is_some() || addressed(&inbound.ask.text).0.is_some()
}

/// `@id …` at the start of a message: the agent, and the rest.
pub fn addressed(text: &str) -> (Option<Result<AgentId, String>>, &str) {
    let Some(rest) = text.trim_start().strip_prefix('@') else { return (None, text) };
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, task) = rest.split_at(end);
    if name.is_empty() {
        return (None, text);
    }
    let task = task.trim_start();
    let agent = AgentId::new(name).map_err(|error| error.to_string());
    match (&agent, task.is_empty()) {
        (Ok(agent), true) => (Some(Err(format!("write a task after `@{agent}`"))), text),
        _ => (Some(agent), task),
    }
}

/// Earlier turns as messages, newest kept first where they are too long.
async fn history(kernel: &Kernel, queued: &QueuedTurn) -> Result<Vec<Arc<Message>>, StoreError> {
    if queued.earlier_turns == 0 {
        return Ok(Vec::new());
    }
    let turns = kernel.store.conversation(&queued.inbound.ask.session, HISTORY).await?;
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
async fn summary(kernel: &Kernel, queued: &QueuedTurn) -> Result<Option<String>, StoreError> {
    if queued.earlier_turns == 0 {
        return Ok(None);
    }
    let turns = kernel.store.conversation(&queued.inbound.ask.session, SUMMARY).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_only_from_the_start() {
        let agent = |text| addressed(text).0.map(|a| a.map(|a| a.to_string()).map_err(|_| ()));
        assert_eq!(agent("@haiku rust"), Some(Ok("haiku".into())));
        assert_eq!(agent("  @haiku   rust"), Some(Ok("haiku".into())));
        assert_eq!(agent("mail me @haiku"), None);
        assert_eq!(agent("@ nothing"), None);
        assert_eq!(agent("@haiku"), Some(Err(())));
        assert_eq!(agent("@HAIKU x"), Some(Err(())));
        assert_eq!(addressed("@haiku  on rust").1, "on rust");
    }
}
