//! How many bytes a token of each model stands for.
//!
//! Tokens are estimated from bytes: a tokeniser for each model would cost memory and time, and still be wrong for
//! most models. What providers report corrects the estimate; until then it errs on the safe side.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Bytes of a token where nothing was reported yet: English prose has about 4, code and JSON about 3.
const START: f64 = 3.0;

/// The least that is believed: some scripts have hardly more than one byte a token.
const LEAST: f64 = 1.5;

/// The most that is believed: whatever is reported, estimates stay within a factor.
const MOST: f64 = 8.0;

/// Tokens below which a report says more of the provider's frame than of the text.
const ENOUGH: u64 = 200;

/// How far one report that allows longer texts moves the estimate. One that calls for shorter ones is believed at
/// once: an estimate that is too low fails a request, one that is too high wastes room.
const STEP: f64 = 0.25;

/// The part by which an estimate must differ from the one that is kept to be worth a record.
const NEWS: f64 = 0.02;

/// Bytes a token, by model. One for the process, since all runs teach it.
#[derive(Debug, Default)]
pub struct Ratios(Mutex<HashMap<String, Ratio>>);

#[derive(Debug, Clone, Copy)]
struct Ratio {
    now: f64,
    /// As the journal has it; none where it has none.
    kept: Option<f64>,
}

impl Ratios {
    /// Bytes that one token of `model` (as `provider/model`) stands for, 1.5 to 8.
    pub fn bytes_per_token(&self, model: &str) -> f64 {
        self.known().get(model).map_or(START, |ratio| ratio.now)
    }

    /// The same where anything was learned of the model.
    pub fn learned(&self, model: &str) -> Option<f64> {
        self.known().get(model).map(|ratio| ratio.now)
    }

    /// The tokens that `bytes` of text are for `model`, rounded up.
    pub fn tokens(&self, model: &str, bytes: usize) -> u64 {
        // Texts are far smaller than 2^52 bytes, where the two types part.
        (bytes as f64 / self.bytes_per_token(model)).ceil() as u64
    }

    /// The bytes that `tokens` of `model` hold.
    pub fn bytes(&self, model: &str, tokens: u64) -> usize {
        (tokens as f64 * self.bytes_per_token(model)) as usize
    }

    /// Learns from a request of `bytes` that `model` reported as `input_tokens`.
    pub fn observe(&self, model: &str, bytes: usize, input_tokens: u64) {
        if input_tokens < ENOUGH {
            return;
        }
        let seen = (bytes as f64 / input_tokens as f64).clamp(LEAST, MOST);
        let mut ratios = self.known();
        // Looked up first, so that a model that is known costs no name.
        match ratios.get_mut(model) {
            Some(known) => known.now = moved(known.now, seen),
            None => {
                ratios.insert(model.to_owned(), Ratio { now: moved(START, seen), kept: None });
            }
        }
    }

    /// Takes over what an earlier process learned, by model. Meant for the start, before the first request.
    pub fn seed(&self, learned: impl IntoIterator<Item = (String, f64)>) {
        let believed = learned.into_iter().filter(|(_, bytes)| bytes.is_finite());
        self.known().extend(believed.map(|(model, bytes)| {
            let now = bytes.clamp(LEAST, MOST);
            (model, Ratio { now, kept: Some(now) })
        }));
    }

    /// What was learned since this was last asked, and differs enough to be kept; by model.
    pub fn changed(&self) -> Vec<(String, f64)> {
        let mut news = Vec::new();
        for (model, ratio) in self.known().iter_mut() {
            if ratio.kept.is_none_or(|kept| (ratio.now - kept).abs() >= kept * NEWS) {
                ratio.kept = Some(ratio.now);
                news.push((model.clone(), ratio.now));
            }
        }
        news
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Ratio>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn moved(from: f64, to: f64) -> f64 {
    if to < from { to } else { from + (to - from) * STEP }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ratio after those reports of bytes and tokens.
    fn check(reports: &[(usize, u64)], expected: f64) {
        let ratios = Ratios::default();
        for (bytes, tokens) in reports {
            ratios.observe("a/b", *bytes, *tokens);
        }
        let got = ratios.bytes_per_token("a/b");
        assert!((got - expected).abs() < 0.01, "{reports:?}: {got}");
        assert_eq!(ratios.bytes_per_token("a/other"), START);
    }

    #[test]
    fn reports_correct_the_estimate_and_the_cautious_ones_do_so_at_once() {
        check(&[], 3.0);
        check(&[(2_000, 1_000)], 2.0);
        check(&[(4_000, 1_000)], 3.25);
        check(&[(4_000, 1_000); 40], 4.0);
        check(&[(4_000, 1_000), (2_000, 1_000)], 2.0);
    }

    #[test]
    fn odd_reports_are_bounded_and_tiny_ones_say_nothing() {
        check(&[(10, 1_000)], 1.5);
        check(&[(1_000_000, 1_000); 60], 8.0);
        check(&[(10, 199), (1_000_000, 1)], 3.0);
    }

    #[test]
    fn what_was_learned_is_taken_over_and_told_where_it_is_news() {
        let first = Ratios::default();
        first.observe("a/b", 2_000, 1_000);
        assert_eq!(first.changed(), [("a/b".to_owned(), 2.0)]);
        assert_eq!(first.changed(), [], "it is told once");
        let second = Ratios::default();
        second.seed([("a/b".to_owned(), 2.0), ("odd".to_owned(), 1e9), ("none".to_owned(), f64::NAN)]);
        let known = ["a/b", "odd", "none"].map(|model| second.bytes_per_token(model));
        assert_eq!(known, [2.0, MOST, START]);
        second.observe("a/b", 2_010, 1_000);
        assert_eq!(second.changed(), [], "hardly anything has changed");
        second.observe("a/b", 1_800, 1_000);
        assert_eq!(second.changed(), [("a/b".to_owned(), 1.8)]);
    }

    #[test]
    fn tokens_are_rounded_up() {
        let ratios = Ratios::default();
        assert_eq!([0, 1, 3, 4].map(|bytes| ratios.tokens("m", bytes)), [0, 1, 1, 2]);
        assert_eq!(ratios.bytes("m", 4), 12);
    }
}
