//! An older file becomes a newer one: wholly or not at all, with a copy of what it was.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rusqlite::Connection;

use super::{files::VERSION_1, *};
use crate::{
    kept_beside,
    schema::{self, STEPS},
    upgrade::{Precious, upgrade},
    version_in,
};

/// A home with a file of version 1.
fn first() -> Home {
    let home = Home::new();
    Connection::open(home.path()).unwrap().execute_batch(VERSION_1).unwrap();
    home
}

/// Takes steps as an opening does.
pub fn take(home: &Home, steps: &[&str]) -> Result<bool, StoreError> {
    let (mut db, opening) = (Connection::open(home.path()).unwrap(), Arc::default());
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    let (path, opening) = (home.path(), &opening);
    upgrade(&mut db, steps, &Precious { path: &path, keeps: true, now_ms: 1_700_000_000_000, opening })
}

fn names(home: &Home) -> Vec<String> {
    let all = fs::read_dir(home.folder.path()).unwrap();
    let mut names: Vec<_> = all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn version(path: &Path) -> u32 {
    schema::version_of(&Connection::open(path).unwrap()).unwrap()
}

/// Whether rows of the first version are there as they were.
fn is_as_it_was(path: &Path) {
    let db = Connection::open(path).unwrap();
    let found: (u32, u32, String) = db
        .query_row("SELECT (SELECT count(*) FROM inbox), (SELECT count(*) FROM turns), integrity_check FROM pragma_integrity_check", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    assert_eq!((schema::version_of(&db).unwrap(), found), (1, (2, 2, "ok".to_owned())));
}

const LATER: &str = "CREATE TABLE later (a); INSERT INTO later SELECT text FROM inbox;";

#[test]
fn steps_are_taken_together_and_the_file_is_kept_as_it_was() {
    let home = first();
    assert!(take(&home, &[STEPS[0], LATER, "INSERT INTO later VALUES ('third')"]).unwrap());
    assert_eq!(version(&home.path()), 3);
    let kept = home.folder.path().join("journal.db.v1");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    is_as_it_was(&kept);
    assert_eq!(names(&home), ["journal.db", "journal.db.v1"]);
    assert!(!take(&home, &[STEPS[0], LATER, "third"]).unwrap(), "there is nothing to do");
}

#[test]
fn a_step_that_fails_undoes_those_before_it_and_leaves_no_copy() {
    let home = first();
    for _ in 0..2 {
        let steps = [STEPS[0], LATER, "DROP TABLE extension_states; CREATE TABLE broken (;"];
        let error = take(&home, &steps).unwrap_err();
        let StoreError::Upgrade { found: 1, known: 3, why } = &error else { panic!("{error}") };
        assert!(why.contains("syntax error"), "{why}");
        assert!(error.to_string().contains("start the release that you had before"), "{error}");
        is_as_it_was(&home.path());
        assert_eq!(names(&home), ["journal.db"]);
    }
    // It can be tried again, by a release whose steps are sound.
    assert!(take(&home, &[STEPS[0], LATER]).unwrap());
}

#[test]
fn what_steps_come_to_is_checked_before_it_counts() {
    for (step, says) in [
        (
            "CREATE TABLE checked (a INTEGER CHECK (a > 0)) STRICT; PRAGMA ignore_check_constraints = ON;
             INSERT INTO checked VALUES (-1); PRAGMA ignore_check_constraints = OFF;",
            "CHECK constraint failed in checked",
        ),
        (
            "CREATE TABLE refers (a INTEGER REFERENCES turns (number) DEFERRABLE INITIALLY DEFERRED) STRICT;
             INSERT INTO refers VALUES (17);",
            "1 of its rows would refer to nothing",
        ),
    ] {
        let home = first();
        let error = take(&home, &[STEPS[0], step]).unwrap_err();
        assert!(matches!(error, StoreError::Upgrade { .. }) && error.to_string().contains(says), "{error}");
        is_as_it_was(&home.path());
        assert_eq!(names(&home), ["journal.db"]);
    }
}

#[test]
fn a_damaged_file_is_not_upgraded() {
    let home = first();
    let db = Connection::open(home.path()).unwrap();
    // A row that is missing in an index.
    db.execute_batch(
        "PRAGMA writable_schema = ON;
         CREATE TABLE extra (a TEXT); CREATE INDEX extra_a ON extra (a); INSERT INTO extra VALUES ('x');
         CREATE TABLE other (a TEXT); CREATE INDEX other_a ON other (a);
         UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'other_a') WHERE name = 'extra_a';",
    )
    .unwrap();
    drop(db);
    let before = fs::read(home.path()).unwrap();
    let error = take(&home, STEPS).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt(why) if why.contains("journal.db")), "{error}");
    assert_eq!(names(&home), ["journal.db"]);
    // But for the mark of how its log is kept.
    assert_eq!(fs::read(home.path()).unwrap()[100..], before[100..]);
}

