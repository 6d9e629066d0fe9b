//! Decides when to let something rest that keeps failing: a provider, or one model of it.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row after which it rests: one request with the usual two retries does not get there alone.
pub(crate) const FAILURES: u32 = 5;
/// The first rest. Long enough for a restart at the other end, short enough to notice the recovery within a turn.
const FIRST_REST: Duration = Duration::from_secs(30);
/// Rests double up to this.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// What to wait while another request probes.
const WHILE_PROBING: Duration = Duration::from_secs(1);

/// How an attempt ended, as far as the health of what was asked goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It answered, be it with a refusal of the request.
    Answered,
    /// It failed in a way that may pass.
    Failed,
    /// It says nothing of its health: the asker went away, or was asked to slow down.
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

    /// How long it is not to be asked, if it rests now.
    pub(crate) fn rests(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Resting { until, .. } => until.checked_duration_since(now).filter(|rest| !rest.is_zero()),
            _ => None,
        }
    }

    /// Lets a request through, or says how long not to.
    pub(crate) fn admit(self, now: Instant) -> (Self, Result<(), Duration>) {
        match self {
            Self::Closed { .. } => (self, Ok(())),
            Self::Resting { until, rest } if until <= now => (Self::Probing { rest }, Ok(())),
            Self::Resting { until, .. } => (self, Err(until - now)),
            Self::Probing { .. } => (self, Err(WHILE_PROBING)),
        }
    }

    /// It begins to answer. A probe keeps nobody out any longer, however long its answer is; one more failure
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
}
