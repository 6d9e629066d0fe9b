use std::{
    io::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use drupe_extension_api::{FaultCode, testing::block_on};
use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use serde_json::json;

use super::support::{Server, answer, fetch, page, web};

#[test]
fn a_body_is_bounded_before_and_after_it_is_decompressed() {
    let server = Server::with_streams(|request, stream| {
        let big = vec![b'x'; 3 << 20];
        let bytes = match request.split(' ').nth(1).unwrap_or_default() {
            "/said" => b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 999999999999\r\n\r\n"
                .to_vec(),
            "/chunks" => {
                let mut bytes =
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
                        .to_vec();
                for part in big.chunks(1 << 16) {
                    bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                    bytes.extend_from_slice(part);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes
            }
            "/bomb" => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(&vec![0; 8 << 20]).expect("memory");
                answer(
                    "200 OK",
                    "content-type: text/plain\ncontent-encoding: gzip",
                    encoder.finish().expect("memory"),
                )
            }
            "/twice" => {
                let mut inner = GzEncoder::new(Vec::new(), Compression::best());
                inner.write_all(&vec![0; 8 << 20]).expect("memory");
                let mut outer = GzEncoder::new(Vec::new(), Compression::best());
                outer.write_all(&inner.finish().expect("memory")).expect("memory");
                answer(
                    "200 OK",
                    "content-type: text/plain\ncontent-encoding: gzip, gzip",
                    outer.finish().expect("memory"),
                )
            }
            _ => answer("200 OK", "content-type: text/plain\ncontent-encoding: br", "x"),
        };
        let _ = stream.write_all(&bytes);
    });
    let web = web(json!({"max_body_kb": 1024}));
    for path in ["/said", "/chunks", "/bomb", "/twice"] {
        let fault = fetch(&web, &server.url(path)).expect_err(path);
        assert!(fault.message.contains("longer than the limit of 1024 KiB"), "{path}: {fault}");
    }
    let fault = fetch(&web, &server.url("/brotli")).expect_err("brotli");
    assert!(fault.code == FaultCode::Unsupported && fault.message.contains("`br`"), "{fault}");
}

#[test]
fn what_is_compressed_as_servers_do_is_read() {
    let server = Server::start(|request| {
        let text = b"a text that was compressed";
        let (name, bytes) = match request.split(' ').nth(1).unwrap_or_default() {
            "/gzip" => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(text).expect("memory");
                ("gzip", encoder.finish())
            }
            "/zlib" => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(text).expect("memory");
                ("deflate", encoder.finish())
            }
            _ => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(text).expect("memory");
                ("deflate", encoder.finish())
            }
        };
        answer(
            "200 OK",
            &format!("content-type: text/plain\ncontent-encoding: {name}"),
            bytes.expect("memory"),
        )
    });
    let web = web(json!({}));
    for path in ["/gzip", "/zlib", "/raw"] {
        let text = fetch(&web, &server.url(path)).expect(path);
        assert!(text.ends_with("\n\na text that was compressed"), "{text}");
    }
}

#[test]
fn a_host_that_never_ends_is_left_in_time_and_one_without_end_of_head_too() {
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let server = Server::with_streams(move |request, stream| {
        let start: &[u8] = match request.split(' ').nth(1).unwrap_or_default() {
            "/head" => b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n",
            "/body" => b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nx",
            _ => b"",
        };
        let _ = stream.write_all(start);
        let _ = held.lock().expect("a lock").recv();
    });
    let web = web(json!({"timeout_ms": 200}));
    for path in ["/nothing", "/head", "/body"] {
        let began = Instant::now();
        let fault = fetch(&web, &server.url(path)).expect_err(path);
        assert_eq!(fault.code, FaultCode::Timeout, "{path}: {fault}");
        assert!(began.elapsed() < Duration::from_secs(5), "{path} took {:?}", began.elapsed());
        let _ = hold.send(());
    }
}