#[test]
fn copies_of_the_three_latest_versions_stay() {
    let home = first();
    let steps: Vec<&str> = std::iter::once(STEPS[0]).chain(std::iter::repeat_n("", 6)).collect();
    fs::write(home.folder.path().join("journal.db.v2.txt"), "mine").unwrap();
    for known in 2..=6 {
        assert!(take(&home, &steps[..known]).unwrap());
    }
    let kept = |home: &Home| kept_beside(&home.path()).iter().map(|kept| kept.version).collect::<Vec<_>>();
    assert_eq!(kept(&home), [5, 4, 3]);
    assert!(names(&home).contains(&"journal.db.v2.txt".to_owned()));
    // Whoever went back and goes on again has the copy that was made last, whatever its version is.
    fs::rename(home.folder.path().join("journal.db.v3"), home.path()).unwrap();
    fs::copy(home.path(), home.folder.path().join("journal.db.v9")).unwrap();
    assert!(take(&home, &steps[..4]).unwrap());
    assert_eq!(kept(&home), [9, 5, 3]);
}

#[test]
fn a_copy_that_was_cut_off_is_made_again_and_one_that_is_whole_stays_until_then() {
    let home = first();
    for name in ["journal.db.upgrading", "journal.db.v1"] {
        fs::write(home.folder.path().join(name), "half").unwrap();
    }
    take(&home, &[STEPS[0], "broken"]).unwrap_err();
    assert_eq!(
        fs::read(home.folder.path().join("journal.db.v1")).unwrap(),
        b"half",
        "it is not ours to remove"
    );
    take(&home, &[STEPS[0], LATER]).unwrap();
    is_as_it_was(&home.folder.path().join("journal.db.v1"));
    assert_eq!(names(&home), ["journal.db", "journal.db.v1"]);
}

#[tokio::test]
async fn when_the_journal_was_upgraded_is_known() {
    let home = first();
    let store = home.open();
    let upgraded = store.upgraded().await.unwrap().unwrap();
    assert_eq!(
        (upgraded.from, upgraded.to, upgraded.at.as_millisecond()),
        (1, schema::version(), 1_700_000_000_000)
    );
    assert!(Home::new().open().upgraded().await.unwrap().is_none());
}

#[tokio::test]
async fn a_newer_journal_is_refused_as_it_is_and_the_way_back_is_told() {
    let home = Home::new();
    home.open().close().await.unwrap();
    let known = schema::version();
    let newer = Connection::open(home.path()).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    let before = fs::read(home.path()).unwrap();
    let refused = |home: &Home| {
        let error = home.try_open().err().unwrap();
        assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
        assert!(fs::read(home.path()).unwrap() == before, "nothing of it is changed");
        error.to_string()
    };
    assert!(refused(&home).contains("no copy of an earlier version"));
    // What only bears the name of a copy, or is newer itself, is no way back.
    let beside = |version: u32| home.folder.path().join(format!("journal.db.v{version}"));
    fs::write(beside(known), "not a copy").unwrap();
    fs::copy(home.path(), beside(98)).unwrap();
    assert!(refused(&home).contains("no copy of an earlier version"));
    Connection::open(beside(1)).unwrap().execute_batch(VERSION_1).unwrap();
    assert_eq!(version_in(&beside(1)).unwrap(), 1);
    let said = refused(&home);
    let (kept, folder) = (beside(1), home.folder.path());
    assert!(
        said.contains(&format!("`drupe restore {} --home {}`", kept.display(), folder.display())),
        "{said}"
    );
    assert_eq!(names(&home).len(), 4, "{:?}", names(&home));
}

#[test]
fn a_journal_that_is_refused_keeps_its_log() {
    let home = first();
    let (path, log) = (home.path(), home.folder.path().join("journal.db-wal"));
    let writer = Connection::open(&path).unwrap();
    writer.pragma_update(None, "journal_mode", "WAL").unwrap();
    writer.pragma_update(None, "user_version", 99).unwrap();
    let files = [&path, &log].map(|file| fs::read(file).unwrap());
    // As a loss of power leaves them: whoever closes in order writes the log back.
    drop(writer);
    fs::write(&path, &files[0]).unwrap();
    fs::write(&log, &files[1]).unwrap();
    let error = home.try_open().err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    assert!([&path, &log].map(|file| fs::read(file).unwrap()) == files, "nothing of them is changed");
}
