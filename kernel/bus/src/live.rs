//! What happens, to whoever watches now: events by session, messages by topic.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

use drupe_agent::{Observer, TopicMessage, Topics};
use drupe_extension_api::{Event, Fault, SessionId};
use drupe_handles::Item;
use drupe_journal::{Publish, Published};
use parking_lot::RwLock;
use serde_json::value::to_raw_value;
use tokio::sync::{Notify, futures::Notified};

use crate::{
    Subscription,
    ring::{Found, Reader, Rings},
};

/// Events that a watcher of a session may lag behind. One that lags further reads the kept ones again and misses deltas
/// only, so this need not hold a whole answer.
const EVENTS: usize = 256;

/// Messages that a subscriber of a topic may lag behind before it skips some.
const MESSAGES: usize = 1024;

/// Events by session, messages by topic. Nothing here is kept: what must not be lost is in the journal.
pub struct Bus {
    sessions: Arc<Rings<Arc<Shown>>>,
    topics: Arc<Rings<Arc<TopicMessage>>>,
    /// Topics of which messages wait in the journal for somebody.
    durable: RwLock<HashSet<String>>,
    /// Wakes the one who delivers.
    due: Notify,
    /// Wakes those who pull.
    pulls: Notify,
}

impl Default for Bus {
    fn default() -> Self {
        Self {
            sessions: Rings::new(EVENTS),
            topics: Rings::new(MESSAGES),
            durable: RwLock::default(),
            due: Notify::new(),
            pulls: Notify::new(),
        }
    }
}

/// What a watcher of a session sees.
#[derive(Debug, Clone, PartialEq)]
pub enum Watched {
    /// An event.
    Event(Arc<Event>),
    /// The watcher was too slow: it goes on with what happens from now on. Kept events that it missed are in the journal
    /// by now, live ones are lost.
    Skipped,
}

/// Somebody who watches a session; nothing is left of it when it goes.
pub struct Watch(Reader<Arc<Shown>>);

/// An event, with the text that it is shown as: written by the first who shows it, for all who watch.
pub(crate) struct Shown {
    pub event: Arc<Event>,
    item: OnceLock<Item>,
}

impl Shown {
    pub fn new(event: Arc<Event>) -> Self {
        Self { event, item: OnceLock::new() }
    }

    pub fn item(&self) -> Result<Item, Fault> {
        if let Some(item) = self.item.get() {
            return Ok(Arc::clone(item));
        }
        let item = Item::from(to_raw_value(&*self.event)?);
        Ok(Arc::clone(self.item.get_or_init(|| item)))
    }
}

/// The same as [`Watched`], for who shows it.
pub(crate) enum Watching {
    Event(Arc<Shown>),
    Skipped,
}

impl Bus {
    /// What the journal is to be opened with, so that what it commits comes here.
    pub fn publisher(self: &Arc<Self>) -> Publish {
        let bus = Arc::clone(self);
        Arc::new(move |published| match published {
            Published::Event(event) => bus.event(event),
            Published::Message(message) => bus.message(message),
            Published::Due => bus.wake(),
        })
    }

    /// Tells the watchers of a session.
    pub fn event(&self, event: Arc<Event>) {
        let session = event.session.clone();
        self.sessions.send(session.as_str(), || Arc::new(Shown::new(event)));
    }

    /// Watches a session from now on.
    pub fn watch(&self, session: &SessionId) -> Watch {
        Watch(self.sessions.read(session.as_str()))
    }

    /// Whether anybody watches a session now.
    pub fn watched(&self, session: &SessionId) -> bool {
        self.sessions.has(session.as_str())
    }

    /// Tells the live subscribers of a topic. Durable ones get theirs from the journal.
    pub fn message(&self, message: Arc<TopicMessage>) {
        let topic = Arc::clone(&message);
        self.topics.send(&topic.topic, || message);
    }

    /// Follows a topic from now on, as long as the subscription is there.
    pub fn subscribe(&self, topic: &str) -> Subscription {
        Subscription::new(self.topics.read(topic))
    }

    /// Whether anybody, live or durable, follows a topic: only then need a message for it be made.
    pub fn listens(&self, topic: &str) -> bool {
        self.topics.has(topic) || self.is_durable(topic)
    }

    /// Whether messages of a topic wait for somebody: they must go by way of the journal.
    pub fn is_durable(&self, topic: &str) -> bool {
        self.durable.read().contains(topic)
    }

    /// Sets the topics that durable subscribers follow.
    pub(crate) fn set_durable(&self, topics: HashSet<String>) {
        *self.durable.write() = topics;
    }

    /// There may be something to deliver.
    pub(crate) fn wake(&self) {
        self.due.notify_one();
        self.wake_pulls();
    }

    /// There may be something to pull, or to learn for those who do.
    pub(crate) fn wake_pulls(&self) {
        self.pulls.notify_waiters();
    }

    /// Waits until those who pull are woken after this call.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.pulls.notified()
    }

    /// Waits until there may be something to deliver.
    pub(crate) async fn due(&self) {
        self.due.notified().await;
    }
}

impl Watch {
    /// The next event; once after some were missed, that they were.
    pub async fn recv(&mut self) -> Watched {
        match self.shown().await {
            Watching::Event(shown) => Watched::Event(Arc::clone(&shown.event)),
            Watching::Skipped => Watched::Skipped,
        }
    }

    pub(crate) async fn shown(&mut self) -> Watching {
        let found = self.0.next().await;
        self.watching(found)
    }

    /// What is there now.
    pub(crate) fn try_shown(&mut self) -> Option<Watching> {
        let found = self.0.try_next()?;
        Some(self.watching(found))
    }

    fn watching(&mut self, found: Found<Arc<Shown>>) -> Watching {
        match found {
            Found::Item(shown) => Watching::Event(shown),
            Found::Skipped(_) => {
                // Going on with the oldest that is still there would soon be too slow again.
                self.0.skip_to_now();
                Watching::Skipped
            }
        }
    }
}

impl Observer for Bus {
    fn live(&self, event: Event) {
        let session = event.session.clone();
        self.sessions.send(session.as_str(), || Arc::new(Shown::new(Arc::new(event))));
    }

    fn watched(&self, session: &SessionId) -> bool {
        Bus::watched(self, session)
    }
}

impl Topics for Bus {
    fn listens(&self, topic: &str) -> bool {
        Bus::listens(self, topic)
    }
}
