//! What was allowed for the rest of a session, and whether text of strangers came into it.
//!
//! Both last from turn to turn, and whoever decides about a call reads them when its turn begins. A grant is given by the
//! answer to a question and by nothing else, in the transaction that records the answer.

use drupe_extension_api::{
    SessionId,
    control::{Approval, StandingGrant},
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Store, StoreError,
    error::Result,
    rows::{id, readable, time},
    writer::{Survives, Writing},
};

/// What the audit calls one that is given, and one that is taken back.
const GIVEN: &str = "grant.given";
const REVOKED: &str = "grant.revoked";

/// Grants of one session: whoever agrees to more than that reads none of them any more.
const MOST: i64 = 256;

/// What holds in a session from turn to turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionStanding {
    /// By which tool text of strangers came into it.
    pub tainted_by: Option<String>,
    /// What was allowed for the rest of it.
    pub grants: Vec<StandingGrant>,
}

const SELECT: &str = "SELECT grants.number, sessions.id, grants.agent, about, for_taint, given_ms, given_by
     FROM grants JOIN sessions ON sessions.number = grants.session";

impl Store {
    /// What holds in a session.
    pub async fn standing(&self, session: &SessionId) -> Result<SessionStanding> {
        let session = session.clone();
        self.read_few(move |db| {
            let mut find = db.prepare_cached("SELECT number, tainted_by FROM sessions WHERE id = ?1")?;
            let found = find.query_row([session.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)));
            let Some((number, tainted_by)) = found.optional()? else { return Ok(SessionStanding::default()) };
            let mut all =
                db.prepare_cached(&format!("{SELECT} WHERE grants.session = ?1 ORDER BY grants.number"))?;
            Ok(SessionStanding { tainted_by, grants: readable(all.query([number])?, ("a grant", 0), grant)? })
        })
        .await
    }

    /// All that was allowed for the rest of some session, the newest first.
    pub async fn grants(&self) -> Result<Vec<StandingGrant>> {
        self.read(|db| {
            let mut all = db.prepare_cached(&format!("{SELECT} ORDER BY grants.number DESC"))?;
            Ok(readable(all.query([])?, ("a grant", 0), grant)?)
        })
        .await
    }

    /// Takes a grant back; none where there is none of that id.
    pub async fn revoke_grant(&self, id: &str, by: String) -> Result<Option<StandingGrant>> {
        let Some(number) = number_of(id) else { return Ok(None) };
        self.write(Survives::Power, move |on| {
            let Some(found) = one(on.db, number)? else { return Ok(None) };
            on.statement("DELETE FROM grants WHERE number = ?1")?.execute([number])?;
            audit(on, &by, REVOKED, &found, &found.about)?;
            Ok(Some(found))
        })
        .await
    }
}

/// Records what was allowed with the answer to a question. An earlier one about the same gives way to it.
pub(crate) fn give(on: &Writing<'_>, question: &Approval, by: &str) -> Result<StandingGrant> {
    let nothing = || StoreError::NoGrant(question.id.clone());
    let call = question.call.as_ref().ok_or_else(nothing)?;
    let about = call.about.as_ref().ok_or_else(nothing)?;
    let mut find = on.statement("SELECT number FROM sessions WHERE id = ?1")?;
    let session: i64 = find.query_row([call.session.as_str()], |row| row.get(0))?;
    on.statement("DELETE FROM grants WHERE session = ?1 AND agent = ?2 AND about = ?3")?.execute((
        session,
        call.agent.as_str(),
        about,
    ))?;
    let mut count = on.statement("SELECT count(*) FROM grants WHERE session = ?1")?;
    if count.query_row([session], |row| row.get::<_, i64>(0))? >= MOST {
        return Err(StoreError::TooManyGrants(call.session.clone()));
    }
    on.statement(
        "INSERT INTO grants (session, agent, about, for_taint, given_ms, given_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute((session, call.agent.as_str(), about, call.for_taint, on.now_ms(), by))?;
    let given = one(on.db, on.db.last_insert_rowid())?
        .ok_or_else(|| StoreError::Record("a grant that was written is not there".into()))?;
    audit(on, by, GIVEN, &given, &question.hash)?;
    Ok(given)
}

/// Text of strangers came into a session. What brought it first is kept.
pub(crate) fn taint(on: &Writing<'_>, session: i64, tool: &str) -> Result<()> {
    on.statement("UPDATE sessions SET tainted_by = ?2 WHERE number = ?1 AND tainted_by IS NULL")?
        .execute((session, tool))?;
    Ok(())
}

fn audit(on: &Writing<'_>, by: &str, what: &str, grant: &StandingGrant, hash: &str) -> Result<()> {
    on.statement(
        "INSERT INTO audit (time_ms, who, what, subject, hash, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute((on.now_ms(), by, what, &grant.id, hash, &grant.about))?;
    Ok(())
}

fn one(db: &Connection, number: i64) -> Result<Option<StandingGrant>> {
    let mut find = db.prepare_cached(&format!("{SELECT} WHERE grants.number = ?1"))?;
    Ok(find.query_row([number], grant).optional()?)
}

fn number_of(id: &str) -> Option<i64> {
    id.strip_prefix("g-")?.parse().ok()
}

fn grant(row: &Row<'_>) -> rusqlite::Result<StandingGrant> {
    Ok(StandingGrant {
        id: format!("g-{}", row.get::<_, i64>(0)?),
        session: id(row, 1)?,
        agent: id(row, 2)?,
        about: row.get(3)?,
        for_taint: row.get(4)?,
        given: time(row, 5)?,
        by: row.get(6)?,
    })
}
