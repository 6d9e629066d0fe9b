//! Messages of durable topics on their way to their subscribers.
//!
//! One task, which the kernel spawns. Each subscriber gets its messages in order, one at a time; subscribers do not wait
//! for each other. A message counts as delivered when its receiver says so and the journal has noted it: until then it
//! comes again, after a restart as well, so that each comes at least once.
//!
//! What a message means to its receiver is not known here.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use drupe_agent::Clock;
use drupe_extension_api::{AgentId, ExtensionId};
use drupe_journal::{DueMessage, StoreError, is_due};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use crate::{
    Bus, Cut, Pull, Queue, Remark, Subscriber, admit,
    lanes::{Lanes, Rest},
    outcome::{JOURNAL_MS, Outcomes, Stub},
    pull::Desk,
};

/// Messages that are read at once, beside those of subscribers that cannot take one now.
const BATCH: usize = 64;

/// How long a receiver may take with one message.
const DELIVER: Duration = Duration::from_secs(60);

/// When messages are looked at again that an earlier process left, in milliseconds, while others that wait for somebody
/// hide when they are due.
const LEFT_MS: i64 = 30_000;

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// It arrived.
    Done,
    /// It did not, and may the next time.
    Later {
        /// What was in the way.
        why: String,
    },
    /// It did not, and never will.
    Never {
        /// What is in the way.
        why: String,
    },
    /// There is nobody to give it to now; it waits without being tried.
    NotHere,
}

/// Takes the messages of agents.
pub trait Receiver: Send + Sync {
    /// Gives a message to its subscriber. It may come again, with the same number, even after it was taken: what it sets
    /// off must be bound to the number. Its chain is one that may set something off.
    fn deliver(&self, message: DueMessage) -> BoxFuture<'_, Delivered>;

    /// A message was given up, and is a dead letter by now. Must not block.
    fn remark(&self, remark: Remark);
}

/// Delivers the messages of durable topics.
pub struct Deliveries {
    outcomes: Arc<Outcomes>,
    bus: Arc<Bus>,
    desk: Arc<Desk>,
    /// How often somebody came.
    comings: AtomicU64,
}

/// What was under way is dealt with: a message of this subscriber, or what handles had left behind.
type Landed = Option<(String, Rest)>;

impl Deliveries {
    /// Deliveries from `queue`, which tells of messages through the publisher of `bus`.
    pub fn new(
        queue: Arc<dyn Queue>,
        bus: Arc<Bus>,
        receiver: Arc<dyn Receiver>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let outcomes = Arc::new(Outcomes::new(queue, receiver, clock));
        Self { outcomes, bus, desk: Arc::default(), comings: AtomicU64::new(0) }
    }

