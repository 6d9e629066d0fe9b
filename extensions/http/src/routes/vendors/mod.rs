//! Clients of OpenAI and of Anthropic: each agent is a model. Their formats are `drupe-http-compat`'s business; here a call
//! becomes a turn, and what the turn tells becomes the answer.

pub mod anthropic;
mod exchange;
pub mod models;
pub mod openai;

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{Fault, FaultCode};
use drupe_http_compat::{Rejection, RejectionKind, Vendor};
use uuid::Uuid;

use crate::failure::{HttpFault, soon};

/// Whether a client may ask again by itself: both vendors' clients obey it.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The name of a request, in the header that each vendor has for it.
const REQUEST_ID: [HeaderName; 2] =
    [HeaderName::from_static("x-request-id"), HeaderName::from_static("request-id")];

/// A rejection in its vendor's words.
pub struct Rejected(pub Vendor, pub Rejection);

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        let Self(vendor, rejection) = self;
        let id = request_id();
        let status =
            StatusCode::from_u16(rejection.status(vendor)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry = if rejection.retry { "true" } else { "false" };
        let mut response = (status, Json(rejection.body(vendor, &id))).into_response();
        response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static(retry));
        soon(status, response.headers_mut());
        named(response, &id)
    }
}

/// What was refused before anybody looked at the format.
pub fn refused(failure: &HttpFault) -> Rejection {
    match failure.status {
        StatusCode::PAYLOAD_TOO_LARGE => Rejection::new(RejectionKind::TooLarge, failure.fault.to_string()),
        _ => Rejection::from(&failure.fault),
    }
}

/// A fault of the daemon, which may be about the model that the client named.
fn of_fault(fault: &Fault, model: &str) -> Rejection {
    match fault.code {
        FaultCode::NotFound => Rejection::no_such_model(model),
        _ => Rejection::from(fault),
    }
}

fn request_id() -> String {
    format!("req_{}", Uuid::now_v7().simple())
}

/// Gives an answer the name of its request.
fn named(mut response: Response, id: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(id) {
        for name in REQUEST_ID {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}
