//! Parent tokens: by which an extension proves on behalf of which call it calls back.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use drupe_agent::{Chain, Run};
use drupe_extension_api::{ExtensionId, Fault, SessionId};
use parking_lot::Mutex;

/// Sessions that are known of each extension; the oldest is forgotten.
const SESSIONS: usize = 256;

/// The tokens of all calls that run, and the sessions of those that ran.
#[derive(Default)]
pub struct Tokens {
    running: Mutex<HashMap<String, (ExtensionId, Arc<Run>)>>,
    called: Mutex<HashMap<ExtensionId, VecDeque<SessionId>>>,
}

/// A token; it dies with this value.
pub struct Granted<'a> {
    tokens: &'a Tokens,
    token: String,
}

impl Tokens {
    /// A token for one call of `owner` within `run`.
    pub fn grant(&self, owner: ExtensionId, run: Arc<Run>) -> Granted<'_> {
        self.note(&owner, &run.scope.session);
        // 122 random bits: nobody guesses it.
        let token = uuid::Uuid::new_v4().simple().to_string();
        self.running.lock().insert(token.clone(), (owner, run));
        Granted { tokens: self, token }
    }

    /// The run behind a token of `owner`. One that is stale, foreign or forged is refused, all in the same words.
    pub fn redeem(&self, owner: &ExtensionId, token: &str) -> Result<Arc<Run>, Fault> {
        match self.running.lock().get(token) {
            Some((of, run)) if of == owner => Ok(Arc::clone(run)),
            _ => Err(Fault::denied(
                "this needs the token of a call that is running; use the `Call` that came with it",
            )),
        }
    }

    fn note(&self, owner: &ExtensionId, session: &SessionId) {
        let mut called = self.called.lock();
        let sessions = called.entry(owner.clone()).or_default();
        if sessions.back() != Some(session) {
            sessions.retain(|known| known != session);
            sessions.push_back(session.clone());
            sessions.drain(..sessions.len().saturating_sub(SESSIONS));
        }
    }

    /// Whether `owner` works, or worked of late, on a call in that session.
    pub fn was_called_in(&self, owner: &ExtensionId, session: &SessionId) -> bool {
        let called = self.called.lock();
        called.get(owner).is_some_and(|sessions| sessions.contains(session))
    }

    /// What set off the calls that `owner` works on now.
    pub fn chains(&self, owner: &ExtensionId) -> Vec<Chain> {
        let granted = self.running.lock();
        let runs = granted.values().filter(|(of, _)| of == owner).map(|(_, run)| run);
        // What comes of it counts the link to it by itself.
        runs.map(|run| Chain { hops: run.scope.chain.hops, ..run.scope.chain.after(&run.path) }).collect()
    }
}

impl Granted<'_> {
    pub fn as_str(&self) -> &str {
        &self.token
    }
}

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        self.tokens.running.lock().remove(&self.token);
    }
}
