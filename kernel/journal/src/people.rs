//! People who wrote through channels whose senders are to be known, and what the operator said of them.
//!
//! Somebody unknown has a row as soon as they are shown a code, and none before: those whom no code is shown leave nothing, so
//! that strangers cannot fill the journal, nor the operator's list. The bounds on codes stand here, in the transaction that
//! gives one out, and not with whoever asks.

use drupe_extension_api::{
    control::{Allowance, PersonAnswer, PersonState, PersonStatus},
    wire::{Admission, Sender},
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Store, StoreError,
    rows::{maybe_json, maybe_time, name_of, named, readable, time, timestamp},
    writer::{Survives, Writing},
};

/// How long a code holds: long enough for a call to the operator, short enough that nobody finds it later.
const HOLDS_MS: i64 = 60 * 60 * 1000;
/// Codes of one channel that wait at the same time: an operator looks through these before they agree to one.
const MOST_WAITING: i64 = 3;
/// How often one code is shown to whoever writes again, and how many codes somebody gets within a day.
const MOST_SHOWN: i64 = 3;
const MOST_CODES: i64 = 3;
/// Then somebody who was not answered may begin anew.
const FORGOTTEN_MS: i64 = 24 * 60 * 60 * 1000;

/// What a question about somebody led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Known {
        may_approve: bool,
    },
    /// They are to be shown the code; `is_new` where the operator has not heard of it.
    Waiting {
        code: String,
        expires: Timestamp,
        is_new: bool,
    },
    /// They are shown nothing, neither a code nor why.
    Unknown,
}

impl Asked {
    /// As a channel is told it, with the text that somebody who waits is shown.
    pub fn into_admission(self) -> Admission {
        match self {
            Self::Known { may_approve } => Admission::Known { may_approve },
            Self::Unknown => Admission::Unknown,
            Self::Waiting { code, expires, .. } => {
                let text = format!(
                    "This assistant does not know you. If it is meant for you, tell the code {code} to whoever runs it. It holds for an hour."
                );
                Admission::Waiting { code, expires, text }
            }
        }
    }
}

impl Store {
    /// What is known of somebody who wrote through a channel.
    pub async fn person(&self, channel: String, id: String) -> Result<Option<PersonStatus>, StoreError> {
        self.read_few(move |db| find(db, &channel, &id)).await
    }

    /// Asks whether somebody who wrote through a channel is known; where not, they may get a code, which is `fresh` or one
    /// that they have.
    pub async fn ask_about(
        &self,
        channel: String,
        sender: Sender,
        fresh: String,
    ) -> Result<Asked, StoreError> {
        self.write(Survives::Power, move |on| ask(on, &channel, &sender, &fresh)).await
    }

    /// Lets whoever was shown a code in, or keeps them out; none where nobody waits with it.
    pub async fn answer_person(
        &self,
        answer: PersonAnswer,
        by: String,
    ) -> Result<Option<PersonStatus>, StoreError> {
        self.write(Survives::Power, move |on| settle(on, &answer, &by)).await
    }

    /// Forgets what was said of somebody; gives what it was.
    pub async fn revoke_person(
        &self,
        channel: String,
        id: String,
        by: String,
    ) -> Result<Option<PersonStatus>, StoreError> {
        self.write(Survives::Power, move |on| revoke(on, (&channel, &id), &by)).await
    }

    /// Everybody who was answered, and those whose codes hold, these first.
    pub async fn people(&self, now_ms: i64) -> Result<Vec<PersonStatus>, StoreError> {
        self.read(move |db| all(db, now_ms)).await
    }
}

/// What is known of somebody, where that needs no change.
fn find(db: &Connection, channel: &str, id: &str) -> Result<Option<PersonStatus>, StoreError> {
    let mut one = db.prepare_cached(&format!("{SELECT} WHERE channel = ?1 AND id = ?2"))?;
    Ok(one.query_row((channel, id), status).optional()?)
}

