//! A stand-in for servers on loopback that take messages by HTTP: real sockets, every request kept as it came, and answers as a test has them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    /// With its query.
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// What a server does with a request.
pub enum Reply {
    /// A status, further headers, a body.
    Says(u16, &'static [(&'static str, &'static str)], String),
    /// The connection ends before a word.
    Cut,
}

type Answers = dyn Fn(&Asked, usize) -> Reply + Send + Sync;

#[derive(Clone)]
pub struct Receiver {
    pub address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    answers: Arc<Answers>,
}

impl Receiver {
    /// Answers each request, of which it is told how many came before.
    pub fn start(answers: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let receiver = Self { address, asked: Arc::default(), answers: Arc::new(answers) };
        let serving = receiver.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        receiver
    }

    /// What came with that method.
    pub fn asked(&self, method: &str) -> Vec<Asked> {
        self.all().iter().filter(|asked| asked.method == method).cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().expect("nobody panics")
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
        while let Some(asked) = read(&mut reader) {
            let before = {
                let mut all = self.all();
                all.push(asked.clone());
                all.len() - 1
            };
            let Reply::Says(status, headers, body) = (self.answers)(&asked, before) else { return };
            let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{more}\r\n", body.len());
            if stream.write_all((head + &body).as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let line = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        (reader.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let first = line(reader)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let next = line(reader)?;
        let Some((name, value)) = next.split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(Ok(0), |(_, n)| n.parse());
    let mut body = vec![0; length.ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { method, path, headers, body: String::from_utf8(body).ok()? })
}
