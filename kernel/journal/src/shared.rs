//! The writer where several use it: one of them carries out what all of them want.
//!
//! A request that need not wait for the disk is put beside the writer. Its maker then lets other tasks run, which may put
//! theirs there, and the first that comes back carries out all of them in one transaction. A transaction costs about as
//! much as what one request does in it, and requests at the same time change the same pages.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

use crate::{
    StoreError,
    growth::Growth,
    writer::{GROUP, Job, Writer},
};

/// The writer, until it is closed, and the requests that wait for whoever has it next.
pub(crate) struct SharedWriter {
    writer: Mutex<Option<Writer>>,
    waiting: Mutex<Vec<Box<dyn Job>>>,
    /// How far the log of the writer has grown.
    pub growth: Arc<Growth>,
}

impl SharedWriter {
    pub fn new(writer: Writer) -> Self {
        let growth = Arc::clone(&writer.growth);
        Self { writer: Mutex::new(Some(writer)), waiting: Mutex::default(), growth }
    }

    /// Waits for the writer and works with it; it is none once it is closed.
    pub fn with<T>(&self, work: impl FnOnce(&mut Option<Writer>) -> T) -> T {
        // Dropped after the lock, and where `work` panics, too.
        let _afterwards = CarriesOut(self);
        let mut writer = lock(&self.writer);
        work(&mut writer)
    }

    /// Has a request carried out no later than at the end of the guard.
    pub fn post(&self, job: Box<dyn Job>) -> CarriesOut<'_> {
        lock(&self.waiting).push(job);
        CarriesOut(self)
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        lock(&self.waiting).len()
    }

    /// What waits now, for a transaction.
    pub fn take(&self) -> Vec<Box<dyn Job>> {
        let mut waiting = lock(&self.waiting);
        let most = waiting.len().min(GROUP);
        waiting.drain(..most).collect()
    }

    /// Carries `jobs` out and what waits, and closes the file.
    pub fn close(&self, mut jobs: Vec<Box<dyn Job>>) -> Result<(), StoreError> {
        self.with(|writer| {
            let mut writer = writer.take().ok_or(StoreError::Closed)?;
            loop {
                jobs.extend(self.take());
                if jobs.is_empty() {
                    return writer.close();
                }
                writer.group(std::mem::take(&mut jobs));
            }
        })
    }

    /// Why a request got no answer.
    pub fn lost(&self) -> StoreError {
        self.with(|writer| match writer {
            Some(_) => StoreError::Database("a request of the same transaction panicked".into()),
            None => StoreError::Closed,
        })
    }

    /// Carries out what waits, unless somebody has the writer: whoever had it looks here afterwards.
    fn carry_out(&self) {
        loop {
            if self.waiting() == 0 {
                return;
            }
            let Some(mut writer) = free(&self.writer) else { return };
            together(&mut writer, self.take());
        }
    }
}

/// Carries requests out in one transaction; a writer that is closed drops them. A panic belongs to one of them, and not to
/// the one who carries it out. It leaves at most an open transaction, which the next one rolls back.
pub(crate) fn together(writer: &mut Option<Writer>, jobs: Vec<Box<dyn Job>>) {
    let Some(writer) = writer else { return };
    if catch_unwind(AssertUnwindSafe(|| writer.group(jobs))).is_err() {
        tracing::error!("a request to the journal panicked; those of the same transaction are lost");
    }
}

/// Carries out what waits when it is dropped.
pub(crate) struct CarriesOut<'a>(&'a SharedWriter);

impl Drop for CarriesOut<'_> {
    fn drop(&mut self) {
        self.0.carry_out();
    }
}

/// What nobody uses at this moment.
pub(crate) fn free<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(free) => Some(free),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A panic in a request leaves at most an open transaction, which the next request rolls back.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
