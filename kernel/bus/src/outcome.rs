//! What became of a message, noted in the journal: done, tried again, or given up.

use std::{sync::Arc, time::Duration};

use drupe_agent::Clock;
use drupe_extension_api::CorrelationId;
use drupe_journal::{DueMessage, StoreError};
use parking_lot::Mutex;

use crate::{
    Cut, Delivered, GaveUp, Queue, Receiver, Remark,
    backoff::{ATTEMPTS, wait_ms},
    lanes::Rest,
    remark::Told,
};

/// How long a message waits whose receiver is not here, in milliseconds, unless somebody comes earlier.
const ABSENT_MS: i64 = 60_000;

/// The longest time between two looks at the clock, which may be set, and stands while the machine sleeps.
const LOOK: Duration = Duration::from_secs(60);

/// When a journal that did not answer is asked again, in milliseconds.
pub(crate) const JOURNAL_MS: i64 = 5_000;

/// What is left of a message that was given away.
#[derive(Debug, Clone)]
pub(crate) struct Stub {
    pub id: u64,
    pub subscriber: String,
    topic: String,
    correlation: Option<CorrelationId>,
    /// How often it was tried, this time included.
    attempts: u32,
}

impl Stub {
    pub fn of(message: &DueMessage) -> Self {
        Self {
            id: message.id,
            subscriber: message.subscriber.clone(),
            topic: message.topic.clone(),
            correlation: message.correlation.clone(),
            attempts: message.attempts.saturating_add(1),
        }
    }
}

/// Notes outcomes, and tells of messages that were given up.
pub(crate) struct Outcomes {
    pub queue: Arc<dyn Queue>,
    pub receiver: Arc<dyn Receiver>,
    pub clock: Arc<dyn Clock>,
    told: Mutex<Told>,
}

impl Outcomes {
    pub fn new(queue: Arc<dyn Queue>, receiver: Arc<dyn Receiver>, clock: Arc<dyn Clock>) -> Self {
        Self { queue, receiver, clock, told: Mutex::default() }
    }

    /// Notes what became of a message, and says how long its subscriber rests.
    pub async fn note(&self, stub: &Stub, delivered: Result<Delivered, Cut>) -> Rest {
        let noted = match delivered {
            Ok(Delivered::Done) => self.queue.done(stub.id).await.map(|()| Rest::No),
            Ok(Delivered::Later { why }) if stub.attempts < ATTEMPTS => self.again(stub, why).await,
            Ok(Delivered::Later { why }) => {
                self.give_up(stub, GaveUp::Tried { attempts: stub.attempts, why }).await
            }
            Ok(Delivered::Never { why }) => self.give_up(stub, GaveUp::Refused(why)).await,
            Ok(Delivered::NotHere) => Ok(Rest::Absent(self.clock.now_ms() + ABSENT_MS)),
            Err(cut) => self.give_up(stub, GaveUp::Cut(cut)).await,
        };
        noted.unwrap_or_else(|error| {
            tracing::error!(
                %error, message = stub.id, subscriber = stub.subscriber,
                "what became of a message is not noted; it comes again"
            );
            Rest::Until(self.clock.now_ms() + JOURNAL_MS)
        })
    }

    /// Waits until then, in milliseconds since 1970, or until the clock is to be looked at again; with none for ever.
    pub async fn sleep_until(&self, at_ms: Option<i64>) {
        match at_ms {
            Some(at_ms) => {
                let wait = u64::try_from(at_ms.saturating_sub(self.clock.now_ms())).unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(wait).min(LOOK)).await;
            }
            None => std::future::pending().await,
        }
    }

    async fn again(&self, stub: &Stub, why: String) -> Result<Rest, StoreError> {
        let at_ms = self.clock.now_ms() + wait_ms(stub.id, stub.attempts);
        tracing::debug!(message = stub.id, subscriber = stub.subscriber, why, "a message is tried again");
        self.queue.failed(stub.id, why, Some(at_ms)).await.map(|()| Rest::Until(at_ms))
    }

    async fn give_up(&self, stub: &Stub, reason: GaveUp) -> Result<Rest, StoreError> {
        let why = reason.to_string();
        let id = match &reason {
            GaveUp::Cut(_) => self.queue.cut(stub.id, why).await?,
            GaveUp::Tried { .. } | GaveUp::Refused(_) => {
                self.queue.failed(stub.id, why, None).await?;
                stub.id
            }
        };
        let remark = Remark {
            id,
            subscriber: stub.subscriber.clone(),
            topic: stub.topic.clone(),
            correlation: stub.correlation.clone(),
            reason,
        };
        // Told after it is noted: where noting fails, it is tried again and would be told again.
        let first = self.told.lock().first(&remark);
        if first {
            self.receiver.remark(remark);
        }
        Ok(Rest::No)
    }
}
