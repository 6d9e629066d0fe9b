//! Turns: queued, begun, finished. A finished turn stays as it is.

use drupe_extension_api::{AgentRef, CorrelationId, EventBody, InvocationId, SessionId, TurnId};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    DeliveryId, Inbound, QueuedTurn, StoreError, TurnDone, deliveries, events, records,
    rows::{id, maybe_id, maybe_json, named, time},
    writer::Writing,
};

/// The columns that [`queued_row`] reads, of turns without an answer.
macro_rules! unanswered {
    ($rest:literal) => {
        concat!(
            "SELECT turns.id, sessions.id, channel, external_id, kind, address, text, inbox.agent, model, output,
                    time_budget_ms, accepted_ms, started_ms IS NOT NULL, root, correlation
             FROM turns JOIN inbox ON inbox.turn = turns.number JOIN sessions ON sessions.number = turns.session
             WHERE finished_ms IS NULL ",
            $rest
        )
    };
}

/// What is needed of a turn in order to change it.
struct Open {
    number: i64,
    session_number: i64,
    session: SessionId,
}

/// Notes that a turn has begun, and gives how often it has by now. One that had begun before keeps its time.
pub(crate) fn start(
    on: &mut Writing<'_>,
    turn: &TurnId,
    root: &InvocationId,
    correlation: &CorrelationId,
    told: &[(Option<AgentRef>, EventBody)],
) -> Result<u32, StoreError> {
    let open = open(on, turn)?;
    let mut begin = on.statement(
        "UPDATE turns SET started_ms = coalesce(started_ms, ?2), starts = starts + 1, root = ?3, correlation = ?4
         WHERE number = ?1 RETURNING starts",
    )?;
    let starts =
        begin.query_row((open.number, on.now_ms(), root.as_str(), correlation.as_str()), |row| row.get(0))?;
    events::record(on, &open.session, Some(turn), told)?;
    Ok(starts)
}

/// Records how a turn ended, and queues what goes out.
pub(crate) fn finish(on: &mut Writing<'_>, done: &TurnDone) -> Result<Option<DeliveryId>, StoreError> {
    let open = open(on, &done.turn)?;
    for entry in &done.entries {
        records::entry(on, &done.turn, entry)?;
    }
    on.statement(
        "UPDATE turns SET finished_ms = ?2, response = ?3, spend = ?4, diagnostics = ?5, snapshot = ?6
         WHERE number = ?1",
    )?
    .execute((
        open.number,
        on.now_ms(),
        serde_json::to_string(&done.response)?,
        serde_json::to_string(&done.spend)?,
        serde_json::to_string(&done.diagnostics)?,
        &done.snapshot,
    ))?;
    let delivery = match &done.outbox {
        Some(message) => Some(deliveries::queue(on, done.turn.as_str(), open.session_number, message)?),
        None => None,
    };
    events::record(on, &open.session, Some(&done.turn), &done.events)?;
    Ok(delivery)
}

/// Turns without an answer, in the order in which they were accepted.
pub(crate) fn unfinished(db: &Connection) -> Result<Vec<QueuedTurn>, StoreError> {
    let mut all = db.prepare_cached(unanswered!("ORDER BY turns.number"))?;
    Ok(all.query_map([], queued_row)?.collect::<Result<_, _>>()?)
}

/// One turn without an answer.
pub(crate) fn queued(db: &Connection, turn: &TurnId) -> Result<Option<QueuedTurn>, StoreError> {
    let mut one = db.prepare_cached(unanswered!("AND turns.id = ?1"))?;
    Ok(one.query_row([turn.as_str()], queued_row).optional()?)
}

/// The latest snapshot of a session.
pub(crate) fn snapshot(db: &Connection, session: &SessionId) -> Result<Option<Vec<u8>>, StoreError> {
    let mut latest = db.prepare_cached(
        "SELECT snapshot FROM turns WHERE session = (SELECT number FROM sessions WHERE id = ?1)
         AND snapshot IS NOT NULL ORDER BY number DESC LIMIT 1",
    )?;
    Ok(latest.query_row([session.as_str()], |row| row.get(0)).optional()?)
}

fn open(on: &Writing<'_>, turn: &TurnId) -> Result<Open, StoreError> {
    let mut find = on.statement(
        "SELECT turns.number, sessions.number, sessions.id, finished_ms IS NULL
         FROM turns JOIN sessions ON sessions.number = turns.session WHERE turns.id = ?1",
    )?;
    let found = find
        .query_row([turn.as_str()], |row| {
            let open = Open { number: row.get(0)?, session_number: row.get(1)?, session: id(row, 2)? };
            Ok((open, row.get::<_, bool>(3)?))
        })
        .optional()?;
    match found {
        Some((open, true)) => Ok(open),
        Some((_, false)) => Err(StoreError::Finished(turn.clone())),
        None => Err(StoreError::UnknownTurn(turn.clone())),
    }
}

fn queued_row(row: &Row<'_>) -> rusqlite::Result<QueuedTurn> {
    let inbound = Inbound {
        session: id(row, 1)?,
        channel: row.get(2)?,
        external_id: row.get(3)?,
        kind: named(row, 4)?,
        address: row.get(5)?,
        text: row.get(6)?,
        agent: maybe_id(row, 7)?,
        model: row.get(8)?,
        output: maybe_json(row, 9)?,
        time_budget_ms: row.get::<_, Option<i64>>(10)?.map(i64::unsigned_abs),
    };
    Ok(QueuedTurn {
        turn: id(row, 0)?,
        inbound,
        accepted: time(row, 11)?,
        started: row.get(12)?,
        root: maybe_id(row, 13)?,
        correlation: maybe_id(row, 14)?,
    })
}
