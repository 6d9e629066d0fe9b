//! What is refused before anything is sent, and what statuses mean. How messages go out is tried with a whole daemon.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use drupe_extension_api::{
    serde_json::json,
    testing::{Harness, block_on},
};
use reqwest::StatusCode;

use super::*;
use crate::post::{EndpointAnswer, read};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn to(address: Option<&str>) -> OutboundMessage {
    OutboundMessage {
        kind: OutboundKind::Answer,
        delivery: "1".into(),
        session: "main".parse().expect("a session"),
        address: address.map(Into::into),
        text: "hello".into(),
        file: None,
    }
}

#[test]
fn a_status_says_whether_a_message_comes_again() {
    for (status, answer) in [
        (200, EndpointAnswer::Taken),
        (204, EndpointAnswer::Taken),
        (302, EndpointAnswer::Refused),
        (400, EndpointAnswer::Refused),
        (401, EndpointAnswer::Refused),
        (404, EndpointAnswer::Refused),
        (408, EndpointAnswer::Failed),
        (410, EndpointAnswer::Gone),
        (429, EndpointAnswer::Overloaded),
        (500, EndpointAnswer::Failed),
        (502, EndpointAnswer::Overloaded),
        (503, EndpointAnswer::Overloaded),
        (599, EndpointAnswer::Failed),
    ] {
        assert_eq!(read(StatusCode::from_u16(status).expect("a status")), answer, "{status}");
    }
}

#[test]
fn what_leads_nowhere_is_refused_with_the_key_that_says_it() {
    let start = |url: &str, secret: &str| {
        let config = json!({"endpoints": {"builds": {"url": url, "secret": secret}}});
        block_on(Harness::<Webhook>::start(config)).map(drop).map_err(|fault| fault.to_string())
    };
    assert_eq!(start("https://hooks.example/", SECRET), Ok(()));
    let told = start("http://hooks.example/", SECRET).expect_err("nobody may read along");
    assert!(
        told.contains("`extensions.webhook.endpoints.builds.url`") && told.contains("https://"),
        "{told}"
    );
    let told = start("https://hooks.example/", "hunter2").expect_err("it is guessed");
    assert!(told.contains("whsec_") && !told.contains("hunter2"), "{told}");
}

#[test]
fn an_address_names_an_endpoint_that_is_there() {
    block_on(async {
        let one = json!({"url": "https://hooks.example/", "secret": SECRET});
        let none = Harness::<Webhook>::start(json!({"endpoints": {}})).await.expect("it starts");
        let two = json!({"endpoints": {"a": one, "b": one}});
        let two = Harness::<Webhook>::start(two).await.expect("it starts");
        for (harness, address) in [(&none, None), (&two, None), (&two, Some("c"))] {
            let fault = harness.channel_send(to(address)).await.expect_err("it goes nowhere");
            assert_eq!(fault.code, FaultCode::Denied, "{fault}");
        }
    });
}

/// An endpoint on a socket that answers everything with that; its address, and how often it was asked.
fn answering(head: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}/", listener.local_addr().expect("an address"));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            let answer = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("it is there");
        }
    });
    (address, asked)
}

#[test]
fn who_takes_nothing_for_a_while_or_for_good_is_left_alone() {
    for (head, code) in [
        ("503 Service Unavailable\r\nretry-after: 600", FaultCode::Busy),
        ("429 Too Many Requests", FaultCode::Busy),
        ("410 Gone", FaultCode::Denied),
    ] {
        let (address, asked) = answering(head);
        let config = json!({"endpoints": {"builds": {"url": address, "secret": SECRET}}});
        block_on(async {
            let webhook = Harness::<Webhook>::start(config).await.expect("it starts");
            for _ in 0..3 {
                let fault = webhook.channel_send(to(None)).await.expect_err("it takes nothing");
                assert_eq!(fault.code, code, "{head}: {fault}");
            }
        });
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{head}");
    }
}
