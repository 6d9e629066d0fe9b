//! What turns gave: results, and the conversation that they make.

use std::collections::HashMap;

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentResponse, InvocationId, SessionId, Spend, TurnId,
    control::{SessionDetail, TurnResult},
};
use rusqlite::{Connection, OptionalExtension};

use crate::{
    StoreError,
    rows::{id, json, maybe_id, maybe_json, signed},
    sessions,
    transcript::{self, Invocation},
};

/// What a turn gave so far.
pub(crate) fn turn(db: &Connection, turn: &TurnId) -> Result<Option<TurnResult>, StoreError> {
    let mut one = db.prepare_cached(
        "SELECT sessions.id, text, response, spend, diagnostics, correlation
         FROM turns JOIN inbox ON inbox.turn = turns.number JOIN sessions ON sessions.number = turns.session
         WHERE turns.id = ?1",
    )?;
    let found = one
        .query_row([turn.as_str()], |row| {
            let response: Option<AgentResponse> = maybe_json(row, 2)?;
            Ok(TurnResult {
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
            })
        })
        .optional()?;
    let Some(mut result) = found else { return Ok(None) };
    let runs = invocations(db, turn)?;
    result.invocations = transcript::records(&runs);
    result.transcript = transcript::flat(runs);
    Ok(Some(result))
}

/// A session with all its turns.
pub(crate) fn session(db: &Connection, session: &SessionId) -> Result<Option<SessionDetail>, StoreError> {
    let Some((status, last_seq)) = sessions::find(db, session)? else { return Ok(None) };
    let mut all = db.prepare_cached(
        "SELECT id FROM turns WHERE session = (SELECT number FROM sessions WHERE id = ?1) ORDER BY number",
    )?;
    let ids: Vec<TurnId> = all.query_map([session.as_str()], |row| id(row, 0))?.collect::<Result<_, _>>()?;
    let mut turns = Vec::with_capacity(ids.len());
    for id in &ids {
        turns.extend(turn(db, id)?);
    }
    Ok(Some(SessionDetail { status, turns, last_seq }))
}

/// The latest finished turns as pairs of message and answer, oldest first.
pub(crate) fn conversation(
    db: &Connection,
    session: &SessionId,
    max_turns: usize,
) -> Result<Vec<(String, String)>, StoreError> {
    let mut latest = db.prepare_cached(
        "SELECT text, response ->> 'content' FROM turns JOIN inbox ON inbox.turn = turns.number
         WHERE session = (SELECT number FROM sessions WHERE id = ?1) AND finished_ms IS NOT NULL
         ORDER BY turns.number DESC LIMIT ?2",
    )?;
    let pairs = latest
        .query_map((session.as_str(), signed(max_turns as u64)), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut pairs: Vec<_> = pairs.collect::<Result<_, _>>()?;
    pairs.reverse();
    Ok(pairs)
}

/// The runs of a turn, in the order in which they began.
fn invocations(db: &Connection, turn: &TurnId) -> Result<Vec<Invocation>, StoreError> {
    let mut runs = Vec::new();
    let mut places: HashMap<InvocationId, usize> = HashMap::new();
    let mut began = db
        .prepare_cached("SELECT id, agent, parent, depth FROM invocations WHERE turn = ?1 ORDER BY number")?;
    let found = began.query_map([turn.as_str()], |row| {
        Ok((id::<InvocationId>(row, 0)?, id(row, 1)?, maybe_id(row, 2)?, row.get(3)?))
    })?;
    for run in found {
        let (id, agent, parent, depth) = run?;
        places.insert(id.clone(), runs.len());
        runs.push(Invocation::new(id, agent, parent, depth));
    }
    let mut all = db.prepare_cached(
        "SELECT entries.number, body FROM invocations JOIN entries ON entries.invocation = invocations.id
         WHERE turn = ?1 ORDER BY entries.number",
    )?;
    for row in all.query_map([turn.as_str()], |row| Ok((row.get(0)?, json::<Entry>(row, 1)?)))? {
        let (number, entry) = row?;
        if let Some(place) = places.get(entry.invocation()) {
            runs[*place].add(number, entry);
        }
    }
    Ok(runs)
}
