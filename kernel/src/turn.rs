//! One turn: from the accepted message to the recorded answer.

use std::sync::Arc;

use drupe_agent::{
    Agent, Journal, LoopAgent, Steering, Task, TurnScope, ids,
    run::{self, TurnOutcome},
};
use drupe_extension_api::{
    AgentId, AgentInvocationContext, AgentResponse, CorrelationId, EventBody, FailureClass, Message, Preview,
    Spend, TurnId, wire::TurnContext,
};
use drupe_journal::{Counted, Inbound, Outbound, QueuedTurn, StoreError, TurnDone, TurnStart};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use drupe_wiring::Snapshot;

use crate::{channels, kernel::Kernel};

/// Earlier turns that the orchestrator is shown.
const HISTORY: usize = 20;

/// The most bytes of them; older ones are left out first.
const HISTORY_BYTES: usize = 32 * 1024;

/// The most bytes of one of their texts.
const EXCERPT: usize = 8 * 1024;

/// Earlier turns that an agent which is addressed directly is told of.
const SUMMARY: usize = 3;

/// Starts of a turn after which a further crash is taken to be its doing.
const MOST_STARTS: u32 = 3;

/// Who answers, with what.
struct Plan {
    agent: Arc<dyn Agent>,
    task: Task,
    limits: drupe_extension_api::DefinitionLimits,
    selected_by: Option<&'static str>,
}

/// What a turn runs with that its session has.
#[derive(Clone)]
pub struct Within {
    /// Cancelled when it is to end.
    pub cancel: CancellationToken,
    /// The session's gate.
    pub gate: Arc<Semaphore>,
    /// Messages that it may take in.
    pub steering: Arc<Steering>,
}

/// Answers a message, or goes on answering it where an earlier kernel was interrupted.
pub async fn answer(kernel: &Arc<Kernel>, queued: QueuedTurn, within: Within) -> Result<(), StoreError> {
    let snapshot = kernel.snapshot();
    let inbound = &queued.inbound;
    let correlation = match &queued.correlation {
        Some(correlation) => correlation.clone(),
        None => CorrelationId::new(uuid::Uuid::now_v7().simple().to_string())
            .map_err(|error| StoreError::Record(error.to_string()))?,
    };
    if queued.started {
        kernel.store.close_open_items(&queued.turn).await?;
    }
    open_session(kernel, &queued).await?;
    let plan = plan(kernel, &snapshot, &queued).await?;
    let mut start = TurnStart {
        turn: queued.turn.clone(),
        session: inbound.session.clone(),
        root: ids::root_invocation(&queued.turn),
        correlation: correlation.clone(),
        events: Vec::new(),
    };
    if !queued.started {
        start.events.push((None, EventBody::TurnStarted { input: Preview::of(&inbound.text) }));
        if let Ok(Plan { selected_by: Some(by), .. }) = &plan {
            start.events.push((None, EventBody::SubagentSelected { by: (*by).to_owned() }));
        }
    }
    let mut plan = match plan {
        Ok(plan) => plan,
        Err(response) => return nothing_ran(kernel, queued, start, response).await,
    };
    // A turn that goes on has what was gathered for it then.
    let mut remarks = Vec::new();
    if !queued.started
        && !snapshot.contexts.is_empty()
        && Arc::ptr_eq(&plan.agent, &(snapshot.orchestrator.clone() as Arc<dyn Agent>))
    {
        let context = TurnContext { session: inbound.session.clone(), message: inbound.text.clone() };
        let gathered = snapshot.contexts.gather(&context, kernel.config.orchestrator.context_tokens).await;
        plan.task.notes = gathered.notes;
        remarks = gathered.remarks;
        let told = |message| (None, EventBody::Diagnostic { code: "context".into(), message });
        start.events.extend(remarks.iter().cloned().map(told));
    }
    // As for sub-agents; the orchestrator is the turn itself, which has a gate of its own.
    let _place = match plan.agent.id() == &snapshot.orchestrator.definition().id {
        true => None,
        false => within.cancel.run_until_cancelled(kernel.gates.agent(plan.agent.id())).await,
    };
    let journal: Arc<dyn Journal>;
    let mut fresh = None;
    if queued.started {
        let starts = kernel.store.start_turn(start.clone()).await?;
        if kills(kernel, starts) {
            return nothing_ran(kernel, queued, start, hopeless(starts)).await;
        }
        journal = Arc::new(kernel.store.clone());
    } else {
        // Its beginning is one transaction with the first thing that it does.
        let beginning = kernel.store.beginning(start);
        journal = Arc::clone(&beginning) as Arc<dyn Journal>;
        fresh = Some(beginning);
    }
    let span = tracing::info_span!("turn", session = %inbound.session, turn = %queued.turn, correlation = %correlation);
    let _showing = channels::stream(kernel, &snapshot, &queued);
    let scope = Arc::new(TurnScope {
        correlation,
        base_folder: kernel.home.workspace().clone(),
        observer: Arc::clone(&kernel.bus) as Arc<dyn drupe_agent::Observer>,
        clock: Arc::clone(&kernel.clock),
        gate: within.gate,
        tool_response_max_bytes: kernel.config.tool_response_max_bytes,
        resumed: queued.started,
        chain: inbound.chain.clone(),
        quotas: Arc::clone(&kernel.quotas),
        gates: Arc::clone(&kernel.gates),
        hooks: Arc::clone(&snapshot.hooks) as Arc<dyn drupe_agent::Hooks>,
        topics: Arc::clone(&kernel.bus) as Arc<dyn drupe_agent::Topics>,
        steering: within.steering,
        ratios: Arc::clone(&kernel.ratios),
        diagnostics: remarks.iter().map(|remark| format!("context: {remark}")).collect::<Vec<_>>().into(),
        ..TurnScope::new(inbound.session.clone(), queued.turn.clone(), inbound.text.clone(), journal)
    });
    let running = run::run_turn(scope, &plan.agent, plan.task, &plan.limits, within.cancel);
    let outcome = tracing::Instrument::instrument(running, span)
        .await
        .map_err(|fault| StoreError::Database(fault.to_string()))?;
    let start = fresh.and_then(|beginning| beginning.rest());
    // What it did not take in is still in the journal: its session looks there.
    let TurnOutcome { response, spend, diagnostics, last, unread: _ } = outcome;
    finish(kernel, queued, start, Left { response, spend, diagnostics, last: Some(last) }).await
}

