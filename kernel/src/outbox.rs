//! Messages on their way to people: an answer is a row before it is sent, and is sent at most once.

mod showing;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use drupe_agent::one_line;
use drupe_attachments::{OutgoingError, OutgoingFile, OutgoingFiles};
use drupe_bus::Bus;
use drupe_config::CopyRule;
use drupe_extension_api::{
    ExtensionId, Fault, FaultCode, SessionId, TurnId,
    wire::{
        ChannelStream, Delivery, FileSent, LONGEST_CAPTION, OutboundFile, OutboundMessage, SendFile,
        StreamPart, op,
    },
};
use drupe_gate::pace::Pace;
use drupe_host::{Header, Instance};
use drupe_journal::{Delivery as Due, FileMessage, Outbound, QueuedTurn, Sent, Store, StoreError, WayOut};
use drupe_surface::lanes::{Lanes, Recipient, Took};
use drupe_wiring::Snapshot;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::showing::{Showing, Shown};
use crate::{extension::Wired, life::Life};

/// The longest text that an extension may show by itself, in bytes: what is longer is an answer, or a file.
const LONGEST_NOTICE: usize = 4 * 1024;

/// How long a channel may take to send one message.
const SEND: Duration = Duration::from_secs(30);

/// How long a kernel that ends waits for channels to take what they were given.
const DRAIN: Duration = Duration::from_secs(5);

/// How long a channel may take with one part of a stream. What it did not take in time it is given again with what follows.
const PART: Duration = Duration::from_secs(2);

/// The same for a file, which takes as long as a request may.
const SEND_FILE: Duration = Duration::from_secs(150);

/// When messages are tried again that a channel could not take.
const AGAIN: Duration = Duration::from_secs(15);

/// The most bytes of a channel's own name for a message, which people are told.
const REMOTE_ID: usize = 256;

/// How often a message is tried before it is given up.
const ATTEMPTS: u32 = 20;

/// What goes out to people: the messages of a channel in their order, and no channel waits for another.
pub struct Outbox {
    life: Life,
    store: Store,
    wired: Arc<Wired>,
    bus: Arc<Bus>,
    /// Where what people are told in conversations goes besides.
    copies: Vec<CopyRule>,
    /// What is kept of files until it is known what became of them.
    pub files: OutgoingFiles,
    /// How often each extension may show something to the user.
    notices: Pace,
    due: Notify,
    end: CancellationToken,
    ended: CancellationToken,
}

