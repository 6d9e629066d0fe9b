//! What goes out to people through channels: the answer of a turn, files, and notices that nobody asked for.
//!
//! A message is a row before it is sent. It is `due` until a channel takes it up and `sending` while nobody knows whether
//! it arrived; it ends as `sent`, as `uncertain` (the channel cannot tell, or the process ended meanwhile) or as `failed`
//! (it surely did not arrive, and was tried often enough). None of the three is ever left: what may have arrived is not
//! sent again, and the session is told of whatever was not sent.
//!
//! Each message has a key of its own, which the channel is given, so that one that can tell a repetition does. A turn has
//! at most one answer. A question to a person goes out as a notice. What goes to further channels as well is a message of its own for
//! each of them, a copy; how it is sent and what becomes of it is the same for all. Nothing here calls a channel: that is the kernel's.

use std::fmt;

use drupe_extension_api::{
    EffectId, EventBody, SessionId, TurnId,
    wire::{FileSent, OutboundFile, OutboundKind, SETTLED},
};
use rusqlite::{Connection, OptionalExtension, Row};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    StoreError,
    cache::Turn,
    events,
    rows::{id, json, name_of, named},
    sessions,
    writer::Writing,
};

/// A message, and where it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outbound {
    /// Through which channel.
    pub channel: String,
    /// Where in the channel.
    pub address: Option<String>,
    /// The text.
    pub text: String,
}

/// Copies that may wait for one channel. One that is turned off must not fill the journal.
const MOST_COPIES: i64 = 1_000;

/// The number of a message that goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId(pub(crate) i64);

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its number.
    pub id: DeliveryId,
    /// Unique among all messages; that of an answer is its turn's id.
    pub key: String,
    /// What it is.
    pub kind: OutboundKind,
    /// The conversation.
    pub session: SessionId,
    /// What goes out.
    pub message: Outbound,
    /// The file that goes out, with the text beside it.
    pub file: Option<OutboundFile>,
    /// How often it was tried before.
    pub attempts: u32,
}

/// A file as its row has it, in the place of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMessage {
    /// What stands beside the file, for a person.
    pub text: String,
    /// Where it was in the workspace.
    pub path: String,
    pub file: OutboundFile,
}

/// A file that waits to be sent, or that a channel is sending at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOnTheWay {
    pub key: String,
    pub channel: String,
    pub is_being_sent: bool,
    pub file: OutboundFile,
}

/// How the keys of files begin. Their rows are those of notices otherwise, so that the file of an older release takes them.
pub const FILE_KEY: &str = "file:";

/// What became of one attempt to send a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The channel has delivered it.
    Delivered {
        /// The channel's own id of it.
        remote_id: Option<String>,
    },
    /// Surely nothing went out: it is due again.
    Again(String),
    /// Surely nothing went out, and it is not tried again.
    Failed(String),
    /// Nobody can tell whether it arrived: it is not tried again.
    Uncertain(String),
}

/// Queues the answer of a turn.
pub(crate) fn queue_answer(
    on: &Writing<'_>,
    turn: &Turn,
    message: &Outbound,
) -> Result<DeliveryId, StoreError> {
    let of = (turn.session_number, Some(turn.number));
    queue(on, OutboundKind::Answer, turn.id.as_str(), of, message)
}

/// Tells a session of something that nobody asked for, once for a key. Where its messages come through a channel, it also goes out
/// there, to where the latest of them came from; gives its number then.
pub(crate) fn notice(
    on: &mut Writing<'_>,
    session: &SessionId,
    key: Option<&str>,
    text: &str,
    copies: &[Outbound],
) -> Result<Option<DeliveryId>, StoreError> {
    if let Some(key) = key
        && is_there(on.db, key)?
    {
        return Ok(None);
    }
    let told = EventBody::Diagnostic { code: "notice".into(), message: text.to_owned() };
    events::record(on, session, None, &[(None, told)])?;
    let number = sessions::known_or_new(on, session)?.number;
    let mut find = on.statement(
        "SELECT channel, address FROM turns WHERE session = ?1 AND channel <> '' ORDER BY number DESC LIMIT 1",
    )?;
    let found = find.query_row([number], |row| {
        Ok(Outbound { channel: row.get(0)?, address: row.get(1)?, text: text.to_owned() })
    });
    let found = found.optional()?;
    drop(find);
    let own = key.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    let of = (number, None);
    let notice = match (found, key) {
        (Some(message), _) => Some(queue(on, OutboundKind::Notice, &own, of, &message)?),
        (None, None) => None,
        // Nothing of it goes out. The row says that it was told.
        (None, Some(_)) => {
            let row = queue(on, OutboundKind::Notice, &own, of, &Outbound::default())?;
            on.statement("UPDATE outbox SET state = 'sent' WHERE number = ?1")?.execute([row.0])?;
            None
        }
    };
    let key = own;
    let copied = queue_copies(on, (OutboundKind::Notice, &key), (session, number), copies)?;
    Ok(notice.or(copied))
}

