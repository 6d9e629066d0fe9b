//! One request to the model: its stream, and what it cost.

use std::pin::pin;

use drupe_extension_api::{EventBody, Item, ItemKind, ItemOutcome, Message, Preview, ToolCallRequest, Usage};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::{Progress, Stop};
use crate::{
    budget::Reservation,
    journal::Entry,
    model::{ModelEvent, ModelRequest, StopReason},
    run::{Over, millis},
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
    /// What they have used, and cost where that is known.
    failed_usage: Usage,
    failed_cost: Option<f64>,
}

/// The attempts of one step.
#[derive(Clone, Copy)]
struct Asked<'a> {
    step: u32,
    /// The first of them; those before were an earlier process's.
    attempt: u32,
    item: &'a str,
    began: Instant,
}

/// How the stream ended.
struct Ended {
    usage: Option<Usage>,
    stop: StopReason,
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
        let asked = Asked { step, attempt, item, began: Instant::now() };
        let mut got = Collected { failed_cost: Some(0.0), ..Collected::default() };
        let ended = self.stream(asked, reservation.max_output_tokens, &mut got).await;
        let latency_ms = millis(asked.began.elapsed());
        let ended = match ended {
            Ok(ended) => ended,
            Err(stop) => {
                self.run.budget.lose(reservation);
                let model = self.agent.model.profile().name.clone();
                self.attempt(asked, got.failed, model, None, &reason_of(&stop));
                self.item_done(item, &got.text, outcome_of(&stop), latency_ms);
                return Err(stop);
            }
        };
        let estimated = ended.usage.is_none();
        let mut usage = ended.usage.unwrap_or_else(|| self.estimate(&got));
        let cost_usd = self.cost(&usage);
        self.run.budget.settle(reservation, usage, cost_usd);
        self.attempt(asked, got.failed, ended.model.clone(), Some((usage, estimated)), ended.stop.name());
        if ended.stop == StopReason::Length {
            let message = format!("the answer of {} was cut off at its bound on tokens", ended.model);
            self.run.event(EventBody::Diagnostic { code: "answer_cut".into(), message });
        }
        // The step's record holds what all of its attempts have used.
        usage += got.failed_usage;
        let cost_usd = cost_usd.zip(got.failed_cost).map(|(last, failed)| last + failed);
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

    async fn stream(
        &self,
        asked: Asked<'_>,
        max_output_tokens: u32,
        got: &mut Collected,
    ) -> Result<Ended, Stop> {
        let shared = &self.agent.shared;
        let left = millis(self.run.budget.deadline().saturating_duration_since(Instant::now()));
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
        let mut over = pin!(self.run.over());
        loop {
            // Whether it is over comes first: a model that never pauses must not outrun its time.
            let event = tokio::select! {
                biased;
                over = &mut over => return Err(match over {
                    Over::Cancelled => Stop::Cancelled,
                    Over::Timeout => Stop::Timeout,
                }),
                event = events.next() => event,
            };
            match event {
                Some(ModelEvent::Text(delta)) => {
                    got.text.push_str(&delta);
                    self.delta(asked.item, ItemKind::AgentMessage, delta);
                }
                Some(ModelEvent::Reasoning(delta)) => {
                    got.reasoning.push_str(&delta);
                    self.delta(asked.item, ItemKind::Reasoning, delta);
                }
                Some(ModelEvent::ToolCall(call)) => got.calls.push(call),
                Some(ModelEvent::Retry { fault, model, usage }) => {
                    self.retry(asked, got, &fault.message, model, usage);
                }
                Some(ModelEvent::Done { usage, stop, model }) => return Ok(Ended { usage, stop, model }),
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

    /// An attempt failed, and another follows.
    fn retry(&self, asked: Asked<'_>, got: &mut Collected, fault: &str, model: String, usage: Option<Usage>) {
        let used = usage.unwrap_or_default();
        let cost = self.cost(&used);
        self.run.budget.recharge(used, cost);
        let live = EventBody::StreamReset { id: asked.item.to_owned(), reason: fault.to_owned() };
        self.run.live(live);
        let message = format!("an attempt with {model} failed and is repeated: {fault}");
        self.run.event(EventBody::Diagnostic { code: "model_retry".into(), message });
        self.attempt(asked, got.failed, model, usage.map(|usage| (usage, false)), fault);
        let mut failed_usage = got.failed_usage;
        failed_usage += used;
        let failed_cost = got.failed_cost.zip(cost).map(|(a, b)| a + b);
        *got = Collected { failed: got.failed + 1, failed_usage, failed_cost, ..Collected::default() };
    }

    /// The record of one attempt; usage that nobody reported is no usage, and marked as estimated.
    fn attempt(
        &self,
        asked: Asked<'_>,
        failed: u32,
        model: String,
        usage: Option<(Usage, bool)>,
        stop: &str,
    ) {
        let (usage, estimated) = usage.unwrap_or((Usage::default(), true));
        self.run.event(EventBody::ModelAttempt {
            step: asked.step,
            attempt: asked.attempt + failed,
            model,
            usage,
            estimated,
            latency_ms: millis(asked.began.elapsed()),
            stop: Preview::of(stop).text,
        });
    }

    fn cost(&self, usage: &Usage) -> Option<f64> {
        self.agent.model.profile().price.map(|price| price.cost(usage))
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

/// For the record of an attempt that gave no answer.
fn reason_of(stop: &Stop) -> String {
    match stop {
        Stop::Cancelled => "cancelled".into(),
        Stop::Timeout => "timeout".into(),
        Stop::Model(fault) => fault.message.clone(),
        Stop::Loop(reason) => reason.clone(),
        Stop::Exceeded(_) | Stop::Window { .. } | Stop::Journal(_) => "error".into(),
    }
}

fn outcome_of(stop: &Stop) -> ItemOutcome {
    match stop {
        Stop::Cancelled | Stop::Timeout => ItemOutcome::Cancelled,
        _ => ItemOutcome::Error,
    }
}
