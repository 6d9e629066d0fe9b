//! Looking things up by their ids.

use drupe_agent::{Journal, ids};
use drupe_extension_api::control::ItemText;

use super::*;
use crate::Found;

/// A turn with a call; gives the turn.
async fn called(store: &Store) -> TurnId {
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let mut reasoned = answer("r", 2, "done", &[]);
    if let Entry::Answer { message: Message::Assistant { reasoning, .. }, .. } = &mut reasoned {
        *reasoning = Some("because".into());
    }
    let commits = [
        vec![begin("r", "main", None, "hello"), step("r", 1)],
        vec![answer("r", 1, "", &["one", "two"]), intent("r", 1, 0, EffectClass::Once)],
        vec![intent("r", 1, 1, EffectClass::Pure), result("r", 1, 1, "42"), step("r", 2)],
        vec![reasoned],
    ];
    for entries in commits {
        store.commit(batch_of(&turn, entries)).await.unwrap();
    }
    turn
}

#[tokio::test]
async fn an_id_is_found_whatever_it_names() {
    let home = Home::new();
    let store = home.open();
    let turn = called(&store).await;
    store.accept(message("other", "2", effect("r", 1, 0).as_str())).await.unwrap();
    let call = |index| Some(Found::Call { turn: turn.clone(), effect: effect("r", 1, index) });
    let [first, second, third] = [0, 1, 2].map(|index| effect("r", 1, index));
    let run = invocation("r");
    let cases = [
        ("s", Some(Found::Session(session("s")))),
        (turn.as_str(), Some(Found::Turn(turn.clone()))),
        (run.as_str(), Some(Found::Run { turn: turn.clone(), invocation: invocation("r") })),
        (first.as_str(), call(0)),
        (second.as_str(), call(1)),
        (third.as_str(), None),
        ("1", None),
        ("", None),
        ("hello", None),
    ];
    for (name, expected) in cases {
        assert_eq!(store.find(name).await.unwrap(), expected, "{name}");
    }
    store.follow("one".into(), "x".into()).await.unwrap();
    let (topic, payload) = ("x".to_owned(), serde_json::Value::Null);
    let published = drupe_agent::TopicMessage { topic, payload, chain: Chain::default(), correlation: None };
    store.publish(published).await.unwrap();
    assert_eq!(store.find("1").await.unwrap(), Some(Found::Message(1)));
}

#[tokio::test]
async fn an_item_is_read_in_full_by_its_own_session_only() {
    let home = Home::new();
    let store = home.open();
    let turn = called(&store).await;
    let text = |input: Option<&str>, output: Option<&str>| {
        let (input, output) = (input.map(str::to_owned), output.map(str::to_owned));
        Some(ItemText { invocation: invocation("r"), input, output })
    };
    let (call, run) = (|index| effect("r", 1, index).to_string(), invocation("r"));
    let cases = [
        (call(0), text(Some("{}"), None)),
        (call(1), text(Some("{}"), Some("42"))),
        (format!("{run}.2.1"), text(None, Some("done"))),
        (format!("{run}.2.1.reasoning"), text(None, Some("because"))),
        (format!("{run}.3.1"), None),
        ("unknown".to_owned(), None),
    ];
    for (name, expected) in &cases {
        assert_eq!(store.item(&session("s"), name).await.unwrap(), *expected, "{name}");
        assert_eq!(store.item(&session("other"), name).await.unwrap(), None, "{name}");
    }
    let (input, output) = (Some("hello".to_owned()), None);
    let asked = ItemText { invocation: invocation("root"), input, output };
    assert_eq!(store.item(&session("s"), turn.as_str()).await.unwrap(), Some(asked));
    let next = store.accept(message("s", "2", "next")).await.unwrap().turn;
    let waits = store.item(&session("s"), next.as_str()).await.unwrap().unwrap();
    assert_eq!(waits.invocation, ids::root_invocation(&next));
    assert_eq!(store.session_turns(&session("s")).await.unwrap(), [turn, next]);
    assert!(store.session_turns(&session("unknown")).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_rows_of_a_turn_are_its_own() {
    let home = Home::new();
    let store = home.open();
    let waits = store.accept(message("s", "0", "later")).await.unwrap().turn;
    let turn = called(&store).await;
    let answered = store.finish_turn(done(&turn, "hi")).await.unwrap().unwrap();
    store.sending(answered).await.unwrap();
    store.start_turn(start(&waits, "s", vec![remark("go")])).await.unwrap();
    let rows = store.turn_rows(&turn).await.unwrap().unwrap();
    assert_eq!(
        (rows.inbound.ask.text.as_str(), rows.starts, rows.entries.len(), rows.events.len()),
        ("hello", 1, 8, 2)
    );
    assert_eq!((rows.deliveries[0].state.as_str(), rows.deliveries[0].attempts), ("sending", 1));
    let keys: Vec<_> = rows.entries.iter().map(|(key, _)| *key).collect();
    assert!(keys.is_sorted() && keys[0] != keys[7], "{keys:?}");
    assert_eq!((rows.response.unwrap().content, rows.spend.unwrap().turns), ("hi".to_owned(), 1));
    assert_eq!(store.turn_rows(&waits).await.unwrap().unwrap().entries.len(), 0);
    assert!(store.turn_rows(&TurnId::new("unknown").unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn accepting_tells_what_is_known_of_the_session() {
    let home = Home::new();
    let store = home.open();
    let first = store.accept(message("s", "1", "one")).await.unwrap().queued.unwrap();
    assert_eq!((first.earlier_turns, first.state.talks_with.clone()), (0, None));
    assert_eq!(store.queued(&first.turn).await.unwrap().unwrap(), first);
    store.select_agent(&session("s"), Some("helper".parse().unwrap())).await.unwrap();
    store.finish_turn(done(&first.turn, "hi")).await.unwrap();
    let again = store.accept(message("s", "1", "one")).await.unwrap();
    assert_eq!((again.duplicate, again.queued), (true, None));
    store.close().await.unwrap();

    let store = home.open();
    let second = store.accept(message("s", "2", "two")).await.unwrap().queued.unwrap();
    assert_eq!((second.earlier_turns, second.state.talks_with.clone()), (1, Some("helper".parse().unwrap())));
    assert_eq!(store.unfinished().await.unwrap(), [second]);
}

#[tokio::test]
async fn a_plan_is_kept_and_a_skipped_stream_is_not() {
    let home = Home::new();
    let store = home.open();
    let plan = EventBody::ItemUpdated { id: "p".into(), item: ItemKind::TodoList, delta: "[]".into() };
    let told = vec![(None, EventBody::StreamSkipped), (None, plan.clone()), remark("last")];
    store.record_events(session("s"), None, told).await.unwrap();
    assert_eq!(home.published(&session("s")), [0, 1, 2]);
    let kept = store.events_after(&session("s"), 0, 9).await.unwrap();
    assert_eq!((kept.len(), &kept[0].body), (2, &plan));
}
