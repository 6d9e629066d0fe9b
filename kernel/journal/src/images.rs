//! The bytes of pictures that models were shown, by the hash of their content: written with the first result that has it, and let
//! go after the last turn that refers to it.

use drupe_agent::Entry;
use rusqlite::{Connection, OptionalExtension};

use crate::{StoreError, writer::Writing};

/// Pictures that are removed in one transaction, of some megabytes each at most: others wait for it.
const STEP: i64 = 4;

/// Keeps the pictures of what a turn records.
pub(crate) fn keep(on: &Writing<'_>, turn: i64, entries: &[Entry]) -> Result<(), StoreError> {
    let images = entries.iter().flat_map(|entry| match entry {
        Entry::Result { images, .. } => images.as_slice(),
        _ => &[],
    });
    for image in images {
        on.statement("INSERT OR IGNORE INTO image_uses (turn, hash) VALUES (?1, ?2)")?
            .execute((turn, &image.hash))?;
        // What another turn recorded already is not even handed to the database.
        if let Some(data) = &image.data
            && !on.statement("SELECT 1 FROM images WHERE hash = ?1")?.exists([&image.hash])?
        {
            on.statement("INSERT INTO images (hash, bytes) VALUES (?1, ?2)")?
                .execute((&image.hash, &data[..]))?;
        }
    }
    Ok(())
}

/// The bytes with that hash; none where they are not kept.
pub(crate) fn of(db: &Connection, hash: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let mut find = db.prepare_cached("SELECT bytes FROM images WHERE hash = ?1")?;
    Ok(find.query_row([hash], |row| row.get(0)).optional()?)
}

/// Forgets that a turn refers to any.
pub(crate) fn forget(on: &Writing<'_>, turn: i64) -> Result<(), StoreError> {
    on.statement("DELETE FROM image_uses WHERE turn = ?1")?.execute([turn])?;
    Ok(())
}

/// Lets go of some to which no turn refers that is left; whether there were any.
pub(crate) fn let_go(on: &Writing<'_>) -> Result<bool, StoreError> {
    let mut unused = on.statement(
        "SELECT hash FROM images WHERE NOT EXISTS (SELECT 1 FROM image_uses WHERE image_uses.hash = images.hash) LIMIT ?1",
    )?;
    let hashes: Vec<String> = unused.query_map([STEP], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for hash in &hashes {
        on.statement("DELETE FROM images WHERE hash = ?1")?.execute([hash])?;
    }
    Ok(!hashes.is_empty())
}
