//! What one commit recorded is one row: its events and its entries, side by side with those of the same session.
//!
//! The key of a row is the session's number in the upper half and the position of its first event in the lower one. A
//! row takes as many positions as it has events, and one where it has none, so that no position is ever given twice.
//!
//! Events of a run are not kept: they are made from the entries of their row when they are read ([`Entry::events`]). Only those
//! of a turn as a whole and of a session are, and those of a row that is long. Rows of older releases hold every event.

use drupe_agent::{Entry, told};
use drupe_extension_api::{AgentRef, CorrelationId, Event, EventBody, ItemKind, SessionId, TurnId};
use jiff::Timestamp;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};

use crate::{
    Published, StoreError,
    cache::Turn,
    error::Result,
    questions,
    recent::Change,
    rows::{maybe_id, maybe_json, time, timestamp, wrong},
    sessions,
    writer::Writing,
};

/// Keys of one session.
pub(crate) const POSITIONS: i64 = 1 << 32;

/// What happened, and to whom.
pub(crate) type Told = (Option<AgentRef>, EventBody);

/// The most bytes of records whose events are made from them: who reads events must not read what is long.
const SHORT: usize = 64 * 1024;

/// Events as they are kept: what they have in common with the others of their row is in the row's columns.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Kept {
    /// Those of the row's entries, which are of these runs.
    Made { runs: Vec<AgentRef> },
    /// One of an entry, by the numbers of both; in version 7.
    Of { agent: Option<AgentRef>, of: (usize, usize) },
    Whole {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentRef>,
        #[serde(flatten)]
        body: EventBody,
    },
}

/// What one commit records of a session: what happened, in order.
#[derive(Default)]
pub(crate) struct Record<'a> {
    /// Events of the turn or the session, before its entries.
    pub before: &'a [Told],
    /// The runs whose entries these are.
    pub runs: &'a [AgentRef],
    pub entries: &'a [Entry],
    /// Events of the turn or the session, after them.
    pub after: &'a [Told],
}

/// Records a commit. Numbers the events and has them published.
pub(crate) fn append(
    on: &mut Writing<'_>,
    session: &SessionId,
    turn: Option<&Turn>,
    Record { before, runs, entries, after }: Record<'_>,
) -> Result<()> {
    if let Some(turn) = turn {
        questions::follow(on, turn, entries)?;
    }
    let made = told(runs, entries);
    let events = || before.iter().chain(&made).chain(after);
    let kept = events().filter(|(_, body)| !live(body)).count();
    let now = on.now_ms();
    let mut seq = 0;
    if kept > 0 || !entries.is_empty() {
        let known = sessions::known_or_new(on, session)?;
        let (number, positions) = (known.number, i64::try_from(kept.max(1)).unwrap_or(i64::MAX));
        seq = known.last_seq + 1;
        known.last_seq += positions;
        let last = known.last_seq;
        let [mut told_as, mut recorded_as] = on.buffers();
        let recorded_as_text = array(&mut recorded_as, entries.iter())?;
        let short = recorded_as_text.is_some_and(|text| text.len() <= SHORT);
        let kept = whole(before).chain(match short && !made.is_empty() {
            true => vec![Kept::Made { runs: runs.to_vec() }],
            false => whole(&made).collect(),
        });
        let told_as_text = array(&mut told_as, kept.chain(whole(after)))?;
        on.statement(
            "INSERT INTO log (id, turn, time_ms, positions, events, entries) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute((
            number * POSITIONS + seq,
            turn.map(|turn| turn.number),
            now,
            positions,
            told_as_text,
            recorded_as_text,
        ))?;
        if let Some(turn) = turn {
            let bytes = recorded_as_text.map_or(0, str::len);
            on.cache.record(turn.number, number * POSITIONS + seq, bytes, entries.iter());
        }
        on.give_back([told_as, recorded_as]);
        if let Some(turn) = turn.filter(|turn| turn.finished) {
            on.change(Change::Changed(turn.id.clone()));
            // Something of the turn outlived it: the turn ends here now.
            on.statement("UPDATE turns SET until_seq = ?2 WHERE number = ?1")?
                .execute((turn.number, last))?;
        }
    }
    for (agent, body) in events() {
        let mut event = Event {
            seq: 0,
            time: timestamp(now),
            session: session.clone(),
            turn: turn.map(|turn| turn.id.clone()),
            correlation_id: turn.and_then(|turn| turn.correlation.clone()),
            agent: agent.clone(),
            body: body.clone(),
        };
        if !live(body) {
            event.seq = seq.unsigned_abs();
            seq += 1;
        }
        on.publish(Published::Event(event.into()));
    }
    Ok(())
}

/// Events as they are kept where no entry tells of them.
fn whole(told: &[Told]) -> impl Iterator<Item = Kept> {
    let kept = told.iter().filter(|(_, body)| !live(body)).cloned();
    kept.map(|(agent, body)| Kept::Whole { agent, body })
}

