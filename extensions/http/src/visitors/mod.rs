//! Visitors of other sites, who chat in a frame there: the site signs who they are, and this checks it.
//!
//! What is signed is a JSON Web Token with HS256, so that a site signs with whatever library it has. Its `aud` names the embed, its
//! `sub` the visitor, its `exp` its end. The visitor then is a name behind the embed's token, for whom the daemon keeps
//! sessions and a budget of their own: see `docs/reference/http.md`.
//!
//! Sources: <https://www.rfc-editor.org/rfc/rfc7519>, <https://www.rfc-editor.org/rfc/rfc7515> (compact form, appendix A.1), and
//! <https://www.rfc-editor.org/rfc/rfc7518#section-3.2> (the length of the key), read on 2026-11-24.

pub mod reach;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use drupe_extension_api::{Fault, FaultCode};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::origin;

/// The shortest secret, in bytes: as many as a hash has.
const SHORTEST_SECRET: usize = 32;

/// The longest time for which a visitor is signed, in seconds: nobody can take such a token back.
const LONGEST: f64 = 24.0 * 3600.0;

/// How far the clocks of a site and of this machine may be apart, in seconds.
const LEEWAY: f64 = 30.0;

/// What named tokens begin with.
const NAMED: &str = "drupe_";

/// The longest name of a visitor that the daemon takes as it is, in bytes.
const LONGEST_NAME: usize = 24;

/// A chat in pages of another site.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedSettings {
    pub token: String,
    pub secret: String,
    pub origins: Vec<String>,
    #[serde(default = "per_minute")]
    pub per_minute: u32,
}

fn per_minute() -> u32 {
    10
}

/// The sites that have a chat in their pages.
pub struct Embeds(BTreeMap<String, Arc<Embed>>);

/// A chat in pages of another site.
pub struct Embed {
    name: String,
    token: String,
    secret: Hmac<Sha256>,
    /// The origins whose pages may show it.
    pub origins: Vec<String>,
    per_minute: u32,
    /// The minute that is counted, and how many messages each visitor sent in it.
    recent: Mutex<(u64, HashMap<String, u32>)>,
}

/// Somebody whom a site has signed.
#[derive(Clone)]
pub struct Visitor {
    embed: Arc<Embed>,
    name: String,
    /// Until when, in seconds since 1970.
    exp: f64,
}

