//! Durable topics: what is followed waits, in order, until it is done with or given up.

use drupe_agent::{Batch, Journal, TopicMessage};
use serde_json::json;

use super::*;
use crate::{MOST_WAITING, bus::dead::MOST_DEAD};

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

/// Dead letters, as subscriber, number of the latest message, and how many were cut.
async fn dead(store: &Store) -> Vec<(String, i64, u64)> {
    let all = store.dead_messages().await.unwrap();
    all.into_iter().map(|d| (d.subscriber, d.payload["n"].as_i64().unwrap(), d.cut)).collect()
}

fn died(subscriber: &str, n: i64, cut: u64) -> (String, i64, u64) {
    (subscriber.into(), n, cut)
}

/// How many dead letters there are, the first of them, and how many were let go.
async fn pile(store: &Store) -> (usize, i64, u64) {
    let all = store.dead_messages().await.unwrap();
    assert!(all.iter().all(|d| d.let_go == all[0].let_go));
    (all.len(), all[0].payload["n"].as_i64().unwrap(), all[0].let_go)
}

/// Gives up the first messages that wait for a subscriber.
async fn give_up(store: &Store, subscriber: &str, topic: &str, count: usize) {
    for message in store.due_for(subscriber, topic, NOW, count).await.unwrap() {
        store.message_failed(message.id, "no".into(), None).await.unwrap();
    }
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
        messages: vec![published("agent_result", 1)],
        ..batch_of(&turn, [vec![said("one")], entries].concat())
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
    // Nor do its dead letters grow without end.
    store.unfollow("two".into(), "x".into()).await.unwrap();
    publish(&store, "x", most + 2..most + 3 + MOST_DEAD as i64).await;
    assert_eq!(pile(&store).await, (MOST_DEAD as usize, most + 3, 2));
}

#[tokio::test]
async fn the_latest_thousand_dead_letters_of_a_subscriber_are_kept_and_those_let_go_are_counted() {
    let home = Home::new();
    let storage = Storage::Process(home.path());
    let store = home.open_as(&storage).unwrap();
    follow(&store, &[("one", "x"), ("two", "x")]).await;
    let kept = MOST_DEAD as usize;
    publish(&store, "x", 0..MOST_DEAD as i64 + 4).await;
    let first = store.due_messages(NOW, 1).await.unwrap().remove(0);
    // All but the first and the last two.
    for message in store.due_for("one", "x", NOW, kept + 2).await.unwrap().split_off(1) {
        store.message_failed(message.id, "no".into(), None).await.unwrap();
    }
    assert_eq!(pile(&store).await, (kept, 2, 1));
    // Who is told of one that was given up finds it, however old it is.
    store.message_failed(first.id, "no".into(), None).await.unwrap();
    assert_eq!(pile(&store).await, (kept, 0, 2));
    store.close().await.unwrap();

    let store = home.open_as(&storage).unwrap();
    assert_eq!(pile(&store).await, (kept, 0, 2));
    give_up(&store, "one", "x", 1).await;
    assert_eq!(pile(&store).await, (kept, 3, 3));
    // Messages that nobody else waits for go with their last delivery.
    let waiting = store.due_for("two", "x", NOW, 2 * kept).await.unwrap();
    for message in &waiting {
        store.message_done(message.id).await.unwrap();
    }
    assert_eq!((waiting.len(), rows(&store).await), (kept + 4, (MOST_DEAD as u32 + 1, MOST_DEAD as u32 + 1)));
}

#[tokio::test]
async fn how_many_were_let_go_is_forgotten_with_the_last_dead_letter_that_is_dropped() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    follow(&store, &[("one", "x")]).await;
    publish(&store, "x", 0..MOST_DEAD as i64 + 2).await;
    give_up(&store, "one", "x", MOST_DEAD as usize + 2).await;
    assert_eq!(pile(&store).await, (MOST_DEAD as usize, 2, 2));
    assert_eq!(rows(&store).await, (MOST_DEAD as u32, MOST_DEAD as u32), "they are gone with all they had");
    let mut all = store.dead_messages().await.unwrap();
    let last = all.pop().unwrap();
    for message in all {
        assert!(store.drop_message(message.id).await.unwrap());
    }
    assert_eq!(pile(&store).await, (1, MOST_DEAD as i64 + 1, 2));
    assert!(store.drop_message(last.id).await.unwrap());
    publish(&store, "x", 0..1).await;
    give_up(&store, "one", "x", 1).await;
    assert_eq!(pile(&store).await, (1, 0, 0));
}

