//! What is served, a file for each subject.

mod agents;
mod body;
mod control;
mod embed;
mod events;
mod health;
mod mcp;
mod metrics;
mod page;
mod run;
mod sessions;
mod sign_in;
mod socket;
mod stdio;
mod vendors;

use std::sync::Arc;

use axum::{
    Router,
    http::StatusCode,
    middleware,
    routing::{any, get, post},
};
use drupe_extension_api::Fault;

use crate::{failure::HttpFault, origin, server::Server};

pub fn all(server: &Arc<Server>) -> Router {
    let most = server.settings.max_body_kb * 1024;
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/control/{method}", post(control::call))
        .route("/events", get(events::of_query))
        .route("/", get(page::home))
        .route("/page/markdown", post(page::markdown))
        .route("/page/{*file}", get(page::file))
        .route("/embed.js", get(embed::script))
        .route("/embed/{name}", get(embed::frame))
        .route("/sign-in", get(sign_in::enter))
        .route("/sign-out", post(sign_in::leave))
        .route("/stdio/acp", get(stdio::acp))
        .route("/stdio/mcp", get(stdio::mcp))
        .route("/metrics", get(metrics::show))
        .route("/mcp", any(mcp::serve))
        .route("/v1/agents", get(agents::list))
        .route("/v1/agents/{agent}", get(agents::show))
        .route("/v1/agents/{agent}/run", get(run::by_query).post(run::by_body))
        .route("/v1/sessions", get(sessions::list).post(sessions::create))
        .route("/v1/sessions/{session}", get(sessions::show))
        .route("/v1/sessions/{session}/messages", get(sessions::messages).post(sessions::submit))
        .route("/v1/sessions/{session}/events", get(events::of_path))
        .route("/v1/sessions/{session}/stop", post(sessions::stop))
        .route("/v1/sessions/{session}/retry", post(sessions::retry))
        .route("/v1/turns/{turn}", get(sessions::turn))
        .route("/v1/turns/{turn}/stop", post(sessions::stop_turn))
        .route("/v1/models", get(vendors::models::list))
        .route("/v1/models/{model}", get(vendors::models::show))
        .route("/v1/chat/completions", post(vendors::openai::chat))
        .route("/v1/responses", post(vendors::openai::respond))
        .route("/v1/responses/{response}", get(vendors::openai::retrieve))
        .route("/v1/responses/{response}/cancel", post(vendors::openai::cancel))
        .route("/v1/messages", post(vendors::anthropic::message))
        .route("/v1/messages/count_tokens", post(vendors::anthropic::count))
        .route("/v1/{agent}", get(run::by_query))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(axum::extract::DefaultBodyLimit::max(most))
        .layer(middleware::from_fn_with_state(Arc::clone(server), origin::check))
        .with_state(Arc::clone(server))
}

async fn nothing() -> HttpFault {
    Fault::not_found("there is nothing under this path")
        .help("docs/reference/http.md lists what there is")
        .into()
}

async fn not_so() -> HttpFault {
    let fault =
        Fault::invalid("this path has another method").help("docs/reference/http.md lists what there is");
    HttpFault::with(StatusCode::METHOD_NOT_ALLOWED, fault)
}
