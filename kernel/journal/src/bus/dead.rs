//! Dead letters: messages that were given up, until somebody retries or drops them.
//!
//! There are at most [`MOST_DEAD`] for each subscriber; beyond them the oldest is let go, which is counted. Messages whose
//! chain was cut are one letter for each subscriber and topic: a follower of what it sets off itself is cut at each of
//! its runs, and one letter says all that there is to say.

use std::collections::HashMap;

use drupe_extension_api::control::DeadMessage;
use rusqlite::{Connection, OptionalExtension};

use super::{bytes, due_row, forget, leaves, messages, orphaned};
use crate::{
    Published, Store, StoreError,
    rows::{count, signed},
    writer::{Survives, Writing},
};

/// The most dead letters that are kept of one subscriber: more than anybody reads one by one, and at the size that a
/// message may have some tens of megabytes.
pub(crate) const MOST_DEAD: u64 = 1_000;

impl Store {
    /// A message may set nothing off at its subscriber: it joins the dead letter of all those of its topic whose chain
    /// was cut there, which holds the latest of them. Gives the number of that letter.
    pub async fn message_cut(&self, id: u64, why: String) -> Result<u64, StoreError> {
        self.write(Survives::Process, move |on| cut(on, signed(id), &why)).await
    }

    /// Messages that were given up, the oldest first.
    pub async fn dead_messages(&self) -> Result<Vec<DeadMessage>, StoreError> {
        self.read(dead).await
    }

    /// Has a dead message delivered again, in its old place and with its attempts forgotten; false where there is none,
    /// and where its subscriber follows its topic no longer, as it would wait for ever.
    pub async fn retry_message(&self, id: u64) -> Result<bool, StoreError> {
        self.write(Survives::Power, move |on| retry(on, id)).await
    }

    /// Forgets a dead message; false where there is none. With the last of a subscriber it is forgotten how many were
    /// let go: who drops that one was told.
    pub async fn drop_message(&self, id: u64) -> Result<bool, StoreError> {
        self.write(Survives::Power, move |on| drop_dead(on, id)).await
    }
}

/// A delivery died: lets the oldest others of its subscriber go, where there are too many.
pub(super) fn bound(on: &mut Writing<'_>, subscriber: &str, died: i64) -> Result<(), StoreError> {
    // Never the one that died now: who is told of it will look for it.
    let mut oldest = on.statement(
        "DELETE FROM deliveries WHERE number IN (
             SELECT number FROM deliveries WHERE dead = 1 AND subscriber = ?1 AND number <> ?2
             ORDER BY message DESC LIMIT -1 OFFSET ?3)
         RETURNING message",
    )?;
    let kept = signed(MOST_DEAD - 1);
    let gone: Vec<i64> =
        oldest.query_map((subscriber, died, kept), |row| row.get(0))?.collect::<Result<_, _>>()?;
    if gone.is_empty() {
        return Ok(());
    }
    for &message in &gone {
        orphaned(on, message)?;
    }
    on.statement(
        "INSERT INTO let_go (subscriber, messages) VALUES (?1, ?2)
         ON CONFLICT DO UPDATE SET messages = messages + excluded.messages",
    )?
    .execute((subscriber, signed(gone.len() as u64)))?;
    say(on, subscriber)
}

/// Says that letters of a subscriber are let go, once for as long as the journal is open.
fn say(on: &mut Writing<'_>, subscriber: &str) -> Result<(), StoreError> {
    // A table of this connection alone: it ends with the process, and forgets what a transaction did not commit.
    on.statement("CREATE TEMP TABLE IF NOT EXISTS said (subscriber TEXT PRIMARY KEY) STRICT")?.execute([])?;
    let first = on
        .statement("INSERT INTO temp.said (subscriber) VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([subscriber])?;
    if first > 0 {
        tracing::warn!(
            subscriber,
            "more than {MOST_DEAD} messages were given up for one subscriber; the oldest are let go, and `drupe bus \
             dead` counts them"
        );
    }
    Ok(())
}

/// A dead letter of a cut chain.
struct Letter {
    number: i64,
    message: i64,
    cut: i64,
    attempts: u32,
    why: Option<String>,
}

fn cut(on: &mut Writing<'_>, id: i64, why: &str) -> Result<u64, StoreError> {
    let mut dies = on.statement(
        "UPDATE deliveries SET dead = 1, attempts = attempts + 1, why = ?2, cut = max(cut, 1)
         WHERE number = ?1 AND dead = 0
         RETURNING subscriber, (SELECT topic FROM messages WHERE messages.number = message), message",
    )?;
    let found = dies
        .query_row((id, why), |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
        })
        .optional()?;
    let Some((subscriber, topic, message)) = found else { return Ok(id.unsigned_abs()) };
    leaves(on, &subscriber, message)?;
    let letter = join(on, &subscriber, &topic)?.unwrap_or(id);
    bound(on, &subscriber, letter)?;
    Ok(letter.unsigned_abs())
}

