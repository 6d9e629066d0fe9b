//! What is let go, and what stays.

use std::fs;

use super::*;
use crate::Retention;

const DAY_MS: i64 = 86_400_000;

/// A turn of a session with an answer and a large record, whose delivery was sent where it is said so.
async fn ended(store: &Store, id: &str, external_id: &str, sent: bool) -> TurnId {
    let turn = store.accept(message(id, external_id, external_id)).await.unwrap().turn;
    let entries = vec![
        begin(&format!("r{external_id}"), "main", None, "hello"),
        answer(&format!("r{external_id}"), 1, &"long ".repeat(20_000), &[]),
    ];
    let delivery =
        store.finish_turn(TurnDone { entries, ..done(&turn, external_id) }).await.unwrap().unwrap();
    if sent {
        store.sending(delivery).await.unwrap();
        store.sent(delivery, None).await.unwrap();
    }
    turn
}

async fn until_none(store: &Store, keep: Retention) -> u64 {
    let mut all = 0;
    loop {
        match store.let_go(keep).await.unwrap() {
            0 => return all,
            some => all += some,
        }
    }
}

#[tokio::test]
async fn old_turns_go_with_all_that_they_recorded_and_sums_and_positions_stay() {
    let home = Home::new();
    let store = home.open();
    let old = ended(&store, "s", "1", true).await;
    let unsent = ended(&store, "s", "2", false).await;
    let open = store.accept(message("s", "3", "still open")).await.unwrap().turn;
    for n in 10..40 {
        ended(&store, "many", &n.to_string(), true).await;
    }
    let (used, last) = (
        store.used_by_session(&session("s")).await.unwrap(),
        store.session(&session("s"), 0, false).await.unwrap().unwrap().last_seq,
    );
    home.clock.advance(2 * DAY_MS);
    let young = ended(&store, "s", "4", true).await;
    let keep = Retention { max_age_ms: Some(DAY_MS), max_bytes: None };
    assert_eq!(until_none(&store, keep).await, 31);
    assert!(store.turn_result(&old, false).await.unwrap().is_none());
    for turn in [&unsent, &open, &young] {
        assert!(store.turn_rows(turn).await.unwrap().is_some(), "{turn}");
    }
    assert_eq!(store.queued(&open).await.unwrap().unwrap().earlier_turns, 2, "as many as there ever were");
    let now = store.used_by_session(&session("s")).await.unwrap();
    assert!(now.tokens > used.tokens && now.invocations == used.invocations + 1);
    store.close().await.unwrap();
    // Also where nothing of a session is left, no position is given twice.
    let store = home.open();
    let many = store.session(&session("many"), 0, false).await.unwrap().unwrap();
    assert_eq!((many.turns.len(), many.last_seq), (0, 30));
    store.record_events(session("many"), None, vec![remark("new")]).await.unwrap();
    assert_eq!(store.events_after(&session("many"), 30, 9).await.unwrap()[0].seq, 31);
    assert!(store.session(&session("s"), 0, false).await.unwrap().unwrap().last_seq > last);
    assert!(!store.accept(message("s", "1", "again")).await.unwrap().duplicate);
}

#[tokio::test]
async fn a_journal_that_grows_too_large_lets_the_oldest_go_and_its_file_shrinks() {
    let home = Home::new();
    let store = home.open();
    for n in 0..60 {
        ended(&store, "s", &n.to_string(), true).await;
    }
    let whole = store.size().await.unwrap();
    let keep = Retention { max_age_ms: None, max_bytes: Some(whole / 2) };
    let gone = until_none(&store, keep).await;
    assert!((16..60).contains(&gone), "{gone}");
    assert!(store.size().await.unwrap() <= whole / 2);
    assert_eq!(store.session(&session("s"), 0, false).await.unwrap().unwrap().turns.len() as u64, 60 - gone);
    assert_eq!(store.let_go(Retention::default()).await, Ok(0), "without a bound nothing goes");
    for _ in 0..20 {
        store.let_go(Retention::default()).await.unwrap();
    }
    store.close().await.unwrap();
    assert!(fs::metadata(home.path()).unwrap().len() < whole * 6 / 10);
}
