//! What happens, to whoever watches now. Nothing here is kept: what must not be lost is in the journal.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_agent::Observer;
use drupe_extension_api::{Event, SessionId, wire::BusMessage};
use tokio::sync::broadcast;

/// Messages that a slow reader may lag behind before it skips some. A fast model's answer is a few thousand deltas.
const LAG: usize = 4096;

/// Events by session, and messages by topic.
pub struct Bus {
    sessions: Mutex<HashMap<SessionId, broadcast::Sender<Arc<Event>>>>,
    topics: broadcast::Sender<BusMessage>,
}

impl Default for Bus {
    fn default() -> Self {
        Self { sessions: Mutex::default(), topics: broadcast::channel(LAG).0 }
    }
}

impl Bus {
    /// Tells the watchers of a session.
    pub fn event(&self, event: Arc<Event>) {
        let mut sessions = self.lock();
        let Some(watchers) = sessions.get(&event.session) else { return };
        if watchers.receiver_count() == 0 {
            sessions.remove(&event.session);
        } else {
            // It fails only where the last watcher left in between.
            let _ = watchers.send(event);
        }
    }

    /// Watches a session from now on.
    pub fn watch(&self, session: &SessionId) -> broadcast::Receiver<Arc<Event>> {
        self.lock().entry(session.clone()).or_insert_with(|| broadcast::channel(LAG).0).subscribe()
    }

    /// Publishes on a topic.
    pub fn publish(&self, message: BusMessage) {
        // Without a subscriber there is nobody to tell.
        let _ = self.topics.send(message);
    }

    /// All topics from now on.
    pub fn topics(&self) -> broadcast::Receiver<BusMessage> {
        self.topics.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, broadcast::Sender<Arc<Event>>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Bus {
    fn live(&self, event: Event) {
        self.event(Arc::new(event));
    }
}