    /// Delivers until it is stopped. What is under way then comes again when this is run the next time.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.serve()).await;
    }

    /// Agents came: what waited for somebody is tried again now.
    pub fn come(&self) {
        self.comings.fetch_add(1, Ordering::SeqCst);
        self.bus.wake();
    }

    /// Brings the durable subscriptions in line: those of agents are exactly `agents`, from now on for new ones; those of
    /// extensions that are not `known` end. What waits for one that ends becomes dead letters. Call it when manifests were
    /// read, before anything is published.
    pub async fn reconcile(
        &self,
        agents: &BTreeSet<(AgentId, String)>,
        known: &BTreeSet<ExtensionId>,
    ) -> Result<(), StoreError> {
        let queue = &self.outcomes.queue;
        let mut wanted: BTreeSet<(String, String)> = agents
            .iter()
            .map(|(agent, topic)| (Subscriber::Agent(agent.clone()).to_string(), topic.clone()))
            .collect();
        for (name, topic) in queue.following().await? {
            let known = match Subscriber::of(&name) {
                Some(Subscriber::Extension(extension)) => known.contains(&extension),
                _ => wanted.remove(&(name.clone(), topic.clone())),
            };
            if !known {
                self.end(name, topic).await?;
            }
        }
        for (name, topic) in wanted {
            queue.follow(name, topic).await?;
        }
        self.tell_bus().await?;
        self.come();
        Ok(())
    }

    /// A handle of an extension on a topic, whose messages wait for that extension from now on, also while it has no
    /// handle. An older handle on the same topic ends.
    pub async fn pull(&self, extension: &ExtensionId, topic: &str) -> Result<Pull, StoreError> {
        let subscriber = Subscriber::Extension(extension.clone());
        self.outcomes.queue.follow(subscriber.to_string(), topic.to_owned()).await?;
        self.tell_bus().await?;
        Ok(self.desk.open(extension, topic, &self.outcomes, &self.bus))
    }

    /// Ends a durable subscription. Nobody would ever take what waits for it, and nothing is lost in silence.
    async fn end(&self, name: String, topic: String) -> Result<(), StoreError> {
        let queue = &self.outcomes.queue;
        queue.unfollow(name.clone(), topic.clone()).await?;
        loop {
            let left = queue.due_for(&name, &topic, i64::MAX, BATCH).await?;
            if left.is_empty() {
                return Ok(());
            }
            for message in left {
                let why = format!("`{name}` does not follow `{topic}` any more");
                queue.failed(message.id, why, None).await?;
            }
        }
    }

    async fn tell_bus(&self) -> Result<(), StoreError> {
        let following = self.outcomes.queue.following().await?;
        self.bus.set_durable(following.into_iter().map(|(_, topic)| topic).collect());
        Ok(())
    }

    async fn serve(&self) -> Infallible {
        let mut lanes = Lanes::default();
        let mut flying: FuturesUnordered<BoxFuture<'_, Landed>> = FuturesUnordered::new();
        let mut comings = self.comings.load(Ordering::SeqCst);
        // When to look for what an earlier process left; what fails from here on is known without asking.
        let mut left_ms = Some(i64::MIN);
        loop {
            let came = self.comings.load(Ordering::SeqCst);
            if came != comings {
                comings = came;
                lanes.come();
            }
            if self.desk.has_left() {
                flying.push(self.desk.note_left(&self.outcomes, &self.bus).map(|()| None).boxed());
            }
            let again_ms = match self.begin(&mut lanes, &mut flying, &mut left_ms).await {
                Ok(()) => lanes.next_ms().into_iter().chain(left_ms).min(),
                Err(error) => {
                    tracing::error!(%error, "messages of durable topics wait, but the journal does not answer");
                    Some(self.outcomes.clock.now_ms() + JOURNAL_MS)
                }
            };
            tokio::select! {
                biased;
                Some(landed) = flying.next() => {
                    let mut landed = Some(Some(landed));
                    while let Some(Some(one)) = landed {
                        one.into_iter().for_each(|(subscriber, rest)| lanes.end(subscriber, rest));
                        landed = flying.next().now_or_never();
                    }
                }
                () = self.bus.due() => {}
                () = self.outcomes.sleep_until(again_ms) => {}
            }
        }
    }

    /// Sends off what is due.
    async fn begin<'a>(
        &'a self,
        lanes: &mut Lanes,
        flying: &mut FuturesUnordered<BoxFuture<'a, Landed>>,
        left_ms: &mut Option<i64>,
    ) -> Result<(), StoreError> {
        let queue = &self.outcomes.queue;
        let now_ms = self.outcomes.clock.now_ms();
        lanes.rested(now_ms);
        loop {
            let limit = lanes.taken() + BATCH;
            let due = queue.due(now_ms, limit).await?;
            let whole = due.len() < limit;
            for message in due {
                match Subscriber::of(&message.subscriber) {
                    Some(Subscriber::Extension(_)) => lanes.other(message.subscriber),
                    _ if lanes.begin(&message.subscriber) => flying.push(self.carry(message).boxed()),
                    _ => {}
                }
            }
            if whole {
                break;
            }
        }
        if left_ms.is_some_and(|at| is_due(at, now_ms)) {
            *left_ms =
                queue.next_due_ms().await?.map(|at| if is_due(at, now_ms) { now_ms + LEFT_MS } else { at });
        }
        Ok(())
    }

    /// One message: to its receiver, then its outcome to the journal.
    async fn carry(&self, message: DueMessage) -> Landed {
        let comings = self.comings.load(Ordering::SeqCst);
        let stub = Stub::of(&message);
        let rest = match self.hand_over(message).await {
            // Somebody came while it was looked whether they are here.
            Ok(Delivered::NotHere) if comings != self.comings.load(Ordering::SeqCst) => Rest::No,
            delivered => self.outcomes.note(&stub, delivered).await,
        };
        Some((stub.subscriber, rest))
    }

    async fn hand_over(&self, message: DueMessage) -> Result<Delivered, Cut> {
        let Some(Subscriber::Agent(agent)) = Subscriber::of(&message.subscriber) else {
            return Ok(Delivered::Never { why: format!("`{}` names no subscriber", message.subscriber) });
        };
        let chain = admit(&message.chain, Some(&agent))?;
        let message = DueMessage { chain, ..message };
        let receiver = &self.outcomes.receiver;
        let delivering = AssertUnwindSafe(async { receiver.deliver(message).await }).catch_unwind();
        Ok(match tokio::time::timeout(DELIVER, delivering).await {
            Ok(Ok(delivered)) => delivered,
            Ok(Err(_)) => Delivered::Later { why: "the kernel panicked while it was delivered".into() },
            Err(_) => Delivered::Later { why: format!("it was not taken within {} s", DELIVER.as_secs()) },
        })
    }
}
