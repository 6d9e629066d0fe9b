//! What the bearers of named tokens may do, by the hash of what they show.
//!
//! The journal keeps the same; this is what each request is compared with. Who shows a token holds on to its [`Grant`],
//! and everything that goes on under it ends when it is revoked: a connection is no promise.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
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

/// All named tokens.
#[derive(Debug, Default)]
pub struct Grants {
    by_hash: RwLock<BTreeMap<String, Arc<Grant>>>,
}

impl Grants {
    /// What whoever shows `token` was given. Tokens are random, and are looked for by their hash: how long that takes tells
    /// nothing of another one.
    pub fn admit(&self, token: &str) -> Option<Arc<Grant>> {
        self.by_hash.read().get(&hash(token)).cloned()
    }

    /// The token with that hash is known from now on.
    pub fn give(&self, hash: String, principal: Principal) {
        self.by_hash.write().insert(hash, Grant::new(principal));
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
    fn a_token_is_known_by_its_hash_until_it_is_revoked_which_ends_what_goes_on_under_it() {
        let named = |name: &str| Principal {
            who: Who::Token { name: name.into(), through: None },
            may: [].into(),
            sessions: Reach::None,
            agents: None,
        };
        let grants = Grants::default();
        for name in ["one", "two"] {
            grants.give(hash(&format!("secret of {name}")), named(name));
        }
        let one = grants.admit("secret of one").expect("it is known");
        assert_eq!(one.principal.name(), "token `one`");
        for unknown in ["", "one", "secret of three", &hash("secret of one")] {
            assert!(grants.admit(unknown).is_none(), "{unknown}");
        }
        grants.revoke("one");
        assert!(one.revoked.is_cancelled() && grants.admit("secret of one").is_none());
        let two = grants.admit("secret of two").expect("it is left alone");
        assert!(!two.revoked.is_cancelled());
    }
}
