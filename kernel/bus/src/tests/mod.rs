//! Tests of the whole crate: on a real journal in a file, with a clock that stands still while anything is at work.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chains;
mod delivering;
mod events;
mod following;
mod live;
mod pulling;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use drupe_agent::{Chain, Clock, TopicMessage};
use drupe_extension_api::{AgentId, ExtensionId};
use drupe_journal::{DueMessage, Storage, Store, StoreError};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{Bus, Delivered, Deliveries, Queue, Receiver, Remark};

/// When the clock of a test begins, in milliseconds since 1970.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// More questions, or more messages for a receiver, than any test has a use for: from there on nothing is answered, so
/// that what goes round in circles fails instead of going on for ever.
const MANY: u32 = 2_000;

/// The paused clock of the test's runtime, for any thread.
struct RuntimeClock {
    runtime: Handle,
    begin: Instant,
}

impl Clock for RuntimeClock {
    fn now_ms(&self) -> i64 {
        let _entered = self.runtime.enter();
        BEGIN_MS + i64::try_from(self.begin.elapsed().as_millis()).unwrap()
    }
}

/// Waits for the journal's threads without the paused clock moving on, as it does while a blocking task runs.
async fn still<T>(work: impl Future<Output = T>) -> T {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let pin = tokio::task::spawn_blocking(move || ended.recv());
    let done = work.await;
    drop(end);
    let _ = pin.await.unwrap();
    done
}

/// The journal as a queue that can be made to fail.
struct Rows {
    store: Store,
    /// Questions and notes that will fail from now on.
    failing: AtomicU32,
    /// How often it was asked what is due.
    asked: AtomicU32,
}

impl Rows {
    fn works(&self) -> Result<(), StoreError> {
        if self.asked.load(Ordering::Relaxed) > MANY {
            return Err(StoreError::Busy);
        }
        let left =
            self.failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_ok() { Err(StoreError::Busy) } else { Ok(()) }
    }
}

impl Queue for Rows {
    fn follow(&self, subscriber: String, topic: String) -> BoxFuture<'_, Result<(), StoreError>> {
        still(Queue::follow(&self.store, subscriber, topic)).boxed()
    }

    fn unfollow(&self, subscriber: String, topic: String) -> BoxFuture<'_, Result<(), StoreError>> {
        still(Queue::unfollow(&self.store, subscriber, topic)).boxed()
    }

    fn following(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, StoreError>> {
        still(Queue::following(&self.store)).boxed()
    }

    fn due(&self, now_ms: i64, limit: usize) -> BoxFuture<'_, Result<Vec<DueMessage>, StoreError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        still(async move {
            self.works()?;
            Queue::due(&self.store, now_ms, limit).await
        })
        .boxed()
    }

    fn due_for<'a>(
        &'a self,
        subscriber: &'a str,
        topic: &'a str,
        now_ms: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DueMessage>, StoreError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        still(async move {
            self.works()?;
            Queue::due_for(&self.store, subscriber, topic, now_ms, limit).await
        })
        .boxed()
    }

    fn first_due_ms<'a>(
        &'a self,
        subscriber: &'a str,
        topic: &'a str,
    ) -> BoxFuture<'a, Result<Option<i64>, StoreError>> {
        still(Queue::first_due_ms(&self.store, subscriber, topic)).boxed()
    }

    fn next_due_ms(&self) -> BoxFuture<'_, Result<Option<i64>, StoreError>> {
        still(Queue::next_due_ms(&self.store)).boxed()
    }

    fn done(&self, id: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        still(async move {
            self.works()?;
            Queue::done(&self.store, id).await
        })
        .boxed()
    }

    fn failed(
        &self,
        id: u64,
        why: String,
        again_at_ms: Option<i64>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        still(async move {
            self.works()?;
            Queue::failed(&self.store, id, why, again_at_ms).await
        })
        .boxed()
    }

    fn cut(&self, id: u64, why: String) -> BoxFuture<'_, Result<u64, StoreError>> {
        still(async move {
            self.works()?;
            Queue::cut(&self.store, id, why).await
        })
        .boxed()
    }
}

/// What a receiver does with a message.
enum Does {
    Says(Delivered),
    /// The same, a moment later.
    Ponders(Delivered),
    Panics,
    /// Never answers.
    Hangs,
}

/// Decides by the message and by how many messages came before it.
type Decide = Box<dyn Fn(&DueMessage, usize) -> Does + Send + Sync>;

/// A receiver that notes what comes: subscriber, number of the message, and milliseconds since the beginning.
struct Post {
    decide: Decide,
    clock: Arc<RuntimeClock>,
    came: Mutex<Vec<(String, u64, i64)>>,
    remarks: Mutex<Vec<Remark>>,
}

