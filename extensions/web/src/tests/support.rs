//! A server that says what a test wants, and a network in which names are the test's.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream as Blocking},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use drupe_extension_api::{
    Fault,
    testing::{Harness, block_on},
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use url::Url;

use crate::{
    Web, address,
    fetch::{Fetched, Fetcher},
    hosts::Hosts,
    network::{Answer, Dialer, Network},
    reach::AllowList,
};

/// A server of HTTP on loopback, which closes each connection after its answer.
pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Answers as the function of the request, head and body, says.
    pub fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::with_streams(move |request, stream| {
            let _ = stream.write_all(&answer(request));
        })
    }

    /// The function writes the answer itself.
    pub fn with_streams(answer: impl Fn(&str, &mut Blocking) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (requests, connections) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
        let (kept, counted) = (Arc::clone(&requests), Arc::clone(&connections));
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                thread::spawn(move || {
                    if let Some(request) = request(&stream) {
                        kept.lock().expect("a lock").push(request.clone());
                        answer(&request, &mut stream);
                    }
                });
            }
        });
        Self { address, requests, connections }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("a lock").clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn request(stream: &Blocking) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8_lossy(&body))
}

/// An answer with a status, headers of a line each, and a body.
pub fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let headers: String = headers.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    let head =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn page(body: impl AsRef<[u8]>) -> Vec<u8> {
    answer("200 OK", "content-type: text/html; charset=utf-8", body)
}

/// Names with the answers that they are given one after another, the last one for ever; and where addresses are.
#[derive(Default)]
pub struct Fake {
    names: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    places: Mutex<HashMap<SocketAddr, SocketAddr>>,
    resolved: Mutex<Vec<String>>,
    connected: Mutex<Vec<SocketAddr>>,
}

impl Fake {
    pub fn name(self: &Arc<Self>, name: &str, answers: &[&[&str]]) -> Arc<Self> {
        let parse = |list: &&[&str]| list.iter().map(|text| text.parse().expect(text)).collect();
        self.names.lock().expect("a lock").insert(name.to_owned(), answers.iter().map(parse).collect());
        Arc::clone(self)
    }

    /// Has connections to an address go to a server of the test.
    pub fn place(self: &Arc<Self>, address: &str, server: &Server) -> Arc<Self> {
        self.at(address, server.address)
    }

    pub fn at(self: &Arc<Self>, address: &str, place: SocketAddr) -> Arc<Self> {
        self.places.lock().expect("a lock").insert(address.parse().expect(address), place);
        Arc::clone(self)
    }

    pub fn resolved(&self) -> Vec<String> {
        self.resolved.lock().expect("a lock").clone()
    }

    pub fn connected(&self) -> Vec<String> {
        self.connected.lock().expect("a lock").iter().map(ToString::to_string).collect()
    }
}

impl Network for Fake {
    fn resolve<'a>(&'a self, name: &'a str) -> Answer<'a, Vec<IpAddr>> {
        self.resolved.lock().expect("a lock").push(name.to_owned());
        let mut names = self.names.lock().expect("a lock");
        let found = names.get_mut(name).map(|answers| match answers.len() {
            1 => answers[0].clone(),
            _ => answers.remove(0),
        });
        Box::pin(async move { found.ok_or_else(|| std::io::Error::other("no such name")) })
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, TcpStream> {
        self.connected.lock().expect("a lock").push(to);
        let place = self.places.lock().expect("a lock").get(&to).copied();
        Box::pin(async move {
            TcpStream::connect(place.ok_or_else(|| std::io::Error::other("nobody is there"))?).await
        })
    }
}

/// A fetcher over a fake network, with small bounds.
pub fn fetcher(fake: &Arc<Fake>, allow: &[&str]) -> Fetcher {
    let allow: Vec<String> = allow.iter().map(ToString::to_string).collect();
    Fetcher {
        dialer: Dialer::new(
            Arc::clone(fake) as Arc<dyn Network>,
            AllowList::new(&allow).expect("a list"),
            Vec::new(),
        ),
        hosts: Hosts::new(Duration::ZERO),
        time: Duration::from_secs(20),
        body_bytes: 64 << 10,
    }
}

/// Fetches as the tool does, without reading.
pub fn get(fetcher: &Fetcher, url: &str) -> Result<Fetched, Fault> {
    let url: Url = address::parse(url, fetcher.dialer.allowed())?;
    run(fetcher.page(&url))
}

pub fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// The extension, which may read from this machine and waits for nobody between two requests.
pub fn web(config: Value) -> Harness<Web> {
    try_web(config).expect("it starts")
}

pub fn try_web(mut config: Value) -> Result<Harness<Web>, Fault> {
    for (key, value) in [("allow", json!(["127.0.0.1"])), ("gap_ms", json!(0))] {
        if config.get(key).is_none() {
            config[key] = value;
        }
    }
    block_on(Harness::setup().id("web").config(config).start())
}

pub fn fetch(web: &Harness<Web>, url: &str) -> Result<String, Fault> {
    block_on(web.call("web_fetch", json!({"url": url})))
}