/// Queues what went to a session, or is in it alone, for further channels, once for each key; the number of one that was queued. Where it goes
/// already it goes once, and a channel that takes nothing loses what is more than it may have waiting: then the session is told.
pub(crate) fn queue_copies(
    on: &mut Writing<'_>,
    (kind, key): (OutboundKind, &str),
    (session, number): (&SessionId, i64),
    copies: &[Outbound],
) -> Result<Option<DeliveryId>, StoreError> {
    let mut queued = None;
    for copy in copies {
        let Outbound { channel, address, .. } = copy;
        let place = address.as_ref().map(|address| format!("/{address}")).unwrap_or_default();
        let own = format!("{key}>{channel}{place}");
        let mut look = on.statement(
            "SELECT EXISTS (SELECT 1 FROM outbox WHERE (key = ?1 AND channel = ?3 AND address IS ?4) OR key = ?2),
                    (SELECT count(*) FROM outbox WHERE state IN ('due', 'sending') AND state = 'due' AND channel = ?3)",
        )?;
        let (goes, waiting): (bool, i64) =
            look.query_row((key, &own, channel, address), |row| Ok((row.get(0)?, row.get(1)?)))?;
        drop(look);
        if goes {
            continue;
        }
        if waiting < MOST_COPIES {
            queued = Some(queue(on, kind, &own, (number, None), copy)?);
            continue;
        }
        let message = format!("a copy for `{channel}` is left out: {MOST_COPIES} messages wait for it");
        let told = EventBody::Diagnostic { code: "delivery.failed".into(), message };
        events::record(on, session, None, &[(None, told)])?;
    }
    Ok(queued)
}

/// Tells whoever wrote through a channel of a question about a call in the turn that answers them, once for each key; whether
/// it goes out. Nobody is told of one that was settled.
pub(crate) fn question(
    on: &mut Writing<'_>,
    effect: &EffectId,
    key: &str,
    text: &str,
    (session, copies): (&SessionId, &[Outbound]),
) -> Result<bool, StoreError> {
    let mut find = on.statement(
        "SELECT turns.id FROM questions JOIN turns ON turns.number = questions.turn
         WHERE questions.effect = ?1 AND questions.state = 'pending'",
    )?;
    let asking: Option<TurnId> = find.query_row([effect.as_str()], |row| id(row, 0)).optional()?;
    drop(find);
    let Some(asking) = asking else { return Ok(false) };
    let told = match way_out(on.db, &asking, text)? {
        Some((number, message)) if !is_there(on.db, key)? => {
            Some(queue(on, OutboundKind::Notice, key, (number, None), &message)?)
        }
        _ => None,
    };
    let number = sessions::known_or_new(on, session)?.number;
    let copied = queue_copies(on, (OutboundKind::Notice, key), (session, number), copies)?;
    Ok(told.or(copied).is_some())
}

/// Tells whoever was told of a question what became of it, once; whether there was anybody to tell. The key of the message is that of
/// the question with [`SETTLED`] behind it, so that a channel can change what it showed.
pub(crate) fn settled(on: &Writing<'_>, key: &str, text: &str) -> Result<bool, StoreError> {
    let told = on
        .statement(
            "INSERT INTO outbox (key, kind, session, turn, channel, address, text, created_ms, updated_ms)
             SELECT ?2, kind, session, NULL, channel, address, ?3, ?4, ?4 FROM outbox WHERE key = ?1
             ON CONFLICT (key) DO NOTHING",
        )?
        .execute((key, format!("{key}{SETTLED}"), text, on.now_ms()))?;
    Ok(told == 1)
}

