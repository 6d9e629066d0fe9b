//! Questions to a person about tool calls, and how they were settled.
//!
//! A row is written by the commit that holds the call's intention to be asked about ([`Entry::Asked`]), and settled once:
//! by an answer of a person, by the time that is over, or by the end of its call. Whoever comes first wins. The row is the
//! truth; the loop records what it read here, so that a process which goes on with the turn finds the answer that was given
//! while none was there.

use drupe_agent::{Answer, Entry, Question};
use drupe_extension_api::{
    EffectId,
    control::{Approval, ApprovalState, AskedCall, CallPreview, StandingGrant},
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Store, StoreError,
    cache::Turn,
    error::Result,
    grants,
    rows::{id, maybe_time, name_of, named, readable, time, timestamp},
    writer::{Survives, Writing},
};

/// What the audit calls an answer about a call.
const WHAT: &str = "tool.call";

/// The beginning of an id that people may give in place of the whole, in bytes.
const SHORTEST: usize = 6;

/// Settled questions that are listed; the trace of a turn shows all of its own.
const SETTLED: i64 = 50;

/// The columns that [`approval`] reads.
macro_rules! approvals {
    ($rest:literal) => {
        concat!(
            "SELECT questions.effect, tool, iif(state = 'pending', params, ''), need, digest, questions.agent, asked_ms, expires_ms, state,
                    answered_ms, answered_by, turns.id, sessions.id, questions.about, questions.for_taint,
                    iif(state = 'pending', preview, NULL)
             FROM questions JOIN turns ON turns.number = questions.turn
             JOIN sessions ON sessions.number = turns.session ",
            $rest
        )
    };
}

/// What a person says to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// The call does not run.
    No,
    /// It runs, this one call alone.
    Yes,
    /// It runs, and those like it in the rest of the session.
    YesForSession,
    /// It runs, this one call alone, with what the person filled in: the text of a JSON object.
    Filled(String),
}

/// A question that was answered, and what was allowed with it for the rest of the session.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The question as it stands now.
    pub approval: Approval,
    /// What its answer allowed beside the call.
    pub grant: Option<StandingGrant>,
}

impl Store {
    /// How a question stands; none where it is not about this. See [`Question::digest`].
    pub async fn question(&self, effect: &EffectId, digest: &str) -> Result<Option<Answer>> {
        let (effect, digest) = (effect.clone(), digest.to_owned());
        self.read_few(move |db| stands(db, &effect, &digest)).await
    }

    /// Records that the time of a question is over, unless it was settled before; gives how it stands.
    pub async fn expire_question(&self, effect: &EffectId) -> Result<ApprovalState> {
        let effect = effect.clone();
        self.write(Survives::Process, move |on| {
            settle(on, &effect, ApprovalState::Expired, (None, None))?;
            let mut find = on.statement("SELECT state FROM questions WHERE effect = ?1")?;
            let state = find.query_row([effect.as_str()], |row| named(row, 0)).optional()?;
            Ok(state.unwrap_or(ApprovalState::Withdrawn))
        })
        .await
    }

    /// Records the answer of a person to the question of that id, or of the only one whose id begins so. None where there is
    /// none.
    ///
    /// Refuses with [`StoreError::AmbiguousQuestion`], [`StoreError::Settled`] (the first answer holds),
    /// [`StoreError::NotAsShown`] where `shown` is not the hash of what is asked about, [`StoreError::NoGrant`] where an
    /// answer for the rest of the session is given and there can be none, or [`StoreError::NothingFilled`] and
    /// [`StoreError::NothingAsked`] where something is to be filled in and is not, or the reverse.
    pub async fn answer_question(
        &self,
        id: &str,
        says: Says,
        shown: Option<String>,
        by: String,
    ) -> Result<Option<Settled>> {
        let id = id.to_owned();
        self.write(Survives::Power, move |on| answer(on, &id, &says, shown.as_deref(), &by)).await
    }

    /// The questions that wait, and after them those that were asked last, without their parameters.
    pub async fn questions(&self) -> Result<Vec<Approval>> {
        self.read(|db| {
            let mut some = db.prepare_cached(approvals!(
                "WHERE state = 'pending' OR questions.effect IN
                     (SELECT effect FROM questions WHERE state <> 'pending' ORDER BY asked_ms DESC LIMIT ?1)
                 ORDER BY state <> 'pending', asked_ms DESC, questions.effect"
            ))?;
            Ok(readable(some.query([SETTLED])?, ("a question", 0), approval)?)
        })
        .await
    }
}

/// Follows what a commit of the loop says of questions, and of what makes more of them.
pub(crate) fn follow(on: &Writing<'_>, turn: &Turn, entries: &[Entry]) -> Result<()> {
    for entry in entries {
        match entry {
            Entry::Asked { question, .. } => ask(on, turn, question)?,
            Entry::Decided { effect, state, .. } => settle(on, effect, *state, (None, None))?,
            Entry::Tainted { tool, .. } => grants::taint(on, turn.session_number, tool)?,
            _ => {}
        }
    }
    Ok(())
}

