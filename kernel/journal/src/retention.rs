//! What is let go: the oldest turns that have ended, with all that they recorded, some at a time.
//!
//! Sums of use stay, and so do sessions. It deliberately does not decide how long anything is kept.

use drupe_extension_api::TurnId;
use rusqlite::Connection;

use crate::{
    Store, StoreError,
    log::POSITIONS,
    recent::Change,
    rows::id,
    writer::{Survives, Writing},
};

/// Turns that are let go in one transaction: others wait for it.
const STEP: i64 = 16;

/// Pages that are given back to the file system with it.
const PAGES: u32 = 256;

/// How much is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// For how long after its end, in milliseconds; none for ever.
    pub max_age_ms: Option<i64>,
    /// How large the journal may grow, in bytes; none for any size. Beyond it the oldest turns go, whatever their age.
    pub max_bytes: Option<u64>,
}

/// A turn that may go.
struct Old {
    number: i64,
    turn: TurnId,
    session: i64,
    until_seq: i64,
}

impl Store {
    /// Lets go of some of what `keep` does not keep, and gives how many turns went. Call it again until none did, with
    /// pauses in which others are served.
    ///
    /// A turn goes with its message, its answer, what was recorded of it and its delivery. One that has no end, or whose
    /// answer still waits to be sent, stays. A message that comes again after its turn went is a new one.
    pub async fn let_go(&self, keep: Retention) -> Result<u64, StoreError> {
        let gone = self.write(Survives::Process, move |on| let_go(on, keep)).await?;
        self.write(Survives::Process, |on| give_back(on.db)).await?;
        Ok(gone)
    }

    /// Bytes that the journal holds, without those that are free for what comes.
    pub async fn size(&self) -> Result<u64, StoreError> {
        self.read(size).await
    }
}

fn let_go(on: &mut Writing<'_>, keep: Retention) -> Result<u64, StoreError> {
    let too_large = keep.max_bytes.map(|most| Ok::<_, StoreError>(size(on.db)? > most)).transpose()?;
    let before = match too_large {
        Some(true) => i64::MAX,
        _ => keep.max_age_ms.map_or(i64::MIN, |age| on.now_ms().saturating_sub(age)),
    };
    let old = old(on, before)?;
    for turn in &old {
        let first = turn.session * POSITIONS;
        // Positions are given after those that are gone.
        on.statement(
            "UPDATE sessions SET least_seq = max(least_seq, coalesce(
                 (SELECT id + positions - 1 - ?2 FROM log WHERE id > ?2 AND id < ?3 ORDER BY id DESC LIMIT 1), 0))
             WHERE number = ?1",
        )?
        .execute((turn.session, first, first + POSITIONS))?;
        // With what belongs to no turn and stands before its end.
        on.statement("DELETE FROM log WHERE id > ?1 AND id <= ?2 AND (turn = ?3 OR turn IS NULL)")?
            .execute((first, first + turn.until_seq, turn.number))?;
        on.statement("DELETE FROM outbox WHERE turn = ?1")?.execute([turn.number])?;
        on.statement("DELETE FROM turns WHERE number = ?1")?.execute([turn.number])?;
        on.cache.turns.take(&turn.turn);
        on.change(Change::Changed(turn.turn.clone()));
    }
    Ok(old.len() as u64)
}

/// The oldest turns that ended before then.
fn old(on: &Writing<'_>, before: i64) -> Result<Vec<Old>, StoreError> {
    let mut oldest = on.statement(
        "SELECT number, id, session, coalesce(until_seq, after_seq) FROM turns
         WHERE finished_ms < ?1 AND NOT EXISTS
             (SELECT 1 FROM outbox WHERE outbox.turn = turns.number AND state IN ('due', 'sending'))
         ORDER BY number LIMIT ?2",
    )?;
    let found = oldest.query_map((before, STEP), |row| {
        Ok(Old { number: row.get(0)?, turn: id(row, 1)?, session: row.get(2)?, until_seq: row.get(3)? })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn size(db: &Connection) -> Result<u64, StoreError> {
    let of = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = of("page_count")?.saturating_sub(of("freelist_count")?);
    Ok(pages.saturating_mul(of("page_size")?).unsigned_abs())
}

/// Shortens the file by some of the pages that are free. One that was made before version 5 keeps them for what comes.
fn give_back(db: &Connection) -> Result<(), StoreError> {
    let mut shorten = db.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
    let mut rows = shorten.query([])?;
    // A page a row.
    while rows.next()?.is_some() {}
    Ok(())
}
