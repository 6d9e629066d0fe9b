//! What is let go, and what stays.

use std::fs;

use drupe_agent::{Clock, Journal};

use super::*;
use crate::{Gone, LetGo, Retention, rows::timestamp};

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;

/// A turn of a session with an answer and a large record, whose delivery was sent where it is said so.
async fn ended(store: &Store, id: &str, external_id: &str, sent: bool) -> TurnId {
    let turn = store.accept(message(id, external_id, external_id)).await.unwrap().turn;
    let entries = vec![
        begin(&format!("r{external_id}"), "main", None, "hello"),
        answer(&format!("r{external_id}"), 1, &"long ".repeat(20_000), &[]),
    ];
    let delivery = store
        .finish_turn(TurnDone { last: batch_of(&turn, entries), ..done(&turn, external_id) })
        .await
        .unwrap()
        .unwrap();
    if sent {
        store.sending(delivery).await.unwrap();
        store.sent(delivery, Sent::Delivered { remote_id: None }).await.unwrap();
    }
    turn
}

async fn until_none(store: &Store, keep: Retention) -> u64 {
    let mut all = 0;
    loop {
        let step = store.let_go(keep).await.unwrap();
        all += step.turns;
        if !step.more {
            return all;
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
    let all = Retention { max_age_ms: None, max_bytes: Some(1) };
    assert_eq!(until_none(&store, all).await, 0, "whoever asked may not have read the answers yet");
    home.clock.advance(HOUR_MS + 1);
    let whole = store.size().await.unwrap();
    let keep = Retention { max_age_ms: None, max_bytes: Some(whole / 2) };
    let gone = until_none(&store, keep).await;
    assert!((16..60).contains(&gone), "{gone}");
    assert!(store.size().await.unwrap() <= whole / 2);
    assert_eq!(store.session(&session("s"), 0, false).await.unwrap().unwrap().turns.len() as u64, 60 - gone);
    assert_eq!(until_none(&store, Retention::default()).await, 0, "without a bound nothing goes");
    store.close().await.unwrap();
    assert!(fs::metadata(home.path()).unwrap().len() < whole * 6 / 10);
}

#[tokio::test]
async fn what_went_is_counted_and_what_is_left_of_it_is_removed_by_the_next_process() {
    let home = Home::new();
    let store = home.open();
    assert_eq!(store.gone().await.unwrap(), None);
    let first = ended(&store, "s", "1", true).await;
    let until = timestamp(home.clock.now_ms());
    ended(&store, "s", "2", true).await;
    home.clock.advance(2 * DAY_MS);
    ended(&store, "s", "3", true).await;
    let whole = store.size().await.unwrap();
    let keep = Retention { max_age_ms: Some(DAY_MS), max_bytes: None };
    let step = store.let_go(keep).await.unwrap();
    assert_eq!(step, LetGo { turns: 2, more: true });
    // At once nobody sees them any more, also not by what they recorded.
    assert!(store.turn_result(&first, false).await.unwrap().is_none());
    assert_eq!(store.find(invocation("r1").as_str()).await.unwrap(), None);
    assert!(store.size().await.unwrap() > whole - 50_000, "what they recorded is still there");
    store.close().await.unwrap();
    let store = home.open();
    assert_eq!(until_none(&store, Retention::default()).await, 0);
    assert!(store.size().await.unwrap() < whole - 150_000);
    let last = timestamp(home.clock.now_ms());
    assert_eq!(store.gone().await.unwrap(), Some(Gone { turns: 2, until, last }));
    assert_eq!(store.gone_of(&session("s")).await.unwrap(), 2);
    assert_eq!(store.gone_of(&session("none")).await.unwrap(), 0);
}

#[tokio::test]
async fn the_latest_turn_stays_however_old_so_that_no_number_is_given_twice() {
    let home = Home::new();
    let store = home.open();
    ended(&store, "s", "1", true).await;
    let latest = ended(&store, "s", "2", true).await;
    let number = store.turn_rows(&latest).await.unwrap().unwrap().number;
    home.clock.advance(1_000 * DAY_MS);
    let keep = Retention { max_age_ms: Some(DAY_MS), max_bytes: Some(1) };
    assert_eq!(store.keep_within(keep, None).await.unwrap(), 1);
    assert!(store.turn_rows(&latest).await.unwrap().is_some());
    let next = ended(&store, "s", "3", true).await;
    assert_eq!(store.turn_rows(&next).await.unwrap().unwrap().number, number + 1);
    assert_eq!(store.session(&session("s"), 0, false).await.unwrap().unwrap().turns.len(), 2);
}

#[tokio::test]
async fn a_turn_with_very_much_goes_in_pieces_between_which_others_are_served() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "much")).await.unwrap().turn;
    let batch = |n: u32| batch_of(&turn, vec![result("r", 1, n, &"x".repeat(1_000_000))]);
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    for n in 0..30 {
        store.commit(batch(n)).await.unwrap();
    }
    store.finish_turn(TurnDone { outbox: None, ..done(&turn, "done") }).await.unwrap();
    ended(&store, "s", "2", true).await;
    home.clock.advance(2 * DAY_MS);
    let keep = Retention { max_age_ms: Some(DAY_MS), max_bytes: None };
    let mut sizes = vec![store.size().await.unwrap()];
    while store.let_go(keep).await.unwrap().more {
        store.accept(message("other", &sizes.len().to_string(), "served")).await.unwrap();
        sizes.push(store.size().await.unwrap());
    }
    assert!(sizes.windows(2).all(|pair| pair[0] - pair[1].min(pair[0]) < 11_000_000), "{sizes:?}");
    assert!(sizes.last().unwrap() < &1_000_000, "{sizes:?}");
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_has_no_more_than_a_day_of_turns_deleted_at_each_look() {
    let home = Home::new();
    let store = home.open();
    let keep = Retention { max_age_ms: Some(10 * DAY_MS), max_bytes: None };
    for n in 0..12 {
        let accepted = store.accept(message("s", &n.to_string(), "hello")).await.unwrap();
        store.finish_turn(TurnDone { outbox: None, ..done(&accepted.turn, "hi") }).await.unwrap();
        store.keep_within(keep, None).await.unwrap();
        home.clock.advance(DAY_MS);
    }
    let gone = async || store.gone().await.unwrap().map_or(0, |gone| gone.turns);
    let before = gone().await;
    // The clock of the machine says the year 2123 for an hour or two.
    home.clock.advance(36_500 * DAY_MS);
    for look in 1..=2 {
        store.keep_within(keep, None).await.unwrap();
        assert!(gone().await <= before + 1 + look, "{} of 12 at look {look}", gone().await);
    }
    home.clock.advance(-36_500 * DAY_MS);
    store.keep_within(keep, None).await.unwrap();
    assert!(gone().await <= before + 3, "{} of 12", gone().await);
    // One that was right has all go, look by look.
    home.clock.advance(40 * DAY_MS);
    for _ in 0..45 {
        store.keep_within(keep, None).await.unwrap();
    }
    assert_eq!(gone().await, 11, "all but the latest");
}
