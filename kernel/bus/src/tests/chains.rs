//! Chains end.

use std::collections::{BTreeMap, VecDeque};

use drupe_agent::MAX_HOPS;
use proptest::prelude::*;

use super::*;
use crate::{admit, count_link, extend};

fn chain(hops: u32, ancestors: &[&str]) -> Chain {
    Chain { hops, ancestors: ancestors.iter().map(|id| agent(id)).collect() }
}

#[test]
fn a_chain_is_admitted_up_to_its_bound_and_never_back_to_an_agent_of_it() {
    let check = |chain: Chain, receiver: Option<&str>, expected: Result<(), &str>| {
        let admitted = admit(&chain, receiver.map(agent).as_ref());
        match expected {
            Ok(()) => assert_eq!(admitted, Ok(chain)),
            Err(part) => {
                let told = admitted.unwrap_err().to_string();
                assert!(told.contains(part), "{told}");
            }
        }
    };
    check(chain(0, &[]), None, Ok(()));
    check(chain(1, &["a"]), Some("b"), Ok(()));
    check(chain(8, &["a"]), Some("b"), Ok(()));
    check(chain(8, &["a"]), None, Ok(()));
    check(chain(9, &["a", "b"]), Some("c"), Err("after 8 links"));
    check(chain(9, &["a", "b"]), None, Err("agents so far: a, b"));
    check(chain(9, &[]), None, Err("agents so far: none"));
    check(chain(1, &["a"]), Some("a"), Err("comes back to agent `a`"));
    check(chain(8, &["b", "a"]), Some("a"), Err("part of it (b, a)"));
    check(chain(u32::MAX, &["a"]), Some("a"), Err("after 8 links"));
}

#[test]
fn what_an_extension_publishes_is_one_link_behind_what_it_works_on() {
    let check = |worked_on: &[Chain], expected: Option<Chain>| {
        assert_eq!(extend(worked_on).ok(), expected, "{worked_on:?}");
    };
    check(&[], Some(chain(1, &[])));
    check(&[chain(3, &["a"])], Some(chain(4, &["a"])));
    check(&[chain(3, &["a", "b"]), chain(5, &["b", "c"])], Some(chain(6, &["a", "b", "c"])));
    check(&[chain(8, &[])], Some(chain(9, &[])));
    check(&[chain(9, &[]), chain(1, &[])], None);
}

/// Somebody who follows topics and, for each message, publishes on others.
#[derive(Debug, Clone)]
struct Node {
    /// None: an extension, which no ancestry stops.
    agent: Option<AgentId>,
    follows: Vec<u8>,
    publishes: Vec<u8>,
}

#[test]
fn a_message_that_is_handed_in_beside_others_shuts_no_agent_out_and_a_circle_of_such_messages_ends() {
    assert_eq!(count_link(&[]), Ok(Chain::default()));
    assert_eq!(count_link(&[chain(1, &["a"]), chain(3, &["b"])]), Ok(chain(4, &[])));
    let mut links = vec![chain(1, &["a"])];
    while let Ok(next) = count_link(&links) {
        assert!(next.hops > links[0].hops, "{next:?}");
        links = vec![next.after(&[agent("a")])];
    }
    assert!(links[0].hops > MAX_HOPS, "{links:?}");
}

/// Any graph of up to five nodes over three topics, at most three of them extensions, which publish on one topic only:
/// their chains are as long as they may be, and the number of chains is to the power of that.
fn graphs() -> impl Strategy<Value = Vec<Node>> {
    let node = (any::<bool>(), prop::collection::vec(0..3_u8, 0..3), prop::collection::vec(0..3_u8, 0..3));
    prop::collection::vec(node, 1..6).prop_map(|nodes| {
        let named = nodes.into_iter().enumerate().map(|(n, (is_agent, follows, mut publishes))| {
            let is_agent = is_agent || n >= 3;
            publishes.dedup();
            publishes.truncate(if is_agent { 2 } else { 1 });
            let unique: BTreeSet<u8> = follows.into_iter().collect();
            Node {
                agent: is_agent.then(|| agent(&format!("a{n}"))),
                follows: unique.into_iter().collect(),
                publishes,
            }
        });
        named.collect()
    })
}

/// Follows everything that one message on each topic sets off; gives the most links of a chain.
fn run(graph: &[Node]) -> u32 {
    let followers: BTreeMap<u8, Vec<&Node>> = (0..3)
        .map(|topic| (topic, graph.iter().filter(|node| node.follows.contains(&topic)).collect()))
        .collect();
    // A person's turn, outside the graph, publishes first.
    let mut waiting: VecDeque<(u8, Chain, u32)> =
        (0..3).map(|topic| (topic, Chain::default().after(&[agent("person")]), 1)).collect();
    let mut most = 0;
    while let Some((topic, chain, links)) = waiting.pop_front() {
        for node in &followers[&topic] {
            let Ok(admitted) = admit(&chain, node.agent.as_ref()) else { continue };
            assert!(links <= MAX_HOPS, "a chain has {links} links");
            most = most.max(links);
            let published = match &node.agent {
                Some(id) => Some(admitted.after(std::slice::from_ref(id))),
                None => extend([&admitted]).ok(),
            };
            waiting.extend(
                node.publishes
                    .iter()
                    .filter_map(|&topic| published.clone().map(|chain| (topic, chain, links + 1))),
            );
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_follows_whatever_every_chain_ends_within_its_bound(graph in graphs()) {
        run(&graph);
    }
}

#[test]
fn the_bound_is_reached_by_extensions_that_answer_each_other() {
    let node = |follows, publishes| Node { agent: None, follows: vec![follows], publishes: vec![publishes] };
    assert_eq!(run(&[node(0, 1), node(1, 0)]), MAX_HOPS);
    let node = |id, follows, publishes| Node { agent: Some(agent(id)), ..node(follows, publishes) };
    assert_eq!(run(&[node("a", 0, 1), node("b", 1, 0)]), 2, "agents are not asked twice");
}

#[tokio::test(start_paused = true)]
async fn two_agents_that_set_each_other_off_come_to_rest() {
    let home = Home::new();
    let (send, mut replies) = tokio::sync::mpsc::unbounded_channel();
    let life = home.start(move |message, n| {
        let to = if message.topic == "x" { ("a", "y") } else { ("b", "x") };
        send.send((to.1, n as u64, message.chain.after(&[agent(to.0)]))).unwrap();
        Does::Says(Delivered::Done)
    });
    life.follow(&[("a", "x"), ("b", "y")]).await;
    life.publish("x", 0).await;
    while life.came().len() < 20
        && let Ok(Some((topic, number, chain))) =
            tokio::time::timeout(Duration::from_secs(600), replies.recv()).await
    {
        life.publish_in(topic, number, chain, Some("c")).await;
    }
    assert_eq!(life.came(), ["agent:a 0", "agent:b 0"]);
    let dead = life.dead().await;
    assert_eq!(dead.len(), 1);
    assert!(dead[0].contains("it comes back to agent `a`"), "{dead:?}");
    assert_eq!(life.post.remarks.lock().unwrap().len(), 1);
    life.end().await;
}
