//! Copies of a journal that is in use, and what becomes of one that is put back.

use std::fs;

use drupe_agent::TopicMessage;
use drupe_extension_api::{
    FailureClass,
    control::{ScheduleRunState, TokenStatus},
};
use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::json;

use super::*;
use crate::{DeliveryId, SlotEntry, check, copy, put_back, schema};

fn made() -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000).unwrap()
}

/// A copy as a journal of its own.
fn copied(home: &Home) -> Home {
    let other = Home::new();
    assert_eq!(copy(&home.path(), &other.path()), Ok(schema::version()));
    other.clock.advance(24 * 3_600_000);
    other
}

#[tokio::test]
async fn a_copy_of_a_journal_that_is_in_use_has_all_that_was_committed_and_is_one_file() {
    let home = Home::new();
    let store = home.open();
    for n in 0..50 {
        store.accept(message("s", &n.to_string(), &"text ".repeat(2_000))).await.unwrap();
    }
    let other = copied(&home);
    store.accept(message("s", "later", "later")).await.unwrap();
    let names: Vec<_> = fs::read_dir(other.folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["journal.db"]);
    let again = other.open();
    assert_eq!(again.unfinished().await.unwrap().len(), 50);
    assert_eq!(store.unfinished().await.unwrap().len(), 51);
    assert!(matches!(copy(&home.path(), &other.path()), Err(StoreError::Io(_))), "nothing is written over");
}

#[tokio::test]
async fn a_copy_of_one_that_is_closed_leaves_nothing_beside_it() {
    let home = Home::new();
    home.open().close().await.unwrap();
    copied(&home);
    let names: Vec<_> = fs::read_dir(home.folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["journal.db"]);
}

#[tokio::test]
async fn what_is_damaged_or_no_journal_is_not_copied() {
    let (home, other) = (Home::new(), Home::new());
    Connection::open(home.path()).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert!(matches!(copy(&home.path(), &other.path()), Err(StoreError::Corrupt(_))));
    assert!(matches!(check(&home.path()), Err(StoreError::Corrupt(_))));
    assert!(!other.path().exists());
}

async fn delivery(store: &Store, id: &str) -> DeliveryId {
    let turn = store.accept(message("s", id, "hello")).await.unwrap().turn;
    store.finish_turn(done(&turn, id)).await.unwrap().unwrap()
}

#[tokio::test]
async fn what_may_have_been_done_since_is_not_done_again() {
    let home = Home::new();
    let store = home.open();
    let (due, sending) = (delivery(&store, "due").await, delivery(&store, "sending").await);
    store.sending(sending).await.unwrap();
    let sent = delivery(&store, "sent").await;
    store.sending(sent).await.unwrap();
    store.sent(sent, Sent::Delivered { remote_id: None }).await.unwrap();
    let queued = store.accept(message("s", "queued", "hello")).await.unwrap().turn;
    let begun = store.accept(message("t", "begun", "hello")).await.unwrap().turn;
    store.start_turn(start(&begun, "t", vec![remark("began")])).await.unwrap();
    store.follow("agent:a".into(), "x.topic".into()).await.unwrap();
    let topic = TopicMessage {
        topic: "x.topic".into(),
        payload: json!({}),
        chain: Chain::default(),
        correlation: None,
    };
    store.publish(topic).await.unwrap();
    assert!(store.add_schedule("tea".into(), Some("{}".into()), "@every 1m".into()).await.unwrap());
    let at = Timestamp::from_second(1_700_000_060).unwrap();
    let slot = SlotEntry { slot: at, last: None, slots: 1, state: ScheduleRunState::Waiting, detail: None };
    assert!(store.settle_slots("tea".into(), Some(at), vec![slot]).await.unwrap());
    store.request_restart("upgrade".into(), None, None, false).await.unwrap();
    let token: TokenStatus =
        serde_json::from_value(json!({"name": "phone", "may": ["read"], "created": made()})).unwrap();
    assert!(store.make_token(token, "hash".into()).await.unwrap());
    let last = store.session(&session("s"), 0, false).await.unwrap().unwrap().last_seq;

    let other = copied(&home);
    let settled = put_back(&other.path(), made(), other.clock.clone()).unwrap();
    assert_eq!((settled.turns, settled.deliveries, settled.messages, settled.runs), (2, 2, 1, 1));
    assert_eq!(settled.tokens, ["phone"]);
    let store = other.open();
    assert_eq!(store.put_back().await.unwrap(), Some(settled));
    assert_eq!(store.unfinished().await.unwrap(), []);
    for turn in [queued, begun] {
        let result = store.turn_result(&turn, true).await.unwrap().unwrap();
        assert_eq!(result.class, Some(FailureClass::Cancelled));
        assert!(result.error.unwrap().contains("restored from a backup of 2023-11-14T22:13:20Z"));
    }
    assert!(store.due_deliveries().await.unwrap().is_empty());
    assert!(store.sending(due).await.is_err() && store.sending(sending).await.is_err());
    let events = store.events_after(&session("s"), last, 99).await.unwrap();
    let doubts = events.iter().filter(
        |event| matches!(&event.body, EventBody::Diagnostic { code, .. } if code == "delivery.uncertain"),
    );
    assert_eq!(doubts.count(), 2, "{events:?}");
    assert!(store.due_messages(i64::MAX, 9).await.unwrap().is_empty());
    assert_eq!(store.dead_messages().await.unwrap().len(), 1);
    let row = store.schedules().await.unwrap().remove(0);
    assert_eq!(row.through.as_millisecond(), 1_700_000_000_000 + 24 * 3_600_000);
    assert_eq!(store.take_restart().await.unwrap(), None);

    // Whoever read further than the copy goes takes nothing new for what they know.
    let mut behind = store.session(&session("s"), 0, false).await.unwrap().unwrap().last_seq;
    assert!(behind > last + 1_000_000, "{behind}");
    store.record_events(session("s"), None, vec![remark("new")]).await.unwrap();
    behind += 1;
    assert_eq!(store.events_after(&session("s"), last + 500, 9).await.unwrap()[0].seq, behind);
    store.close().await.unwrap();

    let again = put_back(&other.path(), made(), other.clock.clone()).unwrap();
    assert_eq!((again.turns, again.deliveries, again.messages, again.runs), (0, 0, 0, 0));
    assert_eq!(check(&other.path()), Ok(schema::version()));
}
