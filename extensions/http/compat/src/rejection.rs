//! Why a call gets no answer, in the words of either vendor.
//!
//! One list of kinds stands in the middle: what a client got wrong, what the kernel answered (a [`Fault`]) and how a turn
//! ended (a [`FailureClass`]) all become one of them, and each has its status and its error type in both formats.
//!
//! Statuses and types: OpenAI `openai` 3.54.0 (`_exceptions.py`), Anthropic `anthropic` 2.12.0 (`_error_classes.py`,
//! `types/shared/error_type.py`), platform.claude.com/docs/en/api/errors; all looked up on 2026-11-24. Both SDKs obey the
//! header `x-should-retry`, and without it repeat statuses 408, 409, 429 and all from 500 on.

use std::fmt;

use drupe_extension_api::{AgentResponse, FailureClass, Fault, FaultCode};
use serde_json::{Value, json};

/// Whose format a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    OpenAi,
    Anthropic,
}

impl Vendor {
    /// By the headers that only Anthropic's clients send: `get` gives a header by its lower-case name.
    pub fn of<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let named = get("anthropic-version").or_else(|| get("x-api-key"));
        if named.is_some() { Self::Anthropic } else { Self::OpenAi }
    }
}

/// What kind of rejection it is; decides about status and error type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectionKind {
    Invalid,
    Unauthorized,
    Forbidden,
    NotFound,
    Conflict,
    TooLarge,
    /// The output could not be made to fit.
    Unprocessable,
    RateLimited,
    /// A budget is used up: the same call fails until somebody raises it or it begins anew.
    Budget,
    Cancelled,
    Internal,
    /// drupe does not know the operation.
    Unimplemented,
    /// A model's provider failed, and the client may try again.
    Upstream,
    Overloaded,
    Timeout,
}

/// Why a call gets no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub kind: RejectionKind,
    /// For people: names the user's thing and the fix.
    pub message: String,
    /// The part of the request that is meant, such as `messages[2].content`.
    pub param: Option<String>,
    /// For programs, in OpenAI's format; each kind has one by itself.
    pub code: Option<&'static str>,
    /// Whether the same call may succeed later: the value of the header `x-should-retry`.
    pub retry: bool,
}

impl Rejection {
    pub fn new(kind: RejectionKind, message: impl Into<String>) -> Self {
        use RejectionKind::{Overloaded, RateLimited, Upstream};
        let retry = matches!(kind, RateLimited | Overloaded | Upstream);
        Self { kind, message: message.into(), param: None, code: None, retry }
    }

    pub fn invalid(param: Option<String>, message: impl Into<String>) -> Self {
        Self { param, ..Self::new(RejectionKind::Invalid, message) }
    }

    /// Something that the vendor can do and drupe cannot.
    pub fn unsupported(param: &str, why: impl AsRef<str>) -> Self {
        let message = format!("`{param}` is not supported here: {}", why.as_ref());
        Self::invalid(Some(param.to_owned()), message).coded("unsupported_parameter")
    }

    /// Nobody answers under this name.
    pub fn no_such_model(model: &str) -> Self {
        let message =
            format!("there is no model `{}`: GET /v1/models lists those that are there", clip(model));
        let missing = Self::new(RejectionKind::NotFound, message).coded("model_not_found");
        Self { param: Some("model".into()), ..missing }
    }

