//! The sockets through which the service tells what was written, one at a time and for a while two.
//!
//! The service closes each after some hours, announces that, and takes it for granted that another is open by then. One that is dead without
//! a word is known by its silence: the service pings an idle one every few seconds. What came through a socket is acknowledged through it, and only
//! when it was taken in; what is not acknowledged is told again, through this or another.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use drupe_channel::{TakenIn, Taking};
use drupe_extension_api::prelude::*;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    api::told,
    ear::SlackEar,
    event::{self, App, SlackHeard, SocketFrame},
    network::{self, Socket},
};

/// Time for the first word of a socket.
const HELLO: Duration = Duration::from_secs(10);
/// How long a socket is still read when the next one works: what was sent through it is on its way.
const LINGER: Duration = Duration::from_secs(10);
/// Time for a frame to leave.
const SEND: Duration = Duration::from_secs(5);
/// The first pause before another socket is opened, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a socket has to have lived for the pauses behind it to begin anew: the service takes some fifty requests for one a minute.
const LIVED: Duration = Duration::from_secs(30);

/// What a socket tells whoever opened it.
enum News {
    /// It is open, and said so.
    Ready(u64),
    /// The service will close it.
    Leaving(u64, String),
    /// It is no more, for this reason.
    Ended(u64, String),
}

/// Keeps a socket open as long as it is asked to.
pub struct Sockets {
    ear: SlackEar,
    app: Arc<App>,
    /// Which socket is the newest that works. All end with it.
    newest: watch::Sender<u64>,
    tell: mpsc::Sender<News>,
    told: mpsc::Receiver<News>,
}

impl Sockets {
    pub fn new(ear: SlackEar, app: App) -> Self {
        let (tell, told) = mpsc::channel(16);
        Self { ear, app: Arc::new(app), newest: watch::Sender::new(0), tell, told }
    }

    /// Keeps one open, for ever.
    pub async fn keep_open(mut self) -> Result<(), Fault> {
        let (mut number, mut pause, mut ready) = (1, PAUSE, None);
        self.open(number).await?;
        while let Some(news) = self.told.recv().await {
            match news {
                News::Ready(of) => {
                    ready = Some(Instant::now());
                    self.newest.send_modify(|newest| *newest = (*newest).max(of));
                    self.ear.channel.host.debug(format!("socket {of} is open"));
                }
                // Of those before it is known that they end.
                News::Leaving(of, reason) if of == number => {
                    self.ear.channel.host.debug(format!("socket {of} will be closed: {reason}"));
                    if reason == "link_disabled" {
                        self.ear
                            .channel
                            .host
                            .error("Socket Mode is turned off for the app: turn it on at api.slack.com/apps");
                    }
                    number += 1;
                    self.open(number).await?;
                }
                News::Ended(of, why) if of == number => {
                    if ready.take().is_some_and(|since| since.elapsed() >= LIVED) {
                        pause = PAUSE;
                    }
                    self.ear.channel.host.warn(format!("the socket to Slack ended: {why}"));
                    self.rest(&mut pause).await?;
                    number += 1;
                    self.open(number).await?;
                }
                News::Leaving(..) | News::Ended(..) => {}
            }
        }
        Ok(())
    }

    async fn rest(&self, pause: &mut Duration) -> Result<(), Fault> {
        self.ear.channel.host.sleep(*pause).await?;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// Opens a socket, however long it takes, and has it read.
    async fn open(&self, number: u64) -> Result<(), Fault> {
        let mut pause = PAUSE;
        let socket = loop {
            match self.connected().await {
                Ok(socket) => break socket,
                Err(why) => self.ear.channel.host.warn(format!("no socket to Slack is open: {why}")),
            }
            self.rest(&mut pause).await?;
        };
        let reader = Reader {
            number,
            taking: self.ear.taking(),
            host: self.ear.channel.host.clone(),
            app: self.app.clone(),
            newest: self.newest.subscribe(),
            tell: self.tell.clone(),
            quiet: Duration::from_secs(self.ear.settings.quiet_seconds),
        };
        self.ear.channel.host.spawn(reader.run(socket))
    }

    async fn connected(&self) -> Result<Socket, Fault> {
        let failed = |failure| Fault::new(FaultCode::Unavailable, told(failure));
        let opened = self.ear.channel.service.api.open_connection().await.map_err(failed)?;
        let odd = || Fault::invalid("the service named no address for a socket");
        network::connect(opened["url"].as_str().ok_or_else(odd)?).await
    }
}

/// Reads one socket until it ends.
struct Reader {
    number: u64,
    taking: Taking<String, SlackHeard>,
    host: Host,
    app: Arc<App>,
    newest: watch::Receiver<u64>,
    tell: mpsc::Sender<News>,
    quiet: Duration,
}

impl Reader {
    async fn run(mut self, mut socket: Socket) {
        let why = self.read(&mut socket).await;
        let _ = tokio::time::timeout(SEND, socket.close(None)).await;
        let _ = self.tell.send(News::Ended(self.number, why)).await;
        // What is begun comes to its end; it is told again, and known by then.
        while self.taking.next().await.is_some() {}
    }

