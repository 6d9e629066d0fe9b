//! What is sent at the moment: the texts of a channel one after another, and its files beside them.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use drupe_extension_api::SessionId;
use tokio::task::{self, JoinSet};

/// Messages that go out in their order, one at a time. A file takes minutes where a text takes a moment, and says itself what it is: the
/// order between the two is none that people read by, that of texts is, and that of files.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    pub channel: String,
    pub of_files: bool,
}

/// A conversation, and where in its channel a message of it goes.
pub type Recipient = (SessionId, Option<String>);

/// What a lane was not rid of: what goes to some places, or, as none, its next message and all behind that.
pub type LeftOver = BTreeSet<Option<Recipient>>;

/// The lanes in which messages are sent.
#[derive(Default)]
pub struct Lanes {
    tasks: JoinSet<LeftOver>,
    at_work: HashMap<task::Id, Lane>,
    /// Until when a lane, or what goes to one place in it, is left alone since its next message was not taken, whatever else comes for it:
    /// each attempt counts.
    held: HashMap<(Lane, Option<Recipient>), Instant>,
}

impl Lanes {
    /// Whether a lane may be given messages.
    pub fn is_free(&self, lane: &Lane) -> bool {
        !self.held.contains_key(&(lane.clone(), None)) && self.at_work.values().all(|busy| busy != lane)
    }

    /// Whether messages to such a place wait until it is time to try again.
    pub fn holds(&self, lane: &Lane, to: &Recipient) -> bool {
        self.held.contains_key(&(lane.clone(), Some(to.clone())))
    }

    /// Has messages sent in a lane.
    pub fn begin(&mut self, lane: Lane, work: impl Future<Output = LeftOver> + Send + 'static) {
        self.at_work.insert(self.tasks.spawn(work).id(), lane);
    }

    /// Returns when a lane has got what it was given; never while none is given anything. What was not taken is left alone for so long.
    pub async fn one_ends(&mut self, rest: Duration) {
        let (task, not_taken) = match self.tasks.join_next_with_id().await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => (error.id(), LeftOver::from([None])),
            None => return std::future::pending().await,
        };
        let Some(lane) = self.at_work.remove(&task) else { return };
        self.held.extend(not_taken.into_iter().map(|to| ((lane.clone(), to), Instant::now() + rest)));
    }

    /// Forgets what has rested until now.
    pub fn let_go(&mut self, now: Instant) {
        self.held.retain(|_, until| *until > now);
    }

    /// Everything is tried again at once.
    pub fn try_again(&mut self) {
        self.held.clear();
    }

    /// When something has rested next.
    pub fn next(&self) -> Option<Instant> {
        self.held.values().min().copied()
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

    fn texts(channel: &str) -> Lane {
        Lane { channel: channel.to_owned(), of_files: false }
    }

    #[tokio::test]
    async fn a_slow_lane_holds_no_other_up_and_gets_its_messages_in_order() {
        let mut lanes = Lanes::default();
        let (go, held) = oneshot::channel::<()>();
        let slow = Lane { channel: "one".to_owned(), of_files: true };
        lanes.begin(slow.clone(), async {
            held.await.expect("somebody goes on");
            LeftOver::new()
        });
        for quick in ["one", "other", "one"] {
            assert!(lanes.is_free(&texts(quick)) && !lanes.is_free(&slow));
            lanes.begin(texts(quick), async { LeftOver::new() });
            lanes.one_ends(REST).await;
        }
        go.send(()).expect("it waits");
        lanes.one_ends(REST).await;
        assert!(lanes.is_free(&slow) && lanes.is_empty());
        assert!(lanes.one_ends(REST).now_or_never().is_none(), "there is nothing to wait for");
    }

    #[tokio::test]
    async fn what_is_not_taken_rests_for_its_time_whatever_else_comes() {
        let mut lanes = Lanes::default();
        let session: SessionId = "a".parse().expect("an id");
        let [held, free] = ["one", "other"].map(|address| (session.clone(), Some(address.to_owned())));
        let (down, busy) = (texts("down"), texts("busy"));
        lanes.begin(down.clone(), async { LeftOver::from([None]) });
        lanes.one_ends(REST).await;
        let places = LeftOver::from([Some(held.clone())]);
        lanes.begin(busy.clone(), async { places });
        lanes.one_ends(REST).await;
        let soon = Instant::now();
        lanes.let_go(soon);
        assert!(!lanes.is_free(&down));
        assert!(lanes.is_free(&busy) && lanes.holds(&busy, &held) && !lanes.holds(&busy, &free));
        assert!(!lanes.holds(&down, &held), "it is another channel");
        assert!(lanes.next().is_some_and(|next| next > soon && next <= soon + REST));
        lanes.let_go(soon + REST + REST);
        assert!(lanes.is_free(&down) && !lanes.holds(&busy, &held) && lanes.next().is_none());
        lanes.begin(down.clone(), async { LeftOver::from([None]) });
        lanes.one_ends(REST).await;
        lanes.try_again();
        assert!(lanes.is_free(&down));
    }
}