impl Outbox {
    /// Of a journal, through the channels that are wired.
    pub fn new(life: Life, store: Store, wired: Arc<Wired>, bus: Arc<Bus>, files: OutgoingFiles) -> Self {
        Self {
            life,
            store,
            wired,
            bus,
            copies: Vec::new(),
            files,
            notices: Pace::new("notices", 10),
            due: Notify::default(),
            end: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    /// The same, with further channels for what people are told in some conversations.
    pub fn copying(self, copies: Vec<CopyRule>) -> Self {
        Self { copies, ..self }
    }

    /// Where a text that people are told in a session goes besides. Nobody is sent nothing.
    pub fn copies(&self, session: &SessionId, text: &str) -> Vec<Outbound> {
        let rules = self.copies.iter().filter(|rule| !text.trim().is_empty() && rule.holds_of(session));
        let copy = |rule: &CopyRule| Outbound {
            channel: rule.channel.to_string(),
            address: rule.address.clone(),
            text: text.to_owned(),
        };
        rules.map(copy).collect()
    }

    /// Whether messages go out through a channel of that name.
    pub fn carries(&self, channel: &str) -> bool {
        find(&self.wired.snapshot(), channel).is_some()
    }

    /// There is something to send.
    pub fn wake(&self) {
        self.due.notify_one();
    }

    /// Sends what waits, then no more. What a channel holds on to is uncertain for the next kernel, as after a crash.
    pub async fn finish(&self) {
        self.end.cancel();
        if tokio::time::timeout(DRAIN, self.ended.cancelled()).await.is_err() {
            tracing::warn!("a channel did not take its messages in time; the next start tells of them");
            self.ended.cancel();
        }
    }

    /// Shows a text of an extension to the user, under its name: in a session of its own, in one in which it was called,
    /// or where a person wrote last.
    pub async fn notify(
        &self,
        by: &ExtensionId,
        session: Option<SessionId>,
        text: String,
    ) -> Result<(), Fault> {
        if text.len() > LONGEST_NOTICE {
            let message = format!("a notice has at most {LONGEST_NOTICE} bytes, and this one {}", text.len());
            return Err(Fault::invalid(message).help("say less, and where the rest is"));
        }
        if let Some(session) = &session {
            let own = session.below(by.as_str()).is_some_and(|rest| !rest.is_empty());
            if !own && !self.wired.lasting.tokens.was_called_in(by, session) {
                let message = format!("extension `{by}` was not called in session `{session}`");
                return Err(Fault::denied(message).help("leave the session out"));
            }
        }
        let session = self.place_of_notice(session).await?;
        self.notices.take(by, Instant::now())?;
        self.show(session, format!("`{by}`: {text}")).await
    }

    /// Shows people a text of the daemon's own: in that session, or where a person wrote last.
    pub async fn tell(&self, session: Option<SessionId>, text: String) -> Result<(), Fault> {
        let session = self.place_of_notice(session).await?;
        self.show(session, text).await
    }

    /// Sends a file of the workspace to whoever wrote in a turn, once for each key. Where no channel takes it, they are told where it is.
    pub async fn send_file(
        &self,
        turn: &TurnId,
        session: &SessionId,
        key: String,
        workspace: PathBuf,
        ask: SendFile,
    ) -> Result<FileSent, Fault> {
        let SendFile { path, text, sha256, effect_id: _ } = ask;
        if text.len() > LONGEST_CAPTION {
            let message =
                format!("beside a file stand at most {LONGEST_CAPTION} bytes, and these are {}", text.len());
            return Err(Fault::invalid(message).help("say the rest in the answer"));
        }
        // What is kept of one that is on its way is not written over.
        if let Some(channel) = self.store.channel_of_message(key.clone()).await? {
            return Ok(FileSent::OnItsWay { channel });
        }
        let (files, kept_key, from) = (self.files.clone(), key.clone(), path.clone());
        let keeping = tokio::task::spawn_blocking(move || files.keep(&workspace, &from, &kept_key));
        let OutgoingFile { name, bytes, hash, media_type } =
            keeping.await.map_err(Fault::internal)?.map_err(|error| kept_not(&path, error))?;
        let to = self.store.way_out(turn).await;
        let to = to.inspect_err(|_| self.files.forget(&key))?;
        let is_other = sha256.is_some_and(|sha256| sha256 != hash);
        let takes = |to: &WayOut| self.takes_files(&to.channel);
        let Some(to) = to.filter(takes).filter(|_| !is_other) else {
            self.files.forget(&key);
            if is_other {
                let message = format!("`{path}` was changed meanwhile, and is not sent");
                return Err(Fault::invalid(message).help("call the tool again"));
            }
            let told = format!("a file for you: `{path}` in the workspace, {bytes} bytes. {text}");
            self.show(session.clone(), told.trim_end().to_owned()).await?;
            return Ok(FileSent::Told);
        };
        let channel = to.channel.clone();
        let file = OutboundFile { name, bytes, sha256: hash, media_type: media_type.to_owned() };
        let message = FileMessage { text, path, file };
        // The row may be there although this says no: what is kept goes once it is known that there is none.
        self.store.queue_file(key, to, message).await?;
        self.wake();
        Ok(FileSent::OnItsWay { channel })
    }

    /// Whether a channel of that name takes files.
    fn takes_files(&self, channel: &str) -> bool {
        self.wired.snapshot().file_channels.iter().any(|id| id.as_str() == channel)
    }

    /// Removes what is kept of files that are not on their way. To be called before any can be sent: one that is about to be queued has no
    /// row yet.
    pub async fn sweep(&self) {
        match self.store.files_on_the_way().await {
            Ok(keys) => self.files.sweep(&keys),
            Err(error) => {
                tracing::warn!(%error, "copies of files that were sent are removed after the next start");
            }
        }
    }

    async fn place_of_notice(&self, named: Option<SessionId>) -> Result<SessionId, Fault> {
        match named {
            Some(session) => Ok(session),
            None => self.store.last_of_people().await?.ok_or_else(|| {
                Fault::not_found("nobody has written yet, so there is no session to show it in")
            }),
        }
    }

    async fn show(&self, session: SessionId, text: String) -> Result<(), Fault> {
        let copies = self.copies(&session, &text);
        if self.store.notice(session, text, copies).await? {
            self.wake();
        }
        Ok(())
    }

    /// Shows an answer in its channel while it is made, until the turn ends or the guard goes.
    pub fn stream(&self, snapshot: &Snapshot, queued: &QueuedTurn) -> Option<DropGuard> {
        let channel = find(snapshot, &queued.inbound.ask.channel)?;
        let (session, address) = (queued.inbound.ask.session.clone(), queued.inbound.ask.address.clone());
        let turn = queued.turn.clone();
        let mut events = self.bus.watch(&session);
        let end = self.life.closing.child_token();
        let ended = end.clone();
        self.life.tasks.spawn(async move {
            let send = async |message, part| {
                let (session, address) = (session.clone(), address.clone());
                let part = ChannelStream { session, address, message, part };
                let header = Header { timeout: Some(PART), ..Header::default() };
                channel.call::<serde_json::Value>(op::CHANNEL_STREAM, &part, header).await
            };
            // A channel that cannot stream says so at once, and is left alone.
            if send(None, StreamPart::Begin).await.is_err() {
                return;
            }
            let mut showing = Showing::of(turn);
            loop {
                let Some(shown) = showing.next() else {
                    // What happened before the end is heard before it.
                    tokio::select! {
                        biased;
                        event = events.recv() => showing.hear(&event),
                        () = ended.cancelled() => break,
                    }
                    continue;
                };
                let Shown { message, part } = shown;
                let mut giving = std::pin::pin!(send(message, part.clone()));
                let given = loop {
                    tokio::select! {
                        biased;
                        event = events.recv() => showing.hear(&event),
                        given = &mut giving => break given,
                    }
                };
                if let Err(fault) = &given {
                    tracing::debug!(%fault, "a part of a stream was not shown");
                }
                showing.went(&part, given.is_ok());
            }
            let _ = send(None, StreamPart::End).await;
        });
        Some(end.drop_guard())
    }
}

/// Why a file does not go out.
fn kept_not(path: &str, error: OutgoingError) -> Fault {
    match error {
        OutgoingError::NoFile(why) => Fault::not_found(why),
        OutgoingError::Refused(why) => Fault::invalid(format!("`{path}` is not sent: {why}")),
        OutgoingError::Busy(why) => Fault::new(FaultCode::Busy, why),
        OutgoingError::Unreadable(error) => {
            Fault::new(FaultCode::Unavailable, format!("`{path}` cannot be kept to be sent: {error}"))
        }
    }
}

fn find(snapshot: &Snapshot, channel: &str) -> Option<Arc<Instance>> {
    ExtensionId::new(channel).ok().and_then(|id| snapshot.channels.get(&id).map(Arc::clone))
}

/// Sends what is due, until [`Outbox::finish`].
pub async fn send_until_the_end(outbox: Arc<Outbox>) {
    let mut lanes = Lanes::default();
    loop {
        let last = outbox.end.is_cancelled();
        lanes.let_go(Instant::now());
        if let Err(error) = deliver(&outbox, &mut lanes).await {
            tracing::error!(%error, "messages wait to be sent, but the journal does not answer");
        }
        if last && lanes.is_empty() {
            return outbox.ended.cancel();
        }
        // Channels may have come that were not there.
        let look = Instant::now() + AGAIN;
        let next = lanes.next().map_or(look, |next| next.min(look));
        tokio::select! {
            () = outbox.due.notified() => {}
            () = tokio::time::sleep_until(next.into()) => {}
            () = outbox.end.cancelled(), if !last => lanes.try_again(),
            () = lanes.one_ends(AGAIN) => {}
            () = outbox.ended.cancelled() => return,
        }
    }
}

/// Begins to send what is due to the channels that are free.
async fn deliver(outbox: &Arc<Outbox>, lanes: &mut Lanes) -> Result<(), StoreError> {
    let snapshot = outbox.wired.snapshot();
    let mut by_channel: BTreeMap<String, Vec<Due>> = BTreeMap::new();
    for due in outbox.store.due_deliveries().await? {
        by_channel.entry(due.message.channel.clone()).or_default().push(due);
    }
    for (name, mut due) in by_channel {
        due.retain(|one| !lanes.holds(&name, &recipient(one)));
        if due.is_empty() {
            continue;
        }
        let channel = find(&snapshot, &name).filter(|_| lanes.is_free(&name));
        let Some(channel) = channel else { continue };
        let own = Arc::clone(outbox);
        lanes.begin(name, async move { send_all(&own, &channel, due).await });
    }
    Ok(())
}

/// Sends messages to a channel in their order.
async fn send_all(outbox: &Outbox, channel: &Instance, due: Vec<Due>) -> Took {
    let mut held = BTreeSet::new();
    for delivery in due {
        let to = recipient(&delivery);
        if held.contains(&to) {
            continue;
        }
        match send(outbox, channel, delivery).await {
            Ok(Next::Any) => {}
            Ok(Next::OfOthers) => drop(held.insert(to)),
            Ok(Next::None) => return Took::NoMore,
            Err(error) => {
                tracing::error!(%error, "the journal does not record what is sent");
                return Took::NoMore;
            }
        }
    }
    if held.is_empty() { Took::All } else { Took::AllBut(held) }
}

fn recipient(due: &Due) -> Recipient {
    (due.session.clone(), due.message.address.clone())
}

/// Which message a channel may be given after one.
enum Next {
    Any,
    /// One of another conversation, or to another place: this one has to wait.
    OfOthers,
    None,
}

/// Sends one message, and says which one may be next.
async fn send(outbox: &Outbox, channel: &Instance, due: Due) -> Result<Next, StoreError> {
    let store = &outbox.store;
    store.sending(due.id).await?;
    let key = due.file.is_some().then(|| due.key.clone());
    let is_lost = key.as_ref().is_some_and(|_| !outbox.takes_files(&due.message.channel));
    let message = OutboundMessage {
        delivery: due.key,
        kind: due.kind,
        session: due.session,
        address: due.message.address,
        text: due.message.text,
        file: due.file,
    };
    let time = if key.is_some() { SEND_FILE } else { SEND };
    let header = Header { timeout: Some(time), ..Header::default() };
    let said = match is_lost {
        // It is another one by now than when the file was handed over.
        true => Err(Fault::denied("this channel takes no files any more")),
        false => channel.call::<Delivery>(op::CHANNEL_SEND, &message, header).await,
    };
    let is_busy = said.as_ref().is_err_and(|fault| fault.code == FaultCode::Busy);
    let end = end(due.attempts, said);
    let channel = due.message.channel;
    match &end {
        Sent::Delivered { .. } => {}
        Sent::Again(why) | Sent::Failed(why) => tracing::warn!(channel, why, "a message was not taken"),
        Sent::Uncertain(why) => tracing::warn!(channel, why, "nobody knows whether a message arrived"),
    }
    let next = match end {
        Sent::Again(_) if is_busy => Next::OfOthers,
        Sent::Again(_) => Next::None,
        _ => Next::Any,
    };
    let again = matches!(end, Sent::Again(_));
    store.sent(due.id, end).await?;
    if let Some(key) = key.filter(|_| !again) {
        outbox.files.forget(&key);
    }
    Ok(next)
}

/// What becomes of a message, by what its channel says.
fn end(attempts: u32, said: Result<Delivery, Fault>) -> Sent {
    use FaultCode::{Busy, Denied, NotConfigured, NotFound, Unavailable};
    match said {
        Ok(done) => Sent::Delivered { remote_id: done.remote_id.map(|id| one_line(&id, REMOTE_ID)) },
        // These say that nothing went out.
        Err(fault) if matches!(fault.code, Unavailable | Busy | NotConfigured) => match attempts < ATTEMPTS {
            true => Sent::Again(fault.to_string()),
            false => Sent::Failed(fault.to_string()),
        },
        // These say so as well, and that it would be the same later.
        Err(fault) if matches!(fault.code, Denied | NotFound) => Sent::Failed(fault.to_string()),
        Err(fault) => Sent::Uncertain(fault.to_string()),
    }
}

#[cfg(test)]
mod tests;