/// Parts of a text that is still being made pass through, unnumbered, and leave no row. A plan is told whole each time,
/// and is kept.
pub(crate) fn live(body: &EventBody) -> bool {
    match body {
        EventBody::ItemUpdated { item, .. } => *item != ItemKind::TodoList,
        EventBody::StreamSkipped => true,
        _ => false,
    }
}

/// A JSON array of `items`; none where there are none.
fn array<T: Serialize>(buffer: &mut Vec<u8>, items: impl Iterator<Item = T>) -> Result<Option<&str>> {
    buffer.clear();
    for item in items {
        buffer.push(if buffer.is_empty() { b'[' } else { b',' });
        serde_json::to_writer(&mut *buffer, &item)?;
    }
    if buffer.is_empty() {
        return Ok(None);
    }
    buffer.push(b']');
    std::str::from_utf8(buffer).map(Some).map_err(|error| StoreError::Record(error.to_string()))
}

/// The columns that [`Commit::read`] reads.
macro_rules! commits {
    ($rest:literal) => {
        concat!(
            "SELECT log.id, log.time_ms, events, turns.id, turns.correlation, entries
             FROM log LEFT JOIN turns ON turns.number = log.turn ",
            $rest
        )
    };
}
pub(crate) use commits;

/// The events of one commit.
pub(crate) struct Commit {
    first: i64,
    time: Timestamp,
    turn: Option<TurnId>,
    correlation: Option<CorrelationId>,
    events: Vec<(Option<AgentRef>, EventBody)>,
}

impl Commit {
    pub fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let kept: Vec<Kept> = maybe_json(row, 2)?.unwrap_or_default();
        let entries = match kept.iter().all(|kept| matches!(kept, Kept::Whole { .. })) {
            true => Vec::new(),
            false => recorded(row, 5)?,
        };
        Ok(Self {
            first: row.get::<_, i64>(0)? % POSITIONS,
            time: time(row, 1)?,
            events: events_of(kept, &entries)?,
            turn: maybe_id(row, 3)?,
            correlation: maybe_id(row, 4)?,
        })
    }

    pub fn events(self, session: &SessionId) -> impl Iterator<Item = Event> {
        let Self { first, time, turn, correlation, events } = self;
        let session = session.clone();
        (first.unsigned_abs()..).zip(events).map(move |(seq, (agent, body))| Event {
            seq,
            time,
            session: session.clone(),
            turn: turn.clone(),
            correlation_id: correlation.clone(),
            agent,
            body,
        })
    }
}

/// What is needed of a row by whoever goes on after it.
pub(crate) struct Logged {
    pub time_ms: i64,
    pub told: Vec<Told>,
    pub entries: Vec<Entry>,
}

/// A row of [`parts`](crate::parts), with the size of what it holds.
pub(crate) fn logged(row: &Row<'_>) -> rusqlite::Result<(Logged, usize)> {
    let entries = recorded(row, 1)?;
    let told = events_of(maybe_json(row, 2)?.unwrap_or_default(), &entries)?;
    let size =
        |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_bytes_or_null()?.map_or(0, <[u8]>::len));
    Ok((Logged { time_ms: row.get(3)?, told, entries }, size(1)? + size(2)?))
}

/// The events of a row with these entries.
fn events_of(kept: Vec<Kept>, entries: &[Entry]) -> rusqlite::Result<Vec<Told>> {
    let mut events = Vec::new();
    for kept in kept {
        match kept {
            Kept::Whole { agent, body } => events.push((agent, body)),
            Kept::Made { runs } => events.extend(told(&runs, entries)),
            Kept::Of { agent, of: (at, nth) } => {
                let body = entries.get(at).and_then(|entry| entry.events().into_iter().nth(nth));
                let missing = || wrong(2, StoreError::Record(format!("entry {at} has no event {nth}")));
                events.push((agent, body.ok_or_else(missing)?));
            }
        }
    }
    Ok(events)
}

/// What the first entry of a turn for which `wanted` gives something gives. Rows that do not hold `text` are not looked
/// at.
pub(crate) fn first_of<T>(
    db: &Connection,
    turn: i64,
    text: &str,
    wanted: impl Fn(Entry) -> Option<T>,
) -> Result<Option<T>> {
    let mut rows = db.prepare_cached(
        "SELECT entries FROM turns JOIN log
         ON log.id > turns.session * 4294967296 + turns.after_seq AND log.id < (turns.session + 1) * 4294967296
         WHERE turns.number = ?1 AND log.turn = ?1 AND instr(entries, ?2) > 0 ORDER BY log.id",
    )?;
    for entries in rows.query_map((turn, text), |row| recorded(row, 0))? {
        if let Some(found) = entries?.into_iter().find_map(&wanted) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The entries of one row.
pub(crate) fn recorded(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<Entry>> {
    Ok(maybe_json(row, column)?.unwrap_or_default())
}