#[tokio::test]
async fn messages_of_cut_chains_are_one_dead_letter_for_each_subscriber_and_topic() {
    let home = Home::new();
    let store = home.open();
    follow(&store, &[("one", "x"), ("one", "y"), ("two", "x")]).await;
    publish(&store, "x", 0..4).await;
    publish(&store, "y", 4..5).await;
    let of_one = store.due_for("one", "x", NOW, 9).await.unwrap();
    let of_two = store.due_for("two", "x", NOW, 9).await.unwrap();
    let on_y = store.due_for("one", "y", NOW, 9).await.unwrap();
    let cut = async |id: u64, why: &str| store.message_cut(id, why.into()).await.unwrap();
    store.message_failed(of_one[0].id, "no such tool".into(), None).await.unwrap();
    let letter = of_one[1].id;
    assert_eq!(cut(letter, "cut at 1").await, letter);
    assert_eq!(store.message(letter).await.unwrap().unwrap().why.unwrap(), "cut at 1");
    assert_eq!(cut(of_one[2].id, "cut at 2").await, letter);
    assert_eq!(cut(of_two[0].id, "cut").await, of_two[0].id);
    assert_eq!(cut(on_y[0].id, "cut").await, on_y[0].id);
    assert_eq!(
        dead(&store).await,
        [died("one", 0, 0), died("two", 0, 1), died("one", 2, 2), died("one", 4, 1)]
    );
    // What nobody waits for any more is gone: of message 1 the second subscriber's is left.
    assert_eq!(rows(&store).await, (5, 8));
    store.close().await.unwrap();

    let store = home.open();
    let cut = async |id: u64, why: &str| store.message_cut(id, why.into()).await.unwrap();
    assert_eq!(cut(of_one[3].id, "cut at 3").await, letter);
    let row = store.message(letter).await.unwrap().unwrap();
    assert_eq!(row.why.as_deref(), Some("the latest of 3 that were cut: cut at 3"));
    assert_eq!((row.dead, row.message.payload["n"].as_i64(), row.message.attempts), (true, Some(3), 1));
    assert_eq!(store.message(of_one[3].id).await.unwrap(), None);

    // Cut again by hand it is the same letter, and no further message.
    assert!(store.retry_message(letter).await.unwrap());
    assert_eq!(due(&store, NOW).await, [waits("one", 3), waits("two", 1)]);
    assert_eq!(cut(letter, "cut again").await, letter);
    assert!(dead(&store).await.contains(&died("one", 3, 3)));
    // One that is cut while it is retried joins it.
    assert!(store.retry_message(letter).await.unwrap());
    publish(&store, "x", 5..6).await;
    let fresh = store.due_for("one", "x", NOW, 9).await.unwrap()[1].id;
    assert_eq!(cut(fresh, "cut at 5").await, fresh);
    assert_eq!(cut(letter, "cut again").await, letter);
    let all = store.dead_messages().await.unwrap();
    let joined = all.iter().find(|d| d.id == letter).unwrap();
    assert_eq!((joined.cut, &joined.payload, joined.reason.as_str()), (4, &json!({ "n": 5 }), "cut at 5"));
    // Given up for another reason it is none of a cut chain any more.
    assert!(store.retry_message(letter).await.unwrap());
    store.message_failed(letter, "no such tool".into(), None).await.unwrap();
    assert!(dead(&store).await.contains(&died("one", 5, 0)));
    // What joins a letter leaves nothing behind.
    let before = rows(&store).await;
    publish(&store, "y", 6..7).await;
    let fresh = store.due_for("one", "y", NOW, 9).await.unwrap()[0].id;
    assert_eq!(cut(fresh, "cut").await, on_y[0].id);
    assert!(dead(&store).await.contains(&died("one", 6, 2)));
    assert_eq!(rows(&store).await, before);
}

#[tokio::test]
async fn what_nobody_would_take_is_not_retried() {
    let home = Home::new();
    let store = home.open();
    follow(&store, &[("one", "x"), ("one", "y"), ("two", "x")]).await;
    publish(&store, "x", 0..1).await;
    let id = store.due_for("one", "x", NOW, 1).await.unwrap()[0].id;
    store.message_failed(id, "no".into(), None).await.unwrap();
    store.unfollow("one".into(), "x".into()).await.unwrap();
    assert!(!store.retry_message(id).await.unwrap(), "others follow the topic, and it follows others");
    assert_eq!(dead(&store).await, [died("one", 0, 0)]);
    follow(&store, &[("one", "x")]).await;
    assert!(store.retry_message(id).await.unwrap());
    assert_eq!(due(&store, NOW).await, [waits("one", 0), waits("two", 0)]);
}

#[tokio::test]
async fn what_was_put_off_before_the_clock_was_set_back_is_due() {
    let home = Home::new();
    let store = home.open();
    follow(&store, &[("agent:a", "t"), ("agent:b", "t")]).await;
    home.clock.advance(86_400_000);
    publish(&store, "t", 0..1).await;
    home.clock.advance(-86_400_000);
    let now = drupe_agent::Clock::now_ms(&*home.clock);
    assert_eq!(due(&store, now).await, [waits("agent:a", 0), waits("agent:b", 0)]);
    let first = store.due_messages(now, 1).await.unwrap()[0].id;
    store.message_failed(first, "not now".into(), Some(now + 60_000)).await.unwrap();
    assert_eq!(due(&store, now).await, [waits("agent:b", 0)], "what was put off just now waits");
    assert_eq!(store.due_for("agent:b", "t", now, 9).await.unwrap().len(), 1);
}
