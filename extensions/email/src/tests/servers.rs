//! Stand-ins for the two servers: IMAP and SMTP as far as the extension speaks them, over real sockets, with the faults of servers.

#![expect(
    clippy::disallowed_methods,
    reason = "servers are no part of the extension, whose tasks end with it"
)]

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
};
use tokio_rustls::TlsAcceptor;

use crate::network::ServerStream;

/// A certificate of this machine, and what has its key.
pub struct Authority {
    pub pem: String,
    acceptor: TlsAcceptor,
}

impl Authority {
    pub fn new() -> Self {
        let made = generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        let CertifiedKey { cert, signing_key } = made;
        let lines = STANDARD.encode(cert.der());
        let pem = format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n");
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a certificate");
        Self { pem, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

async fn encrypted(stream: TcpStream, acceptor: Option<&TlsAcceptor>) -> Option<Box<dyn ServerStream>> {
    match acceptor {
        Some(acceptor) => Some(Box::new(acceptor.accept(stream).await.ok()?)),
        None => Some(Box::new(stream)),
    }
}

/// Lines of one connection.
struct Lines<S>(BufStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Lines<S> {
    async fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.0.read_line(&mut line).await.ok()?;
        (count > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    async fn say(&mut self, line: &str) -> Option<()> {
        self.write(format!("{line}\r\n").as_bytes()).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Option<()> {
        self.0.write_all(bytes).await.ok()?;
        self.0.flush().await.ok()
    }
}

/// A mailbox, by the numbers of its mails.
#[derive(Clone)]
pub struct Mailbox(Arc<MailboxState>);

struct MailboxState {
    address: String,
    mails: Mutex<BTreeMap<u32, (Vec<u8>, String)>>,
    commands: Mutex<Vec<String>>,
    connections: AtomicUsize,
    came: Notify,
    /// Whether connections that are open get no answer, and whether the server can wait for mails.
    hangs: AtomicBool,
    waits: AtomicBool,
    /// Counts up when all connections end.
    cut: watch::Sender<u32>,
}

impl Mailbox {
    pub async fn start(authority: Option<&Authority>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let place = listener.local_addr().expect("an address");
        let acceptor = authority.map(|authority| authority.acceptor.clone());
        let scheme = if acceptor.is_some() { "imaps" } else { "imap+plain" };
        let mailbox = Self(Arc::new(MailboxState {
            address: format!("{scheme}://{place}"),
            mails: Mutex::default(),
            commands: Mutex::default(),
            connections: AtomicUsize::new(0),
            came: Notify::new(),
            hangs: AtomicBool::new(false),
            waits: AtomicBool::new(true),
            cut: watch::Sender::new(0),
        }));
        let serving = mailbox.clone();
        drop(tokio::task::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, acceptor) = (serving.clone(), acceptor.clone());
                drop(tokio::task::spawn(async move {
                    let mut cut = serving.0.cut.subscribe();
                    let connection = async {
                        let stream = encrypted(stream, acceptor.as_ref()).await?;
                        serving.0.connections.fetch_add(1, Ordering::Relaxed);
                        serving.serve(Lines(BufStream::new(stream))).await
                    };
                    tokio::select! {
                        _ = connection => {}
                        _ = cut.changed() => {}
                    }
                }));
            }
        }));
        mailbox
    }

    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// A mail comes in.
    pub fn put(&self, uid: u32, mail: Vec<u8>) {
        self.mails().insert(uid, (mail, String::new()));
        self.0.came.notify_waiters();
    }

    pub fn marks(&self, uid: u32) -> String {
        self.mails().get(&uid).map(|(_, marks)| marks.clone()).unwrap_or_default()
    }

    /// What was asked, without what comes from people.
    pub fn commands(&self) -> Vec<String> {
        self.0.commands.lock().expect("nobody panics").clone()
    }

    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// Nothing is answered any more over the connections that are open.
    pub fn hang(&self) {
        self.0.hangs.store(true, Ordering::Relaxed);
    }

    pub fn forget_idle(&self) {
        self.0.waits.store(false, Ordering::Relaxed);
    }

    pub fn cut(&self) {
        self.0.cut.send_modify(|count| *count += 1);
    }

    fn mails(&self) -> MutexGuard<'_, BTreeMap<u32, (Vec<u8>, String)>> {
        self.0.mails.lock().expect("nobody panics")
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut lines: Lines<S>) -> Option<()> {
        // A connection that is opened while others hang is a new one.
        self.0.hangs.store(false, Ordering::Relaxed);
        lines.say("* OK hello").await?;
        loop {
            let line = lines.next().await?;
            if self.0.hangs.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            let (tag, command) = line.split_once(' ')?;
            self.0
                .commands
                .lock()
                .expect("nobody panics")
                .push(command.split(" \"").next().unwrap_or_default().to_owned());
            let words: Vec<_> = command.split(' ').collect();
            match words[..] {
                ["LOGIN", ..] => {
                    let is_right = command == r#"LOGIN "plum@example.net" "pass \"word\\""#;
                    lines.say(&format!("{tag} {}", if is_right { "OK in" } else { "NO not so" })).await?;
                }
                ["CAPABILITY"] => {
                    let idle = if self.0.waits.load(Ordering::Relaxed) { " IDLE" } else { "" };
                    lines.say(&format!("* CAPABILITY IMAP4rev1{idle}\r\n{tag} OK done")).await?;
                }
                ["SELECT", ..] => {
                    let numbers: Vec<u32> = self.mails().keys().copied().collect();
                    let (count, next) = (numbers.len(), numbers.last().map_or(1, |uid| uid + 1));
                    lines.say(&format!("* {count} EXISTS\r\n* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT {next}] x\r\n{tag} OK [READ-WRITE] open")).await?;
                }
                ["UID", "SEARCH", ..] => {
                    let first: u32 = words.last()?.split(':').next()?.parse().ok()?;
                    let mut found: Vec<u32> =
                        self.mails().keys().copied().filter(|uid| *uid >= first).collect();
                    if found.is_empty() {
                        // As `N:*` has it.
                        found.extend(self.mails().keys().last());
                    }
                    let found: String = found.iter().map(|uid| format!(" {uid}")).collect();
                    lines.say(&format!("* SEARCH{found}\r\n{tag} OK done")).await?;
                }
                ["UID", "FETCH", uid, ..] => {
                    let (mail, _) = self.mails().get(&uid.parse().ok()?)?.clone();
                    match &mail[..] {
                        b"REFUSE" => lines.say(&format!("{tag} NO it is damaged")).await?,
                        b"CUT" => return None,
                        b"GARBAGE" => lines.say("* 1 FETCH ((((\r\n* nonsense").await?,
                        mail => {
                            let size = mail.len();
                            let (from, most) =
                                command.split_once("[]<")?.1.split_once('>')?.0.split_once('.')?;
                            let (from, most): (usize, usize) = (from.parse().ok()?, most.parse().ok()?);
                            let piece = mail.get(from..size.min(from + most)).unwrap_or_default();
                            let count = piece.len();
                            lines.say(&format!("* 1 FETCH (UID {uid} RFC822.SIZE {size} INTERNALDATE \"27-Nov-2026 10:00:00 +0000\" BODY[]<{from}> {{{count}}}")).await?;
                            lines.write(piece).await?;
                            lines.say(&format!(")\r\n{tag} OK done")).await?;
                        }
                    }
                }
                ["UID", "STORE", uid, ..] => {
                    let marks = command.split_once('(')?.1.split_once(')')?.0.to_owned();
                    self.mails().get_mut(&uid.parse().ok()?)?.1 = marks;
                    lines.say(&format!("{tag} OK done")).await?;
                }
                ["IDLE"] => {
                    lines.say("+ waiting").await?;
                    self.idle(&mut lines, tag).await?;
                }
                _ => lines.say(&format!("{tag} OK done")).await?,
            }
        }
    }

    async fn idle<S: AsyncRead + AsyncWrite + Unpin>(&self, lines: &mut Lines<S>, tag: &str) -> Option<()> {
        loop {
            let came = self.0.came.notified();
            let heard = tokio::select! {
                heard = lines.next() => Some(heard?),
                () = came => None,
            };
            if self.0.hangs.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            match heard {
                Some(_) => return lines.say(&format!("{tag} OK done")).await,
                None => {
                    let count = self.mails().len();
                    lines.say(&format!("* {count} EXISTS")).await?;
                }
            }
        }
    }
}

/// What goes wrong with the next mail, at a command or at the `.` behind its content.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    Says(&'static str, &'static str),
    Cut(&'static str),
    Hangs(&'static str),
}

/// A server that sends.
#[derive(Clone)]
pub struct Letterbox(Arc<LetterboxState>);

struct LetterboxState {
    address: String,
    mails: Mutex<Vec<String>>,
    signed_in: AtomicUsize,
    troubles: Mutex<VecDeque<Trouble>>,
}

impl Letterbox {
    /// With encryption from the first byte, or behind a command that is there where `authority` is.
    pub async fn start(authority: Option<&Authority>, by_command: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let place = listener.local_addr().expect("an address");
        let acceptor = authority.map(|authority| authority.acceptor.clone());
        let scheme = match (by_command, &acceptor) {
            (true, _) => "smtp+starttls",
            (false, Some(_)) => "smtps",
            (false, None) => "smtp+plain",
        };
        let letterbox = Self(Arc::new(LetterboxState {
            address: format!("{scheme}://{place}"),
            mails: Mutex::default(),
            signed_in: AtomicUsize::new(0),
            troubles: Mutex::default(),
        }));
        let serving = letterbox.clone();
        drop(tokio::task::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, acceptor) = (serving.clone(), acceptor.clone());
                drop(tokio::task::spawn(async move {
                    if !by_command {
                        let stream = encrypted(stream, acceptor.as_ref()).await?;
                        return serving.serve(Lines(BufStream::new(stream)), true).await;
                    }
                    let mut lines = Lines(BufStream::new(stream));
                    lines.say("220 hello").await?;
                    lines.next().await?;
                    let offered = if acceptor.is_some() {
                        "250-here\r\n250 STARTTLS"
                    } else {
                        "250-here\r\n250 AUTH PLAIN LOGIN"
                    };
                    lines.say(offered).await?;
                    let line = lines.next().await?;
                    let (Some(acceptor), "STARTTLS") = (acceptor, line.as_str()) else { return None };
                    lines.say("220 go on").await?;
                    let stream = acceptor.accept(lines.0.into_inner()).await.ok()?;
                    serving.serve(Lines(BufStream::new(stream)), false).await
                }));
            }
        }));
        letterbox
    }

    pub fn address(&self) -> &str {
        &self.0.address
    }

    pub fn mails(&self) -> Vec<String> {
        self.0.mails.lock().expect("nobody panics").clone()
    }

    pub fn signed_in(&self) -> usize {
        self.0.signed_in.load(Ordering::Relaxed)
    }

    pub fn trouble(&self, trouble: Trouble) {
        self.0.troubles.lock().expect("nobody panics").push_back(trouble);
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut lines: Lines<S>,
        greets: bool,
    ) -> Option<()> {
        if greets {
            lines.say("220 hello").await?;
        }
        let trouble = self.0.troubles.lock().expect("nobody panics").pop_front();
        loop {
            let line = lines.next().await?;
            let verb = line.split([' ', ':']).next().unwrap_or_default().to_owned();
            let usual = match verb.as_str() {
                "EHLO" => "250-here\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN",
                "AUTH" => {
                    self.0.signed_in.fetch_add(1, Ordering::Relaxed);
                    "235 in"
                }
                "DATA" => "354 go on",
                "QUIT" => "221 bye",
                _ => "250 ok",
            };
            self.answer(&mut lines, &verb, usual, trouble).await?;
            let has_begun = !matches!(trouble, Some(Trouble::Says("DATA", _)));
            if verb == "DATA" && has_begun {
                let mut mail = String::new();
                loop {
                    match lines.next().await?.as_str() {
                        "." => break,
                        line => mail.push_str(&format!("{}\r\n", line.strip_prefix('.').unwrap_or(line))),
                    }
                }
                // What is refused is not kept.
                if !matches!(trouble, Some(Trouble::Says(".", _))) {
                    self.0.mails.lock().expect("nobody panics").push(mail);
                }
                self.answer(&mut lines, ".", "250 taken", trouble).await?;
            }
        }
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        lines: &mut Lines<S>,
        at: &str,
        usual: &str,
        trouble: Option<Trouble>,
    ) -> Option<()> {
        match trouble {
            Some(Trouble::Says(place, answer)) if place == at => lines.say(answer).await,
            Some(Trouble::Cut(place)) if place == at => None,
            Some(Trouble::Hangs(place)) if place == at => std::future::pending().await,
            _ => lines.say(usual).await,
        }
    }
}
