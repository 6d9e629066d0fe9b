//! The loop's records, as they are committed. What they mean is the loop's business.

use drupe_agent::{Batch, EarlierTurn, Entry, Journal, JournalFuture, Recipe};
use drupe_extension_api::{EffectClass, EffectId, SessionId};

use crate::{
    Store, TurnStart,
    bus::{self, WhenFull},
    checkpoints,
    error::Result,
    images,
    log::{self, Record},
    recipes, results, turns, usage,
    writer::{Survives, Writing},
};

impl Journal for Store {
    fn commit(&self, batch: Batch) -> JournalFuture<'_, ()> {
        Box::pin(async move { Ok(self.record(None, batch).await?) })
    }

    fn output(&self, session: SessionId, effect: EffectId) -> JournalFuture<'_, Option<String>> {
        Box::pin(async move { Ok(self.result_of(&session, effect).await?) })
    }

    fn image(&self, hash: String) -> JournalFuture<'_, Option<Vec<u8>>> {
        Box::pin(async move { Ok(self.read(move |db| images::of(db, &hash)).await?) })
    }

    fn recipe(&self, hash: String) -> JournalFuture<'_, Option<Recipe>> {
        Box::pin(async move {
            let found = self.read(move |db| recipes::of(db, [hash].into())).await?;
            Ok(found.into_values().next())
        })
    }

    fn earlier(
        &self,
        session: SessionId,
        words: Vec<String>,
        most: usize,
    ) -> JournalFuture<'_, Vec<EarlierTurn>> {
        Box::pin(async move { Ok(self.read(move |db| results::earlier(db, &session, &words, most)).await?) })
    }
}

impl Store {
    /// Records a batch, and before it that its turn begins, where it does.
    pub(crate) async fn record(&self, start: Option<TurnStart>, batch: Batch) -> Result<()> {
        let survives = survives(&batch);
        let work = move |on: &mut Writing<'_>| write(on, start.as_ref(), &batch);
        // Whoever waits for it is the turn that grew so long, and nobody else.
        if let Some(turn) = self.write(survives, work).await? {
            self.check_point(turn).await;
        }
        Ok(())
    }
}

/// Only a tool that must not run twice needs on the disk that it starts, before it does. A call that has its result
/// in the same batch was refused: nothing will run.
fn survives(batch: &Batch) -> Survives {
    let ended = |effect: &EffectId| {
        batch
            .entries
            .iter()
            .any(|entry| matches!(entry, Entry::Result { effect: known, .. } if known == effect))
    };
    let runs_once = batch.entries.iter().any(|entry| match entry {
        Entry::Intent { class: EffectClass::Once, waits: false, effect, .. } => !ended(effect),
        Entry::Started { .. } => true,
        _ => false,
    });
    if runs_once { Survives::Power } else { Survives::Process }
}

/// Does so; gives the number of the turn where a checkpoint of it is due.
pub(crate) fn write(on: &mut Writing<'_>, start: Option<&TurnStart>, batch: &Batch) -> Result<Option<i64>> {
    let turn = match start {
        Some(start) => turns::begin(on, start)?,
        None => turns::known(on, &batch.turn)?,
    };
    usage::count_entries(on, &turn, &batch.entries)?;
    recipes::keep(on, turn.number, &batch.recipes)?;
    images::keep(on, turn.number, &batch.entries)?;
    let before = start.map_or(&[][..], |start| &start.events);
    let record = Record { before, runs: &batch.runs, entries: &batch.entries, after: &[] };
    log::append(on, &turn.session, Some(&turn), record)?;
    for entry in &batch.entries {
        if let Entry::Steered { turn: taken, .. } = entry {
            turns::taken_in(on, &turn, taken)?;
        }
    }
    batch.messages.iter().try_for_each(|message| bus::publish(on, message, WhenFull::Bury))?;
    Ok(checkpoints::due(on, &turn)?.then_some(turn.number))
}
