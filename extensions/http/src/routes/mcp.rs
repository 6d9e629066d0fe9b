//! The Model Context Protocol. Its requests are what the library says; whose they are is asked first.
//!
//! Beside streamable HTTP there are the transport of revision 2024-11-05, a stream of events and an address that takes what the client
//! says (<https://modelcontextprotocol.io/specification/2024-11-05/basic/transports>), and WebSockets, which no revision has: they speak
//! as the official SDKs for TypeScript (1.32.2) and Python (1.30.0) do, a text a message, subprotocol `mcp`. Looked up on 2026-11-24.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body as HttpBody,
    extract::{
        FromRequestParts, Query, Request, State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code,
            rejection::WebSocketUpgradeRejection,
        },
    },
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use drupe_extension_api::{Fault, FaultCode};
use drupe_http_mcp::{EventStream, McpCaller, MessageConnection, NotTaken};
use futures_util::stream;
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::body::Body;
use crate::{connections::Place, credentials::Bearer, failure::HttpFault, server::Server};

/// Where clients of a stream of events send what they say.
const MESSAGES: &str = "/mcp/messages";

/// How often the other side is asked whether it is there, or hears something. One that has said nothing until the next time is not.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How long a message may take to be sent. A client that reads slower has others wait for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the other side has to take leave.
const LEAVE: Duration = Duration::from_secs(1);

/// What there is room for in the reason of a closing frame: its 125 bytes without those of the code.
const REASON: usize = 123;

pub async fn serve(
    State(server): State<Arc<Server>>,
    Bearer { token, who, .. }: Bearer,
    request: Request,
) -> Result<Response, HttpFault> {
    Ok(server.mcp.handle(McpCaller { token, who }, request).await?.map(HttpBody::new))
}

/// Opens a stream of events, whose first one says where the client sends what it says.
pub async fn open_stream(
    State(server): State<Arc<Server>>,
    Bearer { token, who, .. }: Bearer,
) -> Result<Response, HttpFault> {
    let opened = server.mcp.stream(McpCaller { token, who })?;
    let endpoint =
        sse::Event::default().event("endpoint").data(format!("{MESSAGES}?sessionId={}", opened.id));
    let first = stream::iter([Ok::<_, Infallible>(endpoint)]);
    let rest = stream::unfold(opened, |mut opened: EventStream| async move {
        // At its end the client connects again, or learns why it may not.
        let message = opened.outbox.next().await.ok()??;
        Some((Ok(sse::Event::default().event("message").data(message)), opened))
    });
    let frames = stream::StreamExt::chain(first, rest);
    Ok(Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response())
}

/// Of which stream a message is.
#[derive(Debug, Deserialize)]
pub struct StreamQuery {
    #[serde(rename = "sessionId")]
    session: String,
}

/// Takes a message of the client of a stream. Its answer comes over the stream.
pub async fn take(
    State(server): State<Arc<Server>>,
    Bearer { token, who, .. }: Bearer,
    Query(StreamQuery { session }): Query<StreamQuery>,
    body: Body,
) -> Result<Response, HttpFault> {
    let inbox = server.mcp.stream_of(&McpCaller { token, who }, &session)?;
    match inbox.take(body.bytes()).await {
        Ok(()) => Ok((StatusCode::ACCEPTED, "Accepted").into_response()),
        Err(NotTaken::Answered(answer)) => Ok((StatusCode::BAD_REQUEST, axum::Json(answer)).into_response()),
        Err(NotTaken::Gone) => Err(Fault::not_found("the stream is over").help("open another one").into()),
    }
}

/// Whoever opens a WebSocket. The clients of the official SDKs have no other place for a token than the address, which becomes a
/// header of HTTP's basic authentication (RFC 7617): its password is the token then, and its user any name.
pub struct SocketBearer(Bearer);

impl FromRequestParts<Arc<Server>> for SocketBearer {
    type Rejection = HttpFault;

    async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, HttpFault> {
        if let Some(bearer) = password(&parts.headers) {
            parts.headers.insert(header::AUTHORIZATION, bearer);
        }
        Bearer::from_request_parts(parts, server).await.map(Self)
    }
}

/// The password of basic authentication, as the header that bears a token.
fn password(headers: &HeaderMap) -> Option<HeaderValue> {
    let (scheme, packed) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let basic = scheme.eq_ignore_ascii_case("basic");
    let said = String::from_utf8(STANDARD.decode(packed.trim()).ok().filter(|_| basic)?).ok()?;
    let (_, password) = said.split_once(':')?;
    format!("Bearer {password}").parse().ok()
}

