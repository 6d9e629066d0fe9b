//! Conversations: their rows, and lists of them.

use drupe_agent::{Conversation, Happened, Tenure};
use drupe_extension_api::{
    AgentId, EventBody, Preview, SessionId,
    control::{HandoffStatus, Persona, SessionSnapshot, SessionStatus},
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Counts, StoreError,
    cache::Session,
    error::Result,
    log::{self, POSITIONS, Record},
    recent::Change,
    rows::{count, id, maybe_id, maybe_json, readable, signed, time, timestamp},
    writer::Writing,
};

/// The longest title, in characters: a line of a list.
const TITLE: usize = 80;

/// What is known of a session; none where it does not exist.
fn known<'a>(on: &'a mut Writing<'_>, session: &SessionId) -> Result<Option<&'a mut Session>> {
    if !on.cache.sessions.has(session) {
        let mut find =
            on.statement("SELECT number, turns, agent, least_seq, conversation FROM sessions WHERE id = ?1")?;
        let found = find.query_row([session.as_str()], |row| {
            let least_seq = row.get(3)?;
            let (agent, conversation) = (maybe_id(row, 2)?, conversation(row, 4)?);
            Ok(Session {
                number: row.get(0)?,
                last_seq: least_seq,
                turns: count(row, 1)?,
                agent,
                conversation,
            })
        });
        let Some(mut known) = found.optional()? else { return Ok(None) };
        known.last_seq = known.last_seq.max(last_seq(on.db, known.number)?);
        on.cache.sessions.insert(session.clone(), known);
    }
    Ok(on.cache.sessions.get(session))
}

/// What is known of a session; makes it where it does not exist.
pub(crate) fn known_or_new<'a>(on: &'a mut Writing<'_>, session: &SessionId) -> Result<&'a mut Session> {
    if known(on, session)?.is_none() {
        make(on, session, 0, "")?;
    }
    on.cache
        .sessions
        .get(session)
        .ok_or_else(|| StoreError::Database(format!("session `{session}` has no row")))
}

/// Counts a turn, and takes the session's title from its first message. Gives what was known before.
pub(crate) fn add_turn(on: &mut Writing<'_>, session: &SessionId, text: &str) -> Result<Session> {
    let now = on.now_ms();
    let Some(found) = known(on, session)? else {
        make(on, session, 1, &title(text))?;
        let made = known_or_new(on, session)?;
        return Ok(Session { turns: 0, ..made.clone() });
    };
    let before = found.clone();
    found.turns += 1;
    if before.turns == 0 {
        on.statement("UPDATE sessions SET turns = 1, updated_ms = ?2, title = ?3 WHERE number = ?1")?
            .execute((before.number, now, title(text)))?;
    } else {
        on.statement("UPDATE sessions SET turns = ?3, updated_ms = ?2 WHERE number = ?1")?.execute((
            before.number,
            now,
            signed(before.turns + 1),
        ))?;
    }
    Ok(before)
}

/// Notes a change, for lists.
pub(crate) fn touch(on: &Writing<'_>, number: i64) -> Result<()> {
    on.statement("UPDATE sessions SET updated_ms = ?2 WHERE number = ?1")?.execute((number, on.now_ms()))?;
    Ok(())
}

fn make(on: &mut Writing<'_>, session: &SessionId, turns: u64, title: &str) -> Result<()> {
    on.statement(
        "INSERT INTO sessions (id, created_ms, updated_ms, turns, title) VALUES (?1, ?2, ?2, ?3, ?4)",
    )?
    .execute((session.as_str(), on.now_ms(), signed(turns), title))?;
    let number = on.db.last_insert_rowid();
    on.cache.sessions.insert(
        session.clone(),
        Session { number, last_seq: 0, turns, agent: None, conversation: Conversation::default() },
    );
    Ok(())
}

fn title(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(TITLE).collect()
}