/// One that is asked anew, since the answer of the model that held it was lost, waits as the new one.
fn ask(on: &Writing<'_>, turn: &Turn, question: &Question) -> Result<()> {
    let Question {
        effect,
        agent,
        tool,
        params,
        need,
        about,
        for_taint,
        preview,
        digest,
        asked_ms,
        expires_ms,
        ..
    } = question;
    let preview = preview.as_ref().map(serde_json::to_string).transpose()?;
    on.statement(
        "INSERT OR REPLACE INTO questions
             (effect, turn, agent, tool, params, need, digest, state, asked_ms, expires_ms, about, for_taint, preview)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute((
        effect.as_str(),
        turn.number,
        agent.as_str(),
        tool,
        params,
        need,
        digest,
        asked_ms,
        expires_ms,
        about,
        for_taint,
        preview,
    ))?;
    Ok(())
}

fn settle(
    on: &Writing<'_>,
    effect: &EffectId,
    state: ApprovalState,
    (by, given): (Option<&str>, Option<&str>),
) -> Result<()> {
    on.statement(
        "UPDATE questions SET state = ?2, answered_ms = ?3, answered_by = ?4, given = ?5
         WHERE effect = ?1 AND state = 'pending'",
    )?
    .execute((effect.as_str(), name_of(&state)?, on.now_ms(), by, given))?;
    Ok(())
}

fn answer(on: &Writing<'_>, id: &str, says: &Says, shown: Option<&str>, by: &str) -> Result<Option<Settled>> {
    let Some(mut found) = meant(on, id)? else { return Ok(None) };
    if found.state != ApprovalState::Pending {
        return Err(StoreError::Settled { approval: found.id, state: name_of(&found.state)? });
    }
    as_shown(&found, shown)?;
    let now = on.now_ms();
    let late = found.call.as_ref().is_some_and(|call| call.expires.as_millisecond() <= now);
    let asks = found.call.as_ref().and_then(|call| call.preview.as_ref()?.input.as_ref()).is_some();
    let state = match says {
        // Nobody may look at it any more; whoever asks is told so.
        _ if late => return Err(StoreError::Settled { approval: found.id, state: "expired".into() }),
        Says::Yes | Says::YesForSession if asks => return Err(StoreError::NothingFilled(found.id)),
        Says::Filled(_) if !asks => return Err(StoreError::NothingAsked(found.id)),
        Says::Yes | Says::YesForSession | Says::Filled(_) => ApprovalState::Allowed,
        Says::No => ApprovalState::Denied,
    };
    let grant = match says {
        Says::YesForSession => Some(grants::give(on, &found, by)?),
        Says::Yes | Says::Filled(_) | Says::No => None,
    };
    let given = match says {
        Says::Filled(given) => Some(given.as_str()),
        Says::No | Says::Yes | Says::YesForSession => None,
    };
    let effect = EffectId::new(&found.id).map_err(|error| StoreError::Record(error.to_string()))?;
    settle(on, &effect, state, (Some(by), given))?;
    on.statement(
        "INSERT INTO audit (time_ms, who, what, subject, hash, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute((now, by, WHAT, &found.id, &found.hash, name_of(&state)?))?;
    (found.state, found.answered) = (state, Some(timestamp(now)));
    if let Some(call) = &mut found.call {
        call.by = Some(by.to_owned());
    }
    Ok(Some(Settled { approval: found, grant }))
}

/// Refuses an answer to what is another thing than its person has read: an id is that of a place, which may hold another call
/// after a power failure took the first one away.
pub(crate) fn as_shown(found: &Approval, shown: Option<&str>) -> Result<()> {
    match shown {
        Some(shown) if shown != found.hash => Err(StoreError::NotAsShown(found.id.clone())),
        _ => Ok(()),
    }
}

/// The question of that id, or the only one whose id begins so. One that is settled counts as well: what begins so may be
/// that which a person has read, and the one that waits another.
fn meant(on: &Writing<'_>, id: &str) -> Result<Option<Approval>> {
    if !id.starts_with("e-") || id.len() < SHORTEST {
        return Ok(None);
    }
    let mut find = on.statement(approvals!(
        "WHERE substr(questions.effect, 1, length(?1)) = ?1 ORDER BY state <> 'pending', asked_ms DESC LIMIT 2"
    ))?;
    let mut found = find.query_map([id], approval)?;
    let (first, second) = (found.next().transpose()?, found.next().transpose()?);
    if second.is_some() {
        return Err(StoreError::AmbiguousQuestion(id.to_owned()));
    }
    Ok(first)
}

fn stands(db: &Connection, effect: &EffectId, digest: &str) -> Result<Option<Answer>> {
    let mut find = db.prepare_cached(
        "SELECT state, answered_by, given FROM questions WHERE effect = ?1 AND digest = ?2",
    )?;
    let found = find.query_row((effect.as_str(), digest), |row| {
        Ok(Answer { state: named(row, 0)?, by: row.get(1)?, given: row.get(2)? })
    });
    Ok(found.optional()?)
}

/// What cannot be read is left out: the question is about the call, which stands beside it.
fn preview(kept: Option<String>) -> Option<CallPreview> {
    serde_json::from_str(&kept?).ok()
}

fn approval(row: &Row<'_>) -> rusqlite::Result<Approval> {
    Ok(Approval {
        id: row.get(0)?,
        extension: String::new(),
        hash: row.get(4)?,
        needs: vec![row.get(3)?],
        asked: time(row, 6)?,
        state: named(row, 8)?,
        answered: maybe_time(row, 9)?,
        call: Some(AskedCall {
            session: id(row, 12)?,
            turn: id(row, 11)?,
            agent: id(row, 5)?,
            tool: row.get(1)?,
            params: row.get(2)?,
            about: row.get(13)?,
            for_taint: row.get(14)?,
            preview: preview(row.get(15)?),
            expires: time(row, 7)?,
            by: row.get(10)?,
        }),
    })
}
