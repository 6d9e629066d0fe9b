//! What turns gave: results, and the conversation that they make.

use drupe_agent::EarlierTurn;
use drupe_extension_api::{
    AgentResponse, SessionId, Spend, TurnId,
    control::{SessionDetail, TurnResult},
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Store, conversation,
    error::Result,
    parts::{self, PART, Span},
    rows::{id, maybe_json, signed},
    sessions,
    shared::lock,
    transcript::Runs,
};

/// Bytes of records after which a page of a session takes in no further turn. One turn is never divided.
const PAGE: usize = 8 * PART;

impl Store {
    /// What a turn gave so far; in `brief` without its runs and what they saw.
    pub async fn turn_result(&self, turn: &TurnId, brief: bool) -> Result<Option<TurnResult>> {
        if brief {
            if let Some(known) = lock(&self.recent).brief(turn) {
                return Ok(Some(known));
            }
            let turn = turn.clone();
            let found = self.read_few(move |db| in_brief(db, &turn)).await?;
            return Ok(found.map(|found| found.result));
        }
        let known = lock(&self.recent).take(turn);
        if let Some(ended) = known {
            return Ok(Some(ended.whole()));
        }
        let turn = turn.clone();
        let found =
            self.read(move |db| in_brief(db, &turn)?.map(|found| found.with_span(db)).transpose()).await?;
        match found {
            Some((found, span)) => Ok(Some(self.completed(found.result, span).await?.0)),
            None => Ok(None),
        }
    }

    /// A session with the results of its turns, from after the turn with that number on: 0 for all. Where they are more
    /// than one answer may hold, those that follow [`SessionDetail::next`] are left for another.
    pub async fn session(
        &self,
        session: &SessionId,
        after: u64,
        brief: bool,
    ) -> Result<Option<SessionDetail>> {
        let session = session.clone();
        let Some((mut page, found)) = self.read(move |db| page(db, &session, after, brief)).await? else {
            return Ok(None);
        };
        let (mut left, mut bytes) = (found.into_iter().peekable(), 0);
        while let Some((Brief { number, result, .. }, span)) = left.next() {
            let (result, size) = self.completed(result, span).await?;
            page.turns.push(result);
            bytes += size;
            if bytes >= PAGE && left.peek().is_some() {
                page.next = Some(number.unsigned_abs());
                break;
            }
        }
        Ok(Some(page))
    }

    /// The result with what the records of its runs show, and their size; in brief where there is no span.
    async fn completed(&self, brief: TurnResult, span: Option<Span>) -> Result<(TurnResult, usize)> {
        let Some(span) = span else { return Ok((brief, 0)) };
        let mut runs = Runs::default();
        let bytes = self.each_entry(span, |row, entry| runs.add(row, entry)).await?;
        Ok((runs.complete(brief), bytes))
    }
}

/// A result without its runs.
struct Brief {
    number: i64,
    result: TurnResult,
    bytes: usize,
}

impl Brief {
    fn with_span(self, db: &Connection) -> Result<(Self, Option<Span>)> {
        let span = parts::span(db, self.number)?;
        Ok((self, span))
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let response: Option<AgentResponse> = maybe_json(row, 2)?;
        let turn: TurnId = id(row, 7)?;
        let bytes = (1..5).map(|column| Ok(row.get_ref(column)?.as_bytes_or_null()?.map_or(0, <[u8]>::len)));
        Ok(Self {
            number: row.get(6)?,
            bytes: bytes.sum::<rusqlite::Result<_>>()?,
            result: TurnResult {
                session: id(row, 0)?,
                input: row.get(1)?,
                status: response.as_ref().map(|r| r.status),
                content: response.as_ref().map(|r| r.content.clone()).unwrap_or_default(),
                error: response.as_ref().and_then(|r| r.error.clone()),
                class: response.as_ref().and_then(|r| r.class),
                client_calls: response.map(|r| r.client_calls).unwrap_or_default(),
                spend: maybe_json::<Spend>(row, 3)?.unwrap_or_default(),
                invocations: Vec::new(),
                transcript: Vec::new(),
                diagnostics: maybe_json(row, 4)?.unwrap_or_default(),
                trace: row.get::<_, Option<String>>(5)?.unwrap_or_else(|| turn.to_string()),
                turn,
            },
        })
    }
}

