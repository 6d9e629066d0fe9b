//! Turns: queued, begun, finished. A finished turn stays as it is.

use std::sync::Arc;

use drupe_agent::Batch;
use drupe_extension_api::{
    AgentResponse, CorrelationId, EventBody, Preview, SessionId, Spend, TurnId,
    wire::{OutboundKind, QueueMode, Submit},
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    DeliveryId, Inbound, QueuedTurn, SessionState, StoreError, TurnDone, TurnStart,
    bus::{self, WhenFull},
    cache::Turn,
    checkpoints, conversation,
    error::Result,
    log::{self, Record},
    outbox, ratios,
    recent::{Change, Ended},
    recipes,
    rows::{count, id, maybe_id, maybe_json, name_of, named, parsed, readable, signed, time},
    sessions, usage,
    writer::Writing,
};

/// The columns that [`inbound`] reads, before others.
macro_rules! messages {
    ($($rest:tt)*) => {
        concat!(
            "SELECT sessions.id, channel, external_id, origin, address, text, turns.agent, model, output,
                    time_budget_ms, queue, chain, correlation, carried, ",
            $($rest)*
        )
    };
}
pub(crate) use messages;

/// The column after those of [`inbound`].
pub(crate) const AFTER_MESSAGE: usize = 14;

/// The columns that [`queued_row`] reads, of turns without an answer.
macro_rules! unanswered {
    ($rest:literal) => {
        messages!(
            "turns.id, accepted_ms, starts > 0, root, correlation, sessions.agent,
             sessions.turns - (SELECT count(*) FROM turns AS later
              WHERE later.session = turns.session AND later.number >= turns.number), cancelled, sessions.conversation
             FROM turns JOIN sessions ON sessions.number = turns.session
             WHERE finished_ms IS NULL ",
            $rest
        )
    };
}

/// What is known of a turn.
pub(crate) fn known(on: &mut Writing<'_>, turn: &TurnId) -> Result<Arc<Turn>> {
    if let Some(known) = on.cache.turns.get(turn) {
        return Ok(Arc::clone(known));
    }
    let mut find = on.statement(
        "SELECT turns.number, sessions.number, sessions.id, correlation, finished_ms IS NOT NULL, starts
         FROM turns JOIN sessions ON sessions.number = turns.session WHERE turns.id = ?1",
    )?;
    let found = find.query_row([turn.as_str()], |row| {
        Ok(Turn {
            id: turn.clone(),
            number: row.get(0)?,
            session_number: row.get(1)?,
            session: id(row, 2)?,
            correlation: maybe_id(row, 3)?,
            finished: row.get(4)?,
            starts: row.get(5)?,
        })
    });
    let known = Arc::new(found.optional()?.ok_or_else(|| StoreError::UnknownTurn(turn.clone()))?);
    on.cache.turns.insert(turn.clone(), Arc::clone(&known));
    Ok(known)
}

/// A turn that has no answer yet.
fn open(on: &mut Writing<'_>, turn: &TurnId) -> Result<Arc<Turn>> {
    let known = known(on, turn)?;
    if known.finished { Err(StoreError::Finished(turn.clone())) } else { Ok(known) }
}

/// Notes that a turn has begun. One that had begun before keeps its time, and the
/// position from which its records are read.
pub(crate) fn begin(on: &mut Writing<'_>, start: &TurnStart) -> Result<Arc<Turn>> {
    let before = open(on, &start.turn)?;
    let starts = before.starts + 1;
    let (root, correlation) = (start.root.as_str(), start.correlation.as_str());
    if before.starts == 0 {
        let after_seq = sessions::known_or_new(on, &before.session)?.last_seq;
        on.statement(
            "UPDATE turns SET starts = 1, root = ?2, correlation = ?3, started_ms = ?4, after_seq = ?5
             WHERE number = ?1",
        )?
        .execute((before.number, root, correlation, on.now_ms(), after_seq))?;
    } else {
        on.statement("UPDATE turns SET starts = ?4, root = ?2, correlation = ?3 WHERE number = ?1")?
            .execute((before.number, root, correlation, starts))?;
    }
    let correlation = Some(start.correlation.clone());
    let turn = Arc::new(Turn { correlation, starts, ..Turn::clone(&before) });
    on.cache.turns.insert(turn.id.clone(), Arc::clone(&turn));
    on.change(Change::Begun(turn.id.clone(), start.root.clone(), start.correlation.clone()));
    Ok(turn)
}

