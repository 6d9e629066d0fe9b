//! Durable topics: a message is a row for as long as a durable subscriber has not got it.
//!
//! What a subscriber shall get waits in the order in which it was published. Each message comes until it is said to be
//! done with, or given up: then it is a [dead letter](dead). Messages that nobody follows leave no row.
//!
//! When something is tried again, and how often, is the caller's to decide.

pub(crate) mod bytes;
pub(crate) mod dead;

use std::collections::HashMap;

use drupe_agent::TopicMessage;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    DueMessage, MessageRow, Published, Store, StoreError,
    error::Result,
    rows::{count, json, maybe_id, signed, time, timestamp},
    writer::{Survives, Writing},
};

/// The most messages that wait for one subscriber: some hours of a busy topic. What comes beyond them is a dead
/// letter at once, so that it is not lost in silence.
pub const MOST_WAITING: u64 = 10_000;

/// Nothing is put off for so long: what is due further ahead was noted before the clock was set back, and is due.
const AHEAD_MS: i64 = 600_000;

/// Whether what is due at `at_ms` is due by the clock of now.
pub fn is_due(at_ms: i64, now_ms: i64) -> bool {
    at_ms <= now_ms || at_ms > now_ms.saturating_add(AHEAD_MS)
}

impl Store {
    /// Has messages of a topic wait for a subscriber from now on. Does nothing where they do already.
    pub async fn follow(&self, subscriber: String, topic: String) -> Result<()> {
        self.write(Survives::Process, move |on| follow(on, &subscriber, &topic)).await
    }

    /// No further messages of the topic wait for the subscriber; those that wait already still do.
    pub async fn unfollow(&self, subscriber: String, topic: String) -> Result<()> {
        self.write(Survives::Process, move |on| unfollow(on, &subscriber, &topic)).await
    }

    /// Durable subscriptions: subscriber and topic, sorted.
    pub async fn following(&self) -> Result<Vec<(String, String)>> {
        self.read(following).await
    }

    /// Publishes a message: a row for each durable subscriber, then live. Survives a loss of power where there are
    /// durable subscribers. Refuses with [`StoreError::TopicFull`] where so much of the topic waits for them already.
    pub async fn publish(&self, message: TopicMessage) -> Result<()> {
        self.write(Survives::Power, move |on| publish(on, &message, WhenFull::Refuse)).await
    }

    /// The first message that waits for each subscriber, of those that are due at `now_ms` (milliseconds since 1970);
    /// the earliest published first, at most `limit`. A subscriber whose first message is not due yet has none.
    pub async fn due_messages(&self, now_ms: i64, limit: usize) -> Result<Vec<DueMessage>> {
        self.read(move |db| due(db, now_ms, limit)).await
    }

    /// The first messages of one topic that wait for one subscriber, in order, up to the first that is not due at
    /// `now_ms`, at most `limit`.
    pub async fn due_for(
        &self,
        subscriber: &str,
        topic: &str,
        now_ms: i64,
        limit: usize,
    ) -> Result<Vec<DueMessage>> {
        let (subscriber, topic) = (subscriber.to_owned(), topic.to_owned());
        self.read(move |db| due_for(db, &subscriber, &topic, now_ms, limit)).await
    }

    /// When the next message is due, in milliseconds since 1970, in the past where one is; none where none waits.
    pub async fn next_due_ms(&self) -> Result<Option<i64>> {
        self.read(next_due_ms).await
    }

    /// The subscriber is done with a message: it is forgotten. Does nothing where it was already.
    pub async fn message_done(&self, id: u64) -> Result<()> {
        self.write(Survives::Process, move |on| forget(on, id, false).map(|_| ())).await
    }

    /// The subscriber could not take a message: it comes again from `again_at_ms` on (milliseconds since 1970); with
    /// none it is a dead letter, which holds the later ones up no longer.
    pub async fn message_failed(&self, id: u64, why: String, again_at_ms: Option<i64>) -> Result<()> {
        self.write(Survives::Process, move |on| failed(on, id, &why, again_at_ms)).await
    }

    /// A message that waits or was given up.
    pub async fn message(&self, id: u64) -> Result<Option<MessageRow>> {
        self.read(move |db| message(db, id)).await
    }
}

