//! What is let go: the oldest turns that have ended, with all that they recorded, some at a time.
//!
//! A turn goes at once, and what it recorded in pieces after it: what is left to remove is noted in the same transaction, so
//! that the next process goes on with it. Sums of use stay, and so do sessions and the positions of their events. It
//! deliberately does not decide how long anything is kept.

use std::{
    collections::HashSet,
    fmt,
    path::Path,
    time::{Duration, Instant},
};

use drupe_extension_api::{SessionId, TurnId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Store, StoreError, conversation, images,
    log::POSITIONS,
    recent::Change,
    recipes,
    rows::{count, id, timestamp},
    writer::{Survives, Writing},
};

/// Turns that are let go in one transaction: others wait for it.
const STEP: usize = 16;

/// Rows and bytes of records that are removed in one transaction, for the same reason.
const ROWS: usize = 256;
const BYTES: i64 = 8 * 1024 * 1024;

/// Pages that are given back to the file system with it.
const PAGES: u32 = 256;

/// Of all the time, the part that this may take from others: one in so many.
const SHARE: u32 = 5;

/// The shortest pause between two steps.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a turn stays in any case: whoever asked may not have read its answer yet.
const FRESH_MS: i64 = 3_600_000;

/// What is left to remove of turns that went.
const LEFT: &str = "let_go_left";
/// How much went in all.
const GONE: &str = "let_go";

/// The clock of the last look, in milliseconds since 1970.
const LOOKED: &str = "let_go_looked";

/// How much further the clock may be at a look than at the one before. One that was set ahead by mistake, or that began wrong, would
/// have all turns of all ages deleted at once; a daemon that was off for long catches up a day an hour.
const FURTHER_MS: i64 = 86_400_000;

/// How much is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// For how long after its end, in milliseconds; none for ever.
    pub max_age_ms: Option<i64>,
    /// How large the journal may grow, in bytes; none for any size. Beyond it the oldest turns go, whatever their age, but
    /// for those that ended within the last hour.
    pub max_bytes: Option<u64>,
}

impl Retention {
    /// So many days and so many mebibytes; none for no bound.
    pub fn of(max_age_days: Option<u32>, max_mb: Option<u32>) -> Self {
        const DAY_MS: i64 = 86_400_000;
        const MB: u64 = 1024 * 1024;
        Self {
            max_age_ms: max_age_days.map(|days| i64::from(days) * DAY_MS),
            max_bytes: max_mb.map(|mb| u64::from(mb) * MB),
        }
    }
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LetGo {
    /// Turns that went.
    pub turns: u64,
    /// Whether another step has something to do.
    pub more: bool,
}

/// What went so far, ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// How many turns.
    pub turns: u64,
    /// When the last of them had ended.
    pub until: Timestamp,
    /// When the last of them went.
    pub last: Timestamp,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (until, last) = (self.until.strftime("%F"), self.last.strftime("%F %R"));
        match self.turns {
            1 => write!(f, "one turn that had ended by {until} is deleted, at {last}Z: `journal.retention`"),
            turns => write!(
                f,
                "{turns} turns that had ended by {until} are deleted, the latest at {last}Z: `journal.retention`"
            ),
        }
    }
}

impl Gone {
    /// What is said of something that is not there: it may have gone with one of these.
    pub fn may_hold(&self, missing: &str) -> String {
        let until = self.until.strftime("%F");
        let with = match self.turns {
            1 => format!("the one turn that had ended by {until} and is deleted"),
            turns => format!("one of the {turns} turns that had ended by {until} and are deleted"),
        };
        format!("{missing}, or it went with {with} (`journal.retention`)")
    }
}

/// The same as it is kept.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    turns: u64,
    until_ms: i64,
    last_ms: i64,
}

/// A turn that may go.
pub(crate) struct Old {
    pub turn: TurnId,
    pub accepted_ms: i64,
    pub finished_ms: i64,
    records: Records,
}