/// Notes that a turn goes on, and tells of it.
pub(crate) fn start(on: &mut Writing<'_>, start: &TurnStart) -> Result<u32> {
    let turn = begin(on, start)?;
    let record = Record { before: &start.events, ..Record::default() };
    log::append(on, &turn.session, Some(&turn), record)?;
    Ok(turn.starts)
}

/// Records how a turn ended, and queues what goes out.
pub(crate) fn finish(on: &mut Writing<'_>, done: &TurnDone) -> Result<Option<DeliveryId>> {
    let turn = match &done.start {
        Some(start) => begin(on, start)?,
        None => open(on, &done.last.turn)?,
    };
    let Batch { runs, entries, recipes, messages, .. } = &done.last;
    usage::count_entries(on, &turn, entries)?;
    recipes::keep(on, turn.number, recipes)?;
    let before = done.start.as_ref().map_or(&[][..], |start| &start.events);
    let record = Record { before, runs, entries, after: &done.events };
    log::append(on, &turn.session, Some(&turn), record)?;
    let end = End { response: &done.response, spend: &done.spend, diagnostics: &done.diagnostics };
    close(on, &turn, &end)?;
    let change = match on.cache.recorded.take(&turn.number) {
        Some(recorded) => {
            // So short that there is no checkpoint of it.
            let (response, diagnostics) = (done.response.clone(), done.diagnostics.clone());
            Change::Ended(Ended::new(&turn, recorded, response, done.spend, diagnostics).into())
        }
        None => {
            checkpoints::forget(on, turn.number)?;
            Change::Changed(turn.id.clone())
        }
    };
    on.change(change);
    if let Some((before, now)) = &done.conversation
        && sessions::known_or_new(on, &turn.session)?.conversation == *before
    {
        sessions::set_conversation(on, &turn.session, now)?;
    }
    if let Some(snapshot) = &done.snapshot {
        sessions::keep_snapshot(on, turn.session_number, snapshot)?;
    }
    if let Some(summary) = &done.summary {
        conversation::keep_summary(on, &turn, summary)?;
    }
    messages.iter().try_for_each(|message| bus::publish(on, message, WhenFull::Bury))?;
    done.ratios.iter().try_for_each(|(model, bytes)| ratios::keep(on, model, *bytes))?;
    let answer = match &done.outbox {
        Some(message) => Some(outbox::queue_answer(on, &turn, message)?),
        None => None,
    };
    let of = (OutboundKind::Answer, turn.id.as_str());
    let copied = outbox::queue_copies(on, of, (&turn.session, turn.session_number), &done.copies)?;
    Ok(answer.or(copied))
}

/// Ends a turn whose message another one took in: it gets no answer of its own. One that has ended already stays as
/// it is.
pub(crate) fn taken_in(on: &mut Writing<'_>, by: &Turn, turn: &TurnId) -> Result<()> {
    let turn = known(on, turn)?;
    if turn.finished {
        return Ok(());
    }
    let turn = Turn { correlation: by.correlation.clone(), ..Turn::clone(&turn) };
    let response = AgentResponse::success(format!("turn `{}` took this message in while it ran", by.id));
    end_as_it_is(on, &turn, &response)
}

/// Ends a turn that has no answer with this one, without going on with it: nothing goes out to a channel.
pub(crate) fn give_up(on: &mut Writing<'_>, turn: &TurnId, response: &AgentResponse) -> Result<()> {
    let turn = open(on, turn)?;
    end_as_it_is(on, &turn, response)?;
    checkpoints::forget(on, turn.number)
}

