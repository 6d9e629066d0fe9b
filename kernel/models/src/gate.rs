//! The way in to one provider: bounds the requests that it gets at the same time, and turns away what would only fail.
//!
//! There is a [`Breaker`] for the provider itself and one for each of its models that has failed of late. A fault of
//! the account or of the host rests the provider; one of a model rests that model, and the others are asked on.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_agent::ModelFault;
use drupe_extension_api::FailureClass;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::{
    breaker::{Breaker, Outcome},
    source::{Broken, Whose},
};

/// Models that a provider remembers failures of. Whoever names a model may name any.
const MOST_MODELS: usize = 256;

/// The way in to one provider.
pub(crate) struct Gate {
    provider: String,
    places: Arc<Semaphore>,
    health: Mutex<Health>,
    pub(crate) attempt_timeout: Duration,
}

/// How a provider and its models have been of late.
#[derive(Default)]
struct Health {
    provider: Record,
    /// Models that have failed, by `provider/model`. One that is well is not among them.
    models: HashMap<String, Record>,
}

struct Record {
    breaker: Breaker,
    /// The last failure that counted against it, for those who are turned away for it.
    last: Option<(FailureClass, String)>,
}

impl Default for Record {
    fn default() -> Self {
        Self { breaker: Breaker::NEW, last: None }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum End {
    /// With an answer, or with a fault of the request's own.
    Answered,
    /// With a word of the provider to ask this model less.
    Slower,
    /// With a fault that counts against the one that it is of.
    Failed { of: Of, class: FailureClass, message: String },
    /// Without a word of the provider.
    Abandoned,
}

impl End {
    fn of(broken: &Broken) -> Self {
        let fault = &broken.fault;
        let of = match broken.whose {
            Whose::Provider => Of::Provider,
            // What asks for a slower pace is well: to let it rest would fail the many for what it says to the few.
            Whose::Model if fault.class == FailureClass::RateLimit && fault.retriable => return Self::Slower,
            Whose::Model => Of::Model,
            Whose::Request => return Self::Answered,
            Whose::Nobody => return Self::Abandoned,
        };
        Self::Failed { of, class: fault.class, message: fault.message.clone() }
    }
}

/// Who rests, and for how long: the model, or its whole provider.
type Rest = (Of, Duration);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Provider,
    Model,
}

impl Health {
    fn rests(&self, model: &str, now: Instant) -> Option<Rest> {
        let own = self.models.get(model).and_then(|own| own.breaker.rests(now));
        let all = self.provider.breaker.rests(now);
        all.map(|rest| (Of::Provider, rest)).or(own.map(|rest| (Of::Model, rest)))
    }

    /// Lets a request through, or says who keeps it out.
    fn admit(&mut self, model: &str, now: Instant) -> Result<(), Rest> {
        let own = self.models.get_mut(model).map(|own| (own.breaker.admit(now), own));
        if let Some(((_, Err(rest)), _)) = own {
            return Err((Of::Model, rest));
        }
        let (next, admitted) = self.provider.breaker.admit(now);
        admitted.map_err(|rest| (Of::Provider, rest))?;
        self.provider.breaker = next;
        if let Some(((next, _), own)) = own {
            own.breaker = next;
        }
        Ok(())
    }

    fn began(&mut self, model: &str) {
        self.provider.breaker = self.provider.breaker.began();
        if let Some(record) = self.models.get_mut(model) {
            record.breaker = record.breaker.began();
        }
    }