/// What a turn that went recorded: its rows, and those of its session before its end that belong to no turn.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Records {
    turn: i64,
    session: i64,
    until_seq: i64,
}

impl Store {
    /// Before when something is too old by `keep`, by the clock of the last look: that goes on by a day at most from one to the next.
    /// None before the first, and where nothing is.
    pub async fn too_old(&self, keep: Retention) -> Result<Option<Timestamp>, StoreError> {
        let looked: Option<i64> = self.read_few(|db| noted(db, LOOKED)).await?;
        Ok(looked.zip(keep.max_age_ms).map(|(looked, age)| timestamp(looked.saturating_sub(age))))
    }

    /// Lets go of what `keep` does not keep, in steps with pauses in which others are served, until nothing of it is left;
    /// gives how many turns went. What is dropped in between is gone on with by the next call. With `archive`, a folder,
    /// each turn is in a file there before it goes.
    pub async fn keep_within(&self, keep: Retention, archive: Option<&Path>) -> Result<u64, StoreError> {
        let mut turns = 0;
        self.write(Survives::Process, |on| {
            let now = on.now_ms();
            let looked: Option<i64> = noted(on.db, LOOKED)?;
            note(on, LOOKED, &looked.map_or(now, |looked| now.min(looked.saturating_add(FURTHER_MS))))
        })
        .await?;
        loop {
            let began = Instant::now();
            let step = match archive {
                Some(folder) => self.let_go_archived(keep, folder).await?,
                None => self.let_go(keep).await?,
            };
            turns += step.turns;
            if !step.more {
                return Ok(turns);
            }
            tokio::time::sleep((began.elapsed() * (SHARE - 1)).max(PAUSE)).await;
        }
    }

    /// Lets go of some of what `keep` does not keep.
    ///
    /// A turn goes with its message, its answer, what was recorded of it and its delivery. One that has no end, that has
    /// ended within the last hour where it is for its size, or whose answer still waits to be sent, stays, and so does the
    /// latest. A message that comes again after its turn went is a new one.
    pub async fn let_go(&self, keep: Retention) -> Result<LetGo, StoreError> {
        let step = self.write(Survives::Process, move |on| let_go(on, keep, None)).await?;
        let shorter = self.write(Survives::Process, |on| give_back(on.db)).await?;
        Ok(LetGo { more: step.more || shorter, ..step })
    }

    /// The same, of turns that are in their files.
    async fn let_go_archived(&self, keep: Retention, folder: &Path) -> Result<LetGo, StoreError> {
        // What has gone is removed first, so that no turn is written again for each step of that.
        let (more, now_ms) = self.write(Survives::Process, |on| Ok((clear(on)?, on.now_ms()))).await?;
        let step = match more {
            true => LetGo { turns: 0, more },
            false => {
                let next = self.read(move |db| match before(db, keep, now_ms)? {
                    Some(before) => old(db, before),
                    None => Ok(Vec::new()),
                });
                let archived = self.archive(folder, &next.await?).await?;
                self.write(Survives::Process, move |on| let_go(on, keep, Some(&archived))).await?
            }
        };
        let shorter = self.write(Survives::Process, |on| give_back(on.db)).await?;
        Ok(LetGo { more: step.more || shorter, ..step })
    }

    /// What went so far; none where nothing did.
    pub async fn gone(&self) -> Result<Option<Gone>, StoreError> {
        let kept: Option<Kept> = self.read_few(|db| noted(db, GONE)).await?;
        Ok(kept.map(|kept| Gone {
            turns: kept.turns,
            until: timestamp(kept.until_ms),
            last: timestamp(kept.last_ms),
        }))
    }

