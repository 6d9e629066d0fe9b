//! The stream of one answer: its parts as they come, and the attempts that fail on the way.

use std::{pin::pin, time::Duration};

use drupe_extension_api::{EventBody, FailureClass, ItemKind, ProviderItems, ToolCallRequest, Usage};
use futures_util::{StreamExt, stream::BoxStream};
use tokio::time::Instant;

use super::{Progress, Stop, ask::Reserved, attempts::Failure, usage::Made};
use crate::{
    images::Weight,
    journal::reasoning_id,
    model::{ModelEvent, ModelFault, StopReason},
};

/// What came of a stream so far.
pub(super) struct Collected {
    /// When the present attempt began. The time before a repetition, which the model waits, counts as its own.
    pub began: Instant,
    /// When the first piece of an answer came.
    pub first: Option<Instant>,
    /// The model of the present attempt, as `provider/model`.
    pub model: String,
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<ToolCallRequest>,
    pub provider_items: Option<ProviderItems>,
    /// What the provider said of how it ended.
    pub said: String,
    /// When reasoning first came, and for how long it has. Attempts that are repeated share one item.
    pub reasoned: Option<(Instant, Duration)>,
    /// Attempts that failed before this one.
    pub failed: u32,
}

/// The attempts of one request.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub step: u32,
    /// The first of them; those before were an earlier process's.
    pub attempt: u32,
    /// None where nobody is shown the answer.
    pub item: Option<&'a str>,
    pub weight: Weight,
    pub began: Instant,
    /// Until when it may take, where nobody waits for it.
    pub until: Option<Instant>,
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
            first: None,
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            provider_items: None,
            said: String::new(),
            reasoned: None,
            failed: 0,
        }
    }

    /// Whether nothing of the answer came.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }

    /// Size of what came of it.
    pub(super) fn bytes(&self) -> usize {
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
        reserved: &mut Reserved,
    ) -> Result<Ended, Stop> {
        let mut over = pin!(self.run.over());
        let mut spared = pin!(self.spared(asked.until));
        loop {
            // Whether it is over comes first: a model that never pauses must not outrun its time.
            let event = tokio::select! {
                biased;
                over = &mut over => return Err(over.into()),
                stop = &mut spared => return Err(stop),
                event = events.next() => event,
            };
            if let Some(ModelEvent::Text(_) | ModelEvent::Reasoning(_) | ModelEvent::ToolCall(_)) = &event {
                got.first.get_or_insert_with(Instant::now);
            }
            match event {
                Some(ModelEvent::Text(delta)) => {
                    got.text.push_str(&delta);
                    self.delta(asked.item, ItemKind::AgentMessage, delta);
                }
                Some(ModelEvent::Reasoning(delta)) => self.reasoning(asked, got, delta),
                Some(ModelEvent::ToolCall(call)) => got.calls.push(call),
                Some(ModelEvent::ProviderItems(items)) => got.provider_items = Some(items),
                Some(ModelEvent::Said(words)) => got.said = words,
                Some(ModelEvent::Retry { fault, model, next, usage }) => {
                    got.model = model;
                    self.retry(asked, got, fault.with_usage(usage), next, reserved)?
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
        let now = Instant::now();
        match &mut got.reasoned {
            Some((began, lasted)) => *lasted = now - *began,
            None => got.reasoned = Some((now, Duration::ZERO)),
        }
        self.delta(Some(&reasoning_id(item)), ItemKind::Reasoning, delta);
    }

    /// An attempt failed, and another follows, unless a limit leaves no room for it.
    fn retry(
        &self,
        asked: Asked<'_>,
        got: &mut Collected,
        fault: ModelFault,
        next: String,
        reserved: &mut Reserved,
    ) -> Result<(), Stop> {
        let made = Made::new(asked.weight, got, reserved);
        let (used, estimated) = self.used_by_a_failure(made, &fault, fault.usage);
        let cost_usd = self.cost(&got.model, &used);
        let goes_on = self.follow(reserved, used, cost_usd);
        for id in [asked.item.map(str::to_owned), got.reasoned.and(asked.item).map(reasoning_id)] {
            let Some(id) = id.filter(|_| self.watched()) else { continue };
            self.run.live(EventBody::StreamReset { id, reason: fault.message.clone() });
        }
        if let Err(stop) = &goes_on {
            let (model, why) = (&got.model, stop.reason());
            let what =
                format!("an attempt with {model} failed, and there is no room to repeat it ({why}): {fault}");
            self.diagnostic("model_retry", &what);
        }
        let failure = Failure { used: (used, estimated), cost_usd, ..Failure::of(&Stop::Model(fault)) };
        self.record_failure(asked, got, failure, goes_on.as_ref().err().map(Stop::outcome));
        *got = Collected { failed: got.failed + 1, reasoned: got.reasoned, ..Collected::new(next) };
        goes_on
    }

    fn delta(&self, id: Option<&str>, item: ItemKind, delta: String) {
        if let Some(id) = id.filter(|_| self.watched()) {
            self.run.live(EventBody::ItemUpdated { id: id.to_owned(), item, delta });
        }
    }

    fn watched(&self) -> bool {
        self.run.scope.observer.watched(&self.run.scope.session)
    }
}
