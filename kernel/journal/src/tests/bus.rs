//! Durable topics: what is followed waits, in order, until it is done with or given up.

use drupe_agent::{Batch, Journal, TopicMessage};
use serde_json::json;

use super::*;
use crate::MOST_WAITING;

const NOW: i64 = 1_700_000_000_000;

fn published(topic: &str, n: i64) -> TopicMessage {
    TopicMessage {
        topic: topic.into(),
        payload: json!({ "n": n }),
        chain: Chain { hops: 1, ancestors: vec!["main".parse().unwrap()] },
        correlation: Some(CorrelationId::new("c-1").unwrap()),
    }
}

async fn publish(store: &Store, topic: &str, numbers: std::ops::Range<i64>) {
    for n in numbers {
        store.publish(published(topic, n)).await.unwrap();
    }
}

async fn follow(store: &Store, all: &[(&str, &str)]) {
    for (subscriber, topic) in all {
        store.follow((*subscriber).into(), (*topic).into()).await.unwrap();
    }
}

/// Subscribers with what is due for them.
async fn due(store: &Store, now_ms: i64) -> Vec<(String, i64)> {
    let found = store.due_messages(now_ms, 99).await.unwrap();
    found.into_iter().map(|m| (m.subscriber, m.payload["n"].as_i64().unwrap())).collect()
}

fn waits(subscriber: &str, n: i64) -> (String, i64) {
    (subscriber.into(), n)
}