    /// How many turns of a session went.
    pub async fn gone_of(&self, session: &SessionId) -> Result<u64, StoreError> {
        let session = session.clone();
        self.read_few(move |db| {
            let mut find = db.prepare_cached(
                "SELECT turns - (SELECT count(*) FROM turns WHERE turns.session = sessions.number)
                 FROM sessions WHERE id = ?1",
            )?;
            Ok(find.query_row([session.as_str()], |row| count(row, 0)).optional()?.unwrap_or(0))
        })
        .await
    }

    /// Bytes that the journal holds, without those that are free for what comes.
    pub async fn size(&self) -> Result<u64, StoreError> {
        self.read_few(size).await
    }
}

/// Removes some of what went and is still there; whether there was any. It counts in the size.
fn clear(on: &mut Writing<'_>) -> Result<bool, StoreError> {
    let mut left: Vec<Records> = noted(on.db, LEFT)?.unwrap_or_default();
    if let Some(records) = left.last() {
        if remove(on, records)? {
            left.pop();
            note(on, LEFT, &left)?;
        }
        return Ok(true);
    }
    images::let_go(on)
}

/// Turns that ended before this may go; none where no turn may.
fn before(db: &Connection, keep: Retention, now_ms: i64) -> Result<Option<i64>, StoreError> {
    let too_large = match keep.max_bytes {
        Some(most) => size(db)? > most,
        None => false,
    };
    let by_size = too_large.then(|| now_ms.saturating_sub(FRESH_MS));
    // By a clock that goes on by a day at most between two looks.
    let now_ms = noted::<i64>(db, LOOKED)?.map_or(now_ms, |looked| looked.min(now_ms));
    let by_age = keep.max_age_ms.map(|age| now_ms.saturating_sub(age));
    Ok(by_size.max(by_age))
}

/// Lets go of some; with `archived`, of those alone.
fn let_go(
    on: &mut Writing<'_>,
    keep: Retention,
    archived: Option<&HashSet<TurnId>>,
) -> Result<LetGo, StoreError> {
    if clear(on)? {
        return Ok(LetGo { turns: 0, more: true });
    }
    let Some(before) = before(on.db, keep, on.now_ms())? else { return Ok(LetGo { turns: 0, more: false }) };
    on.statement(
        "DELETE FROM outbox WHERE turn IS NULL AND updated_ms < ?1 AND state NOT IN ('due', 'sending')",
    )?
    .execute([before])?;
    let mut old = old(on.db, before)?;
    old.retain(|old| archived.is_none_or(|archived| archived.contains(&old.turn)));
    let Some(until_ms) = old.iter().map(|old| old.finished_ms).max() else {
        return Ok(LetGo { turns: 0, more: false });
    };
    for Old { turn, records, .. } in &old {
        // Positions are given after those that are gone.
        on.statement("UPDATE sessions SET least_seq = max(least_seq, ?2) WHERE number = ?1")?
            .execute((records.session, records.until_seq))?;
        on.statement("DELETE FROM outbox WHERE turn = ?1")?.execute([records.turn])?;
        on.statement("DELETE FROM questions WHERE turn = ?1")?.execute([records.turn])?;
        images::forget(on, records.turn)?;
        conversation::forget_summary(on, records.session, records.turn)?;
        on.statement("DELETE FROM turns WHERE number = ?1")?.execute([records.turn])?;
        on.cache.turns.take(turn);
        on.change(Change::Changed(turn.clone()));
    }
    recipes::let_go(on)?;
    note(on, LEFT, &old.iter().rev().map(|old| old.records).collect::<Vec<_>>())?;
    let before: Kept = noted(on.db, GONE)?.unwrap_or_default();
    let turns = old.len() as u64;
    let gone = Kept {
        turns: before.turns.saturating_add(turns),
        until_ms: before.until_ms.max(until_ms),
        last_ms: on.now_ms(),
    };
    note(on, GONE, &gone)?;
    Ok(LetGo { turns, more: true })
}

