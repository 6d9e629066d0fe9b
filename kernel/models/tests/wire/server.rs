//! A model server on loopback: each request gets the next act.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};

/// What the server does with a request.
#[derive(Debug, Clone)]
pub enum Act {
    /// Streams these pieces, each on its own, and ends well.
    Stream(Vec<Vec<u8>>),
    /// Streams these pieces and closes the connection in the middle of the answer.
    Cut(Vec<Vec<u8>>),
    /// Streams these pieces and then nothing, for as long as the client stays.
    Stall(Vec<Vec<u8>>),
    /// Reads the request and says nothing.
    Silence,
    /// Closes without a word.
    Hangup,
    /// Breaks the connection off without a word.
    Reset,
    /// A whole response.
    Whole(String),
    /// A line of so many bytes.
    Flood(usize),
    /// This piece again and again, for as long as the client stays.
    Endless(Vec<u8>),
    /// A response with this status, whose body comes a byte at a time and never ends.
    Drip(u16),
}

impl Act {
    pub fn status(status: u16, headers: &str, body: &str) -> Self {
        Self::Whole(format!(
            "HTTP/1.1 {status} Status\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }
}

pub struct Server {
    port: u16,
    shared: Arc<Shared>,
    /// Accepts, and ends with this.
    task: JoinSet<()>,
}

struct Shared {
    acts: Mutex<VecDeque<Act>>,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    closed: Notify,
}

impl Server {
    pub async fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            acts: Mutex::new(acts.into()),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            closed: Notify::new(),
        });
        let own = Arc::clone(&shared);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                own.connections.fetch_add(1, Ordering::SeqCst);
                let own = Arc::clone(&own);
                connections.spawn(async move {
                    serve(socket, &own).await;
                    own.closed.notify_one();
                });
            }
        });
        Self { port, shared, task }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Waits until a connection is over.
    pub async fn closed(&self) {
        self.shared.closed.notified().await;
    }

    /// Listens no more.
    pub async fn stop(mut self) {
        self.task.shutdown().await;
    }
}

/// Answers requests until either side closes.
async fn serve(mut socket: TcpStream, shared: &Shared) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    loop {
        let request = read_request(&mut socket).await?;
        shared.requests.lock().unwrap().push(request);
        let act = shared.acts.lock().unwrap().pop_front()?;
        let (pieces, stays) = match act {
            Act::Hangup => return None,
            Act::Reset => {
                socket.set_zero_linger().ok()?;
                return None;
            }
            Act::Silence => return gone(&mut socket).await,
            Act::Whole(response) => {
                socket.write_all(response.as_bytes()).await.ok()?;
                continue;
            }
            Act::Flood(bytes) => {
                head(&mut socket).await?;
                piece(&mut socket, b"data: ").await?;
                let block = vec![b'x'; 1 << 20];
                for _ in 0..bytes >> 20 {
                    piece(&mut socket, &block).await?;
                }
                return None;
            }
            Act::Endless(bytes) => {
                head(&mut socket).await?;
                loop {
                    piece(&mut socket, &bytes).await?;
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            }
            Act::Drip(status) => {
                let head = format!("HTTP/1.1 {status} Status\r\ntransfer-encoding: chunked\r\n\r\n");
                socket.write_all(head.as_bytes()).await.ok()?;
                loop {
                    piece(&mut socket, b" ").await?;
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            }
            Act::Stream(pieces) => (pieces, Some(true)),
            Act::Stall(pieces) => (pieces, Some(false)),
            Act::Cut(pieces) => (pieces, None),
        };
        head(&mut socket).await?;
        for bytes in pieces {
            piece(&mut socket, &bytes).await?;
        }
        match stays {
            Some(true) => socket.write_all(b"0\r\n\r\n").await.ok()?,
            Some(false) => return gone(&mut socket).await,
            None => return None,
        }
    }
}

async fn head(socket: &mut TcpStream) -> Option<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await.ok()
}

async fn piece(socket: &mut TcpStream, bytes: &[u8]) -> Option<()> {
    let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    socket.write_all(&chunk).await.ok()
}

/// Waits for the client to go.
async fn gone(socket: &mut TcpStream) -> Option<()> {
    let mut rest = [0; 64];
    while socket.read(&mut rest).await.ok()? > 0 {}
    None
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|l| l.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
