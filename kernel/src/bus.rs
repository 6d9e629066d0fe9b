//! What happens, to whoever watches now. Nothing here is kept: what must not be lost is in the journal.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_agent::Observer;
use drupe_extension_api::{Event, SessionId, wire::BusMessage};
use tokio::sync::broadcast::{self, error::RecvError};

/// Events that a watcher of a session may lag behind. One that lags further reads the kept ones again and misses deltas
/// only, so this need not hold a whole answer; each session that is watched has a ring of this size.
const EVENTS: usize = 256;

/// Messages that a subscriber may lag behind before it skips some; one ring for all topics.
const MESSAGES: usize = 1024;

type Sessions = Mutex<HashMap<SessionId, broadcast::Sender<Arc<Event>>>>;

/// Events by session, and messages by topic.
pub struct Bus {
    sessions: Arc<Sessions>,
    topics: broadcast::Sender<BusMessage>,
}

/// Somebody who watches a session; nothing is left of it when it goes.
pub struct Watch {
    events: broadcast::Receiver<Arc<Event>>,
    session: SessionId,
    sessions: Arc<Sessions>,
}

impl Default for Bus {
    fn default() -> Self {
        Self { sessions: Arc::default(), topics: broadcast::channel(MESSAGES).0 }
    }
}

impl Bus {
    /// Tells the watchers of a session.
    pub fn event(&self, event: Arc<Event>) {
        if let Some(watchers) = lock(&self.sessions).get(&event.session) {
            // It fails only where the last watcher left in between.
            let _ = watchers.send(event);
        }
    }

    /// Watches a session from now on.
    pub fn watch(&self, session: &SessionId) -> Watch {
        let events = lock(&self.sessions)
            .entry(session.clone())
            .or_insert_with(|| broadcast::channel(EVENTS).0)
            .subscribe();
        Watch { events, session: session.clone(), sessions: Arc::clone(&self.sessions) }
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
}

impl Watch {
    /// The next event; an error after some were missed.
    pub async fn recv(&mut self) -> Result<Arc<Event>, RecvError> {
        self.events.recv().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut sessions = lock(&self.sessions);
        // Counted under the lock under which others begin to watch.
        if sessions.get(&self.session).is_some_and(|watchers| watchers.receiver_count() <= 1) {
            sessions.remove(&self.session);
        }
    }
}

fn lock(sessions: &Sessions) -> MutexGuard<'_, HashMap<SessionId, broadcast::Sender<Arc<Event>>>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer for Bus {
    fn live(&self, event: Event) {
        self.event(Arc::new(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_session_that_nobody_watches() {
        let bus = Bus::default();
        let session = SessionId::new("s").expect("a valid id");
        let (one, two) = (bus.watch(&session), bus.watch(&session));
        drop(one);
        assert_eq!(lock(&bus.sessions).len(), 1);
        drop(two);
        assert!(lock(&bus.sessions).is_empty());
    }
}