#[test]
fn a_head_without_end_is_refused() {
    let server = Server::with_streams(|request, stream| {
        let header = match request.split(' ').nth(1).unwrap_or_default() {
            "/many" => "a: b\r\n".repeat(10_000),
            _ => format!("a: {}\r\n", "b".repeat(1 << 20)),
        };
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{header}\r\n").as_bytes());
    });
    let web = web(json!({}));
    for path in ["/many", "/long"] {
        let fault = fetch(&web, &server.url(path)).expect_err(path);
        assert!(fault.message.contains("the exchange with"), "{path}: {fault}");
    }
}

#[test]
fn a_host_is_asked_for_one_thing_at_a_time() {
    let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (counted, highest) = (Arc::clone(&now), Arc::clone(&most));
    let server = Server::start(move |_| {
        highest.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        counted.fetch_sub(1, Ordering::SeqCst);
        page("<p>x")
    });
    let web = Arc::new(web(json!({"gap_ms": 1})));
    let calls: Vec<_> = (0..6)
        .map(|number| {
            let (web, url) = (Arc::clone(&web), server.url(&format!("/{number}")));
            thread::spawn(move || fetch(&web, &url))
        })
        .collect();
    for call in calls {
        call.join().expect("no panic").expect("a page");
    }
    assert_eq!((server.connections(), most.load(Ordering::SeqCst)), (6, 1));
}

#[test]
fn between_two_requests_to_a_host_there_is_a_pause() {
    let asked = Arc::<Mutex<Vec<Instant>>>::default();
    let kept = Arc::clone(&asked);
    let server = Server::start(move |_| {
        kept.lock().expect("a lock").push(Instant::now());
        page("<p>x")
    });
    let web = web(json!({"gap_ms": 150}));
    for path in ["/1", "/2", "/3"] {
        fetch(&web, &server.url(path)).expect("a page");
    }
    let asked = asked.lock().expect("a lock");
    assert!(asked.windows(2).all(|two| two[1] - two[0] >= Duration::from_millis(150)), "{asked:?}");
}

#[test]
fn a_host_that_asks_to_be_left_alone_is_not_asked() {
    let server = Server::start(|_| answer("429 Too Many Requests", "retry-after: 120", ""));
    let web = web(json!({}));
    let fault = fetch(&web, &server.url("/")).expect_err("it is busy");
    assert!(fault.code == FaultCode::Busy && fault.message.contains("left alone for 120 s"), "{fault}");
    let fault = fetch(&web, &server.url("/other")).expect_err("it is not asked");
    assert!(fault.code == FaultCode::Busy && fault.message.contains("it was not asked"), "{fault}");
    assert_eq!(server.connections(), 1);
}

#[test]
fn what_was_read_is_kept_for_a_while_and_that_is_told() {
    let server = Server::start(|_| page("<p>One text."));
    let keeps = web(json!({}));
    let fresh = fetch(&keeps, &server.url("/#top")).expect("a page");
    let kept = fetch(&keeps, &server.url("/#bottom")).expect("a page");
    assert!(!fresh.contains("kept since") && kept.contains("kept since for 0 s"), "{fresh}\n{kept}");
    assert_eq!(server.connections(), 1);
    let forgets = web(json!({"cache_minutes": 0}));
    for _ in 0..2 {
        fetch(&forgets, &server.url("/")).expect("a page");
    }
    assert_eq!(server.connections(), 3);
}

#[test]
fn a_long_text_is_read_in_pages_with_one_request() {
    let lines: String = (0..1000).map(|number| format!("line {number}\n")).collect();
    let server = Server::start(move |_| answer("200 OK", "content-type: text/plain", &lines));
    let web = web(json!({"page_bytes": 4096}));
    let read = |page: usize| block_on(web.call("web_fetch", json!({"url": server.url("/"), "page": page})));
    let first = read(1).expect("a page");
    assert!(
        first.contains("Page: 1 of 3") && first.contains("\n\nline 0\n") && first.len() < 4096 + 512,
        "{first}"
    );
    let last = read(3).expect("a page");
    assert!(last.contains("Page: 3 of 3") && last.ends_with("line 999"), "{last}");
    let fault = read(4).expect_err("there are three");
    assert!(fault.message.contains("there is no page 4: the text has 3"), "{fault}");
    assert_eq!(server.connections(), 1);
}
