//! Looking things up by their ids, for explanations, traces, and texts that were shown in part.
//!
//! Ids of runs and calls are in the records alone, without an index of their own: they are looked up seldom, and an
//! index would cost every turn something. The latest records are searched first.

use drupe_agent::{Entry, ids};
use drupe_extension_api::{
    AgentResponse, EffectId, InvocationId, Message, SessionId, TurnId, control::ItemText,
};
use rusqlite::{Connection, OptionalExtension};

use crate::{
    DeliveryRow, Found, Store, StoreError, TurnRows, bus, events,
    log::{self, POSITIONS},
    rows::{id, maybe_id, maybe_json, maybe_time, time},
    turns::{self, AFTER_MESSAGE, messages},
};

impl Store {
    /// Everything that is recorded of a turn.
    pub async fn turn_rows(&self, turn: &TurnId) -> Result<Option<TurnRows>, StoreError> {
        let turn = turn.clone();
        self.read(move |db| turn_rows(db, &turn)).await
    }

    /// The turns of a session, in the order of their acceptance; none where there is no such session.
    pub async fn session_turns(&self, session: &SessionId) -> Result<Vec<TurnId>, StoreError> {
        let session = session.clone();
        self.read(move |db| turns::of_session(db, &session)).await
    }

    /// What has this id. A number is that of a message of the bus.
    pub async fn find(&self, id: &str) -> Result<Option<Found>, StoreError> {
        let id = id.to_owned();
        self.read(move |db| find(db, &id)).await
    }

    /// The texts of an item in full: under the id of a tool call, of an item of a model's answer, or of a turn, whose
    /// texts are its message and its answer.
    pub async fn item(&self, session: &SessionId, id: &str) -> Result<Option<ItemText>, StoreError> {
        let (session, id) = (session.clone(), id.to_owned());
        self.read(move |db| item(db, &session, &id)).await
    }
}

fn turn_rows(db: &Connection, turn: &TurnId) -> Result<Option<TurnRows>, StoreError> {
    let mut one = db.prepare_cached(messages!(
        "turns.number, accepted_ms, started_ms, finished_ms, starts, root, correlation, response, spend
         FROM turns JOIN sessions ON sessions.number = turns.session WHERE turns.id = ?1"
    ))?;
    let found = one.query_row([turn.as_str()], |row| {
        Ok(TurnRows {
            inbound: turns::inbound(row)?,
            turn: turn.clone(),
            number: row.get(AFTER_MESSAGE)?,
            accepted: time(row, AFTER_MESSAGE + 1)?,
            started: maybe_time(row, AFTER_MESSAGE + 2)?,
            finished: maybe_time(row, AFTER_MESSAGE + 3)?,
            starts: row.get(AFTER_MESSAGE + 4)?,
            root: maybe_id(row, AFTER_MESSAGE + 5)?,
            correlation: maybe_id(row, AFTER_MESSAGE + 6)?,
            response: maybe_json(row, AFTER_MESSAGE + 7)?,
            spend: maybe_json(row, AFTER_MESSAGE + 8)?,
            entries: Vec::new(),
            events: Vec::new(),
            deliveries: Vec::new(),
        })
    });
    let Some(mut rows) = found.optional()? else { return Ok(None) };
    rows.entries = log::entries_of(db, rows.number)?;
    rows.events = events::of_turn(db, rows.number, &rows.inbound.session)?;
    rows.deliveries = deliveries(db, rows.number)?;
    Ok(Some(rows))
}

