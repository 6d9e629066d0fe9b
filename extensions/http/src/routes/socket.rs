//! The events of a session over a WebSocket: the same as the stream beside it, for clients that rather read messages.
//!
//! It goes one way. Closing codes are those of RFC 6455, 7.4.1 (<https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1>), with 1012 and
//! 1013 of IANA's register (<https://www.iana.org/assignments/websocket/websocket.xhtml>), both as of 2026-11-24.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::ws::{
        CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code, rejection::WebSocketUpgradeRejection,
    },
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use drupe_extension_api::{Event, Fault, FaultCode, sdk::Items};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::{connections::Place, failure::HttpFault, server::Server};

/// How often the other side is asked whether it is there. One that has said nothing until the next time is not.
const PING: Duration = Duration::from_secs(15);

/// How long a message may take to be sent. Whoever reads slower holds up nobody, but keeps a place and what the daemon
/// has ready for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the other side has to take leave.
const LEAVE: Duration = Duration::from_secs(1);

/// Pings and the end are all that a client has to say; a control frame has at most 125 bytes.
const LONGEST: usize = 1024;

/// What there is room for in the reason of a closing frame: its 125 bytes without those of the code.
const REASON: usize = 123;

/// Whether a request asks for another protocol in place of HTTP.
pub fn is_asked(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
}

/// Goes over to a WebSocket that gives these events.
pub fn answer(
    server: Arc<Server>,
    place: Place,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    items: Items<Event>,
) -> Result<Response, HttpFault> {
    let upgrade = upgrade.map_err(|rejected| refused(&rejected))?;
    let upgrade = upgrade.max_message_size(LONGEST).max_frame_size(LONGEST);
    Ok(upgrade.on_upgrade(move |socket| async move {
        Follower { server, socket, items, heard: true, pings: pings() }.run().await;
        drop(place);
    }))
}

fn refused(rejected: &WebSocketUpgradeRejection) -> HttpFault {
    let fault = Fault::invalid(format!("this is no WebSocket: {rejected}"))
        .help("send `Upgrade: websocket` as RFC 6455 has it, or leave it out and read server-sent events");
    let status = rejected.status();
    HttpFault::with(if status.is_client_error() { status } else { StatusCode::BAD_REQUEST }, fault)
}

fn pings() -> Interval {
    let mut pings = interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

/// One client that follows a session.
struct Follower {
    server: Arc<Server>,
    socket: WebSocket,
    items: Items<Event>,
    /// Whether the other side has said anything since it was asked.
    heard: bool,
    pings: Interval,
}

/// Why it ends.
enum End {
    /// The other side is gone, or has taken leave.
    Gone,
    Closed(u16, String),
}

impl Follower {
    async fn run(mut self) {
        let end = loop {
            if let Err(end) = self.step().await {
                break end;
            }
        };
        if let End::Closed(code, reason) = end {
            let frame = CloseFrame { code, reason: cut(reason).into() };
            // Whoever is gone by now need not be told. To end before the other side has read it would take it away again.
            let told = async {
                let _ = self.socket.send(Message::Close(Some(frame))).await;
                while let Some(Ok(_)) = self.socket.recv().await {}
            };
            let _ = timeout(LEAVE, told).await;
        }
    }

    async fn step(&mut self) -> Result<(), End> {
        tokio::select! {
            () = self.server.closing() => Err(End::Closed(close_code::RESTART, "the server stops".to_owned())),
            said = self.socket.recv() => self.hear(said),
            next = self.items.next() => match next {
                // An event is plain data; it always has a form in JSON.
                Ok(Some(event)) => self.send(Message::text(serde_json::to_string(&event).unwrap_or_default())).await,
                Ok(None) => Err(End::Closed(close_code::RESTART, "the daemon restarts".to_owned())),
                Err(fault) => Err(End::Closed(code(&fault), fault_in_short(&fault))),
            },
            _ = self.pings.tick() => match std::mem::take(&mut self.heard) {
                true => self.send(Message::Ping(Vec::new().into())).await,
                false => Err(End::Closed(close_code::POLICY, "nothing was heard of the client".to_owned())),
            },
        }
    }

    fn hear(&mut self, said: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        self.heard = true;
        match said {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Text(_) | Message::Binary(_))) => {
                let reason = "messages are sent with POST /v1/sessions/{id}/messages";
                Err(End::Closed(close_code::UNSUPPORTED, reason.to_owned()))
            }
            // The library has answered it.
            None | Some(Ok(Message::Close(_))) => Err(End::Gone),
            Some(Err(error)) => Err(End::Closed(close_code::PROTOCOL, error.to_string())),
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        match timeout(PATIENCE, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Gone),
        }
    }
}

/// The closing code of a fault.
fn code(fault: &Fault) -> u16 {
    match fault.code {
        FaultCode::Unauthenticated | FaultCode::Denied => close_code::POLICY,
        FaultCode::Unavailable | FaultCode::Cancelled => close_code::RESTART,
        FaultCode::Busy => close_code::AGAIN,
        _ => close_code::ERROR,
    }
}

fn fault_in_short(fault: &Fault) -> String {
    match serde_json::to_value(fault.code) {
        Ok(serde_json::Value::String(code)) => format!("{code}: {}", fault.message),
        _ => fault.message.clone(),
    }
}

/// A reason as far as there is room for it.
fn cut(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_its_frame_and_is_text() {
        assert_eq!(cut("short".to_owned()), "short");
        let long = cut("ä".repeat(100));
        assert_eq!((long.len(), long.chars().count()), (122, 61));
    }

    #[test]
    fn a_fault_has_the_code_that_says_whether_to_come_again() {
        for (code, closing) in [
            (FaultCode::Unauthenticated, 1008),
            (FaultCode::Denied, 1008),
            (FaultCode::Unavailable, 1012),
            (FaultCode::Busy, 1013),
            (FaultCode::Internal, 1011),
        ] {
            assert_eq!(super::code(&Fault::new(code, "")), closing, "{code:?}");
        }
        assert_eq!(fault_in_short(&Fault::denied("no")), "denied: no");
    }
}
