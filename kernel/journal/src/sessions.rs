//! Conversations: their rows, and lists of them.

use drupe_extension_api::{AgentId, SessionId, control::SessionStatus};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Counts, StoreError,
    rows::{count, id, maybe_id, time},
    writer::Writing,
};

/// The longest title, in characters: a line of a list.
const TITLE: usize = 80;

/// The number of a session; makes it where it does not exist.
pub(crate) fn ensure(on: &Writing<'_>, session: &SessionId) -> Result<i64, StoreError> {
    let mut known = on.statement("SELECT number FROM sessions WHERE id = ?1")?;
    if let Some(number) = known.query_row([session.as_str()], |row| row.get(0)).optional()? {
        return Ok(number);
    }
    on.statement("INSERT INTO sessions (id, created_ms, updated_ms) VALUES (?1, ?2, ?2)")?
        .execute((session.as_str(), on.now_ms()))?;
    Ok(on.db.last_insert_rowid())
}

/// Counts a turn, and takes the session's title from its first message. Gives the position of its last event.
pub(crate) fn add_turn(on: &Writing<'_>, session: i64, text: &str) -> Result<i64, StoreError> {
    let title: String = text.lines().next().unwrap_or_default().chars().take(TITLE).collect();
    let mut add = on.statement(
        "UPDATE sessions SET turns = turns + 1, updated_ms = ?2, title = iif(turns = 0, ?3, title)
         WHERE number = ?1 RETURNING last_seq",
    )?;
    Ok(add.query_row((session, on.now_ms(), title), |row| row.get(0))?)
}

pub(crate) fn select_agent(
    on: &Writing<'_>,
    session: &SessionId,
    agent: Option<&AgentId>,
) -> Result<(), StoreError> {
    let number = ensure(on, session)?;
    on.statement("UPDATE sessions SET agent = ?2, updated_ms = ?3 WHERE number = ?1")?.execute((
        number,
        agent.map(AgentId::as_str),
        on.now_ms(),
    ))?;
    Ok(())
}

/// The agent that was chosen for a session.
pub(crate) fn selected_agent(db: &Connection, session: &SessionId) -> Result<Option<AgentId>, StoreError> {
    let agent: Option<Option<String>> = db
        .prepare_cached("SELECT agent FROM sessions WHERE id = ?1")?
        .query_row([session.as_str()], |row| row.get(0))
        .optional()?;
    agent
        .flatten()
        .map(|id| AgentId::new(id).map_err(|error| StoreError::Record(error.to_string())))
        .transpose()
}

/// Every session, the one with the latest change first.
pub(crate) fn list(db: &Connection) -> Result<Vec<SessionStatus>, StoreError> {
    let mut all = db.prepare_cached(
        "SELECT id, created_ms, updated_ms, turns, agent, title FROM sessions
         ORDER BY updated_ms DESC, number DESC",
    )?;
    Ok(all.query_map([], status)?.collect::<Result<_, _>>()?)
}

/// One session, with the position of its last event.
pub(crate) fn find(db: &Connection, session: &SessionId) -> Result<Option<(SessionStatus, u64)>, StoreError> {
    let mut one = db.prepare_cached(
        "SELECT id, created_ms, updated_ms, turns, agent, title, last_seq FROM sessions WHERE id = ?1",
    )?;
    Ok(one.query_row([session.as_str()], |row| Ok((status(row)?, count(row, 6)?))).optional()?)
}

pub(crate) fn counts(db: &Connection) -> Result<Counts, StoreError> {
    let mut both = db.prepare_cached(
        "SELECT (SELECT count(*) FROM sessions),
                (SELECT count(*) FROM turns WHERE finished_ms IS NULL AND started_ms IS NULL)",
    )?;
    Ok(both.query_row([], |row| Ok(Counts { sessions: count(row, 0)?, queued_turns: count(row, 1)? }))?)
}

fn status(row: &Row<'_>) -> rusqlite::Result<SessionStatus> {
    Ok(SessionStatus {
        id: id(row, 0)?,
        created: time(row, 1)?,
        updated: time(row, 2)?,
        turn_count: count(row, 3)?,
        agent: maybe_id(row, 4)?,
        title: row.get(5)?,
    })
}