fn deliveries(db: &Connection, turn: i64) -> Result<Vec<DeliveryRow>, StoreError> {
    let mut all = db.prepare_cached(
        "SELECT turn, channel, state, attempts, why, remote_id FROM outbox WHERE turn = ?1",
    )?;
    let found = all.query_map([turn], |row| {
        Ok(DeliveryRow {
            number: row.get(0)?,
            channel: row.get(1)?,
            state: row.get(2)?,
            attempts: row.get(3)?,
            why: row.get(4)?,
            remote_id: row.get(5)?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn find(db: &Connection, name: &str) -> Result<Option<Found>, StoreError> {
    let has = |sql: &'static str| -> Result<bool, StoreError> { Ok(db.prepare_cached(sql)?.exists([name])?) };
    if has("SELECT 1 FROM turns WHERE id = ?1")? {
        return Ok(TurnId::new(name).ok().map(Found::Turn));
    }
    if has("SELECT 1 FROM sessions WHERE id = ?1")? {
        return Ok(SessionId::new(name).ok().map(Found::Session));
    }
    if let Ok(number) = name.parse() {
        return Ok(bus::message(db, number)?.map(|_| Found::Message(number)));
    }
    if name.is_empty() {
        return Ok(None);
    }
    let mut rows = db.prepare_cached(
        "SELECT turns.id, entries FROM log JOIN turns ON turns.number = log.turn
         WHERE instr(entries, ?1) > 0 ORDER BY log.id DESC",
    )?;
    for row in rows.query_map([name], |row| Ok((id::<TurnId>(row, 0)?, log::recorded(row, 1)?)))? {
        let (turn, entries) = row?;
        if let Some(found) = entries.iter().find_map(|entry| named(entry, name, &turn)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// What an entry tells of, if that has this id.
fn named(entry: &Entry, name: &str, turn: &TurnId) -> Option<Found> {
    match entry {
        Entry::Intent { effect, .. } | Entry::Result { effect, .. } if effect.as_str() == name => {
            Some(Found::Call { turn: turn.clone(), effect: effect.clone() })
        }
        entry if entry.invocation().as_str() == name => {
            Some(Found::Run { turn: turn.clone(), invocation: entry.invocation().clone() })
        }
        _ => None,
    }
}

/// The whole result of a call of this session.
pub(crate) fn output(
    db: &Connection,
    session: &SessionId,
    effect: &EffectId,
) -> Result<Option<String>, StoreError> {
    let is_result = |entry: Entry| match entry {
        Entry::Result { effect: of, content, .. } if of == *effect => Some(content),
        _ => None,
    };
    Ok(latest(db, session, effect.as_str(), is_result)?.map(|(_, content)| content))
}

fn item(db: &Connection, session: &SessionId, name: &str) -> Result<Option<ItemText>, StoreError> {
    if let Some(text) = message(db, session, name)? {
        return Ok(Some(text));
    }
    let place = |entry: Entry| match entry {
        Entry::Intent { invocation, step, index, effect, .. } if effect.as_str() == name => {
            Some((invocation, step, index))
        }
        _ => None,
    };
    if let Some((turn, (invocation, step, index))) = latest(db, session, name, place)? {
        return Ok(Some(call(&log::entries_of(db, turn)?, invocation, step, index)));
    }
    answer(db, session, name)
}

/// Parameters and result of a call.
fn call(entries: &[(i64, Entry)], invocation: InvocationId, at: u32, place: u32) -> ItemText {
    let mut text = ItemText { invocation, input: None, output: None };
    for (_, entry) in entries.iter().filter(|(_, entry)| *entry.invocation() == text.invocation) {
        match entry {
            Entry::Answer { step, message: Message::Assistant { tool_calls, .. }, .. } if *step == at => {
                text.input = tool_calls.get(place as usize).map(|call| call.arguments.clone());
            }
            Entry::Result { step, index, content, .. } if (*step, *index) == (at, place) => {
                text.output = Some(content.clone());
            }
            _ => {}
        }
    }
    text
}

/// What the model wrote in a step: items are called `<run>.<step>.<attempt>`, and those of its reasoning have something
/// after it.
fn answer(db: &Connection, session: &SessionId, name: &str) -> Result<Option<ItemText>, StoreError> {
    let mut parts = name.split('.');
    let (Some(run), Some(Ok(at))) = (parts.next(), parts.next().map(str::parse::<u32>)) else {
        return Ok(None);
    };
    let reasons = parts.nth(1).is_some();
    let written = |entry: Entry| match entry {
        Entry::Answer {
            invocation, step, message: Message::Assistant { content, reasoning, .. }, ..
        } if step == at && invocation.as_str() == run => {
            let output = if reasons { reasoning } else { Some(content) };
            Some(ItemText { invocation, input: None, output })
        }
        _ => None,
    };
    Ok(latest(db, session, run, written)?.map(|(_, text)| text))
}

/// The message of a turn, and its answer.
fn message(db: &Connection, session: &SessionId, name: &str) -> Result<Option<ItemText>, StoreError> {
    let Ok(turn) = TurnId::new(name) else { return Ok(None) };
    let mut one = db.prepare_cached(
        "SELECT text, response, root FROM turns
         WHERE id = ?1 AND session = (SELECT number FROM sessions WHERE id = ?2)",
    )?;
    let found = one.query_row((name, session.as_str()), |row| {
        Ok(ItemText {
            input: row.get(0)?,
            output: maybe_json::<AgentResponse>(row, 1)?.map(|response| response.content),
            invocation: maybe_id(row, 2)?.unwrap_or_else(|| ids::root_invocation(&turn)),
        })
    });
    Ok(found.optional()?)
}

/// What the latest entry of a session for which `wanted` gives something gives, and the number of its turn. Entries that
/// do not hold `text` are not looked at.
fn latest<T>(
    db: &Connection,
    session: &SessionId,
    text: &str,
    wanted: impl Fn(Entry) -> Option<T>,
) -> Result<Option<(i64, T)>, StoreError> {
    let mut find = db.prepare_cached("SELECT number FROM sessions WHERE id = ?1")?;
    let Some(session) = find.query_row([session.as_str()], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(None);
    };
    let mut rows = db.prepare_cached(
        "SELECT turn, entries FROM log WHERE id > ?1 AND id < ?2 AND instr(entries, ?3) > 0 ORDER BY id DESC",
    )?;
    let range = (session * POSITIONS, (session + 1) * POSITIONS, text);
    for row in rows.query_map(range, |row| Ok((row.get(0)?, log::recorded(row, 1)?)))? {
        let (turn, entries) = row?;
        if let Some(found) = entries.into_iter().rev().find_map(&wanted) {
            return Ok(Some((turn, found)));
        }
    }
    Ok(None)
}
