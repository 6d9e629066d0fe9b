//! The facts on disk, behind one lock. The file is opened when something is first asked of it, and not made by reading.
//!
//! Everything here blocks. That a fact was recalled is noted in memory and written with the next change, or at the end: no turn
//! waits for the disk because it read something.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::Fault;
use rusqlite::{Connection, Error, Transaction, TransactionBehavior};

use crate::file;

/// All facts, of all namespaces.
#[derive(Debug)]
pub struct FactStore {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    /// When facts were recalled that have not been written yet, by their ids.
    recalled: BTreeMap<i64, i64>,
}

#[derive(Debug)]
struct Open {
    db: Connection,
    /// Device and number of the file that is open.
    file: (u64, u64),
}

/// Why work on the database ended without a result.
#[derive(Debug)]
pub enum StoreFailure {
    Database(Error),
    Fault(Fault),
}

impl From<Error> for StoreFailure {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<Fault> for StoreFailure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl FactStore {
    pub fn new(folder: &Path) -> Self {
        Self { file: folder.join("memory.sqlite"), state: Mutex::default() }
    }

    /// Whether there is a file: without one there are no facts. It takes one look at its folder; where that fails, opening the file
    /// tells why.
    pub fn is_there(&self) -> bool {
        self.file.try_exists().unwrap_or(true)
    }

    /// Reads; what an empty store gives where there is no file.
    pub fn read<T: Default>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreFailure>,
    ) -> Result<T, Fault> {
        let mut state = self.lock();
        if !self.is_there() {
            state.open = None;
            return Ok(T::default());
        }
        let db = &state.open(&self.file)?.db;
        let done = work(db);
        self.settle(&mut state, done)
    }

    /// Changes; all of the work happens or none. The file is made where it is not there.
    pub fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreFailure>,
    ) -> Result<T, Fault> {
        let mut state = self.lock();
        let recalled = state.recalled.clone();
        let done = state.open(&self.file).map_err(StoreFailure::Fault).and_then(|open| {
            let change = open.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut note = change.prepare_cached("UPDATE facts SET recalled = ?2 WHERE id = ?1")?;
                for (id, at) in &recalled {
                    note.execute((id, at))?;
                }
            }
            let done = work(&change)?;
            change.commit()?;
            Ok(done)
        });
        if done.is_ok() {
            state.recalled.clear();
        }
        self.settle(&mut state, done)
    }

    /// Notes that facts were given to a model.
    pub fn recall(&self, ids: impl Iterator<Item = i64>, now_ms: i64) {
        self.lock().recalled.extend(ids.map(|id| (id, now_ms)));
    }

    /// Writes what was noted. Nothing is opened where nothing was.
    pub fn flush(&self) -> Result<(), Fault> {
        if self.lock().recalled.is_empty() || !self.is_there() {
            return Ok(());
        }
        self.write(|_| Ok(()))
    }

    /// A file that turns out to be damaged is closed, so that one that is put in its place is opened.
    fn settle<T>(&self, state: &mut State, done: Result<T, StoreFailure>) -> Result<T, Fault> {
        done.map_err(|failure| match failure {
            StoreFailure::Fault(fault) => fault,
            StoreFailure::Database(error) => {
                state.open = None;
                file::fault(&self.file, &error)
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&mut self, path: &Path) -> Result<&mut Open, Fault> {
        let number = || fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        // Whoever moved the file away or put a backup in its place is not written past.
        let current = self.open.take().filter(|open| number() == Some(open.file));
        let open = match current {
            Some(open) => open,
            None => {
                let db = file::open(path)?;
                Open { db, file: number().ok_or_else(|| Fault::internal("the file of the memory is gone"))? }
            }
        };
        Ok(self.open.insert(open))
    }
}