/// A text that is sent in a turn, with the number of the session to which it goes: to whoever wrote there, and of an agent that outlives
/// the turn in which it was spawned to whoever wrote in that one. None where nobody did through a channel.
pub(crate) fn way_out(
    db: &Connection,
    turn: &TurnId,
    text: &str,
) -> Result<Option<(i64, Outbound)>, StoreError> {
    let mut find = db.prepare_cached(
        "WITH RECURSIVE above(session, channel, address, origin, depth) AS (
             SELECT session, channel, address, origin, 0 FROM turns WHERE id = ?1
             UNION ALL
             SELECT turns.session, turns.channel, turns.address, turns.origin, depth + 1
             FROM above JOIN turns ON turns.id = substr(above.origin, length('spawned:') + 1)
             WHERE above.origin LIKE 'spawned:%' AND depth < 16
         )
         SELECT session, channel, address FROM above WHERE channel <> '' ORDER BY depth LIMIT 1",
    )?;
    let found = find.query_row([turn.as_str()], |row| {
        Ok((row.get(0)?, Outbound { channel: row.get(1)?, address: row.get(2)?, text: text.to_owned() }))
    });
    Ok(found.optional()?)
}

fn is_there(db: &Connection, key: &str) -> Result<bool, StoreError> {
    Ok(db.prepare_cached("SELECT 1 FROM outbox WHERE key = ?1")?.exists([key])?)
}

/// What became of a file that was to be sent under a key; none where nothing did.
pub(crate) fn file_sent(db: &Connection, key: &str) -> Result<Option<FileSent>, StoreError> {
    let mut find = db.prepare_cached("SELECT channel FROM outbox WHERE key = ?1")?;
    let channel: Option<String> = find.query_row([key], |row| row.get(0)).optional()?;
    Ok(match channel {
        Some(channel) => Some(FileSent::OnItsWay { channel }),
        None => is_there(db, &told_of(key))?.then_some(FileSent::Told),
    })
}

/// The key of what people are told in place of a file.
pub fn told_of(file: &str) -> String {
    format!("told:{file}")
}

/// Queues a file under a key that nothing has, and that begins with [`FILE_KEY`], for whoever is sent what a turn sends.
pub(crate) fn queue_file(
    on: &mut Writing<'_>,
    key: &str,
    turn: &TurnId,
    file: &FileMessage,
) -> Result<(), StoreError> {
    let text = serde_json::to_string(file)?;
    let (number, message) =
        way_out(on.db, turn, &text)?.ok_or_else(|| StoreError::UnknownTurn(turn.clone()))?;
    queue(on, OutboundKind::Notice, key, (number, None), &message)?;
    let session = events::session_of(on.db, number)?;
    let message = format!("`{}` goes out as a file", file.path);
    let told = EventBody::Diagnostic { code: "file".into(), message };
    events::record(on, &session, None, &[(None, told)])
}

/// The files of which it is not known what became.
pub(crate) fn files_on_the_way(db: &Connection) -> Result<Vec<FileOnTheWay>, StoreError> {
    let mut all = db.prepare_cached(
        "SELECT key, channel, state = 'sending', text FROM outbox
         WHERE state IN ('due', 'sending') AND key LIKE 'file:%' ORDER BY number",
    )?;
    let read = |row: &Row<'_>| {
        let FileMessage { file, .. } = json(row, 3)?;
        Ok(FileOnTheWay { key: row.get(0)?, channel: row.get(1)?, is_being_sent: row.get(2)?, file })
    };
    Ok(all.query_map([], read)?.collect::<Result<_, _>>()?)
}

fn queue(
    on: &Writing<'_>,
    kind: OutboundKind,
    key: &str,
    (session, turn): (i64, Option<i64>),
    message: &Outbound,
) -> Result<DeliveryId, StoreError> {
    on.statement(
        "INSERT INTO outbox (key, kind, session, turn, channel, address, text, created_ms, updated_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)",
    )?
    .execute((
        key,
        name_of(&kind)?,
        session,
        turn,
        &message.channel,
        &message.address,
        &message.text,
        on.now_ms(),
    ))?;
    Ok(DeliveryId(on.db.last_insert_rowid()))
}

/// What waits to be sent, the oldest first.
pub(crate) fn due(db: &Connection) -> Result<Vec<Delivery>, StoreError> {
    // Both conditions, since the index of the few open rows is used for the first one alone.
    let mut all = db.prepare_cached(
        "SELECT outbox.number, key, kind, sessions.id, channel, address, text, attempts
         FROM outbox JOIN sessions ON sessions.number = outbox.session
         WHERE state IN ('due', 'sending') AND state = 'due' ORDER BY outbox.number",
    )?;
    Ok(all.query_map([], delivery)?.collect::<Result<_, _>>()?)
}

