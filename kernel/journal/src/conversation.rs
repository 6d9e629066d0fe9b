//! A conversation as its next turn is told of it: the latest turns, and what those before them were summed up to.

use drupe_extension_api::{SessionId, TurnId};
use rusqlite::{Connection, OptionalExtension as _};

use crate::{Store, cache::Turn, error::Result, rows::signed, writer::Writing};

/// Which turns of a session are told.
#[derive(Debug, Clone, Default)]
pub struct ToldTurns {
    /// Those from this one on which name no agent; all without it.
    pub since: Option<TurnId>,
    /// Those alone that come behind this number.
    pub behind: i64,
    /// Those that had ended when this turn began, since turns of a session run one after another.
    pub before: Option<TurnId>,
    /// So many of them, the latest.
    pub most: usize,
}

/// A message and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldTurn {
    /// Its place among all turns.
    pub number: i64,
    /// The message of the user.
    pub said: String,
    /// The answer to that message.
    pub answered: String,
}

/// What the turns of a session up to one of them were summed up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The number of the last turn that is in it.
    pub up_to: i64,
    /// In words; empty before the first one.
    pub text: String,
    /// Whether nothing came of the latest attempt at another one, which the turn of this number made.
    pub failed_in: Option<i64>,
}

impl Store {
    /// The turns of a session that were worked at and have ended, oldest first. One that another turn took in, or that was
    /// stopped while it waited, has no answer of its own.
    pub async fn conversation(&self, session: &SessionId, which: ToldTurns) -> Result<Vec<ToldTurn>> {
        let session = session.clone();
        self.read_few(move |db| turns(db, &session, &which)).await
    }

    /// The latest summary of a session's turns; with `before`, as it was when that turn began.
    pub async fn summary(&self, session: &SessionId, before: Option<TurnId>) -> Result<Option<Summary>> {
        let session = session.clone();
        self.read_few(move |db| summary(db, &session, before.as_ref())).await
    }
}

fn turns(db: &Connection, session: &SessionId, which: &ToldTurns) -> Result<Vec<ToldTurn>> {
    let ToldTurns { since, behind, before, most } = which;
    // What names an agent is no part of what the others talk about.
    let mut latest = db.prepare_cached(
        "SELECT number, text, response ->> 'content' FROM turns
         WHERE session = (SELECT number FROM sessions WHERE id = ?1) AND finished_ms IS NOT NULL AND starts > 0
           AND number > ?5
           AND (?4 IS NULL OR id <> ?4 AND finished_ms <= (SELECT started_ms FROM turns WHERE id = ?4))
           AND (?3 IS NULL OR number >= coalesce((SELECT number FROM turns WHERE id = ?3), 0) AND agent IS NULL
                AND ltrim(text) NOT LIKE '@%')
         ORDER BY number DESC LIMIT ?2",
    )?;
    let (since, before) = (since.as_ref().map(TurnId::as_str), before.as_ref().map(TurnId::as_str));
    let told = latest.query_map((session.as_str(), signed(*most as u64), since, before, behind), |row| {
        Ok(ToldTurn { number: row.get(0)?, said: row.get(1)?, answered: row.get(2)? })
    })?;
    let mut told: Vec<_> = told.collect::<Result<_, _>>()?;
    told.reverse();
    Ok(told)
}

pub(crate) fn summary(
    db: &Connection,
    session: &SessionId,
    before: Option<&TurnId>,
) -> Result<Option<Summary>> {
    let mut latest = db.prepare_cached(
        "SELECT up_to, summaries.text, iif(failed, made_in, NULL) FROM summaries JOIN turns ON turns.number = made_in
         WHERE summaries.session = (SELECT number FROM sessions WHERE id = ?1)
           AND (?2 IS NULL OR finished_ms <= (SELECT started_ms FROM turns WHERE id = ?2) AND turns.id <> ?2)
         ORDER BY made_in DESC LIMIT 1",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Summary { up_to: row.get(0)?, text: row.get(1)?, failed_in: row.get(2)? })
    };
    Ok(latest.query_row((session.as_str(), before.map(TurnId::as_str)), read).optional()?)
}

/// What came of a turn's attempt to sum up older ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SummedUp {
    /// They are told in these words from now on.
    To {
        /// The number of the last turn that is in it.
        up_to: i64,
        /// What they come to, in words.
        text: String,
    },
    /// They are told as before.
    Nothing,
}

/// Keeps what came of a turn's attempt.
pub(crate) fn keep_summary(on: &Writing<'_>, turn: &Turn, summed_up: &SummedUp) -> Result<()> {
    let (up_to, text, failed) = match summed_up {
        SummedUp::To { up_to, text } => (*up_to, text.clone(), false),
        SummedUp::Nothing => {
            let before = summary(on.db, &turn.session, None)?;
            let (up_to, text) = before.map_or((0, String::new()), |before| (before.up_to, before.text));
            (up_to, text, true)
        }
    };
    on.statement(
        "INSERT OR REPLACE INTO summaries (session, made_in, up_to, text, failed) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute((turn.session_number, turn.number, up_to, text, failed))?;
    Ok(())
}

/// Forgets the summary that a turn made: it goes with it.
pub(crate) fn forget_summary(on: &Writing<'_>, session: i64, turn: i64) -> Result<()> {
    on.statement("DELETE FROM summaries WHERE session = ?1 AND made_in = ?2")?.execute((session, turn))?;
    Ok(())
}
