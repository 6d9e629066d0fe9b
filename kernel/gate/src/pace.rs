//! How often an extension may ask for something that costs others their time.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use drupe_extension_api::{ExtensionId, Fault, FaultCode};
use parking_lot::Mutex;

/// The time that is counted.
const WINDOW: Duration = Duration::from_secs(60);

/// What each extension asked for within the last minute.
#[derive(Debug)]
pub struct Pace {
    /// What it asks for, as a message names it.
    what: &'static str,
    most: usize,
    asked: Mutex<HashMap<ExtensionId, VecDeque<Instant>>>,
}

impl Pace {
    /// So many a minute for each extension.
    pub fn new(what: &'static str, most: usize) -> Self {
        Self { what, most, asked: Mutex::default() }
    }

    /// Counts one, or refuses it. What is refused does not count.
    pub fn take(&self, of: &ExtensionId, now: Instant) -> Result<(), Fault> {
        let mut asked = self.asked.lock();
        let times = asked.entry(of.clone()).or_default();
        while times.front().is_some_and(|time| now.duration_since(*time) >= WINDOW) {
            times.pop_front();
        }
        if times.len() >= self.most {
            let (what, most) = (self.what, self.most);
            let message = format!("extension `{of}` asked for more than {most} {what} within a minute");
            return Err(Fault::new(FaultCode::Busy, message).help("ask less often, for more at once"));
        }
        times.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_extension_has_its_own_pace_and_what_is_refused_does_not_count() {
        let (pace, now) = (Pace::new("notices", 3), Instant::now());
        let [one, other] = ["one", "other"].map(|id| ExtensionId::new(id).expect("an id"));
        let at = |id: &ExtensionId, second: u64| pace.take(id, now + Duration::from_secs(second));
        for second in 0..3 {
            at(&one, second).expect("there is room");
        }
        for second in 3..60 {
            assert_eq!(at(&one, second).expect_err("too many").code, FaultCode::Busy);
        }
        at(&other, 5).expect("it asked for nothing yet");
        at(&one, 60).expect("the first is a minute ago");
        assert!(at(&one, 60).is_err());
    }
}
