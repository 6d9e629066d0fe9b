//! Named tokens of the control API. What their bearers show is not here: only its hash is.

use std::collections::BTreeSet;

use drupe_extension_api::{
    AgentId,
    control::{Power, TokenStatus},
};
use rusqlite::{Connection, Row};

use crate::{
    StoreError,
    rows::{json, maybe_json, time},
    writer::Writing,
};

/// Keeps a token. False where there is one of that name, which stays as it is.
pub(crate) fn make(on: &Writing<'_>, token: &TokenStatus, hash: &str) -> Result<bool, StoreError> {
    let agents = (!token.agents.is_empty()).then(|| serde_json::to_string(&token.agents)).transpose()?;
    let made = on
        .statement(
            "INSERT INTO tokens (name, hash, may, sessions, agents, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (name) DO NOTHING",
        )?
        .execute((
            &token.name,
            hash,
            serde_json::to_string(&token.may)?,
            &token.sessions,
            agents,
            token.created.as_millisecond(),
        ))?;
    Ok(made == 1)
}

/// Forgets a token; false where there is none of that name.
pub(crate) fn revoke(on: &Writing<'_>, name: &str) -> Result<bool, StoreError> {
    Ok(on.statement("DELETE FROM tokens WHERE name = ?1")?.execute([name])? == 1)
}

/// All of them with their hashes, by name.
pub(crate) fn all(db: &Connection) -> Result<Vec<(TokenStatus, String)>, StoreError> {
    let mut all =
        db.prepare_cached("SELECT name, may, sessions, agents, created_ms, hash FROM tokens ORDER BY name")?;
    Ok(all.query_map([], |row| Ok((status(row)?, row.get(5)?)))?.collect::<Result<_, _>>()?)
}

fn status(row: &Row<'_>) -> rusqlite::Result<TokenStatus> {
    Ok(TokenStatus {
        name: row.get(0)?,
        may: json::<BTreeSet<Power>>(row, 1)?.into_iter().collect(),
        sessions: row.get(2)?,
        agents: maybe_json::<Vec<AgentId>>(row, 3)?.unwrap_or_default(),
        created: time(row, 4)?,
    })
}
