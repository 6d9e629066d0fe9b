//! The events of a session: numbered where they are committed, and read back from any position.

use drupe_extension_api::{Event, SessionId, TurnId};
use rusqlite::{Connection, OptionalExtension};

use crate::{
    error::Result,
    log::{self, Commit, POSITIONS, Record, Told, commits},
    rows::{id, signed},
    turns,
    writer::Writing,
};

/// The most events of one answer, whatever a reader asks for: some megabytes at worst.
const LIMIT: usize = 4096;

/// Numbers and records events.
pub(crate) fn record(
    on: &mut Writing<'_>,
    session: &SessionId,
    turn: Option<&TurnId>,
    told: &[Told],
) -> Result<()> {
    if told.is_empty() {
        return Ok(());
    }
    let turn = turn.map(|turn| turns::known(on, turn)).transpose()?;
    log::append(on, session, turn.as_deref(), Record { before: told, ..Record::default() })
}

/// The events of a session after a position.
pub(crate) fn after(db: &Connection, session: &SessionId, position: u64, limit: usize) -> Result<Vec<Event>> {
    let mut find = db.prepare_cached("SELECT number FROM sessions WHERE id = ?1")?;
    match find.query_row([session.as_str()], |row| row.get(0)).optional()? {
        Some(number) => read(db, number, session, signed(position), limit.min(LIMIT)),
        None => Ok(Vec::new()),
    }
}

/// The events of one turn.
pub(crate) fn of_turn(db: &Connection, turn: i64, session: &SessionId) -> Result<Vec<Event>> {
    let mut rows = db.prepare_cached(commits!(
        "WHERE turns.number = ?1 AND log.turn = ?1 AND events IS NOT NULL
         AND log.id > turns.session * 4294967296 + turns.after_seq
         AND log.id <= turns.session * 4294967296 + coalesce(turns.until_seq, 4294967295) ORDER BY log.id"
    ))?;
    let mut events = Vec::new();
    for commit in rows.query_map([turn], Commit::read)? {
        events.extend(commit?.events(session));
    }
    Ok(events)
}

fn read(
    db: &Connection,
    number: i64,
    session: &SessionId,
    position: i64,
    limit: usize,
) -> Result<Vec<Event>> {
    let first = number * POSITIONS;
    let wanted = first + position.saturating_add(1).min(POSITIONS - 1);
    // The first one may stand in the middle of its row.
    let mut rows = db.prepare_cached(commits!(
        "WHERE log.id >= coalesce((SELECT max(id) FROM log WHERE id > ?1 AND id <= ?2), ?2) AND log.id < ?3
         AND events IS NOT NULL ORDER BY log.id"
    ))?;
    let mut events = Vec::new();
    for commit in rows.query_map((first, wanted, first + POSITIONS), Commit::read)? {
        let left = limit - events.len();
        events.extend(commit?.events(session).filter(|event| signed(event.seq) > position).take(left));
        if events.len() == limit {
            break;
        }
    }
    Ok(events)
}

/// The session of a number, for rows that name it so.
pub(crate) fn session_of(db: &Connection, number: i64) -> Result<SessionId> {
    Ok(db
        .prepare_cached("SELECT id FROM sessions WHERE number = ?1")?
        .query_row([number], |row| id(row, 0))?)
}
