//! The control API as it is.

use std::sync::Arc;

use axum::{Json, extract::State};
use drupe_extension_api::Fault;
use serde_json::value::{RawValue, to_raw_value};

use super::body::Body;
use crate::routes::parts::Path;
use crate::{credentials::Bearer, failure::HttpFault, server::Server, visitors::reach};

/// Calls a method with the parameters that are the body, which may be empty.
pub async fn call(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(method): Path,
    body: Body,
) -> Result<Json<Box<RawValue>>, HttpFault> {
    if bearer.visitor.is_some() {
        let answer = server.control(&bearer, &method, reach::asked(&method, body.optional()?)?).await?;
        return Ok(Json(to_raw_value(&reach::told(&method, answer)).map_err(Fault::from)?));
    }
    let params: Option<&RawValue> = body.optional()?;
    Ok(Json(server.control(&bearer, &method, params).await?))
}
