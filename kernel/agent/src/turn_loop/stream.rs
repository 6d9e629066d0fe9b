//! The stream of one answer: its parts as they come, and the attempts that fail on the way.

use std::{pin::pin, time::Duration};

use drupe_extension_api::{
    EventBody, FailureClass, Item, ItemKind, ItemOutcome, Preview, ProviderItems, ToolCallRequest, Usage,
};
use futures_util::{StreamExt, stream::BoxStream};
use tokio::time::Instant;

use super::{Progress, Stop};
use crate::{
    budget::Spent,
    model::{ModelEvent, ModelFault, StopReason},
    run::millis,
};

/// What came of a stream so far.
pub(super) struct Collected {
    /// When the present attempt began. The time before a repetition, which the model waits, counts as its own.
    began: Instant,
    /// The model of the present attempt, as `provider/model`.
    pub model: String,
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<ToolCallRequest>,
    pub provider_items: Option<ProviderItems>,
    /// When reasoning first came, and for how long it has. Attempts that are repeated share one item.
    reasoned: Option<(Instant, Duration)>,
    /// Attempts that failed before this one.
    pub failed: u32,
    /// What they have used, and cost where that is known.
    pub failed_usage: Usage,
    pub failed_cost: Option<f64>,
    /// Whether some of `failed_usage` is an estimate.
    pub failed_estimated: bool,
}

/// The attempts of one request.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub step: u32,
    /// The first of them; those before were an earlier process's.
    pub attempt: u32,
    /// None where nobody is shown the answer.
    pub item: Option<&'a str>,
    /// Size of the request.
    pub bytes: usize,
    pub began: Instant,
}

/// How the stream ended.
pub(super) struct Ended {
    pub usage: Option<Usage>,
    pub stop: StopReason,
    pub model: String,
}

impl Collected {
    pub(super) fn new(model: String) -> Self {
        Self {
            began: Instant::now(),
            model,
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            provider_items: None,
            reasoned: None,
            failed: 0,
            failed_usage: Usage::default(),
            failed_cost: Some(0.0),
            failed_estimated: false,
        }
    }

    /// Whether nothing of the answer came.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }

    fn bytes(&self) -> usize {
        let calls: usize = self.calls.iter().map(|c| c.name.len() + c.arguments.len()).sum();
        self.text.len() + self.reasoning.len() + calls
    }
}

