//! Durable messages to extensions.

use super::*;
use drupe_handles::Credit;

use crate::Pull;

/// An extension `e` that pulls topic `t`, with messages 1 to 3 waiting.
async fn waiting(home: &Home) -> (Life, Pull) {
    let life = home.start(|_, _| Does::Panics);
    let pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    for number in 1..=3 {
        life.publish("t", number).await;
    }
    (life, pull)
}

/// So many items, whatever their size.
fn items(items: usize) -> Credit {
    Credit { items, bytes: 1 << 20 }
}

/// The next messages as `number attempts`, within a minute; none at the end.
async fn some(pull: &Pull, credit: usize) -> Vec<String> {
    let messages = tokio::time::timeout(Duration::from_secs(60), pull.take(items(credit))).await.unwrap();
    assert!(messages.iter().all(|m| (&*m.subscriber, &*m.topic) == ("extension:e", "t")));
    messages.iter().map(|m| format!("{} {}", m.payload["n"], m.attempts)).collect()
}

/// The next message.
async fn next(pull: &Pull) -> Option<String> {
    some(pull, 1).await.pop()
}

#[tokio::test(start_paused = true)]
async fn messages_come_in_order_and_each_is_done_when_the_next_is_asked_for() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    for expected in ["1 0", "2 0", "3 0"] {
        assert_eq!(next(&pull).await.unwrap(), expected);
        pass(3600).await;
    }
    assert!(!life.empty().await, "the last is not done");
    let idle = tokio::time::timeout(Duration::from_secs(60), pull.take(items(1))).await;
    assert!(idle.is_err(), "there are no more");
    assert!(life.empty().await);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_done_when_the_kernel_ended_comes_again() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    next(&pull).await.unwrap();
    assert_eq!(next(&pull).await.unwrap(), "2 0");
    drop(pull);
    life.end().await;

    let life = home.start(|_, _| Does::Panics);
    let pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    let again = next(&pull).await.unwrap();
    assert!(again.starts_with("2 "), "{again}");
    assert!(next(&pull).await.unwrap().starts_with("3 "));
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_instance_did_not_finish_comes_again_later_and_counts_as_tried() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    assert_eq!(next(&pull).await.unwrap(), "1 0");
    drop(pull);
    let pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    let from = Instant::now();
    assert_eq!(next(&pull).await.unwrap(), "1 1");
    assert!((1_000..=1_250).contains(&from.elapsed().as_millis()), "{:?}", from.elapsed());
    assert_eq!(next(&pull).await.unwrap(), "2 0");
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_no_instance_saw_does_not_count_as_tried() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    // Time to lie ready at the handle.
    pass(1).await;
    pull.close();
    assert_eq!(next(&pull).await, None);
    pass(3600).await;
    let pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    assert_eq!(next(&pull).await.unwrap(), "1 0");
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_handle_ends_the_older_and_gets_what_that_has_not_handed_out() {
    let home = Home::new();
    let (life, older) = waiting(&home).await;
    pass(1).await;
    let newer = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    assert_eq!(next(&newer).await.unwrap(), "1 0");
    assert_eq!(next(&older).await, None);
    drop(older);
    assert_eq!(next(&newer).await.unwrap(), "2 0", "the older one's end is not the newer one's");
    drop(newer);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_handle_waits_for_what_the_older_holds() {
    let home = Home::new();
    let (life, older) = waiting(&home).await;
    assert_eq!(next(&older).await.unwrap(), "1 0");
    let newer = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    let early = tokio::time::timeout(Duration::from_secs(60), newer.take(items(1))).await;
    assert!(early.is_err(), "the order is kept");
    assert_eq!(next(&older).await, None, "asking for the next says that the last is done");
    assert_eq!(next(&newer).await.unwrap(), "2 0");
    drop((older, newer));
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn topics_of_one_extension_do_not_wait_for_each_other() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    let other = life.deliveries.pull(&extension("e"), "u").await.unwrap();
    life.publish("u", 9).await;
    let message = tokio::time::timeout(Duration::from_secs(1), other.take(items(1))).await.unwrap();
    assert_eq!(message[0].payload["n"], 9);
    drop((pull, other));
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_it_works_on_is_known_until_it_asks_for_more() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    assert_eq!(pull.chain(), None);
    next(&pull).await.unwrap();
    assert_eq!(pull.chain(), Some(Chain { hops: 1, ancestors: Vec::new() }));
    next(&pull).await.unwrap();
    next(&pull).await.unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(1), pull.take(items(1))).await;
    assert_eq!(pull.chain(), None);
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_is_too_long_does_not_reach_an_extension() {
    let home = Home::new();
    let life = home.start(|_, _| Does::Panics);
    let pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    life.publish_in("t", 1, Chain { hops: 9, ancestors: Vec::new() }, Some("c")).await;
    life.publish("t", 2).await;
    assert_eq!(next(&pull).await.unwrap(), "2 0");
    assert_eq!(life.dead().await.len(), 1);
    assert_eq!(life.post.remarks.lock().unwrap().len(), 1);
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn messages_of_different_chains_do_not_come_at_once() {
    let home = Home::new();
    let life = home.start(|_, _| Does::Panics);
    let pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    let chain =
        |hops, ancestors: &[&str]| Chain { hops, ancestors: ancestors.iter().map(|id| agent(id)).collect() };
    let (a, b, longer) = (chain(1, &["a"]), chain(1, &["b"]), chain(2, &["b"]));
    for (number, chain) in (1..).zip([&a, &a, &b, &longer, &longer, &chain(9, &["b"]), &longer, &a]) {
        life.publish_in("t", number, chain.clone(), None).await;
    }
    // In order, a chain that comes again included; one that is cut in between parts nothing.
    for (expected, chain) in
        [(&["1 0", "2 0"][..], &a), (&["3 0"], &b), (&["4 0", "5 0", "7 0"], &longer), (&["8 0"], &a)]
    {
        assert_eq!(some(&pull, 9).await, expected);
        assert_eq!(pull.chain().as_ref(), Some(chain));
    }
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn as_many_come_as_the_reader_takes_and_are_there() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    assert_eq!(some(&pull, 2).await, ["1 0", "2 0"]);
    assert_eq!(some(&pull, 9).await, ["3 0"]);
    life.publish("t", 4).await;
    assert_eq!(some(&pull, 0).await, ["4 0"], "one at least");
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_tried_before_comes_alone_and_takes_no_others_along() {
    let home = Home::new();
    let (life, mut pull) = waiting(&home).await;
    assert_eq!(some(&pull, 9).await, ["1 0", "2 0", "3 0"]);
    for attempts in 1..8 {
        drop(pull);
        pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
        let again = tokio::time::timeout(Duration::from_secs(100), pull.take(items(9))).await.unwrap();
        let again: Vec<_> = again.iter().map(|m| (m.payload["n"].as_u64().unwrap(), m.attempts)).collect();
        assert_eq!(again, [(1, attempts)]);
    }
    drop(pull);
    let pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    assert_eq!(some(&pull, 9).await, ["2 1"]);
    assert_eq!(some(&pull, 9).await, ["3 1"]);
    let dead = life.dead().await;
    assert_eq!(dead.len(), 1);
    assert!(
        dead[0].starts_with("extension:e 1 8: given up after 8 attempts: the extension went away"),
        "{dead:?}"
    );
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_kernel_put_off_comes_when_it_is_due() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    next(&pull).await.unwrap();
    drop(pull);
    sleep(Duration::from_millis(100)).await;
    life.end().await;

    let life = home.start(|_, _| Does::Panics);
    let pull = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    let from = Instant::now();
    assert_eq!(next(&pull).await.unwrap(), "1 1");
    assert!((900..=1_150).contains(&from.elapsed().as_millis()), "{:?}", from.elapsed());
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_does_not_answer_is_asked_again() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    pass(1).await;
    life.rows.failing.store(2, Ordering::Relaxed);
    assert_eq!(next(&pull).await.unwrap(), "1 0");
    assert!(life.rows.asked.load(Ordering::Relaxed) < 20, "it is not asked without a pause");
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_while_nothing_happens() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    some(&pull, 9).await;
    let reading = tokio::time::timeout(Duration::from_secs(24 * 3600), async {
        tokio::join!(pull.take(items(1)), async {
            pass(60).await;
            let asked = life.rows.asked.load(Ordering::Relaxed);
            pass(3600).await;
            assert_eq!(life.rows.asked.load(Ordering::Relaxed), asked);
        })
    });
    assert!(reading.await.is_err());
    drop(pull);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn handles_that_wait_learn_of_each_other() {
    let home = Home::new();
    let (life, older) = waiting(&home).await;
    assert_eq!(some(&older, 9).await.len(), 3);
    life.publish("t", 4).await;
    let newer = life.deliveries.pull(&extension("e"), "t").await.unwrap();
    let finish = async {
        pass(1).await;
        next(&older).await
    };
    assert_eq!(tokio::join!(next(&newer), finish), (Some("4 0".into()), None));
    let replace = async {
        pass(1).await;
        life.deliveries.pull(&extension("e"), "t").await.unwrap()
    };
    let (end, _newest) = tokio::join!(next(&newer), replace);
    assert_eq!(end, None);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_more_bytes_are_handed_out_than_the_reader_takes() {
    let home = Home::new();
    let (life, pull) = waiting(&home).await;
    // A message is `{"n":1}`.
    for (bytes, expected) in [(1, 1), (8, 2)] {
        assert_eq!(pull.take(Credit { items: 9, bytes }).await.len(), expected, "{bytes}");
    }
    life.end().await;
}
