//! A stand-in for a server that sends mails: SMTP over real sockets, every mail kept as it came, and the faults of such servers.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// What goes wrong with a mail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    /// The address is never taken.
    Refused,
    /// The mail is not taken at the moment, which is said behind its content.
    LaterBehind,
    /// The mail is taken, and the connection ends before that is said.
    TakenAndCut,
}

#[derive(Clone, Debug)]
pub struct SentMail {
    pub to: String,
    raw: String,
}

impl SentMail {
    /// One that another server kept.
    pub fn read(to: &str, mail: &str) -> Self {
        Self { to: to.to_owned(), raw: mail.replace("\r\n", "\n").replace('\n', "\r\n") }
    }

    /// The value of a header on one line; empty where it is not there.
    pub fn header(&self, name: &str) -> String {
        let head = self
            .raw
            .split("\r\n\r\n")
            .next()
            .unwrap_or_default()
            .replace("\r\n ", " ")
            .replace("\r\n\t", " ");
        let mut all = head.lines().filter_map(|line| line.split_once(':'));
        all.find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    }

    /// What it says, in the coding that it was sent with.
    pub fn text(&self) -> String {
        let body = self.raw.split_once("\r\n\r\n").map_or("", |(_, body)| body).replace("\r\n", "\n");
        let text = match self.header("content-transfer-encoding").as_str() {
            "quoted-printable" => unfolded(&body),
            "base64" => {
                let bytes = STANDARD.decode(body.replace('\n', "")).expect("base64");
                String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
            }
            _ => body,
        };
        text.trim().to_owned()
    }

    /// What is attached to it: its name as it is written there, and its bytes.
    pub fn file(&self) -> Option<(String, Vec<u8>)> {
        let (_, part) = self.raw.split_once("Content-Disposition: attachment;")?;
        let (head, rest) = part.split_once("\r\n\r\n")?;
        let name =
            head.split("\r\nContent-").next().unwrap_or_default().replace("\r\n", "").trim().to_owned();
        let lines = rest.split("\r\n--").next().unwrap_or_default().replace("\r\n", "");
        Some((name, STANDARD.decode(lines).expect("base64")))
    }
}

/// Quoted-printable of plain letters.
fn unfolded(body: &str) -> String {
    let joined = body.replace("=\n", "");
    let mut bytes = Vec::new();
    let mut rest = joined.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let coded =
            (*first == b'=').then(|| more.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
        match coded.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Clone)]
pub struct Relay {
    pub address: String,
    mails: Arc<Mutex<Vec<SentMail>>>,
    troubles: Arc<Mutex<VecDeque<Trouble>>>,
    /// The same of mails with a file, which go out beside others.
    of_files: Arc<Mutex<VecDeque<Trouble>>>,
    /// Of how many mails one has a trouble of each kind; none with 0.
    faults: Arc<AtomicU64>,
    begun: Arc<AtomicU64>,
}

impl Relay {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let relay = Self {
            address,
            mails: Arc::default(),
            troubles: Arc::default(),
            of_files: Arc::default(),
            faults: Arc::default(),
            begun: Arc::default(),
        };
        let serving = relay.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        relay
    }

    /// What goes wrong with the next mails, one each.
    pub fn trouble(&self, troubles: &[Trouble]) {
        self.troubles.lock().expect("nobody panics").extend(troubles);
    }

    /// What goes wrong behind the next mails that have a file, one each.
    pub fn trouble_files(&self, troubles: &[Trouble]) {
        self.of_files.lock().expect("nobody panics").extend(troubles);
    }

    /// From now on, of so many mails one is not taken at first, and one is taken and the connection cut.
    pub fn faults(&self, one_of: u64) {
        self.faults.store(one_of, Ordering::Relaxed);
    }

    /// What goes wrong with a mail that begins.
    fn next_trouble(&self) -> Option<Trouble> {
        if let Some(trouble) = self.troubles.lock().expect("nobody panics").pop_front() {
            return Some(trouble);
        }
        let (begun, one_of) =
            (self.begun.fetch_add(1, Ordering::Relaxed), self.faults.load(Ordering::Relaxed));
        match begun.checked_rem(one_of)? {
            7 => Some(Trouble::LaterBehind),
            23 => Some(Trouble::TakenAndCut),
            _ => None,
        }
    }

    pub fn mails(&self) -> Vec<SentMail> {
        self.mails.lock().expect("nobody panics").clone()
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines().map_while(Result::ok);
        let mut say = |line: &str| stream.write_all(format!("{line}\r\n").as_bytes()).ok();
        say("220 relay.example ESMTP")?;
        let (mut to, mut trouble) = (String::new(), None);
        while let Some(line) = lines.next() {
            let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "EHLO" => say("250-relay.example\r\n250 8BITMIME")?,
                "MAIL" => say("250 ok")?,
                "RCPT" => {
                    trouble = self.next_trouble();
                    to = line.split_once('<')?.1.split_once('>')?.0.to_owned();
                    match trouble {
                        Some(Trouble::Refused) => say("550 5.1.1 nobody is called so")?,
                        _ => say("250 ok")?,
                    }
                }
                "DATA" => {
                    say("354 go on")?;
                    let mut raw = String::new();
                    for line in lines.by_ref().take_while(|line| line != ".") {
                        raw.push_str(line.strip_prefix('.').unwrap_or(&line));
                        raw.push_str("\r\n");
                    }
                    if raw.contains("Content-Disposition: attachment;") {
                        trouble = self.of_files.lock().expect("nobody panics").pop_front();
                    }
                    if trouble != Some(Trouble::LaterBehind) {
                        self.mails.lock().expect("nobody panics").push(SentMail { to: to.clone(), raw });
                    }
                    match trouble {
                        Some(Trouble::LaterBehind) => say("452 4.3.1 no room at the moment")?,
                        Some(Trouble::TakenAndCut) => return None,
                        _ => say("250 2.0.0 taken")?,
                    }
                }
                "QUIT" => {
                    say("221 bye")?;
                    return None;
                }
                _ => say("250 ok")?,
            }
        }
        None
    }
}
