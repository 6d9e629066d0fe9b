//! Rests a provider that keeps failing, and bounds the requests that it gets at the same time.
//!
//! [`Breaker`] only decides; [`Gate`] holds one for each provider, shared by all models of it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_agent::ModelFault;
use drupe_extension_api::FailureClass;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// Failures in a row after which a provider rests: one request with the usual two retries does not get there alone.
const FAILURES: u32 = 5;
/// The first rest. Long enough for a restart at the other end, short enough to notice the recovery within a turn.
const FIRST_REST: Duration = Duration::from_secs(30);
/// Rests double up to this.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// What to wait while another request probes.
const WHILE_PROBING: Duration = Duration::from_secs(1);

/// How an attempt ended, as far as the provider's health goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It answered, be it with a refusal of the request.
    Answered,
    /// It failed in a way that may pass.
    Failed,
    /// It says nothing of the provider's health: the asker went away, or was asked to slow down.
    Abandoned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaker {
    Closed { failures: u32 },
    Resting { until: Instant, rest: Duration },
    Probing { rest: Duration },
}

impl Breaker {
    pub(crate) const NEW: Self = Self::Closed { failures: 0 };

    /// Lets a request through, or says how long not to.
    pub(crate) fn admit(self, now: Instant) -> (Self, Result<(), Duration>) {
        match self {
            Self::Closed { .. } => (self, Ok(())),
            Self::Resting { until, rest } if until <= now => (Self::Probing { rest }, Ok(())),
            Self::Resting { until, .. } => (self, Err(until - now)),
            Self::Probing { .. } => (self, Err(WHILE_PROBING)),
        }
    }

    /// The provider begins to answer. A probe keeps nobody out any longer, however long its answer is; one more failure
    /// begins a rest again.
    pub(crate) fn began(self) -> Self {
        match self {
            Self::Probing { .. } => Self::Closed { failures: FAILURES - 1 },
            state => state,
        }
    }

    /// What an attempt's end means. Any answer closes it, also one to a request from before the rest.
    pub(crate) fn record(self, outcome: Outcome, now: Instant) -> Self {
        match (self, outcome) {
            (_, Outcome::Answered) => Self::NEW,
            (Self::Closed { failures }, Outcome::Failed) if failures + 1 >= FAILURES => {
                Self::Resting { until: now + FIRST_REST, rest: FIRST_REST }
            }
            (Self::Closed { failures }, Outcome::Failed) => Self::Closed { failures: failures + 1 },
            (Self::Probing { rest }, Outcome::Failed) => {
                let rest = (rest * 2).min(LONGEST_REST);
                Self::Resting { until: now + rest, rest }
            }
            (Self::Probing { rest }, Outcome::Abandoned) => Self::Resting { until: now, rest },
            (state, _) => state,
        }
    }
}

/// The way in to one provider.
pub(crate) struct Gate {
    provider: String,
    places: Arc<Semaphore>,
    breaker: Mutex<Breaker>,
    /// What the last failure was that counted against it, for those who are turned away for it.
    last: Mutex<Option<(FailureClass, String)>>,
    /// Time of one attempt.
    pub(crate) attempt_timeout: Duration,
}

