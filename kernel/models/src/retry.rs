//! What is done about failures: repeat, move on to the next model, or give up.
//!
//! `Chain` is the one [`Model`] that the rest of the program sees. It counts retries, keeps the request's time,
//! announces every further attempt, and asks each provider through its gate. It deliberately does not judge an
//! answer: only an attempt that says of itself that it failed is repeated.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use drupe_agent::{Model, ModelEvent, ModelFault, ModelProfile, ModelRequest, model::Price};
use drupe_extension_api::{FailureClass, ModelParameters};
use drupe_redact::Redactor;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::time::{Instant, sleep_until};

use crate::{
    alarm::{Alarm, Late},
    error::{ModelsError, Unsupported},
    gate::{Admission, Gate},
    redacted::redacted,
    source::{Broken, Progress, Source, Whose, milliseconds},
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
/// Any other failure, a wait beyond the deadline, and a model or provider at rest lead to the next model at once. So does the
/// middle of the time that was left when a model's turn came, unless the model is answering by then: one that hangs,
/// or has no place, must not use up the time of the others.
pub(crate) struct Chain {
    profile: ModelProfile,
    links: Arc<[Link]>,
    redactor: Redactor,
}

impl Chain {
    /// None where there is no link.
    pub(crate) fn new(links: Vec<Link>) -> Option<Self> {
        let mut profile = links.first()?.source.profile().clone();
        for link in &links[1..] {
            narrow(&mut profile, link.source.profile());
        }
        Some(Self { profile, links: links.into(), redactor: Redactor::default() })
    }

    /// The same with answers that hold none of its secrets.
    pub(crate) fn redacting(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    pub(crate) fn supports(&self, parameters: &ModelParameters) -> Result<(), (String, Unsupported)> {
        for link in self.links.iter() {
            link.source.supports(parameters).map_err(|what| (link.source.profile().name.clone(), what))?;
        }
        Ok(())
    }
}

/// Any model of a list may answer: what holds for the list is the least room and the highest price that is known.
pub(crate) fn narrow(profile: &mut ModelProfile, other: &ModelProfile) {
    profile.context_window = profile.context_window.min(other.context_window);
    profile.max_output_tokens = profile.max_output_tokens.min(other.max_output_tokens);
    profile.price = match (profile.price, other.price) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    profile.tools &= other.tools;
    profile.images |= other.images;
}

impl Model for Chain {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn names(&self) -> Vec<&str> {
        self.links.iter().map(|link| link.source.profile().name.as_str()).collect()
    }

    fn price_of(&self, model: &str) -> Option<Price> {
        self.links.iter().find_map(|link| link.source.price_of(model)).flatten()
    }

    fn unpriced(&self) -> Option<&str> {
        let mut profiles = self.links.iter().map(|link| link.source.profile());
        profiles.find(|profile| profile.price.is_none()).map(|profile| profile.name.as_str())
    }

    fn members(&self) -> Vec<Arc<dyn Model>> {
        let alone = |link: &Link| {
            let chain = Self::new(vec![link.clone()])?.redacting(self.redactor.clone());
            Some(Arc::new(chain) as Arc<dyn Model>)
        };
        match self.links.len() {
            1 => Vec::new(),
            _ => self.links.iter().filter_map(alone).collect(),
        }
    }

    fn unsupported(&self, parameters: &ModelParameters) -> Option<String> {
        let (model, what) = self.supports(parameters).err()?;
        Some(ModelsError::Unsupported { model, what }.to_string())
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let now = Instant::now();
        request.dispatch.begins();
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
        let events = stream::unfold(run, |mut run| async move { run.next().await.map(|event| (event, run)) });
        redacted(events.boxed(), self.redactor.clone())
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
    progress: Arc<Progress>,
    /// Up to when the provider may take for it, whatever the asker's time.
    bound: Instant,
    started: bool,
    /// Rings when it takes for too long.
    alarm: Alarm,
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
                Stage::Ready => match self.links[self.at].gate.enter(self.model(), self.last_retry()).await {
                    Ok(place) => self.stage = Stage::Streaming(self.attempt(place)),
                    Err(fault) => return Some(self.give_up(fault)),
                },
                Stage::Streaming(attempt) => return Some(self.advance(attempt).await),
            }
        }
    }

    fn attempt(&self, place: Admission) -> Attempt {
        let link = &self.links[self.at];
        let progress = Arc::new(Progress::default());
        Attempt {
            pieces: link.source.attempt(ModelRequest::attempt(&self.request), Arc::clone(&progress)),
            place,
            progress,
            bound: Instant::now() + link.gate.attempt_timeout,
            started: false,
            alarm: Alarm::default(),
        }
    }

    async fn advance(&mut self, mut attempt: Attempt) -> ModelEvent {
        let patience = if attempt.started { self.deadline } else { self.last_retry() };
        let Attempt { alarm, pieces, bound, .. } = &mut attempt;
        match alarm.wait(patience.min(*bound), pieces.next()).await {
            Ok(Some(Ok(event @ ModelEvent::Done { .. }))) => {
                attempt.place.answered();
                event
            }
            Ok(Some(Ok(event))) => {
                if !attempt.started {
                    attempt.place.began();
                }
                attempt.started = true;
                self.stage = Stage::Streaming(attempt);
                event
            }
            Ok(Some(Err(broken))) => self.failed(attempt, broken),
            Ok(None) => {
                let text = format!("the answer of `{}` has no end", self.model());
                self.failed(attempt, ModelFault::transient(FailureClass::Model, text).into())
            }
            Err(Late) => {
                let unsent = self.request.dispatch.is_unsent();
                let lives = attempt.progress.only_lives();
                let text = match self.model() {
                    model if unsent => format!("`{model}` could not be asked in time"),
                    model if lives => format!(
                        "`{model}` did not finish its answer in time: it sent nothing but signs that it is there"
                    ),
                    model => format!("`{model}` did not finish its answer in time"),
                };
                // Neither an asker in a hurry nor a request that was never sent says anything of who is asked.
                let whose = if attempt.bound < patience && !unsent { Whose::Model } else { Whose::Nobody };
                self.failed(
                    attempt,
                    Broken { fault: ModelFault::transient(FailureClass::Timeout, text), whose },
                )
            }
        }
    }

    fn failed(&mut self, attempt: Attempt, broken: Broken) -> ModelEvent {
        attempt.place.failed(&broken);
        let fault = broken.fault;
        let fault = if self.request.dispatch.is_unsent() { fault.unused() } else { fault };
        let fault = attempt.progress.tell(if attempt.started { fault.began() } else { fault });
        if !fault.retriable || self.retries >= self.request.max_retries {
            return self.give_up(fault);
        }
        let asked = milliseconds(fault.retry_after_ms.unwrap_or(0));
        let until = Instant::now() + self.waits.next().unwrap_or(LONGEST_WAIT).max(asked);
        if until >= self.last_retry() {
            return self.give_up(fault);
        }
        self.retries += 1;
        self.stage = Stage::Waiting(until);
        self.retry(fault, self.at)
    }

    /// Up to when this model may be asked once more, and may take to begin its answer.
    fn last_retry(&self) -> Instant {
        match self.at + 1 < self.links.len() {
            true => self.began + self.deadline.saturating_duration_since(self.began) / 2,
            false => self.deadline,
        }
    }

    /// Done with this model: on to the next one, or to the end.
    fn give_up(&mut self, mut fault: ModelFault) -> ModelEvent {
        if self.at + 1 < self.links.len() && Instant::now() < self.deadline {
            let event = self.retry(fault.clone(), self.at + 1);
            self.given_up.push(fault.message);
            self.at += 1;
            self.began = Instant::now();
            self.retries = 0;
            self.waits = waits();
            self.stage = Stage::Ready;
            return event;
        }
        if !self.given_up.is_empty() {
            fault.message =
                format!("no model of the list answered: {}; {}", self.given_up.join("; "), fault.message);
        }
        ModelEvent::Failed(fault)
    }

    /// An attempt failed, and the model at `next` is asked after it.
    fn retry(&self, fault: ModelFault, next: usize) -> ModelEvent {
        tracing::debug!(model = self.model(), %fault, "another attempt follows");
        let next = self.links[next].source.profile().name.clone();
        let model = self.request.dispatch.model().unwrap_or_else(|| self.model().to_owned());
        self.request.dispatch.begins();
        ModelEvent::Retry { usage: fault.usage, fault, model, next }
    }

    fn model(&self) -> &str {
        &self.links[self.at].source.profile().name
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