    fn record(&mut self, model: &str, end: End, now: Instant) {
        // A model that fails shows that its host is there, but not where it was asked before a rest began.
        let reached = match self.provider.breaker {
            Breaker::Resting { .. } => Outcome::Abandoned,
            _ => Outcome::Answered,
        };
        let (provider, own) = match &end {
            End::Answered => (Outcome::Answered, Outcome::Answered),
            End::Slower => (reached, Outcome::Abandoned),
            End::Failed { of: Of::Model, .. } => (reached, Outcome::Failed),
            End::Failed { of: Of::Provider, .. } => (Outcome::Failed, Outcome::Abandoned),
            End::Abandoned => (Outcome::Abandoned, Outcome::Abandoned),
        };
        self.provider.breaker = self.provider.breaker.record(provider, now);
        if own == Outcome::Failed && !self.models.contains_key(model) {
            self.make_room();
            self.models.insert(model.to_owned(), Record::default());
        }
        if let Some(record) = self.models.get_mut(model) {
            record.breaker = record.breaker.record(own, now);
            if record.breaker == Breaker::NEW {
                self.models.remove(model);
            }
        }
        let End::Failed { of, class, message } = end else { return };
        let failed = match of {
            Of::Provider => Some(&mut self.provider),
            Of::Model => self.models.get_mut(model),
        };
        if let Some(record) = failed {
            record.last = Some((class, message));
        }
    }

    /// Forgets the models that do not rest, where there are too many, and then any.
    fn make_room(&mut self) {
        if self.models.len() >= MOST_MODELS {
            self.models.retain(|_, record| !matches!(record.breaker, Breaker::Closed { .. }));
        }
        if self.models.len() >= MOST_MODELS {
            self.models.clear();
        }
    }
}

impl Gate {
    pub(crate) fn new(provider: &str, concurrency: usize, attempt_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            provider: provider.to_owned(),
            places: Arc::new(Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS))),
            health: Mutex::default(),
            attempt_timeout,
        })
    }

    /// Waits for a place for a request to `model` until `deadline`. What rests is refused at once, before and after the
    /// wait.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        model: &str,
        deadline: Instant,
    ) -> Result<Admission, ModelFault> {
        let rests = self.health().rests(model, Instant::now());
        if let Some(rest) = rests {
            return Err(self.turned_away(model, rest));
        }
        let place = match timeout_at(deadline, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => {
                let text = "the provider's gate is closed";
                return Err(ModelFault::fatal(FailureClass::Internal, text).unused());
            }
            Err(_) => {
                let text = format!("provider `{}` had no place for the request in time", self.provider);
                return Err(ModelFault::transient(FailureClass::Timeout, text).unused());
            }
        };
        let admitted = self.health().admit(model, Instant::now());
        admitted.map_err(|rest| self.turned_away(model, rest))?;
        Ok(Admission { gate: Arc::clone(self), model: model.to_owned(), _place: place, end: End::Abandoned })
    }

    fn turned_away(&self, model: &str, (of, rest): Rest) -> ModelFault {
        let health = self.health();
        let (who, record) = match of {
            Of::Provider => (format!("provider `{}`", self.provider), Some(&health.provider)),
            Of::Model => (format!("model `{model}`"), health.models.get(model)),
        };
        let last = record.and_then(|record| record.last.clone());
        let (class, cause) = last.map_or((FailureClass::Network, String::new()), |(class, message)| {
            (class, format!(", the last of which was: {message}"))
        });
        let text = format!("{who} rests for {} s after repeated failures{cause}", rest.as_secs() + 1);
        let retry_after_ms = Some(u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
        ModelFault { retry_after_ms, ..ModelFault::transient(class, text).unused() }
    }

    /// A panic elsewhere leaves nothing here that could not be gone on with.
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place at a provider for one of its models; its end is recorded when it is dropped.
pub(crate) struct Admission {
    gate: Arc<Gate>,
    model: String,
    _place: OwnedSemaphorePermit,
    end: End,
}

impl Admission {
    /// The first part of an answer has come.
    pub(crate) fn began(&self) {
        self.gate.health().began(&self.model);
    }

    pub(crate) fn answered(mut self) {
        self.end = End::Answered;
    }

    /// Ends with a fault, which is the reason where something rests for it.
    pub(crate) fn failed(mut self, broken: &Broken) {
        self.end = End::of(broken);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let end = std::mem::replace(&mut self.end, End::Abandoned);
        self.gate.health().record(&self.model, end, Instant::now());
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
