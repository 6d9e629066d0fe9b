//! The one place that writes: requests in, transactions out.
//!
//! Requests that came in while the last transaction was being committed are committed together. If one of them
//! fails, which is rare, all are carried out again, each behind a savepoint, so that it takes nothing along. If the
//! transaction itself fails, each is tried alone:
//! a full disk refuses the message that does not fit, not its neighbours. A request is answered after its
//! commit, and its events are published between the two.
//!
//! The writer does not know what its requests do.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use drupe_agent::Clock;
use rusqlite::{CachedStatement, Connection, hooks::Wal};
use tokio::sync::{mpsc, oneshot};

use crate::{
    Publish, Published, StoreError,
    broken::Broken,
    cache::Cache,
    growth::Growth,
    open::keep_plans,
    recent::{Change, Recent},
    shared::{SharedWriter, lock, together},
};

/// The most requests in one transaction. It bounds how long the first of them waits for the last; a transaction
/// of so many small ones takes a few milliseconds, about as long as the wait for the disk that they share.
pub(crate) const GROUP: usize = 256;

/// Requests after which the log is written back, unless it has grown far before. Each leaves some pages in it: a few
/// megabytes.
const LOGGED: u32 = 512;

/// The largest memory for serialised rows that is kept for the next one.
const BUFFER: usize = 64 * 1024;

/// What a request must outlive, once it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Survives {
    /// The death of this process.
    Process,
    /// A loss of power.
    Power,
}

/// What the disk is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// For every request that must survive a loss of power.
    WherePromised,
    /// Never.
    Never,
}

/// A request at work: the connection, the time, what is remembered of rows, and what shall be published.
pub(crate) struct Writing<'a> {
    pub db: &'a Connection,
    pub cache: &'a mut Cache,
    clock: &'a dyn Clock,
    after: &'a mut After,
}

/// What a commit makes known.
#[derive(Default)]
pub(crate) struct After {
    published: Vec<Published>,
    changes: Vec<Change>,
}

impl After {
    fn clear(&mut self) {
        self.published.clear();
        self.changes.clear();
    }
}

