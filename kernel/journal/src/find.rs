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
    DeliveryRow, Found, Store, TurnRows, bus,
    error::Result,
    events,
    parts::{self, Span},
    recipes,
    rows::{id, maybe_id, maybe_json, maybe_time, time},
    turns::{self, AFTER_MESSAGE, messages},
};

impl Store {
    /// Everything that is recorded of a turn.
    pub async fn turn_rows(&self, turn: &TurnId) -> Result<Option<TurnRows>> {
        let turn = turn.clone();
        let Some((mut rows, span)) = self.read(move |db| turn_rows(db, &turn)).await? else {
            return Ok(None);
        };
        rows.entries = self.entries(span).await?;
        let recipe = |(_, entry): &(i64, Entry)| match entry {
            Entry::Begin { recipe, .. } => recipe.clone(),
            _ => None,
        };
        let hashes = rows.entries.iter().filter_map(recipe).collect();
        rows.recipes = self.read_few(move |db| recipes::of(db, hashes)).await?;
        Ok(Some(rows))
    }

    /// The turns of a session, in the order of their acceptance; none where there is no such session.
    pub async fn session_turns(&self, session: &SessionId) -> Result<Vec<TurnId>> {
        let session = session.clone();
        self.read(move |db| turns::of_session(db, &session)).await
    }

    /// What has this id. A number is that of a message of the bus.
    pub async fn find(&self, id: &str) -> Result<Option<Found>> {
        let name = id.to_owned();
        if let Some(found) = self.read(move |db| listed(db, &name)).await? {
            return Ok(Some(found));
        }
        let name = id.to_owned();
        let Some((turn, named)) = self.latest(None, id, move |entry| named(entry, &name)).await? else {
            return Ok(None);
        };
        let turn = self.read_few(move |db| turn_of(db, turn)).await?;
        Ok(turn.map(|turn| match named {
            Named::Call(effect) => Found::Call { turn, effect },
            Named::Run(invocation) => Found::Run { turn, invocation },
        }))
    }

    /// The texts of an item in full: under the id of a tool call, of an item of a model's answer, or of a turn, whose
    /// texts are its message and its answer.
    pub async fn item(&self, session: &SessionId, id: &str) -> Result<Option<ItemText>> {
        let (of, name) = (session.clone(), id.to_owned());
        if let Some(text) = self.read_few(move |db| message(db, &of, &name)).await? {
            return Ok(Some(text));
        }
        let Some(session) = self.number_of(session).await? else { return Ok(None) };
        let name = id.to_owned();
        let place = move |entry| match entry {
            Entry::Intent { invocation, step, index, effect, .. } if effect.as_str() == name => {
                Some((invocation, step, index))
            }
            Entry::Asked { step, index, question, .. } if question.effect.as_str() == name => {
                Some((question.invocation, step, index))
            }
            _ => None,
        };
        if let Some((turn, (invocation, step, index))) = self.latest(Some(session), id, place).await? {
            let span = self.read_few(move |db| parts::span(db, turn)).await?;
            let entries = match span {
                Some(span) => self.entries(span).await?,
                None => Vec::new(),
            };
            return Ok(Some(call(&entries, invocation, step, index)));
        }
        let Some((run, written)) = answer(id) else { return Ok(None) };
        Ok(self.latest(Some(session), run, written).await?.map(|(_, text)| text))
    }

    /// The whole result of a call of this session.
    pub(crate) async fn result_of(&self, session: &SessionId, effect: EffectId) -> Result<Option<String>> {
        let Some(session) = self.number_of(session).await? else { return Ok(None) };
        let name = effect.to_string();
        let is_result = move |entry| match entry {
            Entry::Result { effect: of, content, .. } if of == effect => Some(content),
            _ => None,
        };
        Ok(self.latest(Some(session), &name, is_result).await?.map(|(_, content)| content))
    }

    pub(crate) async fn number_of(&self, session: &SessionId) -> Result<Option<i64>> {
        let session = session.clone();
        self.read_few(move |db| {
            let mut find = db.prepare_cached("SELECT number FROM sessions WHERE id = ?1")?;
            Ok(find.query_row([session.as_str()], |row| row.get(0)).optional()?)
        })
        .await
    }
}

/// All but the entries, and where those are.
fn turn_rows(db: &Connection, turn: &TurnId) -> Result<Option<(TurnRows, Span)>> {
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
            recipes: Default::default(),
            events: Vec::new(),
            deliveries: Vec::new(),
        })
    });
    let Some(mut rows) = found.optional()? else { return Ok(None) };
    rows.events = events::of_turn(db, rows.number, &rows.inbound.ask.session)?;
    rows.deliveries = deliveries(db, rows.number)?;
    Ok(parts::span(db, rows.number)?.map(|span| (rows, span)))
}

fn deliveries(db: &Connection, turn: i64) -> Result<Vec<DeliveryRow>> {
    let mut all = db.prepare_cached(
        "SELECT number, channel, state, attempts, why, remote_id FROM outbox WHERE turn = ?1",
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

/// What has this id and a row of its own.
fn listed(db: &Connection, name: &str) -> Result<Option<Found>> {
    let has = |sql: &'static str| -> Result<bool> { Ok(db.prepare_cached(sql)?.exists([name])?) };
    if has("SELECT 1 FROM turns WHERE id = ?1")? {
        return Ok(TurnId::new(name).ok().map(Found::Turn));
    }
    if has("SELECT 1 FROM sessions WHERE id = ?1")? {
        return Ok(SessionId::new(name).ok().map(Found::Session));
    }
    let Ok(number) = name.parse() else { return Ok(None) };
    Ok(bus::message(db, number)?.map(|_| Found::Message(number)))
}

/// The id of a turn by its number.
fn turn_of(db: &Connection, number: i64) -> Result<Option<TurnId>> {
    let mut one = db.prepare_cached("SELECT id FROM turns WHERE number = ?1")?;
    Ok(one.query_row([number], |row| id(row, 0)).optional()?)
}

/// What an entry tells of.
enum Named {
    Call(EffectId),
    Run(InvocationId),
}

/// What an entry tells of, if that has this id.
fn named(entry: Entry, name: &str) -> Option<Named> {
    match entry {
        Entry::Intent { effect, .. } | Entry::Result { effect, .. } if effect.as_str() == name => {
            Some(Named::Call(effect))
        }
        Entry::Asked { question, .. } if question.effect.as_str() == name => {
            Some(Named::Call(question.effect))
        }
        // A run that was refused has no other record.
        Entry::Told { .. } => None,
        entry if entry.invocation().as_str() == name => Some(Named::Run(entry.invocation().clone())),
        _ => None,
    }
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

/// The run whose model wrote the item with this id, and what it wrote by an entry: items are called
/// `<run>.<step>.<attempt>`, and those of its reasoning have something after it.
fn answer(name: &str) -> Option<(&str, impl Fn(Entry) -> Option<ItemText> + Send + Sync + 'static)> {
    let mut parts = name.split('.');
    let (run, at) = (parts.next()?, parts.next()?.parse::<u32>().ok()?);
    let reasons = parts.nth(1).is_some();
    let of = run.to_owned();
    let written = move |entry| match entry {
        Entry::Answer {
            invocation, step, message: Message::Assistant { content, reasoning, .. }, ..
        } if step == at && invocation.as_str() == of => {
            let output = if reasons { reasoning } else { Some(content) };
            Some(ItemText { invocation, input: None, output })
        }
        _ => None,
    };
    Some((run, written))
}

/// The message of a turn, and its answer.
fn message(db: &Connection, session: &SessionId, name: &str) -> Result<Option<ItemText>> {
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