/// Goes over to a WebSocket with a message of the protocol in each of its own.
pub async fn socket(
    State(server): State<Arc<Server>>,
    SocketBearer(Bearer { token, who, .. }): SocketBearer,
    Extension(place): Extension<Place>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, HttpFault> {
    let upgrade = upgrade.map_err(|rejected| refused(&rejected))?;
    let longest = server.settings.max_body_kb * 1024;
    let connection = server.mcp.connect(McpCaller { token, who })?;
    let upgrade = upgrade.protocols(["mcp"]).max_message_size(longest).max_frame_size(longest);
    Ok(upgrade.on_upgrade(move |socket| async move {
        converse(&server, socket, connection).await;
        drop(place);
    }))
}

fn refused(rejected: &WebSocketUpgradeRejection) -> HttpFault {
    let fault = Fault::invalid(format!("this is no WebSocket: {rejected}"))
        .help("send `Upgrade: websocket` as RFC 6455 has it, or use /mcp");
    let status = rejected.status();
    HttpFault::with(if status.is_client_error() { status } else { StatusCode::BAD_REQUEST }, fault)
}

/// Why a conversation ends, and whether the other side can still be told.
enum End {
    /// The other side is gone, or has taken leave.
    Gone,
    Closed(u16, String),
}

async fn converse(server: &Server, mut socket: WebSocket, mut connection: MessageConnection) {
    let mut pings = interval(HEARTBEAT);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = true;
    let end = loop {
        let step = tokio::select! {
            () = server.closing() => Err(End::Closed(close_code::RESTART, "the server stops".to_owned())),
            said = socket.recv() => {
                heard = true;
                hear(&mut socket, &connection, said).await
            }
            next = connection.outbox.next() => match next {
                Ok(Some(message)) => send(&mut socket, Message::text(message)).await,
                Ok(None) => Err(End::Closed(close_code::NORMAL, "the session is over".to_owned())),
                Err(fault) => Err(End::Closed(code(&fault), fault.message)),
            },
            _ = pings.tick() => match std::mem::take(&mut heard) {
                true => send(&mut socket, Message::Ping(Vec::new().into())).await,
                false => Err(End::Closed(close_code::POLICY, "nothing was heard of the client".to_owned())),
            },
        };
        if let Err(end) = step {
            break end;
        }
    };
    if let End::Closed(code, mut reason) = end {
        reason.truncate(reason.floor_char_boundary(REASON));
        let frame = CloseFrame { code, reason: reason.into() };
        // Whoever is gone by now need not be told. To end before the other side has read it would take it away again.
        let told = async {
            let _ = socket.send(Message::Close(Some(frame))).await;
            while let Some(Ok(_)) = socket.recv().await {}
        };
        let _ = timeout(LEAVE, told).await;
    }
}

async fn hear(
    socket: &mut WebSocket,
    connection: &MessageConnection,
    said: Option<Result<Message, axum::Error>>,
) -> Result<(), End> {
    let text = match said {
        Some(Ok(Message::Text(text))) => text,
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => return Ok(()),
        Some(Ok(Message::Binary(_))) => {
            return Err(End::Closed(close_code::UNSUPPORTED, "messages are texts".to_owned()));
        }
        // The library has answered it.
        None | Some(Ok(Message::Close(_))) => return Err(End::Gone),
        Some(Err(error)) => return Err(End::Closed(close_code::PROTOCOL, error.to_string())),
    };
    match connection.inbox.take(text.as_bytes()).await {
        // Why it is over comes out of the other end.
        Ok(()) | Err(NotTaken::Gone) => Ok(()),
        Err(NotTaken::Answered(answer)) => {
            // An answer is plain data; it always has a form in JSON.
            send(socket, Message::text(serde_json::to_string(&answer).unwrap_or_default())).await
        }
    }
}

async fn send(socket: &mut WebSocket, message: Message) -> Result<(), End> {
    match timeout(PATIENCE, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(End::Gone),
    }
}

/// The closing code of a fault.
fn code(fault: &Fault) -> u16 {
    match fault.code {
        FaultCode::Unauthenticated | FaultCode::Denied | FaultCode::Timeout => close_code::POLICY,
        FaultCode::Unavailable | FaultCode::Cancelled => close_code::RESTART,
        FaultCode::Busy => close_code::AGAIN,
        _ => close_code::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_basic_authentication_is_the_token() {
        let of = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))]);
            password(&headers).map(|bearer| bearer.to_str().expect("a text").to_owned())
        };
        // `mcp:drupe_x` and `nothing`.
        assert_eq!(of("Basic bWNwOmRydXBlX3g="), Some("Bearer drupe_x".to_owned()));
        assert_eq!(of("Basic bm90aGluZw=="), None);
        assert_eq!(of("Basic ?"), None);
        assert_eq!(of("Bearer bWNwOmRydXBlX3g="), None);
    }
}
