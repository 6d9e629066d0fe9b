//! The Model Context Protocol, over streamable HTTP, a connection with a line a message, one with a message a message, or a stream of
//! events, in its revisions 2025-11-25 (with sessions) and 2026-07-28 (without).
//!
//! Each agent that the bearer of a token reaches is a tool, each of their sessions a resource, each agent's example a prompt.
//! The protocol is rmcp's; what is decided here is whose a session of it is, how much one client may hold, and what tools, resources
//! and prompts are. Everything that a request leads to goes to the daemon with the token that this very request bears.

mod calls;
mod changes;
mod connection;
mod handler;
mod lines;
mod owners;
mod places;
mod prompts;
mod requests;
mod sessions;
mod steps;
mod streams;
mod tools;

pub use connection::{MessagesIn, MessagesOut, NotTaken};
pub use streams::EventStream;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use drupe_extension_api::{
    Fault,
    control::{AgentDetail, Named, Whoami, method},
    sdk::Host,
};
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use rmcp::{
    model::Tool,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
        session::local::{LocalSessionManager, SessionConfig},
    },
};
use tokio_util::sync::CancellationToken;

use self::{
    changes::ListChanges, connection::Liveness, handler::Agents, owners::Owners, places::Places,
    streams::Streams,
};

/// How long a session of the older revision lasts in which nothing happens: a call may wait for a person for ten minutes.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// The header that names a session of the older revision:
/// <https://modelcontextprotocol.io/specification/2025-11-25/basic/transports>, read on 2026-11-24.
const SESSION: &str = "mcp-session-id";

/// The header that names a tool, in the revision without sessions:
/// <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>, read on 2026-11-24.
const TOOL: &str = "mcp-name";

tokio::task_local! {
    /// The tool that the request names which is being read.
    static NAMED: Option<Tool>;
}

/// Connections of clients that carry messages, at the same time.
const CONNECTIONS: usize = 256;

/// Whoever makes a request.
#[derive(Clone)]
pub struct McpCaller {
    pub token: String,
    pub who: Whoami,
}

impl McpCaller {
    fn shares(&self) -> &str {
        share_of(&self.who.name)
    }
}

/// The token whose share of what there is counts. Whoever its bearer speaks for, such as `token/ann`, has none of their own, as
/// the bearer makes up these names.
fn share_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(token, _)| token).trim_end_matches('`')
}

/// The server, for all who call.
pub struct McpServer {
    service: StreamableHttpService<Agents, LocalSessionManager>,
    owners: Owners,
    host: Host,
    changes: Arc<ListChanges>,
    streams: Streams,
    places: Places,
    closing: CancellationToken,
}

/// A client's connection: what it says goes in, what is said to it comes out.
pub struct MessageConnection {
    pub inbox: MessagesIn,
    pub outbox: MessagesOut,
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
        let changes = ListChanges::new(host.clone());
        let (own, of_each) = (host.clone(), Arc::clone(&changes));
        let service = StreamableHttpService::new(
            move || Ok(Agents::new(&of_each, own.clone(), None)),
            sessions,
            config,
        );
        let places = Places::new(CONNECTIONS, "clients of MCP are connected");
        Self { service, owners, host, changes, streams: Streams::default(), places, closing }
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
        let tool = self.named(&caller, request.headers()).await;
        request.extensions_mut().insert(caller);
        let response = NAMED.scope(tool, self.service.handle(request)).await;
        if let Some(id) = response.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            self.owners.began(name, id).await;
        }
        Ok(response)
    }

    /// The tool that a request names in its headers, by whose schema the library checks them: before it reads the message, and
    /// without waiting for anybody.
    async fn named(&self, caller: &McpCaller, headers: &HeaderMap) -> Option<Tool> {
        let id = headers.get(TOOL)?.to_str().ok()?.to_owned();
        let token = Some(caller.token.as_str());
        let shown = self.host.control_for::<AgentDetail>(token, method::AGENTS_SHOW, Named { id }).await;
        // That there is none is told by the call itself.
        shown.ok().map(|detail| tools::tool(&detail.status))
    }

    /// Begins to serve a program on this machine, whose connection ends with it.
    pub fn attach(&self, caller: McpCaller) -> Result<MessageConnection, Fault> {
        self.open(caller, Liveness::Local)
    }

    /// Begins to serve one client over a connection whose messages are whole, such as a WebSocket, which asks by itself whether the
    /// other side is there.
    pub fn connect(&self, caller: McpCaller) -> Result<MessageConnection, Fault> {
        self.open(caller, Liveness::OfTransport)
    }

    /// Begins to serve one client over a stream of events, which sends what it says to another address.
    pub fn stream(&self, caller: McpCaller) -> Result<EventStream, Fault> {
        let owner = caller.who.name.clone();
        let MessageConnection { inbox, outbox } = self.open(caller, Liveness::OfProtocol)?;
        Ok(self.streams.add(owner, inbox, outbox))
    }

    /// Where a stream takes what its client says. One that somebody else has opened is not there.
    pub fn stream_of(&self, caller: &McpCaller, id: &str) -> Result<MessagesIn, Fault> {
        let inbox = self.streams.of(&caller.who.name, id);
        inbox.ok_or_else(|| Fault::not_found(format!("there is no stream `{id}`")).help("open another one"))
    }

    fn open(&self, caller: McpCaller, liveness: Liveness) -> Result<MessageConnection, Fault> {
        let place = self.places.take(caller.shares())?;
        let agents = Agents::new(&self.changes, self.host.clone(), Some(caller.clone()));
        let (inbox, outbox) = connection::open(&self.host, agents, (caller, place), liveness, &self.closing)?;
        Ok(MessageConnection { inbox, outbox })
    }

    /// Ends all sessions: the server stops.
    pub fn close(&self) {
        self.closing.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_a_bearer_speaks_for_shares_in_what_the_token_has() {
        assert_eq!(share_of("token `ci/ann`"), share_of("token `ci`"));
        assert_ne!(share_of("token `cider`"), share_of("token `ci`"));
        assert_eq!(share_of("operator"), "operator");
    }
}
