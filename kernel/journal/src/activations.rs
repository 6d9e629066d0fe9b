//! The operator's agreement to activate an extension, for one content each.
//!
//! An agreement is asked for once for each content, and holds for that content alone: what changed is asked for
//! anew. At most one waits for each extension, the one for the content that is there now.
//!
//! What needs an agreement, and whether a content is still there, is the kernel's to know.

use drupe_extension_api::control::{Approval, ApprovalState};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    StoreError,
    error::Result,
    questions::as_shown,
    rows::{json, maybe_time, name_of, named, readable, time, timestamp},
    writer::Writing,
};

/// What the audit calls an answer to an activation.
const WHAT: &str = "extension.activate";

/// The columns that [`approval`] reads.
macro_rules! approvals {
    ($rest:literal) => {
        concat!(
            "SELECT number, extension, hash, needs, asked_ms, state, answered_ms FROM activations ",
            $rest
        )
    };
}

/// Asks for the agreement, unless it was asked for before. Other contents of the extension wait no longer.
pub(crate) fn ask(on: &Writing<'_>, extension: &str, hash: &str, needs: &[String]) -> Result<Approval> {
    on.statement(
        "UPDATE activations SET state = 'withdrawn' WHERE extension = ?1 AND hash <> ?2 AND state = 'pending'",
    )?
    .execute((extension, hash))?;
    // One that waits shows what is needed now; one that was answered keeps what the operator saw.
    on.statement(
        "INSERT INTO activations (extension, hash, needs, state, asked_ms) VALUES (?1, ?2, ?3, 'pending', ?4)
         ON CONFLICT (extension, hash) DO UPDATE SET
             needs = excluded.needs,
             asked_ms = iif(state = 'withdrawn', excluded.asked_ms, asked_ms),
             state = 'pending'
         WHERE state = 'withdrawn' OR (state = 'pending' AND needs <> excluded.needs)",
    )?
    .execute((extension, hash, serde_json::to_string(needs)?, on.now_ms()))?;
    let mut find = on.statement(approvals!("WHERE extension = ?1 AND hash = ?2"))?;
    Ok(find.query_row((extension, hash), approval)?)
}

/// How the agreement for a content stands; none where it was never asked for.
pub(crate) fn state(db: &Connection, extension: &str, hash: &str) -> Result<Option<ApprovalState>> {
    let mut find = db.prepare_cached("SELECT state FROM activations WHERE extension = ?1 AND hash = ?2")?;
    Ok(find.query_row((extension, hash), |row| named(row, 0)).optional()?)
}

/// Records an answer, for the audit too; gives none where there is nothing to answer under this name.
pub(crate) fn answer(
    on: &Writing<'_>,
    id_or_extension: &str,
    allow: bool,
    shown: Option<&str>,
    by: &str,
) -> Result<Option<Approval>> {
    let Some(mut approval) = meant(on, id_or_extension)? else { return Ok(None) };
    if approval.state == ApprovalState::Withdrawn {
        return Err(StoreError::Withdrawn { approval: approval.id, extension: approval.extension });
    }
    as_shown(&approval, shown)?;
    approval.state = if allow { ApprovalState::Allowed } else { ApprovalState::Denied };
    let (outcome, now) = (name_of(&approval.state)?, on.now_ms());
    on.statement("UPDATE activations SET state = ?3, answered_ms = ?4 WHERE extension = ?1 AND hash = ?2")?
        .execute((&approval.extension, &approval.hash, &outcome, now))?;
    on.statement(
        "INSERT INTO audit (time_ms, who, what, subject, hash, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute((now, by, WHAT, &approval.extension, &approval.hash, &outcome))?;
    approval.answered = Some(timestamp(now));
    Ok(Some(approval))
}

/// What waits for an extension is not there any more. What was answered stays answered.
pub(crate) fn withdraw(on: &Writing<'_>, extension: &str) -> Result<()> {
    on.statement("UPDATE activations SET state = 'withdrawn' WHERE extension = ?1 AND state = 'pending'")?
        .execute([extension])?;
    Ok(())
}

/// All of them: those that wait first, then by when they were asked for, the newest first.
pub(crate) fn list(db: &Connection) -> Result<Vec<Approval>> {
    let mut all = db.prepare_cached(approvals!("ORDER BY state <> 'pending', asked_ms DESC, number DESC"))?;
    Ok(readable(all.query([])?, ("an agreement to an extension", 1), approval)?)
}

/// The approval of that id, or the one that waits for the extension of that name. An extension may be called like
/// the approval of another, and must not get an answer that was meant for it.
fn meant(on: &Writing<'_>, id_or_extension: &str) -> Result<Option<Approval>> {
    let mut find =
        on.statement(approvals!("WHERE number = ?1 OR (extension = ?2 AND state = 'pending') LIMIT 2"))?;
    let mut found = find
        .query_map((number(id_or_extension), id_or_extension), approval)?
        .collect::<Result<Vec<_>, _>>()?;
    match (found.pop(), found.pop()) {
        (one, None) => Ok(one),
        (_, Some(_)) => Err(StoreError::AmbiguousApproval(id_or_extension.to_owned())),
    }
}

/// Ids are typed by people: a letter, so that they are no number among others, and the row's number.
fn id(number: i64) -> String {
    format!("a{number}")
}

fn number(text: &str) -> Option<i64> {
    let number = text.strip_prefix('a')?.parse().ok()?;
    // Only the one way of writing it.
    (id(number) == text).then_some(number)
}

fn approval(row: &Row<'_>) -> rusqlite::Result<Approval> {
    Ok(Approval {
        id: id(row.get(0)?),
        extension: row.get(1)?,
        hash: row.get(2)?,
        needs: json(row, 3)?,
        asked: time(row, 4)?,
        state: named(row, 5)?,
        answered: maybe_time(row, 6)?,
        call: None,
    })
}
