//! A topic holds so many bytes that wait, and who publishes more hears of it.

use drupe_agent::TopicMessage;
use serde_json::json;

use super::*;
use crate::bus::bytes::MOST_BYTES;

const NOW: i64 = 1_700_000_000_000;

/// The size of a message as it is kept.
const SIZE: usize = 4 * 1024 * 1024;

/// As many as fit a topic.
const FIT: u64 = MOST_BYTES / SIZE as u64;

fn large(topic: &str) -> TopicMessage {
    // With its quotes.
    let payload = json!("x".repeat(SIZE - 2));
    TopicMessage { topic: topic.into(), payload, chain: Chain::default(), correlation: None }
}

async fn fill(store: &Store, topic: &str) -> Result<(), StoreError> {
    for _ in 0..FIT {
        store.publish(large(topic)).await?;
    }
    Ok(())
}

async fn first(store: &Store, subscriber: &str, topic: &str) -> u64 {
    store.due_for(subscriber, topic, NOW, 1).await.unwrap().remove(0).id
}

#[tokio::test]
async fn a_full_topic_refuses_the_next_message_until_all_who_follow_have_taken_one() {
    let home = Home::new();
    let store = home.open_as(&Storage::Process(home.path())).unwrap();
    for subscriber in ["one", "two"] {
        store.follow(subscriber.into(), "x".into()).await.unwrap();
    }
    store.follow("one".into(), "y".into()).await.unwrap();
    fill(&store, "x").await.unwrap();
    let full = StoreError::TopicFull("x".into());
    assert_eq!(store.publish(large("x")).await, Err(full.clone()));
    let said = full.to_string();
    assert!(said.contains("`x` is full") && said.contains("64 MiB"), "{said}");
    store.publish(large("y")).await.unwrap();
    store.publish(large("nobody follows it")).await.unwrap();
    // Also in the next process.
    store.close().await.unwrap();
    let store = home.open_as(&Storage::Process(home.path())).unwrap();
    assert_eq!(store.publish(large("x")).await, Err(full.clone()));
    let taken = first(&store, "one", "x").await;
    store.message_done(taken).await.unwrap();
    assert_eq!(store.publish(large("x")).await, Err(full.clone()), "it still waits for the other one");
    // A message that is given up waits no longer, and one that is tried again does.
    let given_up = first(&store, "two", "x").await;
    store.message_failed(given_up, "no".into(), None).await.unwrap();
    assert!(store.retry_message(given_up).await.unwrap());
    assert_eq!(store.publish(large("x")).await, Err(full.clone()));
    store.message_cut(given_up, "the chain of events is cut".into()).await.unwrap();
    store.publish(large("x")).await.unwrap();
    assert_eq!(store.publish(large("x")).await, Err(full));
}

#[tokio::test]
async fn what_tells_of_a_turn_s_end_is_a_dead_letter_where_its_topic_is_full_and_the_turn_ends() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    store.follow("one".into(), "x".into()).await.unwrap();
    fill(&store, "x").await.unwrap();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    store
        .finish_turn(TurnDone {
            last: Batch { messages: vec![large("x")], ..batch_of(&turn, Vec::new()) },
            ..done(&turn, "hi")
        })
        .await
        .unwrap();
    let dead = store.dead_messages().await.unwrap();
    assert!(dead.len() == 1 && dead[0].reason.contains("`x` is full"), "{}", dead.len());
    assert_eq!(store.turn_result(&turn, true).await.unwrap().unwrap().content, "hi");
    let taken = first(&store, "one", "x").await;
    store.message_done(taken).await.unwrap();
    store.publish(large("x")).await.unwrap();
}
