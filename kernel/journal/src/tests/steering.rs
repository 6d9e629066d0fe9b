//! Turns that take others in, and the beginnings of turns.

use drupe_agent::{Batch, Journal};
use drupe_extension_api::{FailureClass, ResponseStatus};

use super::*;

fn batch(turn: &TurnId, entries: Vec<Entry>) -> Batch {
    let entries = entries.into_iter().chain([said("committed")]).collect();
    batch_of(turn, entries)
}

/// Kinds of the events of a session, with their turns.
async fn told(store: &Store) -> Vec<(String, Option<TurnId>)> {
    let kind =
        |event: &Event| serde_json::to_value(&event.body).unwrap()["kind"].as_str().unwrap().to_owned();
    let events = store.events_after(&session("s"), 0, 99).await.unwrap();
    events.iter().map(|event| (kind(event), event.turn.clone())).collect()
}

#[tokio::test]
async fn a_message_that_is_taken_in_ends_its_own_turn_in_the_same_commit() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let taken = store.accept(message("s", "2", "and more")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", vec![remark("go")])).await.unwrap();
    store.commit(batch(&turn, vec![begin("r", "main", None, "hello")])).await.unwrap();
    store.commit(batch(&turn, vec![steered("r", &taken)])).await.unwrap();

    assert_eq!(store.queued(&taken).await.unwrap(), None);
    let result = store.turn_result(&taken, false).await.unwrap().unwrap();
    assert_eq!(result.status, Some(ResponseStatus::Success));
    assert!(result.content.contains(turn.as_str()), "{}", result.content);
    assert!(store.due_deliveries().await.unwrap().is_empty());
    let of = |turn: &TurnId| Some(turn.clone());
    let expected = [
        ("interaction.diagnostic", of(&turn)),
        ("interaction.diagnostic", of(&turn)),
        ("interaction.turn.steered", of(&turn)),
        ("interaction.diagnostic", of(&turn)),
        ("interaction.turn.started", of(&taken)),
        ("interaction.turn.completed", of(&taken)),
    ];
    assert_eq!(told(&store).await, expected.map(|(kind, turn)| (kind.to_owned(), turn)));
    let rows = store.turn_rows(&taken).await.unwrap().unwrap();
    assert_eq!((rows.starts, rows.events.len()), (0, 2));
    assert_eq!(rows.events[0].correlation_id, Some(CorrelationId::new("c-1").unwrap()));
    assert_eq!(store.turn_rows(&turn).await.unwrap().unwrap().events.len(), 4);
    // Its end is no answer to anybody.
    assert!(
        store
            .conversation(&session("s"), ToldTurns { most: 9, ..ToldTurns::default() })
            .await
            .unwrap()
            .is_empty()
    );
    // The transcript of the turn that took it in shows it.
    let transcript = store.turn_result(&turn, false).await.unwrap().unwrap().transcript;
    assert_eq!(transcript.last().unwrap().message, Message::User { content: "and more".into() });
}

#[tokio::test]
async fn a_turn_that_has_ended_is_not_ended_again_by_being_taken_in() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let taken = store.accept(message("s", "2", "and more")).await.unwrap().turn;
    let stopped = AgentResponse::error(FailureClass::Cancelled, "stopped");
    store.finish_turn(TurnDone { response: stopped, ..done(&taken, "") }).await.unwrap();
    store.commit(batch(&turn, vec![begin("r", "main", None, "hello"), steered("r", &taken)])).await.unwrap();
    let result = store.turn_result(&taken, true).await.unwrap().unwrap();
    assert_eq!((result.class, result.transcript.len()), (Some(FailureClass::Cancelled), 0));
    let unknown = steered("r", &TurnId::new("nobody").unwrap());
    assert!(store.commit(batch(&turn, vec![unknown])).await.is_err());
}

#[tokio::test]
async fn a_turn_begins_with_its_first_commit() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let beginning = store.beginning(start(&turn, "s", vec![remark("go")]));
    assert!(!store.queued(&turn).await.unwrap().unwrap().started);
    beginning
        .commit(batch(&turn, vec![begin("root", "main", None, "hello"), step("root", 1)]))
        .await
        .unwrap();
    let queued = store.queued(&turn).await.unwrap().unwrap();
    assert_eq!((queued.started, queued.root), (true, Some(invocation("root"))));
    assert_eq!(beginning.rest(), None);
    beginning.commit(batch(&turn, vec![answer("root", 1, "hi", &[])])).await.unwrap();

    let rows = store.turn_rows(&turn).await.unwrap().unwrap();
    assert_eq!((rows.starts, rows.entries.len()), (1, 5));
    let events = store.events_after(&session("s"), 0, 99).await.unwrap();
    assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(events.iter().all(|e| e.correlation_id == Some(CorrelationId::new("c-1").unwrap())));
    assert_eq!(home.published(&session("s")), [1, 2, 3]);
    let recorded = store.recorded(&turn).await.unwrap();
    assert_eq!(recorded.run(&invocation("root")).unwrap().steps.len(), 1);
}

#[tokio::test]
async fn a_first_commit_that_fails_leaves_the_beginning_to_the_next() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let beginning = store.beginning(start(&turn, "s", vec![remark("go")]));
    let unknown = steered("r", &TurnId::new("nobody").unwrap());
    assert!(beginning.commit(batch(&turn, vec![unknown])).await.is_err());
    assert_eq!(store.turn_rows(&turn).await.unwrap().unwrap().starts, 0);
    beginning.commit(batch(&turn, vec![begin("root", "main", None, "hello")])).await.unwrap();
    assert_eq!(store.turn_rows(&turn).await.unwrap().unwrap().starts, 1);
    assert_eq!(store.events_after(&session("s"), 0, 99).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_turn_that_records_nothing_begins_with_its_end() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let beginning = store.beginning(start(&turn, "s", vec![remark("go")]));
    store.finish_turn(TurnDone { start: beginning.rest(), ..done(&turn, "hi") }).await.unwrap();
    let rows = store.turn_rows(&turn).await.unwrap().unwrap();
    assert_eq!((rows.starts, rows.events.len(), rows.root), (1, 2, Some(invocation("root"))));
    assert_eq!(rows.events[0].correlation_id, Some(CorrelationId::new("c-1").unwrap()));
}
