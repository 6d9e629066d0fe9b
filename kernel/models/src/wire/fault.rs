//! What a failure means: its class, and whether another attempt may help.

mod wait;

use std::error::Error;

use drupe_agent::ModelFault;
use drupe_extension_api::FailureClass;
use jiff::Timestamp;
use reqwest::{StatusCode, header::HeaderMap};
use serde::Deserialize;
use serde_json::Value;

use crate::source::{Broken, Whose};

/// How alike two names must be for one to be offered for the other.
const NEAR: f64 = 0.7;
/// Names offered.
const MOST_NEAR: usize = 3;

/// An error as providers write it: an object, or just a text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Value")]
pub(crate) struct WireError {
    message: String,
    /// `code`, `type` and `status`, whichever are there, and the reasons among the details.
    kind: String,
    status: Option<u16>,
    /// The pause that it asks for, in milliseconds.
    wait_ms: Option<u64>,
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
        let mut kind = format!("{} {} {}", text("code"), text("type"), text("status"));
        let details = value.get("details").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for detail in details {
            let limits = detail.get("violations").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let limits = limits.iter().map(|limit| limit.get("quotaId"));
            for reason in limits.chain([detail.get("reason")]).flatten().filter_map(Value::as_str) {
                kind.push(' ');
                kind.push_str(reason);
            }
        }
        let wait_ms = details.iter().find_map(|detail| wait::duration(detail.get("retryDelay")?.as_str()?));
        Self { message, kind, status, wait_ms }
    }
}

/// The body of a failed request. Servers put the error under `error`, or send it bare, or in a list, or send text
/// or HTML.
fn read_body(body: &[u8]) -> WireError {
    let value = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Array(mut list)) if !list.is_empty() => Ok(list.swap_remove(0)),
        other => other,
    };
    match value {
        Ok(Value::Object(mut object)) => object.remove("error").unwrap_or(Value::Object(object)).into(),
        Ok(other) => other.into(),
        Err(_) => plain(String::from_utf8_lossy(body).trim()).into(),
    }
}

/// What the body of a failed request says, for people.
pub(super) fn words(body: &[u8]) -> String {
    read_body(body).message
}

/// A body that is no JSON: of a page its title, of events what the first one that can be read says.
fn plain(text: &str) -> Value {
    let start = text.trim_start_matches('\u{feff}').get(..64).unwrap_or(text).to_ascii_lowercase();
    if start.starts_with("<!doctype") || start.starts_with("<html") {
        let title = text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
        let title = title.map(|(title, _)| title.split_whitespace().collect::<Vec<_>>().join(" "));
        let title = title.filter(|title| !title.is_empty());
        return Value::String(
            title.map_or("a page in HTML".to_owned(), |title| format!("a page in HTML, \"{title}\"")),
        );
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let event = data.filter_map(|data| serde_json::from_str::<Value>(data).ok()).find(Value::is_object);
    match event {
        Some(Value::Object(mut event)) => event.remove("error").unwrap_or(Value::Object(event)),
        _ => Value::String(text.to_owned()),
    }
}

/// A request to `model` that was answered with anything but success. `known` are models that there are.
pub(super) fn of_response(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
    (model, known): (&str, &[String]),
) -> Broken {
    let error = read_body(body);
    let asked = wait::of_headers(headers, now).or(error.wait_ms);
    let alike = if status == StatusCode::NOT_FOUND { near(model, known) } else { String::new() };
    let mut fault = judge(status.as_u16(), &error, &alike);
    fault.retry_after_ms = asked.filter(|_| fault.retriable);
    // One that the server, or one behind it, ran out of time with may have been worked on. What was turned away or
    // failed before an answer began is not charged for.
    let behind = [StatusCode::REQUEST_TIMEOUT, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];
    let refused = (status.is_client_error() || status.is_server_error()) && !behind.contains(&status);
    told(if refused { fault.unused() } else { fault }, status.as_u16(), &error)
}

/// A fault that the provider told of, with whose it is.
fn told(fault: ModelFault, status: u16, error: &WireError) -> Broken {
    let said = format!("{} {}", error.kind, error.message).to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let whose = match fault.class {
        // A gateway's word for a text that a filter did not like.
        FailureClass::Auth if status == 403 && has(&["flagged", "moderation"]) => Whose::Request,
        // An account that may not ask one model may ask others, and some quotas are of one model.
        FailureClass::Auth if status == 403 && has(&["model"]) => Whose::Model,
        FailureClass::RateLimit if has(&["permodel", "per model"]) => Whose::Model,
        _ => return fault.into(),
    };
    Broken { fault, whose }
}

/// A success whose body is an error, if it is one.
pub(super) fn in_place_of_answer(body: &[u8]) -> Option<Broken> {
    #[derive(Deserialize)]
    struct Body {
        error: Option<WireError>,
    }
    let body = match body.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice::<[Body; 1]>(body).ok().map(|[body]| body),
        _ => serde_json::from_slice::<Body>(body).ok(),
    };
    body?.error.map(|error| in_stream(&error))
}

