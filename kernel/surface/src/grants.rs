//! What the bearers of named tokens may do, by the hash of what they show.
//!
//! The journal keeps the same; this is what each request is compared with. Who shows a token holds on to its [`Grant`],
//! and everything that goes on under it ends when it is revoked: a connection is no promise.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use drupe_extension_api::control::TokenNew;
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::principal::{Principal, Who};

/// What somebody was given.
#[derive(Debug)]
pub struct Grant {
    /// Who they are, and how far they reach.
    pub principal: Principal,
    /// Cancelled when it is taken back.
    pub revoked: CancellationToken,
}

impl Grant {
    /// One that holds from now on.
    pub fn new(principal: Principal) -> Arc<Self> {
        Arc::new(Self { principal, revoked: CancellationToken::new() })
    }
}

/// How long a promise holds.
pub const PROMISED: Duration = Duration::from_secs(600);

/// The most promises that are kept; the oldest goes first.
const MOST_PROMISES: usize = 64;

/// A token that whoever shows a code is given.
#[derive(Debug)]
pub struct Promise {
    /// What it is to be.
    pub ask: TokenNew,
    pub by: Principal,
}

/// All named tokens.
#[derive(Debug, Default)]
pub struct Grants {
    by_hash: RwLock<BTreeMap<String, Arc<Grant>>>,
    /// By the hash of the code, the oldest first.
    promises: Mutex<Vec<(String, Instant, Promise)>>,
}

impl Grants {
    /// What whoever shows `token` was given, or `token/name` for somebody of that name. Tokens are random, and are looked for
    /// by their hash: how long that takes tells nothing of another one.
    pub fn admit(&self, shown: &str) -> Option<Arc<Grant>> {
        let (token, name) = shown.split_once('/').map_or((shown, None), |(token, name)| (token, Some(name)));
        let grant = self.by_hash.read().get(&hash(token)).cloned()?;
        let Some(name) = name else { return Some(grant) };
        let principal = grant.principal.on_behalf_of(name)?;
        Some(Arc::new(Grant { principal, revoked: grant.revoked.child_token() }))
    }

    /// The token with that hash is known from now on.
    pub fn give(&self, hash: String, principal: Principal) {
        self.by_hash.write().insert(hash, Grant::new(principal));
    }

    /// Keeps a promise for whoever shows the code.
    pub fn promise(&self, code: &str, promise: Promise) {
        let mut promises = self.promises.lock();
        promises.retain(|(_, since, _)| since.elapsed() < PROMISED);
        if promises.len() == MOST_PROMISES {
            promises.remove(0);
        }
        promises.push((hash(code), Instant::now(), promise));
    }

    /// What was promised to the bearer of a code, which is worth nothing from now on.
    pub fn redeem(&self, code: &str) -> Option<Promise> {
        let (hash, mut promises) = (hash(code), self.promises.lock());
        let at = promises.iter().position(|(known, ..)| *known == hash)?;
        let (_, since, promise) = promises.remove(at);
        (since.elapsed() < PROMISED).then_some(promise)
    }

    /// Takes back what the bearer of the token of that name was given.
    pub fn revoke(&self, token: &str) {
        let is = |grant: &Grant| matches!(&grant.principal.who, Who::Token { name, .. } if name == token);
        let mut all = self.by_hash.write();
        for (_, grant) in all.extract_if(.., |_, grant| is(grant)) {
            grant.revoked.cancel();
        }
    }
}

/// SHA-256 of a token, in hex.
pub fn hash(token: &str) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Reach;

    #[test]
    fn a_token_is_known_by_its_hash_until_it_is_revoked_and_a_promise_is_kept_once() {
        let named = |name: &str| Principal {
            who: Who::Token { name: name.into(), through: None },
            may: [].into(),
            sessions: Reach::All,
            agents: None,
        };
        let grants = Grants::default();
        for name in ["one", "two"] {
            grants.give(hash(&format!("secret of {name}")), named(name));
        }
        let one = grants.admit("secret of one").expect("it is known");
        let ann = grants.admit("secret of one/ann").expect("somebody is spoken for");
        assert_eq!(ann.principal.name(), "token `one/ann`");
        assert_eq!(one.principal.name(), "token `one`");
        for unknown in ["", "one", "secret of three", &hash("secret of one")] {
            assert!(grants.admit(unknown).is_none(), "{unknown}");
        }
        grants.revoke("one");
        assert!(one.revoked.is_cancelled() && grants.admit("secret of one").is_none());
        assert!(ann.revoked.is_cancelled() && grants.admit("secret of one/ann").is_none());
        let ask = || TokenNew { name: "three".into(), ..TokenNew::default() };
        for code in 0..=MOST_PROMISES {
            grants.promise(&format!("code {code}"), Promise { ask: ask(), by: named("two") });
        }
        assert!(grants.redeem("code 0").is_none(), "it went for the last");
        assert!(grants.redeem("code 1").is_some_and(|promise| promise.ask.name == "three"));
        assert!(grants.redeem("code 1").is_none(), "once");
        let two = grants.admit("secret of two").expect("it is left alone");
        assert!(!two.revoked.is_cancelled());
    }
}
