//! A model that answers as was recorded.

use std::sync::{Arc, Mutex, PoisonError};

use drupe_agent::{Model, ModelBounds, ModelEvent, ModelFault, ModelProfile, ModelRequest, Price, Recipe};
use drupe_extension_api::{FailureClass, InvocationId, Message, Usage};
use futures_util::{StreamExt, stream, stream::BoxStream};

use crate::{
    feed::Feed,
    invocations::{AskEnd, AskedModel, FailedAttempt, RunRecord},
};

/// More tokens than any transcript has: the window of a model of which nothing is recorded.
const UNBOUNDED: u64 = 1 << 40;

/// The limit that a model without a price met, as it is told.
const NO_PRICE: &str = "allow_unknown_price";

/// Gives the recorded answers of one run, one a request and in order.
pub(crate) struct RecordedModel {
    run: InvocationId,
    feed: Arc<Feed>,
    /// What is known of the model before each request, and after the last.
    profiles: Vec<ModelProfile>,
    /// Bytes of a token before each request, where they are recorded.
    ratios: Vec<Option<f64>>,
    state: Arc<Mutex<Heard>>,
}

#[derive(Default)]
struct Heard {
    requests: usize,
    /// The price at which the present attempt cost what is recorded.
    price: Option<Price>,
}

impl RecordedModel {
    pub fn new(run: &InvocationId, record: &RunRecord, recipe: &Recipe, feed: &Arc<Feed>) -> Self {
        let profiles = record.asked.iter().map(|asked| profile(asked, recipe.model)).collect::<Vec<_>>();
        let mut last = profiles.last().cloned().unwrap_or_else(|| nobody(recipe));
        if record.exceeded.iter().any(|used| used.limit == NO_PRICE) {
            last.price = None;
        }
        Self {
            run: run.clone(),
            feed: Arc::clone(feed),
            ratios: record.asked.iter().map(|asked| asked.bytes_per_token).collect(),
            profiles: profiles.into_iter().chain([last]).collect(),
            state: Arc::default(),
        }
    }

    fn requests(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).requests
    }
}

fn flat(price: f64) -> Price {
    Price::flat(price, price, price)
}

fn profile(asked: &AskedModel, bounds: Option<ModelBounds>) -> ModelProfile {
    let most = u32::try_from(asked.reserved_tokens).unwrap_or(u32::MAX);
    let bounds = bounds.unwrap_or(ModelBounds {
        context_window: UNBOUNDED,
        // What was set aside holds the answer and the request.
        max_output_tokens: most,
        images: true,
    });
    ModelProfile {
        name: asked.model.clone(),
        context_window: bounds.context_window,
        max_output_tokens: bounds.max_output_tokens,
        price: asked.usd_per_token.map(|usd| flat(usd * 1_000_000.0)),
        // A recipe of one that calls none has none.
        tools: true,
        images: bounds.images,
    }
}

/// Of a run whose model was never asked.
fn nobody(recipe: &Recipe) -> ModelProfile {
    let bounds = recipe.model;
    ModelProfile {
        name: recipe.definition.models.first().cloned().unwrap_or_else(|| "unknown".into()),
        context_window: bounds.map_or(UNBOUNDED, |bounds| bounds.context_window),
        max_output_tokens: bounds.map_or(u32::MAX, |bounds| bounds.max_output_tokens),
        price: Some(flat(0.0)),
        tools: true,
        images: bounds.is_none_or(|bounds| bounds.images),
    }
}

impl Model for RecordedModel {
    fn profile(&self) -> &ModelProfile {
        let at = self.requests();
        let profile = &self.profiles[at.min(self.profiles.len() - 1)];
        if let Some(Some(bytes)) = self.ratios.get(at) {
            self.feed.ratios.seed([(profile.name.clone(), *bytes)]);
        }
        profile
    }

    fn price_of(&self, _: &str) -> Option<Price> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).price
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let at = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.requests += 1;
            state.requests - 1
        };
        let record = self.feed.run(&self.run);
        let asked = record.and_then(|record| record.asked.get(at));
        let Some((record, asked)) = record.zip(asked) else {
            let outside = record.and_then(RunRecord::ended_from_outside);
            return match outside {
                Some(why) => self.left(record, &why),
                None => none_recorded().boxed(),
            };
        };
        if let AskEnd::Stopped = asked.end {
            let why =
                record.ended_from_outside().unwrap_or_else(|| "the request has no end in the records".into());
            return self.left(Some(record), &why);
        }
        if asked.shown {
            self.feed.at_step(&self.run, asked.step);
            for message in record.steered.iter().filter(|message| message.step == asked.step) {
                // There is room for as many as were taken in at once.
                let _ = self.feed.steering.push(drupe_agent::Steered {
                    turn: message.turn.clone(),
                    text: message.text.clone(),
                    strangers: message.strangers.clone(),
                });
            }
            for given in record.given.iter().filter(|given| given.step == asked.step) {
                let text = self.feed.sent(record, given);
                self.feed.spawned.give(&self.run, given.effect.clone(), text);
            }
        }
        request.dispatch.goes_to(last_model(asked));
        let state = Arc::clone(&self.state);
        let events = stream::iter(events(asked)).map(move |(event, price)| {
            state.lock().unwrap_or_else(PoisonError::into_inner).price = price;
            event
        });
        events.boxed()
    }
}