impl Progress<'_> {
    /// Reads a stream to its end. Dropping it closes the request.
    pub(super) async fn read(
        &self,
        asked: Asked<'_>,
        mut events: BoxStream<'static, ModelEvent>,
        got: &mut Collected,
    ) -> Result<Ended, Stop> {
        let mut over = pin!(self.run.over());
        loop {
            // Whether it is over comes first: a model that never pauses must not outrun its time.
            let event = tokio::select! {
                biased;
                over = &mut over => return Err(over.into()),
                event = events.next() => event,
            };
            match event {
                Some(ModelEvent::Text(delta)) => {
                    got.text.push_str(&delta);
                    self.delta(asked.item, ItemKind::AgentMessage, delta);
                }
                Some(ModelEvent::Reasoning(delta)) => self.reasoning(asked, got, delta),
                Some(ModelEvent::ToolCall(call)) => got.calls.push(call),
                Some(ModelEvent::ProviderItems(items)) => got.provider_items = Some(items),
                Some(ModelEvent::Retry { fault, model, next, usage }) => {
                    got.model = model;
                    self.retry(asked, got, &fault, next, usage)?
                }
                Some(ModelEvent::Done { usage, stop, model }) => return Ok(Ended { usage, stop, model }),
                Some(ModelEvent::Failed(fault)) => return Err(Stop::Model(fault)),
                None => {
                    let message = "the model's stream ended without an end";
                    return Err(Stop::Model(ModelFault::fatal(FailureClass::Internal, message)));
                }
            }
        }
    }

    fn reasoning(&self, asked: Asked<'_>, got: &mut Collected, delta: String) {
        got.reasoning.push_str(&delta);
        let Some(item) = asked.item else { return };
        let id = reasoning_id(item);
        let now = Instant::now();
        match &mut got.reasoned {
            Some((began, lasted)) => *lasted = now - *began,
            None => {
                got.reasoned = Some((now, Duration::ZERO));
                let item =
                    Item { id: id.clone(), kind: ItemKind::Reasoning, name: None, input: None, output: None };
                self.run.event(EventBody::ItemStarted { item });
            }
        }
        self.delta(Some(&id), ItemKind::Reasoning, delta);
    }

    /// An attempt failed, and another follows: what was reserved for it stays so, unless a limit is passed by now.
    fn retry(
        &self,
        asked: Asked<'_>,
        got: &mut Collected,
        fault: &ModelFault,
        next: String,
        usage: Option<Usage>,
    ) -> Result<(), Stop> {
        let (used, estimated) = self.used_by_a_failure(asked.bytes, got, fault, usage);
        let cost = self.cost(&got.model, &used);
        self.run.budget.charge(Spent::of(used, cost));
        for id in [asked.item.map(str::to_owned), got.reasoned.and(asked.item).map(reasoning_id)] {
            let Some(id) = id.filter(|_| self.watched()) else { continue };
            self.run.live(EventBody::StreamReset { id, reason: fault.message.clone() });
        }
        let message = format!("an attempt with {} failed and is repeated: {fault}", got.model);
        self.diagnostic("model_retry", &message);
        self.attempt(asked, got, (used, estimated), &fault.message);
        let mut failed_usage = got.failed_usage;
        failed_usage += used;
        *got = Collected {
            failed: got.failed + 1,
            failed_usage,
            failed_cost: got.failed_cost.zip(cost).map(|(a, b)| a + b),
            failed_estimated: got.failed_estimated || (estimated && used.total() > 0),
            reasoned: got.reasoned,
            ..Collected::new(next)
        };
        self.charge_quotas(used.total(), cost)?;
        self.run.budget.overdrawn().map_or(Ok(()), |exceeded| Err(exceeded.into()))
    }

    /// What an attempt that failed has used, and whether that is an estimate. What was reported of an answer that broke
    /// off was counted before it did.
    pub(super) fn used_by_a_failure(
        &self,
        bytes: usize,
        got: &Collected,
        fault: &ModelFault,
        reported: Option<Usage>,
    ) -> (Usage, bool) {
        if got.is_empty() && reported.is_none() && fault.used_nothing() {
            return (Usage::default(), true);
        }
        let least = self.estimate(bytes, got);
        let Some(reported) = reported else { return (least, true) };
        let used = Usage {
            input_tokens: if reported.input_tokens > 0 { reported.input_tokens } else { least.input_tokens },
            output_tokens: reported.output_tokens.max(least.output_tokens),
            ..reported
        };
        (used, used != reported)
    }

    /// The record of the present attempt.
    pub(super) fn attempt(
        &self,
        asked: Asked<'_>,
        got: &Collected,
        (usage, estimated): (Usage, bool),
        stop: &str,
    ) {
        self.run.event(EventBody::ModelAttempt {
            step: asked.step,
            attempt: asked.attempt + got.failed,
            model: got.model.clone(),
            usage,
            estimated,
            latency_ms: millis(got.began.elapsed()),
            stop: Preview::of(stop).text,
            cost_usd: self.cost(&got.model, &usage),
        });
    }

    /// What that model takes for it: of a list each has its own price.
    pub(super) fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        self.agent.model.price_of(model).map(|price| price.cost(usage))
    }

    fn delta(&self, id: Option<&str>, item: ItemKind, delta: String) {
        if let Some(id) = id.filter(|_| self.watched()) {
            self.run.live(EventBody::ItemUpdated { id: id.to_owned(), item, delta });
        }
    }

    fn watched(&self) -> bool {
        self.run.scope.observer.watched(&self.run.scope.session)
    }

    /// Ends what people were shown of the answer.
    pub(super) fn items_done(&self, asked: Asked<'_>, got: &Collected, outcome: ItemOutcome) {
        let Some(id) = asked.item else { return };
        let done = |id: String, kind, text: &str, elapsed: Duration| {
            let output = Some(Preview::kept(text, &id));
            let item = Item { id, kind, name: None, input: None, output };
            self.run.event(EventBody::ItemCompleted { item, outcome, elapsed_ms: millis(elapsed) });
        };
        if let Some((_, lasted)) = got.reasoned {
            done(reasoning_id(id), ItemKind::Reasoning, &got.reasoning, lasted);
        }
        done(id.to_owned(), ItemKind::AgentMessage, &got.text, asked.began.elapsed());
        if outcome != ItemOutcome::Ok {
            self.run.item_failed();
        }
    }

    /// Usage for a provider that reports none.
    pub(super) fn estimate(&self, request: usize, got: &Collected) -> Usage {
        let tokens = |bytes| self.run.scope.ratios.tokens(&got.model, bytes);
        Usage { input_tokens: tokens(request), output_tokens: tokens(got.bytes()), ..Usage::default() }
    }
}

/// The item of the reasoning that belongs to a message.
fn reasoning_id(message: &str) -> String {
    format!("{message}.r")
}
