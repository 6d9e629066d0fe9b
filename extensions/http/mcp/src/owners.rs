//! Whose sessions those of the older revision are: whoever learns the id of somebody else's gets nothing of it.

use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::{SessionManager, local::LocalSessionManager};

/// Sessions at the same time; the oldest goes first.
const MOST: usize = 256;

pub struct Owners {
    sessions: Arc<LocalSessionManager>,
    /// The name of whoever began it, and its id; the oldest first.
    known: Mutex<Vec<(String, String)>>,
}

impl Owners {
    pub fn new(sessions: Arc<LocalSessionManager>) -> Self {
        Self { sessions, known: Mutex::default() }
    }

    /// Whether somebody began that session.
    pub fn has(&self, who: &str, id: &str) -> bool {
        self.known.lock().iter().any(|(owner, session)| owner == who && session == id)
    }

    /// A session was begun, or goes on. Those that are over are forgotten.
    pub async fn began(&self, who: String, id: &str) {
        if self.has(&who, id) {
            return;
        }
        let open: Vec<String> = self.sessions.sessions.read().await.keys().map(ToString::to_string).collect();
        let over = {
            let mut known = self.known.lock();
            known.retain(|(_, session)| open.contains(session));
            known.push((who, id.to_owned()));
            let more = known.len().saturating_sub(MOST);
            known.drain(..more).collect::<Vec<_>>()
        };
        for (_, id) in over {
            // It may have ended by itself meanwhile.
            let _ = self.sessions.close_session(&id.into()).await;
        }
    }
}
