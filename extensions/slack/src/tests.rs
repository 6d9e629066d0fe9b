//! The whole extension against a socket of the service's form on loopback, and a kernel that takes everything.

mod door;

use std::time::{Duration, Instant};

use drupe_extension_api::testing::Harness;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};

use super::*;

const LONG: Duration = Duration::from_secs(20);

type Peer = WebSocketStream<TcpStream>;

/// The service: where it accepts sockets.
struct Service {
    listener: TcpListener,
    address: String,
}

impl Service {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("ws://{}/link/?ticket=secret", listener.local_addr().expect("an address"));
        Self { listener, address }
    }

    /// The next socket that is opened, which is told that it is open.
    async fn accept(&self) -> Peer {
        let (stream, _) = within(self.listener.accept()).await.expect("somebody connects");
        let mut peer = accept_async(stream).await.expect("a WebSocket");
        tell(&mut peer, json!({"type": "hello", "num_connections": 1, "debug_info": {}})).await;
        peer
    }

    /// The extension, which will be told the address of a socket so many times.
    async fn harness(&self, sockets: usize) -> Harness<Slack> {
        let setup = Harness::<Slack>::setup().id("slack").config(
            json!({"api": "https://slack.example/api", "files": "https://files.example", "quiet_seconds": 2}),
        );
        let said = |body: Value| OutwardResponse { status: 200, headers: Vec::new(), body: body.to_string() };
        // Looked for before anything is sent.
        setup.host().answer_sent(Err(Fault::new(FaultCode::Timeout, "it had no time")));
        let app = json!({"ok": true, "user_id": "UBOT", "team_id": "T1", "user": "plum"});
        setup.host().answer_sent(Ok(said(app)));
        for _ in 0..sockets {
            setup.host().answer_sent(Ok(said(json!({"ok": true, "url": self.address}))));
        }
        setup.start().await.expect("it starts")
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.expect("it does not take that long")
}

async fn tell(peer: &mut Peer, what: Value) {
    peer.send(Message::text(what.to_string())).await.expect("it is sent");
}

