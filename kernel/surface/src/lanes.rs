//! Channels that messages are sent to at the moment, each by a task of its own.

use std::collections::{HashMap, HashSet};

use tokio::task::{self, JoinSet};

/// The channels that messages are sent to.
#[derive(Default)]
pub struct Lanes {
    tasks: JoinSet<bool>,
    at_work: HashMap<task::Id, String>,
    /// Those that did not take their next message; they are left alone until it is time to try again.
    resting: HashSet<String>,
}

impl Lanes {
    /// Whether a channel may be given messages.
    pub fn is_free(&self, channel: &str) -> bool {
        !self.resting.contains(channel) && self.at_work.values().all(|busy| busy != channel)
    }

    /// Has messages sent to a channel; `work` says whether it took them all.
    pub fn begin(&mut self, channel: String, work: impl Future<Output = bool> + Send + 'static) {
        self.at_work.insert(self.tasks.spawn(work).id(), channel);
    }

    /// Returns when a channel has got what it was given; never while none is given anything.
    pub async fn one_ends(&mut self) {
        let (task, took_all) = match self.tasks.join_next_with_id().await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => (error.id(), false),
            None => return std::future::pending().await,
        };
        if let Some(channel) = self.at_work.remove(&task).filter(|_| !took_all) {
            self.resting.insert(channel);
        }
    }

    /// Those that rest are tried again.
    pub fn try_again(&mut self) {
        self.resting.clear();
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

    #[tokio::test]
    async fn a_slow_channel_holds_no_other_up_and_gets_its_messages_in_order() {
        let mut lanes = Lanes::default();
        let (go, held) = oneshot::channel::<()>();
        lanes.begin("slow".into(), async { held.await.is_ok() });
        for _ in 0..3 {
            assert!(lanes.is_free("quick") && !lanes.is_free("slow"));
            lanes.begin("quick".into(), async { true });
            lanes.one_ends().await;
        }
        go.send(()).expect("it waits");
        lanes.one_ends().await;
        assert!(lanes.is_free("slow") && lanes.is_empty());
        assert!(lanes.one_ends().now_or_never().is_none(), "there is nothing to wait for");
    }

    #[tokio::test]
    async fn a_channel_that_does_not_take_its_message_rests_until_it_is_tried_again() {
        let mut lanes = Lanes::default();
        lanes.begin("a".into(), async { false });
        lanes.one_ends().await;
        assert!(lanes.is_empty() && !lanes.is_free("a"));
        lanes.try_again();
        assert!(lanes.is_free("a"));
    }
}