async fn rows(store: &Store) -> (u32, u32) {
    store
        .read(|db| {
            let count = "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM deliveries)";
            Ok(db.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn only_what_somebody_follows_leaves_rows_and_all_is_published_live() {
    let home = Home::new();
    let store = home.open();
    publish(&store, "a.x", 0..1).await;
    follow(&store, &[("agent:one", "a.x"), ("agent:one", "a.x"), ("extension:two", "a.x")]).await;
    publish(&store, "a.x", 1..2).await;
    publish(&store, "a.y", 2..3).await;
    assert_eq!(rows(&store).await, (1, 2));
    assert_eq!(*home.messages.lock().unwrap(), ["a.x", "a.x", "a.y"]);
    assert_eq!(*home.due.lock().unwrap(), 1);
    assert_eq!(due(&store, NOW).await, [waits("agent:one", 1), waits("extension:two", 1)]);
    store.close().await.unwrap();

    let store = home.open();
    let message = store.due_messages(NOW, 1).await.unwrap().remove(0);
    assert_eq!((message.chain, message.correlation), (published("", 0).chain, published("", 0).correlation));
    assert_eq!((message.attempts, message.published.as_millisecond()), (0, NOW));
    store.unfollow("agent:one".into(), "a.x".into()).await.unwrap();
    let following = [("extension:two".to_owned(), "a.x".to_owned())];
    assert_eq!(store.following().await.unwrap(), following);
    publish(&store, "a.x", 3..4).await;
    assert_eq!(rows(&store).await, (2, 3));
}

#[tokio::test]
async fn a_subscriber_gets_its_messages_in_order_and_holds_up_nobody_else() {
    let home = Home::new();
    let store = home.open();
    follow(&store, &[("one", "x"), ("one", "y"), ("two", "x")]).await;
    publish(&store, "x", 0..2).await;
    publish(&store, "y", 2..3).await;
    let first = store.due_messages(NOW, 99).await.unwrap();
    assert_eq!(due(&store, NOW).await, [waits("one", 0), waits("two", 0)]);
    store.message_failed(first[0].id, "busy".into(), Some(NOW + 1000)).await.unwrap();
    assert_eq!(due(&store, NOW + 999).await, [waits("two", 0)]);
    store.message_done(first[1].id).await.unwrap();
    assert_eq!(due(&store, NOW + 999).await, [waits("two", 1)]);
    assert_eq!(store.next_due_ms().await.unwrap(), Some(NOW));

    let again = store.due_messages(NOW + 1000, 1).await.unwrap().remove(0);
    assert_eq!((again.id, again.attempts), (first[0].id, 1));
    store.message_done(again.id).await.unwrap();
    store.message_done(again.id).await.unwrap();
    // Of one topic, several at once.
    let of_x = store.due_for("one", "x", NOW, 9).await.unwrap();
    assert_eq!(of_x.iter().map(|m| m.payload["n"].as_i64().unwrap()).collect::<Vec<_>>(), [1]);
    assert_eq!(store.due_for("one", "y", NOW, 9).await.unwrap().len(), 1);
    for _ in 0..3 {
        for message in store.due_messages(NOW, 99).await.unwrap() {
            store.message_done(message.id).await.unwrap();
        }
    }
    assert_eq!((rows(&store).await, store.next_due_ms().await.unwrap()), ((0, 0), None));
}

#[tokio::test]
async fn the_number_of_a_message_is_never_given_to_another() {
    let home = Home::new();
    let store = home.open();
    follow(&store, &[("one", "x")]).await;
    let mut seen = Vec::new();
    for n in 0..4 {
        publish(&store, "x", n..n + 1).await;
        let id = store.due_messages(NOW, 1).await.unwrap()[0].id;
        assert!(!seen.contains(&id));
        seen.push(id);
        store.message_done(id).await.unwrap();
    }
}

#[tokio::test]
async fn a_dead_letter_is_listed_retried_and_dropped() {
    let home = Home::new();
    let store = home.open();
    follow(&store, &[("one", "x")]).await;
    publish(&store, "x", 0..2).await;
    let id = store.due_messages(NOW, 1).await.unwrap()[0].id;
    assert!(!store.retry_message(id).await.unwrap() && !store.drop_message(id).await.unwrap());
    store.message_failed(id, "busy".into(), Some(NOW)).await.unwrap();
    store.message_failed(id, "no such tool".into(), None).await.unwrap();
    assert_eq!(due(&store, NOW).await, [waits("one", 1)]);
    store.close().await.unwrap();

    let store = home.open();
    let dead = store.dead_messages().await.unwrap();
    assert_eq!((dead.len(), dead[0].id, dead[0].attempts), (1, id, 2));
    assert_eq!((dead[0].reason.as_str(), &dead[0].payload), ("no such tool", &json!({ "n": 0 })));
    let row = store.message(id).await.unwrap().unwrap();
    assert!(row.dead && row.message.topic == "x" && row.why.as_deref() == Some("no such tool"));

    let told = *home.due.lock().unwrap();
    assert!(store.retry_message(id).await.unwrap());
    assert_eq!(*home.due.lock().unwrap(), told + 1);
    assert_eq!(due(&store, NOW).await, [waits("one", 0)]);
    assert_eq!(store.due_messages(NOW, 1).await.unwrap()[0].attempts, 0);
    store.message_failed(id, "no".into(), None).await.unwrap();
    assert!(store.drop_message(id).await.unwrap());
    assert!(store.dead_messages().await.unwrap().is_empty());
    assert_eq!((rows(&store).await, store.message(id).await.unwrap()), ((1, 1), None));
}

#[tokio::test]
async fn messages_of_a_batch_are_committed_and_published_with_it() {
    let home = Home::new();
    let store = home.open();
    follow(&store, &[("one", "agent_result")]).await;
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let batch = |entries| Batch {
        session: session("s"),
        turn: turn.clone(),
        entries,
        events: vec![remark("one")],
        messages: vec![published("agent_result", 1)],
    };
    let unknown = steered("r", &TurnId::new("nobody").unwrap());
    assert!(store.commit(batch(vec![unknown])).await.is_err());
    assert_eq!((rows(&store).await, home.messages.lock().unwrap().len()), ((0, 0), 0));
    store.commit(batch(vec![begin("r", "main", None, "hello")])).await.unwrap();
    assert_eq!((rows(&store).await, *home.due.lock().unwrap()), ((1, 1), 1));
    assert_eq!(*home.messages.lock().unwrap(), ["agent_result"]);
}

#[tokio::test]
async fn what_does_not_fit_a_queue_is_a_dead_letter_at_once() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    follow(&store, &[("one", "x"), ("two", "x")]).await;
    let most = MOST_WAITING as i64;
    publish(&store, "x", 0..most).await;
    for n in 0..10 {
        let of_two = store.due_for("two", "x", NOW, 1).await.unwrap().remove(0);
        assert_eq!(of_two.payload["n"], n);
        store.message_done(of_two.id).await.unwrap();
    }
    publish(&store, "x", most..most + 1).await;
    let dead = store.dead_messages().await.unwrap();
    assert_eq!((dead.len(), dead[0].subscriber.as_str()), (1, "one"));
    assert!(dead[0].reason.contains("queue full"), "{}", dead[0].reason);
    let head = store.due_messages(NOW, 1).await.unwrap().remove(0);
    store.message_done(head.id).await.unwrap();
    publish(&store, "x", most + 1..most + 2).await;
    assert_eq!(store.dead_messages().await.unwrap().len(), 1);
}
