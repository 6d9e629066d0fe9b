//! Answers on their way out.
//!
//! An answer is `due` until a channel takes it up, `sending` while nobody knows whether it arrived, then `sent`.
//! One that was `sending` when the process ended, or whose channel cannot tell, is `uncertain`: the user is told,
//! and it is never sent again.

use drupe_extension_api::EventBody;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Delivery, DeliveryId, Outbound, StoreError, events,
    rows::{id, time},
    writer::Writing,
};

/// Queues the answer of a turn. A turn has one, so that nothing is answered twice.
pub(crate) fn queue(on: &Writing<'_>, turn: i64, message: &Outbound) -> Result<DeliveryId, StoreError> {
    on.statement(
        "INSERT INTO outbox (turn, channel, address, text, created_ms, updated_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
    )?
    .execute((turn, &message.channel, &message.address, &message.text, on.now_ms()))?;
    Ok(DeliveryId(turn))
}

/// What waits to be sent, the oldest first.
pub(crate) fn due(db: &Connection) -> Result<Vec<Delivery>, StoreError> {
    let mut all = db.prepare_cached(
        "SELECT outbox.turn, turns.id, sessions.id, outbox.channel, outbox.address, outbox.text, attempts,
                outbox.created_ms
         FROM outbox JOIN turns ON turns.number = outbox.turn JOIN sessions ON sessions.number = turns.session
         WHERE state IN ('due', 'sending') AND state = 'due' ORDER BY outbox.turn",
    )?;
    Ok(all.query_map([], delivery)?.collect::<Result<_, _>>()?)
}

/// From `due` to `sending`: before the channel is called.
pub(crate) fn sending(on: &Writing<'_>, delivery: DeliveryId) -> Result<(), StoreError> {
    let mut step = on.statement(
        "UPDATE outbox SET state = 'sending', attempts = attempts + 1, updated_ms = ?2
         WHERE turn = ?1 AND state = 'due'",
    )?;
    moved(step.execute((delivery.0, on.now_ms()))?, delivery, "due")
}

/// From `sending` to `sent`.
pub(crate) fn sent(
    on: &Writing<'_>,
    delivery: DeliveryId,
    remote_id: Option<&str>,
) -> Result<(), StoreError> {
    let mut step = on.statement(
        "UPDATE outbox SET state = 'sent', remote_id = ?3, why = NULL, updated_ms = ?2
         WHERE turn = ?1 AND state = 'sending'",
    )?;
    moved(step.execute((delivery.0, on.now_ms(), remote_id))?, delivery, "sending")
}

/// From `sending` back to `due`: the channel is sure that nothing went out.
pub(crate) fn not_sent(on: &Writing<'_>, delivery: DeliveryId, why: &str) -> Result<(), StoreError> {
    let mut step = on.statement(
        "UPDATE outbox SET state = 'due', why = ?3, updated_ms = ?2 WHERE turn = ?1 AND state = 'sending'",
    )?;
    moved(step.execute((delivery.0, on.now_ms(), why))?, delivery, "sending")
}

/// From `sending` to `uncertain`, and tells the session.
pub(crate) fn uncertain(on: &mut Writing<'_>, delivery: DeliveryId, why: &str) -> Result<(), StoreError> {
    let mut step = on.statement(
        "UPDATE outbox SET state = 'uncertain', why = ?3, updated_ms = ?2
         WHERE turn = ?1 AND state = 'sending'
         RETURNING (SELECT session FROM turns WHERE number = outbox.turn), channel",
    )?;
    let (session, channel): (i64, String) = step
        .query_row((delivery.0, on.now_ms(), why), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .ok_or(StoreError::Delivery { delivery, needed: "sending" })?;
    let session = events::session_of(on.db, session)?;
    let message = format!("an answer may not have reached `{channel}`, and is not sent again: {why}");
    let told = EventBody::Diagnostic { code: "delivery.uncertain".into(), message };
    events::record(on, &session, None, &[(None, told)])
}

/// At the start: whatever was being sent when the last process ended may have arrived or not.
pub(crate) fn doubt_all(on: &mut Writing<'_>) -> Result<(), StoreError> {
    let mut open = on.statement(
        "SELECT turn FROM outbox WHERE state IN ('due', 'sending') AND state = 'sending' ORDER BY turn",
    )?;
    let found: Vec<i64> = open.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    found
        .into_iter()
        .try_for_each(|number| uncertain(on, DeliveryId(number), "drupe ended while it was being sent"))
}

fn moved(rows: usize, delivery: DeliveryId, needed: &'static str) -> Result<(), StoreError> {
    if rows == 1 { Ok(()) } else { Err(StoreError::Delivery { delivery, needed }) }
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        id: DeliveryId(row.get(0)?),
        key: row.get(1)?,
        session: id(row, 2)?,
        message: Outbound { channel: row.get(3)?, address: row.get(4)?, text: row.get(5)? },
        attempts: row.get(6)?,
        created: time(row, 7)?,
    })
}
