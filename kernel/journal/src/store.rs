//! The handle: every question and every record passes here.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use drupe_agent::Clock;
use drupe_extension_api::{
    AgentId, AgentRef, Event, EventBody, SessionId, TurnId,
    control::{Approval, ApprovalState, Persona, SessionSnapshot, SessionStatus, StateChange, TokenStatus},
};
use rusqlite::Connection;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::{
    Accepted, Counts, DeliveryId, Inbound, Origin, Published, QueuedTurn, RestartRow, RestartVerdict,
    Storage, StoreError, TurnDone, TurnStart, activations,
    broken::Broken,
    error::Result,
    events, extensions, intake, open,
    opening::Opening,
    outbox,
    reader::{self, Question},
    recent::Recent,
    restarts, sessions,
    shared::{SharedWriter, free, lock},
    tokens, turns,
    upgrade::Precious,
    writer::{self, Command, Survives, Task, Waits, Writer, Writing},
};

/// Gets what a commit makes known, after it; events in order of `seq` within a session. Called by whoever commits: it
/// must be quick, and must not ask the journal anything.
pub type Publish = Arc<dyn Fn(Published) + Send + Sync>;

/// Requests that wait before intake refuses and the rest waits with its caller: some transactions' worth.
const QUEUE: usize = 2048;

/// The journal. Clones are the same journal.
#[derive(Clone)]
pub struct Store {
    engine: Arc<Engine>,
    pub(crate) broken: Arc<Broken>,
    pub(crate) recent: Arc<Mutex<Recent>>,
}

struct Engine {
    writer: Arc<SharedWriter>,
    /// Where there is a file.
    threads: Option<Threads>,
    writes: Notify,
}

/// The threads for what waits for the disk, and for what takes long to read.
struct Threads {
    reader: Arc<Mutex<Option<Connection>>>,
    commands: mpsc::Sender<Command>,
    questions: mpsc::Sender<Question>,
    waits: Waits,
    path: PathBuf,
}

impl Store {
    /// Opens the journal, makes it where there is none, brings it to this release's version, checks it if it was
    /// not closed in order, and marks deliveries that were cut off as uncertain.
    ///
    /// Blocks the calling thread: call it before anything else runs. A damaged file is an error that says so; see
    /// [`set_aside`](crate::set_aside).
    pub fn open(storage: &Storage, clock: Arc<dyn Clock>, publish: Publish) -> Result<Self> {
        Self::open_seen(storage, clock, publish, &Arc::default())
    }

    /// The same, and says in `opening` what it is at: where the file is large, that takes long.
    pub fn open_seen(
        storage: &Storage,
        clock: Arc<dyn Clock>,
        publish: Publish,
        opening: &Arc<Opening>,
    ) -> Result<Self> {
        open::check_sqlite()?;
        let (recent, broken) = (Arc::default(), Arc::new(Broken::of(storage)));
        let engine = match storage {
            Storage::Memory => {
                let (recent, broken) = (Arc::clone(&recent), Arc::clone(&broken));
                let writer = Writer::new(open::memory()?, Waits::Never, clock, publish, recent, broken)?;
                Engine { writer: Arc::new(SharedWriter::new(writer)), threads: None, writes: Notify::new() }
            }
            Storage::Full(path) => {
                files(path, Waits::WherePromised, clock, publish, (&recent, &broken), opening)?
            }
            Storage::Process(path) => files(path, Waits::Never, clock, publish, (&recent, &broken), opening)?,
        };
        Ok(Self { engine: Arc::new(engine), broken, recent })
    }

    /// Takes a message in. Refuses with [`StoreError::Busy`] where too much waits already; whatever the error,
    /// nothing is acknowledged and the same message may come again.
    pub async fn accept(&self, inbound: Inbound) -> Result<Accepted> {
        let Engine { writer, threads, .. } = &*self.engine;
        let full = threads.as_ref().is_some_and(|threads| threads.commands.capacity() == 0);
        if full || writer.waiting() >= QUEUE {
            return Err(StoreError::Busy);
        }
        self.write(Survives::Power, move |on| intake::accept(on, &inbound)).await
    }

    /// Turns without an answer, in the order in which they were accepted.
    pub async fn unfinished(&self) -> Result<Vec<QueuedTurn>> {
        self.read(turns::unfinished).await
    }

    /// A turn that has no answer yet.
    pub async fn queued(&self, turn: &TurnId) -> Result<Option<QueuedTurn>> {
        if let Some(known) = lock(&self.recent).queued(turn) {
            return Ok(known);
        }
        let turn = turn.clone();
        self.read_few(move |db| turns::queued(db, &turn)).await
    }

