//! What the tree of a turn may spend, and has spent.
//!
//! Every run has a node. Spending is charged to the node and to all above it, under one lock, so that no two runs
//! can both take the last of what their common ancestor has left. Before a model is asked, its worst case is
//! reserved; afterwards the reservation is replaced by what was really used. So a tree overshoots by at most one
//! reserved call. An attempt that fails is charged, and what follows it is reserved anew within what is left.
//!
//! What an earlier process is recorded to have used counts from the moment on at which its run begins again. The run
//! then comes back to it piece by piece, which changes no sum; what it never comes back to stays counted.

mod exceeded;
mod node;
mod reserve;
mod spent;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_extension_api::{AgentId, BudgetUse, DefinitionLimits, Spend};
use tokio::sync::Notify;

use crate::stopwatch::Stopwatch;
pub use exceeded::{Exceeded, Limit, UnknownPrice, Unpriced};
use node::Node;
pub use reserve::Reservation;
pub use spent::Spent;

#[derive(Debug)]
struct Tree {
    nodes: Mutex<Vec<Node>>,
    /// Something that was reserved is free, or used.
    freed: Notify,
}

/// A node of the tree.
#[derive(Debug, Clone)]
pub struct Budget {
    tree: Arc<Tree>,
    at: usize,
    time: Stopwatch,
}

impl Budget {
    /// The root of a tree.
    pub fn root(agent: AgentId, limits: &DefinitionLimits) -> Self {
        let time = Stopwatch::start(Duration::from_millis(limits.time_budget_ms));
        let nodes = Mutex::new(vec![Node::new(None, agent, limits)]);
        let tree = Arc::new(Tree { nodes, freed: Notify::new() });
        Self { tree, at: 0, time }
    }

    /// A node below this one, for what goes on in `time`: bounded by its own limits, and by what all above it have left.
    #[must_use]
    pub fn child(&self, agent: AgentId, limits: &DefinitionLimits, time: &Stopwatch) -> Self {
        let mut nodes = self.nodes();
        nodes.push(Node::new(Some(self.at), agent, limits));
        let time = time.below(Duration::from_millis(limits.time_budget_ms));
        Self { tree: Arc::clone(&self.tree), at: nodes.len() - 1, time }
    }

    /// Levels of agents that may stand below it, by its own limit and by those above.
    pub(crate) fn max_depth(&self) -> u32 {
        let nodes = self.nodes();
        self.chain(&nodes).map(|at| nodes[at].limits.max_depth).min().unwrap_or(0)
    }

    /// How long it may still take.
    pub fn time(&self) -> &Stopwatch {
        &self.time
    }

    /// Tokens that it has left, by its own limit and by those above.
    pub fn remaining_tokens(&self) -> u64 {
        let nodes = self.nodes();
        self.chain(&nodes).map(|at| nodes[at].left()).min().unwrap_or(0)
    }

    /// What it and all below it have spent.
    pub fn spend(&self) -> Spend {
        self.nodes()[self.at].used().told()
    }

    /// Whether a model may be asked of whose models that one has no known price; none where all have one.
    ///
    /// # Errors
    /// The cost limit that could not be kept, of this run or of one above it.
    pub fn may_ask(&self, unpriced: Option<&str>) -> Result<(), Unpriced> {
        let Some(model) = unpriced else { return Ok(()) };
        let nodes = self.nodes();
        self.chain(&nodes).try_for_each(|at| nodes[at].may_ask(model))
    }

    /// Charges what nothing was reserved for.
    pub fn charge(&self, spent: Spent) {
        self.all(|node| node.spent += spent);
    }

    /// Counts what an earlier process is recorded to have used in this run and below. Of those above, what they
    /// began with counts it already.
    pub fn foresee(&self, spent: Spent) {
        self.nodes()[self.at].ahead += spent;
    }

    /// Comes back to a part of that, here and in all above: it counted before, and does no more than that.
    pub fn replay(&self, part: Spent) {
        self.all(|node| node.replay(part));
    }

    /// Whether the run may take one more step; `own` is how many it has taken.
    pub fn may_step(&self, own: u32) -> Result<(), Exceeded> {
        let nodes = self.nodes();
        let node = &nodes[self.at];
        let most = node.limits.max_turns;
        if own < most { Ok(()) } else { Err(node.exceeded(Limit::Turns, own.into(), most.into())) }
    }

    /// Counts one step.
    pub fn step(&self) {
        self.charge(Spent::step());
    }

    /// Counts one tool call, unless it would pass a limit of this run or of one above it.
    pub fn tool_call(&self) -> Result<(), Exceeded> {
        let mut nodes = self.nodes();
        self.calls_left(&nodes)?;
        each(&mut nodes, self.at, |node| node.spent += Spent::calls(1));
        Ok(())
    }

    /// Whether one more tool call would pass no limit of this run or of one above it.
    pub fn may_call_tools(&self) -> Result<(), Exceeded> {
        self.calls_left(&self.nodes())
    }