impl RecordedModel {
    /// The run was ended from outside while its model was asked: no answer comes.
    fn left(&self, record: Option<&RunRecord>, why: &str) -> BoxStream<'static, ModelEvent> {
        let agent =
            record.and_then(|record| record.agent.as_ref()).map(ToString::to_string).unwrap_or_default();
        let whence = match record.is_some_and(|record| record.beside_its_caller) {
            true => "at which moment is not replayed",
            false => "what ended it comes from outside the loop",
        };
        self.feed.remark(format!("`{agent}` is replayed up to where {why}: {whence}"));
        self.feed.leave(&self.run, true);
        stream::pending().boxed()
    }
}

fn none_recorded() -> stream::Iter<std::vec::IntoIter<ModelEvent>> {
    let fault =
        ModelFault::fatal(FailureClass::Internal, "the recording holds no further answer of the model");
    stream::iter(vec![ModelEvent::Failed(fault)])
}

fn last_model(asked: &AskedModel) -> &str {
    match &asked.end {
        AskEnd::Answered { model, .. } => model,
        AskEnd::Failed(attempt) => &attempt.model,
        AskEnd::Stopped => &asked.model,
    }
}

/// What the stream yields, each with the price at which what comes up to then cost what is recorded.
fn events(asked: &AskedModel) -> Vec<(ModelEvent, Option<Price>)> {
    let mut all = Vec::new();
    let mut failed = asked.failed.iter().peekable();
    while let Some(attempt) = failed.next() {
        let next = failed.peek().map_or_else(|| last_model(asked).to_owned(), |next| next.model.clone());
        all.push((retry(attempt, next), price(&attempt.usage, attempt.cost_usd)));
    }
    match &asked.end {
        AskEnd::Answered { message, usage, cost_usd, stop, said, model } => {
            let price = price(usage, *cost_usd);
            let mut parts = parts(message, said);
            parts.push(ModelEvent::Done { usage: Some(*usage), stop: *stop, model: model.clone() });
            all.extend(parts.into_iter().map(|part| (part, price)));
        }
        AskEnd::Failed(attempt) if asked.no_room => {
            all.push((retry(attempt, attempt.model.clone()), price(&attempt.usage, attempt.cost_usd)));
            all.extend(none_recorded_events());
        }
        AskEnd::Failed(attempt) => {
            let (fault, usage) = fault(attempt);
            all.push((ModelEvent::Failed(fault.with_usage(usage)), price(&attempt.usage, attempt.cost_usd)));
        }
        AskEnd::Stopped => {}
    }
    all
}

fn none_recorded_events() -> Vec<(ModelEvent, Option<Price>)> {
    let fault = ModelFault::fatal(FailureClass::Internal, "the recording holds no further attempt");
    vec![(ModelEvent::Failed(fault), Some(flat(0.0)))]
}

fn parts(message: &Message, said: &str) -> Vec<ModelEvent> {
    let Message::Assistant { content, reasoning, tool_calls, provider_items } = message else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    parts.extend(reasoning.clone().map(ModelEvent::Reasoning));
    if !content.is_empty() {
        parts.push(ModelEvent::Text(content.clone()));
    }
    parts.extend(tool_calls.iter().cloned().map(ModelEvent::ToolCall));
    parts.extend(provider_items.clone().map(ModelEvent::ProviderItems));
    if !said.is_empty() {
        parts.push(ModelEvent::Said(said.to_owned()));
    }
    parts
}

fn retry(attempt: &FailedAttempt, next: String) -> ModelEvent {
    let (fault, usage) = fault(attempt);
    ModelEvent::Retry { fault, model: attempt.model.clone(), next, usage }
}

/// One that used nothing says so; else what it used counts as reported.
fn fault(attempt: &FailedAttempt) -> (ModelFault, Option<Usage>) {
    let fault = ModelFault::fatal(attempt.class, attempt.message.clone());
    match attempt.usage.total() {
        0 => (fault.unused(), None),
        _ => (fault, Some(attempt.usage)),
    }
}

/// The price for a million tokens of any kind at which so many cost so much.
fn price(usage: &Usage, cost_usd: Option<f64>) -> Option<Price> {
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    cost_usd.map(|usd| flat(if tokens == 0 { 0.0 } else { usd * 1_000_000.0 / tokens as f64 }))
}
