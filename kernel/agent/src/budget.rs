//! What the tree of a turn may spend, and has spent.
//!
//! Every run has a node. Spending is charged to the node and to all above it, under one lock, so that no two runs
//! can both take the last of what their common ancestor has left. Before a model is asked, its worst case is
//! reserved; afterwards the reservation is replaced by what was really used. So a tree overshoots by at most one
//! reserved call.
//!
//! What an earlier process is recorded to have used counts from the moment on at which its run begins again. The run
//! then comes back to it piece by piece, which changes no sum; what it never comes back to stays counted.

mod exceeded;
mod node;
mod spent;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drupe_extension_api::{AgentId, BudgetUse, DefinitionLimits, Spend, Usage};
use tokio::{sync::Notify, time::Instant};

use crate::model::ModelProfile;
pub use exceeded::{Exceeded, Limit, UnknownPrice, Unpriced};
use node::Node;
pub use spent::Spent;

/// Room that an answer needs to be one, in tokens. Less is not taken while others of the tree, who are about to give back
/// what they do not use, have the rest reserved.
const ANSWER: u64 = 4096;

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
    began: Instant,
    deadline: Instant,
}

/// What is set aside for one model call.
#[derive(Debug)]
#[must_use = "a reservation is settled or lost"]
pub struct Reservation {
    /// The most that the call may use.
    pub worst: Usage,
    /// The most that the answer may have.
    pub max_output_tokens: u32,
    /// US dollars for it, at the highest price that is known; 0 where none is.
    pub usd: f64,
}

impl Reservation {
    /// Input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.worst.total()
    }
}

impl Budget {
    /// The root of a tree.
    pub fn root(agent: AgentId, limits: &DefinitionLimits, now: Instant) -> Self {
        let deadline = now + std::time::Duration::from_millis(limits.time_budget_ms);
        let nodes = Mutex::new(vec![Node::new(None, agent, limits)]);
        let tree = Arc::new(Tree { nodes, freed: Notify::new() });
        Self { tree, at: 0, began: now, deadline }
    }

    /// A node below this one: bounded by its own limits, and by what all above it have left.
    #[must_use]
    pub fn child(&self, agent: AgentId, limits: &DefinitionLimits, now: Instant) -> Self {
        let mut nodes = self.nodes();
        nodes.push(Node::new(Some(self.at), agent, limits));
        let deadline = self.deadline.min(now + std::time::Duration::from_millis(limits.time_budget_ms));
        Self { tree: Arc::clone(&self.tree), at: nodes.len() - 1, began: now, deadline }
    }

    /// When its time is over.
    pub fn deadline(&self) -> Instant {
        self.deadline
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

    /// Sets the worst case of a model call aside: `input` tokens, and an answer as long as `max_output`, the model
    /// and what is left allow; below the root, where others may run beside it, at most half of what is left.
    ///
    /// # Errors
    /// The limit. With [`Exceeded::held_up`], only what others have reserved is in the way: see [`freed`](Self::freed).
    pub fn reserve(
        &self,
        input: u64,
        max_output: Option<u32>,
        model: &ModelProfile,
    ) -> Result<Reservation, Exceeded> {
        let mut nodes = self.nodes();
        let mut output =
            u64::from(max_output.unwrap_or(model.max_output_tokens).min(model.max_output_tokens));
        for at in self.chain(&nodes) {
            let left = nodes[at].left();
            if left <= input {
                return Err(nodes[at].out_of_tokens(input));
            }
            output = output.min(left - input);
        }
        if self.at > 0 {
            output = output.min((output / 2).max(ANSWER));
        }
        for at in self.chain(&nodes).filter(|_| output < ANSWER) {
            if nodes[at].is_short_of(input, output) {
                return Err(nodes[at].out_of_tokens(input));
            }
        }
        let worst = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
        let usd = model.price.map_or(0.0, |price| price.cost(&worst));
        for at in self.chain(&nodes) {
            nodes[at].check_cost(usd)?;
        }
        self.each(&mut nodes, |node| {
            node.reserved += input + output;
            node.reserved_usd += usd;
        });
        let max_output_tokens = u32::try_from(output).unwrap_or(u32::MAX);
        Ok(Reservation { worst, max_output_tokens, usd })
    }

    /// Ends when something that was reserved in the tree is free or used, from the moment on at which this is called.
    pub fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.tree.freed.notified()
    }

