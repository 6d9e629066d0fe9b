//! Protocols that are spoken over the standard input and output of a program: `drupe acp` and `drupe mcp` pass the bytes on, over a
//! connection that is no longer HTTP once it was let in.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::Fault;
use drupe_http_acp::EditorClient;
use drupe_http_mcp::McpCaller;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

use crate::{connections::Place, credentials::Bearer, failure::HttpFault, server::Server};

/// What the connection becomes.
const PROTOCOL: &str = "drupe-stdio";

/// By what a program is known that connects once more.
const KEY: &str = "x-drupe-client";

/// The Agent Client Protocol, for an editor.
pub async fn acp(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    request: Request,
) -> Result<Response, HttpFault> {
    let key = request.headers().get(KEY).and_then(|key| key.to_str().ok()).map(str::to_owned);
    let editor = EditorClient { token: bearer.token, who: bearer.who, key };
    let host = server.host.clone();
    become_lines(server, request, |stream| drupe_http_acp::serve(host, editor, stream))
}

/// The Model Context Protocol, for a client that starts its servers as programs.
pub async fn mcp(
    State(server): State<Arc<Server>>,
    Bearer { token, who, .. }: Bearer,
    request: Request,
) -> Result<Response, HttpFault> {
    if !asks_for(request.headers()) {
        return Ok(upgrade_required());
    }
    let longest = server.settings.max_body_kb * 1024;
    let connection = server.mcp.attach(McpCaller { token, who })?;
    become_lines(server, request, move |stream| connection.over_lines(stream, longest))
}

/// Goes over to a connection that carries lines, if that is asked for.
fn become_lines<F>(
    server: Arc<Server>,
    mut request: Request,
    serve: impl FnOnce(TokioIo<Upgraded>) -> F + Send + 'static,
) -> Result<Response, HttpFault>
where
    F: Future<Output = ()> + Send,
{
    if !asks_for(request.headers()) {
        return Ok(upgrade_required());
    }
    let place = request.extensions_mut().remove::<Place>();
    let upgraded = hyper::upgrade::on(request);
    let own = Arc::clone(&server);
    server.host.spawn(async move {
        let _place = place;
        // A client that went before the answer has nobody to be told.
        let Ok(stream) = upgraded.await else { return };
        tokio::select! {
            () = serve(TokioIo::new(stream)) => {}
            () = own.closing() => {}
        }
    })?;
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers()).into_response())
}

fn asks_for(headers: &HeaderMap) -> bool {
    let has = |name, wanted: &str| {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(wanted)))
    };
    has(header::CONNECTION, "upgrade") && has(header::UPGRADE, PROTOCOL)
}

fn headers() -> [(header::HeaderName, HeaderValue); 2] {
    [
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static(PROTOCOL)),
    ]
}

fn upgrade_required() -> Response {
    let fault = Fault::invalid(format!("this path is for connections that become `{PROTOCOL}`"))
        .help("`drupe acp` and `drupe mcp` make one");
    let refused = HttpFault::with(StatusCode::UPGRADE_REQUIRED, fault);
    (headers(), refused).into_response()
}