    /// Reads until it ends; why it did.
    async fn read(&mut self, socket: &mut Socket) -> String {
        let (mut is_open, mut is_asked, mut heard) = (false, false, Instant::now());
        let begun = heard;
        let mut leaves: Option<Instant> = None;
        loop {
            // A ping is sent in the middle of the silence, so that a socket through which nothing is to be told has something to say.
            let silence = if is_asked { self.quiet } else { self.quiet / 2 };
            let mut next = heard + silence;
            if !is_open {
                next = next.min(begun + HELLO);
            }
            if let Some(leaves) = leaves {
                next = next.min(leaves);
            }
            let frame = tokio::select! {
                frame = socket.next(), if self.taking.has_room() => frame,
                Some(TakenIn { id, outcome, .. }) = self.taking.next() => {
                    match outcome {
                        Ok(()) => if let Some(why) = acknowledge(socket, &id).await {
                            return why;
                        },
                        // Not acknowledged, nor is what was told behind it: it comes again.
                        Err(fault) => self.host.warn(format!("a message is taken in later: {fault}")),
                    }
                    continue;
                }
                changed = self.newest.changed() => match changed {
                    Ok(()) => {
                        if *self.newest.borrow_and_update() > self.number {
                            leaves.get_or_insert(Instant::now() + LINGER);
                        }
                        continue;
                    }
                    Err(_) => return "the extension ends".to_owned(),
                },
                () = tokio::time::sleep_until(next.into()) => {
                    let now = Instant::now();
                    if leaves.is_some_and(|leaves| leaves <= now) {
                        return "another is in its place".to_owned();
                    }
                    if !is_open && begun + HELLO <= now {
                        return "it did not begin in time".to_owned();
                    }
                    if is_asked && heard + self.quiet <= now {
                        return format!("it said nothing for {} seconds", self.quiet.as_secs());
                    }
                    if !is_asked && heard + self.quiet / 2 <= now {
                        is_asked = true;
                        if let Some(why) = send(socket, Message::Ping(Vec::new().into())).await {
                            return why;
                        }
                    }
                    continue;
                }
            };
            (heard, is_asked) = (Instant::now(), false);
            let text = match frame {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| format!("{} {}", frame.code, frame.reason));
                    return format!("the service closed it: {}", reason.unwrap_or_default());
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return error.to_string(),
                None => return "it was cut".to_owned(),
            };
            match event::read(&text, &self.app, self.host.id()) {
                SocketFrame::Hello => {
                    is_open = true;
                    let _ = self.tell.send(News::Ready(self.number)).await;
                }
                SocketFrame::Disconnect { reason } => {
                    let _ = self.tell.send(News::Leaving(self.number, reason)).await;
                }
                SocketFrame::Envelope { id, incoming: Some(told) } => {
                    self.taking.begin(told.heard.conversation.clone(), id, *told);
                }
                SocketFrame::Envelope { id, incoming: None } => {
                    if let Some(why) = acknowledge(socket, &id).await {
                        return why;
                    }
                }
                SocketFrame::Other => {}
            }
        }
    }
}

/// Says that something need not be told again; why the socket is of no use any more, where it cannot.
async fn acknowledge(socket: &mut Socket, id: &str) -> Option<String> {
    send(socket, Message::Text(json!({"envelope_id": id}).to_string().into())).await
}

/// Sends a message; why the socket is of no use any more, where it cannot.
async fn send(socket: &mut Socket, message: Message) -> Option<String> {
    match tokio::time::timeout(SEND, socket.send(message)).await {
        Ok(sent) => sent.err().map(|error| error.to_string()),
        Err(_) => Some("it takes nothing any more".to_owned()),
    }
}
