//! A disk that refuses at any moment: what was acknowledged is there, what was refused is not, and the same journal goes on once
//! the disk does.

mod disk;

use std::path::Path;

use drupe_extension_api::control::ScheduleRunState;
use futures_util::future::join_all;
use jiff::Timestamp;

use super::{
    crash::{Commit, LIFE, traces},
    power::upgrade::write_old,
    *,
};
use crate::{SlotEntry, bus, writer::Survives};
use disk::Fault;

/// As many pages as are kept in memory while they are written.
const LARGE: usize = 1 << 20;

/// More than the index of the log has room for in its first piece: 4,062 pages.
const BEYOND_THE_FIRST: usize = 20 << 20;

/// Commits behind those of a turn's life, each with the question that says how often it was carried out.
const MORE: [(&str, Commit, &str); 6] = [
    (
        "a large message",
        |on| crate::intake::accept(on, &message("s", "large", &"large ".repeat(LARGE / 6))).map(drop),
        "SELECT count(*) FROM turns WHERE external_id = 'large'",
    ),
    (
        "many small ones",
        |on| {
            (0..300).try_for_each(|n| {
                crate::intake::accept(on, &message("many", &format!("many {n}"), "hello")).map(drop)
            })
        },
        "SELECT count(*) / 300 FROM turns WHERE external_id LIKE 'many %'",
    ),
    ("follow", |on| bus::follow(on, "agent:a", "t"), "SELECT count(*) FROM followers"),
    (
        "a slot",
        |on| {
            on.statement("INSERT INTO schedules (id, through_ms, timing) VALUES ('daily', 0, 'x') ON CONFLICT DO NOTHING")?
                .execute([])?;
            on.statement(
                "INSERT INTO schedule_runs (schedule, slot_ms, slots, state, changed_ms) SELECT number, 1, 1, 'waiting', 1 FROM schedules",
            )?
            .execute([])?;
            Ok(())
        },
        "SELECT count(*) FROM schedule_runs",
    ),
    (
        "a restart",
        |on| {
            on.statement("INSERT INTO restarts (reason, unattended, requested_ms) VALUES ('why', 0, 1)")?
                .execute([])?;
            Ok(())
        },
        "SELECT count(*) FROM restarts",
    ),
    (
        "the end of a session",
        |on| {
            on.statement("UPDATE turns SET finished_ms = 1 WHERE external_id = 'large'")?.execute([])?;
            on.statement("UPDATE turns SET text = 'gone' WHERE external_id LIKE 'many %'")?.execute([])?;
            Ok(())
        },
        "SELECT count(*) FROM turns WHERE external_id = 'large' AND finished_ms = 1",
    ),
];

async fn count(store: &Store, sql: &'static str) -> u32 {
    store.read(move |db| Ok(db.query_row(sql, [], |row| row.get(0))?)).await.unwrap()
}

async fn whole(store: &Store) -> String {
    store.read(|db| Ok(db.pragma_query_value(None, "integrity_check", |row| row.get(0))?)).await.unwrap()
}

