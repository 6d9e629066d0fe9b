//! A client at the other end of a connection that carries whole messages: a WebSocket, or a stream of events with requests
//! beside it.
//!
//! What one client may hold is bounded: requests that are not answered yet, and messages that it has not read yet. Whoever
//! reads slowly is waited for, and asks nothing more meanwhile.

use std::{
    collections::HashSet,
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use drupe_extension_api::{
    Event, Fault, FaultCode, SessionId,
    control::{EventsSubscribe, method},
    sdk::Host,
};
use parking_lot::Mutex;
use rmcp::{
    ErrorData, Peer, RoleServer, ServiceError,
    model::{
        ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, PingRequest, RequestId,
        ServerJsonRpcMessage, ServerRequest,
    },
    service::PeerRequestOptions,
    transport::Transport,
};
use serde_json::Value;
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{McpCaller, handler::Agents, sessions::BEHIND_ALL};

/// Requests of one client that are not answered yet.
const UNANSWERED: usize = 64;

/// Messages that wait for the other side, in either direction.
const WAITING: usize = 16;

/// How often a client that has no heartbeat of its own transport is asked whether it is there, and how long it has to say so.
const PING: Duration = Duration::from_secs(60);

/// Where what a client says goes in.
#[derive(Clone)]
pub struct MessagesIn {
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    unanswered: Arc<Mutex<HashSet<RequestId>>>,
}

/// What is said to a client comes out here. Dropping it ends the connection.
pub struct MessagesOut {
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    unanswered: Arc<Mutex<HashSet<RequestId>>>,
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
        match &message {
            JsonRpcMessage::Request(request) => {
                let mut unanswered = self.unanswered.lock();
                let id = request.id.clone();
                if unanswered.len() >= UNANSWERED {
                    let why = format!("{UNANSWERED} requests are not answered yet; wait for one of them");
                    return Err(answer(ErrorData::internal_error(why, None), Some(id)));
                }
                if !unanswered.insert(id.clone()) {
                    let why = "a request with this id is not answered yet";
                    return Err(answer(ErrorData::invalid_request(why, None), Some(id)));
                }
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification {
                    // It gets no answer any more.
                    let id = cancelled.params.request_id.as_ref();
                    id.map(|id| self.unanswered.lock().remove(id));
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        self.messages.send(message).await.map_err(|_| NotTaken::Gone)
    }
}

fn answer(error: ErrorData, id: Option<RequestId>) -> NotTaken {
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
        let Some(message) = self.messages.recv().await else {
            return self.why.get().map_or(Ok(None), |fault| Err(fault.clone()));
        };
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        answered.map(|id| self.unanswered.lock().remove(id));
        Ok(Some(serde_json::to_string(&message)?))
    }
}

/// Whether the protocol itself asks the client if it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heartbeat {
    OfTransport,
    OfProtocol,
}

/// Serves a client until it goes, its token is revoked, or `closing` is over.
pub fn open(
    host: &Host,
    agents: Agents,
    caller: McpCaller,
    heartbeat: Heartbeat,
    closing: &CancellationToken,
) -> Result<(MessagesIn, MessagesOut), Fault> {
    let (said, hears) = mpsc::channel(WAITING);
    let (says, heard) = mpsc::channel(WAITING);
    let unanswered: Arc<Mutex<HashSet<RequestId>>> = Arc::default();
    let (lives, why): (_, Arc<OnceLock<Fault>>) = (closing.child_token(), Arc::default());
    let inbox = MessagesIn { messages: said, unanswered: Arc::clone(&unanswered) };
    let outbox =
        MessagesOut { messages: heard, unanswered, why: Arc::clone(&why), _ends: lives.clone().drop_guard() };
    let (own, messages) = (host.clone(), Messages { hears, says });
    host.spawn(async move {
        let ended = tokio::select! {
            fault = serve(agents, messages, heartbeat, lives.clone()) => fault,
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

async fn serve(
    agents: Agents,
    messages: Messages,
    heartbeat: Heartbeat,
    lives: CancellationToken,
) -> Option<Fault> {
    // A client that never shook hands, or broke off, has nobody to be told.
    let running = rmcp::service::serve_server_with_ct(agents, messages, lives).await.ok()?;
    let peer = running.peer().clone();
    let asked = async {
        match heartbeat {
            Heartbeat::OfProtocol => silent(&peer).await,
            Heartbeat::OfTransport => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = running.waiting() => None,
        fault = asked => Some(fault),
    }
}

/// Asks the client whether it is there, until it does not say so.
async fn silent(peer: &Peer<RoleServer>) -> Fault {
    loop {
        sleep(PING).await;
        let ping = ServerRequest::PingRequest(PingRequest::default());
        let heard = async {
            let options = PeerRequestOptions::with_timeout(PING);
            peer.send_cancellable_request(ping, options).await?.await_response().await
        };
        // One that does not read either would hold up the question itself.
        match tokio::time::timeout(PING, heard).await {
            Ok(Ok(_)) => {}
            // It speaks the revision in which a server asks nothing: its connection tells by itself.
            Ok(Err(ServiceError::McpError(_))) => std::future::pending().await,
            Ok(Err(_)) | Err(_) => return Fault::new(FaultCode::Timeout, "nothing was heard of the client"),
        }
    }
}

/// Resolves once the token reaches nothing any more. Nothing need be in the session that is followed for it: what follows
/// it ends with the token.
async fn revoked(host: &Host, caller: &McpCaller) -> Fault {
    let followed = async {
        let above = caller.who.sessions.as_deref().unwrap_or("mcp");
        let session = SessionId::new(format!("{above}:mcp"))?;
        let ask = EventsSubscribe { session, after: BEHIND_ALL, follow: true };
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
    use super::*;

    fn ends()
    -> (MessagesIn, MessagesOut, mpsc::Receiver<ClientJsonRpcMessage>, mpsc::Sender<ServerJsonRpcMessage>)
    {
        let (said, hears) = mpsc::channel(2 * UNANSWERED);
        let (says, heard) = mpsc::channel(WAITING);
        let unanswered: Arc<Mutex<HashSet<RequestId>>> = Arc::default();
        let inbox = MessagesIn { messages: said, unanswered: Arc::clone(&unanswered) };
        let ends = CancellationToken::new().drop_guard();
        let outbox = MessagesOut { messages: heard, unanswered, why: Arc::default(), _ends: ends };
        (inbox, outbox, hears, says)
    }

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

    #[tokio::test]
    async fn one_client_has_so_many_requests_open_until_they_are_answered_or_taken_back() {
        let (inbox, mut outbox, _hears, says) = ends();
        for id in 0..UNANSWERED {
            inbox.take(&ping(id)).await.expect("there is room");
        }
        assert_eq!(code(inbox.take(&ping(UNANSWERED)).await), -32603);
        let answer =
            ServerJsonRpcMessage::error(ErrorData::internal_error("x", None), Some(RequestId::Number(0)));
        says.send(answer).await.expect("it is read");
        assert!(outbox.next().await.expect("it is open").is_some_and(|text| text.contains("\"id\":0")));
        assert_eq!(code(inbox.take(&ping(1)).await), -32600, "it is open");
        inbox.take(&ping(0)).await.expect("it is free");
        let back = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
        inbox.take(back).await.expect("it is one");
        inbox.take(&ping(5)).await.expect("it is free");
        assert_eq!(code(inbox.take(b"nonsense").await), -32700);
        assert_eq!(code(inbox.take(b"{\"id\":1}").await), -32600);
    }
}
