//! Secrets that neither a model nor an extension ever holds: real daemon, a library in a process of its own, a server on loopback that repeats
//! what it is sent.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::harness::{Daemon, model_server::ModelServer, unique};

const SECRET: &str = "qk-7Tr0mb0ne/Zanz1bar+\"Plimsoll";

/// A server that keeps each request and answers with it: as it is, long, as bytes that are no text, elsewhere, or not at all.
struct Echo {
    address: SocketAddr,
    got: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    fn start(elsewhere: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let got = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&got);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || serve(stream, &kept, elsewhere));
            }
        });
        Self { address, got }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn got(&self) -> Vec<String> {
        self.got.lock().expect("no test panics while it holds this").clone()
    }
}

fn serve(
    mut stream: TcpStream,
    kept: &Mutex<Vec<String>>,
    elsewhere: Option<SocketAddr>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        head += &line;
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request = head.clone() + &String::from_utf8_lossy(&body);
    kept.lock().expect("no test panics while it holds this").push(request.clone());
    let path = head.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
    let (status, more, answer) = match path {
        "/moved" => {
            let to = elsewhere.map(|to| format!("location: http://{to}/\r\n")).unwrap_or_default();
            ("302 Found", to, Vec::new())
        }
        "/bytes" => ("200 OK", String::new(), [SECRET.as_bytes(), &[0xff]].concat()),
        "/long" => ("200 OK", String::new(), vec![b'x'; (1 << 20) + 1]),
        "/packed" => ("200 OK", "content-encoding: gzip\r\n".to_owned(), b"as it is".to_vec()),
        "/silent" => {
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest)?;
            return Ok(());
        }
        _ => {
            let authorization =
                head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default();
            ("200 OK", format!("x-echo: {authorization}\r\n"), request.into_bytes())
        }
    };
    let head =
        format!("HTTP/1.1 {status}\r\n{more}content-length: {}\r\nconnection: close\r\n\r\n", answer.len());
    stream.write_all(&[head.as_bytes(), &answer].concat())
}

struct Scene {
    model: ModelServer,
    daemon: Daemon,
}

fn scene(bound: &Echo, secret: &str) -> Scene {
    let model = ModelServer::obedient();
    let mut daemon = Daemon::home(&(model.config() + "approvals: {preauthorized: all, mode: full-access}\n"));
    let to = json!([{"name": "RHYMES_TOKEN", "hosts": [bound.address.to_string()]}]);
    daemon.plugin_in(
        "process",
        "bound",
        "faulty",
        &format!("config: {{prefix: bound}}\nbound_secrets: {to}\n"),
    );
    daemon.plugin("other", "faulty", "config: {prefix: other}\n");
    daemon.variable("RHYMES_TOKEN", secret);
    daemon.run();
    Scene { model, daemon }
}

impl Scene {
    /// What a tool says to a request.
    fn send(&self, tool: &str, request: &Value) -> String {
        let mut asked = json!({"method": "GET", "timeout_ms": 20_000});
        asked.as_object_mut().expect("an object").extend(request.as_object().expect("an object").clone());
        let turn = self.daemon.turn(&unique(), &format!("{tool} {asked}"));
        turn["content"].as_str().unwrap_or_default().to_owned()
    }
}

/// Whether some file beneath a folder holds the secret.
fn holds(folder: &Path, secret: &[u8]) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => holds(&path, secret),
            Ok(kind) if kind.is_file() => {
                fs::read(&path).is_ok_and(|bytes| bytes.windows(secret.len()).any(|window| window == secret))
            }
            _ => false,
        }
    })
}

