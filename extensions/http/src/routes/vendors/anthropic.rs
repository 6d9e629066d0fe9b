//! Anthropic's Messages.

use std::sync::Arc;

use axum::{Json, extract::State, http::HeaderMap, response::Response};
use drupe_http_compat::{MessagesRequest, Rejection, Vendor, messages::ApiVersion};
use serde_json::Value;

use super::{Rejected, exchange, refused};
use crate::{credentials::Bearer, failure::HttpFault, routes::body::Body, server::Server};

pub async fn message(
    State(server): State<Arc<Server>>,
    bearer: Result<Bearer, HttpFault>,
    headers: HeaderMap,
    body: Result<Body, HttpFault>,
) -> Result<Response, Rejected> {
    let bearer = bearer.map_err(told)?;
    let request =
        MessagesRequest::parse(body.map_err(told)?.bytes(), version(&headers)?).map_err(rejected)?;
    let encoder = |turn: &_| request.encoder(turn);
    exchange::answer(&server, &bearer, &headers, Vendor::Anthropic, &request.ask, encoder).await
}

pub async fn count(
    bearer: Result<Bearer, HttpFault>,
    headers: HeaderMap,
    body: Result<Body, HttpFault>,
) -> Result<Json<Value>, Rejected> {
    bearer.map_err(told)?;
    let request = MessagesRequest::parse_count(body.map_err(told)?.bytes(), version(&headers)?);
    Ok(Json(request.map_err(rejected)?.token_count()))
}

fn version(headers: &HeaderMap) -> Result<ApiVersion, Rejected> {
    let named = headers.get("anthropic-version").map(|version| version.to_str().unwrap_or("not text"));
    ApiVersion::of(named).map_err(rejected)
}

fn told(failure: HttpFault) -> Rejected {
    rejected(refused(&failure))
}

fn rejected(rejection: Rejection) -> Rejected {
    Rejected(Vendor::Anthropic, rejection)
}