/// Makes one of all letters of cut chains of a subscriber and topic, and gives its number: that of the first, which
/// people were told, with the latest message.
fn join(on: &mut Writing<'_>, subscriber: &str, topic: &str) -> Result<Option<i64>, StoreError> {
    let letters = letters(on, subscriber, topic)?;
    let (Some(first), Some(latest)) =
        (letters.iter().map(|letter| letter.number).min(), letters.last().filter(|_| letters.len() > 1))
    else {
        return Ok(letters.first().map(|letter| letter.number));
    };
    let all: i64 = letters.iter().map(|letter| letter.cut).sum();
    on.statement("UPDATE deliveries SET message = ?2, cut = ?3, attempts = ?4, why = ?5 WHERE number = ?1")?
        .execute((first, latest.message, all, latest.attempts, &latest.why))?;
    for other in letters.iter().filter(|letter| letter.number != first) {
        on.statement("DELETE FROM deliveries WHERE number = ?1")?.execute([other.number])?;
    }
    for letter in &letters {
        orphaned(on, letter.message)?;
    }
    Ok(Some(first))
}

/// Letters of cut chains, by the age of their messages.
fn letters(on: &Writing<'_>, subscriber: &str, topic: &str) -> Result<Vec<Letter>, StoreError> {
    let mut all = on.statement(
        "SELECT deliveries.number, message, cut, attempts, why
         FROM deliveries JOIN messages ON messages.number = deliveries.message
         WHERE cut > 0 AND dead = 1 AND subscriber = ?1 AND topic = ?2 ORDER BY message",
    )?;
    let found = all.query_map((subscriber, topic), |row| {
        Ok(Letter {
            number: row.get(0)?,
            message: row.get(1)?,
            cut: row.get(2)?,
            attempts: row.get(3)?,
            why: row.get(4)?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn dead(db: &Connection) -> Result<Vec<DeadMessage>, StoreError> {
    let mut gone = db.prepare_cached("SELECT subscriber, messages FROM let_go")?;
    let gone: HashMap<String, u64> =
        gone.query_map([], |row| Ok((row.get(0)?, count(row, 1)?)))?.collect::<Result<_, _>>()?;
    // The sign keeps SQLite from reading all deliveries in the order of another index, for the few that are dead.
    let mut all = db.prepare_cached(messages!("WHERE dead = 1 ORDER BY +message, deliveries.number"))?;
    let found = all.query_map([], |row| {
        let message = due_row(row)?;
        Ok(DeadMessage {
            id: message.id,
            topic: message.topic,
            let_go: gone.get(&message.subscriber).copied().unwrap_or_default(),
            subscriber: message.subscriber,
            correlation_id: message.correlation,
            attempts: message.attempts,
            cut: count(row, 11)?,
            reason: row.get::<_, Option<String>>(9)?.unwrap_or_default(),
            published: message.published,
            payload: message.payload,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn retry(on: &mut Writing<'_>, id: u64) -> Result<bool, StoreError> {
    let mut change = on.statement(
        "UPDATE deliveries SET dead = 0, attempts = 0, due_ms = ?2
         WHERE number = ?1 AND dead = 1 AND EXISTS (
             SELECT 1 FROM messages JOIN followers ON followers.topic = messages.topic
             WHERE messages.number = deliveries.message AND followers.subscriber = deliveries.subscriber)
         RETURNING subscriber",
    )?;
    let found = change.query_row((signed(id), on.now_ms()), |row| row.get::<_, String>(0)).optional()?;
    let Some(subscriber) = found else { return Ok(false) };
    on.cache.waiting.remove(&subscriber);
    bytes::forget(on);
    on.publish(Published::Due);
    Ok(true)
}

fn drop_dead(on: &mut Writing<'_>, id: u64) -> Result<bool, StoreError> {
    let Some(subscriber) = forget(on, id, true)? else { return Ok(false) };
    on.statement(
        "DELETE FROM let_go WHERE subscriber = ?1
         AND NOT EXISTS (SELECT 1 FROM deliveries WHERE dead = 1 AND deliveries.subscriber = ?1)",
    )?
    .execute([subscriber])?;
    Ok(true)
}
