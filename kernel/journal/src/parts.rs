//! What may be long is read in parts, between which others who ask are answered.
//!
//! The log only grows at its end, so that all parts together show what one look would have shown, up to the row that was
//! the last when the reading began.

use std::sync::Arc;

use drupe_agent::{Entry, ids};
use drupe_extension_api::TurnId;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Store, StoreError,
    log::{POSITIONS, recorded},
    rows::wrong,
};

/// Bytes that are read at once: some milliseconds, for which others who ask wait.
pub(crate) const PART: usize = 1024 * 1024;

/// What it costs to look at a row, in bytes of its records.
const ROW: usize = 64;

/// Where in the log the entries of a turn are, as far as they are recorded now.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Span {
    pub turn: i64,
    pub after: i64,
    pub upto: i64,
}

/// The span of a turn by its number.
pub(crate) fn span(db: &Connection, turn: i64) -> Result<Option<Span>, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT session * 4294967296 + after_seq, coalesce(session * 4294967296 + until_seq,
             (SELECT id FROM log WHERE id < (turns.session + 1) * 4294967296 ORDER BY id DESC LIMIT 1), 0)
         FROM turns WHERE number = ?1",
    )?;
    let found = find.query_row([turn], |row| Ok(Span { turn, after: row.get(0)?, upto: row.get(1)? }));
    Ok(found.optional()?)
}

/// The number of a turn that has no answer yet.
pub(crate) fn open_turn(db: &Connection, turn: &TurnId) -> Result<Option<i64>, StoreError> {
    let mut find = db.prepare_cached("SELECT number FROM turns WHERE id = ?1 AND finished_ms IS NULL")?;
    Ok(find.query_row([turn.as_str()], |row| row.get(0)).optional()?)
}

impl Store {
    /// Gives `take` the entries of a turn in the order of their commits, with the keys of their rows; gives the bytes
    /// that they have.
    pub(crate) async fn each_entry(
        &self,
        span: Span,
        mut take: impl FnMut(i64, Entry) + Send,
    ) -> Result<usize, StoreError> {
        self.each_row(span, entries, |row, all| all.into_iter().for_each(|entry| take(row, entry))).await
    }

    /// Gives `take` what `of` makes of each row of a turn, in order, with its key; gives the bytes of which it was made.
    pub(crate) async fn each_row<T: Send + 'static>(
        &self,
        mut span: Span,
        of: Of<T>,
        mut take: impl FnMut(i64, T) + Send,
    ) -> Result<usize, StoreError> {
        let mut bytes = 0;
        loop {
            let (rows, size, last) = self.read(move |db| part(db, span, of)).await?;
            rows.into_iter().for_each(|(row, made)| take(row, made));
            bytes += size;
            match last {
                Some(last) => span.after = last,
                None => return Ok(bytes),
            }
        }
    }

    /// All of them at once.
    pub(crate) async fn entries(&self, span: Span) -> Result<Vec<(i64, Entry)>, StoreError> {
        let mut all = Vec::new();
        self.each_entry(span, |row, entry| all.push((row, entry))).await?;
        Ok(all)
    }

    /// What the latest entry with the id of a run or a call in it for which `wanted` gives something gives, with the number
    /// of its turn. It looks at the log of the session with that number, or at all; at nothing where no run or call can
    /// have this id.
    pub(crate) async fn latest<T: Send + 'static>(
        &self,
        session: Option<i64>,
        id: &str,
        wanted: impl Fn(Entry) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Option<(i64, T)>, StoreError> {
        if !ids::is_derived(id) {
            return Ok(None);
        }
        let (least, mut before) = match session {
            Some(number) => (number * POSITIONS, (number + 1) * POSITIONS),
            None => (i64::MIN, i64::MAX),
        };
        let wanted = Arc::new((id.to_owned(), wanted));
        loop {
            let of = Arc::clone(&wanted);
            match self.read(move |db| look(db, (least, before), &of.0, &of.1)).await? {
                Look::Found(turn, found) => return Ok(Some((turn, found))),
                Look::Further(row) => before = row,
                Look::Over => return Ok(None),
            }
        }
    }
}

/// What is made of a row, and the bytes of which it is made. The row has its key, its entries, its events and its time.
type Of<T> = fn(&Row<'_>) -> rusqlite::Result<(T, usize)>;

type Part<T> = (Vec<(i64, T)>, usize, Option<i64>);

/// What is made of some rows, their bytes, and the last of them where more may follow.
fn part<T>(db: &Connection, span: Span, of: Of<T>) -> Result<Part<T>, StoreError> {
    let mut rows = db.prepare_cached(
        "SELECT id, entries, events, time_ms FROM log WHERE id > ?1 AND id <= ?2 AND turn = ?3 ORDER BY id",
    )?;
    let mut rows = rows.query((span.after, span.upto, span.turn))?;
    let (mut all, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let (made, size) = of(row)?;
        all.push((id, made));
        bytes += size;
        if bytes >= PART {
            return Ok((all, bytes, Some(id)));
        }
    }
    Ok((all, bytes, None))
}

/// The entries of a row.
fn entries(row: &Row<'_>) -> rusqlite::Result<(Vec<Entry>, usize)> {
    Ok((recorded(row, 1)?, row.get_ref(1)?.as_bytes_or_null()?.map_or(0, <[u8]>::len)))
}

/// How far a search has come.
enum Look<T> {
    Found(i64, T),
    /// It goes on before that row.
    Further(i64),
    Over,
}

fn look<T>(
    db: &Connection,
    between: (i64, i64),
    text: &str,
    wanted: impl Fn(Entry) -> Option<T>,
) -> Result<Look<T>, StoreError> {
    let mut rows =
        db.prepare_cached("SELECT id, entries, turn FROM log WHERE id > ?1 AND id < ?2 ORDER BY id DESC")?;
    let mut rows = rows.query(between)?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let held = row.get_ref(1)?.as_str_or_null().map_err(|e| wrong(1, e))?.unwrap_or_default();
        bytes += ROW + held.len();
        // Most rows are told apart by this alone, and are not parsed.
        if held.contains(text)
            && let Some(found) = recorded(row, 1)?.into_iter().rev().find_map(&wanted)
        {
            return Ok(Look::Found(row.get(2)?, found));
        }
        if bytes >= PART {
            return Ok(Look::Further(row.get(0)?));
        }
    }
    Ok(Look::Over)
}
