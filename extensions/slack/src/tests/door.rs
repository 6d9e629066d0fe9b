//! Requests of the service over HTTP, by a client that speaks it, and by those that mean no good.

use std::{
    net::TcpListener as StdListener,
    time::{SystemTime, UNIX_EPOCH},
};

use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::*;

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
const PATH: &str = "/slack/events";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// What a client says in the head of a request.
struct Head {
    method: &'static str,
    path: &'static str,
    kind: &'static str,
    secret: &'static str,
    /// Seconds from now.
    off: i64,
}

const GOOD: Head = Head { method: "POST", path: PATH, kind: JSON, secret: SECRET, off: 0 };

struct Door {
    socket: StdListener,
    harness: Harness<Slack>,
}

impl Door {
    /// One whose service says who the bot is, once it is asked.
    async fn open(app: Result<Value, Fault>) -> Self {
        let socket = StdListener::bind("127.0.0.1:0").expect("a port");
        let setup = Harness::<Slack>::setup()
            .id("slack")
            .config(config(json!({"events": "127.0.0.1:0", "signing_secret": SECRET})))
            .listener("events", &socket);
        let said = |body: Value| OutwardResponse { status: 200, headers: Vec::new(), body: body.to_string() };
        setup.host().answer_sent(app.map(said));
        Self { harness: setup.start().await.expect("it starts"), socket }
    }

    /// Sends a request; the status and the text of its answer.
    async fn send(&self, head: Head, body: &str) -> (u16, String) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        let time = now.checked_add_signed(head.off).expect("a time").to_string();
        let signature = signed(head.secret, &time, body);
        self.request(&head, &[("x-slack-request-timestamp", &time), ("x-slack-signature", &signature)], body)
            .await
    }

    async fn request(&self, head: &Head, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let stream =
            TcpStream::connect(self.socket.local_addr().expect("an address")).await.expect("it listens");
        let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
        let mut request =
            Request::builder().method(head.method).uri(head.path).header("content-type", head.kind);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
        let asking = async move {
            let answer = client.send_request(request).await.expect("it answers");
            let status = answer.status().as_u16();
            (status, answer.into_body().collect().await.expect("it is whole").to_bytes())
        };
        let ((status, said), _) = within(futures_util::future::join(asking, connection)).await;
        (status, String::from_utf8(said.to_vec()).expect("text"))
    }

    /// Sends until it is acknowledged: at first it is not known who the bot is.
    async fn until_acknowledged(&self, body: &str) {
        for off in -200..0 {
            match self.send(Head { off, ..GOOD }, body).await {
                (200, _) => return,
                (status, said) => {
                    assert_eq!((status, said.as_str()), (503, "it is not known yet who the bot is"))
                }
            }
        }
        panic!("it is never acknowledged");
    }
}

fn now() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs().to_string()
}

fn config(more: Value) -> Value {
    let mut config =
        json!({"api": "https://slack.example/api", "files": "https://files.example", "quiet_seconds": 2});
    config.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    config
}

