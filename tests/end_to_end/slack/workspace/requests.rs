//! What the stand-in tells by requests over HTTP in place of sockets: signed, each on a connection of its own, and again where none was answered
//! with 200.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{
    Workspace,
    sockets::{Behaviour, LOOK, acknowledge, next_for},
};

pub const SIGNING_SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

/// The number among sockets of what is told so.
const REQUESTS: u64 = 0;

impl Workspace {
    /// From now on what happens is told at this address.
    pub fn tell_at(&self, address: SocketAddr) {
        let mut state = self.state();
        let is_first = state.told_at.replace(address).is_none();
        state.sockets.insert(REQUESTS, Behaviour::Open);
        drop(state);
        let workspace = self.clone();
        if is_first {
            thread::spawn(move || workspace.tell_for_ever());
        }
    }

    fn tell_for_ever(&self) {
        loop {
            let mut state = self.state();
            let next = next_for(REQUESTS, &mut state).zip(state.told_at);
            drop(state);
            let Some((envelope, address)) = next else {
                thread::sleep(LOOK);
                continue;
            };
            let workspace = self.clone();
            thread::spawn(move || workspace.post(address, &envelope));
        }
    }

    fn post(&self, address: SocketAddr, envelope: &Value) {
        let payload = envelope["payload"].to_string();
        let (kind, body) = match envelope["type"] == "events_api" {
            true => ("application/json", payload),
            false => ("application/x-www-form-urlencoded", format!("payload={}", encoded(&payload))),
        };
        let mut more = vec![];
        if let Some(attempt) = envelope["retry_attempt"].as_u64() {
            more = vec![
                ("x-slack-retry-num", attempt.to_string()),
                ("x-slack-retry-reason", "http_timeout".to_owned()),
            ];
        }
        let status = request(address, kind, &body, SIGNING_SECRET, &more).map_or(0, |(status, _)| status);
        let mut state = self.state();
        state.calls.note(
            "request",
            &json!({"status": status, "retry": envelope["retry_attempt"]}),
            false,
            false,
        );
        if status == 200 {
            acknowledge(envelope["envelope_id"].as_str().expect("an id"), &mut state);
        }
    }
}

/// Sends one request that is signed with this secret; the status and the text of its answer.
pub fn request(
    address: SocketAddr,
    kind: &str,
    body: &str,
    secret: &str,
    more: &[(&str, String)],
) -> std::io::Result<(u16, String)> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(format!("v0:{time}:{body}").as_bytes());
    let code: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let more: String = more.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut stream = TcpStream::connect(address)?;
    // The service waits for three seconds; whoever fetches a file meanwhile needs longer, and is told again.
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    write!(
        stream,
        "POST /slack/events HTTP/1.1\r\nhost: slack.example.org\r\nuser-agent: Slackbot 1.0 (+https://api.slack.com/robots)\r\n\
         content-type: {kind}\r\nx-slack-request-timestamp: {time}\r\nx-slack-signature: v0={code}\r\n{more}\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok((status, answer.split_once("\r\n\r\n").map_or("", |(_, said)| said).to_owned()))
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
