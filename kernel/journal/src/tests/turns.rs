//! Intake, and a turn's way to its end.

use drupe_extension_api::OutputSpec;

use super::*;
use crate::{Accepted, Counts};

fn correlation() -> CorrelationId {
    CorrelationId::new("c-1").unwrap()
}

#[tokio::test]
async fn a_message_that_comes_twice_gives_one_turn() {
    let home = Home::new();
    let store = home.open();
    let first = store.accept(message("s", "1", "hello")).await.unwrap();
    let again = store.accept(message("s", "1", "hello")).await.unwrap();
    assert_eq!(again, Accepted { duplicate: true, ..first.clone() });

    let mut other_channel = message("s", "1", "hello");
    other_channel.ask.channel = "other".into();
    let by = |origin| Inbound { origin, ..message("s", "1", "hello") };
    let others = [
        other_channel,
        by(Origin::Client { token: Some("other".into()) }),
        by(Origin::Extension("test".parse().unwrap())),
        by(Origin::Topic { follower: "test".parse().unwrap() }),
    ];
    for other in others {
        assert!(!store.accept(other.clone()).await.unwrap().duplicate, "{other:?}");
        assert!(store.accept(other).await.unwrap().duplicate);
    }
    store.close().await.unwrap();

    let store = home.open();
    let after_restart = store.accept(message("s", "1", "hello")).await.unwrap();
    assert_eq!(after_restart, Accepted { duplicate: true, ..first });
    assert_eq!(store.counts().await.unwrap(), Counts { sessions: 1, queued_turns: 5, ..Counts::default() });
}

#[tokio::test]
async fn a_queued_turn_comes_back_whole_and_in_order() {
    let home = Home::new();
    let store = home.open();
    let ask = Submit {
        agent: Some("helper".parse().unwrap()),
        model: Some("p/m".into()),
        output: Some(OutputSpec { format: drupe_extension_api::Format::Json, schema: None }),
        time_budget_ms: Some(5),
        queue: Some(QueueMode::Steer),
        ..message("s", "1", "one").ask
    };
    let full = Inbound {
        ask,
        origin: Origin::Topic { follower: "helper".parse().unwrap() },
        chain: Chain { hops: 2, ancestors: vec!["other".parse().unwrap()] },
        correlation: None,
    };
    let first = store.accept(full.clone()).await.unwrap().turn;
    let second = store.accept(message("t", "2", "two")).await.unwrap().turn;
    store.start_turn(start(&second, "t", vec![remark("go")])).await.unwrap();
    store.close().await.unwrap();

    let store = home.open();
    let found = store.unfinished().await.unwrap();
    assert_eq!(found.iter().map(|t| &t.turn).collect::<Vec<_>>(), [&first, &second]);
    assert_eq!((&found[0].inbound, found[0].started, &found[0].root), (&full, false, &None));
    assert_eq!(found[0].accepted.as_millisecond(), 1_700_000_000_000);
    assert_eq!((found[1].started, &found[1].root), (true, &Some(invocation("root"))));
    assert_eq!(found[1].correlation, Some(correlation()));
    assert_eq!(store.queued(&second).await.unwrap().unwrap(), found[1]);
    assert_eq!(store.counts().await.unwrap().queued_turns, 1);
}

