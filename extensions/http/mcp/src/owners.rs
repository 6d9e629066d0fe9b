//! Whose sessions those of the older revision are: whoever learns the id of somebody else's gets nothing of it.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::{SessionManager, local::LocalSessionManager};

use crate::share_of;

/// Sessions at the same time.
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
            let oldest = oldest_of_most(&known);
            (known.len() > MOST).then(|| known.remove(oldest).1)
        };
        if let Some(id) = over {
            // It may have ended by itself meanwhile.
            let _ = self.sessions.close_session(&id.into()).await;
        }
    }
}

/// Where the oldest session is of whoever has most of them, so that nobody takes those of others.
fn oldest_of_most(known: &[(String, String)]) -> usize {
    let mut number: HashMap<&str, (usize, Reverse<usize>)> = HashMap::new();
    for (place, (owner, _)) in known.iter().enumerate() {
        number.entry(share_of(owner)).or_insert((0, Reverse(place))).0 += 1;
    }
    number.into_values().max().map_or(0, |(_, Reverse(first))| first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_most_sessions_loses_one_and_not_somebody_who_has_few() {
        // Whoever a bearer speaks for counts as the token.
        let known = ["a", "b", "b/ann", "c", "b/bob"].map(|owner| (owner.to_owned(), String::new()));
        assert_eq!(oldest_of_most(&known), 1);
        assert_eq!(oldest_of_most(&known[..1]), 0);
    }
}
