//! Named tokens of the control API. What their bearers show is not here: only its hash is.
//!
//! The row of a revoked token stays, without a hash that anybody could show and without a power. Its name belongs to the
//! sessions and turns of its bearer, so nobody else is given it.

use std::collections::BTreeSet;

use drupe_extension_api::{
    AgentId,
    control::{Allowance, Power, TokenStatus},
};
use rusqlite::{Connection, Row};

use crate::{
    StoreError,
    rows::{json, maybe_json, readable, time},
    writer::Writing,
};

/// Keeps a token. False where there is one of that name, or was one: its row stays as it is.
pub(crate) fn make(on: &Writing<'_>, token: &TokenStatus, hash: &str) -> Result<bool, StoreError> {
    let agents = (!token.agents.is_empty()).then(|| serde_json::to_string(&token.agents)).transpose()?;
    let made = on
        .statement(
            "INSERT INTO tokens (name, hash, may, sessions, agents, created_ms, per_day, per_day_each)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (name) DO NOTHING",
        )?
        .execute((
            &token.name,
            hash,
            serde_json::to_string(&token.may)?,
            &token.sessions,
            agents,
            token.created.as_millisecond(),
            allowance(&token.per_day)?,
            allowance(&token.per_day_each)?,
        ))?;
    Ok(made == 1)
}

/// Takes everything from a token but its name; false where there is none of that name.
pub(crate) fn revoke(on: &Writing<'_>, name: &str) -> Result<bool, StoreError> {
    let revoked = on
        .statement(
            "UPDATE tokens SET hash = 'revoked ' || name, may = '[]', sessions = '', agents = NULL
             WHERE name = ?1 AND may <> '[]'",
        )?
        .execute([name])?;
    Ok(revoked == 1)
}

/// All that are not revoked with their hashes, by name.
pub(crate) fn all(db: &Connection) -> Result<Vec<(TokenStatus, String)>, StoreError> {
    let mut all = db.prepare_cached(
        "SELECT name, may, sessions, agents, created_ms, per_day, per_day_each, hash FROM tokens WHERE may <> '[]' ORDER BY name",
    )?;
    Ok(readable(all.query([])?, ("a token", 0), |row| Ok((status(row)?, row.get(7)?)))?)
}

fn status(row: &Row<'_>) -> rusqlite::Result<TokenStatus> {
    Ok(TokenStatus {
        name: row.get(0)?,
        may: json::<BTreeSet<Power>>(row, 1)?.into_iter().collect(),
        sessions: row.get(2)?,
        agents: maybe_json::<Vec<AgentId>>(row, 3)?.unwrap_or_default(),
        created: time(row, 4)?,
        per_day: maybe_json::<Allowance>(row, 5)?.unwrap_or_default(),
        per_day_each: maybe_json::<Allowance>(row, 6)?.unwrap_or_default(),
    })
}

/// What may be used; none where it bounds nothing.
fn allowance(allowance: &Allowance) -> Result<Option<String>, StoreError> {
    Ok((!allowance.is_empty()).then(|| serde_json::to_string(allowance)).transpose()?)
}