/// The next that is acknowledged through a socket; none where it ends.
async fn acknowledged(peer: &mut Peer) -> Option<String> {
    loop {
        match within(peer.next()).await? {
            Ok(Message::Text(text)) => {
                let told: Value = serde_json::from_str(&text).expect("JSON");
                return Some(told["envelope_id"].as_str().expect("an id").to_owned());
            }
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}

fn envelope(id: &str, ts: &str) -> Value {
    json!({"type": "events_api", "envelope_id": id, "accepts_response_payload": false, "payload": {
        "type": "event_callback", "event_id": "Ev1", "event": {"type": "message", "channel_type": "im",
        "channel": "D1", "user": "U7", "text": "hello", "ts": ts}}})
}

#[tokio::test]
async fn what_is_told_is_acknowledged_when_the_daemon_has_it() {
    let service = Service::start().await;
    let harness = service.harness(1).await;
    let host = harness.host();
    let beside = async {
        let mut peer = service.accept().await;
        tell(&mut peer, envelope("e1", "1.1")).await;
        assert_eq!(acknowledged(&mut peer).await.as_deref(), Some("e1"));
        let submitted = host.submitted();
        assert_eq!(submitted.len(), 1);
        assert_eq!((submitted[0].external_id.as_str(), submitted[0].text.as_str()), ("D1:1.1", "hello"));
        assert_eq!(submitted[0].session.as_str(), "slack:person.U7");
        assert_eq!(submitted[0].address.as_deref(), Some("D1"));
        // What is not for the assistant is acknowledged as well, so that it does not come again.
        tell(&mut peer, json!({"type": "slash_commands", "envelope_id": "e2", "payload": {}})).await;
        assert_eq!(acknowledged(&mut peer).await.as_deref(), Some("e2"));
        for odd in ["", "[", "{\"type\":7}"] {
            peer.send(Message::text(odd)).await.expect("it is sent");
        }
        peer.send(Message::binary(vec![0xff; 9])).await.expect("it is sent");
        tell(&mut peer, envelope("e3", "1.2")).await;
        assert_eq!(acknowledged(&mut peer).await.as_deref(), Some("e3"));
        assert!(!host.logs().iter().any(|line| line.contains("secret")), "{:?}", host.logs());
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn of_a_conversation_one_is_taken_in_after_another_and_of_all_each_is_acknowledged() {
    let service = Service::start().await;
    let harness = service.harness(1).await;
    let host = harness.host();
    let beside = async {
        let mut peer = service.accept().await;
        // More than is taken in at a time.
        let told: Vec<_> =
            (0..60).map(|n| (format!("e{n}"), format!("U{}", n % 3), format!("1.{n:02}"))).collect();
        for (id, who, ts) in &told {
            let mut envelope = envelope(id, ts);
            envelope["payload"]["event"]["user"] = who.as_str().into();
            tell(&mut peer, envelope).await;
        }
        let mut open: Vec<String> = told.iter().map(|(id, ..)| id.clone()).collect();
        while !open.is_empty() {
            let id = acknowledged(&mut peer).await.expect("it stays open");
            open.remove(open.iter().position(|waits| *waits == id).expect("it is acknowledged once"));
        }
        let submitted = host.submitted();
        assert_eq!(submitted.len(), told.len());
        for who in ["U0", "U1", "U2"] {
            let of_them =
                submitted.iter().filter(|one| one.sender.as_ref().is_some_and(|sender| sender.id == who));
            let order: Vec<_> = of_them.map(|one| one.external_id.clone()).collect();
            assert!(order.len() == 20 && order.is_sorted(), "{order:?}");
        }
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn the_next_socket_is_open_before_the_one_is_closed_that_was_announced_to_be() {
    let service = Service::start().await;
    let harness = service.harness(2).await;
    let beside = async {
        let mut first = service.accept().await;
        tell(&mut first, json!({"type": "disconnect", "reason": "warning", "debug_info": {}})).await;
        let mut second = service.accept().await;
        // What is still on its way through the first is taken in, and acknowledged there.
        tell(&mut first, envelope("e1", "1.1")).await;
        assert_eq!(acknowledged(&mut first).await.as_deref(), Some("e1"));
        tell(&mut second, envelope("e2", "1.2")).await;
        assert_eq!(acknowledged(&mut second).await.as_deref(), Some("e2"));
        // The service tells it a second time: nothing more is opened.
        tell(&mut first, json!({"type": "disconnect", "reason": "refresh_requested"})).await;
        tell(&mut first, envelope("e3", "1.3")).await;
        assert_eq!(acknowledged(&mut first).await.as_deref(), Some("e3"));
        first.close(None).await.expect("it is closed");
        tell(&mut second, envelope("e4", "1.4")).await;
        assert_eq!(acknowledged(&mut second).await.as_deref(), Some("e4"));
        assert_eq!(opened(&harness), 2);
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn a_socket_that_is_cut_or_dead_without_a_word_is_replaced() {
    let service = Service::start().await;
    let harness = service.harness(3).await;
    let beside = async {
        drop(service.accept().await);
        // Nobody reads this one, so nothing answers a ping.
        let silent = service.accept().await;
        let begun = Instant::now();
        let mut third = service.accept().await;
        let waited = begun.elapsed();
        assert!((Duration::from_millis(1_800)..Duration::from_secs(8)).contains(&waited), "{waited:?}");
        drop(silent);
        // One that is read answers pings by itself, and stays although nothing is told through it.
        let quiet = tokio::time::timeout(Duration::from_secs(5), third.next()).await;
        assert!(matches!(quiet, Ok(Some(Ok(Message::Ping(_))))), "{quiet:?}");
        let until = tokio::time::Instant::now() + Duration::from_secs(4);
        while let Ok(frame) = tokio::time::timeout_at(until, third.next()).await {
            assert!(matches!(frame, Some(Ok(Message::Ping(_)))), "{frame:?}");
        }
        tell(&mut third, envelope("e1", "1.1")).await;
        assert_eq!(acknowledged(&mut third).await.as_deref(), Some("e1"));
        assert_eq!(opened(&harness), 3);
    };
    run_beside(&harness, beside).await;
}

fn opened(harness: &Harness<Slack>) -> usize {
    harness.host().sent().iter().filter(|request| request.url.ends_with("apps.connections.open")).count()
}

/// Runs the service of the extension until the test is done.
async fn run_beside(harness: &Harness<Slack>, test: impl Future<Output = ()>) {
    tokio::select! {
        ended = harness.run_service() => panic!("it ended: {ended:?}, {:?}", harness.host().logs()),
        () = test => {}
    }
    harness.stop().await.expect("it stops");
}

#[tokio::test]
async fn without_the_token_of_the_app_there_is_no_socket_and_that_is_said_at_once() {
    let setup = Harness::<Slack>::setup().id("slack").config(
        json!({"api": "https://slack.example/api", "files": "https://files.example", "quiet_seconds": 2}),
    );
    setup
        .host()
        .answer_sent(Err(Fault::invalid("no secret `SLACK_APP_TOKEN` is bound to the host of this request")));
    let fault = setup.start().await.expect_err("it does not start");
    assert_eq!(fault.code, FaultCode::NotConfigured, "{fault}");
}