/// Asks whether somebody is known; gives them a code, `fresh` where they need another one, within the bounds.
fn ask(on: &Writing<'_>, channel: &str, sender: &Sender, fresh: &str) -> Result<Asked, StoreError> {
    let now = on.now_ms();
    on.statement("DELETE FROM people WHERE state = 'waiting' AND asked_ms <= ?1")?
        .execute([now - FORGOTTEN_MS])?;
    let mut codes = 0;
    if let Some(known) = find(on.db, channel, &sender.id)? {
        match known.state {
            PersonState::Allowed => return Ok(Asked::Known { may_approve: known.may_approve }),
            PersonState::Denied => return Ok(Asked::Unknown),
            PersonState::Waiting => {}
        }
        let (shown, had): (i64, i64) = on
            .statement("SELECT shown, codes FROM people WHERE channel = ?1 AND id = ?2")?
            .query_row((channel, &sender.id), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let asked = known.asked.as_millisecond();
        if let Some(code) = known.code.filter(|_| asked + HOLDS_MS > now) {
            if shown >= MOST_SHOWN {
                return Ok(Asked::Unknown);
            }
            on.statement("UPDATE people SET shown = shown + 1 WHERE channel = ?1 AND id = ?2")?
                .execute((channel, &sender.id))?;
            return Ok(Asked::Waiting { code, expires: timestamp(asked + HOLDS_MS), is_new: false });
        }
        codes = had;
    }
    let waiting: i64 = on
        .statement("SELECT count(*) FROM people WHERE channel = ?1 AND state = 'waiting' AND asked_ms > ?2")?
        .query_row((channel, now - HOLDS_MS), |row| row.get(0))?;
    if codes >= MOST_CODES || waiting >= MOST_WAITING {
        return Ok(Asked::Unknown);
    }
    on.statement(
        "INSERT INTO people (channel, id, name, state, code, asked_ms) VALUES (?1, ?2, ?3, 'waiting', ?4, ?5)
         ON CONFLICT (channel, id) DO UPDATE
         SET name = excluded.name, code = excluded.code, asked_ms = excluded.asked_ms, shown = 1, codes = codes + 1",
    )?
    .execute((channel, &sender.id, &sender.name, fresh, now))?;
    Ok(Asked::Waiting { code: fresh.to_owned(), expires: timestamp(now + HOLDS_MS), is_new: true })
}

/// What the operator says of whoever was shown a code; none where nobody waits with it.
fn settle(on: &Writing<'_>, answer: &PersonAnswer, by: &str) -> Result<Option<PersonStatus>, StoreError> {
    let now = on.now_ms();
    let found: Option<(String, String)> = on
        .statement("SELECT channel, id FROM people WHERE code = ?1 AND state = 'waiting' AND asked_ms > ?2")?
        .query_row((&answer.code, now - HOLDS_MS), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((channel, id)) = found else { return Ok(None) };
    let state = if answer.allow { PersonState::Allowed } else { PersonState::Denied };
    let per_day = (!answer.per_day.is_empty()).then(|| serde_json::to_string(&answer.per_day)).transpose()?;
    on.statement(
        "UPDATE people SET state = ?3, code = NULL, answered_ms = ?4, may_approve = ?5, per_day = ?6
         WHERE channel = ?1 AND id = ?2",
    )?
    .execute((&channel, &id, name_of(&state)?, now, answer.allow && answer.may_approve, per_day))?;
    let said = find(on.db, &channel, &id)?;
    if let Some(said) = &said {
        audit(on, by, &said.id, &name_of(&state)?)?;
    }
    Ok(said)
}

/// Forgets what was said of somebody; gives what it was.
fn revoke(
    on: &Writing<'_>,
    (channel, id): (&str, &str),
    by: &str,
) -> Result<Option<PersonStatus>, StoreError> {
    let known = find(on.db, channel, id)?;
    if let Some(known) = &known {
        on.statement("DELETE FROM people WHERE channel = ?1 AND id = ?2")?.execute((channel, id))?;
        audit(on, by, &known.id, "revoked")?;
    }
    Ok(known)
}

/// All that were answered, and all whose codes hold.
fn all(db: &Connection, now_ms: i64) -> Result<Vec<PersonStatus>, StoreError> {
    let mut all = db.prepare_cached(&format!(
        "{SELECT} WHERE state <> 'waiting' OR asked_ms > ?1 ORDER BY state <> 'waiting', channel, id"
    ))?;
    Ok(readable(all.query([now_ms - HOLDS_MS])?, ("somebody of a channel", 1), status)?)
}

const SELECT: &str =
    "SELECT channel, id, name, state, code, asked_ms, answered_ms, may_approve, per_day FROM people";

fn status(row: &Row<'_>) -> rusqlite::Result<PersonStatus> {
    let (channel, id): (String, String) = (row.get(0)?, row.get(1)?);
    let (state, asked) = (named::<PersonState>(row, 3)?, time(row, 5)?);
    let waits = state == PersonState::Waiting;
    Ok(PersonStatus {
        id: format!("{channel}/{id}"),
        name: row.get(2)?,
        state,
        code: row.get(4)?,
        asked,
        expires: waits.then(|| timestamp(asked.as_millisecond() + HOLDS_MS)),
        answered: maybe_time(row, 6)?,
        may_approve: row.get(7)?,
        per_day: maybe_json::<Allowance>(row, 8)?.unwrap_or_default(),
    })
}

fn audit(on: &Writing<'_>, by: &str, subject: &str, outcome: &str) -> Result<(), StoreError> {
    on.statement(
        "INSERT INTO audit (time_ms, who, what, subject, hash, outcome) VALUES (?1, ?2, 'person', ?3, '', ?4)",
    )?
    .execute((on.now_ms(), by, subject, outcome))?;
    Ok(())
}
