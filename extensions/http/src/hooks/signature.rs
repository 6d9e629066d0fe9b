//! How deliveries are signed.
//!
//! - `standard`: Standard Webhooks 1.0.0 (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>). HMAC-SHA256
//!   over `{webhook-id}.{webhook-timestamp}.{body}`; `webhook-signature` has one or several, with spaces between, as `v1,BASE64`; the
//!   secret is written as `whsec_BASE64`. Neither id nor time may have a dot, because the parts could be read in another way then.
//! - `github`: HMAC-SHA256 over the body, as `sha256=HEX` in `X-Hub-Signature-256`; `X-GitHub-Delivery` names the delivery and
//!   `X-GitHub-Event` its event (<https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>). Only the body is signed.
//!
//! Both as of 2026-11-24.

use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;

/// How far the clocks may be apart, as the libraries of Standard Webhooks have it.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Signatures of one delivery that are looked at. A sender has two while its secret changes.
const MOST_SIGNATURES: usize = 8;

/// The longest name of a delivery, in bytes. Those of GitHub have 36.
const LONGEST_ID: usize = 256;

/// Which form of signature a hook has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignatureForm {
    Standard,
    Github,
}

/// What a delivery says of itself.
#[derive(Debug, PartialEq, Eq)]
pub struct SignedDelivery {
    /// By what it is known when it comes again.
    pub id: String,
    pub event: Option<String>,
}

/// The secret of a hook.
pub struct HookKey {
    signature: SignatureForm,
    mac: Hmac<Sha256>,
    bytes: usize,
}

impl HookKey {
    /// None where the secret does not have the form that it must.
    pub fn new(signature: SignatureForm, secret: &str) -> Option<Self> {
        let secret = match signature {
            SignatureForm::Standard => BASE64.decode(secret.strip_prefix("whsec_")?).ok()?,
            SignatureForm::Github => secret.as_bytes().to_vec(),
        };
        let mac = Hmac::new_from_slice(&secret).ok()?;
        Some(Self { signature, mac, bytes: secret.len() })
    }

    /// One that nothing was signed with: it is made by chance, and nobody is told it.
    pub fn nobody() -> Self {
        let secret = [uuid::Uuid::new_v4().into_bytes(), uuid::Uuid::new_v4().into_bytes()].concat();
        let mut whole = hmac::digest::Key::<Hmac<Sha256>>::default();
        whole[..secret.len()].copy_from_slice(&secret);
        Self { signature: SignatureForm::Standard, mac: Hmac::new(&whole), bytes: secret.len() }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a signed delivery says of itself, or how many seconds its clock is off; none for one that is not signed with this key.
    pub fn check(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Option<Result<SignedDelivery, u64>> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let [id, time] = ["webhook-id", "webhook-timestamp"].map(|name| text(name).unwrap_or_default());
        // Once for each delivery, whatever it lacks and however many signatures it bears: it is from nobody who is known yet.
        let mut mac = self.mac.clone();
        if self.signature == SignatureForm::Standard {
            [id, ".", time, "."].iter().for_each(|part| mac.update(part.as_bytes()));
        }
        mac.update(body);
        // Takes as long for a wrong one as for the right one.
        let made = |signature: &[u8]| mac.clone().verify_slice(signature).is_ok();
        match self.signature {
            SignatureForm::Standard => {
                let given = text("webhook-signature")?.split(' ').take(MOST_SIGNATURES);
                let mut given = given.filter_map(|one| BASE64.decode(one.strip_prefix("v1,")?).ok());
                let known = given.any(|one| made(&one));
                if !known || !is_id(id) || id.contains('.') {
                    return None;
                }
                let off = seconds_between(time.parse().ok()?, now);
                Some(match off <= TOLERANCE.as_secs() {
                    true => Ok(SignedDelivery { id: id.to_owned(), event: None }),
                    false => Err(off),
                })
            }
            SignatureForm::Github => {
                let given = hex(text("x-hub-signature-256")?.strip_prefix("sha256=")?)?;
                let id = text("x-github-delivery")?;
                let event = text("x-github-event").map(str::to_owned);
                (made(&given) && is_id(id)).then(|| Ok(SignedDelivery { id: id.to_owned(), event }))
            }
        }
    }
}

/// Whether a request claims to be signed in any form that there is.
pub fn claims_a_signature(headers: &HeaderMap) -> bool {
    ["webhook-signature", "x-hub-signature-256"].iter().any(|name| headers.contains_key(*name))
}

fn is_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn seconds_between(seconds: u64, now: SystemTime) -> u64 {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    now.abs_diff(seconds)
}

/// The bytes of 64 hexadecimal digits.
fn hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(0)? << 4 | digit(1)?;
    }
    Some(bytes)
}
