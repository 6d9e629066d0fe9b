//! The loop's records. What they mean is the loop's business: they are read back in the order in which they were
//! committed, and put together by [`RecordedInvocation::of`].

use drupe_agent::{Batch, Entry, Journal, JournalFault, RecordedInvocation};
use drupe_extension_api::{EffectClass, EffectId, InvocationId, SessionId};
use futures_util::future::BoxFuture;
use rusqlite::Connection;

use crate::{
    Store, StoreError, TurnStart, bus, find, log, turns, usage,
    writer::{Survives, Writing},
};

impl Journal for Store {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), JournalFault>> {
        Box::pin(async move { Ok(self.write(survives(&batch), move |on| write(on, None, &batch)).await?) })
    }

    fn load(
        &self,
        invocation: InvocationId,
    ) -> BoxFuture<'_, Result<Option<RecordedInvocation>, JournalFault>> {
        Box::pin(async move { Ok(self.read(move |db| load(db, &invocation)).await?) })
    }

    fn output(
        &self,
        session: SessionId,
        effect: EffectId,
    ) -> BoxFuture<'_, Result<Option<String>, JournalFault>> {
        Box::pin(async move { Ok(self.read(move |db| find::output(db, &session, &effect)).await?) })
    }
}

/// Only a tool that must not run twice needs its intent on the disk before it runs. A call that has its result
/// in the same batch was refused: nothing will run.
pub(crate) fn survives(batch: &Batch) -> Survives {
    let ended = |effect: &EffectId| {
        batch
            .entries
            .iter()
            .any(|entry| matches!(entry, Entry::Result { effect: known, .. } if known == effect))
    };
    let runs_once = batch.entries.iter().any(
        |entry| matches!(entry, Entry::Intent { class: EffectClass::Once, effect, .. } if !ended(effect)),
    );
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
    let before = start.map_or(&[][..], |start| &start.events);
    log::append(on, &turn.session, Some(&turn), [before, &batch.events], [&batch.entries, &[]])?;
    for entry in &batch.entries {
        if let Entry::Steered { turn: taken, .. } = entry {
            turns::taken_in(on, &turn, taken)?;
        }
    }
    batch.messages.iter().try_for_each(|message| bus::publish(on, message))
}

/// Only turns without an answer are searched: nobody goes on with another one.
fn load(db: &Connection, invocation: &InvocationId) -> Result<Option<RecordedInvocation>, StoreError> {
    let mut rows = db.prepare_cached(
        "SELECT entries FROM turns JOIN log
         ON log.id > turns.session * 4294967296 + turns.after_seq AND log.id < (turns.session + 1) * 4294967296
         WHERE turns.finished_ms IS NULL AND log.turn = turns.number AND instr(entries, ?1) > 0
         ORDER BY log.id",
    )?;
    let found = rows.query_map([invocation.as_str()], |row| log::recorded(row, 0))?;
    let entries = found.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordedInvocation::of(invocation, entries.into_iter().flatten()))
}