#[tokio::test]
async fn the_starts_of_a_turn_are_counted_over_restarts() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let other = store.accept(message("t", "2", "hello")).await.unwrap().turn;
    let go = |store: &Store, turn: &TurnId| {
        let (store, start) = (store.clone(), start(turn, "s", vec![remark("go")]));
        async move { store.start_turn(start).await.unwrap() }
    };
    assert_eq!(go(&store, &turn).await, 1);
    assert_eq!(go(&store, &turn).await, 2);
    store.close().await.unwrap();

    let store = home.open();
    home.clock.advance(1000);
    assert_eq!((go(&store, &turn).await, go(&store, &other).await), (3, 1));
    let began: Vec<i64> = store
        .read(|db| {
            let mut all = db.prepare("SELECT started_ms FROM turns ORDER BY number")?;
            Ok(all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
        .await
        .unwrap();
    assert_eq!(began, [1_700_000_000_000, 1_700_000_001_000]);
}

#[tokio::test]
async fn a_turn_is_finished_once() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    assert!(store.finish_turn(done(&turn, "hi")).await.unwrap().is_some());
    let again = store.finish_turn(done(&turn, "hi again")).await;
    assert_eq!(again, Err(StoreError::Finished(turn.clone())));
    let again = store.start_turn(start(&turn, "s", Vec::new())).await;
    assert_eq!(again, Err(StoreError::Finished(turn.clone())));

    assert_eq!(store.queued(&turn).await.unwrap(), None);
    assert!(store.unfinished().await.unwrap().is_empty());
    assert_eq!(store.due_deliveries().await.unwrap().len(), 1);
    let nobody = TurnId::new("nobody").unwrap();
    assert_eq!(store.finish_turn(done(&nobody, "x")).await, Err(StoreError::UnknownTurn(nobody)));
}

#[tokio::test]
async fn events_of_a_turn_bear_its_correlation_id_and_continue_at_any_position() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", vec![remark("1"), remark("2")])).await.unwrap();
    store.record_events(session("s"), None, vec![remark("3")]).await.unwrap();
    store.finish_turn(done(&turn, "hi")).await.unwrap();

    let all = store.events_after(&session("s"), 0, 100).await.unwrap();
    assert_eq!(all.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(all[0].correlation_id, Some(correlation()));
    assert_eq!((&all[2].turn, &all[2].correlation_id), (&None, &None));
    assert_eq!(store.events_after(&session("s"), 1, 2).await.unwrap(), all[1..3]);
    assert!(store.events_after(&session("s"), u64::MAX, 9).await.unwrap().is_empty());
    assert!(store.events_after(&session("other"), 0, 9).await.unwrap().is_empty());
    let published: Vec<Event> = home.published.lock().unwrap().iter().map(|e| (**e).clone()).collect();
    assert_eq!(published, all);
}

#[tokio::test]
async fn a_live_part_is_published_without_a_number_and_not_kept() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    let part = EventBody::ItemUpdated { id: "i".into(), item: ItemKind::AgentMessage, delta: "he".into() };
    let told = vec![item_started("i"), (None, part), item_completed("i")];
    store.record_events(session("s"), None, told).await.unwrap();
    assert_eq!(home.published(&session("s")), [1, 0, 2]);
    assert_eq!(store.events_after(&session("s"), 0, 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_a_crash_left_open_is_completed_as_interrupted() {
    let home = Home::new();
    let store = home.open();
    store.record_events(session("s"), None, vec![item_started("of no turn")]).await.unwrap();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let told = vec![item_started("a"), item_started("b"), item_completed("a"), item_started("c")];
    store.record_events(session("s"), Some(turn.clone()), told).await.unwrap();
    let other = store.accept(message("s", "2", "hello")).await.unwrap().turn;
    store.record_events(session("s"), Some(other), vec![item_started("of another turn")]).await.unwrap();
    home.clock.advance(250);
    assert_eq!(store.resume(&turn).await.unwrap().interrupted, 2);
    assert_eq!(store.resume(&turn).await.unwrap().interrupted, 0);

    let events = store.events_after(&session("s"), 6, 9).await.unwrap();
    let closed: Vec<_> = events
        .iter()
        .map(|event| match &event.body {
            EventBody::ItemCompleted { item, outcome, elapsed_ms } => {
                (item.id.as_str(), *outcome, *elapsed_ms)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(closed, [("b", ItemOutcome::Interrupted, 250), ("c", ItemOutcome::Interrupted, 250)]);
    assert_eq!(events[0].turn, Some(turn));
}
