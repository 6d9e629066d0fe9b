//! Turns that are stopped or interrupted: it is recorded before whoever did so is told.

use super::*;

fn interrupt(id: &str, external_id: &str) -> Inbound {
    let mut message = message(id, external_id, "STOP");
    message.ask.queue = Some(QueueMode::Interrupt);
    message
}

/// Turns without an answer, by their texts, and why they are to end.
async fn open(store: &Store) -> Vec<(String, Option<String>)> {
    let unfinished = store.unfinished().await.unwrap();
    unfinished.into_iter().map(|turn| (turn.inbound.ask.text, turn.cancelled)).collect()
}

async fn accept(store: &Store, external_id: &str, text: &str) -> TurnId {
    store.accept(message("s", external_id, text)).await.unwrap().turn
}

#[tokio::test]
async fn an_interrupt_is_accepted_and_cancels_what_runs_in_one_commit() {
    let home = Home::new();
    let store = home.open();
    let running = accept(&store, "1", "delete everything").await;
    store.start_turn(start(&running, "s", vec![])).await.unwrap();
    accept(&store, "2", "and then this").await;
    store.accept(message("other", "3", "elsewhere")).await.unwrap();
    let accepted = store.accept(interrupt("s", "4")).await.unwrap();
    assert_eq!(accepted.superseded, std::slice::from_ref(&running));
    let why = Some(format!("turn `{}` interrupted it", accepted.turn));
    assert_eq!(store.queued(&running).await.unwrap().unwrap().cancelled, why, "as it is remembered");
    // Sent again, it interrupts nothing that began meanwhile.
    let again = store.accept(interrupt("s", "4")).await.unwrap();
    assert_eq!((again.duplicate, again.superseded.len()), (true, 0));
    drop(store);
    let expected = [("delete everything", why), ("and then this", None), ("elsewhere", None), ("STOP", None)];
    let expected = expected.map(|(text, why)| (text.to_owned(), why));
    assert_eq!(open(&home.open()).await, expected, "as the next process reads it");
}

#[tokio::test]
async fn an_interrupt_cancels_what_is_next_where_nothing_has_begun() {
    let home = Home::new();
    let store = home.open();
    let first = accept(&store, "1", "first").await;
    accept(&store, "2", "second").await;
    let accepted = store.accept(interrupt("s", "3")).await.unwrap();
    assert_eq!(accepted.superseded, std::slice::from_ref(&first));
    store.finish_turn(done(&first, "it was quicker")).await.unwrap();
    assert_eq!(store.turn_result(&first, true).await.unwrap().unwrap().content, "it was quicker");
    let none = store.accept(interrupt("new", "4")).await.unwrap();
    assert_eq!(none.superseded, []);
}

#[tokio::test]
async fn of_two_interrupts_close_together_the_second_interrupts_the_first() {
    let home = Home::new();
    let store = home.open();
    let running = accept(&store, "1", "delete everything").await;
    store.start_turn(start(&running, "s", vec![])).await.unwrap();
    let first = store.accept(interrupt("s", "2")).await.unwrap();
    assert_eq!(first.superseded, [running]);
    let second = store.accept(interrupt("s", "3")).await.unwrap();
    assert_eq!(second.superseded, [first.turn], "what was interrupted has not ended yet");
}

#[tokio::test]
async fn a_stop_is_recorded_and_the_first_reason_stays() {
    let home = Home::new();
    let store = home.open();
    let turn = accept(&store, "1", "delete everything").await;
    store.start_turn(start(&turn, "s", vec![])).await.unwrap();
    assert!(store.cancel_turn(&turn, "stopped".into()).await.unwrap());
    store.accept(interrupt("s", "2")).await.unwrap();
    drop(store);
    let store = home.open();
    assert_eq!(open(&store).await[0].1.as_deref(), Some("stopped"));
    store.finish_turn(done(&turn, "ended")).await.unwrap();
    assert!(!store.cancel_turn(&turn, "late".into()).await.unwrap(), "it has its end");
    let nobody = TurnId::new("nobody").unwrap();
    assert!(matches!(store.cancel_turn(&nobody, "x".into()).await, Err(StoreError::UnknownTurn(_))));
}

#[tokio::test]
async fn what_cannot_be_accepted_interrupts_nothing() {
    let home = Home::new();
    let store = home.open();
    let running = accept(&store, "1", "delete everything").await;
    store
        .read(|db| {
            let path = db.path().unwrap_or_default().to_owned();
            let refuse = "CREATE TRIGGER refuse AFTER UPDATE OF cancelled ON turns BEGIN SELECT raise(ABORT, 'no'); END";
            Ok(rusqlite::Connection::open(path)?.execute_batch(refuse)?)
        })
        .await
        .unwrap();
    assert!(store.accept(interrupt("s", "2")).await.is_err());
    assert_eq!(store.unfinished().await.unwrap().len(), 1, "one without the other is not recorded");
    assert_eq!(store.queued(&running).await.unwrap().unwrap().cancelled, None);
}

#[tokio::test]
async fn turns_of_a_journal_of_version_4_were_not_cancelled() {
    let home = Home::new();
    let db = rusqlite::Connection::open(home.path()).unwrap();
    db.execute_batch(include_str!("version_4.sql")).unwrap();
    db.execute_batch(
        "INSERT INTO sessions (number, id, created_ms, updated_ms, turns) VALUES (1, 's', 1, 1, 3);
         INSERT INTO turns (number, id, session, channel, external_id, kind, queue, text, accepted_ms, after_seq, starts)
         VALUES (1, 't', 1, 'test', '1', 'user', 'followup', 'go on', 1, 0, 1);
         INSERT INTO log VALUES (4294967297, 1, 1, 1, NULL, NULL);",
    )
    .unwrap();
    drop(db);
    let store = home.open();
    assert_eq!(open(&store).await, [("go on".to_owned(), None)]);
    assert_eq!(store.unfinished().await.unwrap()[0].earlier_turns, 2);
    store.record_events(session("s"), None, vec![remark("new")]).await.unwrap();
    assert_eq!(store.session(&session("s"), 0, false).await.unwrap().unwrap().last_seq, 2);
}