    /// Replaces a reservation by what the call has used; no cost stands for an unknown price.
    pub fn settle(&self, reservation: Reservation, usage: Usage, cost_usd: Option<f64>) {
        self.all(|node| {
            node.release(&reservation);
            node.spent += Spent::of(usage, cost_usd);
        });
        self.tree.freed.notify_waiters();
    }

    /// Ends a reservation whose use is not known: all of its tokens count as used, and `usd` as what they cost.
    pub fn lose(&self, reservation: Reservation, usd: f64) {
        self.all(|node| {
            node.release(&reservation);
            node.spent += Spent::lost(reservation.tokens(), usd);
        });
        self.tree.freed.notify_waiters();
    }

    /// Charges what nothing was reserved for, such as an attempt that failed and is repeated.
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

    /// The limit that what is used and set aside has passed. Only what nobody could reserve, such as an attempt
    /// that failed and is repeated, passes one.
    pub fn overdrawn(&self) -> Option<Exceeded> {
        let nodes = self.nodes();
        self.chain(&nodes).find_map(|at| nodes[at].overdrawn())
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
        self.each(&mut nodes, |node| node.spent += Spent::calls(1));
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
        self.each(&mut nodes, |node| node.spent += Spent::run());
        Ok(())
    }

    /// Takes back that this run was counted: it does not begin.
    pub fn take_back_invocation(&self) {
        self.all(|node| node.spent.invocations -= 1);
    }

    /// The limits of this run of which most is used, each told once. `own` is how many steps it has taken.
    pub fn warnings(&self, own: u32, now: Instant) -> Vec<BudgetUse> {
        let mut nodes = self.nodes();
        let used = nodes[self.at].used();
        nodes[self.at].warnings(&used, own, self.time(now))
    }

    /// Takes those limits as told of which most was used when an earlier process had come as far as this one now.
    pub fn told_before(&self, own: u32, now: Instant) {
        let mut nodes = self.nodes();
        let spent = nodes[self.at].spent;
        nodes[self.at].warnings(&spent, own, self.time(now));
    }

