//! What goes over the wire, and what comes back of it: real sockets on loopback.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::mpsc::{Receiver, channel},
    thread,
};

use drupe_extension_api::{FaultCode, wire::OutwardRequest};
use drupe_outward::{BoundValue, OutwardClient};

const FIRST: &str = "first-Tr0mb0ne-&-secret";
const SECOND: &str = "second-Plimsoll-&-secret";

/// A server that keeps the head of each request, and answers or hangs up.
fn server(answer: &'static str) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (to, got) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            // Whoever asked may have ended.
            let _ = to.send(String::from_utf8_lossy(&head).into_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, got)
}

const EMPTY: &str = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_secret_goes_to_its_own_hosts_and_not_to_those_of_another() {
    let ((one, got_one), (two, got_two)) = (server(EMPTY), server(EMPTY));
    let hosts = [[one.to_string()], [two.to_string()]];
    let client = OutwardClient::default();
    let send = async |to: SocketAddr, name: &str| {
        let request =
            OutwardRequest::new("GET", format!("http://{to}/")).header("x-key", format!("${{{name}}}"));
        let secrets = [("FIRST", FIRST), ("SECOND", SECOND)].into_iter().zip(&hosts);
        let secrets = secrets.map(|((name, value), hosts)| (Some(BoundValue { name, value }), &hosts[..]));
        client.send(&request, secrets).await
    };
    for (to, name) in [(one, "SECOND"), (two, "FIRST")] {
        let fault = send(to, name).await.expect_err("it is bound to the other host");
        assert_eq!(fault.code, FaultCode::Invalid, "{fault}");
        assert!(fault.message.contains(&format!("no secret `{name}` is bound to the host")), "{fault}");
        assert!(!format!("{fault:?}").contains("-secret"), "{fault:?}");
    }
    assert!(got_one.try_recv().is_err() && got_two.try_recv().is_err(), "nothing was sent");
    for (to, got, name, value) in [(one, &got_one, "FIRST", FIRST), (two, &got_two, "SECOND", SECOND)] {
        assert_eq!(send(to, name).await.expect("it is bound").status, 204);
        let head = got.recv().expect("a request");
        assert!(head.contains(&format!("x-key: {value}\r\n")), "{head}");
    }
}

#[tokio::test]
async fn where_a_secret_without_a_value_is_bound_requests_go_that_name_none() {
    let (to, got) = server(EMPTY);
    let hosts = [to.to_string()];
    let send = async |request: OutwardRequest| {
        OutwardClient::default().send(&request, [(None, &hosts[..])].into_iter()).await
    };
    let request = OutwardRequest::new("GET", format!("http://{to}/"));
    let fault = send(request.clone().header("x-key", "${FIRST}")).await.expect_err("it has no value");
    assert!(fault.message.contains("no secret `FIRST` is bound to the host"), "{fault}");
    assert!(got.try_recv().is_err(), "nothing was sent");
    assert_eq!(send(request).await.expect("it names none").status, 204);
    let elsewhere = OutwardRequest::new("GET", "http://127.0.0.1:1/");
    assert_eq!(send(elsewhere).await.expect_err("nothing is bound there").code, FaultCode::Denied);
}

#[tokio::test]
async fn what_becomes_of_a_request_is_told_without_its_address() {
    let (dropped, got) = server("");
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port");
    for to in [dropped, nobody] {
        let hosts = [to.to_string()];
        let request =
            OutwardRequest::new("GET", format!("http://{to}/path-of-it?key=${{FIRST}}")).filling_query();
        let secrets = [(Some(BoundValue { name: "FIRST", value: FIRST }), &hosts[..])];
        let fault =
            OutwardClient::default().send(&request, secrets.into_iter()).await.expect_err("no answer");
        let shown = format!("{fault:?} {fault}");
        assert!(shown.contains("the request failed"), "{shown}");
        assert!(!shown.contains("Tr0mb0ne") && !shown.contains("path-of-it"), "{shown}");
    }
    assert!(got.recv().expect("a request").contains("?key=first-Tr0mb0ne-%26-secret "), "it was filled in");
}
