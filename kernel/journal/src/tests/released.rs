//! A journal of each version that there was, with rows of all tables, becomes one of this release: every row is there still, and
//! is read as what it was.
//!
//! Journals of versions 1 and 2 were written by programs of these versions; so was that of version 5 in `tests/fixtures/journal_5`, and
//! that of version 16 in `tests/fixtures/recordings/0.1.0`, which daemons are started on. All others are made from the schema of
//! their version: `released/rows.sql` says how.

#[path = "released/rows.rs"]
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use drupe_extension_api::control::ApprovalState;
use rusqlite::{Connection, types::Value};

use self::rows::rows_of;
use super::{files::DUMPS, upgrade::take, *};
use crate::schema::STEPS;

const ROWS: &str = include_str!("released/rows.sql");

/// Tables that a later version has in another form, with what their rows became.
const REPLACED: [(&str, &str); 4] = [
    ("inbox", "turns"),
    ("events", "log"),
    ("entries", "log"),
    // Sums of them.
    ("invocations", "usage"),
];

/// Columns that a later version does without, and why nothing is lost with them.
const GONE: [(&str, &str); 4] = [
    // It follows from the log.
    ("sessions", "last_seq"),
    // No turn ever used it.
    ("turns", "snapshot"),
    // What sets a turn off is `origin`.
    ("turns", "kind"),
    // The number of the session is read from the turn.
    ("outbox", "session"),
];

fn write(home: &Home, version: usize) {
    let db = Connection::open(home.path()).unwrap();
    db.execute_batch(DUMPS[version - 1]).unwrap();
    // What an older release let refer to nothing is another matter.
    db.execute_batch(&rows_of(ROWS, version)).unwrap_or_else(|error| panic!("version {version}: {error}"));
}

/// A row, by its columns.
type Row = BTreeMap<String, Value>;

fn tables(home: &Home) -> BTreeMap<String, Vec<Row>> {
    let db = Connection::open(home.path()).unwrap();
    let mut names = db
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        .unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let rows = |name: &String| {
        let mut all = db.prepare(&format!("SELECT * FROM {name}")).unwrap();
        let columns: Vec<String> = all.column_names().map(str::to_owned).collect();
        let row = |row: &rusqlite::Row<'_>| {
            columns.iter().enumerate().map(|(n, column)| Ok((column.clone(), row.get(n)?))).collect()
        };
        all.query_map([], row).unwrap().map(Result::unwrap).collect()
    };
    names
        .into_iter()
        .map(|name| {
            let rows = rows(&name);
            (name, rows)
        })
        .collect()
}

/// Whether a row is there with all that it had.
fn is_there(table: &str, row: &Row, after: &[Row]) -> bool {
    let same = |other: &Row| {
        row.iter().all(|(column, value)| {
            other.get(column).map_or_else(|| GONE.contains(&(table, column)), |found| found == value)
        })
    };
    after.iter().any(same)
}

#[test]
fn every_row_of_every_version_is_there_after_an_upgrade() {
    for version in 1..=STEPS.len() {
        let home = Home::new();
        write(&home, version);
        let before = tables(&home);
        if version > 2 {
            let empty: BTreeSet<_> =
                before.iter().filter(|(_, rows)| rows.is_empty()).map(|(name, _)| name).collect();
            assert!(
                empty.is_empty(),
                "no row of version {version} in {empty:?}: add some to `released/rows.sql`"
            );
        }
        assert_eq!(take(&home, STEPS).unwrap(), version < STEPS.len());
        let after = tables(&home);
        for (name, rows) in &before {
            if let Some((_, became)) =
                REPLACED.iter().find(|(old, _)| old == name).filter(|_| !after.contains_key(name))
            {
                assert!(!after[*became].is_empty(), "version {version}: `{name}`");
                continue;
            }
            for row in rows {
                assert!(
                    is_there(name, row, &after[name]),
                    "version {version}: `{name}` lost {row:?}: {:#?}",
                    after[name]
                );
            }
        }
    }
}

#[tokio::test]
async fn what_a_journal_of_any_version_holds_is_read_and_gone_on_with() {
    for version in 1..=STEPS.len() {
        let home = Home::new();
        write(&home, version);
        let store = home.open();
        let detail = store.session(&session("s"), 0, false).await.unwrap().unwrap();
        assert_eq!(
            (detail.turns[0].content.as_str(), detail.status.title.as_str()),
            ("hi", "hello"),
            "version {version}"
        );
        assert_eq!(detail.turns[0].transcript.len(), 2, "version {version}");
        let used = store.used_by_session(&session("s")).await.unwrap();
        assert_eq!((used.tokens, used.invocations), (15, 1), "version {version}");
        let due = store.due_deliveries().await.unwrap();
        assert_eq!((due.len(), due[0].message.text.as_str()), (1, "hi"), "version {version}");

        if version >= 2 {
            assert_eq!(store.enabled().await.unwrap().len(), 2, "version {version}");
            let states: Vec<_> =
                store.activations().await.unwrap().into_iter().map(|one| one.state).collect();
            assert_eq!(states, [ApprovalState::Pending, ApprovalState::Allowed, ApprovalState::Withdrawn]);
        }
        if version >= 3 {
            let dead = store.dead_messages().await.unwrap();
            assert_eq!((dead.len(), dead[0].reason.as_str()), (1, "it was refused"), "version {version}");
        }
        if version >= 6 {
            let tokens = store.tokens().await.unwrap();
            assert_eq!((tokens[0].0.name.as_str(), tokens[0].0.may.len()), ("phone", 2), "version {version}");
        }
        if version >= 7 {
            let questions = store.questions().await.unwrap();
            let states: Vec<_> = questions.iter().map(|one| one.state).collect();
            assert_eq!(states, [ApprovalState::Pending, ApprovalState::Denied], "version {version}");
        }
        if version >= 11 {
            assert_eq!(store.grants().await.unwrap().len(), 1, "version {version}");
        }
        if version >= 12 {
            let schedules = store.schedules().await.unwrap();
            assert_eq!(schedules[0].paused.as_deref(), Some("it failed five times"), "version {version}");
            assert_eq!(store.schedule_runs("report".into(), 9).await.unwrap().len(), 2, "version {version}");
        }
        if version >= 18 {
            assert_eq!(store.people(1_700_000_000_000).await.unwrap().len(), 1, "version {version}");
        }

        // Each turn that has no answer gets one.
        let unfinished = store.unfinished().await.unwrap();
        assert_eq!(unfinished.len(), if version == 1 { 1 } else { 2 }, "version {version}");
        for turn in &unfinished {
            let turn = &turn.turn;
            store.start_turn(start(turn, "s", vec![remark("on")])).await.unwrap();
            store.finish_turn(done(turn, "late")).await.unwrap();
            assert!(matches!(store.finish_turn(done(turn, "twice")).await, Err(StoreError::Finished(_))));
        }
        let detail = store.session(&session("s"), 0, false).await.unwrap().unwrap();
        let answers: Vec<_> = detail.turns.iter().map(|turn| turn.content.as_str()).collect();
        assert_eq!(answers[1..], vec!["late"; unfinished.len()], "version {version}");
        assert!(store.unfinished().await.unwrap().is_empty());
        store.close().await.unwrap();
    }
}
