//! How many bytes of a topic wait: a count of messages alone would let a topic of large ones grow to hundreds of megabytes.

use rusqlite::OptionalExtension;

use crate::{StoreError, rows::count, writer::Writing};

/// The most that the messages of one topic may hold while they wait for their followers, in bytes. The next message is
/// refused, so that who publishes hears of it. Dead letters, which have a bound of their own, do not count.
pub(crate) const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Whether a message of that many bytes still fits the topic.
pub(super) fn fits(on: &mut Writing<'_>, topic: &str, more: u64) -> Result<bool, StoreError> {
    Ok(held(on, topic)?.saturating_add(more) <= MOST_BYTES)
}

/// A message begins to wait.
pub(super) fn add(on: &mut Writing<'_>, topic: &str, more: u64) -> Result<(), StoreError> {
    let held = held(on, topic)?;
    *held = held.saturating_add(more);
    Ok(())
}

/// A delivery of the message waits no longer. Called while the message is still there.
pub(super) fn left(on: &mut Writing<'_>, message: i64) -> Result<(), StoreError> {
    if on.cache.held.is_empty() {
        return Ok(());
    }
    let mut gone = on.statement(
        "SELECT topic, octet_length(payload) FROM messages WHERE number = ?1
         AND NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.message = ?1 AND dead = 0)",
    )?;
    let found = gone.query_row([message], |row| Ok((row.get::<_, String>(0)?, count(row, 1)?))).optional()?;
    if let Some((topic, bytes)) = found
        && let Some(held) = on.cache.held.get_mut(&topic)
    {
        *held = held.saturating_sub(bytes);
    }
    Ok(())
}

/// Something waits again: what is known of any topic is read anew.
pub(super) fn forget(on: &mut Writing<'_>) {
    on.cache.held.clear();
}

fn held<'a>(on: &'a mut Writing<'_>, topic: &str) -> Result<&'a mut u64, StoreError> {
    if !on.cache.held.contains_key(topic) {
        let mut sum = on.statement(
            "SELECT coalesce(sum(octet_length(payload)), 0) FROM messages WHERE topic = ?1
             AND EXISTS (SELECT 1 FROM deliveries WHERE deliveries.message = messages.number AND dead = 0)",
        )?;
        let found = sum.query_row([topic], |row| count(row, 0))?;
        on.cache.held.insert(topic.to_owned(), found);
    }
    Ok(on.cache.held.entry(topic.to_owned()).or_default())
}
