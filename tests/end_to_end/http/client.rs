//! A client that says what it is told, well-formed or not.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use serde_json::Value;

use crate::harness::PATIENCE;

/// Where a daemon serves HTTP.
#[derive(Debug, Clone, Copy)]
pub struct Door(SocketAddr);

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// The beginning of an answer, whose body is still to come.
pub struct Open {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
}

impl Door {
    pub fn at(address: SocketAddr) -> Self {
        Self(address)
    }

    pub fn host(&self) -> String {
        self.0.to_string()
    }

    /// Sends a request with these headers and nothing besides, and reads the head of the answer.
    pub fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Open {
        Open::read(BufReader::new(self.begin(method, path, headers, body)))
    }

    /// Sends it, and reads nothing.
    pub fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.0).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        // One that is refused before it is read may find the other side gone.
        let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
        stream
    }

    /// The same, to the end.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let host = self.host();
        let headers = [&[("host", host.as_str()), ("connection", "close")], headers].concat();
        self.open(method, path, &headers, body).whole()
    }

    pub fn get(&self, token: &str, path: &str) -> Answer {
        self.send("GET", path, &[("authorization", &format!("Bearer {token}"))], "")
    }

    pub fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("authorization", &format!("Bearer {token}"))], &body.to_string())
    }
}

impl Open {
    fn read(mut reader: BufReader<TcpStream>) -> Self {
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).expect("it answers");
            line.trim_end().to_owned()
        };
        let first = line();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut headers = Vec::new();
        while let Some((name, value)) = line().split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Self { status: status.unwrap_or_else(|| panic!("no answer: {first:?}")), headers, reader }
    }

    /// The next chunk; none at the end.
    pub fn chunk(&mut self) -> Option<String> {
        let mut size = String::new();
        self.reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok().filter(|size| *size > 0)?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        String::from_utf8(chunk).ok()
    }

    /// The next frame of a stream of events: its id and its data. None, too, where nothing but heartbeats comes.
    pub fn frame(&mut self, rest: &mut String) -> Option<(Option<u64>, Value)> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            while let Some((frame, left)) = rest.split_once("\n\n") {
                let field =
                    |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                let found = field("data:").and_then(|data| serde_json::from_str(data).ok());
                let id = field("id:").and_then(|id| id.parse().ok());
                let left = left.to_owned();
                *rest = left;
                if let Some(data) = found {
                    return Some((id, data));
                }
            }
            rest.push_str(&self.chunk()?);
        }
        None
    }

    fn whole(mut self) -> Answer {
        let chunked =
            self.headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let length = self.headers.iter().find(|(name, _)| name == "content-length");
        let mut body = String::new();
        if let Some(length) = length.and_then(|(_, value)| value.parse().ok()) {
            // Some servers leave the connection open all the same.
            let _ = self.reader.take(length).read_to_string(&mut body);
        } else if chunked {
            while let Some(chunk) = self.chunk() {
                body.push_str(&chunk);
            }
        } else {
            let _ = self.reader.read_to_string(&mut body);
        }
        Answer { status: self.status, headers: self.headers, body }
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
