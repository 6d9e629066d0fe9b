//! Pages that are not what was written: found by whoever reads them, and by a look at all of the file, and then nothing more is
//! written.

use std::fs;

use rusqlite::Connection;

use super::*;
use crate::open::beside;

/// A journal that was not closed, whose last process is gone.
async fn left_open(texts: usize) -> Home {
    let left = Home::new();
    let store = left.open();
    for n in 0..texts {
        store.accept(message("s", &n.to_string(), &"text ".repeat(1000))).await.unwrap();
    }
    let home = Home::new();
    for suffix in ["", "-wal"] {
        fs::copy(beside(&left.path(), suffix), beside(&home.path(), suffix)).unwrap();
    }
    home
}

/// Takes the log into the file.
fn write_back(home: &Home) {
    let db = Connection::open(home.path()).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// Overwrites all but the first tenth of the file, which has the schema.
fn damage(home: &Home) {
    let mut content = fs::read(home.path()).unwrap();
    let from = content.len() / 4096 / 10 * 4096;
    content[from..].fill(0xa5);
    fs::write(home.path(), content).unwrap();
}

/// Has an index lead to a row by what it is not: each page is sound by itself, and each index has as many entries as rows.
fn unindex(home: &Home) {
    let sql = "SELECT name, tbl_name, rootpage, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'turns' AND sql IS NOT NULL";
    let db = Connection::open(home.path()).unwrap();
    let index: (String, String, i64, String) =
        db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap();
    db.pragma_update(None, "writable_schema", "ON").unwrap();
    db.execute("DELETE FROM sqlite_schema WHERE name = ?1", [&index.0]).unwrap();
    drop(db);
    let db = Connection::open(home.path()).unwrap();
    db.pragma_update(None, "foreign_keys", "OFF").unwrap();
    db.execute("UPDATE turns SET session = session + 9 WHERE number = 3", []).unwrap();
    db.pragma_update(None, "writable_schema", "ON").unwrap();
    db.execute(
        "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('index', ?1, ?2, ?3, ?4)",
        index,
    )
    .unwrap();
}

#[tokio::test]
async fn an_index_that_leads_astray_is_found_by_the_look_at_all_of_it_and_by_the_start_after_it() {
    let home = left_open(20).await;
    write_back(&home);
    let store = home.open();
    store.check_whole().await.unwrap();
    store.close().await.unwrap();
    unindex(&home);
    Connection::open(home.path()).unwrap().execute("INSERT INTO meta VALUES ('open', '1')", []).unwrap();
    let opening = Arc::default();
    let store = home.open_seen(&Storage::Full(home.path()), &opening).unwrap();
    assert!(opening.was_not_closed() && !opening.was_doubted());
    let found = store.check_whole().await;
    assert!(matches!(&found, Err(StoreError::Corrupt(why)) if why.contains("index")), "{found:?}");
    assert_eq!(store.is_broken(), found.err());
    let refused = store.accept(message("s", "more", "hello")).await;
    assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
    drop(store);
    let doubted = home.try_open().map(drop);
    assert!(matches!(&doubted, Err(StoreError::Corrupt(why)) if why.contains("journal.db")), "{doubted:?}");
}

#[tokio::test]
async fn a_journal_that_is_doubted_is_read_once_by_its_opening() {
    let home = left_open(500).await;
    write_back(&home);
    let steps = |open: bool| {
        let db = Connection::open(home.path()).unwrap();
        let sql = if open {
            "INSERT OR REPLACE INTO meta VALUES ('open', '1')"
        } else {
            "DELETE FROM meta WHERE key = 'open'"
        };
        db.execute(sql, []).unwrap();
        drop(db);
        fs::write(beside(&home.path(), ".doubted"), "").unwrap();
        let opening = Arc::<Opening>::default();
        let store = home.open_seen(&Storage::Full(home.path()), &opening).unwrap();
        assert_eq!((opening.was_not_closed(), opening.was_doubted()), (open, true));
        drop(store);
        opening.steps()
    };
    let (closed, open) = (steps(false), steps(true));
    assert!(closed > 10 && open < closed + 5, "{closed} steps, {open} where it was not closed in order");
}

#[tokio::test]
async fn a_damaged_page_that_somebody_reads_ends_all_writing() {
    let home = left_open(200).await;
    write_back(&home);
    let store = home.open();
    damage(&home);
    let read = store.unfinished().await;
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{:?}", read.map(|all| all.len()));
    let before = fs::read(home.path()).unwrap();
    for request in 0..3 {
        let refused = store.accept(message("s", "more", "hello")).await;
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{request}: {refused:?}");
    }
    assert!(matches!(store.clone().close().await, Err(StoreError::Corrupt(_))), "it is not closed in order");
    assert!(fs::read(home.path()).unwrap() == before, "a damaged file was written to");
    assert!(beside(&home.path(), ".doubted").exists());
    let again = home.try_open().map(drop);
    assert!(matches!(&again, Err(StoreError::Corrupt(why)) if why.contains("journal.db")), "{again:?}");
}

#[tokio::test]
async fn a_log_that_was_changed_in_its_middle_is_told_of_and_one_that_is_cut_off_is_not() {
    let told = |home: &Home| {
        let opening = Arc::default();
        let opened = home.open_seen(&Storage::Full(home.path()), &opening);
        opened.map(|_| opening.lost()).map_err(|error| error.to_string())
    };
    let log = |home: &Home| beside(&home.path(), "-wal");
    assert_eq!(told(&left_open(20).await), Ok(None), "it is whole");

    let cut = left_open(20).await;
    let length = fs::metadata(log(&cut)).unwrap().len();
    fs::File::options().write(true).open(log(&cut)).unwrap().set_len(length - 5_000).unwrap();
    assert_eq!(told(&cut), Ok(None), "what was written last is not all there");

    for at in [0.0, 0.3, 0.7] {
        let home = left_open(20).await;
        let mut bytes = fs::read(log(&home)).unwrap();
        let place = (bytes.len() as f64 * at) as usize;
        bytes[place..place + 16].fill(0xa5);
        fs::write(log(&home), bytes).unwrap();
        let examined = crate::examine::examine(&home.path(), jiff::Timestamp::MIN).unwrap();
        let lost = examined.lost.unwrap_or_else(|| panic!("nothing is told, at {at}"));
        assert!(lost.contains("left out"), "{lost}");
        // Whoever examines it does not take it away.
        assert_eq!(told(&home), Ok(Some(lost.to_owned())), "at {at}");
    }
}

#[tokio::test]
async fn a_log_that_began_anew_over_an_older_one_is_whole() {
    let home = Home::new();
    let store = home.open();
    for n in 0..40 {
        store.accept(message("s", &n.to_string(), &"text ".repeat(1000))).await.unwrap();
    }
    let other = Connection::open(home.path()).unwrap();
    other.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
    store.accept(message("s", "after", "hello")).await.unwrap();
    assert_eq!(crate::ahead::is_unread(&home.path()), Ok(false));
}
