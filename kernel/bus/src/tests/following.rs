//! Who follows what for good.

use super::*;

/// The durable subscriptions, as `subscriber topic`.
async fn following(life: &Life) -> Vec<String> {
    let mut all: Vec<String> =
        life.rows.following().await.unwrap().iter().map(|(who, topic)| format!("{who} {topic}")).collect();
    all.sort();
    all
}

#[tokio::test(start_paused = true)]
async fn agents_follow_what_their_manifests_say_and_extensions_stay_while_they_are_known() {
    let home = Home::new();
    let life = home.start(done);
    drop(life.deliveries.pull(&extension("e"), "t").await.unwrap());
    drop(life.deliveries.pull(&extension("gone"), "t").await.unwrap());
    for (agents, expected) in [
        (&[("a", "t"), ("b", "u")][..], &["agent:a t", "agent:b u", "extension:e t"][..]),
        (&[("a", "t"), ("a", "v")], &["agent:a t", "agent:a v", "extension:e t"]),
        (&[], &["extension:e t"]),
    ] {
        let agents = agents.iter().map(|(id, topic)| (agent(id), topic.to_string())).collect();
        life.deliveries.reconcile(&agents, &BTreeSet::from([extension("e")])).await.unwrap();
        assert_eq!(following(&life).await, expected);
    }
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_listened_to_while_anybody_follows_it_live_or_for_good() {
    let home = Home::new();
    let life = home.start(done);
    assert!(!life.bus.listens("t"));
    life.follow(&[("a", "t")]).await;
    assert!(life.bus.listens("t") && !life.bus.listens("u"));
    life.follow(&[]).await;
    assert!(!life.bus.listens("t"));
    drop(life.deliveries.pull(&extension("e"), "t").await.unwrap());
    assert!(life.bus.listens("t"), "its messages wait for it");
    let live = life.bus.subscribe("u");
    assert!(life.bus.listens("u"));
    drop(live);
    assert!(!life.bus.listens("u"));
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_followed_for_good_is_known_after_a_restart() {
    let home = Home::new();
    let life = home.start(done);
    drop(life.deliveries.pull(&extension("e"), "t").await.unwrap());
    life.end().await;
    let life = home.start(done);
    life.deliveries.reconcile(&BTreeSet::new(), &BTreeSet::from([extension("e")])).await.unwrap();
    assert!(life.bus.listens("t"));
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_subscription_that_ends_becomes_dead_letters() {
    let home = Home::new();
    let life = home.start(|_, _| Does::Says(Delivered::NotHere));
    life.follow(&[("a", "t"), ("a", "u")]).await;
    drop(life.deliveries.pull(&extension("e"), "t").await.unwrap());
    for (topic, number) in [("t", 1), ("u", 2), ("t", 3)] {
        life.publish(topic, number).await;
    }
    life.follow(&[("a", "u")]).await;
    let mut dead = life.dead().await;
    dead.sort();
    assert_eq!(
        dead,
        [
            "agent:a 1 1: `agent:a` does not follow `t` any more",
            "agent:a 3 1: `agent:a` does not follow `t` any more",
            "extension:e 1 1: `extension:e` does not follow `t` any more",
            "extension:e 3 1: `extension:e` does not follow `t` any more",
        ]
    );
    life.end().await;
}
