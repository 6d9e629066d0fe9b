//! Channels that messages are sent to at the moment, each by a task of its own.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use drupe_extension_api::SessionId;
use tokio::task::{self, JoinSet};

/// A conversation, and where in its channel a message of it goes.
pub type Recipient = (SessionId, Option<String>);

/// How far a channel took what it was given.
#[derive(Debug, PartialEq, Eq)]
pub enum Took {
    All,
    /// All but what is for these.
    AllBut(BTreeSet<Recipient>),
    /// Not the message that it was given last, and none behind it.
    NoMore,
}

/// The channels that messages are sent to.
#[derive(Default)]
pub struct Lanes {
    tasks: JoinSet<Took>,
    at_work: HashMap<task::Id, String>,
    /// Until when channels that did not take their next message are left alone, whatever else comes for them: each attempt counts.
    resting: HashMap<String, Instant>,
    /// The same for what goes to some places of a channel.
    held: HashMap<(String, Recipient), Instant>,
}

impl Lanes {
    /// Whether a channel may be given messages.
    pub fn is_free(&self, channel: &str) -> bool {
        !self.resting.contains_key(channel) && self.at_work.values().all(|busy| busy != channel)
    }

    /// Whether messages to such a place wait until it is time to try again.
    pub fn holds(&self, channel: &str, to: &Recipient) -> bool {
        self.held.contains_key(&(channel.to_owned(), to.clone()))
    }

    /// Has messages sent to a channel.
    pub fn begin(&mut self, channel: String, work: impl Future<Output = Took> + Send + 'static) {
        self.at_work.insert(self.tasks.spawn(work).id(), channel);
    }

    /// Returns when a channel has got what it was given; never while none is given anything. What it did not take is left alone for so long.
    pub async fn one_ends(&mut self, rest: Duration) {
        let (task, took) = match self.tasks.join_next_with_id().await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => (error.id(), Took::NoMore),
            None => return std::future::pending().await,
        };
        let Some(channel) = self.at_work.remove(&task) else { return };
        let until = Instant::now() + rest;
        match took {
            Took::All => {}
            Took::AllBut(places) => {
                self.held.extend(places.into_iter().map(|to| ((channel.clone(), to), until)));
            }
            Took::NoMore => drop(self.resting.insert(channel, until)),
        }
    }

    /// Forgets what has rested until now.
    pub fn let_go(&mut self, now: Instant) {
        self.resting.retain(|_, until| *until > now);
        self.held.retain(|_, until| *until > now);
    }

    /// Everything is tried again at once.
    pub fn try_again(&mut self) {
        self.resting.clear();
        self.held.clear();
    }

    /// When something has rested next.
    pub fn next(&self) -> Option<Instant> {
        self.resting.values().chain(self.held.values()).min().copied()
    }

    /// Whether nothing is being sent.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    const REST: Duration = Duration::from_secs(15);

    #[tokio::test]
    async fn a_slow_channel_holds_no_other_up_and_gets_its_messages_in_order() {
        let mut lanes = Lanes::default();
        let (go, held) = oneshot::channel::<()>();
        lanes.begin("slow".into(), async {
            held.await.expect("somebody goes on");
            Took::All
        });
        for _ in 0..3 {
            assert!(lanes.is_free("quick") && !lanes.is_free("slow"));
            lanes.begin("quick".into(), async { Took::All });
            lanes.one_ends(REST).await;
        }
        go.send(()).expect("it waits");
        lanes.one_ends(REST).await;
        assert!(lanes.is_free("slow") && lanes.is_empty());
        assert!(lanes.one_ends(REST).now_or_never().is_none(), "there is nothing to wait for");
    }

    #[tokio::test]
    async fn what_is_not_taken_rests_for_its_time_whatever_else_comes() {
        let mut lanes = Lanes::default();
        let session: SessionId = "a".parse().expect("an id");
        let [held, free] = ["one", "other"].map(|address| (session.clone(), Some(address.to_owned())));
        lanes.begin("down".into(), async { Took::NoMore });
        lanes.one_ends(REST).await;
        let places = BTreeSet::from([held.clone()]);
        lanes.begin("busy".into(), async { Took::AllBut(places) });
        lanes.one_ends(REST).await;
        let soon = Instant::now();
        lanes.let_go(soon);
        assert!(!lanes.is_free("down"));
        assert!(lanes.is_free("busy") && lanes.holds("busy", &held) && !lanes.holds("busy", &free));
        assert!(!lanes.holds("down", &held), "it is another channel");
        assert!(lanes.next().is_some_and(|next| next > soon && next <= soon + REST));
        lanes.let_go(soon + REST + REST);
        assert!(lanes.is_free("down") && !lanes.holds("busy", &held) && lanes.next().is_none());
        lanes.begin("down".into(), async { Took::NoMore });
        lanes.one_ends(REST).await;
        lanes.try_again();
        assert!(lanes.is_free("down"));
    }
}
