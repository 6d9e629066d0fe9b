//! Durable messages to agents.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::*;

/// Two agents follow one topic and three messages come; `expected` is what both got in a minute.
async fn check(decide: impl Fn(&DueMessage, usize) -> Does + Send + Sync + 'static, expected: &[&str]) {
    let home = Home::new();
    let life = home.start(decide);
    life.follow(&[("a", "t"), ("b", "t")]).await;
    for number in 1..=3 {
        life.publish("t", number).await;
    }
    pass(59).await;
    let mut came = life.came();
    // The two are independent; within each the order counts.
    came.sort_by_key(|line| line.split(' ').next().map(str::to_owned));
    assert_eq!(came, expected);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn every_follower_gets_every_message_in_order_and_once() {
    check(done, &["agent:a 1", "agent:a 2", "agent:a 3", "agent:b 1", "agent:b 2", "agent:b 3"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_not_taken_comes_again_before_those_behind_it() {
    let tried = AtomicU32::new(0);
    let decide = move |message: &DueMessage, n| match &*message.subscriber {
        "agent:a" if tried.fetch_add(1, Ordering::Relaxed) < 2 => later(),
        _ => done(message, n),
    };
    let expected = [
        "agent:a 1",
        "agent:a 1",
        "agent:a 1",
        "agent:a 2",
        "agent:a 3",
        "agent:b 1",
        "agent:b 2",
        "agent:b 3",
    ];
    check(decide, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_panics_is_asked_again() {
    let first = AtomicBool::new(true);
    let decide = move |message: &DueMessage, n| match &*message.subscriber {
        "agent:b" if first.swap(false, Ordering::Relaxed) => Does::Panics,
        _ => done(message, n),
    };
    let expected =
        ["agent:a 1", "agent:a 2", "agent:a 3", "agent:b 1", "agent:b 1", "agent:b 2", "agent:b 3"];
    check(decide, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_holds_nobody_else_up() {
    let decide = |message: &DueMessage, n| match &*message.subscriber {
        "agent:a" => Does::Hangs,
        _ => done(message, n),
    };
    check(decide, &["agent:a 1", "agent:b 1", "agent:b 2", "agent:b 3"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_is_asked_again_after_a_minute() {
    let home = Home::new();
    let life = home.start(|message, n| if n == 0 { Does::Hangs } else { done(message, n) });
    life.follow(&[("a", "t")]).await;
    life.publish("t", 1).await;
    pass(70).await;
    assert_eq!(life.came(), ["agent:a 1", "agent:a 1"]);
    assert!((61_000..=61_250).contains(&life.times()[1]), "{:?}", life.times());
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn waits_double_until_the_eighth_attempt_then_the_message_is_a_dead_letter() {
    let home = Home::new();
    let life = home.start(|message, n| if n < 8 { later() } else { done(message, n) });
    life.follow(&[("a", "t")]).await;
    life.publish("t", 1).await;
    life.publish("t", 2).await;
    pass(600).await;
    assert_eq!(life.came()[..8], ["agent:a 1"; 8]);
    assert_eq!(life.came()[8..], ["agent:a 2"]);
    for (pair, base) in life.times()[..8].windows(2).zip([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000])
    {
        let wait = pair[1] - pair[0];
        assert!((base..=base + base / 4).contains(&wait), "{:?}", life.times());
    }
    assert_eq!(life.times()[8], life.times()[7], "what was behind it comes at once");
    assert_eq!(life.dead().await, ["agent:a 1 8: given up after 8 attempts: not now"]);
    let remarks = life.post.remarks.lock().unwrap().clone();
    assert_eq!(remarks.len(), 1);
    assert_eq!((&*remarks[0].subscriber, &*remarks[0].topic), ("agent:a", "t"));
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_will_never_be_taken_is_a_dead_letter_at_once_and_can_be_tried_again_by_hand() {
    let home = Home::new();
    let life = home.start(|message, n| match n {
        0 => Does::Says(Delivered::Never { why: "it has no task".into() }),
        _ => done(message, n),
    });
    life.follow(&[("a", "t")]).await;
    life.publish("t", 1).await;
    life.publish("t", 2).await;
    pass(1).await;
    assert_eq!(life.came(), ["agent:a 1", "agent:a 2"]);
    assert_eq!(life.dead().await, ["agent:a 1 1: not taken: it has no task"]);
    let dead = still(life.rows.store.dead_messages()).await.unwrap();
    assert!(still(life.rows.store.retry_message(dead[0].id)).await.unwrap());
    pass(1).await;
    assert_eq!(life.came(), ["agent:a 1", "agent:a 2", "agent:a 1"]);
    assert!(life.dead().await.is_empty());
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_for_somebody_who_is_not_here_waits_untried_until_they_come() {
    let home = Home::new();
    let here = Arc::new(AtomicBool::new(false));
    let door = Arc::clone(&here);
    let life = home.start(move |message, n| match door.load(Ordering::Relaxed) {
        true if message.attempts == 0 => done(message, n),
        true => Does::Panics,
        false => Does::Says(Delivered::NotHere),
    });
    life.follow(&[("a", "t")]).await;
    life.publish("t", 1).await;
    pass(3600).await;
    assert!(life.came().len() <= 61, "looked for once a minute: {}", life.came().len());
    here.store(true, Ordering::Relaxed);
    let before = life.came().len();
    life.deliveries.come();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(life.came().len(), before + 1, "at once");
    assert!(life.empty().await);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_it_is_looked_for_them_does_not_wait() {
    let home = Home::new();
    let deliveries = Arc::new(OnceLock::<Arc<Deliveries>>::new());
    let comes = Arc::clone(&deliveries);
    let life = home.start(move |message, n| {
        if n > 0 {
            return done(message, n);
        }
        comes.get().unwrap().come();
        Does::Ponders(Delivered::NotHere)
    });
    assert!(deliveries.set(Arc::clone(&life.deliveries)).is_ok());
    life.follow(&[("a", "t")]).await;
    life.publish("t", 1).await;
    pass(1).await;
    assert_eq!(life.came(), ["agent:a 1", "agent:a 1"]);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_under_way_when_the_kernel_ended_comes_again() {
    let home = Home::new();
    let life = home.start(|_, _| Does::Hangs);
    life.follow(&[("a", "t")]).await;
    life.publish("t", 1).await;
    life.publish("t", 2).await;
    pass(1).await;
    assert_eq!(life.came(), ["agent:a 1"]);
    life.end().await;

    let life = home.start(done);
    pass(1).await;
    assert_eq!(life.came(), ["agent:a 1", "agent:a 2"]);
    life.end().await;

    let life = home.start(done);
    pass(1).await;
    assert!(life.came().is_empty(), "what was delivered does not come again");
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_kernel_put_off_comes_when_it_is_due() {
    let home = Home::new();
    let life = home.start(|_, _| later());
    life.follow(&[("a", "t")]).await;
    life.publish("t", 1).await;
    pass(10).await;
    let tried = life.came().len();
    assert_eq!(tried, 4, "at 0, 1, 3 and 7 seconds");
    life.end().await;

    let life = home.start(done);
    pass(4).await;
    assert!(life.came().is_empty(), "not before it is due");
    pass(8).await;
    assert_eq!(life.came(), ["agent:a 1"]);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_kernel_put_off_is_not_hidden_by_what_waits_for_somebody() {
    let home = Home::new();
    let decide = |message: &DueMessage, _: usize| match &*message.subscriber {
        "agent:a" => Does::Says(Delivered::NotHere),
        _ => later(),
    };
    let life = home.start(decide);
    life.follow(&[("a", "t"), ("b", "t")]).await;
    life.publish("t", 1).await;
    pass(40).await;
    life.end().await;

    let life = home.start(|message, n| match &*message.subscriber {
        "agent:a" => Does::Says(Delivered::NotHere),
        _ => done(message, n),
    });
    pass(120).await;
    assert!(life.came().contains(&"agent:b 1".to_owned()), "{:?}", life.came());
    assert!(life.rows.asked.load(Ordering::Relaxed) < 100, "it is looked for now and then");
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_does_not_answer_is_asked_again_and_nothing_is_lost() {
    let home = Home::new();
    let life = home.start(done);
    life.follow(&[("a", "t")]).await;
    pass(1).await;
    life.rows.failing.store(3, Ordering::Relaxed);
    life.publish("t", 1).await;
    life.publish("t", 2).await;
    pass(60).await;
    // Twice it could not be asked; then the first delivery could not be noted, so it came again.
    let came = life.came();
    assert_eq!(came.first().map(String::as_str), Some("agent:a 1"));
    assert_eq!(came.last().map(String::as_str), Some("agent:a 2"));
    assert!(life.empty().await);
    assert!(life.rows.asked.load(Ordering::Relaxed) < 20, "it is not asked without a pause");
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_while_nothing_happens() {
    let home = Home::new();
    let life = home.start(done);
    life.follow(&[("a", "t")]).await;
    life.publish("t", 1).await;
    // The first look may have found a message under way, and is followed by another.
    pass(60).await;
    let asked = life.rows.asked.load(Ordering::Relaxed);
    pass(24 * 3600).await;
    assert_eq!(life.rows.asked.load(Ordering::Relaxed), asked);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn many_subscribers_with_many_messages_each_get_theirs_in_order() {
    let home = Home::new();
    let life = home.start(done);
    // More than are read at once.
    let agents: Vec<String> = (0..100).map(|n| format!("a{n}")).collect();
    let follows: Vec<(&str, &str)> = agents.iter().map(|id| (id.as_str(), "t")).collect();
    life.follow(&follows).await;
    for number in 0..5 {
        life.publish("t", number).await;
    }
    pass(1).await;
    let came = life.came();
    assert_eq!(came.len(), 500);
    for id in &agents {
        let theirs: Vec<&String> = came.iter().filter(|l| l.starts_with(&format!("agent:{id} "))).collect();
        assert_eq!(
            theirs,
            (0..5).map(|n| format!("agent:{id} {n}")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
        );
    }
    assert!(life.empty().await);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_chain_is_a_dead_letter_without_a_delivery_and_is_told_once() {
    let home = Home::new();
    let life = home.start(done);
    life.follow(&[("a", "t"), ("b", "t")]).await;
    let long = Chain { hops: 9, ancestors: vec![agent("x")] };
    let circle = Chain { hops: 2, ancestors: vec![agent("x"), agent("a")] };
    life.publish_in("t", 1, long.clone(), Some("c-1")).await;
    life.publish_in("t", 2, long.clone(), Some("c-1")).await;
    life.publish_in("t", 3, circle, Some("c-2")).await;
    life.publish_in("t", 4, Chain { hops: 8, ancestors: vec![agent("x")] }, Some("c-3")).await;
    pass(600).await;
    let mut came = life.came();
    came.sort();
    assert_eq!(came, ["agent:a 4", "agent:b 3", "agent:b 4"]);
    let dead = life.dead().await;
    assert!(dead.iter().all(|line| line.contains("the chain of events is cut")), "{dead:?}");
    // One letter for each subscriber and topic, which counts them and shows the latest.
    let cut = still(life.rows.store.dead_messages()).await.unwrap();
    let mut counted: Vec<_> =
        cut.iter().map(|d| (d.subscriber.as_str(), d.payload["n"].as_u64().unwrap(), d.cut)).collect();
    counted.sort_unstable();
    assert_eq!(counted, [("agent:a", 3, 3), ("agent:b", 2, 2)]);
    let mut told: Vec<String> = life
        .post
        .remarks
        .lock()
        .unwrap()
        .iter()
        .map(|r| format!("{} {}", r.subscriber, r.correlation.as_ref().unwrap()))
        .collect();
    told.sort();
    assert_eq!(told, ["agent:a c-1", "agent:a c-2", "agent:b c-1"]);
    let remarks: BTreeSet<u64> = life.post.remarks.lock().unwrap().iter().map(|r| r.id).collect();
    assert_eq!(remarks, cut.iter().map(|d| d.id).collect(), "what is told names a letter that is there");
    // By hand it may be tried again, and is cut again, without another word.
    assert!(still(life.rows.store.retry_message(cut[0].id)).await.unwrap());
    pass(1).await;
    assert_eq!(still(life.rows.store.dead_messages()).await.unwrap(), cut);
    assert_eq!(life.post.remarks.lock().unwrap().len(), 3);
    life.end().await;
}