    /// Notes that a turn begins or goes on, and gives how often it has, this time included: whatever ended the earlier
    /// ones, a crash or an orderly stop. See [`beginning`](Self::beginning) for one that has not begun before.
    pub async fn start_turn(&self, start: TurnStart) -> Result<u32> {
        self.write(Survives::Process, move |on| turns::start(on, &start)).await
    }

    /// Notes that a turn is to end without going on, and why: from here on it survives a loss of power, and whoever goes on
    /// with the turn finds it as [`QueuedTurn::cancelled`]. False where the turn has its end already.
    pub async fn cancel_turn(&self, turn: &TurnId, why: String) -> Result<bool> {
        let turn = turn.clone();
        self.write(Survives::Power, move |on| turns::cancel(on, &turn, &why)).await
    }

    /// Records how a turn ended, and queues its answer; gives the number of that delivery. A second end of the
    /// same turn is refused.
    pub async fn finish_turn(&self, done: TurnDone) -> Result<Option<DeliveryId>> {
        self.write(Survives::Power, move |on| turns::finish(on, &done)).await
    }

    /// Does so, and takes a message in that tells another session of the end: both or neither.
    pub async fn finish_turn_with(
        &self,
        done: TurnDone,
        report: Inbound,
    ) -> Result<(Option<DeliveryId>, Accepted)> {
        self.write(Survives::Power, move |on| Ok((turns::finish(on, &done)?, intake::accept(on, &report)?)))
            .await
    }

    /// What a turn was asked; none where there is no such turn.
    pub async fn asked(&self, turn: &TurnId) -> Result<Option<Inbound>> {
        let turn = turn.clone();
        self.read_few(move |db| turns::asked(db, &turn)).await
    }

    /// The agents that a session alone has.
    pub async fn personas(&self, session: &SessionId) -> Result<Vec<Persona>> {
        let session = session.clone();
        self.read_few(move |db| sessions::personas(db, &session)).await
    }

    /// Gives a session agents of its own; false where a message of it was accepted already.
    pub async fn give_personas(&self, session: &SessionId, personas: Vec<Persona>) -> Result<bool> {
        let session = session.clone();
        self.write(Survives::Power, move |on| sessions::give_personas(on, &session, &personas)).await
    }

    /// What the turns of a session have made use of, as it was then.
    pub async fn snapshot(&self, session: &SessionId) -> Result<SessionSnapshot> {
        let session = session.clone();
        self.read_few(move |db| sessions::snapshot(db, &session)).await
    }

    /// The turn of a message, by what set it off, its channel and its id there; none where it was not taken in.
    pub async fn turn_of_message(
        &self,
        origin: Origin,
        channel: String,
        external_id: String,
    ) -> Result<Option<TurnId>> {
        self.read_few(move |db| intake::turn_of(db, &origin, &channel, &external_id)).await
    }

    /// The session of a turn; none where there is no such turn.
    pub async fn session_of(&self, turn: &TurnId) -> Result<Option<SessionId>> {
        let turn = turn.clone();
        self.read_few(move |db| turns::session_of(db, &turn)).await
    }

    /// Keeps a named token by the hash of what its bearer shows. False where there is one of that name, which stays.
    pub async fn make_token(&self, token: TokenStatus, hash: String) -> Result<bool> {
        self.write(Survives::Power, move |on| tokens::make(on, &token, &hash)).await
    }

    /// Forgets a named token; false where there is none of that name.
    pub async fn revoke_token(&self, name: String) -> Result<bool> {
        self.write(Survives::Power, move |on| tokens::revoke(on, &name)).await
    }

    /// The named tokens with their hashes, by name.
    pub async fn tokens(&self) -> Result<Vec<(TokenStatus, String)>> {
        self.read(tokens::all).await
    }

    /// Every session, the one with the latest change first.
    pub async fn sessions(&self) -> Result<Vec<SessionStatus>> {
        self.read(sessions::list).await
    }

    /// The session in which a person wrote last: the operator, or somebody in a channel. What extensions, programs and topics
    /// set off by themselves does not count.
    pub async fn last_of_people(&self) -> Result<Option<SessionId>> {
        self.read(sessions::last_of_people).await
    }

    /// Chooses the agent that answers in a session, which is made where it does not exist; none gives it back to the
    /// orchestrator. Whether there was anything to do: a session that does not exist cannot be given back.
    pub async fn select_agent(&self, session: &SessionId, agent: Option<AgentId>) -> Result<bool> {
        let session = session.clone();
        self.write(Survives::Process, move |on| sessions::select_agent(on, &session, agent.as_ref())).await
    }