fn end_as_it_is(on: &mut Writing<'_>, turn: &Turn, response: &AgentResponse) -> Result<()> {
    let after_seq = sessions::known_or_new(on, &turn.session)?.last_seq;
    let mut begin = on.statement(
        "UPDATE turns SET started_ms = coalesce(started_ms, ?2), correlation = coalesce(correlation, ?3),
                          after_seq = iif(starts = 0, ?4, after_seq) WHERE number = ?1 RETURNING text",
    )?;
    let correlation = turn.correlation.as_ref().map(CorrelationId::as_str);
    let text: String =
        begin.query_row((turn.number, on.now_ms(), correlation, after_seq), |row| row.get(0))?;
    let spend = Spend::default();
    let (status, error, class) = (response.status, response.error.clone(), response.class);
    let started = (None, EventBody::TurnStarted { input: Preview::kept(&text, turn.id.as_str()) });
    let completed = (None, EventBody::TurnCompleted { status, error, class, spend });
    let told: Vec<_> = (turn.starts == 0).then_some(started).into_iter().chain([completed]).collect();
    log::append(on, &turn.session, Some(turn), Record { before: &told, ..Record::default() })?;
    on.cache.recorded.take(&turn.number);
    on.change(Change::Changed(turn.id.clone()));
    close(on, turn, &End { response, spend: &spend, diagnostics: &[] })
}

/// Notes that a turn is to end without going on, and why; what was noted first stays. False where it has its end already.
pub(crate) fn cancel(on: &mut Writing<'_>, turn: &TurnId, why: &str) -> Result<bool> {
    let turn = known(on, turn)?;
    if turn.finished {
        return Ok(false);
    }
    on.statement("UPDATE turns SET cancelled = coalesce(cancelled, ?2) WHERE number = ?1")?
        .execute((turn.number, why))?;
    on.change(Change::Cancelled(turn.id.clone(), why.to_owned()));
    Ok(true)
}

/// Notes so of what a message that interrupts finds at work in its session: whatever has begun, or else what is the next
/// to begin. What is to end already is neither. Gives the turns.
pub(crate) fn supersede(on: &mut Writing<'_>, by: &Turn) -> Result<Vec<TurnId>> {
    // By the index of the few that are open, and not by that of all that the session ever had.
    let mut open = on.statement(
        "SELECT id, starts > 0 FROM turns WHERE finished_ms IS NULL AND cancelled IS NULL AND +session = ?1
         AND number < ?2 ORDER BY number",
    )?;
    let found = open.query_map((by.session_number, by.number), |row| Ok((id(row, 0)?, row.get(1)?)))?;
    let found: Vec<(TurnId, bool)> = found.collect::<Result<_, _>>()?;
    let at_work = found.into_iter().enumerate().filter(|(at, (_, begun))| *at == 0 || *begun);
    let turns: Vec<TurnId> = at_work.map(|(_, (turn, _))| turn).collect();
    for turn in &turns {
        cancel(on, turn, &format!("turn `{}` interrupted it", by.id))?;
    }
    Ok(turns)
}

/// How a turn ends.
struct End<'a> {
    response: &'a AgentResponse,
    spend: &'a Spend,
    diagnostics: &'a [String],
}

fn close(on: &mut Writing<'_>, turn: &Turn, end: &End<'_>) -> Result<()> {
    let until_seq = sessions::known_or_new(on, &turn.session)?.last_seq;
    on.statement(
        "UPDATE turns SET finished_ms = ?2, response = ?3, spend = ?4, diagnostics = ?5, until_seq = ?6
         WHERE number = ?1",
    )?
    .execute((
        turn.number,
        on.now_ms(),
        serde_json::to_string(end.response)?,
        serde_json::to_string(end.spend)?,
        serde_json::to_string(end.diagnostics)?,
        until_seq,
    ))?;
    sessions::touch(on, turn.session_number)?;
    on.cache.turns.insert(turn.id.clone(), Arc::new(Turn { finished: true, ..turn.clone() }));
    Ok(())
}

/// Turns without an answer, in the order in which they were accepted.
pub(crate) fn unfinished(db: &Connection) -> Result<Vec<QueuedTurn>> {
    let mut all = db.prepare_cached(unanswered!("ORDER BY turns.number"))?;
    Ok(readable(all.query([])?, ("a turn", AFTER_MESSAGE), queued_row)?)
}

/// One turn without an answer.
pub(crate) fn queued(db: &Connection, turn: &TurnId) -> Result<Option<QueuedTurn>> {
    let mut one = db.prepare_cached(unanswered!("AND turns.id = ?1"))?;
    Ok(one.query_row([turn.as_str()], queued_row).optional()?)
}

