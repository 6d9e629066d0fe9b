//! The loop's records. What they mean is the loop's business: they are read back in the order in which they were
//! committed, and put together by [`RecordedTurn`].

use drupe_agent::{Batch, Entry, Journal, JournalFault, RecordedTurn};
use drupe_extension_api::{EffectClass, EffectId, SessionId, TurnId};
use futures_util::future::BoxFuture;

use crate::{
    Store, StoreError, TurnStart,
    bus::{self, WhenFull},
    log::{self, Record},
    parts, recipes, turns, usage,
    writer::{Survives, Writing},
};

impl Journal for Store {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), JournalFault>> {
        Box::pin(async move { Ok(self.write(survives(&batch), move |on| write(on, None, &batch)).await?) })
    }

    fn load(&self, turn: TurnId) -> BoxFuture<'_, Result<RecordedTurn, JournalFault>> {
        Box::pin(async move { Ok(self.recorded(turn).await?) })
    }

    fn output(
        &self,
        session: SessionId,
        effect: EffectId,
    ) -> BoxFuture<'_, Result<Option<String>, JournalFault>> {
        Box::pin(async move { Ok(self.result_of(&session, effect).await?) })
    }
}

impl Store {
    /// What is recorded of the runs of a turn that has no answer yet.
    pub async fn recorded(&self, turn: TurnId) -> Result<RecordedTurn, StoreError> {
        let mut recorded = RecordedTurn::default();
        if let Some(span) = self.read(move |db| parts::span_of_open(db, &turn)).await? {
            self.each_entry(span, |_, entry| recorded.extend([entry])).await?;
        }
        Ok(recorded)
    }
}

/// Only a tool that must not run twice needs on the disk that it starts, before it does. A call that has its result
/// in the same batch was refused: nothing will run.
pub(crate) fn survives(batch: &Batch) -> Survives {
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

/// Records a batch, and before it that its turn begins, where it does.
pub(crate) fn write(
    on: &mut Writing<'_>,
    start: Option<&TurnStart>,
    batch: &Batch,
) -> Result<(), StoreError> {
    let turn = match start {
        Some(start) => turns::begin(on, start)?,
        None => turns::known(on, &batch.turn)?,
    };
    usage::count_entries(on, &turn, &batch.entries)?;
    recipes::keep(on, turn.number, &batch.recipes)?;
    let before = start.map_or(&[][..], |start| &start.events);
    let record = Record { before, runs: &batch.runs, entries: &batch.entries, after: &[] };
    log::append(on, &turn.session, Some(&turn), record)?;
    for entry in &batch.entries {
        if let Entry::Steered { turn: taken, .. } = entry {
            turns::taken_in(on, &turn, taken)?;
        }
    }
    batch.messages.iter().try_for_each(|message| bus::publish(on, message, WhenFull::Bury))
}
