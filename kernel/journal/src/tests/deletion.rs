//! Sessions that are deleted.

use drupe_agent::Clock;
use drupe_extension_api::control::{UsageBy, UsageQuery};
use rusqlite::Connection;

use super::*;
use crate::StoreError;

/// A turn with a delivery, records and use.
async fn turn(store: &Store, id: &str, external_id: &str) -> TurnId {
    let turn = store.accept(message(id, external_id, &"secret ".repeat(500))).await.unwrap().turn;
    let mut ended = done(&turn, "secret answer");
    ended.last.session = session(id);
    ended.last.entries =
        vec![begin(external_id, "agent", None, "secret"), answer(external_id, 1, "secret", &[])];
    let delivery = store.finish_turn(ended).await.unwrap().unwrap();
    store.sending(delivery).await.unwrap();
    store.sent(delivery, Sent::Delivered { remote_id: None }).await.unwrap();
    turn
}

/// A turn of an agent that such a turn spawned.
async fn spawned(store: &Store, by: &TurnId, id: &str) -> TurnId {
    let ask = message(id, "e-1", "secret task").ask;
    let origin = Origin::Spawned { by: by.clone() };
    let turn = store.accept(Inbound::new(ask, origin)).await.unwrap().turn;
    store.finish_turn(TurnDone { outbox: None, ..done(&turn, "secret report") }).await.unwrap();
    turn
}

async fn used(store: &Store) -> u64 {
    let rows = store.usage(UsageQuery { by: UsageBy::Session, ..UsageQuery::default() }).await.unwrap();
    rows.iter().map(|row| row.usage.input_tokens).sum()
}

#[tokio::test]
async fn a_session_goes_with_all_that_is_of_it_and_sums_of_use_stay() {
    let home = Home::new();
    let store = home.open();
    let mut last = None;
    for n in 0..400 {
        last = Some(turn(&store, "s", &n.to_string()).await);
    }
    let child = spawned(&store, &last.unwrap(), "s:a-1").await;
    spawned(&store, &child, "s:a-1:a-2").await;
    turn(&store, "s:a-other", "other").await;
    let kept = turn(&store, "t", "kept").await;
    store.notice(session("s"), None, "secret notice".into(), Vec::new()).await.unwrap();
    let before = used(&store).await;
    let size = store.size().await.unwrap();

    let deleted = store.delete_session(&session("s")).await.unwrap().unwrap();
    assert_eq!((deleted.turns, deleted.sessions.len()), (402, 3), "{deleted:?}");
    assert!(deleted.deliveries >= 400 && deleted.records >= 400, "{deleted:?}");
    store.finish_deletions().await.unwrap();
    assert!(store.size().await.unwrap() < size / 4);

    assert!(store.session(&session("s"), 0, true).await.unwrap().is_none());
    let at = home.clock.now_ms();
    assert_eq!(store.deleted("s").await.unwrap().map(|at| at.as_millisecond()), Some(at));
    assert_eq!(store.deleted("t").await.unwrap(), None);
    assert_eq!(store.deletions().await.unwrap(), 3);
    let left: Vec<_> = store.sessions().await.unwrap().into_iter().map(|one| one.id.to_string()).collect();
    assert_eq!(left, ["t", "s:a-other"]);
    assert_eq!(store.counts().await.unwrap().sessions, 2);
    assert_eq!(used(&store).await, before);
    assert!(store.turn_result(&kept, false).await.unwrap().is_some());
    assert_eq!(store.delete_session(&session("s")).await, Ok(None));

    // Whoever writes there again begins anew.
    turn(&store, "s", "0").await;
    let again = store.session(&session("s"), 0, true).await.unwrap().unwrap();
    assert_eq!((again.turns.len(), again.status.turn_count), (1, 1));
    store.close().await.unwrap();

    let db = Connection::open(home.path()).unwrap();
    for (table, column) in [("turns", "text"), ("outbox", "text"), ("log", "entries"), ("log", "events")] {
        let sql = format!("SELECT count(*) FROM {table} WHERE {column} LIKE '%secret%'");
        let left: i64 = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert!(left <= 6, "{table}.{column}: {left}");
    }
}

#[tokio::test]
async fn a_session_in_which_something_is_at_work_stays() {
    let home = Home::new();
    let store = home.open();
    let by = turn(&store, "s", "1").await;
    let origin = Origin::Spawned { by };
    let child = store.accept(Inbound::new(message("s:a-1", "e-1", "task").ask, origin)).await.unwrap().turn;
    assert_eq!(store.delete_session(&session("s")).await, Err(StoreError::AtWork(session("s:a-1"))));
    let delivery = store.finish_turn(done(&child, "done")).await.unwrap().unwrap();
    store.sending(delivery).await.unwrap();
    assert_eq!(store.delete_session(&session("s")).await, Err(StoreError::BeingSent(session("s:a-1"))));
    assert_eq!(store.session(&session("s"), 0, true).await.unwrap().unwrap().turns.len(), 1);
    store.sent(delivery, Sent::Delivered { remote_id: None }).await.unwrap();
    assert_eq!(store.delete_session(&session("s")).await.unwrap().unwrap().sessions.len(), 2);
}

#[tokio::test]
async fn what_a_deleted_session_recorded_is_removed_by_the_next_kernel_where_this_one_ended() {
    let home = Home::new();
    let store = home.open();
    for n in 0..5 {
        turn(&store, "s", &n.to_string()).await;
    }
    store.delete_session(&session("s")).await.unwrap().unwrap();
    store.close().await.unwrap();
    let rows = || -> i64 {
        let db = Connection::open(home.path()).unwrap();
        db.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).unwrap()
    };
    assert!(rows() > 0);
    let store = home.open();
    // A number is not given twice: the new session has none of the old one's records.
    turn(&store, "new", "0").await;
    assert_eq!(store.events_after(&session("new"), 0, 99).await.unwrap().len() as u64, {
        store.session(&session("new"), 0, true).await.unwrap().unwrap().last_seq
    });
    store.delete_session(&session("new")).await.unwrap().unwrap();
    store.finish_deletions().await.unwrap();
    store.close().await.unwrap();
    assert_eq!(rows(), 0);
}

#[tokio::test]
async fn what_was_used_below_a_name_stays_used() {
    let home = Home::new();
    let store = home.open();
    turn(&store, "token.phone", "1").await;
    turn(&store, "token.phone:ann", "2").await;
    let now = home.clock.now_ms();
    let before = store.used_below("token.phone".into(), now).await.unwrap();
    assert!(before.tokens > 0);
    for id in ["token.phone", "token.phone:ann"] {
        store.delete_session(&session(id)).await.unwrap().unwrap();
    }
    assert_eq!(store.used_below("token.phone".into(), now).await.unwrap(), before);
}
