//! The one place that writes: requests in, transactions out.
//!
//! Requests that came in while the last transaction was being committed are committed together, each behind a
//! savepoint, so that one that fails takes nothing along. If the transaction itself fails, each is tried alone:
//! a full disk refuses the message that does not fit, not its neighbours. A request is answered after its
//! commit, and its events are published between the two.
//!
//! The writer does not know what its requests do.

use std::sync::Arc;

use drupe_agent::Clock;
use drupe_extension_api::Event;
use rusqlite::{CachedStatement, Connection};
use tokio::sync::{mpsc, oneshot};

use crate::{Publish, StoreError, open::keep_plans};

/// The most requests in one transaction. It bounds how long the first of them waits for the last; a transaction
/// of so many small ones takes a few milliseconds, about as long as the wait for the disk that they share.
const GROUP: usize = 256;

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

/// A request at work: the connection, the time, and the events that it leaves.
pub(crate) struct Writing<'a> {
    pub db: &'a Connection,
    clock: &'a dyn Clock,
    events: Vec<Arc<Event>>,
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

    /// Has an event published, if and when this request is committed.
    pub fn publish(&mut self, event: Event) {
        self.events.push(Arc::new(event));
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
    /// A request for the writer's thread, and its answer.
    pub fn posted(survives: Survives, work: F) -> (Command, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Command::Job(Box::new(Self { survives, work, outcome: None, reply: Some(reply) })), answer)
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
    Stop(oneshot::Sender<Result<(), StoreError>>),
}

/// The connection that writes.
pub(crate) struct Writer {
    pub db: Connection,
    waits: Waits,
    set: Option<Survives>,
    clock: Arc<dyn Clock>,
    publish: Publish,
}

impl Writer {
    pub fn new(
        db: Connection,
        waits: Waits,
        clock: Arc<dyn Clock>,
        publish: Publish,
    ) -> Result<Self, StoreError> {
        // Every statement of this crate, with room for more.
        db.set_prepared_statement_cache_capacity(96);
        keep_plans(&db)?;
        db.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self { db, waits, set: None, clock, publish })
    }

    /// Serves until it is told to stop, or nobody is left to ask.
    pub fn serve(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.blocking_recv() {
            let mut jobs = Vec::new();
            let mut next = Some(command);
            while let Some(command) = next.take() {
                match command {
                    Command::Job(job) => jobs.push(job),
                    Command::Stop(reply) => {
                        self.group(jobs);
                        let _ = reply.send(self.close());
                        return;
                    }
                }
                if jobs.len() < GROUP {
                    next = commands.try_recv().ok();
                }
            }
            self.group(jobs);
        }
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
        self.db.close().map_err(|(_, error)| error.into())
    }

    fn group(&mut self, mut jobs: Vec<Box<dyn Job>>) {
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
        let survives = jobs.iter().map(|job| job.survives()).max().unwrap_or(Survives::Process);
        if !self.db.is_autocommit() {
            // A request panicked in the middle of its transaction.
            self.execute("ROLLBACK")?;
        }
        self.promise(survives)?;
        self.execute("BEGIN IMMEDIATE")?;
        let committed = self.inside(jobs).and_then(|events| self.execute("COMMIT").map(|()| events));
        match committed {
            Ok(events) => {
                events.into_iter().for_each(|event| (self.publish)(event));
                Ok(())
            }
            Err(error) => {
                if !self.db.is_autocommit() {
                    self.execute("ROLLBACK")?;
                }
                Err(error)
            }
        }
    }

    fn inside<'j>(&self, jobs: &mut [&mut (dyn Job + 'j)]) -> Result<Vec<Arc<Event>>, StoreError> {
        let mut events = Vec::new();
        // A request that has the transaction for itself needs nothing that keeps it from others.
        let shared = jobs.len() > 1;
        for job in jobs {
            if shared {
                self.execute("SAVEPOINT request")?;
            }
            let mut on = Writing { db: &self.db, clock: &*self.clock, events: Vec::new() };
            if job.run(&mut on) {
                events.append(&mut on.events);
            } else if shared && !self.db.is_autocommit() {
                self.execute("ROLLBACK TO request")?;
            } else {
                // Either there is nothing else to keep, or SQLite itself ended the transaction, as it may when the
                // disk is full: the work of the others is gone as well.
                return Err(StoreError::Database("the transaction was rolled back".into()));
            }
            if shared {
                self.execute("RELEASE request")?;
            }
        }
        Ok(events)
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
