//! How a fault is told over HTTP.

use axum::{
    Json,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{FailureClass, Fault, FaultCode};
use serde::Serialize;

/// The body of an answer that tells of a fault.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultBody {
    error: Fault,
}

/// A fault on its way to a client, and the status that it has there.
#[derive(Debug)]
pub struct HttpFault {
    pub status: StatusCode,
    pub fault: Fault,
}

impl From<Fault> for HttpFault {
    fn from(fault: Fault) -> Self {
        Self { status: status(fault.code), fault }
    }
}

impl HttpFault {
    /// One whose status says more than its code does.
    pub fn with(status: StatusCode, fault: Fault) -> Self {
        Self { status, fault }
    }
}

/// The status of a code.
pub fn status(code: FaultCode) -> StatusCode {
    match code {
        FaultCode::Invalid => StatusCode::BAD_REQUEST,
        FaultCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        FaultCode::Denied => StatusCode::FORBIDDEN,
        FaultCode::NotFound | FaultCode::Unsupported => StatusCode::NOT_FOUND,
        FaultCode::Budget => StatusCode::TOO_MANY_REQUESTS,
        FaultCode::Busy | FaultCode::Unavailable | FaultCode::NotConfigured | FaultCode::Cancelled => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        FaultCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        FaultCode::Panicked
        | FaultCode::Crashed
        | FaultCode::OutcomeUnknown
        | FaultCode::Internal
        | FaultCode::Other => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The status of a turn that failed.
pub fn status_of_turn(class: FailureClass) -> StatusCode {
    match class {
        FailureClass::Budget | FailureClass::RateLimit => StatusCode::TOO_MANY_REQUESTS,
        FailureClass::Refused | FailureClass::Output => StatusCode::UNPROCESSABLE_ENTITY,
        FailureClass::Timeout => StatusCode::GATEWAY_TIMEOUT,
        FailureClass::Network | FailureClass::Model | FailureClass::Auth => StatusCode::BAD_GATEWAY,
        FailureClass::Cancelled | FailureClass::Config => StatusCode::SERVICE_UNAVAILABLE,
        FailureClass::Tool | FailureClass::Loop | FailureClass::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for HttpFault {
    fn into_response(self) -> Response {
        let Self { status, fault } = self;
        let retriable = fault.retriable;
        let mut response = (status, Json(FaultBody { error: fault })).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if retriable {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        soon(status, headers);
        response
    }
}

/// Says when to come again, where the status is that of a server which is busy.
pub fn soon(status: StatusCode, headers: &mut HeaderMap) {
    // 529 is Anthropic's 503.
    if matches!(status.as_u16(), 429 | 503 | 529) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
}
