//! Proofs that the journal is not stuck.

use std::{fs, path::Path};

use rusqlite::Connection;

use super::*;
use crate::writer::Survives;

/// Bytes of the file and of its log.
fn sizes(path: &Path) -> [u64; 2] {
    let log = path.with_file_name("journal.db-wal");
    [path, &log].map(|file| fs::metadata(file).map_or(0, |found| found.len()))
}

#[tokio::test]
async fn a_proof_writes_nothing_but_where_it_is_to_reach_the_disk() {
    let home = Home::new();
    let store = home.open();
    let before = sizes(&home.path());
    for _ in 0..20 {
        assert!(store.answers(false).await);
    }
    assert_eq!(sizes(&home.path()), before);
    for times in 1..4 {
        let before = sizes(&home.path());
        assert!(store.answers(true).await);
        assert!(sizes(&home.path())[1] > before[1], "the {times}. time, as the first");
    }
    store.close().await.unwrap();
    // The mark is still one that closing takes away.
    let db = Connection::open(home.path()).unwrap();
    let open: u32 =
        db.query_row("SELECT count(*) FROM meta WHERE key = 'open'", [], |row| row.get(0)).unwrap();
    assert_eq!(open, 0);
}

#[tokio::test]
async fn a_journal_that_nobody_can_write_is_none_that_answers() {
    let home = Home::new();
    let store = home.open();
    let other = Connection::open(home.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(!store.answers(false).await, "another process holds it");
    other.execute_batch("ROLLBACK").unwrap();
    assert!(store.answers(false).await);
    store.clone().close().await.unwrap();
    assert!(!store.answers(false).await, "it is closed");
}

#[tokio::test]
async fn that_the_disk_has_no_room_or_cannot_be_written_is_an_answer() {
    let home = Home::new();
    let store = home.open();
    let read_only = |on: bool| {
        store.write(Survives::Process, move |writing| Ok(writing.db.pragma_update(None, "query_only", on)?))
    };
    read_only(true).await.unwrap();
    assert!(matches!(store.accept(message("s", "1", "hello")).await, Err(StoreError::ReadOnly(_))));
    assert!(store.answers(true).await);
}
