//! HTTP as the stand-ins speak it: connections that are kept, one request after another.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::calls::Trouble;

pub struct Request {
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// Of a header, by its name in small letters; nothing where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Self>> {
        let (mut line, mut headers) = (String::new(), Vec::new());
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = Self { path, headers, body: Vec::new() };
        request.body = vec![0; request.header("content-length").parse().unwrap_or(0)];
        reader.read_exact(&mut request.body)?;
        Ok(Some(request))
    }
}

/// An answer: its status, its headers, each with its end, and what it says.
pub type Answer = (u16, String, Value);

/// Serves each connection on a thread of its own, until `handle` says that it does not go on.
pub fn serve(
    listener: TcpListener,
    handle: impl Fn(Request, &mut TcpStream) -> std::io::Result<bool> + Send + Sync + 'static,
) {
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = handle.clone();
            thread::spawn(move || talk(stream, &*handle));
        }
    });
}

fn talk(
    mut stream: TcpStream,
    handle: &dyn Fn(Request, &mut TcpStream) -> std::io::Result<bool>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = Request::read(&mut reader)? {
        if !handle(request, &mut stream)? {
            break;
        }
    }
    Ok(())
}

pub fn answer(stream: &mut TcpStream, (status, headers, body): Answer) -> std::io::Result<bool> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    Ok(true)
}

/// Does what was asked, or what goes wrong with it; whether the connection goes on. `refused` is how the service says no.
pub fn perform(
    stream: &mut TcpStream,
    trouble: Option<Trouble>,
    does: impl FnOnce() -> Answer,
    refused: impl FnOnce(Trouble) -> Answer,
) -> std::io::Result<bool> {
    match trouble {
        None => answer(stream, does()),
        Some(Trouble::Cut) => Ok(false),
        Some(Trouble::DoneAndCut) => {
            does();
            Ok(false)
        }
        Some(Trouble::Gateway) => {
            let body = "<html>Bad Gateway</html>";
            write!(stream, "HTTP/1.1 502 Bad Gateway\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
            Ok(true)
        }
        Some(Trouble::Silence) => {
            // Until whoever asked has enough of it.
            stream.set_read_timeout(Some(Duration::from_secs(600)))?;
            let _ = stream.read(&mut [0]);
            Ok(false)
        }
        Some(Trouble::Held) => unreachable!("whoever holds it back knows until when"),
        Some(trouble @ (Trouble::TooMany(_) | Trouble::Refused(..))) => answer(stream, refused(trouble)),
    }
}

/// The parts of a form, by their names; those that are files with their names.
pub fn form(kind: &str, body: &[u8]) -> Value {
    let boundary = kind.split("boundary=").nth(1).expect("a boundary").trim_matches('"');
    let mark = format!("--{boundary}");
    let find = |from: usize, what: &[u8]| {
        body[from..].windows(what.len()).position(|window| window == what).map(|at| from + at)
    };
    let (mut params, mut at) = (json!({}), find(0, mark.as_bytes()).expect("a part"));
    loop {
        at += mark.len();
        if body[at..].starts_with(b"--") {
            return params;
        }
        let head_end = find(at, b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(body[at..head_end].to_vec()).expect("a head in UTF-8");
        let next = find(head_end, format!("\r\n{mark}").as_bytes()).expect("an end");
        let content = &body[head_end + 4..next];
        let field = |name: &str| {
            let value = head.split(&format!("; {name}=\"")).nth(1)?;
            Some(value.split('"').next().unwrap_or_default().to_owned())
        };
        let name = field("name").expect("a name");
        params[name] = match field("filename") {
            Some(file) => json!({"file": file, "bytes": content}),
            None => String::from_utf8_lossy(content).into_owned().into(),
        };
        at = next + 2;
    }
}
