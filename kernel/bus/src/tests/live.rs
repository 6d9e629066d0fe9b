//! Live events and messages.

use drupe_agent::Observer;
use drupe_extension_api::{Event, EventBody, SessionId};
use drupe_handles::{Credit, Given, Source as _};
use drupe_journal::Published;

use super::*;
use crate::{Watch, Watched};

fn event(session: &str, seq: u64) -> Event {
    Event {
        seq,
        time: "2026-03-01T10:00:00Z".parse().unwrap(),
        session: session.parse().unwrap(),
        turn: None,
        correlation_id: None,
        agent: None,
        body: EventBody::StreamSkipped,
    }
}

fn message(topic: &str, number: u64) -> Arc<TopicMessage> {
    let chain = Chain { hops: u32::try_from(number).unwrap(), ancestors: Vec::new() };
    Arc::new(TopicMessage { topic: topic.into(), payload: json!(number), chain, correlation: None })
}

/// What there is to see now, as numbers, or `skipped`.
fn seen(watch: &mut Watch) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(watched) = watch.recv().now_or_never() {
        seen.push(match watched {
            Watched::Event(event) => event.seq.to_string(),
            Watched::Skipped => "skipped".to_owned(),
        });
    }
    seen
}

fn session(id: &str) -> SessionId {
    id.parse().unwrap()
}

#[test]
fn each_watcher_sees_the_events_of_its_session_from_when_it_came() {
    let bus = Bus::default();
    bus.event(Arc::new(event("s", 1)));
    let mut one = bus.watch(&session("s"));
    bus.event(Arc::new(event("s", 2)));
    let mut two = bus.watch(&session("s"));
    bus.event(Arc::new(event("t", 3)));
    bus.live(event("s", 4));
    assert_eq!(seen(&mut one), ["2", "4"]);
    assert_eq!(seen(&mut two), ["4"]);
}

#[test]
fn nothing_is_left_of_a_session_or_a_topic_that_nobody_follows() {
    let bus = Bus::default();
    let (s, t) = (session("s"), session("t"));
    assert!(!bus.watched(&s));
    let (one, two) = (bus.watch(&s), bus.watch(&s));
    assert!(bus.watched(&s) && !bus.watched(&t));
    drop(one);
    assert!(bus.watched(&s));
    drop(two);
    assert!(!bus.watched(&s));
    let (one, two) = (bus.subscribe("x"), bus.subscribe("x"));
    drop(one);
    assert!(bus.listens("x") && !bus.listens("y"));
    drop(two);
    assert!(!bus.listens("x"));
}

#[test]
fn a_watcher_that_is_too_slow_is_told_once_and_goes_on_with_what_happens_now() {
    let bus = Bus::default();
    let mut watch = bus.watch(&session("s"));
    for seq in 1..=1000 {
        bus.event(Arc::new(event("s", seq)));
    }
    assert_eq!(seen(&mut watch), ["skipped"]);
    bus.event(Arc::new(event("s", 1001)));
    assert_eq!(seen(&mut watch), ["1001"]);
    for seq in 1..=256 {
        bus.event(Arc::new(event("s", seq)));
    }
    assert_eq!(seen(&mut watch).len(), 256, "as many as there is room for are not too many");
    drop(watch);
    assert!(!bus.watched(&session("s")));
}

#[test]
fn what_the_journal_publishes_comes_to_those_who_follow_it() {
    let bus = Arc::new(Bus::default());
    let publish = bus.publisher();
    let mut watch = bus.watch(&session("s"));
    let mut subscription = bus.subscribe("t");
    publish(Published::Event(Arc::new(event("s", 7))));
    publish(Published::Message(message("t", 8)));
    publish(Published::Due);
    assert_eq!(seen(&mut watch), ["7"]);
    assert_eq!(pulled(&mut subscription, 1), [(8, 0)]);
    assert!(bus.due().now_or_never().is_some());
    assert!(bus.due().now_or_never().is_none());
}

/// The numbers of the next messages, each with how many were skipped before it.
fn pulled(subscription: &mut crate::Subscription, items: usize) -> Vec<(u64, u64)> {
    pulled_within(subscription, Credit { items, bytes: 1 << 20 })
}

fn pulled_within(subscription: &mut crate::Subscription, credit: Credit) -> Vec<(u64, u64)> {
    let Some(given) = subscription.next(credit).now_or_never() else { return Vec::new() };
    let Given::Items(items) = given.unwrap() else { panic!("messages are items") };
    let read = |item: &drupe_handles::Item| {
        let message: drupe_extension_api::wire::BusMessage = serde_json::from_str(item.get()).unwrap();
        (message.payload.as_u64().unwrap(), message.skipped)
    };
    items.iter().map(read).collect()
}

#[test]
fn a_subscriber_gets_the_messages_of_its_topic_up_to_its_credit() {
    let bus = Bus::default();
    let mut subscription = bus.subscribe("t");
    for (topic, number) in [("t", 1), ("u", 2), ("t", 3), ("t", 4)] {
        bus.message(message(topic, number));
    }
    assert_eq!(pulled(&mut subscription, 2), [(1, 0), (3, 0)]);
    assert_eq!(subscription.chain().map(|c| c.hops), Some(3), "the longest of what it works on");
    let least = Credit { items: 1, bytes: 1 };
    assert_eq!(pulled_within(&mut subscription, least), [(4, 0)], "one at least");
    assert_eq!(pulled(&mut subscription, 9), []);
    assert_eq!(subscription.chain(), None);
}

#[test]
fn a_subscriber_that_is_too_slow_learns_how_many_it_missed() {
    let bus = Bus::default();
    let mut subscription = bus.subscribe("t");
    for number in 1..=1030 {
        bus.message(message("t", number));
    }
    assert_eq!(pulled(&mut subscription, 2), [(7, 6), (8, 0)]);
}

#[test]
fn a_reader_is_given_no_more_bytes_than_it_takes_and_one_message() {
    let bus = Bus::default();
    let mut subscription = bus.subscribe("t");
    (1..=9).for_each(|number| bus.message(message("t", number)));
    let two = Credit { items: 9, bytes: 60 };
    assert_eq!(pulled_within(&mut subscription, two), [(1, 0), (2, 0)]);
    assert_eq!(pulled(&mut subscription, 9).len(), 7);
}