impl Gate {
    pub(crate) fn new(provider: &str, concurrency: usize, attempt_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            provider: provider.to_owned(),
            places: Arc::new(Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS))),
            breaker: Mutex::new(Breaker::NEW),
            last: Mutex::default(),
            attempt_timeout,
        })
    }

    /// Waits for a place until `deadline`. A provider that rests is refused at once, before and after the wait.
    pub(crate) async fn enter(self: &Arc<Self>, deadline: Instant) -> Result<Admission, ModelFault> {
        let waits = match *self.breaker() {
            Breaker::Resting { until, .. } => until.checked_duration_since(Instant::now()),
            _ => None,
        };
        if let Some(rest) = waits.filter(|rest| !rest.is_zero()) {
            return Err(self.rests(rest));
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
        let admitted = {
            let mut breaker = self.breaker();
            let (next, admitted) = breaker.admit(Instant::now());
            *breaker = next;
            admitted
        };
        match admitted {
            Ok(()) => Ok(Admission { gate: Arc::clone(self), _place: place, outcome: Outcome::Abandoned }),
            Err(rest) => Err(self.rests(rest)),
        }
    }

    fn rests(&self, rest: Duration) -> ModelFault {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (class, cause) = last.map_or((FailureClass::Network, String::new()), |(class, message)| {
            (class, format!(", the last of which was: {message}"))
        });
        let text = format!(
            "provider `{}` rests for {} s after repeated failures{cause}",
            self.provider,
            rest.as_secs() + 1
        );
        let retry_after_ms = Some(u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
        ModelFault { retry_after_ms, ..ModelFault::transient(class, text).unused() }
    }

    /// A panic elsewhere cannot leave a `Copy` state half written.
    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place at a provider; its end is recorded when it is dropped.
pub(crate) struct Admission {
    gate: Arc<Gate>,
    _place: OwnedSemaphorePermit,
    outcome: Outcome,
}

impl Admission {
    /// The first part of an answer has come.
    pub(crate) fn began(&self) {
        let mut breaker = self.gate.breaker();
        *breaker = breaker.began();
    }

    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// Ends with a fault, which is the reason where the provider rests for it.
    pub(crate) fn fail(self, outcome: Outcome, fault: &ModelFault) {
        if outcome == Outcome::Failed {
            let mut last = self.gate.last.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some((fault.class, fault.message.clone()));
        }
        self.end(outcome);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut breaker = self.gate.breaker();
        *breaker = breaker.record(self.outcome, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays outcomes, each a second after the one before, and gives the state.
    fn after(outcomes: &[Outcome]) -> (Breaker, Instant) {
        let mut now = Instant::now();
        let mut breaker = Breaker::NEW;
        for outcome in outcomes {
            now += Duration::from_secs(1);
            breaker = breaker.admit(now).0.record(*outcome, now);
        }
        (breaker, now)
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_begin_a_rest_and_four_do_not() {
        let (four, now) = after(&[Outcome::Failed; 4]);
        assert_eq!(four.admit(now).1, Ok(()));
        let (five, now) = after(&[Outcome::Failed; 5]);
        assert_eq!(five.admit(now).1, Err(FIRST_REST));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_between_starts_the_count_again() {
        let mut outcomes = vec![Outcome::Failed; 4];
        outcomes.push(Outcome::Answered);
        outcomes.extend([Outcome::Failed; 4]);
        let (breaker, now) = after(&outcomes);
        assert_eq!(breaker.admit(now).1, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_begins_to_answer_keeps_nobody_out_and_rests_again_where_it_breaks_off() {
        let (breaker, now) = after(&[Outcome::Failed; 5]);
        let later = now + FIRST_REST;
        let began = breaker.admit(later).0.began();
        assert_eq!(began.admit(later).1, Ok(()));
        assert_eq!(began.record(Outcome::Failed, later).admit(later).1, Err(FIRST_REST));
        assert_eq!(began.record(Outcome::Answered, later), Breaker::NEW);
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_rest_one_request_probes_and_the_others_wait() {
        let (breaker, now) = after(&[Outcome::Failed; 5]);
        let later = now + FIRST_REST;
        let (probing, admitted) = breaker.admit(later);
        assert_eq!(admitted, Ok(()));
        assert_eq!(probing.admit(later).1, Err(WHILE_PROBING));
        assert_eq!(probing.record(Outcome::Answered, later), Breaker::NEW);
        assert_eq!(probing.record(Outcome::Failed, later).admit(later).1, Err(FIRST_REST * 2));
        assert_eq!(probing.record(Outcome::Abandoned, later).admit(later).1, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn rests_grow_to_a_bound() {
        let (mut breaker, mut now) = after(&[Outcome::Failed; 5]);
        for _ in 0..10 {
            now += LONGEST_REST;
            breaker = breaker.admit(now).0.record(Outcome::Failed, now);
        }
        assert_eq!(breaker.admit(now).1, Err(LONGEST_REST));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_turned_away_by_a_rest_hears_what_it_is_for() {
        let gate = Gate::new("p", 1, Duration::from_secs(1));
        let soon = || Instant::now() + Duration::from_millis(10);
        let fault = ModelFault::transient(FailureClass::Model, "`p/m`: 500 Internal Server Error: oops");
        for _ in 0..FAILURES {
            if let Ok(place) = gate.enter(soon()).await {
                place.fail(Outcome::Failed, &fault);
            }
        }
        let told = gate.enter(soon()).await.err().map(|fault| (fault.class, fault.message, fault.unused));
        let text = "provider `p` rests for 31 s after repeated failures, the last of which was: `p/m`: 500 Internal \
                    Server Error: oops";
        assert_eq!(told, Some((FailureClass::Model, text.to_owned(), true)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_lets_no_more_in_than_it_has_places() {
        let gate = Gate::new("p", 1, Duration::from_secs(1));
        let soon = || Instant::now() + Duration::from_millis(10);
        let held = gate.enter(soon()).await.ok();
        assert!(held.is_some());
        assert_eq!(gate.enter(soon()).await.err().map(|f| f.class), Some(FailureClass::Timeout));
        drop(held);
        assert!(gate.enter(soon()).await.is_ok());
    }
}