impl Receiver for Post {
    fn deliver(&self, message: DueMessage) -> BoxFuture<'_, Delivered> {
        let number = message.payload["n"].as_u64().unwrap();
        let mut came = self.came.lock().unwrap();
        let many = came.len() > MANY as usize;
        let does = if many { Does::Hangs } else { (self.decide)(&message, came.len()) };
        came.push((message.subscriber, number, self.clock.now_ms() - BEGIN_MS));
        drop(came);
        async move {
            match does {
                Does::Says(delivered) => delivered,
                Does::Ponders(delivered) => {
                    sleep(Duration::from_millis(10)).await;
                    delivered
                }
                Does::Panics => panic!("a receiver that panics"),
                Does::Hangs => std::future::pending().await,
            }
        }
        .boxed()
    }

    fn remark(&self, remark: Remark) {
        self.remarks.lock().unwrap().push(remark);
    }
}

/// One kernel's life over a journal in a file.
struct Life {
    rows: Arc<Rows>,
    bus: Arc<Bus>,
    post: Arc<Post>,
    deliveries: Arc<Deliveries>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// The file, and the clock over all lives.
struct Home {
    folder: TempDir,
    clock: Arc<RuntimeClock>,
}

impl Home {
    fn new() -> Self {
        let clock = Arc::new(RuntimeClock { runtime: Handle::current(), begin: Instant::now() });
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    /// A kernel that starts.
    fn start(&self, decide: impl Fn(&DueMessage, usize) -> Does + Send + Sync + 'static) -> Life {
        let bus = Arc::new(Bus::default());
        let storage = Storage::Process(self.folder.path().join("journal.db"));
        let store = Store::open(&storage, self.clock.clone(), bus.publisher()).unwrap();
        let rows = Arc::new(Rows { store, failing: AtomicU32::new(0), asked: AtomicU32::new(0) });
        let post = Arc::new(Post {
            decide: Box::new(decide),
            clock: self.clock.clone(),
            came: Mutex::default(),
            remarks: Mutex::default(),
        });
        let deliveries =
            Arc::new(Deliveries::new(rows.clone(), Arc::clone(&bus), post.clone(), self.clock.clone()));
        let stop = CancellationToken::new();
        let (serving, ends) = (Arc::clone(&deliveries), stop.clone());
        #[expect(clippy::disallowed_methods, reason = "a test has no tracker of tasks")]
        let running = tokio::spawn(async move { serving.run(ends).await });
        Life { rows, bus, post, deliveries, stop, running }
    }
}

impl Life {
    /// Agents follow topics.
    async fn follow(&self, agents: &[(&str, &str)]) {
        let agents: BTreeSet<_> = agents.iter().map(|(id, topic)| (agent(id), topic.to_string())).collect();
        self.deliveries.reconcile(&agents, &BTreeSet::new()).await.unwrap();
    }

    /// Publishes a message, `{"n": number}`, which begins a chain.
    async fn publish(&self, topic: &str, number: u64) {
        self.publish_in(topic, number, Chain { hops: 1, ancestors: Vec::new() }, None).await;
    }

    async fn publish_in(&self, topic: &str, number: u64, chain: Chain, correlation: Option<&str>) {
        let message = TopicMessage {
            topic: topic.into(),
            payload: json!({ "n": number }),
            chain,
            correlation: correlation.map(|id| id.parse().unwrap()),
        };
        still(self.rows.store.publish(message)).await.unwrap();
    }

    /// What came so far, as `subscriber number`.
    fn came(&self) -> Vec<String> {
        let came = self.post.came.lock().unwrap();
        came.iter().map(|(subscriber, number, _)| format!("{subscriber} {number}")).collect()
    }

    /// Milliseconds at which messages came.
    fn times(&self) -> Vec<i64> {
        self.post.came.lock().unwrap().iter().map(|(_, _, at)| *at).collect()
    }

    /// The dead letters, as `subscriber number attempts: reason`.
    async fn dead(&self) -> Vec<String> {
        let dead = still(self.rows.store.dead_messages()).await.unwrap();
        let line = |d: &drupe_extension_api::control::DeadMessage| {
            format!("{} {} {}: {}", d.subscriber, d.payload["n"], d.attempts, d.reason)
        };
        dead.iter().map(line).collect()
    }

    /// Whether nothing waits.
    async fn empty(&self) -> bool {
        still(self.rows.store.next_due_ms()).await.unwrap().is_none()
    }

    /// The kernel ends, in the middle of whatever it does.
    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
        still(self.rows.store.clone().close()).await.unwrap();
    }
}

/// Lets a time pass, and with it everything that happens meanwhile.
async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

fn agent(id: &str) -> AgentId {
    AgentId::new(id).unwrap()
}

fn extension(id: &str) -> ExtensionId {
    ExtensionId::new(id).unwrap()
}

fn done(_: &DueMessage, _: usize) -> Does {
    Does::Says(Delivered::Done)
}

fn later() -> Does {
    Does::Says(Delivered::Later { why: "not now".into() })
}