/// The position of the last event of a session.
fn last_seq(db: &Connection, number: i64) -> Result<i64> {
    let mut last = db.prepare_cached(
        "SELECT id + positions - 1 FROM log WHERE id > ?1 AND id < ?2 ORDER BY id DESC LIMIT 1",
    )?;
    let range = (number * POSITIONS, (number + 1) * POSITIONS);
    Ok(last.query_row(range, |row| row.get::<_, i64>(0)).optional()?.map_or(0, |id| id % POSITIONS))
}

pub(crate) fn select_agent(
    on: &mut Writing<'_>,
    session: &SessionId,
    agent: Option<&AgentId>,
) -> Result<bool> {
    if agent.is_none() && known(on, session)?.is_none() {
        return Ok(false);
    }
    let known = known_or_new(on, session)?;
    known.agent = agent.cloned();
    let (number, before) = (known.number, known.conversation.clone());
    let conversation = before.clone().after(Happened::Chosen);
    if conversation != before {
        set_conversation(on, session, &conversation)?;
        tell_end(on, session, conversation)?;
    }
    on.change(Change::Selected);
    on.statement("UPDATE sessions SET agent = ?2, updated_ms = ?3 WHERE number = ?1")?.execute((
        number,
        agent.map(AgentId::as_str),
        on.now_ms(),
    ))?;
    Ok(true)
}

/// Tells of a handoff that ended while no turn was at work.
fn tell_end(on: &mut Writing<'_>, session: &SessionId, conversation: Conversation) -> Result<()> {
    let Conversation::Reclaiming { from, reason, summary } = conversation else { return Ok(()) };
    let (reason, summary) = (reason.to_string(), Preview::of(&summary));
    let told = [(None, EventBody::HandoffEnded { from, reason, summary })];
    log::append(on, session, None, Record { before: &told, ..Record::default() })
}

/// Keeps who talks in a session from here on.
pub(crate) fn set_conversation(
    on: &mut Writing<'_>,
    session: &SessionId,
    conversation: &Conversation,
) -> Result<()> {
    let known = known_or_new(on, session)?;
    known.conversation = conversation.clone();
    let number = known.number;
    let kept = (*conversation != Conversation::default())
        .then(|| serde_json::to_string(conversation))
        .transpose()?;
    on.change(Change::Selected);
    on.statement("UPDATE sessions SET conversation = ?2 WHERE number = ?1")?.execute((number, kept))?;
    Ok(())
}

/// A column that holds who talks.
pub(crate) fn conversation(row: &Row<'_>, column: usize) -> rusqlite::Result<Conversation> {
    Ok(maybe_json(row, column)?.unwrap_or_default())
}

/// Every session, the one with the latest change first.
pub(crate) fn list(db: &Connection) -> Result<Vec<SessionStatus>> {
    let mut all = db.prepare_cached(
        "SELECT id, created_ms, updated_ms, turns, agent, title, conversation FROM sessions
         WHERE instr(id, '!') = 0 ORDER BY updated_ms DESC, number DESC",
    )?;
    Ok(readable(all.query([])?, ("a session", 0), status)?)
}

/// The session of the newest message that a person wrote. What an extension hands in by itself names no channel; reports of
/// agents name that of whoever wrote before.
pub(crate) fn last_of_people(db: &Connection) -> Result<Option<SessionId>> {
    let mut newest = db.prepare_cached(
        "SELECT sessions.id FROM turns JOIN sessions ON sessions.number = turns.session
         WHERE (origin = 'operator' OR channel <> '') AND origin NOT LIKE 'report:%'
         AND (origin NOT LIKE 'person:%' OR substr(origin, 8) IN (SELECT channel || '/' || id FROM people WHERE may_approve = 1))
         ORDER BY turns.number DESC LIMIT 1",
    )?;
    Ok(newest.query_row([], |row| id(row, 0)).optional()?)
}

