//! The events of a session: numbered where they are committed, so that no number is ever given twice or skipped.
//!
//! Parts of a text that is still being made are live only: they pass through, unnumbered, and leave no row.

use drupe_extension_api::{AgentRef, CorrelationId, Event, EventBody, Item, ItemOutcome, SessionId, TurnId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use crate::{
    StoreError,
    rows::{json, maybe_id, signed, timestamp},
    sessions,
    writer::Writing,
};

/// The key of an event is its session's number in the upper half and its position in the lower one.
const POSITIONS: i64 = 1 << 32;

/// The most events of one answer, whatever a reader asks for: some megabytes at worst.
const LIMIT: usize = 4096;

/// Numbers and records events.
pub(crate) fn record(
    on: &mut Writing<'_>,
    session: &SessionId,
    turn: Option<&TurnId>,
    told: &[(Option<AgentRef>, EventBody)],
) -> Result<(), StoreError> {
    if told.is_empty() {
        return Ok(());
    }
    let now = on.now_ms();
    let kept = told.iter().filter(|(_, body)| !live(body)).count();
    let (number, mut seq) = take_positions(on, session, kept, now)?;
    let correlation = turn.map(|turn| correlation(on, turn)).transpose()?.flatten();
    for (agent, body) in told {
        let mut event = Event {
            seq: 0,
            time: timestamp(now),
            session: session.clone(),
            turn: turn.cloned(),
            correlation_id: correlation.clone(),
            agent: agent.clone(),
            body: body.clone(),
        };
        if !live(body) {
            seq += 1;
            event.seq = seq.unsigned_abs();
            on.statement("INSERT INTO events (id, body) VALUES (?1, ?2)")?
                .execute((number * POSITIONS + seq, serde_json::to_string(&event)?))?;
        }
        on.publish(event);
    }
    Ok(())
}

/// The events of a session after a position.
pub(crate) fn after(
    db: &Connection,
    session: &SessionId,
    position: u64,
    limit: usize,
) -> Result<Vec<Event>, StoreError> {
    let mut find = db.prepare_cached("SELECT number FROM sessions WHERE id = ?1")?;
    match find.query_row([session.as_str()], |row| row.get(0)).optional()? {
        Some(number) => read(db, number, signed(position), limit.min(LIMIT)),
        None => Ok(Vec::new()),
    }
}

/// Completes what the turn began and did not complete, because the process ended in between; gives their number.
pub(crate) fn close_open_items(on: &mut Writing<'_>, turn: &TurnId) -> Result<usize, StoreError> {
    let mut find = on.statement(
        "SELECT sessions.number, sessions.id, after_seq FROM turns JOIN sessions ON sessions.number = turns.session
         WHERE turns.id = ?1",
    )?;
    let (number, session, after_seq): (i64, SessionId, i64) = find
        .query_row([turn.as_str()], |row| Ok((row.get(0)?, crate::rows::id(row, 1)?, row.get(2)?)))
        .optional()?
        .ok_or_else(|| StoreError::UnknownTurn(turn.clone()))?;
    let mut open = Vec::new();
    let mut position = after_seq;
    loop {
        let page = read(on.db, number, position, LIMIT)?;
        let Some(last) = page.last() else { break };
        position = signed(last.seq);
        for event in page.into_iter().filter(|event| event.turn.as_ref() == Some(turn)) {
            follow(&mut open, event);
        }
    }
    let now = timestamp(on.now_ms());
    let told: Vec<_> = open.into_iter().map(|started| started.interrupted(now)).collect();
    record(on, &session, Some(turn), &told)?;
    Ok(told.len())
}

/// An item that has begun.
struct Started {
    agent: Option<AgentRef>,
    item: Item,
    since: Timestamp,
}

impl Started {
    fn interrupted(self, now: Timestamp) -> (Option<AgentRef>, EventBody) {
        let elapsed_ms = u64::try_from(now.duration_since(self.since).as_millis()).unwrap_or(0);
        (
            self.agent,
            EventBody::ItemCompleted { item: self.item, outcome: ItemOutcome::Interrupted, elapsed_ms },
        )
    }
}

fn follow(open: &mut Vec<Started>, event: Event) {
    match event.body {
        EventBody::ItemStarted { item } => {
            // An item that is begun again after a crash is still one item.
            open.retain(|started| started.item.id != item.id);
            open.push(Started { agent: event.agent, item, since: event.time });
        }
        EventBody::ItemCompleted { item, .. } => open.retain(|started| started.item.id != item.id),
        _ => {}
    }
}

fn read(db: &Connection, number: i64, position: i64, limit: usize) -> Result<Vec<Event>, StoreError> {
    let first = number * POSITIONS;
    let mut some =
        db.prepare_cached("SELECT body FROM events WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3")?;
    let after = first + position.min(POSITIONS - 1);
    let found = some.query_map((after, first + POSITIONS, signed(limit as u64)), |row| json(row, 0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Sets `kept` positions aside; gives the session's number and the last position before them.
fn take_positions(
    on: &Writing<'_>,
    session: &SessionId,
    kept: usize,
    now: i64,
) -> Result<(i64, i64), StoreError> {
    let mut take = on.statement(
        "UPDATE sessions SET last_seq = last_seq + ?2, updated_ms = ?3 WHERE id = ?1 RETURNING number, last_seq",
    )?;
    let kept = signed(kept as u64);
    let mut taken = || {
        take.query_row((session.as_str(), kept, now), |row| Ok((row.get(0)?, row.get::<_, i64>(1)? - kept)))
            .optional()
    };
    if let Some(found) = taken()? {
        return Ok(found);
    }
    sessions::ensure(on, session)?;
    taken()?.ok_or_else(|| StoreError::Database(format!("session `{session}` has no row")))
}

fn correlation(on: &Writing<'_>, turn: &TurnId) -> Result<Option<CorrelationId>, StoreError> {
    let mut find = on.statement("SELECT correlation FROM turns WHERE id = ?1")?;
    Ok(find.query_row([turn.as_str()], |row| maybe_id(row, 0)).optional()?.flatten())
}

fn live(body: &EventBody) -> bool {
    matches!(body, EventBody::ItemUpdated { .. })
}
