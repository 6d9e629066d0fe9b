//! A journal without a file.

use std::sync::{Arc, Mutex, PoisonError};

use drupe_extension_api::{EffectId, SessionId, TurnId};

use super::{Batch, EarlierTurn, Entry, Journal, JournalFuture, Recipe, RecordedTurn};

/// A journal without a file, for runs that need not outlive the process.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    batches: Mutex<Vec<Batch>>,
}

impl MemoryJournal {
    /// All that was committed, in order.
    pub fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A journal that holds only the first `commits` of this one, as after a crash.
    pub fn cut(&self, commits: usize) -> Arc<Self> {
        Arc::new(Self { batches: Mutex::new(self.batches().into_iter().take(commits).collect()) })
    }

    /// What is recorded of a turn: all of its runs.
    pub fn recorded(&self, turn: &TurnId) -> RecordedTurn {
        self.batches().into_iter().filter(|b| b.turn == *turn).flat_map(|b| b.entries).collect()
    }
}

impl Journal for MemoryJournal {
    fn commit(&self, batch: Batch) -> JournalFuture<'_, ()> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
        Box::pin(std::future::ready(Ok(())))
    }

    fn output(&self, session: SessionId, effect: EffectId) -> JournalFuture<'_, Option<String>> {
        let entries = self.batches().into_iter().filter(|b| b.session == session).flat_map(|b| b.entries);
        let results = entries.filter_map(|entry| match entry {
            Entry::Result { effect: of, content, .. } if of == effect => Some(content),
            _ => None,
        });
        Box::pin(std::future::ready(Ok(results.last())))
    }

    fn image(&self, hash: String) -> JournalFuture<'_, Option<Vec<u8>>> {
        let entries = self.batches().into_iter().flat_map(|batch| batch.entries);
        let images = entries.flat_map(|entry| match entry {
            Entry::Result { images, .. } => images,
            _ => Vec::new(),
        });
        let found = images.filter(|image| image.hash == hash).find_map(|image| image.data);
        Box::pin(std::future::ready(Ok(found.map(|data| data.to_vec()))))
    }

    fn recipe(&self, hash: String) -> JournalFuture<'_, Option<Recipe>> {
        let mut kept = self.batches().into_iter().flat_map(|batch| batch.recipes);
        let found = kept.find(|kept| *kept.hash == *hash).and_then(|kept| Recipe::read(&kept.json).ok());
        Box::pin(std::future::ready(Ok(found)))
    }

    /// It knows of entries, and not of messages and answers.
    fn earlier(&self, _: SessionId, _: Vec<String>, _: usize) -> JournalFuture<'_, Vec<EarlierTurn>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
