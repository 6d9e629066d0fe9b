//! What goes over the wire, and what comes back of it: real sockets on loopback.

use std::{
    io::{Read, Seek as _, Write},
    net::{SocketAddr, TcpListener},
    sync::mpsc::{Receiver, channel},
    thread,
};

use drupe_extension_api::{
    Fault, FaultCode,
    wire::{FormPart, OutboundFile, OutwardRequest},
};
use drupe_outward::{BoundValue, FormFile, OpenedFile, OutwardClient};

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

/// For a request without one.
fn no_file(_: String) -> OpenedFile<'static> {
    Box::pin(async { Err(Fault::internal("no part is a file")) })
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
        client.send(&request, no_file, secrets).await
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
        OutwardClient::default().send(&request, no_file, [(None, &hosts[..])].into_iter()).await
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
        let fault = OutwardClient::default()
            .send(&request, no_file, secrets.into_iter())
            .await
            .expect_err("no answer");
        let shown = format!("{fault:?} {fault}");
        assert!(shown.contains("the request failed"), "{shown}");
        assert!(!shown.contains("Tr0mb0ne") && !shown.contains("path-of-it"), "{shown}");
    }
    assert!(got.recv().expect("a request").contains("?key=first-Tr0mb0ne-%26-secret "), "it was filled in");
}

#[tokio::test]
async fn a_file_comes_in_parts_and_one_that_holds_the_secret_does_not() {
    let file = |body: String| -> &'static str {
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        Box::leak((head + &body).into_boxed_str())
    };
    let long = "x".repeat(3 << 20);
    let cut = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 10\r\n\r\nhalf";
    let gone = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 4\r\n\r\ngone";
    let packed =
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nzip!";
    let echo = format!("{}{FIRST}{}", "y".repeat(70_000), "y".repeat(70_000));
    for (answer, expected) in [
        (file(long.clone()), Ok((200, long.len()))),
        (file(String::new()), Ok((200, 0))),
        (gone, Ok((404, 0))),
        (cut, Err(FaultCode::Other)),
        (packed, Err(FaultCode::Invalid)),
        (file(echo), Err(FaultCode::Denied)),
    ] {
        let (to, _) = server(answer);
        let hosts = [to.to_string()];
        let secrets = [(Some(BoundValue { name: "FIRST", value: FIRST }), &hosts[..])];
        let request = OutwardRequest::new("GET", format!("http://{to}/a"));
        let mut taken = 0;
        let take = |part: &[u8]| {
            taken += part.len();
            Ok(())
        };
        let fetched = OutwardClient::default().fetch(&request, secrets.into_iter(), take).await;
        let fetched = fetched.map(|status| (status, taken)).map_err(|fault| fault.code);
        assert_eq!(fetched, expected, "{}", &answer[..60.min(answer.len())]);
    }
    // A type that the request gives no weight is not taken for the file.
    let page = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: Text/HTML; charset=utf-8\r\ncontent-length: 4\r\n\r\nhalt";
    for (accept, taken) in
        [("*/*, text/html ; q=0", false), ("text/html;q=0.5", true), ("image/png;q=0", true)]
    {
        let (to, _) = server(page);
        let hosts = [to.to_string()];
        let secrets = [(Some(BoundValue { name: "FIRST", value: FIRST }), &hosts[..])];
        let request = OutwardRequest::new("GET", format!("http://{to}/a")).header("Accept", accept);
        let mut came = Vec::new();
        let take = |part: &[u8]| {
            came.extend_from_slice(part);
            Ok(())
        };
        let fetched = OutwardClient::default().fetch(&request, secrets.into_iter(), take).await;
        assert_eq!((fetched.is_ok(), came.as_slice()), (taken, if taken { b"halt".as_slice() } else { b"" }));
        if let Err(fault) = fetched {
            assert_eq!(fault.code, FaultCode::Invalid, "{fault}");
            assert!(fault.message.contains("it came as `text/html`"), "{fault}");
        }
    }
    // Whoever takes it may have had enough.
    let (to, _) = server(file(long));
    let hosts = [to.to_string()];
    let secrets = [(Some(BoundValue { name: "FIRST", value: FIRST }), &hosts[..])];
    let request = OutwardRequest::new("GET", format!("http://{to}/a"));
    let enough = |_: &[u8]| Err(Fault::new(FaultCode::Busy, "enough"));
    let fetched = OutwardClient::default().fetch(&request, secrets.into_iter(), enough).await;
    assert_eq!(fetched.expect_err("it is refused").message, "enough");
}

/// A server that tells one request whole, by the length that it says, or nothing of one that ends before that.
fn whole_server() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (to, got) = channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let (mut request, mut byte) = (Vec::new(), [0]);
        while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
            request.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
        // A request that fails early may end before its head is sent.
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        let whole = length.is_some() && stream.read_exact(&mut body).is_ok();
        let _ = stream.write_all(EMPTY.as_bytes());
        to.send(if whole { [request, body].concat() } else { Vec::new() }).expect("the test waits");
    });
    (address, got)
}

#[tokio::test]
async fn a_form_has_its_texts_and_the_bytes_of_its_files() {
    let content: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&content).expect("it is written");
    let send = async |to: SocketAddr, bytes: u64| {
        let open = |delivery: String| -> OpenedFile<'_> {
            assert_eq!(delivery, "d");
            let mut file = file.try_clone().expect("the same file");
            file.rewind().expect("its beginning");
            let (name, media_type) = ("a\"b\r\nx-evil: 1.bin".to_owned(), "application/pdf".to_owned());
            let about = OutboundFile { name, bytes, sha256: String::new(), media_type, data_file: None };
            Box::pin(async { Ok(FormFile { file, about }) })
        };
        let parts = vec![
            FormPart::Text { name: "chat".to_owned(), value: "${FIRST}".to_owned() },
            FormPart::File { name: "document".to_owned(), delivery: "d".to_owned() },
        ];
        let request = OutwardRequest::new("POST", format!("http://{to}/")).form(parts);
        let hosts = [to.to_string()];
        let secrets = [(Some(BoundValue { name: "FIRST", value: FIRST }), &hosts[..])];
        OutwardClient::default().send(&request, open, secrets.into_iter()).await
    };
    let (to, got) = whole_server();
    assert_eq!(send(to, content.len() as u64).await.expect("it is sent").status, 204);
    let sent = got.recv().expect("a request");
    let text = String::from_utf8_lossy(&sent);
    assert!(text.contains("name=\"chat\"\r\n\r\n${FIRST}\r\n"), "nothing is filled into a part");
    assert!(
        text.contains("filename=\"a%22b%0D%0Ax-evil: 1.bin\"\r\ncontent-type: application/pdf"),
        "{}",
        &text[..900]
    );
    assert!(sent.windows(content.len()).any(|window| window == content), "its bytes are there");
    // One that is shorter than it was said to be is no whole request.
    let (to, got) = whole_server();
    assert!(send(to, content.len() as u64 + 1).await.is_err());
    assert_eq!(got.recv().expect("it is known"), Vec::<u8>::new());
}