impl<'a> Writing<'a> {
    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// A statement, prepared at its first use.
    pub fn statement(&self, sql: &'static str) -> Result<CachedStatement<'a>, StoreError> {
        Ok(self.db.prepare_cached(sql)?)
    }

    /// Has something published, if and when this request is committed.
    pub fn publish(&mut self, what: Published) {
        self.after.published.push(what);
    }

    /// Has a turn's new state remembered, if and when this request is committed.
    pub fn change(&mut self, change: Change) {
        self.after.changes.push(change);
    }

    /// Memory to serialise into; give it back with [`give_back`](Self::give_back).
    pub fn buffers(&mut self) -> [Vec<u8>; 2] {
        std::mem::take(&mut self.cache.buffers)
    }

    pub fn give_back(&mut self, buffers: [Vec<u8>; 2]) {
        self.cache.buffers =
            buffers.map(|buffer| if buffer.capacity() > BUFFER { Vec::new() } else { buffer });
    }
}

/// A request. It may be carried out more than once, and only the last time counts.
pub(crate) trait Job: Send {
    fn survives(&self) -> Survives;
    /// Carries it out; false if it failed.
    fn run(&mut self, on: &mut Writing<'_>) -> bool;
    /// What it did is not recorded.
    fn fail(&mut self, error: &StoreError);
    fn answer(self: Box<Self>);
}

/// The one kind of [`Job`]: a function and who waits for its value.
pub(crate) struct Task<F, T> {
    survives: Survives,
    work: F,
    outcome: Option<Result<T, StoreError>>,
    reply: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<F, T> Task<F, T>
where
    F: FnMut(&mut Writing<'_>) -> Result<T, StoreError> + Send + 'static,
    T: Send + 'static,
{
    /// A request that others carry out, and its answer.
    pub fn posted(survives: Survives, work: F) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Self { survives, work, outcome: None, reply: Some(reply) }), answer)
    }
}

impl<F, T> Job for Task<F, T>
where
    F: FnMut(&mut Writing<'_>) -> Result<T, StoreError> + Send,
    T: Send,
{
    fn survives(&self) -> Survives {
        self.survives
    }

    fn run(&mut self, on: &mut Writing<'_>) -> bool {
        let outcome = (self.work)(on);
        let done = outcome.is_ok();
        self.outcome = Some(outcome);
        done
    }

    fn fail(&mut self, error: &StoreError) {
        if !matches!(self.outcome, Some(Err(_))) {
            self.outcome = Some(Err(error.clone()));
        }
    }

    fn answer(self: Box<Self>) {
        if let Some(reply) = self.reply {
            // Nobody waits any longer: what was recorded stays recorded.
            let _ = reply.send(self.outcome.unwrap_or(Err(StoreError::Closed)));
        }
    }
}

/// What the writer's thread is told.
pub(crate) enum Command {
    Job(Box<dyn Job>),
    /// The log has grown, and is to be written back.
    CheckPoint,
    Stop(oneshot::Sender<Result<(), StoreError>>),
}

/// Serves until it is told to stop, or nobody is left to ask.
pub(crate) fn serve(shared: &SharedWriter, mut commands: mpsc::Receiver<Command>) {
    while let Some(command) = commands.blocking_recv() {
        // Where all processors are busy, those who keep them so may have more for the same transaction.
        thread::yield_now();
        let mut next = Some(command);
        let stop = shared.with(|writer| {
            while next.is_some() {
                // What others put beside the writer since costs little more in the same transaction.
                let mut jobs = shared.take();
                while let Some(command) = next.take() {
                    match command {
                        Command::Job(job) => jobs.push(job),
                        Command::CheckPoint => {}
                        Command::Stop(reply) => return Some((jobs, reply)),
                    }
                    if jobs.len() < GROUP {
                        next = commands.try_recv().ok();
                    }
                }
                if !jobs.is_empty() {
                    together(writer, jobs);
                }
                if let Some(writer) = writer {
                    writer.check_point();
                }
                next = commands.try_recv().ok();
            }
            None
        });
        if let Some((jobs, reply)) = stop {
            let _ = reply.send(shared.close(jobs));
            return;
        }
    }
}

/// The connection that writes.
pub(crate) struct Writer {
    pub db: Connection,
    waits: Waits,
    set: Option<Survives>,
    clock: Arc<dyn Clock>,
    publish: Publish,
    cache: Cache,
    after: After,
    recent: Arc<Mutex<Recent>>,
    /// Requests since the log was last written back, and how far it has grown.
    logged: u32,
    pub growth: Arc<Growth>,
    broken: Arc<Broken>,
}

/// How the requests of one transaction are kept apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// Not at all: that one of them fails is rare, and then all are carried out again.
    No,
    /// Each behind a savepoint.
    Savepoints,
}

impl Writer {
    pub fn new(
        mut db: Connection,
        waits: Waits,
        clock: Arc<dyn Clock>,
        publish: Publish,
        recent: Arc<Mutex<Recent>>,
        broken: Arc<Broken>,
    ) -> Result<Self, StoreError> {
        // Every statement of this crate, with room for more.
        db.set_prepared_statement_cache_capacity(96);
        keep_plans(&db)?;
        db.pragma_update(None, "synchronous", "OFF")?;
        let growth = Arc::<Growth>::default();
        if waits == Waits::WherePromised {
            // Writing the log back waits for the disk, which is the thread's to do: see `check_point`.
            db.pragma_update(None, "wal_autocheckpoint", 0)?;
            let grown = Arc::clone(&growth);
            db.wal_hook(Some(move |_: &mut Wal, pages| {
                grown.committed(pages);
                Ok(())
            }))?;
        }
        let (cache, after) = (Cache::default(), After::default());
        Ok(Self { db, waits, set: None, clock, publish, cache, after, recent, logged: 0, growth, broken })
    }

    /// Carries one request out, here and now.
    pub fn alone<T: Send>(
        &mut self,
        survives: Survives,
        work: impl FnMut(&mut Writing<'_>) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let mut task = Task { survives, work, outcome: None, reply: None };
        if let Err(error) = self.together(&mut [&mut task]) {
            task.fail(&error);
        }
        task.outcome.unwrap_or(Err(StoreError::Closed))
    }

    /// Takes the mark of an open file away, and closes it.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.alone(Survives::Process, |on| crate::open::unmark(on.db))?;
        *lock(&self.recent) = Recent::default();
        // SQLite would do it with the last connection, and keep to itself that the disk did not confirm it.
        let back = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if let Err(error @ (StoreError::Unsynced(_) | StoreError::Corrupt(_))) =
            self.broken.note(back.map_err(StoreError::from))
        {
            return Err(error);
        }
        self.db.close().map_err(|(_, error)| error.into())
    }