fn signed(secret: &str, time: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(format!("v0:{time}:{body}").as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v0={hex}")
}

fn app() -> Result<Value, Fault> {
    Ok(json!({"ok": true, "user_id": "UBOT", "team_id": "T1", "user": "plum"}))
}

fn message(team: &str, ts: &str) -> String {
    let mut payload = envelope("", ts)["payload"].clone();
    payload["team_id"] = team.into();
    payload.to_string()
}

#[tokio::test]
async fn what_is_signed_is_taken_in_and_acknowledged_and_the_address_is_verified_before_anything_is_known() {
    let door = Door::open(Err(Fault::new(FaultCode::Unavailable, "away"))).await;
    let host = door.harness.host();
    let beside = async {
        let challenge = r#"{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
        let (status, said) = door.send(GOOD, challenge).await;
        assert_eq!((status, said.as_str()), (200, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"));
        // Who the bot is, it is not told yet; then it is.
        assert_eq!(door.send(GOOD, &message("T1", "1.1")).await.0, 503);
        host.answer_sent(Ok(OutwardResponse {
            status: 200,
            headers: Vec::new(),
            body: app().expect("one").to_string(),
        }));
        let known = async {
            while door.send(GOOD, &message("T1", "1.0")).await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(1_000)).await;
            }
        };
        within(known).await;
        assert_eq!(door.send(Head { off: 1, ..GOOD }, &message("T1", "1.1")).await, (200, String::new()));
        let submitted = host.submitted();
        let last = submitted.last().expect("a message");
        assert_eq!((last.external_id.as_str(), last.session.as_str()), ("D1:1.1", "slack:person.U7"));
        // A button comes as a form.
        let pressed = json!({"type": "block_actions", "user": {"id": "U7", "team_id": "T1"}, "channel": {"id": "D1"},
            "container": {"message_ts": "9.9"}, "actions": [{"value": "stop & go", "action_ts": "12.3"}]});
        let body: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("payload", &pressed.to_string())
            .finish();
        host.answer_sent(Ok(OutwardResponse {
            status: 200,
            headers: Vec::new(),
            body: r#"{"ok":true,"ts":"1.2"}"#.to_owned(),
        }));
        assert_eq!(door.send(Head { kind: FORM, ..GOOD }, &body).await.0, 200);
        let asked = async {
            while !host.sent().iter().any(|request| {
                request.body.as_deref().is_some_and(|body| body.contains("not asked any more"))
            }) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within(asked).await;
        // What is not for the assistant is acknowledged as well: commands, looks whether anybody is here, and news of other kinds.
        for (kind, body) in [
            (FORM, "command=%2Fplum&text=hello&user_id=U7"),
            (FORM, "ssl_check=1&token=x"),
            (JSON, r#"{"type":"app_rate_limited","team_id":"T1","minute_rate_limited":1518467820}"#),
            (JSON, r#"{"type":"event_callback","team_id":"T1","event":{"type":"reaction_added"}}"#),
        ] {
            assert_eq!(door.send(Head { kind, ..GOOD }, body).await, (200, String::new()), "{body}");
        }
        assert!(!host.logs().iter().any(|line| line.contains(SECRET)));
    };
    run_beside(&door.harness, beside).await;
}

#[tokio::test]
async fn what_is_not_signed_or_not_new_or_nothing_is_refused_and_nothing_of_it_is_taken_in() {
    let door = Door::open(app()).await;
    let host = door.harness.host();
    let beside = async {
        door.until_acknowledged(&message("T1", "1.0")).await;
        let body = message("T1", "1.1");
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(1024 * 1024));
        for (head, body, status) in [
            (Head { secret: "another secret of some length", ..GOOD }, body.as_str(), 401),
            (Head { off: -301, ..GOOD }, &body, 401),
            (Head { off: 302, ..GOOD }, &body, 401),
            (Head { method: "GET", ..GOOD }, "", 405),
            (Head { method: "PUT", ..GOOD }, &body, 405),
            (Head { path: "/", ..GOOD }, &body, 404),
            (Head { path: "/slack/events/../events", ..GOOD }, &body, 404),
            (Head { kind: "text/plain", ..GOOD }, &body, 415),
            (Head { kind: FORM, ..GOOD }, "payload=%7B", 400),
            (GOOD, "", 400),
            (GOOD, "no JSON", 400),
            (GOOD, "\u{0}", 400),
            (GOOD, r#"{"type":"url_verification","challenge":7}"#, 400),
        ] {
            let shown: String = body.chars().take(40).collect();
            assert_eq!(door.send(head, body).await.0, status, "{shown}");
        }
        // Whoever sends more than is read may find the other side gone before the answer.
        let mut stream =
            TcpStream::connect(door.socket.local_addr().expect("an address")).await.expect("it listens");
        let time = now();
        let signature = signed(SECRET, &time, &long);
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: {JSON}\r\nx-slack-request-timestamp: {time}\r\nx-slack-signature: {signature}\r\n\
             content-length: {}\r\n\r\n",
            long.len()
        );
        stream.write_all(head.as_bytes()).await.expect("it is sent");
        let (mut reading, mut writing) = stream.split();
        let sending = async {
            for part in long.as_bytes().chunks(64 * 1024) {
                if writing.write_all(part).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let mut said = [0; 12];
        tokio::select! {
            read = within(reading.read_exact(&mut said)) => drop(read.expect("it is answered")),
            () = sending => {}
        }
        assert_eq!(&said, b"HTTP/1.1 413");
        for odd in
            ["[]", "7", "{}", r#"{"type":"event_callback"}"#, r#"{"type":["event_callback"],"event":7}"#]
        {
            assert_eq!(door.send(GOOD, odd).await, (200, String::new()), "nothing that is known here: {odd}");
        }
        // Without what it is known by, or with a half of it.
        let time = now();
        let signature = signed(SECRET, &time, &body);
        let (name, at) = ("x-slack-signature", "x-slack-request-timestamp");
        for headers in [
            vec![],
            vec![(name, signature.as_str())],
            vec![(at, time.as_str())],
            vec![(name, ""), (at, time.as_str())],
            vec![(name, &signature[3..]), (at, time.as_str())],
            vec![(name, signature.as_str()), (at, "0")],
            vec![(name, signature.as_str()), (at, "soon")],
        ] {
            assert_eq!(door.request(&GOOD, &headers, &body).await.0, 401, "{headers:?}");
        }
        // Of a workspace for which there is no token nothing is taken in, and it does not come again.
        assert_eq!(door.send(GOOD, &message("T2", "1.1")).await, (200, String::new()));
        let before = host.submitted().len();
        // What was answered does not count a second time as it is; told again by the service it is signed anew, and is the same message.
        let headers = [(name, signature.as_str()), (at, time.as_str())];
        assert_eq!(door.request(&GOOD, &headers, &body).await.0, 200);
        assert_eq!(door.request(&GOOD, &headers, &body).await.0, 409);
        assert_eq!(door.send(Head { off: 3, ..GOOD }, &body).await.0, 200);
        let ids: Vec<_> = host.submitted().into_iter().skip(before).map(|one| one.external_id).collect();
        assert_eq!(ids, ["D1:1.1"]);
    };
    run_beside(&door.harness, beside).await;
}

#[tokio::test]
async fn a_body_that_is_slow_or_never_comes_ends_and_holds_nobody_up() {
    let door = Door::open(app()).await;
    let beside = async {
        door.until_acknowledged(&message("T1", "1.0")).await;
        let address = door.socket.local_addr().expect("an address");
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: {JSON}\r\nx-slack-request-timestamp: 1531420618\r\n\
             x-slack-signature: v0={}\r\n",
            "0".repeat(64)
        );
        // More of them than bodies are read at the same time.
        let mut slow = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream
                .write_all(format!("{head}content-length: 100\r\n\r\n{{").as_bytes())
                .await
                .expect("it is sent");
            slow.push(stream);
        }
        // One that says how long it is, and is too long, is not waited for; nor one that bears no signature.
        let mut long = TcpStream::connect(address).await.expect("it listens");
        long.write_all(
            format!("{}content-length: 9000000\r\n\r\n{{", head.replace("x-slack-signature", "x-other"))
                .as_bytes(),
        )
        .await
        .expect("it is sent");
        let mut said = [0; 12];
        within(long.read_exact(&mut said)).await.expect("it is answered");
        assert_eq!(&said, b"HTTP/1.1 401");
        for mut stream in slow {
            let mut said = Vec::new();
            timeout(LONG, stream.read_to_end(&mut said)).await.expect("it ends").expect("it is answered");
            assert!(said.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&said));
        }
        assert_eq!(door.send(GOOD, &message("T1", "1.2")).await.0, 200);
    };
    run_beside(&door.harness, beside).await;
}

#[tokio::test]
async fn a_door_is_on_this_machine_and_has_a_secret() {
    let start = async |address: &str, more: Value| {
        let socket = StdListener::bind(address).expect("a port");
        let setup = Harness::<Slack>::setup().id("slack").config(config(more)).listener("events", &socket);
        let said = setup.start().await.expect_err("it does not start");
        said.to_string()
    };
    let secret = json!({"events": "x", "signing_secret": SECRET});
    assert!(start("0.0.0.0:0", secret).await.contains("without TLS"));
    let short = start("127.0.0.1:0", json!({"events": "x", "signing_secret": "short"})).await;
    assert!(short.contains("fewer than 16") && !short.contains("`short`"), "{short}");
    assert!(start("127.0.0.1:0", json!({"events": "x"})).await.contains("fewer than 16"));
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_acknowledged_and_is_taken_in_when_it_comes_again() {
    let door = Door::open(app()).await;
    let host = door.harness.host();
    let beside = async {
        door.until_acknowledged(&message("T1", "1.0")).await;
        let mut payload: Value = serde_json::from_str(&message("T1", "1.1")).expect("JSON");
        payload["event"]["text"] = "!who".into();
        let folder = door.harness.data_folder().to_owned();
        std::fs::remove_dir_all(&folder).expect("it was there");
        assert_eq!(door.send(GOOD, &payload.to_string()).await, (503, "it is taken in later".to_owned()));
        std::fs::create_dir(&folder).expect("it was not");
        host.answer_sent(Ok(OutwardResponse {
            status: 200,
            headers: Vec::new(),
            body: r#"{"ok":true,"ts":"1.2"}"#.to_owned(),
        }));
        // By the same signature: nobody acknowledged it.
        assert_eq!(door.send(GOOD, &payload.to_string()).await, (200, String::new()));
    };
    run_beside(&door.harness, beside).await;
}
