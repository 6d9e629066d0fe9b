//! What is done about failures: repeat, move on to the next model, or give up.
//!
//! `Chain` is the one [`Model`] that the rest of the program sees. It counts retries, keeps the request's time,
//! announces every further attempt, and asks each provider through its gate. It deliberately does not judge an
//! answer: only an attempt that says of itself that it failed is repeated.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use drupe_agent::{Model, ModelEvent, ModelFault, ModelProfile, ModelRequest, model::Price};
use drupe_extension_api::{FailureClass, ModelParameters};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{
    breaker::{Admission, Gate, Outcome},
    source::{Broken, Source, milliseconds},
};

/// The first wait; with jitter up to twice this.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Waits double up to this; longer ones are the provider's to ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A model of a [`Chain`], and the way in to its provider.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) gate: Arc<Gate>,
}

/// Models in order of preference, as one.
///
/// Each is asked at most `1 + max_retries` times, all together within the request's `timeout_ms`. A failure that
/// may pass is repeated after a wait: exponential with jitter, or what the provider asks for where that is longer.
/// Any other failure, a wait beyond the deadline, and a provider at rest lead to the next model at once. So does the
/// middle of the time that was left when a model's turn came: one that hangs must not use up the time of the others.
pub(crate) struct Chain {
    profile: ModelProfile,
    links: Arc<[Link]>,
}

impl Chain {
    /// None where there is no link.
    pub(crate) fn new(links: Vec<Link>) -> Option<Self> {
        let mut profile = links.first()?.source.profile().clone();
        for link in &links[1..] {
            narrow(&mut profile, link.source.profile());
        }
        Some(Self { profile, links: links.into() })
    }

    pub(crate) fn supports(&self, parameters: &ModelParameters) -> Result<(), (String, String)> {
        for link in self.links.iter() {
            link.source.supports(parameters).map_err(|what| (link.source.profile().name.clone(), what))?;
        }
        Ok(())
    }
}

/// Any model of a list may answer: what holds for the list is the least room and the highest price.
fn narrow(profile: &mut ModelProfile, other: &ModelProfile) {
    profile.context_window = profile.context_window.min(other.context_window);
    profile.max_output_tokens = profile.max_output_tokens.min(other.max_output_tokens);
    profile.price = profile.price.zip(other.price).map(|(a, b)| Price {
        input: a.input.max(b.input),
        cached: a.cached.max(b.cached),
        output: a.output.max(b.output),
    });
    profile.tools &= other.tools;
}

impl Model for Chain {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let now = Instant::now();
        let run = Box::new(Asking {
            links: Arc::clone(&self.links),
            deadline: now + milliseconds(request.timeout_ms),
            began: now,
            request: Arc::new(request),
            at: 0,
            retries: 0,
            waits: waits(),
            given_up: Vec::new(),
            stage: Stage::Ready,
        });
        stream::unfold(run, |mut run| async move { run.next().await.map(|event| (event, run)) }).boxed()
    }
}

/// A provider that asks for a slower pace is well: to rest it would fail the many for what it says to the few.
fn outcome(fault: &ModelFault) -> Outcome {
    match fault.retriable {
        true if fault.class == FailureClass::RateLimit => Outcome::Abandoned,
        true => Outcome::Failed,
        false => Outcome::Answered,
    }
}

fn waits() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .without_max_times()
        .with_jitter()
        .build()
}

/// One request on its way through the chain.
struct Asking {
    links: Arc<[Link]>,
    request: Arc<ModelRequest>,
    deadline: Instant,
    /// When the turn of the model at `at` came.
    began: Instant,
    at: usize,
    retries: u32,
    waits: ExponentialBackoff,
    /// Models that failed for good, with why.
    given_up: Vec<String>,
    stage: Stage,
}

enum Stage {
    Ready,
    Waiting(Instant),
    Streaming(Attempt),
    Ended,
}

struct Attempt {
    pieces: BoxStream<'static, Result<ModelEvent, Broken>>,
    place: Admission,
    deadline: Instant,
}

impl Asking {
    async fn next(&mut self) -> Option<ModelEvent> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Ended => return None,
                Stage::Waiting(until) => {
                    sleep_until(until).await;
                    self.stage = Stage::Ready;
                }
                Stage::Ready => match self.links[self.at].gate.enter(self.deadline).await {
                    Ok(place) => self.stage = Stage::Streaming(self.attempt(place)),
                    Err(fault) => return Some(self.give_up(fault.into())),
                },
                Stage::Streaming(attempt) => return Some(self.advance(attempt).await),
            }
        }
    }

    fn attempt(&self, place: Admission) -> Attempt {
        let link = &self.links[self.at];
        Attempt {
            pieces: link.source.attempt(Arc::clone(&self.request)),
            place,
            deadline: self.deadline.min(Instant::now() + link.gate.attempt_timeout),
        }
    }

    async fn advance(&mut self, mut attempt: Attempt) -> ModelEvent {
        match timeout_at(attempt.deadline, attempt.pieces.next()).await {
            Ok(Some(Ok(event @ ModelEvent::Done { .. }))) => {
                attempt.place.end(Outcome::Answered);
                event
            }
            Ok(Some(Ok(event))) => {
                self.stage = Stage::Streaming(attempt);
                event
            }
            Ok(Some(Err(broken))) => self.failed(attempt, broken),
            Ok(None) => {
                let text = format!("the answer of `{}` has no end", self.model());
                self.failed(attempt, ModelFault::transient(FailureClass::Model, text).into())
            }
            Err(_) => {
                let text = format!("`{}` did not finish its answer in time", self.model());
                self.failed(attempt, ModelFault::transient(FailureClass::Timeout, text).into())
            }
        }
    }

    fn failed(&mut self, attempt: Attempt, broken: Broken) -> ModelEvent {
        attempt.place.end(outcome(&broken.fault));
        if !broken.fault.retriable || self.retries >= self.request.max_retries.max(2) {
            return self.give_up(broken);
        }
        let asked = milliseconds(broken.fault.retry_after_ms.unwrap_or(0));
        let until = Instant::now() + self.waits.next().unwrap_or(LONGEST_WAIT).max(asked);
        if until >= self.last_retry() {
            return self.give_up(broken);
        }
        self.retries += 1;
        self.stage = Stage::Waiting(until);
        self.retry(broken)
    }

    /// Up to when this model may be asked once more.
    fn last_retry(&self) -> Instant {
        match self.at + 1 < self.links.len() {
            true => self.began + self.deadline.saturating_duration_since(self.began) / 2,
            false => self.deadline,
        }
    }

    /// Done with this model: on to the next one, or to the end.
    fn give_up(&mut self, broken: Broken) -> ModelEvent {
        if self.at + 1 < self.links.len() && Instant::now() < self.deadline {
            let event = self.retry(broken.clone());
            self.given_up.push(broken.fault.message);
            self.at += 1;
            self.began = Instant::now();
            self.retries = 0;
            self.waits = waits();
            self.stage = Stage::Ready;
            return event;
        }
        let mut fault = broken.fault;
        if !self.given_up.is_empty() {
            fault.message =
                format!("no model of the list answered: {}; {}", self.given_up.join("; "), fault.message);
        }
        ModelEvent::Failed(fault)
    }

    fn retry(&self, broken: Broken) -> ModelEvent {
        tracing::debug!(model = self.model(), fault = %broken.fault, "another attempt follows");
        ModelEvent::Retry { fault: broken.fault, model: self.model().to_owned(), usage: broken.usage }
    }

    fn model(&self) -> &str {
        &self.links[self.at].source.profile().name
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
