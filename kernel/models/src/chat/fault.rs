//! What a failure means: its class, and whether another attempt may help.

use std::error::Error;

use drupe_agent::ModelFault;
use drupe_extension_api::FailureClass;
use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{StatusCode, header::HeaderMap};
use serde::Deserialize;
use serde_json::Value;

/// How much of a provider's words goes into a message.
const LONGEST_MESSAGE: usize = 600;
/// Waits that a provider may ask for; a longer one is a mistake of clocks.
const LONGEST_WAIT_MS: u64 = 24 * 3_600_000;

/// An error as providers write it: an object, or just a text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Value")]
pub(super) struct WireError {
    message: String,
    /// `code` and `type`, whichever are there.
    kind: String,
    status: Option<u16>,
}

impl From<Value> for WireError {
    fn from(value: Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let message = match (&value, text("message")) {
            (Value::String(message), _) => message.clone(),
            (other, "") => other.to_string(),
            (_, message) => message.to_owned(),
        };
        let status = ["code", "status"]
            .iter()
            .find_map(|key| value.get(key)?.as_u64())
            .and_then(|n| u16::try_from(n).ok());
        Self { message, kind: format!("{} {}", text("code"), text("type")), status }
    }
}

/// The body of a failed request. Servers put the error under `error`, or send it bare, or send text or HTML.
fn read_body(body: &[u8]) -> WireError {
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(mut object)) => object.remove("error").unwrap_or(Value::Object(object)).into(),
        Ok(other) => other.into(),
        Err(_) => Value::String(String::from_utf8_lossy(body).trim().to_owned()).into(),
    }
}

/// A request that was answered with anything but success.
pub(super) fn of_response(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> ModelFault {
    let error = read_body(body);
    let retry_after_ms = retry_after(headers, now);
    let mut fault = judge(status, &error);
    fault.retry_after_ms = retry_after_ms.filter(|_| fault.retriable);
    fault
}

/// An error in the middle of an answer, where the status said that all is well.
pub(super) fn in_stream(error: &WireError) -> ModelFault {
    let status = error.status.and_then(|code| StatusCode::from_u16(code).ok());
    judge(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error)
}

fn judge(status: StatusCode, error: &WireError) -> ModelFault {
    let said: String = error.message.chars().take(LONGEST_MESSAGE).collect();
    let text = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
    let quota = ["insufficient_quota", "billing", "credit", "exceeded_current_quota"]
        .iter()
        .any(|k| error.kind.contains(k));
    match status.as_u16() {
        401 | 403 => ModelFault::fatal(FailureClass::Auth, text),
        402 => ModelFault::fatal(FailureClass::RateLimit, text),
        429 if quota => ModelFault::fatal(FailureClass::RateLimit, text),
        429 => ModelFault::transient(FailureClass::RateLimit, text),
        300..=399 => ModelFault::fatal(
            FailureClass::Config,
            format!("{text} (redirects are not followed: mend base_url)"),
        ),
        404 | 405 => ModelFault::fatal(FailureClass::Config, text),
        408 | 425 => ModelFault::transient(FailureClass::Timeout, text),
        409 => ModelFault::transient(FailureClass::Model, text),
        400..=499 => ModelFault::fatal(FailureClass::Model, text),
        501 | 505 => ModelFault::fatal(FailureClass::Config, text),
        502..=504 => ModelFault::transient(FailureClass::Network, text),
        _ => ModelFault::transient(FailureClass::Model, text),
    }
}

/// `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let ms = match text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        Some(ms) => ms,
        None => {
            let value = text("retry-after")?;
            match value.parse::<f64>() {
                Ok(seconds) => seconds * 1000.0,
                Err(_) => {
                    (rfc2822::parse(value).ok()?.timestamp().as_millisecond() - now.as_millisecond()) as f64
                }
            }
        }
    };
    // The cast saturates, and takes what is not a number to 0.
    Some((ms.ceil() as u64).min(LONGEST_WAIT_MS))
}

/// A request that never got an answer, or an answer that broke off.
pub(super) fn of_transport(error: &reqwest::Error) -> ModelFault {
    let mut text = String::new();
    let mut certificate = false;
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        certificate |= matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)));
        // The outermost text names the whole address, which may hold secrets.
        if error.source().is_none() {
            text = error.to_string();
        }
        cause = error.source();
    }
    if certificate || error.is_builder() {
        let text = format!("no trusted connection: {text} (a private authority goes into ca_file)");
        return ModelFault::fatal(FailureClass::Config, text);
    }
    let what = match () {
        () if error.is_connect() => "no connection",
        () if error.is_body() || error.is_decode() => "the answer broke off",
        () => "the request failed",
    };
    ModelFault::transient(FailureClass::Network, format!("{what}: {text}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn check(status: u16, body: &str) -> (FailureClass, bool, String) {
        let now = Timestamp::UNIX_EPOCH;
        let fault =
            of_response(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes(), now);
        (fault.class, fault.retriable, fault.message)
    }

    #[test]
    fn each_status_has_its_class_and_says_whether_to_try_again() {
        for (status, body, class, retriable) in [
            (400, r#"{"error":{"message":"bad schema"}}"#, FailureClass::Model, false),
            (401, r#"{"error":{"message":"no key"}}"#, FailureClass::Auth, false),
            (403, "", FailureClass::Auth, false),
            (402, "", FailureClass::RateLimit, false),
            (404, r#"{"detail":"no such model"}"#, FailureClass::Config, false),
            (307, "", FailureClass::Config, false),
            (408, "", FailureClass::Timeout, true),
            (422, "{}", FailureClass::Model, false),
            (429, r#"{"error":{"message":"slow"}}"#, FailureClass::RateLimit, true),
            (
                429,
                r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#,
                FailureClass::RateLimit,
                false,
            ),
            (500, "<html>", FailureClass::Model, true),
            (503, "", FailureClass::Network, true),
            (529, "", FailureClass::Model, true),
        ] {
            let (found, again, message) = check(status, body);
            assert_eq!((found, again), (class, retriable), "{status} {body}: {message}");
        }
    }

    #[test]
    fn the_providers_words_are_kept_whatever_form_they_have() {
        for (body, part) in [
            (r#"{"error":{"message":"one"}}"#, "one"),
            (r#"{"error":"two"}"#, "two"),
            (r#"{"message":"three","code":1}"#, "three"),
            ("four", "four"),
        ] {
            let (_, _, message) = check(400, body);
            assert!(message.ends_with(part), "{message}");
        }
        assert!(check(400, &"x".repeat(1 << 20)).2.len() < 1_000);
    }

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (name, value, ms) in [
            ("retry-after", "2", Some(2_000)),
            ("retry-after", "0.25", Some(250)),
            ("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT", Some(30_000)),
            ("retry-after", "Wed, 31 Dec 2025 00:00:00 GMT", Some(0)),
            ("retry-after", "-5", Some(0)),
            ("retry-after", "soon", None),
            ("retry-after", "1e300", Some(LONGEST_WAIT_MS)),
            ("retry-after-ms", "1500", Some(1_500)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(retry_after(&headers, now), ms, "{name}: {value}");
        }
    }
}