    /// Events after a position, in order; fewer than `limit` where a bound on one answer is reached, none only at
    /// the end.
    pub async fn events_after(&self, session: &SessionId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let session = session.clone();
        self.read(move |db| events::after(db, &session, after, limit)).await
    }

    /// Numbers, records and publishes events.
    pub async fn record_events(
        &self,
        session: SessionId,
        turn: Option<TurnId>,
        events: Vec<(Option<AgentRef>, EventBody)>,
    ) -> Result<()> {
        self.write(Survives::Process, move |on| events::record(on, &session, turn.as_ref(), &events)).await
    }

    /// Asks for a restart. At most three within ten minutes are granted while nobody watches.
    pub async fn request_restart(
        &self,
        reason: String,
        session: Option<SessionId>,
        turn: Option<TurnId>,
        unattended: bool,
    ) -> Result<RestartVerdict> {
        self.write(Survives::Process, move |on| {
            restarts::request(on, &reason, session.as_ref(), turn.as_ref(), unattended)
        })
        .await
    }

    /// The oldest restart that was asked for and not found yet. Each is found once; call until there is none.
    pub async fn take_restart(&self) -> Result<Option<RestartRow>> {
        self.write(Survives::Process, |on| restarts::take(on)).await
    }

    /// Records a step of an extension's life; the oldest steps are let go.
    pub async fn record_extension(&self, extension: String, change: StateChange) -> Result<()> {
        self.write(Survives::Process, move |on| extensions::record(on, &extension, &change)).await
    }

    /// The latest steps of an extension's life, over all kernels: at most twenty, oldest first.
    pub async fn extension_history(&self, extension: &str) -> Result<Vec<StateChange>> {
        let extension = extension.to_owned();
        self.read(move |db| extensions::history(db, &extension)).await
    }

    /// The extensions that have worked in this home.
    pub async fn worked(&self) -> Result<BTreeSet<String>> {
        self.read(extensions::worked).await
    }

    /// Turns an extension on or off, over its manifest; none leaves it to its manifest again.
    pub async fn set_enabled(&self, extension: String, enabled: Option<bool>) -> Result<()> {
        self.write(Survives::Power, move |on| extensions::set_enabled(on, &extension, enabled)).await
    }

    /// The extensions that the operator turned on or off; the others are left to their manifests.
    pub async fn enabled(&self) -> Result<BTreeMap<String, bool>> {
        self.read(extensions::enabled).await
    }

    /// Asks the operator to agree that an extension is activated with the content of this hash. Asked again, it
    /// gives what there is, with its answer if there is one; one that was withdrawn waits anew. What still waited
    /// for another content of the extension is withdrawn, so call it for the content that is there now.
    ///
    /// `needs` says what the agreement is needed for, a phrase each.
    pub async fn ask_activation(
        &self,
        extension: String,
        hash: String,
        needs: Vec<String>,
    ) -> Result<Approval> {
        // The id is shown to people: after a loss of power it must not name another one.
        self.write(Survives::Power, move |on| activations::ask(on, &extension, &hash, &needs)).await
    }

    /// How the agreement to this content stands; none where it was never asked for.
    pub async fn activation(&self, extension: &str, hash: &str) -> Result<Option<ApprovalState>> {
        let (extension, hash) = (extension.to_owned(), hash.to_owned());
        self.read(move |db| activations::state(db, &extension, &hash)).await
    }

    /// Records the operator's answer, and who gave it, under the approval's id or the extension that waits; gives
    /// the approval as it is then. Under its id one may be answered again, which replaces the answer; each answer
    /// is a row of the audit. Gives none where there is nothing to answer under that name.
    ///
    /// Refuses with [`StoreError::AmbiguousApproval`], [`StoreError::Withdrawn`], or [`StoreError::NotAsShown`] where `shown`
    /// is not the hash of the content.
    pub async fn answer_activation(
        &self,
        id_or_extension: &str,
        allow: bool,
        shown: Option<String>,
        by: String,
    ) -> Result<Option<Approval>> {
        let named = id_or_extension.to_owned();
        self.write(Survives::Power, move |on| activations::answer(on, &named, allow, shown.as_deref(), &by))
            .await
    }

    /// What waits for this extension is not there any more. Answers that were given still hold for their contents.
    pub async fn withdraw_activation(&self, extension: &str) -> Result<()> {
        let extension = extension.to_owned();
        self.write(Survives::Process, move |on| activations::withdraw(on, &extension)).await
    }

    /// Every approval: those that wait first, then the one that was asked for last first.
    pub async fn activations(&self) -> Result<Vec<Approval>> {
        self.read(activations::list).await
    }

