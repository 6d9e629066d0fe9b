//! Sessions that somebody deletes: all that was said and recorded in them, and in those of agents that were spawned there.
//!
//! They go at once, and what they recorded in pieces after it, which is noted in the same transaction. A row stays that says
//! when it was, under a name that no session can have: sums of use refer to it, no number is given twice, and whoever asks for
//! such a session is told. It deliberately does not stop anything: a session in which something is at work is refused.

use std::time::{Duration, Instant};

use drupe_extension_api::{SessionId, TurnId, control::DeletedSession};
use jiff::Timestamp;
use rusqlite::Connection;

use crate::{
    Store, StoreError, checkpoints, images,
    log::POSITIONS,
    recent::Change,
    retention::{give_back, note, noted},
    rows::{count, id, timestamp},
    writer::{Survives, Writing},
};

/// What stands between the id of a session that is deleted and its number: no id has this sign.
pub(crate) const MARK: char = '!';

/// Rows of the log that are removed in one transaction: others wait for it.
const ROWS: i64 = 256;

/// The shortest pause between two of these, and how much longer than its work each is.
const PAUSE: Duration = Duration::from_millis(5);
const SHARE: u32 = 2;

/// The numbers of sessions whose log is left to remove.
const LEFT: &str = "deleted_left";

impl Store {
    /// Deletes a session, and those of agents that were spawned in it; none where there is no such session. What they recorded
    /// is removed by [`finish_deletions`](Self::finish_deletions).
    ///
    /// Refused where a turn of one of them has no end yet, or a message to people is being sent.
    pub async fn delete_session(&self, session: &SessionId) -> Result<Option<DeletedSession>, StoreError> {
        let session = session.clone();
        self.write(Survives::Power, move |on| overwriting(on, |on| delete(on, &session))).await
    }

    /// Removes what sessions recorded that were deleted, in steps with pauses in which others are served, and gives the room
    /// back. What is dropped in between is gone on with by the next call.
    pub async fn finish_deletions(&self) -> Result<(), StoreError> {
        loop {
            let began = Instant::now();
            let more = self.write(Survives::Process, |on| overwriting(on, step)).await?;
            let shorter = self.write(Survives::Process, |on| give_back(on.db)).await?;
            if !more && !shorter {
                return Ok(());
            }
            tokio::time::sleep((began.elapsed() * SHARE).max(PAUSE)).await;
        }
    }

    /// How many sessions were deleted, ever.
    pub async fn deletions(&self) -> Result<u64, StoreError> {
        self.read_few(|db| {
            let mut all = db.prepare_cached("SELECT count(*) FROM sessions WHERE instr(id, '!') > 0")?;
            Ok(all.query_row([], |row| count(row, 0))?)
        })
        .await
    }

    /// When a session of that id was deleted last; none where none was.
    pub async fn deleted(&self, session: &str) -> Result<Option<Timestamp>, StoreError> {
        let session = session.to_owned();
        self.read_few(move |db| {
            // Marks of one id lie side by side; `"` is the sign behind `!`.
            let mut last = db.prepare_cached(
                "SELECT max(updated_ms) FROM sessions WHERE id > ?1 || '!' AND id < ?1 || '\"'",
            )?;
            let at: Option<i64> = last.query_row([&session], |row| row.get(0))?;
            Ok(at.map(timestamp))
        })
        .await
    }
}

/// A session with those of agents that were spawned in it, and in these.
fn with_spawned(db: &Connection, session: &SessionId) -> Result<Vec<(i64, SessionId)>, StoreError> {
    // What was spawned by a turn that was let go before is below its session by its name; `.` is the sign behind `-`.
    let mut all = db.prepare_cached(
        "WITH RECURSIVE below (number) AS (
             SELECT number FROM sessions WHERE id = ?1 OR (id > ?1 || ':a-' AND id < ?1 || ':a.' AND EXISTS
                 (SELECT 1 FROM turns WHERE turns.session = sessions.number AND origin LIKE 'spawned:%'))
             UNION
             SELECT spawned.session FROM below
             JOIN turns AS own ON own.session = below.number
             JOIN turns AS spawned ON spawned.origin = 'spawned:' || own.id)
         SELECT sessions.number, sessions.id FROM below JOIN sessions USING (number)",
    )?;
    let found = all.query_map([session.as_str()], |row| Ok((row.get(0)?, id(row, 1)?)))?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn delete(on: &mut Writing<'_>, session: &SessionId) -> Result<Option<DeletedSession>, StoreError> {
    let found = with_spawned(on.db, session)?;
    if !found.iter().any(|(_, id)| id == session) {
        return Ok(None);
    }
    let mut deleted = DeletedSession { at: timestamp(on.now_ms()), ..DeletedSession::default() };
    for (number, id) in &found {
        refuse_at_work(on, *number, id)?;
    }
    for (number, id) in &found {
        delete_one(on, *number, id, &mut deleted)?;
        deleted.sessions.push(id.clone());
    }
    let mut left: Vec<i64> = noted(on.db, LEFT)?.unwrap_or_default();
    left.extend(found.iter().map(|(number, _)| *number));
    note(on, LEFT, &left)?;
    on.change(Change::Selected);
    Ok(Some(deleted))
}

