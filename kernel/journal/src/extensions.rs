//! The lives of extensions, over all kernels of this home, and what the operator set for them.
//!
//! A setting says what the operator wants; whether the extension then works is in its life.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use drupe_extension_api::control::{Approval, ExtensionState, StateChange};
use rusqlite::Connection;

use crate::{
    activations,
    error::Result,
    open,
    rows::{name_of, named, time},
    writer::Writing,
};

/// How many steps of each extension are kept: about thirty starts, enough to see when a trouble began.
const KEPT: u32 = 128;

/// How many of them are shown: the last few starts, on one screen.
const SHOWN: u32 = 20;

/// Records one step, and lets go of the oldest.
pub(crate) fn record(on: &Writing<'_>, extension: &str, change: &StateChange) -> Result<()> {
    on.statement("INSERT INTO extension_states (extension, time_ms, state, reason) VALUES (?1, ?2, ?3, ?4)")?
        .execute((extension, change.time.as_millisecond(), name_of(&change.state)?, &change.reason))?;
    on.statement(
        "DELETE FROM extension_states WHERE extension = ?1 AND number <= (
             SELECT number FROM extension_states WHERE extension = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute((extension, KEPT))?;
    Ok(())
}

/// The latest steps of an extension, oldest first.
pub(crate) fn history(db: &Connection, extension: &str) -> Result<Vec<StateChange>> {
    let mut latest = db.prepare_cached(
        "SELECT time_ms, state, reason FROM extension_states WHERE extension = ?1 ORDER BY number DESC LIMIT ?2",
    )?;
    let found = latest.query_map((extension, SHOWN), |row| {
        Ok(StateChange { time: time(row, 0)?, state: named(row, 1)?, reason: row.get(2)? })
    })?;
    let mut found: Vec<_> = found.collect::<Result<_, _>>()?;
    found.reverse();
    Ok(found)
}

/// Those that have worked, as far back as their lives are kept.
pub(crate) fn worked(db: &Connection) -> Result<BTreeSet<String>> {
    let mut all = db.prepare_cached("SELECT DISTINCT extension FROM extension_states WHERE state = ?1")?;
    let active = name_of(&ExtensionState::Active)?;
    Ok(all.query_map([active], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// What the operator decided on extensions, and which have worked.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    /// Those that were turned on or off.
    pub enabled: BTreeMap<String, bool>,
    /// What was asked, and how it was answered.
    pub approvals: Vec<Approval>,
    /// Those that have worked in this home.
    pub worked: BTreeSet<String>,
}

/// Reads them from a journal that another process may have open; one that is not there holds none.
pub fn decisions(journal: &Path) -> Result<Decisions> {
    if !journal.is_file() {
        return Ok(Decisions::default());
    }
    let db = open::read_only(journal)?;
    Ok(Decisions { enabled: enabled(&db)?, approvals: activations::list(&db)?, worked: worked(&db)? })
}

/// Turns an extension on or off; none leaves it to its manifest again.
pub(crate) fn set_enabled(on: &Writing<'_>, extension: &str, enabled: Option<bool>) -> Result<()> {
    match enabled {
        Some(enabled) => on
            .statement("INSERT OR REPLACE INTO extension_settings (extension, enabled) VALUES (?1, ?2)")?
            .execute((extension, enabled))?,
        None => on.statement("DELETE FROM extension_settings WHERE extension = ?1")?.execute([extension])?,
    };
    Ok(())
}

/// What the operator turned on or off, by extension.
pub(crate) fn enabled(db: &Connection) -> Result<BTreeMap<String, bool>> {
    let mut all = db.prepare_cached("SELECT extension, enabled FROM extension_settings")?;
    Ok(all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?)
}
