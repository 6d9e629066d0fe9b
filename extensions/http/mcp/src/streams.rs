//! Connections of the transport of revision 2024-11-05: a stream of events, and an address to which the client sends what it says:
//! <https://modelcontextprotocol.io/specification/2024-11-05/basic/transports>, read on 2026-11-24.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::connection::{MessagesIn, MessagesOut};

/// Where the streams that are open take what their clients say.
#[derive(Default)]
pub struct Streams(Open);

/// One that is open. It is forgotten when it is dropped.
pub struct EventStream {
    pub id: String,
    pub outbox: MessagesOut,
    all: Open,
}

/// Each stream by its id: who opened it, and where it takes what that client says.
type Open = Arc<Mutex<HashMap<String, (String, MessagesIn)>>>;

impl Streams {
    pub fn add(&self, owner: String, inbox: MessagesIn, outbox: MessagesOut) -> EventStream {
        let id = Uuid::new_v4().simple().to_string();
        self.0.lock().insert(id.clone(), (owner, inbox));
        EventStream { id, outbox, all: Arc::clone(&self.0) }
    }

    /// The stream of that id, where it is this client's.
    pub fn of(&self, who: &str, id: &str) -> Option<MessagesIn> {
        self.0.lock().get(id).filter(|(owner, _)| owner == who).map(|(_, inbox)| inbox.clone())
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}
