//! Parent tokens: by which an extension proves on behalf of which call it calls back.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use drupe_agent::{Asker, Chain, Run, stopwatch::Stopwatch};
use drupe_extension_api::{ExtensionId, Fault, SessionId};
use parking_lot::Mutex;

/// Sessions that are known of each extension; the oldest is forgotten.
const SESSIONS: usize = 256;

/// The tokens of all calls that run, and the sessions of those that ran.
#[derive(Default)]
pub struct Tokens {
    running: Mutex<HashMap<String, Running>>,
    called: Mutex<HashMap<ExtensionId, VecDeque<SessionId>>>,
}

/// What code of an extension works on.
#[derive(Clone)]
pub struct Redeemed {
    /// The run that it belongs to.
    pub run: Arc<Run>,
    /// On behalf of what of that run the code asks for more.
    pub asker: Asker,
    /// The time that it has.
    pub time: Stopwatch,
}

/// A call that runs, and whose it is.
struct Running {
    owner: ExtensionId,
    work: Redeemed,
    /// Whether it is no call of the run: what is asked for it is charged to the run, and that is all.
    only_charges: bool,
}

/// A token; it dies with this value.
pub struct Granted<'a> {
    tokens: &'a Tokens,
    token: String,
}

impl Tokens {
    /// A token for what `owner` works on.
    pub fn grant(&self, owner: ExtensionId, work: Redeemed) -> Granted<'_> {
        self.keep(Running { owner, work, only_charges: false })
    }

    /// A token by which `owner` may have what it needs for `run` charged to it, before that has begun.
    pub fn grant_charging(&self, owner: ExtensionId, run: Arc<Run>) -> Granted<'_> {
        let time = run.budget.time().clone();
        self.keep(Running { owner, work: Redeemed { run, asker: Asker::Agent, time }, only_charges: true })
    }

    fn keep(&self, running: Running) -> Granted<'_> {
        self.note(&running.owner, &running.work.run.scope.session);
        // 122 random bits: nobody guesses it.
        let token = uuid::Uuid::new_v4().simple().to_string();
        self.running.lock().insert(token.clone(), running);
        Granted { tokens: self, token }
    }

    /// The run behind a token of `owner`. One that is stale, foreign or forged is refused, all in the same words.
    pub fn redeem(&self, owner: &ExtensionId, token: &str) -> Result<Arc<Run>, Fault> {
        self.work(owner, token).map(|work| work.run)
    }

    /// The same, with what of the run the code works on.
    pub fn work(&self, owner: &ExtensionId, token: &str) -> Result<Redeemed, Fault> {
        self.find(owner, token, |running| !running.only_charges)
    }

    /// The run behind a token of `owner`, to charge to it.
    pub fn redeem_charging(&self, owner: &ExtensionId, token: &str) -> Result<Arc<Run>, Fault> {
        self.find(owner, token, |_| true).map(|work| work.run)
    }

    fn find(
        &self,
        owner: &ExtensionId,
        token: &str,
        fits: impl FnOnce(&Running) -> bool,
    ) -> Result<Redeemed, Fault> {
        match self.running.lock().get(token) {
            Some(running) if running.owner == *owner && fits(running) => Ok(running.work.clone()),
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
        let runs =
            granted.values().filter(|running| running.owner == *owner).map(|running| &running.work.run);
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