    fn calls_left(&self, nodes: &[Node]) -> Result<(), Exceeded> {
        for at in self.chain(nodes) {
            let (node, used) = (&nodes[at], nodes[at].used().tool_calls);
            let most = node.limits.max_tool_calls;
            if used >= most {
                return Err(node.exceeded(Limit::ToolCalls, used.into(), most.into()));
            }
        }
        Ok(())
    }

    /// Counts this run, unless it would pass a limit of its own or of one above it.
    pub fn invocation(&self) -> Result<(), Exceeded> {
        let mut nodes = self.nodes();
        for at in self.chain(&nodes) {
            let (node, used) = (&nodes[at], nodes[at].used().invocations);
            let most = node.limits.max_invocations;
            if used >= most {
                return Err(node.exceeded(Limit::Invocations, used.into(), most.into()));
            }
        }
        each(&mut nodes, self.at, |node| node.spent += Spent::run());
        Ok(())
    }

    /// Takes back that this run was counted: it does not begin.
    pub fn take_back_invocation(&self) {
        self.all(|node| node.spent.invocations -= 1);
    }

    /// The limits of this run of which most is used, each told once. `own` is how many steps it has taken.
    pub fn warnings(&self, own: u32) -> Vec<BudgetUse> {
        let mut nodes = self.nodes();
        let used = nodes[self.at].used();
        nodes[self.at].warnings(&used, own, self.used_ms())
    }

    /// Takes those limits as told of which most was used when an earlier process had come as far as this one now.
    pub fn told_before(&self, own: u32) {
        let mut nodes = self.nodes();
        let spent = nodes[self.at].spent;
        nodes[self.at].warnings(&spent, own, self.used_ms());
    }

    /// Milliseconds that are used and allowed.
    fn used_ms(&self) -> (u64, u64) {
        let (used, allowed) = self.time.used();
        (crate::run::millis(used), crate::run::millis(allowed))
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.tree.nodes()
    }

    fn chain<'a>(&self, nodes: &'a [Node]) -> impl Iterator<Item = usize> + use<'a> {
        std::iter::successors(Some(self.at), |&at| nodes[at].parent)
    }

    /// Changes this node and all above it at once.
    fn all(&self, change: impl FnMut(&mut Node)) {
        each(&mut self.nodes(), self.at, change);
    }
}

impl Tree {
    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        // Sums stay sums when a holder panics between two of them.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes that node and all above it.
fn each(nodes: &mut [Node], at: usize, mut change: impl FnMut(&mut Node)) {
    let mut next = Some(at);
    while let Some(at) = next {
        change(&mut nodes[at]);
        next = nodes[at].parent;
    }
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::Usage;

    use super::*;

    fn limits(tokens: u64) -> DefinitionLimits {
        DefinitionLimits { max_tokens_per_invocation: tokens, ..DefinitionLimits::default() }
    }

    fn agent(id: &str) -> AgentId {
        AgentId::new(id).expect("a valid id")
    }

    #[test]
    fn counts_are_charged_to_all_above_and_bounded_by_each_of_them() {
        let parent_limits =
            DefinitionLimits { max_tool_calls: 2, max_invocations: 3, ..DefinitionLimits::default() };
        let parent = Budget::root(agent("p"), &parent_limits);
        parent.invocation().expect("the first");
        let child = parent.child(agent("c"), &limits(50_000), parent.time());
        child.invocation().expect("the second");
        child.tool_call().expect("the first");
        parent.tool_call().expect("the second");
        let error = child.tool_call().expect_err("one too many");
        assert_eq!(
            (error.limit, error.agent.as_str(), error.used, error.allowed),
            (Limit::ToolCalls, "p", 2, 2)
        );
        let other = parent.child(agent("o"), &limits(50_000), parent.time());
        other.invocation().expect("the third");
        assert_eq!(other.invocation().expect_err("one too many").limit, Limit::Invocations);
        assert_eq!((parent.spend().tool_calls, parent.spend().invocations), (2, 3));
        assert_eq!((child.spend().tool_calls, child.spend().invocations), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn most_of_a_limit_is_told_once() {
        let mut few = limits(1_000);
        (few.max_turns, few.max_tool_calls, few.max_cost_usd) = (5, 1, Some(0.01));
        let budget = Budget::root(agent("p"), &few);
        let told =
            |own| budget.warnings(own).into_iter().map(|w| (w.limit, w.used, w.allowed)).collect::<Vec<_>>();
        let text = |limit: &str, used, allowed| vec![(limit.to_owned(), used, allowed)];
        assert_eq!(told(3), []);
        assert_eq!(told(4), text("max_turns", 4, 5));
        budget.charge(Spent::of(Usage { input_tokens: 799, ..Usage::default() }, Some(0.001)));
        assert_eq!(told(5), []);
        budget.charge(Spent::lost(1, 0.007));
        assert_eq!(
            told(5),
            [text("max_tokens_per_invocation", 800, 1_000), text("max_cost_usd", 8_000, 10_000)].concat()
        );
        tokio::time::advance(Duration::from_millis(96_000)).await;
        assert_eq!(told(5), text("time_budget_ms", 96_000, 120_000));
        budget.tool_call().expect("the only one");
        assert_eq!(told(5), [], "a limit of one has no most");
    }
}