pub(crate) fn follow(on: &mut Writing<'_>, subscriber: &str, topic: &str) -> Result<()> {
    on.statement("INSERT INTO followers (subscriber, topic) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute((subscriber, topic))?;
    on.cache.followers = None;
    Ok(())
}

fn unfollow(on: &mut Writing<'_>, subscriber: &str, topic: &str) -> Result<()> {
    on.statement("DELETE FROM followers WHERE subscriber = ?1 AND topic = ?2")?
        .execute((subscriber, topic))?;
    on.cache.followers = None;
    Ok(())
}

fn following(db: &Connection) -> Result<Vec<(String, String)>> {
    let mut all = db.prepare_cached("SELECT subscriber, topic FROM followers ORDER BY subscriber, topic")?;
    Ok(all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?)
}

/// Who follows a topic, sorted.
fn followers(on: &mut Writing<'_>, topic: &str) -> Result<Vec<String>> {
    if on.cache.followers.is_none() {
        let mut by_topic: HashMap<String, Vec<String>> = HashMap::new();
        for (subscriber, topic) in following(on.db)? {
            by_topic.entry(topic).or_default().push(subscriber);
        }
        on.cache.followers = Some(by_topic);
    }
    Ok(on.cache.followers.as_ref().and_then(|by_topic| by_topic.get(topic)).cloned().unwrap_or_default())
}

/// What becomes of a message whose topic holds as much as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// Who publishes hears of it.
    Refuse,
    /// It is a dead letter: what it tells of is a fact, and is recorded whatever becomes of the message.
    Bury,
}

/// Records a message for its durable subscribers, and has it published.
pub(crate) fn publish(on: &mut Writing<'_>, message: &TopicMessage, when_full: WhenFull) -> Result<()> {
    let followers = followers(on, &message.topic)?;
    if !followers.is_empty() {
        let now = on.now_ms();
        let (topic, payload) = (&message.topic, serde_json::to_string(&message.payload)?);
        let size = payload.len() as u64;
        let fits = bytes::fits(on, topic, size)?;
        if !fits && when_full == WhenFull::Refuse {
            return Err(StoreError::TopicFull(topic.clone()));
        }
        on.statement(
            "INSERT INTO messages (topic, payload, chain, correlation, published_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((
            topic,
            payload,
            serde_json::to_string(&message.chain)?,
            message.correlation.as_ref().map(|id| id.as_str()),
            now,
        ))?;
        let number = on.db.last_insert_rowid();
        let mut waits = false;
        for subscriber in followers {
            let waiting = waiting(on, &subscriber)?;
            let many = *waiting >= MOST_WAITING;
            let full = many || !fits;
            *waiting += u64::from(!full);
            waits |= !full;
            let why = match (fits, many) {
                (false, _) => Some(StoreError::TopicFull(topic.clone()).to_string()),
                (true, true) => Some(format!("queue full: {MOST_WAITING} messages wait for `{subscriber}`")),
                (true, false) => None,
            };
            on.statement(
                "INSERT INTO deliveries (message, subscriber, dead, due_ms, why) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((number, &subscriber, full, now, why))?;
            if full {
                dead::bound(on, &subscriber, on.db.last_insert_rowid())?;
            }
        }
        if waits {
            bytes::add(on, topic, size)?;
        }
        on.publish(Published::Due);
    }
    on.publish(Published::Message(message.clone().into()));
    Ok(())
}

/// How many messages wait for a subscriber.
fn waiting<'a>(on: &'a mut Writing<'_>, subscriber: &str) -> Result<&'a mut u64> {
    if !on.cache.waiting.contains_key(subscriber) {
        let mut find = on.statement("SELECT count(*) FROM deliveries WHERE subscriber = ?1 AND dead = 0")?;
        let found = find.query_row([subscriber], |row| count(row, 0))?;
        on.cache.waiting.insert(subscriber.to_owned(), found);
    }
    Ok(on.cache.waiting.entry(subscriber.to_owned()).or_default())
}

/// The columns that [`due_row`] reads.
macro_rules! messages {
    ($rest:literal) => {
        concat!(
            "SELECT deliveries.number, subscriber, topic, payload, chain, correlation, attempts, published_ms,
                    dead, why, due_ms, cut
             FROM deliveries JOIN messages ON messages.number = deliveries.message ",
            $rest
        )
    };
}
use messages;

fn due(db: &Connection, now_ms: i64, limit: usize) -> Result<Vec<DueMessage>> {
    // From subscriber to subscriber by the index, whatever waits for each.
    let mut first = db.prepare_cached(messages!(
        "WHERE (due_ms <= ?1 OR due_ms > ?3) AND deliveries.number IN (
             WITH RECURSIVE names (name) AS (
                 SELECT min(subscriber) FROM deliveries WHERE dead = 0
                 UNION ALL
                 SELECT (SELECT min(subscriber) FROM deliveries WHERE dead = 0 AND subscriber > name)
                 FROM names WHERE name IS NOT NULL)
             SELECT (SELECT min(number) FROM deliveries WHERE dead = 0 AND subscriber = name)
             FROM names WHERE name IS NOT NULL)
         ORDER BY deliveries.number LIMIT ?2"
    ))?;
    let found = first.query_map((now_ms, signed(limit as u64), now_ms.saturating_add(AHEAD_MS)), due_row)?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn due_for(
    db: &Connection,
    subscriber: &str,
    topic: &str,
    now_ms: i64,
    limit: usize,
) -> Result<Vec<DueMessage>> {
    let mut waiting = db.prepare_cached(messages!(
        "WHERE dead = 0 AND subscriber = ?1 AND topic = ?2 ORDER BY deliveries.number LIMIT ?3"
    ))?;
    let mut found = Vec::new();
    for row in waiting.query_map((subscriber, topic, signed(limit as u64)), |row| {
        Ok((row.get::<_, i64>(10)?, due_row(row)?))
    })? {
        let (due_ms, message) = row?;
        if !is_due(due_ms, now_ms) {
            break;
        }
        found.push(message);
    }
    Ok(found)
}