#[derive(Deserialize)]
struct Head {
    alg: String,
    /// What whoever reads it must understand, of which this understands nothing.
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    aud: Audience,
    sub: String,
    exp: f64,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Embeds {
    /// Those of the configuration, if they can be served.
    pub fn new(settings: &BTreeMap<String, EmbedSettings>) -> Result<Self, Fault> {
        let embed = |(name, settings): (&String, &EmbedSettings)| {
            let EmbedSettings { token, secret, origins, per_minute } = settings;
            let wrong = |why: &str, help: &str| {
                Fault::new(FaultCode::NotConfigured, format!("`extensions.http.embeds.{name}`: {why}"))
                    .help(help.to_owned())
            };
            if secret.len() < SHORTEST_SECRET {
                let why = format!(
                    "its `secret` has {} bytes, and fewer than {SHORTEST_SECRET} can be guessed",
                    secret.len()
                );
                return Err(wrong(&why, "`openssl rand -hex 32` makes one"));
            }
            if !token.starts_with(NAMED) || token.contains('/') {
                return Err(wrong(
                    "its `token` is no named token",
                    &format!("`drupe token new {name} --agents …` makes one"),
                ));
            }
            if origins.is_empty() {
                return Err(wrong(
                    "no page may show it",
                    "name the site in `origins`, as `https://shop.example.org`",
                ));
            }
            let origins = origins.iter().map(|origin| origin::of_a_page(origin)).collect::<Result<_, _>>()?;
            let secret = Hmac::new_from_slice(secret.as_bytes()).map_err(Fault::internal)?;
            let (name, token) = (name.clone(), token.clone());
            let embed =
                Embed { name, token, secret, origins, per_minute: *per_minute, recent: Mutex::default() };
            Ok((embed.name.clone(), Arc::new(embed)))
        };
        let embeds: BTreeMap<_, Arc<Embed>> = settings.iter().map(embed).collect::<Result<_, Fault>>()?;
        let tokens: BTreeSet<_> = embeds.values().map(|embed| &embed.token).collect();
        // What one site signs would open the conversations of another.
        if tokens.len() < embeds.len() {
            let message = "two of `extensions.http.embeds` have one token";
            return Err(Fault::new(FaultCode::NotConfigured, message).help("make a token for each site"));
        }
        Ok(Self(embeds))
    }

    /// The one of a name.
    pub fn get(&self, name: &str) -> Option<&Embed> {
        self.0.get(name).map(Arc::as_ref)
    }

    /// The visitor whom a token names that a site has signed; none where it is no such token.
    pub fn admit(&self, shown: &str) -> Option<Result<Visitor, Fault>> {
        // A named token, which may have a name with dots behind it.
        if shown.starts_with(NAMED) {
            return None;
        }
        let (signed, signature) = shown.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.').filter(|(_, claims)| !claims.contains('.'))?;
        (!self.0.is_empty()).then(|| self.check(signed, head, claims, signature))
    }

    fn check(&self, signed: &str, head: &str, claims: &str, signature: &str) -> Result<Visitor, Fault> {
        let unsigned = || refused("no site that this daemon knows has signed it");
        let head: Head = part(head).ok_or_else(unsigned)?;
        let Claims { aud, sub, exp, nbf } = part(claims).ok_or_else(|| {
            refused("it lacks one of `aud` (the name of the embed), `sub` (the visitor) and `exp` (seconds since 1970)")
        })?;
        let names = match aud {
            Audience::One(name) => vec![name],
            Audience::Several(names) => names,
        };
        let embed = names.iter().find_map(|name| self.0.get(name)).ok_or_else(unsigned)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| unsigned())?;
        // One algorithm, whatever the token says: whoever makes it must not choose how it is looked at.
        let mut expected = embed.secret.clone();
        expected.update(signed.as_bytes());
        if head.alg != "HS256" || head.crit.is_some() || expected.verify_slice(&signature).is_err() {
            return Err(unsigned());
        }
        let now = now();
        if !exp.is_finite() || exp + LEEWAY < now {
            return Err(refused("it has run out"));
        }
        if exp > now + LONGEST + LEEWAY {
            return Err(refused("it holds for more than 24 hours; sign it for less"));
        }
        if nbf.is_some_and(|begin| begin > now + LEEWAY) {
            return Err(refused("it does not hold yet"));
        }
        if sub.is_empty() {
            return Err(refused("its `sub` is empty"));
        }
        Ok(Visitor { embed: Arc::clone(embed), name: name_of(&sub), exp })
    }
}

impl Visitor {
    /// What the daemon knows them by.
    pub fn token(&self) -> String {
        format!("{}/{}", self.embed.token, self.name)
    }

    /// How long they are known for.
    pub fn left(&self) -> Duration {
        Duration::try_from_secs_f64(self.exp + LEEWAY - now()).unwrap_or_default()
    }

    /// Counts a message, if one more is within what a visitor may send in a minute.
    pub fn writes(&self) -> Result<(), Fault> {
        let minute = (now() / 60.0) as u64;
        let mut recent = self.embed.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.0 != minute {
            *recent = (minute, HashMap::new());
        }
        let sent = recent.1.entry(self.name.clone()).or_default();
        if *sent >= self.embed.per_minute {
            let message =
                format!("at most {} messages a minute are taken from one visitor", self.embed.per_minute);
            return Err(Fault::new(FaultCode::Budget, message).help("wait for a minute"));
        }
        *sent += 1;
        Ok(())
    }
}

fn refused(why: &str) -> Fault {
    Fault::new(FaultCode::Unauthenticated, format!("the visitor's token is refused: {why}"))
}

fn part<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

/// Seconds since 1970, as claims have them.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// What stands behind the token for a visitor: who they are where that fits, else a hash of it.
fn name_of(sub: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    // No visitor is to be named like the hash of another one.
    let like_a_hash = sub.len() == LONGEST_NAME && sub.bytes().all(|byte| byte.is_ascii_hexdigit());
    if sub.len() <= LONGEST_NAME && sub.chars().all(fits) && !like_a_hash {
        return sub.to_owned();
    }
    let hash = Sha256::digest(sub.as_bytes());
    hash.iter().take(LONGEST_NAME / 2).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
