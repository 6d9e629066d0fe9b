//! The control API as it is.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::value::RawValue;

use super::body::Body;
use crate::routes::parts::Path;
use crate::{credentials::Bearer, failure::HttpFault, server::Server};

/// Calls a method with the parameters that are the body, which may be empty.
pub async fn call(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(method): Path,
    body: Body,
) -> Result<Json<Box<RawValue>>, HttpFault> {
    let params: Option<&RawValue> = body.optional()?;
    Ok(Json(server.control(&bearer, &method, params).await?))
}