/// The oldest turns that ended before then. They end after they were accepted, and are numbered as they were, so that the
/// first one that was accepted later is the last to look at. The latest stays: no number is given twice.
fn old(db: &Connection, before: i64) -> Result<Vec<Old>, StoreError> {
    let mut oldest = db.prepare_cached(
        "SELECT number, id, session, coalesce(until_seq, after_seq), accepted_ms, finished_ms,
             EXISTS (SELECT 1 FROM outbox WHERE outbox.turn = turns.number AND state IN ('due', 'sending'))
         FROM turns WHERE number < (SELECT max(number) FROM turns) ORDER BY number",
    )?;
    let mut rows = oldest.query([])?;
    let mut found = Vec::new();
    while found.len() < STEP
        && let Some(row) = rows.next()?
        && row.get::<_, i64>(4)? < before
    {
        let (finished_ms, waits): (Option<i64>, bool) = (row.get(5)?, row.get(6)?);
        let Some(finished_ms) = finished_ms.filter(|ended| *ended < before && !waits) else { continue };
        let records = Records { turn: row.get(0)?, session: row.get(2)?, until_seq: row.get(3)? };
        found.push(Old { turn: id(row, 1)?, accepted_ms: row.get(4)?, finished_ms, records });
    }
    Ok(found)
}

/// Removes some of the rows; true when none is left.
fn remove(on: &Writing<'_>, records: &Records) -> Result<bool, StoreError> {
    let first = records.session * POSITIONS;
    let mut rows = on.statement(
        "SELECT id, coalesce(octet_length(events), 0) + coalesce(octet_length(entries), 0) FROM log
         WHERE id > ?1 AND id <= ?2 AND (turn = ?3 OR turn IS NULL) ORDER BY id",
    )?;
    let mut rows = rows.query((first, first + records.until_seq, records.turn))?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut all = true;
    while let Some(row) = rows.next()? {
        if found.len() == ROWS || bytes >= BYTES {
            all = false;
            break;
        }
        found.push(row.get::<_, i64>(0)?);
        bytes += row.get::<_, i64>(1)?;
    }
    let mut delete = on.statement("DELETE FROM log WHERE id = ?1")?;
    for row in found {
        delete.execute([row])?;
    }
    Ok(all)
}

pub(crate) fn noted<T: DeserializeOwned>(db: &Connection, key: &str) -> Result<Option<T>, StoreError> {
    let mut find = db.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    let text: Option<String> = find.query_row([key], |row| row.get(0)).optional()?;
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

pub(crate) fn note(on: &Writing<'_>, key: &str, value: &impl Serialize) -> Result<(), StoreError> {
    on.statement("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
        .execute((key, serde_json::to_string(value)?))?;
    Ok(())
}

fn size(db: &Connection) -> Result<u64, StoreError> {
    let of = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = of("page_count")?.saturating_sub(of("freelist_count")?);
    Ok(pages.saturating_mul(of("page_size")?).unsigned_abs())
}

/// Shortens the file by some of the pages that are free; whether it could. One that was made before version 5 keeps them for
/// what comes.
pub(crate) fn give_back(db: &Connection) -> Result<bool, StoreError> {
    let mut shorten = db.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
    let mut rows = shorten.query([])?;
    let mut some = false;
    // A page a row.
    while rows.next()?.is_some() {
        some = true;
    }
    Ok(some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_turn_that_went_is_not_told_as_several() {
        let gone = |turns| Gone { turns, until: Timestamp::UNIX_EPOCH, last: Timestamp::UNIX_EPOCH };
        let (one, two) = (gone(1), gone(2));
        assert!(one.to_string().starts_with("one turn that had ended by 1970-01-01 is deleted"), "{one}");
        assert!(two.to_string().starts_with("2 turns that had ended by 1970-01-01 are deleted"), "{two}");
        let missing = |gone: Gone| gone.may_hold("there is no turn `t`");
        assert!(missing(one).contains("it went with the one turn that had ended"), "{}", missing(one));
        assert!(missing(two).contains("with one of the 2 turns"), "{}", missing(two));
    }
}
