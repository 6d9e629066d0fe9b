//! Agents that would come to call themselves, by whatever way.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use drupe_extension_api::{AgentResponse, FailureClass, ToolName, ToolSpec};
use drupe_json_schema::Schema;
use proptest::test_runner::{Config, TestRunner};
use serde_json::value::RawValue;

use super::*;
use crate::*;

const TASK: &str = r#"{"task": "t"}"#;
const LEVELS: u32 = 3;

type Agents = Arc<OnceLock<Vec<Arc<dyn Agent>>>>;

/// An agent's tool whose agent is known later, so that agents can hold each other's.
struct Later {
    spec: Arc<ToolSpec>,
    agents: Agents,
    at: usize,
}

impl Later {
    fn registered(agents: &Agents, at: usize) -> Arc<Registered> {
        let nobody: Arc<dyn Agent> = Arc::new(Native {
            id: agent_id(&format!("a{at}")),
            limits: Default::default(),
            code: Box::new(|_, _| Box::pin(async { AgentResponse::success("never") })),
        });
        let name: ToolName = format!("agent_a{at}").parse().expect("a valid name");
        let spec = Arc::clone(AgentTool::new(nobody, name, "An agent.".into(), None).spec());
        Registered::new(Arc::new(Self { spec, agents: Arc::clone(agents), at })).expect("a valid schema")
    }

    fn tool(&self) -> AgentTool {
        let agents = self.agents.get().expect("all agents are made");
        AgentTool::new(Arc::clone(&agents[self.at]), self.spec.name.clone(), "An agent.".into(), None)
    }
}

impl Tool for Later {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        "later"
    }

    fn schema(&self) -> Option<Arc<Schema>> {
        // All of them have the same.
        static SHARED: OnceLock<Arc<Schema>> = OnceLock::new();
        let compile = || Schema::new(&self.spec.input_schema).expect("a valid schema");
        Some(Arc::clone(SHARED.get_or_init(|| Arc::new(compile()))))
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move { self.tool().call(params, context).await })
    }
}

/// Runs agent 0 of a graph in which each agent calls all that its row names, once, and then answers. With agents
/// that set the turn off through events.
async fn graph(edges: &[Vec<usize>], chain: &[usize]) -> Seen {
    let name = |at: usize| format!("a{at}");
    let scripts: Vec<(String, Vec<Reply>)> = edges
        .iter()
        .enumerate()
        .map(|(at, below)| {
            let names: Vec<String> = below.iter().map(|b| format!("agent_a{b}")).collect();
            let calls: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), TASK)).collect();
            let steps = if calls.is_empty() { vec![say("done")] } else { vec![call(&calls), say("done")] };
            (name(at), steps)
        })
        .collect();
    let pairs: Vec<(&str, &[Reply])> = scripts.iter().map(|(n, s)| (n.as_str(), &s[..])).collect();
    let model = Arc::new(Plays::new(&pairs));
    let agents: Agents = Arc::default();
    let made = edges.iter().enumerate().map(|(at, below)| {
        let mut definition = definition(&name(at));
        definition.limits.max_depth = LEVELS;
        definition.limits.max_tokens_per_invocation = 10_000_000;
        definition.limits.max_invocations = 10_000;
        definition.limits.max_tool_calls = 10_000;
        let below: BTreeSet<usize> = below.iter().copied().collect();
        looping(definition, &model, below.into_iter().map(|b| Later::registered(&agents, b)))
    });
    let made: Vec<Arc<dyn Agent>> = made.collect();
    let root = Arc::clone(&made[0]);
    assert!(agents.set(made).is_ok());
    let ancestors = chain.iter().map(|at| agent_id(&name(*at))).collect();
    let scope: Box<dyn FnOnce(&mut TurnScope)> =
        Box::new(move |scope| scope.chain = Chain { hops: 1, ancestors });
    Case { scope, ..Case::new(root, &model) }.run().await
}

/// How many requests the graph may make: none for a call to whom is at work already, or too deep.
fn requests(edges: &[Vec<usize>], at: usize, path: &mut Vec<usize>, levels: u32) -> usize {
    if path.contains(&at) {
        return 0;
    }
    path.push(at);
    let mut sum = if edges[at].is_empty() { 1 } else { 2 };
    for below in edges[at].iter().filter(|_| levels > 0) {
        sum += requests(edges, *below, path, levels - 1);
    }
    path.pop();
    sum
}

async fn check(edges: &[Vec<usize>], chain: &[usize]) -> Seen {
    let seen = graph(edges, chain).await;
    let expected = requests(edges, 0, &mut chain.to_vec(), LEVELS);
    assert_eq!(seen.model.requests().len(), expected, "{edges:?} after {chain:?}");
    seen
}

#[tokio::test]
async fn circles_are_refused_without_a_model_call() {
    check(&[vec![0]], &[]).await;
    check(&[vec![1], vec![0]], &[]).await;
    check(&[vec![1], vec![1, 0, 1]], &[]).await;
    let ten: Vec<Vec<usize>> = (0..10).map(|at| vec![(at + 1) % 10, at, 0]).collect();
    check(&ten, &[]).await;
    let seen = check(&[vec![1], vec![]], &[1]).await;
    assert!(seen.told()[0].contains("agent `a1` is already working on this (a1)"), "{:?}", seen.told());
}

#[tokio::test]
async fn an_agent_that_set_the_turn_off_through_events_is_not_its_root() {
    let seen = check(&[vec![1], vec![]], &[2, 0]).await;
    assert_eq!(seen.response.class, Some(FailureClass::Loop));
    assert!(seen.response.content.contains("(a2 → a0)"), "{}", seen.response.content);
    assert_eq!(seen.spend.invocations, 0);
}

#[tokio::test]
async fn a_chain_of_events_ends_after_its_hops() {
    for (hops, asked) in [(MAX_HOPS, 1), (MAX_HOPS + 1, 0)] {
        let scope: Box<dyn FnOnce(&mut TurnScope)> =
            Box::new(move |scope| scope.chain = Chain { hops, ancestors: vec![agent_id("other")] });
        let seen = Case { scope, ..Case::of(&[say("done")], []) }.run().await;
        assert_eq!(seen.model.requests().len(), asked);
        assert_eq!(seen.response.class == Some(FailureClass::Loop), asked == 0);
    }
}

#[test]
fn in_any_graph_a_call_to_an_ancestor_is_refused_without_a_model_call() {
    use proptest::prelude::*;
    let agents = 1usize..6;
    let graphs = agents.prop_flat_map(|count| {
        let row = proptest::collection::vec(0..count, 0..3);
        (proptest::collection::vec(row, count), proptest::collection::vec(0..count, 0..2))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let config = Config { cases: 10_000, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let ran = runner.run(&graphs, |(edges, chain)| {
        runtime.block_on(check(&edges, &chain));
        Ok(())
    });
    ran.expect("every circle is refused");
}
