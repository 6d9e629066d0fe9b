//! What turns gave: results, and the conversation that they make.

use drupe_extension_api::{
    AgentResponse, SessionId, Spend, TurnId,
    control::{SessionDetail, TurnResult},
};
use rusqlite::{Connection, OptionalExtension};

use crate::{
    StoreError, log,
    rows::{id, maybe_json, signed},
    sessions,
    transcript::Runs,
    turns,
};

/// What a turn gave so far; in brief, without its runs and what they saw.
pub(crate) fn turn(db: &Connection, turn: &TurnId, brief: bool) -> Result<Option<TurnResult>, StoreError> {
    let mut one = db.prepare_cached(
        "SELECT sessions.id, text, response, spend, diagnostics, correlation, turns.number
         FROM turns JOIN sessions ON sessions.number = turns.session WHERE turns.id = ?1",
    )?;
    let found = one
        .query_row([turn.as_str()], |row| {
            let response: Option<AgentResponse> = maybe_json(row, 2)?;
            let result = TurnResult {
                session: id(row, 0)?,
                turn: turn.clone(),
                input: row.get(1)?,
                status: response.as_ref().map(|r| r.status),
                content: response.as_ref().map(|r| r.content.clone()).unwrap_or_default(),
                error: response.as_ref().and_then(|r| r.error.clone()),
                class: response.and_then(|r| r.class),
                spend: maybe_json::<Spend>(row, 3)?.unwrap_or_default(),
                invocations: Vec::new(),
                transcript: Vec::new(),
                diagnostics: maybe_json(row, 4)?.unwrap_or_default(),
                trace: row.get::<_, Option<String>>(5)?.unwrap_or_else(|| turn.to_string()),
            };
            Ok((result, row.get::<_, i64>(6)?))
        })
        .optional()?;
    let Some((result, number)) = found else { return Ok(None) };
    if brief {
        return Ok(Some(result));
    }
    let mut runs = Runs::default();
    for (row, entry) in log::entries_of(db, number)? {
        runs.add(row, entry);
    }
    Ok(Some(runs.complete(result)))
}

/// A session with all its turns.
pub(crate) fn session(db: &Connection, session: &SessionId) -> Result<Option<SessionDetail>, StoreError> {
    let Some((status, _, last_seq)) = sessions::find(db, session)? else { return Ok(None) };
    let mut results = Vec::new();
    for id in turns::of_session(db, session)? {
        results.extend(turn(db, &id, false)?);
    }
    Ok(Some(SessionDetail { status, turns: results, last_seq }))
}

/// The latest turns that were worked at and have ended as pairs of message and answer, oldest first. One that another
/// turn took in, or that was stopped while it waited, has no answer of its own.
pub(crate) fn conversation(
    db: &Connection,
    session: &SessionId,
    max_turns: usize,
) -> Result<Vec<(String, String)>, StoreError> {
    let mut latest = db.prepare_cached(
        "SELECT text, response ->> 'content' FROM turns
         WHERE session = (SELECT number FROM sessions WHERE id = ?1) AND finished_ms IS NOT NULL AND starts > 0
         ORDER BY number DESC LIMIT ?2",
    )?;
    let pairs = latest
        .query_map((session.as_str(), signed(max_turns as u64)), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut pairs: Vec<_> = pairs.collect::<Result<_, _>>()?;
    pairs.reverse();
    Ok(pairs)
}
