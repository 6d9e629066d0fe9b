//! One request to the model: its stream, and what it cost.

use drupe_extension_api::{EventBody, Item, ItemKind, ItemOutcome, Message, Preview, ToolCallRequest, Usage};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::{Progress, Stop};
use crate::{
    budget::Reservation,
    journal::Entry,
    model::{ModelEvent, ModelRequest},
};

/// Time for one model request where the agent names none.
const REQUEST_TIMEOUT_MS: u64 = 120_000;

/// What came of a stream so far.
#[derive(Default)]
struct Collected {
    text: String,
    reasoning: String,
    calls: Vec<ToolCallRequest>,
    /// Attempts that failed before this one.
    failed: u32,
}

/// How the stream ended.
struct Ended {
    usage: Option<Usage>,
    stop: &'static str,
    model: String,
}

impl Progress<'_> {
    /// Asks the model and records its answer in the run's next commit.
    pub(super) async fn ask(
        &mut self,
        step: u32,
        attempt: u32,
        item: &str,
        reservation: Reservation,
    ) -> Result<Message, Stop> {
        let began = Instant::now();
        let mut got = Collected::default();
        let ended = self.stream(item, reservation.max_output_tokens, &mut got).await;
        let latency_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ended = match ended {
            Ok(ended) => ended,
            Err(stop) => {
                self.run.budget.lose(reservation);
                self.item_done(item, &got.text, outcome_of(&stop), latency_ms);
                return Err(stop);
            }
        };
        let estimated = ended.usage.is_none();
        let usage = ended.usage.unwrap_or_else(|| self.estimate(&got));
        let price = self.agent.model.profile().price;
        let cost_usd = price.map(|price| price.cost(&usage));
        self.run.budget.settle(reservation, usage, cost_usd);
        self.run.event(EventBody::ModelAttempt {
            step,
            attempt: attempt + got.failed,
            model: ended.model.clone(),
            usage,
            estimated,
            latency_ms,
            stop: ended.stop.into(),
        });
        self.item_done(item, &got.text, ItemOutcome::Ok, latency_ms);
        let message = Message::Assistant {
            content: got.text,
            reasoning: Some(got.reasoning).filter(|r| !r.is_empty()),
            tool_calls: got.calls,
        };
        self.run.record(Entry::Answer {
            invocation: self.run.id.clone(),
            step,
            message: message.clone(),
            model: ended.model,
            usage,
            cost_usd,
        });
        Ok(message)
    }

    async fn stream(&self, item: &str, max_output_tokens: u32, got: &mut Collected) -> Result<Ended, Stop> {
        let shared = &self.agent.shared;
        let deadline = self.run.budget.deadline();
        let left =
            u64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX);
        let mut events = self.agent.model.stream(ModelRequest {
            agent: shared.card.clone(),
            system: shared.system.clone(),
            messages: self.messages.clone(),
            tools: self.agent.registry.specs().clone(),
            parameters: shared.parameters.clone(),
            max_output_tokens,
            output: shared.output.clone(),
            timeout_ms: shared.parameters.timeout_ms.unwrap_or(REQUEST_TIMEOUT_MS).min(left),
            max_retries: self.agent.definition.limits.max_retries,
        });
        loop {
            let event = tokio::select! {
                biased;
                () = self.run.cancel.cancelled() => return Err(Stop::Cancelled),
                event = events.next() => event,
                () = tokio::time::sleep_until(deadline) => return Err(Stop::Timeout),
            };
            match event {
                Some(ModelEvent::Text(delta)) => {
                    got.text.push_str(&delta);
                    self.delta(item, ItemKind::AgentMessage, delta);
                }
                Some(ModelEvent::Reasoning(delta)) => {
                    got.reasoning.push_str(&delta);
                    self.delta(item, ItemKind::Reasoning, delta);
                }
                Some(ModelEvent::ToolCall(call)) => got.calls.push(call),
                Some(ModelEvent::Retry { fault, model, usage }) => {
                    let failed = got.failed + 1;
                    *got = Collected { failed, ..Collected::default() };
                    self.run.budget.recharge(usage.unwrap_or_default(), None, 0);
                    self.run
                        .live(EventBody::StreamReset { id: item.to_owned(), reason: fault.message.clone() });
                    let message =
                        format!("an attempt with {model} failed and is repeated: {}", fault.message);
                    self.run.event(EventBody::Diagnostic { code: "model_retry".into(), message });
                }
                Some(ModelEvent::Done { usage, stop, model }) => {
                    return Ok(Ended { usage, stop: stop.name(), model });
                }
                Some(ModelEvent::Failed(fault)) => return Err(Stop::Model(fault)),
                None => {
                    let message = "the model's stream ended without an end";
                    let fault =
                        crate::model::ModelFault::fatal(drupe_extension_api::FailureClass::Internal, message);
                    return Err(Stop::Model(fault));
                }
            }
        }
    }

    fn delta(&self, id: &str, item: ItemKind, delta: String) {
        self.run.live(EventBody::ItemUpdated { id: id.to_owned(), item, delta });
    }

    fn item_done(&self, id: &str, text: &str, outcome: ItemOutcome, elapsed_ms: u64) {
        let item = Item {
            id: id.to_owned(),
            kind: ItemKind::AgentMessage,
            name: None,
            input: None,
            output: Some(Preview::of(text)),
        };
        self.run.event(EventBody::ItemCompleted { item, outcome, elapsed_ms });
    }

    /// Usage for a provider that reports none.
    fn estimate(&self, got: &Collected) -> Usage {
        let tokens = |bytes: usize| (bytes / super::BYTES_PER_TOKEN) as u64;
        let calls: usize = got.calls.iter().map(|c| c.name.len() + c.arguments.len()).sum();
        Usage {
            input_tokens: tokens(self.bytes),
            output_tokens: tokens(got.text.len() + got.reasoning.len() + calls),
            ..Usage::default()
        }
    }
}

fn outcome_of(stop: &Stop) -> ItemOutcome {
    match stop {
        Stop::Cancelled | Stop::Timeout => ItemOutcome::Cancelled,
        _ => ItemOutcome::Error,
    }
}