    /// Waits until something is written, or returns at once where something was since the last time. For one task alone.
    pub async fn until_written(&self) {
        self.engine.writes.notified().await;
    }

    /// Totals for `status`.
    pub async fn counts(&self) -> Result<Counts> {
        self.read(sessions::counts).await
    }

    /// Commits what waits, marks the journal as closed in order, and closes it. Other handles get
    /// [`StoreError::Closed`] from here on.
    pub async fn close(self) -> Result<()> {
        let Some(threads) = &self.engine.threads else {
            return self.engine.writer.close(Vec::new());
        };
        // The reader first: the last connection to go removes the log.
        let (reply, stopped) = oneshot::channel();
        threads.questions.send(Question::Stop(reply)).await.map_err(|_| StoreError::Closed)?;
        stopped.await.map_err(|_| StoreError::Closed)?;
        let (reply, closed) = oneshot::channel();
        threads.commands.send(Command::Stop(reply)).await.map_err(|_| StoreError::Closed)?;
        closed.await.map_err(|_| StoreError::Closed)?
    }

    /// Whether a later process can read it.
    pub(crate) fn outlives_this_process(&self) -> bool {
        self.engine.threads.is_some()
    }

    /// Where it is a file.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.engine.threads.as_ref().map(|threads| &*threads.path)
    }

    pub(crate) async fn write<T, F>(&self, survives: Survives, work: F) -> Result<T>
    where
        F: FnMut(&mut Writing<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let Engine { writer, threads, writes } = &*self.engine;
        self.broken.check()?;
        let (job, answer) = Task::posted(survives, work);
        match threads {
            Some(threads) if survives == Survives::Power && threads.waits == Waits::WherePromised => {
                threads.commands.send(Command::Job(job)).await.map_err(|_| StoreError::Closed)?;
            }
            _ => {
                {
                    let _posted = writer.post(job);
                    tokio::task::yield_now().await;
                }
                // Whoever waits for the disk is the thread.
                if let Some(threads) = threads
                    && writer.growth.ask()
                    && threads.commands.try_send(Command::CheckPoint).is_err()
                {
                    writer.growth.not_heard();
                }
            }
        }
        let answer = answer.await.unwrap_or_else(|_| Err(writer.lost()));
        writes.notify_one();
        self.written(answer)
    }

    /// Asks what may take a while to answer.
    pub(crate) async fn read<T, F>(&self, ask: F) -> Result<T>
    where
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let Some(threads) = &self.engine.threads else {
            return self.engine.writer.with(|writer| ask(&writer.as_ref().ok_or(StoreError::Closed)?.db));
        };
        let (question, answer) = Question::posted(ask);
        threads.questions.send(question).await.map_err(|_| StoreError::Closed)?;
        self.broken.note(answer.await.unwrap_or(Err(StoreError::Closed)))
    }

    /// Asks what a few rows answer, on the way of a turn.
    pub(crate) async fn read_few<T, F>(&self, ask: F) -> Result<T>
    where
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        if let Some(threads) = &self.engine.threads
            && let Some(reader) = free(&threads.reader)
        {
            let answer = reader::consistently(reader.as_ref().ok_or(StoreError::Closed)?, ask);
            return self.broken.note(answer);
        }
        self.read(ask).await
    }
}

fn files(
    path: &Path,
    waits: Waits,
    clock: Arc<dyn Clock>,
    publish: Publish,
    (recent, broken): (&Arc<Mutex<Recent>>, &Arc<Broken>),
    opening: &Arc<Opening>,
) -> Result<Engine> {
    let precious = Precious { path, keeps: true, now_ms: clock.now_ms(), opening };
    let db = open::file(&precious)?;
    let mut writer = Writer::new(db, waits, clock, publish, Arc::clone(recent), Arc::clone(broken))?;
    writer.alone(Survives::Process, outbox::doubt_all)?;
    let writer = Arc::new(SharedWriter::new(writer));
    let reader = Arc::new(Mutex::new(Some(open::read_only(path)?)));
    let (commands, inbox) = mpsc::channel(QUEUE);
    let (questions, asked) = mpsc::channel(QUEUE);
    let (writes, reads) = (Arc::clone(&writer), Arc::clone(&reader));
    thread::Builder::new().name("journal-writer".into()).spawn(move || writer::serve(&writes, inbox))?;
    thread::Builder::new().name("journal-reader".into()).spawn(move || reader::serve(&reads, asked))?;
    Ok(Engine {
        writer,
        threads: Some(Threads { reader, commands, questions, waits, path: path.to_owned() }),
        writes: Notify::new(),
    })
}