    #[must_use]
    pub fn coded(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// How a turn ended that did not succeed. The kernel has repeated what could be repeated, so a client that asks again
    /// pays again: it is told to only where the other side was at fault.
    pub fn of_turn(response: &AgentResponse) -> Self {
        use RejectionKind as Kind;
        let class = response.class.unwrap_or(FailureClass::Internal);
        let kind = match class {
            FailureClass::Timeout => Kind::Timeout,
            FailureClass::Network | FailureClass::Model | FailureClass::Output => Kind::Upstream,
            FailureClass::RateLimit => Kind::RateLimited,
            FailureClass::Budget => Kind::Budget,
            FailureClass::Cancelled => Kind::Cancelled,
            FailureClass::Refused => Kind::Forbidden,
            // A provider's key is the operator's: it says nothing about the client's.
            FailureClass::Config
            | FailureClass::Auth
            | FailureClass::Tool
            | FailureClass::Loop
            | FailureClass::Internal => Kind::Internal,
        };
        let error = response.error.as_deref().unwrap_or(&response.content);
        Self::new(kind, format!("{error} ({})", class.remedy()))
    }

    pub fn status(&self, vendor: Vendor) -> u16 {
        self.wire(vendor).0
    }

    /// The body of the answer. Anthropic's clients show the id of the request to people who report a fault.
    pub fn body(&self, vendor: Vendor, request_id: &str) -> Value {
        let (_, kind, code) = self.wire(vendor);
        match vendor {
            Vendor::OpenAi => json!({"error": {
                "message": self.message, "type": kind, "param": self.param, "code": self.code.or(code),
            }}),
            Vendor::Anthropic => {
                json!({"type": "error", "error": {"type": kind, "message": self.message}, "request_id": request_id})
            }
        }
    }

    /// Status, error type and, for OpenAI, the code where there is no closer one.
    pub(crate) fn wire(&self, vendor: Vendor) -> (u16, &'static str, Option<&'static str>) {
        use RejectionKind as Kind;
        match vendor {
            Vendor::OpenAi => match self.kind {
                Kind::Invalid => (400, "invalid_request_error", None),
                Kind::Unauthorized => (401, "invalid_request_error", Some("invalid_api_key")),
                Kind::Forbidden => (403, "invalid_request_error", Some("permission_denied")),
                Kind::NotFound => (404, "invalid_request_error", Some("not_found")),
                Kind::Conflict => (409, "invalid_request_error", Some("conflict")),
                Kind::TooLarge => (413, "invalid_request_error", Some("request_too_large")),
                Kind::Unprocessable => (422, "invalid_request_error", Some("unprocessable")),
                Kind::RateLimited => (429, "rate_limit_error", Some("rate_limit_exceeded")),
                Kind::Budget => (429, "insufficient_quota", Some("insufficient_quota")),
                Kind::Cancelled => (499, "server_error", Some("cancelled")),
                Kind::Internal => (500, "server_error", Some("server_error")),
                Kind::Unimplemented => (501, "server_error", Some("not_implemented")),
                Kind::Upstream => (502, "server_error", Some("server_error")),
                Kind::Overloaded => (503, "server_error", Some("overloaded")),
                Kind::Timeout => (504, "server_error", Some("timeout")),
            },
            Vendor::Anthropic => match self.kind {
                Kind::Invalid => (400, "invalid_request_error", None),
                Kind::Unauthorized => (401, "authentication_error", None),
                Kind::Forbidden => (403, "permission_error", None),
                Kind::NotFound => (404, "not_found_error", None),
                Kind::Conflict => (409, "conflict_error", None),
                Kind::TooLarge => (413, "request_too_large", None),
                Kind::Unprocessable => (422, "invalid_request_error", None),
                Kind::RateLimited => (429, "rate_limit_error", None),
                Kind::Budget => (402, "billing_error", None),
                Kind::Cancelled => (499, "api_error", None),
                Kind::Internal => (500, "api_error", None),
                Kind::Unimplemented => (501, "api_error", None),
                Kind::Upstream => (502, "api_error", None),
                Kind::Overloaded => (529, "overloaded_error", None),
                Kind::Timeout => (504, "timeout_error", None),
            },
        }
    }
}

/// A text of the client, as far as a message repeats it.
pub(crate) fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

impl From<&Fault> for Rejection {
    fn from(fault: &Fault) -> Self {
        use RejectionKind as Kind;
        let kind = match fault.code {
            FaultCode::Invalid => Kind::Invalid,
            FaultCode::NotFound => Kind::NotFound,
            FaultCode::Unauthenticated => Kind::Unauthorized,
            FaultCode::Denied => Kind::Forbidden,
            FaultCode::Unsupported => Kind::Unimplemented,
            FaultCode::Cancelled => Kind::Cancelled,
            FaultCode::Timeout => Kind::Timeout,
            FaultCode::Busy | FaultCode::Unavailable | FaultCode::NotConfigured => Kind::Overloaded,
            FaultCode::Budget => Kind::Budget,
            FaultCode::Panicked
            | FaultCode::Crashed
            | FaultCode::OutcomeUnknown
            | FaultCode::Internal
            | FaultCode::Other => Kind::Internal,
        };
        Self { retry: fault.retriable, ..Self::new(kind, fault.to_string()) }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Rejection {}