/// From `due` to `sending`: before the channel is called.
pub(crate) fn sending(on: &Writing<'_>, delivery: DeliveryId) -> Result<(), StoreError> {
    let mut step = on.statement(
        "UPDATE outbox SET state = 'sending', attempts = attempts + 1, updated_ms = ?2
         WHERE number = ?1 AND state = 'due'",
    )?;
    match step.execute((delivery.0, on.now_ms()))? {
        1 => Ok(()),
        _ => Err(StoreError::Delivery { delivery, needed: "due" }),
    }
}

/// From `sending` to what became of it. A session is told of a message that was not sent, or may not have been.
pub(crate) fn ended(on: &mut Writing<'_>, delivery: DeliveryId, end: &Sent) -> Result<(), StoreError> {
    let (state, remote_id, why) = match end {
        Sent::Delivered { remote_id } => ("sent", remote_id.as_deref(), None),
        Sent::Again(why) => ("due", None, Some(why)),
        Sent::Failed(why) => ("failed", None, Some(why)),
        Sent::Uncertain(why) => ("uncertain", None, Some(why)),
    };
    let mut step = on.statement(
        "UPDATE outbox SET state = ?3, remote_id = ?4, why = ?5, updated_ms = ?2
         WHERE number = ?1 AND state = 'sending' RETURNING session, channel, kind, address, text, key",
    )?;
    let moved = step.query_row((delivery.0, on.now_ms(), state, remote_id, why), |row| {
        let to = Outbound { channel: row.get(1)?, address: row.get(3)?, text: row.get(4)? };
        let key: String = row.get(5)?;
        Ok((row.get::<_, i64>(0)?, kind_of(&key, named(row, 2)?), to, key))
    });
    let (session, kind, to, key) =
        moved.optional()?.ok_or(StoreError::Delivery { delivery, needed: "sending" })?;
    let what = match kind {
        OutboundKind::Answer => "an answer".to_owned(),
        OutboundKind::Notice => "a notice".to_owned(),
        OutboundKind::File => {
            let path = serde_json::from_str::<FileMessage>(&to.text).map(|sent| sent.path);
            format!("the file `{}`", path.unwrap_or_default())
        }
    };
    // Whoever waits for a file does not read the session's events.
    if let (OutboundKind::File, Sent::Failed(why)) = (kind, end) {
        let told = Outbound { text: format!("{what} could not be sent: {why}"), ..to.clone() };
        queue(on, OutboundKind::Notice, &format!("failed:{key}"), (session, None), &told)?;
    }
    let channel = to.channel;
    let (code, message) = match end {
        Sent::Delivered { .. } | Sent::Again(_) => return Ok(()),
        Sent::Failed(why) => {
            ("delivery.failed", format!("{what} did not reach `{channel}`, and is given up: {why}"))
        }
        Sent::Uncertain(why) => {
            let message = format!("{what} may not have reached `{channel}`, and is not sent again: {why}");
            ("delivery.uncertain", message)
        }
    };
    let session = events::session_of(on.db, session)?;
    events::record(on, &session, None, &[(None, EventBody::Diagnostic { code: code.into(), message })])
}

/// At the start: whatever was being sent when the last process ended may have arrived or not.
pub(crate) fn doubt_all(on: &mut Writing<'_>) -> Result<(), StoreError> {
    let mut open = on.statement(
        "SELECT number FROM outbox WHERE state IN ('due', 'sending') AND state = 'sending' ORDER BY number",
    )?;
    let found: Vec<i64> = open.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let doubt = Sent::Uncertain("drupe ended while it was being sent".into());
    found.into_iter().try_for_each(|number| ended(on, DeliveryId(number), &doubt))
}

fn kind_of(key: &str, kind: OutboundKind) -> OutboundKind {
    if key.starts_with(FILE_KEY) { OutboundKind::File } else { kind }
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let key: String = row.get(1)?;
    let kind = kind_of(&key, named(row, 2)?);
    let (text, file) = match kind {
        OutboundKind::File => {
            let FileMessage { text, file, .. } = json(row, 6)?;
            (text, Some(file))
        }
        OutboundKind::Answer | OutboundKind::Notice => (row.get(6)?, None),
    };
    Ok(Delivery {
        id: DeliveryId(row.get(0)?),
        key,
        kind,
        session: id(row, 3)?,
        message: Outbound { channel: row.get(4)?, address: row.get(5)?, text },
        file,
        attempts: row.get(7)?,
    })
}
