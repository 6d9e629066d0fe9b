//! Where messages of durable topics wait for their subscribers: what the bus asks of the journal.

use drupe_journal::{DueMessage, Store, StoreError};
use futures_util::{FutureExt, future::BoxFuture};

/// A question about them, while it is under way.
type Queued<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The rows behind durable topics. A message that is published becomes a row for each durable subscriber of its topic.
pub trait Queue: Send + Sync {
    /// Makes `subscriber` a durable subscriber of a topic, from now on; nothing changes where it is one.
    fn follow(&self, subscriber: String, topic: String) -> Queued<'_, ()>;

    /// Ends a durable subscription.
    fn unfollow(&self, subscriber: String, topic: String) -> Queued<'_, ()>;

    /// All durable subscriptions: subscribers and topics.
    fn following(&self) -> Queued<'_, Vec<(String, String)>>;

    /// What may be delivered at `now_ms`, the oldest first: at most one message a subscriber, and none as long as an
    /// earlier one of that subscriber waits to be tried again.
    fn due(&self, now_ms: i64, limit: usize) -> Queued<'_, Vec<DueMessage>>;

    /// The first messages of one topic that wait for a subscriber, in order, up to the first that is not due at `now_ms`.
    fn due_for<'a>(
        &'a self,
        subscriber: &'a str,
        topic: &'a str,
        now_ms: i64,
        limit: usize,
    ) -> Queued<'a, Vec<DueMessage>>;

    /// When the first message of a topic that waits for a subscriber is due; none where none waits.
    fn first_due_ms<'a>(&'a self, subscriber: &'a str, topic: &'a str) -> Queued<'a, Option<i64>>;

    /// When the earliest message is due; none where none waits.
    fn next_due_ms(&self) -> Queued<'_, Option<i64>>;

    /// A message was delivered.
    fn done(&self, id: u64) -> Queued<'_, ()>;

    /// A message was tried and not delivered. It is due again then, or, with none, given up: a dead letter.
    fn failed(&self, id: u64, why: String, again_at_ms: Option<i64>) -> Queued<'_, ()>;

    /// A message's chain is cut at its subscriber. It joins the one dead letter of all those of its topic that were cut
    /// there, whose number is given.
    fn cut(&self, id: u64, why: String) -> Queued<'_, u64>;
}

impl Queue for Store {
    fn follow(&self, subscriber: String, topic: String) -> Queued<'_, ()> {
        Store::follow(self, subscriber, topic).boxed()
    }

    fn unfollow(&self, subscriber: String, topic: String) -> Queued<'_, ()> {
        Store::unfollow(self, subscriber, topic).boxed()
    }

    fn following(&self) -> Queued<'_, Vec<(String, String)>> {
        Store::following(self).boxed()
    }

    fn due(&self, now_ms: i64, limit: usize) -> Queued<'_, Vec<DueMessage>> {
        self.due_messages(now_ms, limit).boxed()
    }

    fn due_for<'a>(
        &'a self,
        subscriber: &'a str,
        topic: &'a str,
        now_ms: i64,
        limit: usize,
    ) -> Queued<'a, Vec<DueMessage>> {
        Store::due_for(self, subscriber, topic, now_ms, limit).boxed()
    }

    fn first_due_ms<'a>(&'a self, subscriber: &'a str, topic: &'a str) -> Queued<'a, Option<i64>> {
        async move {
            let first = Store::due_for(self, subscriber, topic, i64::MAX, 1).await?;
            let Some(first) = first.first() else { return Ok(None) };
            Ok(self.message(first.id).await?.map(|row| row.due.as_millisecond()))
        }
        .boxed()
    }

    fn next_due_ms(&self) -> Queued<'_, Option<i64>> {
        Store::next_due_ms(self).boxed()
    }

    fn done(&self, id: u64) -> Queued<'_, ()> {
        self.message_done(id).boxed()
    }

    fn failed(&self, id: u64, why: String, again_at_ms: Option<i64>) -> Queued<'_, ()> {
        self.message_failed(id, why, again_at_ms).boxed()
    }

    fn cut(&self, id: u64, why: String) -> Queued<'_, u64> {
        self.message_cut(id, why).boxed()
    }
}
