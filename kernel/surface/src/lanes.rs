//! What is sent at the moment: the texts of a channel one after another, or to several addresses at the same time where it bears that, and its
//! files beside them.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use tokio::task::{self, JoinSet};

/// So many addresses of a channel are sent texts at the same time: whoever is slow holds up a quarter of the others at most, and what
/// may have arrived when the kernel is killed, and is not sent again, stays little.
const ADDRESSES: usize = 4;

/// Messages that go out in their order. A file takes minutes where a text takes a moment, and says itself what it is: the order between
/// the two is none that people read by, that of texts is, and that of files.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    pub channel: String,
    pub of_files: bool,
}

/// Where in its channel a message goes: to an address, or into a conversation that names none.
pub type Recipient = String;

/// What a lane was not rid of: what goes to some places, or, as none, its next message and all behind that.
pub type LeftOver = BTreeSet<Option<Recipient>>;

/// The lanes in which messages are sent.
#[derive(Default)]
pub struct Lanes {
    tasks: JoinSet<LeftOver>,
    /// With the one place to which what is sent there goes; none where nothing else is sent in its lane meanwhile.
    at_work: HashMap<task::Id, (Lane, Option<Recipient>)>,
    /// Until when a lane, or what goes to one place in it, is left alone since its next message was not taken, whatever else comes for it:
    /// each attempt counts.
    held: HashMap<(Lane, Option<Recipient>), Instant>,
}

impl Lanes {
    /// Whether a lane may be given messages: to one place, or, as none, to all of its.
    pub fn is_free(&self, lane: &Lane, to: Option<&Recipient>) -> bool {
        let mut busy = self.at_work.values().filter(|(busy, _)| busy == lane).map(|(_, at)| at.as_ref());
        !self.held.contains_key(&(lane.clone(), None))
            && busy.clone().count() < ADDRESSES
            && !busy.any(|at| at.is_none() || to.is_none() || at == to)
    }

    /// Whether messages to such a place wait until it is time to try again.
    pub fn holds(&self, lane: &Lane, to: &Recipient) -> bool {
        self.held.contains_key(&(lane.clone(), Some(to.clone())))
    }

    /// Has messages sent in a lane that is [free](Self::is_free) for them.
    pub fn begin(
        &mut self,
        lane: Lane,
        to: Option<Recipient>,
        work: impl Future<Output = LeftOver> + Send + 'static,
    ) {
        self.at_work.insert(self.tasks.spawn(work).id(), (lane, to));
    }

    /// Returns when a lane has got what it was given; never while none is given anything. What was not taken is left alone for so long.
    pub async fn one_ends(&mut self, rest: Duration) {
        let (task, not_taken) = match self.tasks.join_next_with_id().await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => (error.id(), LeftOver::from([None])),
            None => return std::future::pending().await,
        };
        let Some((lane, _)) = self.at_work.remove(&task) else { return };
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

    fn nothing() -> impl Future<Output = LeftOver> + Send {
        std::future::ready(LeftOver::new())
    }

    /// What is rid of all once somebody goes on.
    fn held() -> (oneshot::Sender<()>, impl Future<Output = LeftOver> + Send) {
        let (go, held) = oneshot::channel::<()>();
        let work = async {
            held.await.expect("somebody goes on");
            LeftOver::new()
        };
        (go, work)
    }

    #[tokio::test]
    async fn a_slow_lane_holds_no_other_up_and_gets_its_messages_in_order() {
        let mut lanes = Lanes::default();
        let (go, work) = held();
        let slow = Lane { channel: "one".to_owned(), of_files: true };
        lanes.begin(slow.clone(), None, work);
        for quick in ["one", "other", "one"] {
            assert!(lanes.is_free(&texts(quick), None) && !lanes.is_free(&slow, None));
            lanes.begin(texts(quick), None, nothing());
            lanes.one_ends(REST).await;
        }
        go.send(()).expect("it waits");
        lanes.one_ends(REST).await;
        assert!(lanes.is_free(&slow, None) && lanes.is_empty());
        assert!(lanes.one_ends(REST).now_or_never().is_none(), "there is nothing to wait for");
    }

    #[tokio::test]
    async fn a_lane_is_open_to_so_many_places_and_to_each_of_them_once() {
        let (mut lanes, lane) = (Lanes::default(), texts("chat"));
        let places: Vec<Recipient> = (0..=ADDRESSES).map(|number| number.to_string()).collect();
        let mut all = Vec::new();
        for to in &places[..ADDRESSES] {
            assert!(lanes.is_free(&lane, Some(to)));
            let (go, work) = held();
            lanes.begin(lane.clone(), Some(to.clone()), work);
            all.push(go);
            assert!(!lanes.is_free(&lane, Some(to)) && !lanes.is_free(&lane, None));
        }
        let next = Some(&places[ADDRESSES]);
        assert!(!lanes.is_free(&lane, next) && lanes.is_free(&texts("other"), next));
        all.pop().expect("the last").send(()).expect("it waits");
        lanes.one_ends(REST).await;
        assert!(lanes.is_free(&lane, next) && !lanes.is_free(&lane, Some(&places[0])));
        // Of a channel that was given all of its messages at once nothing else goes beside them.
        let (_go, work) = held();
        lanes.begin(texts("plain"), None, work);
        assert!(!lanes.is_free(&texts("plain"), Some(&places[0])));
    }

    #[tokio::test]
    async fn what_is_not_taken_rests_for_its_time_whatever_else_comes() {
        let mut lanes = Lanes::default();
        let [held, free] = ["one", "other"].map(Recipient::from);
        let (down, busy) = (texts("down"), texts("busy"));
        lanes.begin(down.clone(), None, async { LeftOver::from([None]) });
        lanes.one_ends(REST).await;
        let places = LeftOver::from([Some(held.clone())]);
        lanes.begin(busy.clone(), Some(held.clone()), async { places });
        lanes.one_ends(REST).await;
        let soon = Instant::now();
        lanes.let_go(soon);
        assert!(!lanes.is_free(&down, None) && !lanes.is_free(&down, Some(&free)));
        assert!(lanes.is_free(&busy, None) && lanes.holds(&busy, &held) && !lanes.holds(&busy, &free));
        assert!(!lanes.holds(&down, &held), "it is another channel");
        assert!(lanes.next().is_some_and(|next| next > soon && next <= soon + REST));
        lanes.let_go(soon + REST + REST);
        assert!(lanes.is_free(&down, None) && !lanes.holds(&busy, &held) && lanes.next().is_none());
        lanes.begin(down.clone(), None, async { LeftOver::from([None]) });
        lanes.one_ends(REST).await;
        lanes.try_again();
        assert!(lanes.is_free(&down, None));
    }
}
