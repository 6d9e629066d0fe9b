//! Which agents there are.

use std::sync::Arc;

use axum::{Json, extract::State};
use drupe_extension_api::control::{AgentDetail, AgentStatus, Named, method};

use crate::routes::parts::Path;
use crate::{credentials::Bearer, failure::HttpFault, server::Server};

pub async fn list(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
) -> Result<Json<Vec<AgentStatus>>, HttpFault> {
    Ok(Json(server.control(&bearer, method::AGENTS_LIST, ()).await?))
}

pub async fn show(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(id): Path,
) -> Result<Json<AgentDetail>, HttpFault> {
    Ok(Json(server.control(&bearer, method::AGENTS_SHOW, Named { id }).await?))
}
