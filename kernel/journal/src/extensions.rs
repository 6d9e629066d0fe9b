//! The lives of extensions, over all kernels of this home.

use drupe_extension_api::control::StateChange;
use rusqlite::Connection;

use crate::{
    StoreError,
    rows::{name_of, named, time},
    writer::Writing,
};

/// How many steps of each extension are kept: about thirty starts, enough to see when a trouble began.
const KEPT: u32 = 128;

/// Records one step, and lets go of the oldest.
pub(crate) fn record(on: &Writing<'_>, extension: &str, change: &StateChange) -> Result<(), StoreError> {
    on.statement("INSERT INTO extension_states (extension, time_ms, state, reason) VALUES (?1, ?2, ?3, ?4)")?
        .execute((extension, change.time.as_millisecond(), name_of(&change.state)?, &change.reason))?;
    on.statement(
        "DELETE FROM extension_states WHERE extension = ?1 AND number <= (
             SELECT number FROM extension_states WHERE extension = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute((extension, KEPT))?;
    Ok(())
}

/// The steps of an extension that are kept, oldest first.
pub(crate) fn history(db: &Connection, extension: &str) -> Result<Vec<StateChange>, StoreError> {
    let mut all = db.prepare_cached(
        "SELECT time_ms, state, reason FROM extension_states WHERE extension = ?1 ORDER BY number",
    )?;
    let found = all.query_map([extension], |row| {
        Ok(StateChange { time: time(row, 0)?, state: named(row, 1)?, reason: row.get(2)? })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