/// What a turn was asked, whether it has ended or not.
pub(crate) fn asked(db: &Connection, turn: &TurnId) -> Result<Option<Inbound>> {
    let mut one = db.prepare_cached(messages!(
        "turns.id FROM turns JOIN sessions ON sessions.number = turns.session WHERE turns.id = ?1"
    ))?;
    Ok(one.query_row([turn.as_str()], inbound).optional()?)
}

/// The session of a turn.
pub(crate) fn session_of(db: &Connection, turn: &TurnId) -> Result<Option<SessionId>> {
    let mut one = db.prepare_cached(
        "SELECT sessions.id FROM turns JOIN sessions ON sessions.number = turns.session WHERE turns.id = ?1",
    )?;
    Ok(one.query_row([turn.as_str()], |row| id(row, 0)).optional()?)
}

/// The turns of a session, in order.
pub(crate) fn of_session(db: &Connection, session: &SessionId) -> Result<Vec<TurnId>> {
    let mut all = db.prepare_cached(
        "SELECT id FROM turns WHERE session = (SELECT number FROM sessions WHERE id = ?1) ORDER BY number",
    )?;
    Ok(all.query_map([session.as_str()], |row| id(row, 0))?.collect::<Result<_, _>>()?)
}

/// The message of a turn.
pub(crate) fn inbound(row: &Row<'_>) -> rusqlite::Result<Inbound> {
    let ask = Submit {
        channel: row.get(1)?,
        address: row.get(4)?,
        agent: maybe_id(row, 6)?,
        model: row.get(7)?,
        output: maybe_json(row, 8)?,
        time_budget_ms: row.get::<_, Option<i64>>(9)?.map(i64::unsigned_abs),
        queue: Some(named::<QueueMode>(row, 10)?),
        carried: maybe_json(row, 13)?,
        ..Submit::new(id(row, 0)?, row.get::<_, String>(2)?, row.get::<_, String>(5)?)
    };
    Ok(Inbound {
        ask,
        origin: parsed(row, 3)?,
        chain: maybe_json(row, 11)?.unwrap_or_default(),
        correlation: maybe_id(row, 12)?,
    })
}

fn queued_row(row: &Row<'_>) -> rusqlite::Result<QueuedTurn> {
    Ok(QueuedTurn {
        inbound: inbound(row)?,
        turn: id(row, AFTER_MESSAGE)?,
        accepted: time(row, AFTER_MESSAGE + 1)?,
        started: row.get(AFTER_MESSAGE + 2)?,
        root: maybe_id(row, AFTER_MESSAGE + 3)?,
        correlation: maybe_id(row, AFTER_MESSAGE + 4)?,
        state: SessionState {
            talks_with: maybe_id(row, AFTER_MESSAGE + 5)?,
            conversation: sessions::conversation(row, AFTER_MESSAGE + 8)?,
        },
        earlier_turns: count(row, AFTER_MESSAGE + 6)?,
        cancelled: row.get(AFTER_MESSAGE + 7)?,
    })
}

/// Queues a turn for a message.
pub(crate) fn insert(on: &mut Writing<'_>, turn: &Turn, inbound: &Inbound, after_seq: i64) -> Result<i64> {
    let chain = (inbound.chain != drupe_agent::Chain::default())
        .then(|| serde_json::to_string(&inbound.chain))
        .transpose()?;
    let mut insert = on.statement(
        "INSERT INTO turns (id, session, after_seq, channel, external_id, origin, queue, address, text, agent, model,
                            output, time_budget_ms, chain, accepted_ms, correlation, carried)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?;
    insert.execute(rusqlite::params![
        turn.id.as_str(),
        turn.session_number,
        after_seq,
        inbound.ask.channel,
        inbound.ask.external_id,
        inbound.origin.to_string(),
        name_of(&inbound.ask.queue.unwrap_or_default())?,
        inbound.ask.address,
        inbound.ask.text,
        inbound.ask.agent.as_ref().map(|agent| agent.as_str()),
        inbound.ask.model,
        inbound.ask.output.as_ref().map(serde_json::to_string).transpose()?,
        inbound.ask.time_budget_ms.map(signed),
        chain,
        on.now_ms(),
        inbound.correlation.as_ref().map(CorrelationId::as_str),
        inbound.ask.carried.as_ref().map(serde_json::to_string).transpose()?,
    ])?;
    Ok(on.db.last_insert_rowid())
}