    /// Milliseconds that are used and allowed.
    fn time(&self, now: Instant) -> (u64, u64) {
        let ms = |from: Instant, to: Instant| crate::run::millis(to.saturating_duration_since(from));
        (ms(self.began, now), ms(self.began, self.deadline))
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        // Sums stay sums when a holder panics between two of them.
        self.tree.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chain<'a>(&self, nodes: &'a [Node]) -> impl Iterator<Item = usize> + use<'a> {
        std::iter::successors(Some(self.at), |&at| nodes[at].parent)
    }

    /// Changes this node and all above it at once.
    fn all(&self, change: impl FnMut(&mut Node)) {
        self.each(&mut self.nodes(), change);
    }

    fn each(&self, nodes: &mut [Node], mut change: impl FnMut(&mut Node)) {
        let mut next = Some(self.at);
        while let Some(at) = next {
            change(&mut nodes[at]);
            next = nodes[at].parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Price;

    fn limits(tokens: u64) -> DefinitionLimits {
        DefinitionLimits { max_tokens_per_invocation: tokens, ..DefinitionLimits::default() }
    }

    fn agent(id: &str) -> AgentId {
        AgentId::new(id).expect("a valid id")
    }

    fn model(price: Option<Price>) -> ModelProfile {
        ModelProfile {
            name: "m/m".into(),
            context_window: 100_000,
            max_output_tokens: 1_000,
            price,
            tools: true,
        }
    }

    #[test]
    fn a_child_is_bounded_by_what_its_parent_has_left() {
        let parent = Budget::root(agent("p"), &limits(1_500), Instant::now());
        let held = parent.reserve(400, Some(600), &model(None)).expect("fits");
        let child = parent.child(agent("c"), &limits(50_000), Instant::now());
        let error = child.reserve(100, None, &model(None)).expect_err("the rest is no room for an answer");
        assert!(error.held_up, "it would fit, were nothing reserved");
        parent.lose(held, 0.0);
        let reserved = child.reserve(100, None, &model(None)).expect("what is lost does not come back");
        assert_eq!(reserved.max_output_tokens, 400);
        child.settle(reserved, Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() }, None);
        assert_eq!(parent.remaining_tokens(), 390);
        assert_eq!(parent.spend().usage.total(), 110);
    }

    #[test]
    fn one_below_the_root_leaves_room_for_those_beside_it() {
        let parent = Budget::root(agent("p"), &limits(50_000), Instant::now());
        let wide = ModelProfile { max_output_tokens: 128_000, context_window: 400_000, ..model(None) };
        let rooms: Vec<Option<u32>> = (0..4)
            .map(|_| {
                let child = parent.child(agent("c"), &limits(50_000), Instant::now());
                match child.reserve(1_000, None, &wide) {
                    // Held until the end of the test.
                    Ok(reserved) => Some(std::mem::ManuallyDrop::new(reserved).max_output_tokens),
                    Err(error) => {
                        assert!(error.held_up);
                        None
                    }
                }
            })
            .collect();
        assert_eq!(rooms, [Some(24_500), Some(11_750), Some(5_375), Some(4_096)]);
    }

    #[test]
    fn a_call_that_does_not_fit_names_whose_limit_it_is() {
        let parent = Budget::root(agent("p"), &limits(100), Instant::now());
        let child = parent.child(agent("c"), &limits(50_000), Instant::now());
        let error = child.reserve(100, None, &model(None)).expect_err("does not fit");
        assert_eq!((error.limit, error.agent.as_str(), error.allowed), (Limit::Tokens, "p", 100));
    }

    #[test]
    fn an_unknown_price_counts_as_over_a_cost_limit_unless_allowed() {
        let mut with_cost = limits(50_000);
        with_cost.max_cost_usd = Some(0.01);
        let budget = Budget::root(agent("p"), &with_cost, Instant::now());
        let child = budget.child(agent("c"), &limits(50_000), Instant::now());
        assert_eq!(child.may_ask(None), Ok(()), "all prices are known");
        let error = child.may_ask(Some("m/m")).expect_err("refused");
        assert_eq!((error.agent.as_str(), error.allowed), ("p", 10_000));
        with_cost.allow_unknown_price = true;
        let budget = Budget::root(agent("p"), &with_cost, Instant::now());
        assert_eq!(budget.may_ask(Some("m/m")), Ok(()));
        budget.lose(budget.reserve(1, None, &model(None)).expect("allowed"), 0.0);
        let dear = Price { input: 1.0, cached: 1.0, output: 100.0 };
        assert_eq!(budget.reserve(1, None, &model(Some(dear))).expect_err("refused").limit, Limit::Cost);
    }

    #[test]
    fn counts_are_charged_to_all_above_and_bounded_by_each_of_them() {
        let parent_limits =
            DefinitionLimits { max_tool_calls: 2, max_invocations: 3, ..DefinitionLimits::default() };
        let parent = Budget::root(agent("p"), &parent_limits, Instant::now());
        parent.invocation().expect("the first");
        let child = parent.child(agent("c"), &limits(50_000), Instant::now());
        child.invocation().expect("the second");
        child.tool_call().expect("the first");
        parent.tool_call().expect("the second");
        let error = child.tool_call().expect_err("one too many");
        assert_eq!(
            (error.limit, error.agent.as_str(), error.used, error.allowed),
            (Limit::ToolCalls, "p", 2, 2)
        );
        let other = parent.child(agent("o"), &limits(50_000), Instant::now());
        other.invocation().expect("the third");
        assert_eq!(other.invocation().expect_err("one too many").limit, Limit::Invocations);
        assert_eq!((parent.spend().tool_calls, parent.spend().invocations), (2, 3));
        assert_eq!((child.spend().tool_calls, child.spend().invocations), (1, 1));
    }

    #[test]
    fn most_of_a_limit_is_told_once() {
        let mut few = limits(1_000);
        (few.max_turns, few.max_tool_calls, few.max_cost_usd) = (5, 1, Some(0.01));
        let now = Instant::now();
        let budget = Budget::root(agent("p"), &few, now);
        let told = |own, ms| {
            let at = now + std::time::Duration::from_millis(ms);
            budget.warnings(own, at).into_iter().map(|w| (w.limit, w.used, w.allowed)).collect::<Vec<_>>()
        };
        let text = |limit: &str, used, allowed| vec![(limit.to_owned(), used, allowed)];
        assert_eq!(told(3, 10), []);
        assert_eq!(told(4, 10), text("max_turns", 4, 5));
        budget.charge(Spent::of(Usage { input_tokens: 799, ..Usage::default() }, Some(0.001)));
        assert_eq!(told(5, 10), []);
        budget.charge(Spent::lost(1, 0.007));
        assert_eq!(
            told(5, 10),
            [text("max_tokens_per_invocation", 800, 1_000), text("max_cost_usd", 8_000, 10_000)].concat()
        );
        assert_eq!(told(5, 96_000), text("time_budget_ms", 96_000, 120_000));
        budget.tool_call().expect("the only one");
        assert_eq!(told(5, 120_000), [], "a limit of one has no most");
    }
}
