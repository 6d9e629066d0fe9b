//! How messages are signed: Standard Webhooks 1.0.0 (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>,
//! read on 2026-11-27). HMAC-SHA256 over `{webhook-id}.{webhook-timestamp}.{body}`, as `v1,BASE64`; the secret is `whsec_` and 24 to 64
//! bytes in base64. Neither id nor time has a dot, because the parts could be read in another way then. Pure.

use std::fmt::Write as _;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// What messages to one endpoint are signed with: the secret, and the one before it while its receiver changes.
pub struct SigningKeys(Vec<Hmac<Sha256>>);

impl SigningKeys {
    /// None where a secret does not have the form that it must.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let key = |secret: &str| {
            let bytes = BASE64.decode(secret.trim().strip_prefix("whsec_")?).ok()?;
            (24..=64).contains(&bytes.len()).then(|| Hmac::new_from_slice(&bytes).ok())?
        };
        secrets.into_iter().map(key).collect::<Option<_>>().map(Self)
    }

    /// The value of `webhook-signature`: one signature for each key.
    pub fn sign(&self, id: &str, seconds: u64, body: &str) -> String {
        let signed = |key: &Hmac<Sha256>| {
            let mut mac = key.clone();
            mac.update(format!("{id}.{seconds}.{body}").as_bytes());
            format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
        };
        self.0.iter().map(signed).collect::<Vec<_>>().join(" ")
    }
}

/// The id of a message by that of its delivery: the same for each attempt, and in letters that have no meaning here.
pub fn message_id(delivery: &str) -> String {
    Sha256::digest(delivery).iter().take(16).fold("msg_".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn a_message_is_signed_as_the_specification_does_it() {
        // Of the tests of its libraries (`libraries/python/tests`, `libraries/javascript/src/index.test.ts`).
        let keys = SigningKeys::new([SECRET]).expect("a secret");
        let signed = keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let two = SigningKeys::new([SECRET, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]).expect("secrets");
        assert_eq!(two.sign("m", 1, "{}").split(' ').count(), 2);
    }

    #[test]
    fn a_secret_has_its_form_and_its_length() {
        for bad in [
            "",
            "whsec_",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_AAAA",
            "whsec_not base64 at all, but long enough",
        ] {
            assert!(SigningKeys::new([bad]).is_none(), "{bad}");
        }
        assert!(SigningKeys::new([SECRET, "whsec_AAAA"]).is_none());
    }

    #[test]
    fn an_id_follows_from_its_delivery_and_has_no_dot() {
        let id = message_id("0199.a>webhook/builds");
        assert!(!id.contains('.') && id == message_id("0199.a>webhook/builds"));
        assert_ne!(id, message_id("0199.a>webhook/other"));
    }
}
