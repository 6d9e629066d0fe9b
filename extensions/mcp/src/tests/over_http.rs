//! Servers that are spoken to by HTTP: a real socket on this machine, and answers that a test gives.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

use super::played::*;

/// Answers requests until the test ends; gives the address, and keeps the heads of what was asked.
fn serves(
    answer: impl Fn(&str, &Value) -> (&'static str, String) + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&heads);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|count| count > 2) {}
            let head = head.to_lowercase();
            let length =
                head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
            let mut body = vec![0; length.unwrap_or_default()];
            reader.read_exact(&mut body).expect("a body");
            let asked = serde_json::from_slice(&body).unwrap_or_default();
            let (status, body) = answer(&head, &asked);
            kept.lock().expect("a lock").push(head);
            let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
            let told = format!(
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(told.as_bytes());
        }
    });
    (address, heads)
}

/// A server of the older revision without sessions, which answers the probe with a page.
fn older(head: &str, asked: &Value) -> (&'static str, String) {
    let result = match asked["method"].as_str() {
        Some("initialize") => {
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "h", "version": "1"}})
        }
        Some("tools/list") => json!({"tools": [tool("say", "Says it.")]}),
        Some("tools/call") => {
            json!({"content": [{"type": "text", "text": asked["params"]["arguments"]["text"]}]})
        }
        Some("server/discover") => return ("400 Bad Request", "what?".into()),
        _ if head.starts_with("get") => return ("405 Method Not Allowed", String::new()),
        _ => return ("202 Accepted", String::new()),
    };
    ("200 OK", json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}).to_string())
}

#[test]
fn a_server_is_asked_with_the_headers_of_the_operator_and_by_the_revision_that_it_knows() {
    let (url, heads) = serves(older);
    let setup = setup(json!({"h": {"url": url, "headers": {"Authorization": "Bearer abcdefgh"}}}), json!({}));
    let harness = started(setup, &["h"]);
    let labels = spec(&harness, "h__say").annotations;
    assert!(labels.outward && labels.needs_approval);
    assert_eq!(calls(&harness, "s", "h__say", json!({"text": "x"})).as_deref(), Ok("x"));
    assert_eq!(state(&harness, "h")["revision"], "2025-06-18");
    assert!(heads.lock().expect("a lock").iter().all(|head| head.contains("authorization: bearer abcdefgh")));
    assert!(harness.host().opened_processes().is_empty());
}

#[test]
fn who_is_refused_sent_elsewhere_or_finds_nobody_is_told_so_without_a_secret() {
    let (refuses, _) = serves(|_, _| ("401 Unauthorized\r\nwww-authenticate: Bearer", String::new()));
    let (other, came) = serves(older);
    let elsewhere: &'static str =
        Box::leak(format!("307 Temporary Redirect\r\nlocation: {other}").into_boxed_str());
    let (sends, _) = serves(move |_, _| (elsewhere, String::new()));
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let servers = json!({
        "refuses": {"url": refuses}, "token": {"url": refuses, "headers": {"authorization": "Bearer x"}}, "sends": {"url": sends, "headers": {"X-Key": "abcdefgh"}},
        "gone": {"url": format!("http://{closed}/mcp?key=q1w2e3r4")},
    });
    let harness =
        drupe_extension_api::testing::block_on(setup(servers, json!({})).start()).expect("it starts");
    for (server, becomes, says) in [
        ("refuses", "sign_in", "`drupe mcp login refuses`"),
        ("token", "failed", "give it a token that it takes under `headers`"),
        ("sends", "failed", "307"),
        ("gone", "failed", "Connection refused"),
    ] {
        until(server, || state(&harness, server)["state"] == becomes);
        let error = state(&harness, server)["error"].to_string();
        assert!(error.contains(says) && !error.contains("q1w2e3r4"), "{server}: {error}");
    }
    assert!(came.lock().expect("a lock").is_empty(), "nobody follows with the headers");
}
