//! A turn that begins: its start goes into the journal with the first thing that it records.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drupe_agent::{Batch, EarlierTurn, Journal, JournalFuture, Recipe};
use drupe_extension_api::{EffectId, SessionId};

use crate::{Store, TurnStart};

/// The journal of a turn that has not begun before, for its loop. A commit that fails leaves the start to the next.
///
/// What is left of it when nothing was recorded must go into [`TurnDone::start`](crate::TurnDone::start).
pub struct Beginning {
    store: Store,
    start: Mutex<Option<TurnStart>>,
}

impl Store {
    /// The journal of a turn that begins, which saves a transaction over [`start_turn`](Self::start_turn).
    pub fn beginning(&self, start: TurnStart) -> Arc<Beginning> {
        Arc::new(Beginning { store: self.clone(), start: Mutex::new(Some(start)) })
    }
}

impl Beginning {
    /// The start, if nothing was recorded.
    pub fn rest(&self) -> Option<TurnStart> {
        self.start().take()
    }

    fn start(&self) -> MutexGuard<'_, Option<TurnStart>> {
        self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for Beginning {
    fn commit(&self, batch: Batch) -> JournalFuture<'_, ()> {
        let Some(start) = self.rest() else { return self.store.commit(batch) };
        Box::pin(async move {
            let recorded = self.store.record(Some(start.clone()), batch).await;
            if recorded.is_err() {
                *self.start() = Some(start);
            }
            Ok(recorded?)
        })
    }

    fn output(&self, session: SessionId, effect: EffectId) -> JournalFuture<'_, Option<String>> {
        self.store.output(session, effect)
    }

    fn image(&self, hash: String) -> JournalFuture<'_, Option<Vec<u8>>> {
        self.store.image(hash)
    }

    fn recipe(&self, hash: String) -> JournalFuture<'_, Option<Recipe>> {
        self.store.recipe(hash)
    }

    fn earlier(
        &self,
        session: SessionId,
        words: Vec<String>,
        most: usize,
    ) -> JournalFuture<'_, Vec<EarlierTurn>> {
        self.store.earlier(session, words, most)
    }
}