/// Overwrites whole pages that become free meanwhile, too: else their bytes stay in the file until something else takes their
/// place.
fn overwriting<T>(
    on: &mut Writing<'_>,
    work: impl FnOnce(&mut Writing<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let set = |to: &str| on.db.pragma_update_and_check(None, "secure_delete", to, |_| Ok(()));
    set("ON")?;
    let done = work(on);
    on.db.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
    done
}

fn refuse_at_work(on: &Writing<'_>, number: i64, id: &SessionId) -> Result<(), StoreError> {
    let mut open = on.statement("SELECT 1 FROM turns WHERE finished_ms IS NULL AND +session = ?1")?;
    let mut sending = on.statement(
        "SELECT 1 FROM outbox WHERE state IN ('due', 'sending') AND state = 'sending' AND session = ?1",
    )?;
    match (open.exists([number])?, sending.exists([number])?) {
        (true, _) => Err(StoreError::AtWork(id.clone())),
        (_, true) => Err(StoreError::BeingSent(id.clone())),
        _ => Ok(()),
    }
}

fn delete_one(
    on: &mut Writing<'_>,
    number: i64,
    session: &SessionId,
    deleted: &mut DeletedSession,
) -> Result<(), StoreError> {
    let turns: Vec<(i64, TurnId)> = {
        let mut all = on.statement("SELECT number, id FROM turns WHERE session = ?1")?;
        all.query_map([number], |row| Ok((row.get(0)?, id(row, 1)?)))?.collect::<Result<_, _>>()?
    };
    let mut records = on.statement("SELECT count(*) FROM log WHERE id > ?1 AND id < ?2")?;
    let range = (number * POSITIONS, (number + 1) * POSITIONS);
    deleted.records += records.query_row(range, |row| count(row, 0))?;
    for (turn, id) in &turns {
        deleted.questions += on.statement("DELETE FROM questions WHERE turn = ?1")?.execute([turn])? as u64;
        images::forget(on, *turn)?;
        checkpoints::forget(on, *turn)?;
        on.cache.turns.take(id);
        on.change(Change::Changed(id.clone()));
    }
    deleted.deliveries += on.statement("DELETE FROM outbox WHERE session = ?1")?.execute([number])? as u64;
    deleted.summaries += on.statement("DELETE FROM summaries WHERE session = ?1")?.execute([number])? as u64;
    on.statement("DELETE FROM grants WHERE session = ?1")?.execute([number])?;
    on.statement("DELETE FROM turns WHERE session = ?1")?.execute([number])?;
    deleted.turns += turns.len() as u64;
    on.statement(
        "UPDATE sessions SET id = ?2, updated_ms = ?3, agent = NULL, title = '', turns = 0, conversation = NULL,
                             snapshot = NULL, personas = NULL, tainted_by = NULL WHERE number = ?1",
    )?
    .execute((number, format!("{session}{MARK}{number}"), on.now_ms()))?;
    on.cache.sessions.take(session);
    Ok(())
}

/// Removes some of what is left; whether there may be more.
fn step(on: &mut Writing<'_>) -> Result<bool, StoreError> {
    let mut left: Vec<i64> = noted(on.db, LEFT)?.unwrap_or_default();
    let Some(number) = left.last() else { return images::let_go(on) };
    let removed = on
        .statement("DELETE FROM log WHERE id IN (SELECT id FROM log WHERE id > ?1 AND id < ?2 LIMIT ?3)")?
        .execute((number * POSITIONS, (number + 1) * POSITIONS, ROWS))?;
    if removed == 0 {
        left.pop();
        note(on, LEFT, &left)?;
    }
    Ok(true)
}
