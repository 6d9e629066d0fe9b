//! Restarts that were asked for: each is carried out by one kernel and found by the next one, once.

use drupe_extension_api::{SessionId, TurnId};
use rusqlite::OptionalExtension;

use crate::{
    RestartRow, RestartVerdict, StoreError,
    rows::{maybe_id, time},
    writer::Writing,
};

/// The most restarts that nobody watched within [`WINDOW_MS`]: enough for an agent that improves its own
/// extensions, too few for one that has lost its way.
const UNATTENDED: u32 = 3;

/// Ten minutes.
const WINDOW_MS: u64 = 10 * 60 * 1000;

/// Records a restart, unless there were too many.
pub(crate) fn request(
    on: &Writing<'_>,
    reason: &str,
    session: Option<&SessionId>,
    turn: Option<&TurnId>,
    unattended: bool,
) -> Result<RestartVerdict, StoreError> {
    let now = on.now_ms();
    if unattended {
        let since = now.saturating_sub_unsigned(WINDOW_MS);
        let count: u32 = on
            .statement("SELECT count(*) FROM restarts WHERE unattended AND requested_ms > ?1")?
            .query_row([since], |row| row.get(0))?;
        if count >= UNATTENDED {
            return Ok(RestartVerdict::TooMany { count, window_ms: WINDOW_MS });
        }
    }
    on.statement(
        "INSERT INTO restarts (reason, session, turn, unattended, requested_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute((reason, session.map(SessionId::as_str), turn.map(TurnId::as_str), unattended, now))?;
    Ok(RestartVerdict::Accepted)
}

/// The oldest restart that no kernel has found yet.
pub(crate) fn take(on: &Writing<'_>) -> Result<Option<RestartRow>, StoreError> {
    let mut oldest = on.statement(
        "UPDATE restarts SET consumed_ms = ?1
         WHERE number = (SELECT min(number) FROM restarts WHERE consumed_ms IS NULL)
         RETURNING reason, session, turn, unattended, requested_ms",
    )?;
    let found = oldest.query_row([on.now_ms()], |row| {
        Ok(RestartRow {
            reason: row.get(0)?,
            session: maybe_id(row, 1)?,
            turn: maybe_id(row, 2)?,
            unattended: row.get(3)?,
            requested: time(row, 4)?,
        })
    });
    Ok(found.optional()?)
}
