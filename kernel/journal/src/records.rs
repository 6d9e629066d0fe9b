//! The loop's records, one row each. What they mean is the loop's business: they are read back in the order in
//! which they were committed, and put together by [`RecordedInvocation::apply`].

use drupe_agent::{Batch, Entry, Journal, JournalFault, RecordedInvocation};
use drupe_extension_api::{EffectClass, EffectId, InvocationId, SessionId, TurnId};
use futures_util::future::BoxFuture;
use rusqlite::{Connection, OptionalExtension};

use crate::{
    Store, StoreError, events,
    rows::json,
    writer::{Survives, Writing},
};

impl Journal for Store {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), JournalFault>> {
        Box::pin(async move { Ok(self.write(survives(&batch), move |on| write(on, &batch)).await?) })
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
        Box::pin(async move { Ok(self.read(move |db| output(db, &session, &effect)).await?) })
    }
}

/// Only a tool that must not run twice needs its intent on the disk before it runs. A call that has its result
/// in the same batch was refused: nothing will run.
fn survives(batch: &Batch) -> Survives {
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

/// Records a batch.
pub(crate) fn write(on: &mut Writing<'_>, batch: &Batch) -> Result<(), StoreError> {
    for record in &batch.entries {
        entry(on, &batch.turn, record)?;
    }
    events::record(on, &batch.session, Some(&batch.turn), &batch.events)
}

/// Records one entry of a turn.
pub(crate) fn entry(on: &Writing<'_>, turn: &TurnId, entry: &Entry) -> Result<(), StoreError> {
    if let Entry::Begin { invocation, agent, parent, depth, .. } = entry {
        on.statement(
            "INSERT INTO invocations (id, turn, agent, parent, depth) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute((
            invocation.as_str(),
            turn.as_str(),
            agent.as_str(),
            parent.as_ref().map(InvocationId::as_str),
            depth,
        ))?;
    }
    on.statement("INSERT INTO entries (invocation, body) VALUES (?1, ?2)")?
        .execute((entry.invocation().as_str(), serde_json::to_string(entry)?))?;
    Ok(())
}

fn load(db: &Connection, invocation: &InvocationId) -> Result<Option<RecordedInvocation>, StoreError> {
    let mut all = db.prepare_cached("SELECT body FROM entries WHERE invocation = ?1 ORDER BY number")?;
    let mut found = None;
    for entry in all.query_map([invocation.as_str()], |row| json(row, 0))? {
        found.get_or_insert_with(RecordedInvocation::default).apply(entry?);
    }
    Ok(found)
}

/// Only the session's own turns are searched, the latest first: a handle is asked for soon after it was given, or
/// never.
fn output(db: &Connection, session: &SessionId, effect: &EffectId) -> Result<Option<String>, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT entries.body
         FROM turns JOIN invocations ON invocations.turn = turns.id
         JOIN entries ON entries.invocation = invocations.id
         WHERE turns.session = (SELECT number FROM sessions WHERE id = ?1)
         AND entries.body ->> 'entry' = 'result' AND entries.body ->> 'effect' = ?2
         ORDER BY turns.number DESC, entries.number DESC LIMIT 1",
    )?;
    let found = find.query_row([session.as_str(), effect.as_str()], |row| json(row, 0)).optional()?;
    Ok(found.and_then(|entry| match entry {
        Entry::Result { content, .. } => Some(content),
        _ => None,
    }))
}
