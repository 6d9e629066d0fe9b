//! What one commit recorded is one row: its events and its entries, side by side with those of the same session.
//!
//! The key of a row is the session's number in the upper half and the position of its first event in the lower one. A
//! row takes as many positions as it has events, and one where it has none, so that no position is ever given twice.
//!
//! An event that an entry of the same row is told by ([`Entry::events`]) is kept as a reference to that entry, and made from it
//! when it is read. Rows of older releases hold every event whole.

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentRef, CorrelationId, Event, EventBody, InvocationId, ItemKind, SessionId, TurnId,
};
use jiff::Timestamp;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};

use crate::{
    Published, StoreError,
    cache::Turn,
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

/// Which entry of the row tells of an event, and which of its events that is.
type Of = (usize, usize);

/// An event as it is kept: what it has in common with the others of its row is in the row's columns.
#[derive(Serialize)]
#[serde(untagged)]
enum Keep<'a> {
    Of {
        agent: &'a Option<AgentRef>,
        of: Of,
    },
    Whole {
        #[serde(skip_serializing_if = "Option::is_none")]
        agent: &'a Option<AgentRef>,
        #[serde(flatten)]
        body: &'a EventBody,
    },
}

/// The same, as it is read.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Of {
        agent: Option<AgentRef>,
        of: Of,
    },
    Whole {
        #[serde(default)]
        agent: Option<AgentRef>,
        #[serde(flatten)]
        body: EventBody,
    },
}

/// Events that entries are told by, and that nobody has looked for yet.
struct Known<'a>(Vec<(&'a InvocationId, EventBody, Of)>);

impl<'a> Known<'a> {
    fn of(entries: impl Iterator<Item = &'a Entry>) -> Self {
        let told = |(at, entry): (usize, &'a Entry)| {
            let events = entry.events().into_iter().enumerate();
            events.map(move |(nth, body)| (entry.invocation(), body, (at, nth)))
        };
        Self(entries.enumerate().flat_map(told).collect())
    }

    /// The event as it is to be kept.
    fn keep<'b>(&mut self, (agent, body): &'b Told) -> Keep<'b> {
        let run = agent.as_ref().map(|agent| &agent.invocation);
        match self.0.iter().position(|(of, known, _)| Some(*of) == run && known == body) {
            Some(at) => Keep::Of { agent, of: self.0.remove(at).2 },
            None => Keep::Whole { agent, body },
        }
    }
}

/// Records a commit: what happened, in order, and the loop's entries. Numbers the events and has them published.
pub(crate) fn append(
    on: &mut Writing<'_>,
    session: &SessionId,
    turn: Option<&Turn>,
    told: [&[Told]; 2],
    recorded: [&[Entry]; 2],
) -> Result<(), StoreError> {
    if let Some(turn) = turn {
        recorded.iter().try_for_each(|entries| questions::follow(on, turn, entries))?;
    }
    let events = || told.into_iter().flatten();
    let entries = || recorded.into_iter().flatten();
    let kept = events().filter(|(_, body)| !live(body)).count();
    let now = on.now_ms();
    let mut seq = 0;
    if kept > 0 || entries().next().is_some() {
        let known = sessions::known_or_new(on, session)?;
        let (number, positions) = (known.number, i64::try_from(kept.max(1)).unwrap_or(i64::MAX));
        seq = known.last_seq + 1;
        known.last_seq += positions;
        let last = known.last_seq;
        let [mut told_as, mut recorded_as] = on.buffers();
        let recorded_as_text = array(&mut recorded_as, entries())?;
        let short = recorded_as_text.is_some_and(|text| text.len() <= SHORT);
        let mut known = Known::of(entries().filter(|_| short));
        let kept_events = events().filter(|(_, body)| !live(body)).map(|told| known.keep(told));
        let told_as_text = array(&mut told_as, kept_events)?;
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
            on.cache.record(turn.number, number * POSITIONS + seq, bytes, entries());
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
fn array<T: Serialize>(
    buffer: &mut Vec<u8>,
    items: impl Iterator<Item = T>,
) -> Result<Option<&str>, StoreError> {
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
        Ok(Self {
            first: row.get::<_, i64>(0)? % POSITIONS,
            time: time(row, 1)?,
            events: told(row)?,
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

/// The events of a row, those that its entries tell of made from these.
fn told(row: &Row<'_>) -> rusqlite::Result<Vec<Told>> {
    let kept: Vec<Kept> = maybe_json(row, 2)?.unwrap_or_default();
    let made: Vec<Vec<EventBody>> = match kept.iter().any(|kept| matches!(kept, Kept::Of { .. })) {
        true => recorded(row, 5)?.iter().map(Entry::events).collect(),
        false => Vec::new(),
    };
    let whole = |kept| match kept {
        Kept::Whole { agent, body } => Ok((agent, body)),
        Kept::Of { agent, of: (at, nth) } => match made.get(at).and_then(|events| events.get(nth)) {
            Some(body) => Ok((agent, body.clone())),
            None => Err(wrong(2, StoreError::Record(format!("entry {at} has no event {nth}")))),
        },
    };
    kept.into_iter().map(whole).collect()
}

/// Whether any entry of a turn is recorded.
pub(crate) fn has_entries(db: &Connection, turn: &TurnId) -> Result<bool, StoreError> {
    let mut any = db.prepare_cached(
        "SELECT 1 FROM turns JOIN log
         ON log.id > turns.session * 4294967296 + turns.after_seq AND log.id < (turns.session + 1) * 4294967296
         WHERE turns.id = ?1 AND log.turn = turns.number AND entries IS NOT NULL LIMIT 1",
    )?;
    Ok(any.exists([turn.as_str()])?)
}

/// What the first entry of a turn for which `wanted` gives something gives. Rows that do not hold `text` are not looked
/// at.
pub(crate) fn first_of<T>(
    db: &Connection,
    turn: i64,
    text: &str,
    wanted: impl Fn(Entry) -> Option<T>,
) -> Result<Option<T>, StoreError> {
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
    let text = row.get_ref(column)?.as_str().map_err(|e| wrong(column, e))?;
    serde_json::from_str(text).map_err(|e| wrong(column, e))
}
