//! The file: made, migrated, damaged, set aside.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, thread, time::Duration};

use drupe_extension_api::control::{ApprovalState, DeadMessage, ExtensionState, UsageBy, UsageQuery};
use rusqlite::Connection;
use serde_json::json;

use super::*;
use crate::{
    schema::{self, STEPS},
    upgrade,
};

/// A journal with content, closed in order.
async fn closed() -> Home {
    let home = Home::new();
    let store = home.open();
    for n in 0..20 {
        store.accept(message("s", &n.to_string(), &"text ".repeat(1000))).await.unwrap();
    }
    store.close().await.unwrap();
    home
}

fn overwrite(path: &Path, at: usize, bytes: &[u8]) {
    let mut content = fs::read(path).unwrap();
    content[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(path, content).unwrap();
}

/// Opening names the damage, and leaves the file as it is.
fn check_damaged(home: &Home, what: &str) {
    let before = fs::read(home.path()).ok();
    match home.try_open() {
        Err(StoreError::Corrupt(detail)) => {
            assert!(detail.contains("journal.db") && detail.contains(what), "{detail}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a damaged journal was opened"),
    }
    assert!(fs::read(home.path()).ok() == before, "a refused file was changed");
}

#[tokio::test]
async fn a_closed_journal_is_one_file_for_its_owner_alone() {
    let home = closed().await;
    let names: Vec<_> = fs::read_dir(home.folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["journal.db"]);
    assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn what_is_no_journal_is_not_taken_for_an_empty_one() {
    let home = closed().await;
    fs::write(home.path(), "").unwrap();
    check_damaged(&home, "empty");
    fs::write(home.path(), "a text, not a database, ".repeat(100)).unwrap();
    check_damaged(&home, "not a database");
    fs::remove_file(home.path()).unwrap();
    Connection::open(home.path()).unwrap().execute_batch("CREATE TABLE other (a)").unwrap();
    check_damaged(&home, "not a journal of drupe");
    fs::remove_file(home.path()).unwrap();
    fs::write(home.folder.path().join("journal.db-wal"), "left over").unwrap();
    check_damaged(&home, "write-ahead log");
}

#[tokio::test]
async fn damage_is_found_after_an_unclean_stop() {
    let home = closed().await;
    Connection::open(home.path()).unwrap().execute("INSERT INTO meta VALUES ('open', '1')", []).unwrap();
    let length = fs::metadata(home.path()).unwrap().len() as usize;
    // The last pages are full of text; the tables that are read at the start are at the beginning.
    overwrite(&home.path(), length - 3 * 4096, &[0xa5; 3 * 4096]);
    check_damaged(&home, "");
}

/// What an opening that fails was at, and how far it came.
fn failed_at(home: &Home) -> (Stage, u64) {
    let opening = Arc::default();
    assert!(home.open_seen(&Storage::Full(home.path()), &opening).is_err());
    (opening.stage(), opening.steps())
}

#[tokio::test]
async fn an_opening_says_that_it_checks_the_file_and_how_far_it_came() {
    let home = closed().await;
    Connection::open(home.path()).unwrap().execute("INSERT INTO meta VALUES ('open', '1')", []).unwrap();
    let length = fs::metadata(home.path()).unwrap().len() as usize;
    overwrite(&home.path(), length - 3 * 4096, &[0xa5; 3 * 4096]);
    let (stage, steps) = failed_at(&home);
    assert!(stage == Stage::Checks && steps > 0, "{stage:?} {steps}");
}

#[test]
fn an_opening_says_that_it_migrates_the_file() {
    let home = Home::new();
    Connection::open(home.path()).unwrap().execute_batch(VERSION_1).unwrap();
    // The copy of the file as it was cannot be made.
    fs::create_dir_all(home.folder.path().join("journal.db.upgrading").join("in the way")).unwrap();
    assert_eq!(failed_at(&home).0, Stage::Migrates);
}

#[tokio::test]
async fn an_opening_waits_for_the_lock_of_another_process_and_counts_no_steps_meanwhile() {
    let home = closed().await;
    let other = Connection::open(home.path()).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE").unwrap();
    let opening = Arc::<Opening>::default();
    thread::scope(|scope| {
        let opened = scope.spawn(|| home.open_seen(&Storage::Full(home.path()), &opening));
        // Longer than a statement waits for another process once the journal is open.
        thread::sleep(Duration::from_millis(2_500));
        assert_eq!((opening.stage(), opening.steps(), opened.is_finished()), (Stage::Opens, 0, false));
        drop(other);
        assert!(opened.join().unwrap().is_ok());
    });
}

#[tokio::test]
async fn an_unclean_stop_alone_does_no_harm() {
    let home = closed().await;
    Connection::open(home.path()).unwrap().execute("INSERT INTO meta VALUES ('open', '1')", []).unwrap();
    assert_eq!(home.open().counts().await.unwrap().queued_turns, 20);
}

#[tokio::test]
async fn a_damaged_journal_is_set_aside_only_when_asked() {
    let home = closed().await;
    overwrite(&home.path(), 0, b"nonsense");
    check_damaged(&home, "not a database");
    let damaged = fs::read(home.path()).unwrap();
    let aside = crate::set_aside(&home.path(), 17).unwrap();
    assert_eq!(aside, home.folder.path().join("journal.db.corrupt-17"));
    assert_eq!(fs::read(aside).unwrap(), damaged);
    assert!(crate::set_aside(&home.path(), 18).is_err());
    assert_eq!(home.open().counts().await.unwrap().queued_turns, 0);
}

#[tokio::test]
async fn a_file_that_was_half_made_is_made_again() {
    let home = Home::new();
    for suffix in ["", "-wal"] {
        fs::write(home.folder.path().join(format!("journal.db.new{suffix}")), "half").unwrap();
    }
    let store = home.open();
    store.accept(message("s", "1", "hello")).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(home.open().counts().await.unwrap().queued_turns, 1);
}

/// A journal as version 1 wrote it, with content.
pub const VERSION_1: &str = include_str!("version_1.sql");

/// The same of version 2.
const VERSION_2: &str = include_str!("version_2.sql");

/// The same of version 3.
const VERSION_3: &str = include_str!("version_3.sql");

/// The same of version 4.
const VERSION_4: &str = include_str!("version_4.sql");

/// The same of version 5.
const VERSION_5: &str = include_str!("version_5.sql");

/// The same of version 6.
const VERSION_6: &str = include_str!("version_6.sql");

/// The same of version 7.
const VERSION_7: &str = include_str!("version_7.sql");

/// The same of version 8.
const VERSION_8: &str = include_str!("version_8.sql");

/// The same of version 9.
const VERSION_9: &str = include_str!("version_9.sql");

/// The same of version 10.
const VERSION_10: &str = include_str!("version_10.sql");

/// The same of version 11.
const VERSION_11: &str = include_str!("version_11.sql");

/// The same of version 12.
const VERSION_12: &str = include_str!("version_12.sql");

/// The same of version 13.
const VERSION_13: &str = include_str!("version_13.sql");

/// The same of version 14.
const VERSION_14: &str = include_str!("version_14.sql");

/// The same of version 15.
const VERSION_15: &str = include_str!("version_15.sql");

/// The same of version 16.
const VERSION_16: &str = include_str!("version_16.sql");

/// The same of version 17.
const VERSION_17: &str = include_str!("version_17.sql");

/// The same of version 18.
const VERSION_18: &str = include_str!("version_18.sql");

/// All of them, in order.
pub const DUMPS: [&str; 18] = [
    VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8, VERSION_9,
    VERSION_10, VERSION_11, VERSION_12, VERSION_13, VERSION_14, VERSION_15, VERSION_16, VERSION_17,
    VERSION_18,
];

fn tables(db: &Connection) -> Vec<(String, String)> {
    let mut all =
        db.prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
    let words = |sql: String| sql.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows = all.query_map([], |row| Ok((row.get(0)?, words(row.get(1)?)))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_released_steps_are_unchanged() {
    assert_eq!(DUMPS.len(), STEPS.len(), "a version without a dump of it");
    for (dump, steps) in DUMPS.iter().zip(1..) {
        let mut fresh = Connection::open_in_memory().unwrap();
        upgrade::begin(&mut fresh, &STEPS[..steps]).unwrap();
        let released = Connection::open_in_memory().unwrap();
        released.execute_batch(dump).unwrap();
        assert_eq!(tables(&fresh), tables(&released), "version {steps}");
    }
}

#[tokio::test]
async fn a_journal_of_version_1_is_read_by_this_release() {
    let home = Home::new();
    Connection::open(home.path()).unwrap().execute_batch(VERSION_1).unwrap();
    let store = home.open();
    let detail = store.session(&session("s"), 0, false).await.unwrap().unwrap();
    assert_eq!((detail.turns.len(), detail.last_seq, detail.status.title.as_str()), (2, 2, "hello"));
    assert_eq!((detail.turns[0].content.as_str(), detail.turns[0].transcript.len()), ("hi", 2));
    assert_eq!(store.unfinished().await.unwrap()[0].inbound.ask.text, "and again");
    assert_eq!(store.due_deliveries().await.unwrap()[0].message.text, "hi");
    let rows = store.turn_rows(&detail.turns[0].turn).await.unwrap().unwrap();
    assert_eq!((rows.entries.len(), rows.events.len(), rows.deliveries.len()), (3, 2, 1));
    assert_eq!(rows.events[0].time.as_millisecond(), 1_700_000_000_000);
    let events = store.events_after(&session("s"), 0, 9).await.unwrap();
    assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2]);

    let used = store.used_by_session(&session("s")).await.unwrap();
    assert_eq!((used.tokens, used.invocations), (15, 1));
    assert_eq!(starts(&store).await, [1, 0]);
    assert!(store.enabled().await.unwrap().is_empty());
    assert!(store.activations().await.unwrap().is_empty());
    let asked = store.ask_activation("kv".into(), "h1".into(), Vec::new()).await.unwrap();
    assert_eq!(
        store.answer_activation(&asked.id, true, None, "operator".into()).await.unwrap().unwrap().id,
        "a1"
    );
    store.close().await.unwrap();
    let kept = Connection::open(home.folder.path().join("journal.db.v1")).unwrap();
    assert_eq!(schema::version_of(&kept).unwrap(), 1);
}

/// How often each turn was begun, in the order of their acceptance.
async fn starts(store: &Store) -> Vec<u32> {
    store
        .read(|db| {
            let mut all = db.prepare("SELECT starts FROM turns ORDER BY number")?;
            Ok(all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_journal_of_version_2_is_read_by_this_release() {
    let home = Home::new();
    Connection::open(home.path()).unwrap().execute_batch(VERSION_2).unwrap();
    let store = home.open();
    let detail = store.session(&session("s"), 0, false).await.unwrap().unwrap();
    assert_eq!((detail.turns.len(), detail.turns[0].content.as_str()), (3, "hi"));
    let unfinished: Vec<_> = store.unfinished().await.unwrap().iter().map(|t| t.started).collect();
    assert_eq!(unfinished, [true, false]);
    assert_eq!(starts(&store).await, [1, 2, 0]);
    let enabled: Vec<_> = store.enabled().await.unwrap().into_iter().collect();
    assert_eq!(enabled, [("files".to_owned(), false), ("kv".to_owned(), true)]);
    let approvals: Vec<_> = store
        .activations()
        .await
        .unwrap()
        .into_iter()
        .map(|a| (a.id, a.state, a.answered.map(|time| time.as_millisecond())))
        .collect();
    let expected = [
        ("a3".to_owned(), ApprovalState::Pending, None),
        ("a2".to_owned(), ApprovalState::Allowed, Some(1_700_000_000_000)),
        ("a1".to_owned(), ApprovalState::Withdrawn, None),
    ];
    assert_eq!(approvals, expected);
    assert_eq!(store.activation("kv", "h2").await.unwrap(), Some(ApprovalState::Allowed));
    assert_eq!(store.extension_history("kv").await.unwrap()[0].state, ExtensionState::AwaitingApproval);
    let audited: String = store
        .read(|db| Ok(db.query_row("SELECT who || ' ' || outcome FROM audit", [], |row| row.get(0))?))
        .await
        .unwrap();
    assert_eq!(audited, "operator allowed");

    let rows = store.turn_rows(&detail.turns[0].turn).await.unwrap().unwrap();
    assert_eq!((rows.entries.len(), rows.events.len(), rows.deliveries[0].state.as_str()), (3, 2, "due"));
    let query = UsageQuery { by: UsageBy::Model, ..UsageQuery::default() };
    let used = store.usage(query).await.unwrap().remove(0);
    assert_eq!((used.key.as_str(), used.calls, used.unpriced_tokens), ("offline/test", 1, 15));
    // What is recorded from here on stands after what was.
    store.record_events(session("s"), None, vec![remark("new")]).await.unwrap();
    let events = store.events_after(&session("s"), 1, 9).await.unwrap();
    assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn dead_letters_of_a_journal_of_version_3_are_counted_by_this_release() {
    let home = Home::new();
    let db = Connection::open(home.path()).unwrap();
    db.execute_batch(VERSION_3).unwrap();
    db.execute_batch(
        "INSERT INTO followers VALUES ('agent:a', 't');
         INSERT INTO messages (topic, payload, chain, published_ms) SELECT 't', n, '{\"hops\":9,\"ancestors\":[]}', 0
         FROM (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4);
         INSERT INTO deliveries (message, subscriber, dead, due_ms, why) VALUES
             (1, 'agent:a', 1, 0, 'the chain of events is cut after 8 links'), (2, 'agent:a', 1, 0, 'no'),
             (3, 'agent:a', 1, 0, 'the chain of events is cut after 8 links'), (4, 'agent:a', 0, 0, NULL);",
    )
    .unwrap();
    drop(db);
    let store = home.open();
    let counted = |all: Vec<DeadMessage>| all.iter().map(|d| (d.id, d.cut, d.let_go)).collect::<Vec<_>>();
    assert_eq!(counted(store.dead_messages().await.unwrap()), [(1, 1, 0), (2, 0, 0), (3, 1, 0)]);
    assert_eq!(store.message_cut(4, "the chain of events is cut".into()).await.unwrap(), 1);
    let dead = store.dead_messages().await.unwrap();
    assert_eq!((dead[0].payload.clone(), counted(dead)), (json!(2), vec![(2, 0, 0), (1, 3, 0)]));
}

#[tokio::test]
async fn what_set_the_turns_of_a_journal_of_version_5_off_is_read_from_their_ids_once() {
    let home = Home::new();
    let db = Connection::open(home.path()).unwrap();
    db.execute_batch(VERSION_5).unwrap();
    let rows = [
        // session, channel, external id, kind, agent → origin, external id
        ("s", "", "1", "user", None, "operator", "1"),
        ("s", "mail", "1", "user", None, "operator", "1"),
        ("mail:a", "mail", "2", "user", None, "extension:mail", "2"),
        ("mail:a", "", "mail:3", "user", None, "extension:mail", "3"),
        ("mail:a", "", "3", "user", None, "operator", "3"),
        ("mail:a", "", "mailing:3", "user", None, "operator", "mailing:3"),
        ("My:a", "", "My:1", "user", None, "operator", "My:1"),
        ("digest:2026-01-01", "", "bus:7", "event", Some("digest"), "topic:digest", "7"),
    ];
    let mut answered = 0;
    for (n, (session, channel, external, kind, agent, ..)) in (1..).zip(rows) {
        db.execute(
            "INSERT OR IGNORE INTO sessions (id, created_ms, updated_ms, turns) VALUES (?1, 1, 1, 9)",
            [session],
        )
        .unwrap();
        db.execute(
            "INSERT INTO turns (number, id, session, channel, external_id, kind, queue, text, agent, accepted_ms, after_seq)
             VALUES (?1, 't' || ?1, (SELECT number FROM sessions WHERE id = ?2), ?3, ?4, ?5, 'followup', 'hi', ?6, 1, 0)",
            (n, session, channel, external, kind, agent),
        )
        .unwrap();
        if !channel.is_empty() {
            answered += 1;
            let queue =
                "INSERT INTO outbox (turn, channel, text, created_ms, updated_ms) VALUES (?1, ?2, 'x', 1, 1)";
            db.execute(queue, (n, channel)).unwrap();
        }
    }
    drop(db);
    let store = home.open();
    let turns = store.unfinished().await.unwrap();
    for (turn, (.., origin, external)) in turns.iter().zip(rows) {
        let Inbound { ask, origin: read, .. } = &turn.inbound;
        assert_eq!((read.to_string().as_str(), ask.external_id.as_str()), (origin, external), "{turn:?}");
        assert!(store.accept(turn.inbound.clone()).await.unwrap().duplicate, "{turn:?}");
    }
    let due = store.due_deliveries().await.unwrap();
    assert_eq!((turns.len(), due.len(), due[0].key.as_str()), (rows.len(), answered, "t2"));
}
