//! Messages on their way to people: an answer is a row before it is sent, and is sent at most once.

mod showing;

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use drupe_agent::one_line;
use drupe_attachments::{LENT, OutgoingFiles};
use drupe_bus::Bus;
use drupe_config::CopyRule;
use drupe_extension_api::{
    ExtensionId, Fault, FaultCode, SessionId, TurnId,
    wire::{ChannelStream, Delivery, FileSent, LONGEST_CAPTION, OutboundMessage, SendFile, StreamPart, op},
};
use drupe_gate::pace::Pace;
use drupe_host::Header;
use drupe_journal::{Delivery as Due, FileMessage, Outbound, QueuedTurn, Sent, Store, StoreError, told_of};
use drupe_surface::lanes::{Lane, Lanes, LeftOver, Recipient};
use drupe_wiring::{Snapshot, WiredChannel};
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

/// What goes out to people: the texts of a channel in their order, or those to each of its addresses where it sends to several at the same time,
/// and its files in theirs. None of these waits for another.
pub struct Outbox {
    life: Life,
    store: Store,
    wired: Arc<Wired>,
    bus: Arc<Bus>,
    /// Where what people are told in conversations goes besides.
    copies: Vec<CopyRule>,
    /// What is kept of files until it is known what became of them.
    pub files: OutgoingFiles,
    /// Held while a copy may lie there that has no row yet.
    keeping: tokio::sync::Mutex<()>,
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
            keeping: tokio::sync::Mutex::default(),
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
        self.show((session, None), None, format!("`{by}`: {text}")).await
    }

    /// Shows people a text of the daemon's own: in that session, or where a person wrote last.
    pub async fn tell(&self, session: Option<SessionId>, text: String) -> Result<(), Fault> {
        self.tell_again(session, None, text).await
    }

    /// The same with what was said in another session already: where a copy goes from there, none goes from here.
    pub async fn tell_again(
        &self,
        session: Option<SessionId>,
        said_in: Option<&SessionId>,
        text: String,
    ) -> Result<(), Fault> {
        let session = self.place_of_notice(session).await?;
        self.show((session, said_in), None, text).await
    }

    /// Sends a file of the workspace to whoever wrote in a turn, once for each key. Where no channel takes it, they are told where it is.
    pub async fn send_file(
        self: &Arc<Self>,
        (turn, session): (TurnId, SessionId),
        key: String,
        workspace: PathBuf,
        ask: SendFile,
    ) -> Result<FileSent, Fault> {
        if ask.text.len() > LONGEST_CAPTION {
            let message = format!("beside a file stand at most {LONGEST_CAPTION} bytes");
            return Err(Fault::invalid(message).help("say the rest in the answer"));
        }
        let own = Arc::clone(self);
        let sending = async move {
            let _keeping = own.keeping.lock().await;
            if let Some(sent) = own.store.file_sent(key.clone()).await? {
                return Ok(sent);
            }
            let sent = own.keep_and_queue((turn, session), key, workspace, ask).await;
            if !matches!(sent, Ok(FileSent::OnItsWay { .. })) {
                own.remove_what_is_not_on_its_way().await;
            }
            sent
        };
        self.life.whole(sending).await
    }

    async fn keep_and_queue(
        &self,
        (turn, session): (TurnId, SessionId),
        key: String,
        workspace: PathBuf,
        SendFile { path, text, sha256, effect_id: _ }: SendFile,
    ) -> Result<FileSent, Fault> {
        let (files, kept, from) = (self.files.clone(), key.clone(), path.clone());
        let keeping = tokio::task::spawn_blocking(move || files.keep(&workspace, &from, &kept));
        let file = keeping.await.map_err(Fault::internal)??;
        if sha256.is_some_and(|sha256| sha256 != file.sha256) {
            let message = format!("`{path}` was changed meanwhile, and is not sent");
            return Err(Fault::invalid(message).help("call the tool again"));
        }
        let channel = self.store.channel_of(&turn).await?;
        let Some(channel) = channel.filter(|channel| self.takes_files(channel)) else {
            let told = format!("a file for you: `{path}` in the workspace, {} bytes. {text}", file.bytes);
            self.show((session, None), Some(told_of(&key)), told.trim_end().to_owned()).await?;
            return Ok(FileSent::Told);
        };
        self.store.queue_file(key, turn, FileMessage { text, path, file }).await?;
        self.wake();
        Ok(FileSent::OnItsWay { channel })
    }

    /// Whether a channel of that name takes files.
    fn takes_files(&self, channel: &str) -> bool {
        find(&self.wired.snapshot(), channel).is_some_and(|channel| channel.takes_files)
    }

    /// Removes what is kept of files that are not on their way.
    pub async fn sweep(&self) {
        let _keeping = self.keeping.lock().await;
        self.remove_what_is_not_on_its_way().await;
    }

    async fn remove_what_is_not_on_its_way(&self) {
        match self.store.files_on_the_way().await {
            Ok(all) => self.files.sweep(all.iter().map(|one| one.key.as_str())),
            Err(error) => tracing::warn!(%error, "copies of files that are not sent are removed later"),
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

    async fn show(
        &self,
        (session, said_in): (SessionId, Option<&SessionId>),
        key: Option<String>,
        text: String,
    ) -> Result<(), Fault> {
        let before = said_in.map_or_else(Vec::new, |said_in| self.copies(said_in, &text));
        let copies = self.copies(&session, &text).into_iter().filter(|copy| !before.contains(copy)).collect();
        if self.store.notice(session, key, text, copies).await? {
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
                channel.instance.call::<serde_json::Value>(op::CHANNEL_STREAM, &part, header).await
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

fn find(snapshot: &Snapshot, channel: &str) -> Option<WiredChannel> {
    ExtensionId::new(channel).ok().and_then(|id| snapshot.channels.get(&id).cloned())
}

/// Sends what is due, until [`Outbox::finish`]. The journal is looked at when there is something to send, or another channel: nobody wakes for it
/// while nothing happens.
pub async fn send_until_the_end(outbox: Arc<Outbox>) {
    let mut lanes = Lanes::default();
    let mut wired = outbox.wired.changes();
    loop {
        let last = outbox.end.is_cancelled();
        lanes.let_go(Instant::now());
        let failed = deliver(&outbox, &mut lanes).await.inspect_err(|error| {
            tracing::error!(%error, "messages wait to be sent, but the journal does not answer");
        });
        if last && lanes.is_empty() {
            return outbox.ended.cancel();
        }
        let again = failed.is_err().then(|| Instant::now() + AGAIN);
        let next = again.into_iter().chain(lanes.next()).min();
        tokio::select! {
            () = outbox.due.notified() => {}
            // Channels may have come that were not there.
            _ = wired.changed() => {}
            Some(()) = sleep_until(next) => {}
            () = outbox.end.cancelled(), if !last => lanes.try_again(),
            () = lanes.one_ends(AGAIN) => {}
            () = outbox.ended.cancelled() => return,
        }
    }
}

async fn sleep_until(next: Option<Instant>) -> Option<()> {
    tokio::time::sleep_until(next?.into()).await;
    Some(())
}

/// Begins to send what is due in the lanes that are free, where the oldest waits first.
async fn deliver(outbox: &Arc<Outbox>, lanes: &mut Lanes) -> Result<(), StoreError> {
    let snapshot = outbox.wired.snapshot();
    let mut waiting: BTreeMap<(Lane, Option<Recipient>), Vec<Due>> = BTreeMap::new();
    for due in outbox.store.due_deliveries().await? {
        let lane = Lane { channel: due.message.channel.clone(), of_files: due.file.is_some() };
        let to = recipient(&due);
        if !lanes.holds(&lane, &to) {
            let at_once = !lane.of_files && find(&snapshot, &lane.channel).is_some_and(|c| c.sends_at_once);
            waiting.entry((lane, at_once.then_some(to))).or_default().push(due);
        }
    }
    let mut waiting: Vec<_> = waiting.into_iter().collect();
    waiting.sort_by_key(|(_, due)| due.first().map(|oldest| oldest.id));
    for ((lane, to), due) in waiting {
        let is_free = lanes.is_free(&lane, to.as_ref());
        let Some(channel) = find(&snapshot, &lane.channel).filter(|_| is_free) else { continue };
        let own = Arc::clone(outbox);
        lanes.begin(lane, to, async move { send_all(&own, &channel, due).await });
    }
    Ok(())
}

/// Sends messages in their order; gives what was not taken.
async fn send_all(outbox: &Outbox, channel: &WiredChannel, due: Vec<Due>) -> LeftOver {
    let mut not_taken = LeftOver::new();
    for delivery in due {
        let to = Some(recipient(&delivery));
        if not_taken.contains(&to) {
            continue;
        }
        let waits = match send(outbox, channel, delivery).await {
            Ok(None) => continue,
            // What goes elsewhere does not wait for it.
            Ok(Some(FaultCode::Busy)) => to,
            Ok(Some(_)) => None,
            Err(error) => {
                tracing::error!(%error, "the journal does not record what is sent");
                None
            }
        };
        let all_wait = waits.is_none();
        not_taken.insert(waits);
        if all_wait {
            break;
        }
    }
    not_taken
}

fn recipient(due: &Due) -> Recipient {
    due.message.address.clone().unwrap_or_else(|| due.session.to_string())
}

/// Sends one message; the fault for which it is to be sent again, if it is.
async fn send(outbox: &Outbox, through: &WiredChannel, due: Due) -> Result<Option<FaultCode>, StoreError> {
    let store = &outbox.store;
    store.sending(due.id).await?;
    let is_file = due.file.is_some();
    let Outbound { channel, address, text } = due.message;
    let Due { key: delivery, kind, session, file, .. } = due;
    let message = OutboundMessage { delivery, kind, session, address, text, file };
    let said = hand_over(outbox, through, &channel, message).await;
    let code = said.as_ref().err().map(|fault| fault.code);
    let end = end(due.attempts, said);
    match &end {
        Sent::Delivered { .. } => {}
        Sent::Again(why) | Sent::Failed(why) => tracing::warn!(channel, why, "a message was not taken"),
        Sent::Uncertain(why) => tracing::warn!(channel, why, "nobody knows whether a message arrived"),
    }
    let again = code.filter(|_| matches!(end, Sent::Again(_)));
    store.sent(due.id, end).await?;
    if is_file && again.is_none() {
        outbox.sweep().await;
    }
    Ok(again)
}

/// Hands a message to its channel, which has the bytes of a file as long as this lasts, where it wants them.
async fn hand_over(
    outbox: &Outbox,
    through: &WiredChannel,
    channel: &str,
    mut message: OutboundMessage,
) -> Result<Delivery, Fault> {
    let time = if message.file.is_some() { SEND_FILE } else { SEND };
    let mut lent = None;
    if let Some(file) = &mut message.file {
        if !through.takes_files {
            // It is another one by now than when the file was handed over.
            return Err(Fault::denied("this channel takes no files any more"));
        }
        if through.reads_files {
            let (files, key, channel) = (outbox.files.clone(), message.delivery.clone(), channel.to_owned());
            let lending = tokio::task::spawn_blocking(move || files.lend(&key, &channel));
            let no = |error| {
                Fault::new(FaultCode::Unavailable, format!("its channel cannot be given the file: {error}"))
            };
            lent = Some(lending.await.map_err(io::Error::other).flatten().map_err(no)?);
            file.data_file = Some(LENT.to_owned());
        }
    }
    let header = Header { timeout: Some(time), ..Header::default() };
    let said = through.instance.call::<Delivery>(op::CHANNEL_SEND, &message, header).await;
    drop(lent);
    said
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
