//! When a journal is not gone on with, until it is opened anew.
//!
//! Two faults are no matter of one request. Where a page is damaged, every further write may damage more. Where a sync
//! failed, the system has given up what was to reach the disk, and may say of the next sync that all went well
//! (<https://lwn.net/Articles/752063/>, read on 2026-11-27): a later commit would be promised on top of a hole. From then on
//! nothing is written here. What is on the disk is seen by a process that reads it anew; a mark beside the file says that it
//! must look at all of it before it serves.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use tokio::sync::Notify;

use crate::{Storage, Store, StoreError, disk, open::beside};

/// How the mark beside a journal ends.
const MARK: &str = ".doubted";

/// What became of one open journal.
#[derive(Default)]
pub(crate) struct Broken {
    why: OnceLock<StoreError>,
    told: Notify,
    /// Where the journal is a file.
    path: Option<PathBuf>,
}

impl Broken {
    pub fn of(storage: &Storage) -> Self {
        let path = match storage {
            Storage::Full(path) | Storage::Process(path) => Some(path.clone()),
            Storage::Memory => None,
        };
        Self { path, ..Self::default() }
    }

    /// Refuses what is asked of a journal that is not gone on with.
    pub fn check(&self) -> Result<(), StoreError> {
        self.why.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    /// Takes notice of an error, which may be one after which nothing more is to be written.
    pub fn note<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ (StoreError::Corrupt(_) | StoreError::Unsynced(_))) = &outcome
            && self.why.set(error.clone()).is_ok()
        {
            tracing::error!(%error, "the journal is not gone on with");
            if let Some(path) = &self.path {
                doubt(path, error);
            }
            self.told.notify_waiters();
        }
        outcome
    }

    /// Waits until it is not gone on with; why.
    pub async fn wait(&self) -> StoreError {
        loop {
            let told = self.told.notified();
            if let Some(why) = self.why.get() {
                return why.clone();
            }
            told.await;
        }
    }
}

impl Store {
    /// Waits until the journal is not gone on with: a page of it is damaged, or the disk did not confirm what was written. From
    /// then on every request that writes is refused. Whoever serves with it ends, without [`close`](Self::close), and the next
    /// start looks at all of it.
    pub async fn broken(&self) -> StoreError {
        self.broken.wait().await
    }

    /// Why it is not gone on with, where it is not: the same without waiting.
    pub fn is_broken(&self) -> Option<StoreError> {
        self.broken.check().err()
    }

    /// What came of a request that writes. SQLite knows a quota, or a file system that was taken away, as a fault of the disk like
    /// any other: what the system says of another file beside it is told instead.
    pub(crate) fn written<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match (self.broken.note(outcome), self.file()) {
            (Err(StoreError::Io(text)), Some(path)) => {
                Err(disk::refusal(&beside(path, ".room")).unwrap_or(StoreError::Io(text)))
            }
            (outcome, _) => outcome,
        }
    }
}

/// Notes beside a journal that its next opening must look at all of it.
pub(crate) fn doubt(path: &Path, why: &StoreError) {
    let mark = || {
        let mut mark = OpenOptions::new();
        let mut mark = mark.write(true).create(true).truncate(true).mode(0o600).open(beside(path, MARK))?;
        writeln!(mark, "{why}")?;
        mark.sync_all()
    };
    // Without it the next start checks what it always does after an end that was not in order.
    if let Err(error) = mark() {
        tracing::warn!(%error, "the mark beside the journal is not written");
    }
}

/// Whether an earlier process did not go on with a journal.
pub(crate) fn is_doubted(path: &Path) -> bool {
    beside(path, MARK).exists()
}

/// All of it was looked at, and is on the disk.
pub(crate) fn trust(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(beside(path, MARK)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
