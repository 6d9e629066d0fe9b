//! The Model Context Protocol, over streamable HTTP or a connection with a line a message, in its revisions 2025-11-25 (with sessions) and 2026-07-28 (without).
//!
//! Each agent that the bearer of a token reaches is a tool, each of their sessions a resource, each agent's example a prompt.
//! The protocol is rmcp's; what is decided here is only whose a session of it is. Everything that a request leads to goes to the daemon
//! with the token that this very request bears.

mod calls;
mod handler;
mod owners;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use drupe_extension_api::{Fault, control::Whoami, sdk::Host};
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::local::{LocalSessionManager, SessionConfig},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use self::{handler::Agents, owners::Owners};

/// How long a session of the older revision lasts in which nothing happens: a call may wait for a person for ten minutes.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// The header that names a session of the older revision:
/// <https://modelcontextprotocol.io/specification/2025-11-25/basic/transports>, read on 2026-11-24.
const SESSION: &str = "mcp-session-id";

/// Serves one client over a connection, a line a message, until it ends.
pub async fn serve_lines<S>(host: Host, caller: McpCaller, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let agents = Agents { host, caller: Some(caller) };
    // A client that never shook hands, or broke off, has nobody to be told.
    if let Ok(running) = rmcp::serve_server(agents, tokio::io::split(stream)).await {
        let _ = running.waiting().await;
    }
}

/// Whoever makes a request.
#[derive(Clone)]
pub struct McpCaller {
    pub token: String,
    pub who: Whoami,
}

/// The server, for all who call.
pub struct McpServer {
    service: StreamableHttpService<Agents, LocalSessionManager>,
    owners: Owners,
    closing: CancellationToken,
}

impl McpServer {
    /// A server that takes bodies of so many bytes.
    pub fn new(host: &Host, longest: usize) -> Self {
        let (closing, host) = (CancellationToken::new(), host.clone());
        let mut idle = SessionConfig::default();
        idle.keep_alive = Some(IDLE);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = idle;
        let sessions = Arc::new(sessions);
        // Who may call from where was decided before.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(longest)
            .with_cancellation_token(closing.clone());
        let owners = Owners::new(Arc::clone(&sessions));
        let service = StreamableHttpService::new(
            move || Ok(Agents { host: host.clone(), caller: None }),
            sessions,
            config,
        );
        Self { service, owners, closing }
    }

    /// Answers a request. A session that somebody else has begun is not there.
    pub async fn handle<B>(
        &self,
        caller: McpCaller,
        mut request: Request<B>,
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, Fault>
    where
        B: Body + Send + 'static,
        B::Error: std::fmt::Display,
        B::Data: Send + 'static,
    {
        let named = request.headers().get(SESSION).and_then(|id| id.to_str().ok());
        if let Some(id) = named.filter(|id| !self.owners.has(&caller.who.name, id)) {
            return Err(
                Fault::not_found(format!("there is no session `{id}`")).help("initialize another one")
            );
        }
        let name = caller.who.name.clone();
        request.extensions_mut().insert(caller);
        let response = self.service.handle(request).await;
        if let Some(id) = response.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            self.owners.began(name, id).await;
        }
        Ok(response)
    }

    /// Ends all sessions: the server stops.
    pub fn close(&self) {
        self.closing.cancel();
    }
}
