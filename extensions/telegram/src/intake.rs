//! Updates are taken in: those of one conversation one after another, those of several at the same time.
//!
//! The service is told a number, and does not tell again of what is below. So what is not taken in so far is told again with every answer, and with
//! it what came behind, of which most is taken in by then.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use drupe_channel::{TakenIn, Taking};
use drupe_extension_api::prelude::*;
use serde_json::Value;

use crate::{
    hear::{Ear, LONGEST_PAUSE, PAUSE},
    update::{self, Bot, Incoming},
};

/// So much of one conversation is begun; what is behind that is told again. Else an album would leave no room for anybody else.
const OF_ONE: usize = 4;

/// Takes in what the service tells.
pub struct UpdateIntake {
    ear: Ear,
    taking: Taking<i64, (Incoming, u32)>,
    unconfirmed: Unconfirmed,
    /// What is done and not in the file so far.
    done: Vec<i64>,
    /// Conversations whose next message is left alone until then, and for how long that was.
    resting: HashMap<String, (Instant, Duration)>,
    /// How often files of an update did not come.
    missing: HashMap<i64, u32>,
}

impl UpdateIntake {
    pub fn new(ear: Ear) -> Self {
        let own = ear.clone();
        let taking = Taking::new(move |(incoming, missing)| {
            let ear = own.clone();
            async move { ear.take(incoming, missing).await }
        });
        let (unconfirmed, done) = (Unconfirmed::default(), Vec::new());
        Self { ear, taking, unconfirmed, done, resting: HashMap::new(), missing: HashMap::new() }
    }

    /// How many updates are told again by the next answer, and behind them what is new.
    pub fn unconfirmed(&self) -> usize {
        self.unconfirmed.open.len()
    }

    /// Begins to take in what an answer tells; whether there was anything to begin.
    pub fn begin(&mut self, mut updates: Vec<Value>, bot: &Bot) -> bool {
        // In order, whatever came between.
        updates.sort_by_key(update::number);
        self.unconfirmed.came(&updates.iter().filter_map(update::number).collect::<Vec<_>>());
        let (kept, now, mut begins) = (self.ear.channel.kept.clone(), Instant::now(), false);
        for update in updates {
            let Some(number) = update::number(&update).filter(|number| !self.unconfirmed.is_begun(*number))
            else {
                continue;
            };
            let is_known = kept.look(|kept| kept.was_heard(&number.to_string()));
            let incoming = update::read(&update, bot, self.ear.channel.host.id()).filter(|_| !is_known);
            let Some(incoming) = incoming else {
                self.done(number);
                continue;
            };
            let conversation = incoming.heard.conversation.clone();
            let rests = self.resting.get(&conversation).is_some_and(|(until, _)| *until > now);
            let is_begun = !rests && self.taking.has_room() && self.taking.of(&conversation) < OF_ONE;
            self.unconfirmed.open.insert(number, is_begun);
            if is_begun {
                let missing = self.missing.get(&number).copied().unwrap_or_default();
                self.taking.begin(conversation, number, (incoming, missing));
                begins = true;
            }
        }
        begins
    }

    /// Waits until all is taken in, for so long at most.
    pub async fn settle(&mut self, most: Duration) {
        let until = tokio::time::Instant::now() + most;
        loop {
            self.keep().await;
            if self.unconfirmed.open.is_empty() {
                self.resting.clear();
                self.missing.clear();
                return;
            }
            tokio::select! {
                Some(taken) = self.taking.next() => self.took(taken),
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    fn took(&mut self, TakenIn { id, conversation, outcome, behind }: TakenIn<i64>) {
        let Err(fault) = outcome else {
            self.resting.remove(&conversation);
            return self.done(id);
        };
        // Not confirmed: it comes again.
        self.ear.channel.host.warn(format!("a message is taken in later: {fault}"));
        for number in [id].into_iter().chain(behind) {
            self.unconfirmed.open.insert(number, false);
        }
        if fault.code == FaultCode::Unavailable {
            *self.missing.entry(id).or_default() += 1;
        }
        let pause = self.resting.get(&conversation).map_or(PAUSE, |(_, last)| (*last * 2).min(LONGEST_PAUSE));
        self.resting.insert(conversation, (Instant::now() + pause, pause));
    }

    fn done(&mut self, number: i64) {
        self.unconfirmed.open.remove(&number);
        self.done.push(number);
    }

    /// Keeps what is done, and what the next request confirms.
    async fn keep(&mut self) {
        let done = std::mem::take(&mut self.done);
        let Some(next) = self.unconfirmed.next().filter(|_| !done.is_empty()) else { return };
        let now_ms = self.ear.now_ms();
        let kept = self.ear.channel.kept.change(|kept| {
            for known in done.iter().map(i64::to_string) {
                if !kept.was_heard(&known) {
                    kept.hear(&known);
                }
            }
            kept.own.confirm_below(next, now_ms);
        });
        if let Err(fault) = kept.await {
            // The daemon knows what it has taken in, should it be told again.
            self.ear.channel.host.warn(format!("what was taken in is not written down so far: {fault}"));
        }
    }
}

/// What the service told and is not to forget.
#[derive(Default)]
struct Unconfirmed {
    /// By number, whether it is being taken in.
    open: BTreeMap<i64, bool>,
    /// The number after that of the last one that it told.
    after: Option<i64>,
}

impl Unconfirmed {
    /// The service told these, in their order. What it does not tell of any more it has forgotten, as it does after a day.
    fn came(&mut self, numbers: &[i64]) {
        let last = numbers.last().copied();
        let is_told = |number: &i64| numbers.contains(number) || last.is_some_and(|last| *number > last);
        self.open.retain(|number, is_begun| *is_begun || is_told(number));
        self.after = last.map(|last| last + 1).or(self.after);
    }

    fn is_begun(&self, number: i64) -> bool {
        self.open.get(&number).copied().unwrap_or_default()
    }

    /// The lowest number that it is to tell of next.
    fn next(&self) -> Option<i64> {
        self.open.keys().next().copied().or(self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_done_first_nothing_is_confirmed_above_what_is_not() {
        let mut all = Unconfirmed::default();
        assert_eq!(all.next(), None);
        all.came(&[5, 6, 7]);
        all.open.extend([(5, true), (6, true), (7, false)]);
        all.open.remove(&6);
        assert_eq!((all.next(), all.is_begun(5), all.is_begun(7)), (Some(5), true, false));
        all.open.remove(&5);
        assert_eq!(all.next(), Some(7));
        // It tells of fewer than there are.
        all.came(&[6]);
        assert_eq!(all.next(), Some(7));
        all.open.remove(&7);
        assert_eq!(all.next(), Some(7), "it is numbered anew");
        all.came(&[7]);
        assert_eq!(all.next(), Some(8));
        all.came(&[]);
        assert_eq!(all.next(), Some(8));
    }

    #[test]
    fn what_the_service_has_forgotten_holds_nothing_back() {
        let mut all = Unconfirmed::default();
        all.came(&[5, 6, 7]);
        all.open.extend([(5, false), (6, true), (7, false)]);
        all.came(&[7, 8]);
        assert_eq!(all.next(), Some(6), "one that is being taken in is done first");
        all.open.remove(&6);
        all.came(&[]);
        assert_eq!((all.next(), all.open.len()), (Some(9), 0));
    }
}
