//! The body of a request: bounded in size and in time.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::{StatusCode, header},
};
use drupe_extension_api::{Fault, FaultCode};

use crate::failure::HttpFault;

/// How long a body may take to come.
const TIME: Duration = Duration::from_secs(60);

/// A body that is JSON, or nothing.
pub struct Body(Bytes);

impl Body {
    /// What it holds, which is an object: types that are read would take a list of their fields as well.
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, HttpFault> {
        if !self.0.trim_ascii_start().starts_with(b"{") {
            return Err(Fault::invalid("the body is to be a JSON object").into());
        }
        serde_json::from_slice(&self.0)
            .map_err(|error| Fault::invalid(format!("the body cannot be read: {error}")).into())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What it holds, as text.
    pub fn text(&self) -> Result<&str, HttpFault> {
        std::str::from_utf8(&self.0).map_err(|_| Fault::invalid("the body is not UTF-8").into())
    }

    /// What it holds, where it holds anything; `null` is nothing.
    pub fn optional<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<Option<T>, HttpFault> {
        if matches!(self.0.trim_ascii(), b"" | b"null") { Ok(None) } else { self.json().map(Some) }
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = HttpFault;

    async fn from_request(request: Request, state: &S) -> Result<Self, HttpFault> {
        if let Some(coding) =
            request.headers().get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity")
        {
            let fault = Fault::invalid(format!("the body is packed as {coding:?}")).help("send it as it is");
            return Err(HttpFault::with(StatusCode::UNSUPPORTED_MEDIA_TYPE, fault));
        }
        match tokio::time::timeout(TIME, Bytes::from_request(request, state)).await {
            Ok(Ok(bytes)) => Ok(Self(bytes)),
            Ok(Err(rejected)) => Err(refused(&rejected)),
            Err(_) => {
                let fault = Fault::new(FaultCode::Timeout, format!("the body did not come within {TIME:?}"));
                Err(HttpFault::with(StatusCode::REQUEST_TIMEOUT, fault))
            }
        }
    }
}

fn refused(rejected: &BytesRejection) -> HttpFault {
    let status = rejected.status();
    let fault = match status {
        StatusCode::PAYLOAD_TOO_LARGE => Fault::invalid("the body is too long")
            .help("the most is `extensions.http.max_body_kb` of drupe.yaml"),
        _ => Fault::invalid(format!("the body did not come whole: {rejected}")),
    };
    HttpFault::with(status, fault)
}