/// An error in the middle of an answer, where the status said that all is well.
pub(crate) fn in_stream(error: &WireError) -> Broken {
    let status = error.status.unwrap_or_else(|| status_of(&error.kind));
    let mut fault = judge(status, error, "");
    fault.retry_after_ms = error.wait_ms.filter(|_| fault.retriable);
    told(fault, status, error)
}

/// The status that a request would have had which fails with an error of this kind.
fn status_of(kind: &str) -> u16 {
    let known = [
        ("authentication", 401),
        ("invalid_api_key", 401),
        ("permission", 403),
        ("billing", 402),
        ("insufficient_quota", 429),
        ("rate_limit", 429),
        ("overloaded", 529),
        ("not_found", 404),
        ("too_large", 413),
        ("context_length", 400),
        ("invalid_", 400),
        ("timeout", 504),
        ("unavailable", 503),
    ];
    let kind = kind.to_lowercase();
    known.iter().find(|(part, _)| kind.contains(part)).map_or(500, |(_, status)| *status)
}

/// `hint` is what there is to say beside the provider's words. These come last: they are cut where they are long.
fn judge(status: u16, error: &WireError, hint: &str) -> ModelFault {
    let said = error.message.as_str();
    let name = match status {
        529 => "529 Overloaded".to_owned(),
        _ => StatusCode::from_u16(status).map_or_else(|_| status.to_string(), |status| status.to_string()),
    };
    let text = |remedy: &str| match said.is_empty() {
        true => format!("{name}{remedy}{hint}"),
        false => format!("{name}{remedy}{hint}: {said}"),
    };
    let kind = error.kind.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| kind.contains(part));
    let says = |parts: &[&str]| parts.iter().any(|part| said.to_lowercase().contains(part));
    let fatal = |class, remedy: &str| ModelFault::fatal(class, text(remedy));
    let transient = |class| ModelFault::transient(class, text(""));
    let quota = has(&["insufficient_quota", "billing", "credit", "exceeded_current_quota", "perday"]);
    match status {
        401 | 403 => fatal(FailureClass::Auth, ""),
        400 if has(&["api_key_invalid"]) => fatal(FailureClass::Auth, ""),
        402 => fatal(FailureClass::RateLimit, " (the account has no more credit or quota)"),
        429 if quota => fatal(FailureClass::RateLimit, " (the account has no more credit or quota)"),
        400 if quota || says(&["credit balance"]) => {
            fatal(FailureClass::RateLimit, " (the account has no more credit or quota)")
        }
        400 | 413 | 422 if has(&["context_length"]) || says(CONTEXT) => {
            fatal(FailureClass::Model, " (the request is longer than the model's context window)")
        }
        400 if has(&["content_filter", "content_policy", "responsibleai"]) => {
            fatal(FailureClass::Model, " (the provider's filter refused the request: rephrase the task)")
        }
        429 => transient(FailureClass::RateLimit),
        300..=399 => fatal(FailureClass::Config, " (redirects are not followed: mend base_url)"),
        404 | 405 => fatal(FailureClass::Config, ""),
        408 | 425 => transient(FailureClass::Timeout),
        409 => transient(FailureClass::Model),
        400..=499 => fatal(FailureClass::Model, ""),
        501 | 505 => fatal(FailureClass::Config, ""),
        502..=504 => transient(FailureClass::Network),
        _ => transient(FailureClass::Model),
    }
}

/// How servers say that a request is too long where they have no code for it.
const CONTEXT: &[&str] = &[
    "prompt is too long",
    "context window",
    "context length",
    "maximum context",
    "exceeds the maximum number of tokens",
    "context size",
];

/// Models that may have been meant by one that there is not.
fn near(model: &str, known: &[String]) -> String {
    let mut near: Vec<_> =
        known.iter().map(|name| (strsim::jaro_winkler(model, name), name.as_str())).collect();
    near.retain(|(likeness, _)| *likeness >= NEAR);
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let names: Vec<_> = near.iter().take(MOST_NEAR).map(|(_, name)| format!("`{name}`")).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" (known models that are spelled alike: {})", names.join(", ")),
    }
}

/// A request that never got an answer, or an answer that broke off. Without a connection no model was asked.
pub(super) fn of_transport(error: &reqwest::Error) -> Broken {
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
        return Broken {
            fault: ModelFault::fatal(FailureClass::Config, text).unused(),
            whose: Whose::Provider,
        };
    }
    let what = match () {
        () if error.is_connect() => "no connection",
        () if error.is_body() || error.is_decode() => "the answer broke off",
        () => "the request failed",
    };
    let fault = ModelFault::transient(FailureClass::Network, format!("{what}: {text}"));
    match error.is_connect() {
        true => Broken { fault: fault.unused(), whose: Whose::Provider },
        false => fault.into(),
    }
}

#[cfg(test)]
mod tests;
