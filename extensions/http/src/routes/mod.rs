//! What is served, a file for each subject.

mod agents;
mod body;
mod control;
mod embed;
pub mod events;
mod health;
mod hooks;
mod mcp;
mod metrics;
mod openapi;
pub mod page;
mod parts;
pub mod run;
pub mod sessions;
pub mod sign_in;
mod socket;
mod stdio;
mod vendors;

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::{Method, StatusCode},
    middleware,
    routing::{self, MethodRouter},
};
use drupe_extension_api::Fault;

use crate::{failure::HttpFault, origin, server::Server};

/// A route: what answers a method under a path.
pub struct ServedRoute {
    #[cfg_attr(not(test), expect(dead_code, reason = "the document of the API is compared with it"))]
    pub method: Method,
    /// As axum writes it, which is how the document of the API does.
    pub path: &'static str,
    serve: MethodRouter<Arc<Server>>,
}

fn get<H: Handler<T, Arc<Server>>, T: 'static>(path: &'static str, handler: H) -> ServedRoute {
    ServedRoute { method: Method::GET, path, serve: routing::get(handler) }
}

fn post<H: Handler<T, Arc<Server>>, T: 'static>(path: &'static str, handler: H) -> ServedRoute {
    ServedRoute { method: Method::POST, path, serve: routing::post(handler) }
}

fn delete<H: Handler<T, Arc<Server>>, T: 'static>(path: &'static str, handler: H) -> ServedRoute {
    ServedRoute { method: Method::DELETE, path, serve: routing::delete(handler) }
}

/// All that is served. The document of the API must describe each of these and nothing else: a test compares them.
pub fn table() -> Vec<ServedRoute> {
    vec![
        get("/healthz", health::alive),
        get("/readyz", health::ready),
        get("/openapi.json", openapi::show),
        post("/control/{method}", control::call),
        post("/hooks/{name}", hooks::deliver),
        get("/events", events::of_query),
        get("/", page::home),
        post("/page/markdown", page::markdown),
        get("/page/{*file}", page::file),
        get("/embed.js", embed::script),
        get("/embed/{embed}", embed::frame),
        get("/sign-in", sign_in::enter),
        post("/sign-out", sign_in::leave),
        get("/stdio/acp", stdio::acp),
        get("/stdio/mcp", stdio::mcp),
        get("/metrics", metrics::show),
        get("/mcp", mcp::serve),
        post("/mcp", mcp::serve),
        delete("/mcp", mcp::serve),
        get("/mcp/sse", mcp::open_stream),
        post("/mcp/messages", mcp::take),
        get("/mcp/ws", mcp::socket),
        get("/v1/agents", agents::list),
        get("/v1/agents/{agent}", agents::show),
        get("/v1/agents/{agent}/run", run::by_query),
        post("/v1/agents/{agent}/run", run::by_body),
        get("/v1/sessions", sessions::list),
        post("/v1/sessions", sessions::create),
        get("/v1/sessions/{session}", sessions::show),
        delete("/v1/sessions/{session}", sessions::delete),
        get("/v1/sessions/{session}/messages", sessions::messages),
        post("/v1/sessions/{session}/messages", sessions::submit),
        get("/v1/sessions/{session}/events", events::of_path),
        post("/v1/sessions/{session}/stop", sessions::stop),
        post("/v1/sessions/{session}/retry", sessions::retry),
        get("/v1/turns/{turn}", sessions::turn),
        post("/v1/turns/{turn}/stop", sessions::stop_turn),
        get("/v1/models", vendors::models::list),
        get("/v1/models/{model}", vendors::models::show),
        post("/v1/chat/completions", vendors::openai::chat),
        post("/v1/responses", vendors::openai::respond),
        get("/v1/responses/{response}", vendors::openai::retrieve),
        post("/v1/responses/{response}/cancel", vendors::openai::cancel),
        post("/v1/messages", vendors::anthropic::message),
        post("/v1/messages/count_tokens", vendors::anthropic::count),
        get("/v1/{agent}", run::by_query),
    ]
}

pub fn all(server: &Arc<Server>) -> Router {
    let most = server.settings.max_body_kb * 1024;
    let add = |router: Router<Arc<Server>>, route: ServedRoute| router.route(route.path, route.serve);
    table()
        .into_iter()
        .fold(Router::new(), add)
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