fn next_due_ms(db: &Connection) -> Result<Option<i64>> {
    let mut next = db.prepare_cached(
        "WITH RECURSIVE names (name) AS (
             SELECT min(subscriber) FROM deliveries WHERE dead = 0
             UNION ALL
             SELECT (SELECT min(subscriber) FROM deliveries WHERE dead = 0 AND subscriber > name)
             FROM names WHERE name IS NOT NULL)
         SELECT min((SELECT due_ms FROM deliveries WHERE dead = 0 AND subscriber = name ORDER BY number LIMIT 1))
         FROM names WHERE name IS NOT NULL",
    )?;
    Ok(next.query_row([], |row| row.get(0))?)
}

/// Takes a delivery away, and its message with the last one; gives its subscriber, where there was one.
fn forget(on: &mut Writing<'_>, id: u64, dead: bool) -> Result<Option<String>> {
    let mut gone = on.statement(
        "DELETE FROM deliveries WHERE number = ?1 AND (dead = 1 OR ?2 = 0) RETURNING message, subscriber, dead",
    )?;
    let found = gone
        .query_row((signed(id), dead), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?))
        })
        .optional()?;
    let Some((message, subscriber, dead)) = found else { return Ok(None) };
    if !dead {
        leaves(on, &subscriber, message)?;
    }
    orphaned(on, message)?;
    Ok(Some(subscriber))
}

/// Takes a message away whose last delivery has gone.
fn orphaned(on: &Writing<'_>, message: i64) -> Result<()> {
    on.statement(
        "DELETE FROM messages WHERE number = ?1
         AND NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.message = ?1)",
    )?
    .execute([message])?;
    Ok(())
}

/// A message waits for a subscriber no longer.
fn leaves(on: &mut Writing<'_>, subscriber: &str, message: i64) -> Result<()> {
    if let Some(waiting) = on.cache.waiting.get_mut(subscriber) {
        *waiting = waiting.saturating_sub(1);
    }
    bytes::left(on, message)
}

fn failed(on: &mut Writing<'_>, id: u64, why: &str, again_at_ms: Option<i64>) -> Result<()> {
    // Given up for this, it is no letter of a cut chain any more.
    let mut change = on.statement(
        "UPDATE deliveries SET attempts = attempts + 1, why = ?2, dead = ?3, cut = 0, due_ms = coalesce(?4, due_ms)
         WHERE number = ?1 AND dead = 0 RETURNING subscriber, message",
    )?;
    let found = change
        .query_row((signed(id), why, again_at_ms.is_none(), again_at_ms), |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    if let (Some((subscriber, message)), None) = (found, again_at_ms) {
        leaves(on, &subscriber, message)?;
        dead::bound(on, &subscriber, signed(id))?;
    }
    Ok(())
}

/// A message that waits or was given up.
pub(crate) fn message(db: &Connection, id: u64) -> Result<Option<MessageRow>> {
    let mut one = db.prepare_cached(messages!("WHERE deliveries.number = ?1"))?;
    let found = one.query_row([signed(id)], |row| {
        let (why, cut) = (row.get::<_, Option<String>>(9)?, count(row, 11)?);
        Ok(MessageRow {
            message: due_row(row)?,
            dead: row.get(8)?,
            why: why
                .map(|why| if cut > 1 { format!("the latest of {cut} that were cut: {why}") } else { why }),
            due: timestamp(row.get(10)?),
        })
    });
    Ok(found.optional()?)
}

fn due_row(row: &Row<'_>) -> rusqlite::Result<DueMessage> {
    Ok(DueMessage {
        id: count(row, 0)?,
        subscriber: row.get(1)?,
        topic: row.get(2)?,
        payload: json(row, 3)?,
        chain: json(row, 4)?,
        correlation: maybe_id(row, 5)?,
        attempts: row.get(6)?,
        published: time(row, 7)?,
    })
}