/// The columns that [`Brief::read`] reads.
macro_rules! briefs {
    ($rest:literal) => {
        concat!(
            "SELECT sessions.id, text, response, spend, diagnostics, correlation, turns.number, turns.id
             FROM turns JOIN sessions ON sessions.number = turns.session ",
            $rest
        )
    };
}

fn in_brief(db: &Connection, turn: &TurnId) -> Result<Option<Brief>> {
    let mut one = db.prepare_cached(briefs!("WHERE turns.id = ?1"))?;
    Ok(one.query_row([turn.as_str()], Brief::read).optional()?)
}

type Page = (SessionDetail, Vec<(Brief, Option<Span>)>);

/// A session without turns, and those of a page: in brief, and with the spans of their records where those are wanted.
fn page(db: &Connection, session: &SessionId, after: u64, brief: bool) -> Result<Option<Page>> {
    let Some((status, number, last_seq)) = sessions::find(db, session)? else { return Ok(None) };
    let (snapshot, personas) = (sessions::snapshot(db, session)?, sessions::personas(db, session)?);
    let summary = conversation::summary(db, session, None)?.map(|summary| summary.text);
    let summary = summary.filter(|text| !text.is_empty());
    let mut detail = SessionDetail {
        status,
        turns: Vec::new(),
        summary,
        snapshot,
        personas,
        archived: None,
        last_seq,
        next: None,
    };
    let mut following =
        db.prepare_cached(briefs!("WHERE turns.session = ?1 AND turns.number > ?2 ORDER BY turns.number"))?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    for turn in following.query_map((number, signed(after)), Brief::read)? {
        let turn = turn?;
        if bytes >= PART {
            let last: Option<&(Brief, _)> = found.last();
            detail.next = last.map(|(last, _)| last.number.unsigned_abs());
            break;
        }
        bytes += turn.bytes;
        found.push(if brief { (turn, None) } else { turn.with_span(db)? });
    }
    Ok(Some((detail, found)))
}

/// Turns whose texts are looked through: the latest.
const LOOKED_THROUGH: i64 = 20_000;

/// Ended turns of a session that hold most of the words, the best and then the latest first.
pub(crate) fn earlier(
    db: &Connection,
    session: &SessionId,
    words: &[String],
    most: usize,
) -> Result<Vec<EarlierTurn>> {
    let mut latest = db.prepare_cached(
        "SELECT accepted_ms, text, response ->> 'content' FROM turns
         WHERE session = (SELECT number FROM sessions WHERE id = ?1) AND finished_ms IS NOT NULL AND starts > 0
         ORDER BY number DESC LIMIT ?2",
    )?;
    let mut rows = latest.query((session.as_str(), LOOKED_THROUGH))?;
    let mut best: Vec<(usize, EarlierTurn)> = Vec::new();
    while let Some(row) = rows.next()? {
        let turn = EarlierTurn { at_ms: row.get(0)?, said: row.get(1)?, answered: row.get(2)? };
        let (said, answered) = (turn.said.to_lowercase(), turn.answered.to_lowercase());
        let held = words.iter().filter(|word| said.contains(*word) || answered.contains(*word)).count();
        if held == 0 {
            continue;
        }
        // Behind those that hold as many and came later.
        let place = best.partition_point(|(other, _)| *other >= held);
        if place < most {
            best.insert(place, (held, turn));
            best.truncate(most);
        }
    }
    Ok(best.into_iter().map(|(_, turn)| turn).collect())
}