    pub fn group(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        let mut all: Vec<&mut dyn Job> = jobs.iter_mut().map(|job| &mut **job as &mut dyn Job).collect();
        match self.together(&mut all) {
            Err(error) if all.len() == 1 => all[0].fail(&error),
            Err(error) => {
                tracing::debug!(%error, requests = all.len(), "a transaction failed; its requests are tried alone");
                for job in all {
                    if let Err(error) = self.together(&mut [&mut *job]) {
                        job.fail(&error);
                    }
                }
            }
            Ok(()) => {}
        }
        for job in jobs {
            job.answer();
        }
    }

    /// All of `jobs` in one transaction. After an error none of them is recorded.
    fn together<'j>(&mut self, jobs: &mut [&mut (dyn Job + 'j)]) -> Result<(), StoreError> {
        self.logged = self.logged.saturating_add(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
        let survives = jobs.iter().map(|job| job.survives()).max().unwrap_or(Survives::Process);
        self.promise(survives)?;
        let mut committed = self.transaction(jobs, Apart::No);
        if committed.is_err() && jobs.len() > 1 {
            committed = self.transaction(jobs, Apart::Savepoints);
        }
        committed?;
        if !self.after.changes.is_empty() {
            let mut recent = lock(&self.recent);
            self.after.changes.drain(..).for_each(|change| recent.apply(change));
        }
        let mut due = false;
        for what in self.after.published.drain(..) {
            // Once is enough for all of them.
            match what {
                Published::Due => due = true,
                what => (self.publish)(what),
            }
        }
        if due {
            (self.publish)(Published::Due);
        }
        Ok(())
    }

    fn transaction<'j>(&mut self, jobs: &mut [&mut (dyn Job + 'j)], apart: Apart) -> Result<(), StoreError> {
        // Also of the attempt before: what one sync did not confirm, the next one would.
        self.broken.check()?;
        if !self.db.is_autocommit() {
            // A request panicked in the middle of its transaction.
            self.cache.clear();
            self.execute("ROLLBACK")?;
        }
        self.after.clear();
        self.execute("BEGIN IMMEDIATE")?;
        let committed = self.inside(jobs, apart).and_then(|()| self.execute("COMMIT"));
        let committed = self.broken.note(committed);
        if committed.is_err() {
            self.cache.clear();
            self.after.clear();
            if !self.db.is_autocommit() {
                self.execute("ROLLBACK")?;
            }
        }
        committed
    }

    fn inside<'j>(&mut self, jobs: &mut [&mut (dyn Job + 'j)], apart: Apart) -> Result<(), StoreError> {
        for job in jobs {
            if apart == Apart::Savepoints {
                self.execute("SAVEPOINT request")?;
            }
            let said = (self.after.published.len(), self.after.changes.len());
            let mut on =
                Writing { db: &self.db, cache: &mut self.cache, clock: &*self.clock, after: &mut self.after };
            if !job.run(&mut on) {
                self.cache.clear();
                self.after.published.truncate(said.0);
                self.after.changes.truncate(said.1);
                if apart == Apart::No || self.db.is_autocommit() {
                    // Nothing keeps the others apart from it; or SQLite itself ended the transaction, as it may when
                    // the disk is full: the work of the others is gone as well.
                    return Err(StoreError::Database("the transaction was rolled back".into()));
                }
                self.execute("ROLLBACK TO request")?;
            }
            if apart == Apart::Savepoints {
                self.execute("RELEASE request")?;
            }
        }
        Ok(())
    }

    /// Writes the log back into the file, where it has grown: here, where nobody waits for it but the next group.
    fn check_point(&mut self) {
        let due = self.logged >= LOGGED || self.growth.is_due();
        if self.waits == Waits::Never || !due || self.broken.check().is_err() {
            return;
        }
        self.logged = 0;
        self.growth.written_back();
        // The log is whole whether or not it is written back; the next time may do.
        let back = self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = self.broken.note(back.map_err(StoreError::from)) {
            tracing::warn!(%error, "the journal's log could not be written back; it grows");
        }
    }

    /// Sets what the next commit waits for. A commit that waits makes all earlier ones safe, too.
    fn promise(&mut self, survives: Survives) -> Result<(), StoreError> {
        if self.waits == Waits::Never || self.set == Some(survives) {
            return Ok(());
        }
        let level = match survives {
            Survives::Power => "FULL",
            Survives::Process => "NORMAL",
        };
        self.db.pragma_update(None, "synchronous", level)?;
        self.set = Some(survives);
        Ok(())
    }

    fn execute(&self, sql: &'static str) -> Result<(), StoreError> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}
