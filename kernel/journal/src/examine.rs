//! What a journal looks like from outside, whether or not a kernel has it open: for an operator who wants to know whether
//! it is whole, and what in it waits for them. Nothing is written, and no table of another version is asked.

use std::{fs, path::Path};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use crate::{
    StoreError, ahead,
    broken::is_doubted,
    open::{beside, read_only},
    opening::UNREAD,
    rows::{count, timestamp},
    schema::{self, APPLICATION_ID},
};

/// Faults that are told of a damaged file: enough to see what kind they are of.
const FAULTS: usize = 8;

/// Deliveries that are told of each kind, the latest first.
const DELIVERIES: u32 = 5;

/// A journal as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// The version of its tables; [`schema::version`] is that of this release.
    pub version: u32,
    /// Bytes of the file, without its log.
    pub bytes: u64,
    /// Those of them that hold nothing any more.
    pub free_bytes: u64,
    /// Bytes of its write-ahead log, beside the file.
    pub log_bytes: u64,
    /// That the end of the log cannot be read; means nothing while a kernel writes to it.
    pub lost: Option<&'static str>,
    /// Whether no kernel has closed it in order since one opened it.
    pub open: bool,
    /// What is damaged in it, in SQLite's words; empty where it is whole.
    pub faults: Vec<String>,
    /// What waits in it; none where it is damaged, or has another version.
    pub waiting: Option<Unsettled>,
}

/// What an operator should look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// When the last message came in, by the clock of that moment.
    pub last_message: Option<Timestamp>,
    /// Messages that nobody has begun to answer.
    pub queued: u64,
    /// Answers and notices of which nobody knows whether they arrived, the latest first.
    pub uncertain: Vec<Undelivered>,
    /// Those that surely did not arrive, the latest first.
    pub failed: Vec<Undelivered>,
    /// Schedules that are paused or failed last, with why.
    pub schedules: Vec<(String, String)>,
    /// Messages between extensions that were given up.
    pub dead: u64,
    /// Questions that wait for the operator: about extensions, and about calls.
    pub questions: (u64, u64),
}

/// A message that did not surely arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undelivered {
    pub session: String,
    pub channel: String,
    pub why: String,
    /// When it became known what became of it.
    pub at: Timestamp,
}

/// Looks at a journal; `since` bounds how old an undelivered message is told. A file of gigabytes takes some seconds.
pub fn examine(path: &Path, since: Timestamp) -> Result<Examined, StoreError> {
    let unread = ahead::is_unread(path)?;
    let db = read_only(path)?;
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION_ID {
        return Err(StoreError::Corrupt(format!("`{}`: it is not a journal of drupe", path.display())));
    }
    let version = schema::version_of(&db)?;
    let pages = |name: &str| db.pragma_query_value(None, name, |row| count(row, 0));
    let free_bytes = pages("freelist_count")? * pages("page_size")?;
    let open: Option<String> =
        db.query_row("SELECT value FROM meta WHERE key = 'open'", [], |row| row.get(0)).optional()?;
    let faults = faults(&db, if is_doubted(path) { "integrity_check" } else { "quick_check" })?;
    let readable = version == schema::version() && faults.is_empty();
    let waiting = readable.then(|| waiting(&db, since)).transpose()?;
    let size = |suffix| fs::metadata(beside(path, suffix)).map_or(0, |found| found.len());
    Ok(Examined {
        version,
        bytes: size(""),
        free_bytes,
        log_bytes: size("-wal"),
        lost: unread.then_some(UNREAD),
        open: open.is_some(),
        faults,
        waiting,
    })
}

fn faults(db: &Connection, check: &str) -> Result<Vec<String>, StoreError> {
    let mut check = db.prepare(&format!("PRAGMA {check}({FAULTS})"))?;
    let found: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(found.into_iter().filter(|line| line != "ok").collect())
}

fn waiting(db: &Connection, since: Timestamp) -> Result<Unsettled, StoreError> {
    let count = |sql: &str| db.query_row(sql, [], |row| count(row, 0));
    let last: Option<i64> = db.query_row("SELECT max(accepted_ms) FROM turns", [], |row| row.get(0))?;
    let mut schedules = db.prepare(
        "SELECT id, paused, failures FROM schedules WHERE paused IS NOT NULL OR failures > 0 ORDER BY id",
    )?;
    let schedules = schedules.query_map([], |row| {
        let (paused, failures): (Option<String>, u32) = (row.get(1)?, row.get(2)?);
        let failed = || match failures {
            1 => "its last run failed".into(),
            failures => format!("its last {failures} runs failed"),
        };
        Ok((row.get(0)?, paused.map_or_else(failed, |why| format!("it is paused: {why}"))))
    })?;
    let schedules = schedules.collect::<Result<_, _>>()?;
    Ok(Unsettled {
        last_message: last.map(timestamp),
        queued: count("SELECT count(*) FROM turns WHERE started_ms IS NULL AND finished_ms IS NULL")?,
        uncertain: undelivered(db, "uncertain", since)?,
        failed: undelivered(db, "failed", since)?,
        schedules,
        dead: count("SELECT count(*) FROM deliveries WHERE dead = 1")?,
        questions: (
            count("SELECT count(*) FROM activations WHERE state = 'pending'")?,
            count("SELECT count(*) FROM questions WHERE state = 'pending'")?,
        ),
    })
}

fn undelivered(db: &Connection, state: &str, since: Timestamp) -> Result<Vec<Undelivered>, StoreError> {
    let mut all = db.prepare(
        "SELECT sessions.id, channel, coalesce(why, ''), outbox.updated_ms
         FROM outbox JOIN sessions ON sessions.number = outbox.session
         WHERE state = ?1 AND outbox.updated_ms >= ?2 ORDER BY outbox.number DESC LIMIT ?3",
    )?;
    let rows = all.query_map((state, since.as_millisecond(), DELIVERIES), |row| {
        Ok(Undelivered {
            session: row.get(0)?,
            channel: row.get(1)?,
            why: row.get(2)?,
            at: timestamp(row.get(3)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
