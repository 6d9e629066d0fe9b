//! A client at the other end of a connection that carries whole messages: a WebSocket, lines, or a stream of events
//! with requests beside it.
//!
//! What one client may hold is bounded: requests that are not answered yet, and messages that it has not read yet. Whoever
//! reads slowly is waited for, and asks nothing more meanwhile.

use std::{
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use drupe_extension_api::{
    Event, Fault, FaultCode, SessionId,
    control::{EventsSubscribe, SessionShow, method},
    sdk::Host,
};
use rmcp::{
    ErrorData, Peer, RoleServer, Service, ServiceError,
    model::{
        ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, PingRequest, RequestId,
        ServerJsonRpcMessage, ServerRequest,
    },
    service::PeerRequestOptions,
    transport::Transport,
};
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    IDLE, McpCaller,
    handler::Agents,
    places::Place,
    requests::{Counted, Requests},
};

/// Messages that wait for the other side, in either direction.
const WAITING: usize = 16;

/// How long a client that is not on this machine has to shake hands. Before it has, it is not asked whether it is there.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// How often a client that has no heartbeat of its own transport is asked whether it is there, and how long it has to say so.
const PING: Duration = Duration::from_secs(60);

/// Where what a client says goes in.
#[derive(Clone)]
pub struct MessagesIn {
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    requests: Arc<Requests>,
}

/// What is said to a client comes out here. Dropping it ends the connection.
pub struct MessagesOut {
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    requests: Arc<Requests>,
    why: Arc<OnceLock<Fault>>,
    _ends: DropGuard,
}

/// Why a message was not taken.
#[derive(Debug)]
pub enum NotTaken {
    /// It is none, or not now; the error is an answer of the protocol.
    Answered(Box<ServerJsonRpcMessage>),
    /// The connection is over, and why comes out of its other end.
    Gone,
}

