//! When a server that failed is tried again. Pure: who waits tells how long it waited.

use std::time::Duration;

/// Seconds before it is started again after one failure, after two, and so on.
const DELAYS: [u64; 7] = [0, 1, 2, 5, 10, 30, 60];

/// Failures of one server in a row, and whether it is to be left alone at the moment.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: usize,
    /// What it waits for; none where it may be tried.
    waits: Option<u64>,
    /// Counts waits, so that the end of an older one opens nothing.
    generation: u64,
}

/// A time that somebody has to let pass, and then to say so.
#[derive(Debug, PartialEq, Eq)]
pub struct PauseLeft {
    pub time: Duration,
    pub generation: u64,
}

impl Backoff {
    /// It failed. How long it is to be left alone, where it is.
    pub fn failed(&mut self) -> Option<PauseLeft> {
        let seconds = DELAYS[self.failures.min(DELAYS.len() - 1)];
        self.failures += 1;
        self.generation += 1;
        self.waits = (seconds > 0).then_some(seconds);
        self.waits
            .map(|seconds| PauseLeft { time: Duration::from_secs(seconds), generation: self.generation })
    }

    /// The time of a wait has passed: it may be tried again.
    pub fn passed(&mut self, generation: u64) {
        if generation == self.generation {
            self.waits = None;
        }
    }

    /// It works, so that the next failure counts as the first.
    pub fn works(&mut self) {
        *self = Self { generation: self.generation + 1, ..Self::default() };
    }

    /// Of how many seconds it waits the end, where it does.
    pub fn waits(&self) -> Option<u64> {
        self.waits
    }

    pub fn failures(&self) -> usize {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_is_waited_for_longer_and_one_success_ends_that() {
        let mut backoff = Backoff::default();
        let mut seconds = Vec::new();
        for _ in 0..9 {
            let wait = backoff.failed();
            seconds.push(wait.as_ref().map_or(0, |wait| wait.time.as_secs()));
            assert_eq!(backoff.waits().is_some(), wait.is_some());
            if let Some(wait) = wait {
                backoff.passed(wait.generation);
            }
            assert_eq!(backoff.waits(), None);
        }
        assert_eq!(seconds, [0, 1, 2, 5, 10, 30, 60, 60, 60]);
        backoff.works();
        assert_eq!(backoff.failed(), None, "the first is tried again at once");
    }

    #[test]
    fn the_end_of_an_older_wait_opens_nothing() {
        let mut backoff = Backoff::default();
        backoff.failed();
        let Some(first) = backoff.failed() else { panic!("it waits") };
        backoff.failed();
        backoff.passed(first.generation);
        assert_eq!(backoff.waits(), Some(2));
    }
}
