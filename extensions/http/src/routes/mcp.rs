//! The Model Context Protocol. Its requests are what the library says; whose they are is asked first.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use drupe_http_mcp::McpCaller;

use crate::{credentials::Bearer, failure::HttpFault, server::Server};

pub async fn serve(
    State(server): State<Arc<Server>>,
    Bearer { token, who, .. }: Bearer,
    request: Request,
) -> Result<Response, HttpFault> {
    Ok(server.mcp.handle(McpCaller { token, who }, request).await?.map(Body::new))
}