impl MessagesIn {
    /// Takes a message of the client.
    pub async fn take(&self, text: &[u8]) -> Result<(), NotTaken> {
        let message = parsed(text).map_err(|(error, id)| answer(error, id))?;
        self.requests.heard();
        match &message {
            JsonRpcMessage::Request(request) => {
                let begun = self.requests.begin(&request.id);
                begun.map_err(|error| answer(error, Some(request.id.clone())))?;
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification {
                    cancelled.params.request_id.iter().for_each(|id| self.requests.take_back(id));
                    return Ok(());
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        self.messages.send(message).await.map_err(|_| NotTaken::Gone)
    }
}

pub fn answer(error: ErrorData, id: Option<RequestId>) -> NotTaken {
    NotTaken::Answered(Box::new(ServerJsonRpcMessage::error(error, id)))
}

/// A message, or what is wrong with it, and the id of the request that it was to be.
fn parsed(text: &[u8]) -> Result<ClientJsonRpcMessage, (ErrorData, Option<RequestId>)> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| (ErrorData::parse_error(format!("this is no JSON: {error}"), None), None))?;
    let id = value.get("id").cloned().and_then(|id| serde_json::from_value(id).ok());
    serde_json::from_value(value)
        .map_err(|_| (ErrorData::invalid_request("this is no message of JSON-RPC 2.0", None), id))
}

impl MessagesOut {
    /// The next message as JSON; none once the connection is over, with the reason where the client did not end it.
    pub async fn next(&mut self) -> Result<Option<String>, Fault> {
        loop {
            let Some(message) = self.messages.recv().await else {
                return self.why.get().map_or(Ok(None), |fault| Err(fault.clone()));
            };
            let answered = match &message {
                JsonRpcMessage::Response(response) => Some(&response.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
            };
            if answered.is_none_or(|id| self.requests.end(id)) {
                return Ok(Some(serde_json::to_string(&message)?));
            }
        }
    }
}

/// What tells whether the client is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Its connection, as it is a program on this machine. It may say nothing until somebody needs it.
    Local,
    OfTransport,
    OfProtocol,
}

impl Liveness {
    /// How long the client has to shake hands.
    fn handshake(self) -> Duration {
        match self {
            Self::Local => IDLE,
            Self::OfTransport | Self::OfProtocol => HANDSHAKE,
        }
    }
}

/// Serves a client until it goes, its token is revoked, or `closing` is over. It holds its place as long as it is served, however
/// slowly it reads what it is told last.
pub fn open(
    host: &Host,
    agents: Agents,
    (caller, place): (McpCaller, Place),
    liveness: Liveness,
    closing: &CancellationToken,
) -> Result<(MessagesIn, MessagesOut), Fault> {
    let lives = closing.child_token();
    let (inbox, outbox, messages) = ends(&lives);
    let why = Arc::clone(&outbox.why);
    let counted = Counted { server: agents, requests: Arc::clone(&inbox.requests) };
    let own = host.clone();
    host.spawn(async move {
        let _place = place;
        let ended = tokio::select! {
            fault = serve(counted, messages, liveness, liveness.handshake(), lives.clone()) => fault,
            fault = revoked(&own, &caller) => Some(fault),
        };
        if let Some(fault) = ended {
            // It has one reason, the first.
            let _ = why.set(fault);
        }
        lives.cancel();
    })?;
    Ok((inbox, outbox))
}

/// A connection that ends when `lives` is over, for its client and for the library.
fn ends(lives: &CancellationToken) -> (MessagesIn, MessagesOut, Messages) {
    let (said, hears) = mpsc::channel(WAITING);
    let (says, heard) = mpsc::channel(WAITING);
    let requests = Requests::new();
    let inbox = MessagesIn { messages: said, requests: Arc::clone(&requests) };
    let ends = lives.clone().drop_guard();
    let outbox = MessagesOut { messages: heard, requests, why: Arc::default(), _ends: ends };
    (inbox, outbox, Messages { hears, says })
}

async fn serve<S: Service<RoleServer>>(
    counted: Counted<S>,
    messages: Messages,
    liveness: Liveness,
    handshake: Duration,
    lives: CancellationToken,
) -> Option<Fault> {
    let requests = Arc::clone(&counted.requests);
    let shaken = timeout(handshake, rmcp::service::serve_server_with_ct(counted, messages, lives));
    let running = match shaken.await {
        Ok(Ok(running)) => running,
        // A client that broke off has nobody to be told.
        Ok(Err(_)) => return None,
        Err(_) => return Some(Fault::new(FaultCode::Timeout, "the client did not shake hands in time")),
    };
    let peer = running.peer().clone();
    let asked = async {
        match liveness {
            Liveness::OfProtocol => silent(&peer, &requests).await,
            Liveness::Local | Liveness::OfTransport => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = running.waiting() => None,
        fault = asked => Some(fault),
    }
}

/// Asks the client whether it is there, until it does not say so.
async fn silent(peer: &Peer<RoleServer>, requests: &Requests) -> Fault {
    let nothing = || Fault::new(FaultCode::Timeout, "nothing was heard of the client");
    loop {
        sleep(PING).await;
        let ping = ServerRequest::PingRequest(PingRequest::default());
        let options = PeerRequestOptions::with_timeout(PING);
        // One that does not read would hold up the question itself.
        let asked = timeout(PING, peer.send_cancellable_request(ping, options)).await;
        let heard = match asked {
            Ok(Ok(asked)) => timeout(PING, asked.await_response()).await,
            // It speaks the revision in which a server asks nothing.
            Ok(Err(ServiceError::McpError(_))) if !requests.is_idle(IDLE) => continue,
            Ok(Err(_)) | Err(_) => return nothing(),
        };
        // Whoever answers with an error is there, too.
        if !matches!(heard, Ok(Ok(_) | Err(ServiceError::McpError(_)))) {
            return nothing();
        }
    }
}

/// Resolves once the token reaches nothing any more. Nothing need be in the session that is followed for it: what follows
/// it ends with the token.
async fn revoked(host: &Host, caller: &McpCaller) -> Fault {
    let followed = async {
        let above = caller.who.sessions.as_deref().unwrap_or("mcp");
        let session = SessionId::new(format!("{above}:mcp"))?;
        let ask = EventsSubscribe { session, after: SessionShow::BEHIND_ALL, follow: true };
        let mut events = host.open_for::<Event>(Some(&caller.token), method::EVENTS_SUBSCRIBE, ask).await?;
        while events.next().await?.is_some() {}
        Err(Fault::new(FaultCode::Unavailable, "the daemon restarts"))
    };
    match followed.await {
        Ok(never) => never,
        Err(fault) => fault,
    }
}

/// Messages as the library reads and writes them.
struct Messages {
    hears: mpsc::Receiver<ClientJsonRpcMessage>,
    says: mpsc::Sender<ServerJsonRpcMessage>,
}

impl Transport<RoleServer> for Messages {
    type Error = mpsc::error::SendError<ServerJsonRpcMessage>;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let says = self.says.clone();
        async move { says.send(message).await }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.hears.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.hears.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::{
        ServerHandler,
        model::{CallToolRequestParams, CallToolResponse, CallToolResult},
        service::RequestContext,
    };
    use serde_json::json;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::requests::UNANSWERED;

    fn ping(id: usize) -> Vec<u8> {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).into_bytes()
    }

    fn code(refused: Result<(), NotTaken>) -> i32 {
        match refused {
            Err(NotTaken::Answered(message)) => match *message {
                JsonRpcMessage::Error(error) => error.error.code.0,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// A server whose tool ends when it may, taken back or not.
    #[derive(Clone)]
    struct Stubborn {
        begun: Arc<Semaphore>,
        taken_back: Arc<Semaphore>,
        may_end: Arc<Semaphore>,
    }

    impl Stubborn {
        fn new() -> Self {
            let [begun, taken_back, may_end] = std::array::from_fn(|_| Arc::new(Semaphore::new(0)));
            Self { begun, taken_back, may_end }
        }
    }

    impl ServerHandler for Stubborn {
        async fn call_tool(
            &self,
            _: CallToolRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            self.begun.add_permits(1);
            context.ct.cancelled().await;
            self.taken_back.add_permits(1);
            self.may_end.acquire().await.expect("it is open").forget();
            Ok(CallToolResult::success(Vec::new()).into())
        }
    }

    fn call(id: usize) -> Vec<u8> {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "x"}});
        call.to_string().into_bytes()
    }

    fn back(id: usize) -> Vec<u8> {
        let params = json!({ "requestId": id });
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            .to_string()
            .into_bytes()
    }

    #[tokio::test]
    async fn a_request_that_is_taken_back_counts_until_what_serves_it_has_ended() {
        let lives = CancellationToken::new();
        let (inbox, mut outbox, messages) = ends(&lives);
        let server = Stubborn::new();
        let Stubborn { begun, taken_back, may_end } = server.clone();
        let counted = Counted { server, requests: Arc::clone(&inbox.requests) };
        let serving = serve(counted, messages, Liveness::OfTransport, HANDSHAKE, lives);
        let talk = async move {
            let own = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
            let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": own});
            inbox.take(hello.to_string().as_bytes()).await.expect("it is taken");
            assert!(outbox.next().await.expect("it is open").is_some_and(|text| text.contains("hello")));

            for id in 0..UNANSWERED {
                inbox.take(&call(id)).await.expect("there is room");
            }
            let all = u32::try_from(UNANSWERED).expect("a few");
            begun.acquire_many(all).await.expect("it is open").forget();
            for id in 0..UNANSWERED {
                inbox.take(&back(id)).await.expect("it is taken");
            }
            taken_back.acquire_many(all).await.expect("it is open").forget();
            assert_eq!(code(inbox.take(&call(UNANSWERED)).await), -32603, "all of them go on");
            may_end.add_permits(UNANSWERED);
            // Their answers are thrown away where they would come out, which makes room for another request.
            let asking = async {
                while inbox.take(&ping(UNANSWERED)).await.is_err() {
                    tokio::task::yield_now().await;
                }
            };
            let (answered, ()) = tokio::join!(outbox.next(), asking);
            let answered = answered.expect("it is open").expect("it is open");
            assert!(answered.contains(&format!("\"id\":{UNANSWERED}")), "{answered}");
            drop(outbox);
        };
        let (ended, ()) = tokio::join!(serving, talk);
        assert!(ended.is_none());
    }

    #[tokio::test]
    async fn a_client_that_does_not_shake_hands_in_time_is_let_go_whatever_it_asks_meanwhile() {
        let lives = CancellationToken::new();
        let (inbox, mut outbox, messages) = ends(&lives);
        let server = Stubborn::new();
        let counted = Counted { server, requests: Arc::clone(&inbox.requests) };
        let serving = serve(counted, messages, Liveness::OfTransport, Duration::from_millis(20), lives);
        let asking = async {
            for id in 0.. {
                if inbox.take(&ping(id)).await.is_err()
                    || outbox.next().await.is_ok_and(|text| text.is_none())
                {
                    return;
                }
            }
        };
        let (fault, ()) = tokio::join!(serving, asking);
        assert_eq!(fault.map(|fault| fault.code), Some(FaultCode::Timeout));
    }

    #[tokio::test]
    async fn one_client_has_so_many_requests_open_until_they_are_answered() {
        let (inbox, mut outbox, mut messages) = ends(&CancellationToken::new());
        for id in 0..UNANSWERED {
            inbox.take(&ping(id)).await.expect("there is room");
            messages.receive().await.expect("it is one");
        }
        assert_eq!(code(inbox.take(&ping(UNANSWERED)).await), -32603);
        let answer = |id| {
            ServerJsonRpcMessage::error(ErrorData::internal_error("x", None), Some(RequestId::Number(id)))
        };
        messages.send(answer(0)).await.expect("it is read");
        assert!(outbox.next().await.expect("it is open").is_some_and(|text| text.contains("\"id\":0")));
        assert_eq!(code(inbox.take(&ping(1)).await), -32600, "it is open");
        inbox.take(&ping(0)).await.expect("it is free");
        // What is answered but not read yet counts, whether it is wanted or not.
        messages.send(answer(5)).await.expect("it is read");
        inbox.take(&back(5)).await.expect("it is taken");
        assert_eq!(code(inbox.take(&ping(UNANSWERED)).await), -32603);
        messages.send(answer(6)).await.expect("it is read");
        assert!(outbox.next().await.expect("it is open").is_some_and(|text| text.contains("\"id\":6")));
        inbox.take(&ping(5)).await.expect("it is free");
        assert_eq!(code(inbox.take(b"nonsense").await), -32700);
        assert_eq!(code(inbox.take(b"{\"id\":1}").await), -32600);
    }
}
