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
    wire::{OutboundFile, OutboundKind, SETTLED},
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    StoreError,
    cache::Turn,
    events,
    rows::{id, json, name_of, named, time},
    sessions,
    writer::Writing,
};

/// A message, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Since when it waits.
    pub created: Timestamp,
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

/// How the keys of files begin. Their rows are those of notices otherwise, so that the file of an older release takes them.
pub const FILE_KEY: &str = "file:";

/// Where what is sent in a turn goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WayOut {
    pub session: SessionId,
    pub channel: String,
    pub address: Option<String>,
}

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

/// Tells a session of something that nobody asked for. Where its messages come through a channel, it also goes out
/// there, to where the latest of them came from; gives its number then.
pub(crate) fn notice(
    on: &mut Writing<'_>,
    session: &SessionId,
    text: &str,
    copies: &[Outbound],
) -> Result<Option<DeliveryId>, StoreError> {
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
    let key = Uuid::now_v7().to_string();
    let notice = match found {
        Some(message) => Some(queue(on, OutboundKind::Notice, &key, (number, None), &message)?),
        None => None,
    };
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
        let own = match address {
            Some(address) => format!("{key}>{channel}/{address}"),
            None => format!("{key}>{channel}"),
        };
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
    // Of an agent that outlives the turn in which it was spawned those are told who wrote there.
    let mut find = on.statement(
        "WITH RECURSIVE asked(session, channel, address, origin, depth) AS (
             SELECT turns.session, turns.channel, turns.address, turns.origin, 0
             FROM questions JOIN turns ON turns.number = questions.turn
             WHERE questions.effect = ?1 AND questions.state = 'pending'
             UNION ALL
             SELECT turns.session, turns.channel, turns.address, turns.origin, depth + 1
             FROM asked JOIN turns ON turns.id = substr(asked.origin, length('spawned:') + 1)
             WHERE asked.origin LIKE 'spawned:%' AND depth < 16
         )
         SELECT session, channel, address FROM asked WHERE channel <> ''
         AND NOT EXISTS (SELECT 1 FROM outbox WHERE key = ?2) ORDER BY depth LIMIT 1",
    )?;
    let found = find.query_row((effect.as_str(), key), |row| {
        Ok((row.get(0)?, Outbound { channel: row.get(1)?, address: row.get(2)?, text: text.to_owned() }))
    });
    let found = found.optional()?;
    drop(find);
    let told = match found {
        Some((number, message)) => Some(queue(on, OutboundKind::Notice, key, (number, None), &message)?),
        None => None,
    };
    let waits = "SELECT EXISTS (SELECT 1 FROM questions WHERE effect = ?1 AND state = 'pending')";
    let waits: bool = on.statement(waits)?.query_row([effect.as_str()], |row| row.get(0))?;
    let copies = if waits { copies } else { &[] };
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

/// Where what is sent in a turn goes: to whoever wrote there, and of an agent that outlives the turn in which it was spawned to whoever
/// wrote in that one. None where nobody did through a channel.
pub(crate) fn way_out(db: &Connection, turn: &TurnId) -> Result<Option<WayOut>, StoreError> {
    let mut find = db.prepare_cached(
        "WITH RECURSIVE above(session, channel, address, origin, depth) AS (
             SELECT session, channel, address, origin, 0 FROM turns WHERE id = ?1
             UNION ALL
             SELECT turns.session, turns.channel, turns.address, turns.origin, depth + 1
             FROM above JOIN turns ON turns.id = substr(above.origin, length('spawned:') + 1)
             WHERE above.origin LIKE 'spawned:%' AND depth < 16
         )
         SELECT sessions.id, channel, address FROM above JOIN sessions ON sessions.number = above.session
         WHERE channel <> '' ORDER BY depth LIMIT 1",
    )?;
    let found = find.query_row([turn.as_str()], |row| {
        Ok(WayOut { session: id(row, 0)?, channel: row.get(1)?, address: row.get(2)? })
    });
    Ok(found.optional()?)
}

/// The channel of what was queued under a key; none where nothing was.
pub(crate) fn channel_of(db: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    let mut find = db.prepare_cached("SELECT channel FROM outbox WHERE key = ?1")?;
    Ok(find.query_row([key], |row| row.get(0)).optional()?)
}

/// Queues a file under a key that nothing has, and that begins with [`FILE_KEY`].
pub(crate) fn queue_file(
    on: &mut Writing<'_>,
    key: &str,
    to: &WayOut,
    file: &FileMessage,
) -> Result<(), StoreError> {
    let WayOut { session, channel, address } = to.clone();
    let number = sessions::known_or_new(on, &session)?.number;
    let text = serde_json::to_string(file).map_err(|error| StoreError::Record(error.to_string()))?;
    queue(on, OutboundKind::Notice, key, (number, None), &Outbound { channel, address, text })?;
    let message = format!("`{}` goes out as a file", file.path);
    let told = EventBody::Diagnostic { code: "file".into(), message };
    events::record(on, &session, None, &[(None, told)])
}

/// The keys of files of which it is not known what became.
pub(crate) fn files_on_the_way(db: &Connection) -> Result<Vec<String>, StoreError> {
    let mut all = db.prepare_cached(
        "SELECT key FROM outbox WHERE state IN ('due', 'sending') AND key LIKE 'file:%' ORDER BY number",
    )?;
    Ok(all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// The file that a channel is sending under this key at this moment.
pub(crate) fn file_being_sent(
    db: &Connection,
    key: &str,
    channel: &str,
) -> Result<Option<OutboundFile>, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT text FROM outbox WHERE key = ?1 AND channel = ?2 AND state = 'sending' AND key LIKE 'file:%'",
    )?;
    let found = find.query_row((key, channel), |row| json::<FileMessage>(row, 0)).optional()?;
    Ok(found.map(|found| found.file))
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
        "SELECT outbox.number, key, kind, sessions.id, channel, address, text, attempts, outbox.created_ms
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
            let what = format!("the file `{}`", path.unwrap_or_default());
            // Whoever waits for it does not read the session's events.
            if let Sent::Failed(why) = end {
                let text = format!("{what} could not be sent: {why}");
                queue(
                    on,
                    OutboundKind::Notice,
                    &format!("failed:{key}"),
                    (session, None),
                    &Outbound { channel: to.channel.clone(), address: to.address.clone(), text },
                )?;
            }
            what
        }
    };
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
        created: time(row, 8)?,
    })
}