#[test]
fn a_bound_secret_reaches_its_host_and_nobody_else_whatever_that_repeats() {
    let echo = Echo::start(None);
    let scene = scene(&echo, SECRET);
    let request = json!({
        "method": "POST",
        "url": echo.url("/v1?key=${RHYMES_TOKEN}"),
        "headers": {"authorization": "Bearer ${RHYMES_TOKEN}", "content-type": "application/json"},
        "body": r#"{"token": "${RHYMES_TOKEN}", "template": "$${name}"}"#,
        "fill": true,
    });
    let said = scene.send("bound_send", &request);
    let got = echo.got().remove(0);
    assert!(got.contains(&format!("authorization: Bearer {SECRET}\r\n")), "{got}\n{said}");
    assert!(got.starts_with("POST /v1?key=qk-7Tr0mb0ne%2FZanz1bar%2B%22Plimsoll HTTP/1.1\r\n"), "{got}");
    let body: Value = serde_json::from_str(got.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    assert_eq!(body, json!({"token": SECRET, "template": "${name}"}));
    // All of it came back, and nothing of it reached the extension.
    assert!(said.starts_with("200 ") && said.contains("x-echo") && said.contains("${name}"), "{said}");
    assert!(said.contains("}eman{$"), "it is told backwards, too: {said}");
    let parts = ["Tr0mb0ne", "Zanz1bar", "Plimsoll", "en0bm0rT", "rab1znaZ", "llosmilP"];
    let told =
        scene.model.requests().iter().map(Value::to_string).collect::<String>() + &said + &scene.daemon.log();
    assert!(parts.iter().all(|part| !told.contains(part)), "{told}");
    for part in parts {
        assert!(!holds(scene.daemon.path(), part.as_bytes()), "{part} is kept");
    }
    assert!(holds(scene.daemon.path(), b"x-echo"), "the test would see it");
    // A text that somebody had the tool send does not become a way to it.
    let asked = json!({"url": echo.url("/?q=${RHYMES_TOKEN}"), "body": "${RHYMES_TOKEN}"});
    scene.send("bound_send", &asked);
    let got = echo.got().pop().expect("a request");
    assert!(got.starts_with("GET /?q=${RHYMES_TOKEN} ") && got.ends_with("${RHYMES_TOKEN}"), "{got}");
}

#[test]
fn nothing_is_sent_to_a_host_that_no_secret_is_bound_to_and_no_redirect_carries_one_there() {
    let stranger = Echo::start(None);
    let echo = Echo::start(Some(stranger.address));
    let scene = scene(&echo, SECRET);
    let with = |url: String| json!({"url": url, "headers": {"authorization": "${RHYMES_TOKEN}"}});
    let port = echo.address.port();
    for (tool, request, why) in [
        ("bound_send", with(stranger.url("/")), "no secret is bound to"),
        ("bound_send", with(format!("http://localhost:{port}/")), "no secret is bound to `localhost"),
        ("bound_send", with(format!("http://127.0.0.1:{port}@{}/", stranger.address)), "has a user"),
        ("bound_send", with("http://example.org/".to_owned()), "begins with https://"),
        ("bound_send", with(echo.url("/${RHYMES_TOKEN}")), "names a secret before the query"),
        (
            "bound_send",
            json!({"url": echo.url("/"), "body": "${HOME}", "fill": true}),
            "no secret `HOME` is bound",
        ),
        (
            "bound_send",
            json!({"url": echo.url("/"), "headers": {"host": "x.example"}}),
            "the daemon's to write",
        ),
        ("other_send", with(echo.url("/")), "is for extensions whose manifest has `bound_secrets`"),
    ] {
        let said = scene.send(tool, &request);
        assert!(said.contains(why), "{request}: {said}");
    }
    assert!(echo.got().is_empty() && stranger.got().is_empty(), "{:?}", stranger.got());
    let moved = scene.send("bound_send", &with(echo.url("/moved")));
    assert!(moved.starts_with("302 ") && stranger.got().is_empty(), "{moved}");
    for (path, timeout_ms, why) in [
        ("/bytes", 20_000, "no text in UTF-8"),
        ("/long", 20_000, "longer than 1048576 bytes"),
        ("/packed", 20_000, "is compressed"),
        ("/silent", 300, "no whole answer came within 300 ms"),
    ] {
        let said = scene.send("bound_send", &json!({"url": echo.url(path), "timeout_ms": timeout_ms}));
        assert!(said.contains(why), "{path}: {said}");
    }
}

/// Requests that a server has taken and not answered: how many there are, how many there ever were, and whether it may answer.
#[derive(Default)]
struct Held {
    state: Mutex<(usize, usize, bool)>,
    changed: Condvar,
}

impl Held {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        let mut state = self.state.lock().expect("no test panics while it holds this");
        state.0 += 1;
        state.1 = state.1.max(state.0);
        self.changed.notify_all();
        let mut state = self
            .changed
            .wait_while(state, |(_, _, open)| !*open)
            .expect("no test panics while it holds this");
        state.0 -= 1;
        drop(state);
        reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
    }

    /// Waits until there are so many; how many there ever were.
    fn until(&self, wanted: usize, within: Duration) -> usize {
        let state = self.state.lock().expect("no test panics while it holds this");
        let waited = self.changed.wait_timeout_while(state, within, |(_, most, _)| *most < wanted);
        waited.expect("no test panics while it holds this").0.1
    }

    fn answer(&self) {
        self.state.lock().expect("no test panics while it holds this").2 = true;
        self.changed.notify_all();
    }
}

#[test]
fn eight_requests_of_an_extension_are_under_way_at_a_time_and_further_ones_wait() {
    const AT_ONCE: usize = 8;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let held = Arc::<Held>::default();
    let serving = Arc::clone(&held);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serving = Arc::clone(&serving);
            thread::spawn(move || serving.serve(stream));
        }
    });
    let scene = scene(&Echo { address, got: Arc::default() }, SECRET);
    let request = json!({"method": "GET", "url": format!("http://{address}/"), "timeout_ms": 60_000});
    let sent: Vec<String> =
        (0..=AT_ONCE).map(|_| scene.daemon.submit(&unique(), &format!("bound_send {request}"))).collect();
    assert_eq!(held.until(AT_ONCE, Duration::from_secs(60)), AT_ONCE, "{}", scene.daemon.log());
    // One that does not wait is here in a fraction of this.
    assert_eq!(held.until(AT_ONCE + 1, Duration::from_secs(2)), AT_ONCE);
    held.answer();
    for turn in sent {
        let said = scene.daemon.wait(&turn);
        assert!(said["content"].as_str().is_some_and(|said| said.starts_with("204 ")), "{said}");
    }
}

#[test]
fn a_secret_that_could_not_be_taken_out_of_answers_keeps_its_extension_out() {
    let echo = Echo::start(None);
    let scene = scene(&echo, "short");
    let shown = scene.daemon.client().ask("extensions.show", json!({"id": "bound"})).expect("it is shown");
    assert!(shown.to_string().contains("`RHYMES_TOKEN` has fewer than 8 bytes"), "{shown}");
}