/// What the session has used so far counts against its limits.
async fn open_session(kernel: &Kernel, queued: &QueuedTurn) -> Result<(), StoreError> {
    let session = &queued.inbound.session;
    let new = queued.earlier_turns == 0 && !queued.started;
    let used = if new { Counted::default() } else { kernel.store.used_by_session(session).await? };
    kernel.quotas.open_session(session, crate::settings::counted(used));
    Ok(())
}

/// Decides who answers. An explicit choice that cannot be met is the turn's answer.
async fn plan(
    kernel: &Arc<Kernel>,
    snapshot: &Snapshot,
    queued: &QueuedTurn,
) -> Result<Result<Plan, AgentResponse>, StoreError> {
    let inbound = &queued.inbound;
    let (addressed, text) = addressed(&inbound.text);
    let chosen = match (&inbound.agent, addressed) {
        (Some(agent), _) => Some((agent.clone(), "agent", inbound.text.as_str())),
        (None, Some(Ok(agent))) => Some((agent, "@id", text)),
        (None, Some(Err(reason))) => return Ok(Err(AgentResponse::error(FailureClass::Config, reason))),
        (None, None) => queued.selected.clone().map(|agent| (agent, "session", inbound.text.as_str())),
    };
    let mut plan = match chosen {
        Some((id, by, text)) => {
            let entry = match kernel.offered(&id).and_then(|()| snapshot.agent(&id)) {
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
            task: Task { history: history(kernel, queued).await?, ..Task::new(inbound.text.as_str()) },
            limits: snapshot.orchestrator.definition().limits.clone(),
            selected_by: None,
        },
    };
    if let Some(budget) = inbound.time_budget_ms {
        plan.limits.time_budget_ms = plan.limits.time_budget_ms.min(budget);
    }
    if inbound.model.is_some() || inbound.output.is_some() {
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
    if let Some(name) = &queued.inbound.model {
        definition.models = vec![name.clone()];
        model = kernel
            .models
            .resolve_for(&definition.models, &definition.parameters)
            .map_err(|e| e.to_string())?
            .model;
    }
    if let Some(output) = &queued.inbound.output {
        if let Some(schema) = &output.schema {
            jsonschema::validator_for(schema)
                .map_err(|e| format!("the schema of the answer is not valid: {e}"))?;
        }
        definition.output = Some(output.clone());
    }
    let root = id == &snapshot.orchestrator.definition().id;
    Ok(Arc::new(LoopAgent::new(definition, Arc::clone(looping.registry()), model, root)))
}

/// Whether a message says who shall answer it, or how.
pub fn wants_its_own(inbound: &Inbound) -> bool {
    let chosen = inbound.agent.is_some() || inbound.model.is_some() || inbound.output.is_some();
    chosen || inbound.time_budget_ms.is_some() || addressed(&inbound.text).0.is_some()
}

/// `@id …` at the start of a message: the agent, and the rest.
fn addressed(text: &str) -> (Option<Result<AgentId, String>>, &str) {
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
    let turns = kernel.store.conversation(&queued.inbound.session, HISTORY).await?;
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
    let turns = kernel.store.conversation(&queued.inbound.session, SUMMARY).await?;
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

/// Ends a turn that cannot be answered, with an error.
pub async fn give_up(kernel: &Arc<Kernel>, turn: &TurnId, reason: &str) -> Result<(), StoreError> {
    let Some(queued) = kernel.store.queued(turn).await? else { return Ok(()) };
    end(kernel, queued, AgentResponse::error(FailureClass::Internal, reason)).await
}

/// Ends a turn without any run of an agent.
pub async fn end(
    kernel: &Arc<Kernel>,
    queued: QueuedTurn,
    response: AgentResponse,
) -> Result<(), StoreError> {
    kernel.store.close_open_items(&queued.turn).await?;
    finish(kernel, queued, None, without_a_run(response)).await
}

/// Ends a turn whose answer is clear before any agent runs.
async fn nothing_ran(
    kernel: &Arc<Kernel>,
    queued: QueuedTurn,
    start: TurnStart,
    response: AgentResponse,
) -> Result<(), StoreError> {
    let start = (!queued.started).then_some(start);
    finish(kernel, queued, start, without_a_run(response)).await
}

/// What a turn leaves to be recorded.
struct Left {
    response: AgentResponse,
    spend: Spend,
    diagnostics: Vec<String>,
    last: Option<drupe_agent::Batch>,
}

fn without_a_run(response: AgentResponse) -> Left {
    Left { response, spend: Spend::default(), diagnostics: Vec::new(), last: None }
}

/// Records the answer and what goes out, in one transaction, and has it delivered.
async fn finish(
    kernel: &Arc<Kernel>,
    queued: QueuedTurn,
    start: Option<TurnStart>,
    left: Left,
) -> Result<(), StoreError> {
    let Left { response, spend, diagnostics, last } = left;
    let inbound = queued.inbound;
    let (entries, mut events, messages) = last.map(|b| (b.entries, b.events, b.messages)).unwrap_or_default();
    events.push((
        None,
        EventBody::TurnCompleted {
            status: response.status,
            error: response.error.clone(),
            class: response.class,
            spend,
        },
    ));
    // Whether the channel is there at this moment does not matter: the row waits for it.
    let outbox = (!inbound.channel.is_empty()).then(|| Outbound {
        channel: inbound.channel.clone(),
        address: inbound.address.clone(),
        text: response.content.clone(),
    });
    let done = TurnDone {
        turn: queued.turn,
        response,
        spend,
        diagnostics,
        outbox,
        snapshot: None,
        events,
        entries,
        messages,
        start,
    };
    if kernel.store.finish_turn(done).await?.is_some() {
        kernel.deliveries.wake();
    }
    Ok(())
}

/// Whether a turn was begun so often, and the last kernel crashed, that it is taken to be what crashes kernels.
fn kills(kernel: &Kernel, starts: u32) -> bool {
    starts > MOST_STARTS && kernel.start.exits.first().is_some_and(|exit| exit.crash)
}

fn hopeless(starts: u32) -> AgentResponse {
    let message = format!(
        "it was begun {starts} times and the kernel crashed, so it is not tried again; `drupe status` shows the crashes"
    );
    AgentResponse::error(FailureClass::Internal, message)
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
