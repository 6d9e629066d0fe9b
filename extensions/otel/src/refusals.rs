//! Traces that are not taken: which of them is tried next, which is let go, and what is said of those. Pure.

use std::collections::{BTreeMap, HashMap};

use drupe_extension_api::TurnId;

/// How often a trace fails while others are taken before it is let go.
const OWN_FAILURES: u32 = 3;

/// Traces that failed, of which it is not known whether that is their own fault. Others go before them, so that none holds up what is
/// behind it. One that goes on failing while others are taken is the fault itself; where none is taken, all wait.
#[derive(Debug, Default)]
pub struct Doubts {
    failed: HashMap<TurnId, Doubt>,
    /// How many were taken, and how many failures there were.
    taken: u64,
    failures: u64,
}

#[derive(Debug)]
struct Doubt {
    /// Failures since which others were taken.
    own: u32,
    /// How many had been taken when it failed last, and which failure that was.
    taken: u64,
    last: u64,
}

impl Doubts {
    /// Those that wait in the order in which they are tried: what never failed, the oldest first, then what failed longest ago.
    pub fn order(&mut self, mut waiting: Vec<TurnId>) -> Vec<TurnId> {
        self.failed.retain(|turn, _| waiting.contains(turn));
        waiting.sort_by_key(|turn| self.failed.get(turn).map_or(0, |doubt| doubt.last));
        waiting
    }

    /// One was taken, so what fails beside it may be the fault itself.
    pub fn taken(&mut self) {
        self.taken += 1;
    }

    /// One failed; whether it is to be let go.
    pub fn failed(&mut self, turn: &TurnId) -> bool {
        self.failures += 1;
        let first = Doubt { own: 0, taken: self.taken, last: 0 };
        let doubt = self.failed.entry(turn.clone()).or_insert(first);
        if doubt.taken < self.taken {
            doubt.own += 1;
        }
        (doubt.taken, doubt.last) = (self.taken, self.failures);
        doubt.own >= OWN_FAILURES
    }

    /// The collector wants one later: others go before it, and it is not let go for that.
    pub fn put_off(&mut self, turn: &TurnId) {
        self.failures += 1;
        let first = Doubt { own: 0, taken: self.taken, last: 0 };
        self.failed.entry(turn.clone()).or_insert(first).last = self.failures;
    }
}

/// What happened to how many traces, by the status of the collector's answer; what it says may be another text each time.
#[derive(Debug, Default)]
pub struct TraceCounts(BTreeMap<u16, u64>);

impl TraceCounts {
    /// Counts one more. How many there are by now, where that is to be said: of the first, the tenth, the hundredth.
    pub fn more(&mut self, status: u16) -> Option<u64> {
        let count = self.0.entry(status).or_default();
        *count += 1;
        let mut told = 1_u64;
        while told < *count {
            told = told.saturating_mul(10);
        }
        (told == *count).then_some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(ids: &[&str]) -> Vec<TurnId> {
        ids.iter().map(|id| TurnId::new(*id).expect("an id")).collect()
    }

    #[test]
    fn what_failed_comes_after_the_others_and_is_let_go_once_it_is_known_to_be_the_fault() {
        let mut doubts = Doubts::default();
        let all = turns(&["a", "b", "c"]);
        assert!(!doubts.failed(&all[0]));
        assert_eq!(doubts.order(all.clone()), turns(&["b", "c", "a"]));
        assert!(!doubts.failed(&all[1]));
        assert_eq!(doubts.order(all.clone()), turns(&["c", "a", "b"]));
        // While nothing is taken, nothing is let go.
        for _ in 0..100 {
            assert!(!all.iter().any(|turn| doubts.failed(turn)));
        }
        for last in [false, false, true] {
            doubts.taken();
            assert_eq!(doubts.failed(&all[0]), last);
            // A second failure without another one that is taken says nothing more.
            assert_eq!(doubts.failed(&all[0]), last);
        }
    }

    #[test]
    fn what_the_collector_wants_later_is_never_let_go_and_what_does_not_wait_is_forgotten() {
        let mut doubts = Doubts::default();
        let all = turns(&["a", "b"]);
        for _ in 0..10 {
            doubts.taken();
            doubts.put_off(&all[0]);
            assert_eq!(doubts.order(all.clone()), turns(&["b", "a"]));
        }
        doubts.order(turns(&["b"]));
        assert_eq!(doubts.order(all.clone()), all);
    }

    #[test]
    fn a_count_is_said_at_the_first_and_at_each_power_of_ten() {
        let mut counted = TraceCounts::default();
        let told: Vec<u64> = (0..2_000).filter_map(|_| counted.more(400)).collect();
        assert_eq!(told, [1, 10, 100, 1_000]);
        assert_eq!(counted.more(401), Some(1));
    }
}