/// What the turns of a session have made use of.
pub(crate) fn snapshot(db: &Connection, session: &SessionId) -> Result<SessionSnapshot> {
    let mut one = db.prepare_cached("SELECT snapshot FROM sessions WHERE id = ?1")?;
    let found = one.query_row([session.as_str()], |row| maybe_json(row, 0)).optional()?;
    Ok(found.flatten().unwrap_or_default())
}

/// The agents that a session alone has.
pub(crate) fn personas(db: &Connection, session: &SessionId) -> Result<Vec<Persona>> {
    let mut one = db.prepare_cached("SELECT personas FROM sessions WHERE id = ?1")?;
    let found = one.query_row([session.as_str()], |row| maybe_json(row, 0)).optional()?;
    Ok(found.flatten().unwrap_or_default())
}

/// Gives a session agents of its own; false where a message of it was accepted already.
pub(crate) fn give_personas(on: &mut Writing<'_>, session: &SessionId, personas: &[Persona]) -> Result<bool> {
    let known = known_or_new(on, session)?;
    let (number, begun) = (known.number, known.turns > 0);
    if begun {
        return Ok(false);
    }
    let kept = (!personas.is_empty()).then(|| serde_json::to_string(personas)).transpose()?;
    on.statement("UPDATE sessions SET personas = ?2 WHERE number = ?1")?.execute((number, kept))?;
    on.change(Change::Selected);
    Ok(true)
}

/// Keeps what the turns of a session have made use of.
pub(crate) fn keep_snapshot(on: &Writing<'_>, number: i64, snapshot: &SessionSnapshot) -> Result<()> {
    let kept = serde_json::to_string(snapshot)?;
    on.statement("UPDATE sessions SET snapshot = ?2 WHERE number = ?1")?.execute((number, kept))?;
    Ok(())
}

/// One session, with its number and the position of its last event.
pub(crate) fn find(db: &Connection, session: &SessionId) -> Result<Option<(SessionStatus, i64, u64)>> {
    let mut one = db.prepare_cached(
        "SELECT id, created_ms, updated_ms, turns, agent, title, conversation, number, least_seq FROM sessions WHERE id = ?1",
    )?;
    let read = |row: &Row<'_>| Ok((status(row)?, row.get(7)?, row.get::<_, i64>(8)?));
    let found = one.query_row([session.as_str()], read).optional()?;
    let Some((status, number, least)) = found else { return Ok(None) };
    Ok(Some((status, number, last_seq(db, number)?.max(least).unsigned_abs())))
}

pub(crate) fn counts(db: &Connection) -> Result<Counts> {
    let mut all = db.prepare_cached(
        "SELECT (SELECT count(*) FROM sessions WHERE instr(id, '!') = 0),
                (SELECT count(*) FROM turns WHERE finished_ms IS NULL AND started_ms IS NULL),
                (SELECT count(*) FROM outbox WHERE state IN ('due', 'sending')),
                (SELECT count(*) FROM deliveries WHERE dead = 0),
                (SELECT count(*) FROM deliveries WHERE dead = 1)",
    )?;
    let counts = all.query_row([], |row| {
        Ok(Counts {
            sessions: count(row, 0)?,
            queued_turns: count(row, 1)?,
            queued_deliveries: count(row, 2)?,
            queued_messages: count(row, 3)?,
            dead_messages: count(row, 4)?,
        })
    });
    Ok(counts?)
}

fn status(row: &Row<'_>) -> rusqlite::Result<SessionStatus> {
    Ok(SessionStatus {
        id: id(row, 0)?,
        created: time(row, 1)?,
        updated: time(row, 2)?,
        turn_count: count(row, 3)?,
        agent: maybe_id(row, 4)?,
        title: row.get(5)?,
        handoff: match conversation(row, 6)? {
            Conversation::With(Tenure { agent, since_ms, turns, tokens, .. }) => {
                Some(HandoffStatus { agent, since: timestamp(since_ms), turns, tokens })
            }
            _ => None,
        },
    })
}