/// Carries one commit out under a fault, and again once the disk works; whether it was refused.
async fn refused_or_done(store: &Store, folder: &Path, commit: Commit, expected: Kind) -> bool {
    match store.write(Survives::Power, commit).await {
        Ok(()) => false,
        Err(error) => {
            assert!(expected.is(&error), "{error:?}");
            assert!(disk::heal(folder) > 0, "nothing has failed: {error}");
            true
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Full,
    Io,
}

impl Kind {
    fn is(self, error: &StoreError) -> bool {
        matches!((self, error), (Self::Full, StoreError::Full(_)) | (Self::Io, StoreError::Io(_)))
    }
}

/// All commits with a fault at the n-th operation; whether it came.
async fn with_fault(fault: Fault, kind: Kind, at: u32, lasts: bool) -> bool {
    disk::begin();
    let home = Home::new();
    let folder = home.folder.path().to_owned();
    let store = home.open();
    disk::fail(&folder, fault, at, lasts);
    let mut came = false;
    for (number, (name, commit)) in LIFE.iter().enumerate() {
        if refused_or_done(&store, &folder, *commit, kind).await {
            came = true;
            assert_eq!(traces(&store).await, number, "{name} was refused, at {at}");
            store.write(Survives::Power, *commit).await.unwrap();
        }
        assert_eq!(traces(&store).await, number + 1, "{name}, at {at}");
    }
    for (name, commit, done) in MORE {
        if refused_or_done(&store, &folder, commit, kind).await {
            came = true;
            assert_eq!(count(&store, done).await, 0, "{name} was refused, at {at}");
            store.write(Survives::Power, commit).await.unwrap();
        }
        assert_eq!(count(&store, done).await, 1, "{name}, at {at}");
    }
    // One that has not come by now may have come where nobody was refused: when the log was written back.
    came |= disk::heal(&folder) > 0;
    assert_eq!(whole(&store).await, "ok");
    // As the next start finds it.
    store.close().await.unwrap();
    let store = home.open();
    assert_eq!(whole(&store).await, "ok");
    for (name, _, done) in MORE {
        assert_eq!(count(&store, done).await, 1, "{name}, at {at}, after a restart");
    }
    came
}

/// Tries moments that lie ever further apart behind the first ones, until there are no more.
async fn at_every_moment(fault: Fault, kind: Kind, lasts: bool, dense: u32) {
    let (mut at, mut tried) = (0, 0);
    while with_fault(fault, kind, at, lasts).await {
        tried += 1;
        at += if at < dense { 1 } else { at / 7 + 1 };
    }
    assert!(tried > 15, "only {tried} moments");
}

#[tokio::test]
async fn a_disk_that_is_full_at_any_write_refuses_one_request_and_forgets_nothing() {
    at_every_moment(Fault::Full, Kind::Full, true, 8).await;
}

#[tokio::test]
async fn a_write_that_is_cut_off_is_none() {
    at_every_moment(Fault::Short, Kind::Full, false, 8).await;
}

#[tokio::test]
async fn a_write_that_fails_for_another_reason_is_told_as_such() {
    at_every_moment(Fault::Write, Kind::Io, false, 4).await;
}

#[tokio::test]
#[ignore = "takes some minutes"]
async fn each_single_write_may_fail() {
    at_every_moment(Fault::Full, Kind::Full, true, u32::MAX).await;
    at_every_moment(Fault::Full, Kind::Full, false, u32::MAX).await;
    at_every_moment(Fault::Short, Kind::Full, false, u32::MAX).await;
}

#[tokio::test]
async fn of_messages_that_come_together_those_that_were_acknowledged_are_there() {
    disk::begin();
    for at in 0..40 {
        let home = Home::new();
        let store = home.open();
        disk::fail(home.folder.path(), Fault::Full, at, true);
        let accepted = join_all(
            (0..24).map(|n| store.accept(message(&format!("s-{n}"), &n.to_string(), &"x".repeat(20_000)))),
        )
        .await;
        disk::heal(home.folder.path());
        for (n, taken) in accepted.iter().enumerate() {
            let again =
                store.accept(message(&format!("s-{n}"), &n.to_string(), &"x".repeat(20_000))).await.unwrap();
            assert_eq!(again.duplicate, taken.is_ok(), "message {n}, at {at}: {taken:?}");
        }
        assert_eq!((store.counts().await.unwrap().queued_turns, &*whole(&store).await), (24, "ok"));
    }
}

#[tokio::test]
async fn an_index_of_the_log_that_cannot_grow_is_a_full_disk() {
    disk::begin();
    let home = Home::new();
    let store = home.open();
    store.accept(message("s", "1", "hello")).await.unwrap();
    let text = "x".repeat(BEYOND_THE_FIRST);
    // All is written by then.
    disk::fail(home.folder.path(), Fault::Index, 0, true);
    let refused = store.accept(message("s", "2", &text)).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    assert!(disk::heal(home.folder.path()) > 0);
    assert!(!store.accept(message("s", "2", &text)).await.unwrap().duplicate);
    assert_eq!(whole(&store).await, "ok");
}

#[tokio::test]
async fn what_a_sync_did_not_confirm_is_promised_by_no_later_one() {
    disk::begin();
    for at in 0..6 {
        let home = Home::new();
        let folder = home.folder.path();
        let store = home.open();
        disk::fail(folder, Fault::Sync, at, false);
        let mut acknowledged = Vec::new();
        let (mut n, mut refused) = (0, None);
        while refused.is_none() {
            // Not promised, and so not synced: it lies in the log before what is.
            store.follow(format!("agent:a{n}"), "t".into()).await.unwrap();
            match store.accept(message("s", &n.to_string(), "hello")).await {
                Ok(_) => acknowledged.push(n),
                Err(error) => refused = Some(error),
            }
            n += 1;
        }
        assert!(matches!(refused, Some(StoreError::Unsynced(_))), "{refused:?}");
        assert_eq!(acknowledged.len(), at as usize, "the fault came where it was to come");
        assert_eq!(disk::heal(folder), 1, "only one sync has failed");
        // The next one would say that all is well.
        let more = join_all((0..4).map(|n| store.accept(message("s", &format!("more {n}"), "hello")))).await;
        assert!(more.iter().all(|more| matches!(more, Err(StoreError::Unsynced(_)))), "{more:?}");
        assert!(matches!(store.follow("agent:b".into(), "t".into()).await, Err(StoreError::Unsynced(_))));
        assert!(matches!(store.broken().await, StoreError::Unsynced(_)));
        assert!(!store.answers(true).await, "it is no matter of room");
        assert!(folder.join("journal.db.doubted").exists());

        // The process ends without closing it. The next one reads all of it, and has it confirmed.
        std::mem::forget(store);
        let copy = Home::new();
        for file in ["journal.db", "journal.db-wal", "journal.db.doubted"] {
            std::fs::copy(folder.join(file), copy.folder.path().join(file)).unwrap();
        }
        disk::fail(copy.folder.path(), Fault::Sync, 0, true);
        let unconfirmed = copy.try_open().map(drop);
        assert!(matches!(unconfirmed, Err(StoreError::Unsynced(_))), "{unconfirmed:?}");
        disk::heal(copy.folder.path());
        assert!(copy.folder.path().join("journal.db.doubted").exists(), "it is doubted still");
        let store = copy.open();
        assert!(!copy.folder.path().join("journal.db.doubted").exists());
        for n in acknowledged {
            assert!(store.accept(message("s", &n.to_string(), "hello")).await.unwrap().duplicate, "{n}");
        }
        store.accept(message("s", "another", "hello")).await.unwrap();
        assert_eq!(whole(&store).await, "ok");
    }
}

#[tokio::test]
async fn a_sync_that_fails_while_a_journal_is_opened_is_told_and_leaves_the_mark() {
    disk::begin();
    // One that was closed in order, and one that is brought to the present version by more than SQLite leaves in a log.
    for turns in [None, Some(20_000)] {
        let mut failed = 0;
        for at in 0.. {
            let home = Home::new();
            match turns {
                Some(turns) => write_old(&home.path(), turns),
                None => home.open().close().await.unwrap(),
            }
            let mark = home.folder.path().join("journal.db.doubted");
            disk::fail(home.folder.path(), Fault::Sync, at, false);
            let opened = home.try_open();
            if disk::heal(home.folder.path()) == 0 {
                break;
            }
            failed += 1;
            assert!(matches!(opened, Err(StoreError::Unsynced(_))), "{turns:?} {at}: {:?}", opened.err());
            assert!(mark.exists(), "{turns:?} {at}");
            let store = home.open();
            assert!(!mark.exists() && whole(&store).await == "ok", "{turns:?} {at}");
        }
        assert!(failed > 0, "{turns:?}: nothing was synced");
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_synced_when_it_is_written_back_is_not_gone_on_with() {
    disk::begin();
    let home = Home::new();
    let store = home.open();
    store.accept(message("s", "1", "hello")).await.unwrap();
    disk::fail(home.folder.path(), Fault::Sync, 0, true);
    // Nothing of these is promised beyond the process, so nobody but the write-back asks the disk.
    for n in 0..2_000 {
        if store.follow(format!("agent:{n}"), "t".into()).await.is_err() {
            break;
        }
    }
    assert!(matches!(store.broken().await, StoreError::Unsynced(_)));
    disk::heal(home.folder.path());
    assert!(matches!(store.accept(message("s", "2", "hello")).await, Err(StoreError::Unsynced(_))));
}

#[tokio::test]
async fn what_cannot_be_read_once_is_read_the_next_time() {
    disk::begin();
    let home = Home::new();
    let store = home.open();
    for n in 0..40 {
        store.accept(message(&format!("s-{n}"), &n.to_string(), &"x".repeat(40_000))).await.unwrap();
    }
    disk::fail(home.folder.path(), Fault::Read, 0, true);
    let all = store.unfinished().await;
    assert!(matches!(all, Err(StoreError::Io(_))), "{:?}", all.map(|all| all.len()));
    disk::heal(home.folder.path());
    assert_eq!(store.unfinished().await.unwrap().len(), 40);
    store.accept(message("s", "more", "hello")).await.unwrap();
}

#[tokio::test]
async fn a_start_on_a_disk_that_is_full_says_so_and_the_next_one_goes() {
    disk::begin();
    for at in 0..12 {
        let home = Home::new();
        let store = home.open();
        store.accept(message("s", "1", "hello")).await.unwrap();
        std::mem::forget(store);
        let copy = Home::new();
        for file in ["journal.db", "journal.db-wal"] {
            std::fs::copy(home.folder.path().join(file), copy.folder.path().join(file)).unwrap();
        }
        disk::fail(copy.folder.path(), Fault::Full, at, true);
        let opened = copy.try_open();
        let failed = disk::heal(copy.folder.path());
        match opened {
            Ok(store) => drop(store),
            Err(error) => assert!(matches!(error, StoreError::Full(_)) && failed > 0, "{error:?}, at {at}"),
        }
        let store = copy.open();
        assert!(store.accept(message("s", "1", "hello")).await.unwrap().duplicate, "at {at}");
    }
}

#[tokio::test]
async fn slots_on_a_full_disk_are_settled_once() {
    disk::begin();
    let home = Home::new();
    let store = home.open();
    store.add_schedule("daily".into(), None, "x".into()).await.unwrap();
    let slot = |ms| Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap();
    for n in 0..8_i64 {
        let entry =
            SlotEntry { slot: slot(n), last: None, slots: 1, state: ScheduleRunState::Waiting, detail: None };
        disk::fail(home.folder.path(), Fault::Full, u32::try_from(n % 3).unwrap(), true);
        let settle = || store.settle_slots("daily".into(), Some(slot(n)), vec![entry.clone()]);
        let first = settle().await;
        disk::heal(home.folder.path());
        let again = settle().await.unwrap();
        assert_eq!(again, first.is_err(), "settled once: {first:?}");
    }
    assert_eq!(store.open_runs().await.unwrap().len(), 8);
}
