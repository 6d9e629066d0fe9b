//! How the service signs its requests, and which of them were answered already. Pure.
//!
//! `X-Slack-Signature` is `v0=` and, in hexadecimal digits, HMAC-SHA256 over `v0:TIME:BODY` with the signing secret of the app; `TIME` is that of
//! `X-Slack-Request-Timestamp`, in seconds, and no more than five minutes off
//! (<https://docs.slack.dev/authentication/verifying-requests-from-slack>, read on 2026-11-27 in a copy of its text).

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How far the clocks may be apart.
const TOLERANCE: Duration = Duration::from_secs(300);
/// A secret shorter than this is guessed sooner or later. Those of the service have 32 characters.
pub const SHORTEST_SECRET: usize = 16;

/// The signing secret of an app.
pub struct SigningSecret(Hmac<Sha256>);

/// What a request says of itself that is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSignature {
    code: [u8; 32],
    /// As its header has it, in seconds since 1970.
    time: u64,
}

impl RequestSignature {
    /// From the values of its two headers, where they have the form of such.
    pub fn read(code: &str, time: &str) -> Option<Self> {
        // One way to write a time, since it is signed as it is written.
        let is_number =
            !time.is_empty() && time.len() <= 12 && time.bytes().all(|byte| byte.is_ascii_digit());
        let time =
            Some(time).filter(|time| is_number && (!time.starts_with('0') || *time == "0"))?.parse().ok()?;
        Some(Self { code: hex(code.strip_prefix("v0=")?)?, time })
    }

    /// How many seconds the clock of whoever signed it is off, where that is too much.
    pub fn off(&self, now: SystemTime) -> Option<u64> {
        let off = seconds(now).abs_diff(self.time);
        Some(off).filter(|off| *off > TOLERANCE.as_secs())
    }
}

impl SigningSecret {
    /// None for one that can be guessed.
    pub fn new(secret: &str) -> Option<Self> {
        let secret = Some(secret.trim()).filter(|secret| secret.len() >= SHORTEST_SECRET)?;
        Hmac::new_from_slice(secret.as_bytes()).ok().map(Self)
    }

    /// Whether a body was signed with it. Takes as long for a wrong one as for the right one.
    pub fn signed(&self, signature: &RequestSignature, body: &[u8]) -> bool {
        let mut mac = self.0.clone();
        mac.update(format!("v0:{}:", signature.time).as_bytes());
        mac.update(body);
        mac.verify_slice(&signature.code).is_ok()
    }
}

/// Requests that were answered, as long as they could come again as they are.
#[derive(Default)]
pub struct AnsweredRequests(HashMap<[u8; 32], u64>);

impl AnsweredRequests {
    pub fn has(&self, signature: &RequestSignature) -> bool {
        self.0.contains_key(&signature.code)
    }

    pub fn note(&mut self, signature: &RequestSignature, now: SystemTime) {
        let now = seconds(now);
        self.0.retain(|_, time| *time + TOLERANCE.as_secs() >= now);
        self.0.insert(signature.code, signature.time);
    }
}

fn seconds(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The bytes of 64 hexadecimal digits.
fn hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(0)? << 4 | digit(1)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the service's documentation.
    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const TIME: u64 = 1_531_420_618;
    const BODY: &[u8] = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const CODE: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_request_is_signed_as_the_service_signs_it() {
        let secret = SigningSecret::new(SECRET).expect("a secret");
        let read = |code: &str| RequestSignature::read(code, &TIME.to_string());
        let signature = read(CODE).expect("it has the form");
        assert!(secret.signed(&signature, BODY));
        assert!(!secret.signed(&signature, &BODY[1..]));
        assert!(
            !secret.signed(&RequestSignature { time: TIME + 1, ..signature }, BODY),
            "the time is signed as well"
        );
        assert!(
            !SigningSecret::new("another secret of 32 characters.")
                .expect("a secret")
                .signed(&signature, BODY)
        );
        assert!(SigningSecret::new("too short").is_none() && SigningSecret::new(" ").is_none());
        for odd in [
            "",
            "v0=",
            "v1=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
            &CODE[..66],
            "v0=ä",
            &CODE.replace('a', "g"),
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
        for odd in ["", "-1", "+1531420618", "01531420618", " 1531420618", "1e9", "99999999999999999999"] {
            assert_eq!(RequestSignature::read(CODE, odd), None, "{odd}");
        }
    }

    #[test]
    fn a_request_is_new_for_five_minutes_and_answered_once() {
        let signature = RequestSignature::read(CODE, &TIME.to_string()).expect("it has the form");
        for (now, off) in [
            (TIME, None),
            (TIME + 300, None),
            (TIME - 300, None),
            (TIME + 301, Some(301)),
            (TIME - 301, Some(301)),
        ] {
            assert_eq!(signature.off(at(now)), off, "{now}");
        }
        let mut answered = AnsweredRequests::default();
        assert!(!answered.has(&signature));
        answered.note(&signature, at(TIME));
        let later = RequestSignature { code: [1; 32], time: TIME + 300 };
        answered.note(&later, at(TIME + 300));
        assert!(answered.has(&signature) && answered.has(&later));
        answered.note(&later, at(TIME + 301));
        assert!(!answered.has(&signature), "it is too old to come again");
    }
}
