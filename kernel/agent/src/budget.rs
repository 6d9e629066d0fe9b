//! What the tree of a turn may spend, and has spent.
//!
//! Every run has a node. Spending is charged to the node and to all above it, under one lock, so that no two runs
//! can both take the last of what their common ancestor has left. Before a model is asked, its worst case is
//! reserved; afterwards the reservation is replaced by what was really used. So a tree overshoots by at most one
//! reserved call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drupe_extension_api::{AgentId, DefinitionLimits, Spend, Usage};
use tokio::time::Instant;

use crate::model::{ModelProfile, Price};

/// A node of the tree.
#[derive(Debug, Clone)]
pub struct Budget {
    tree: Arc<Mutex<Vec<Node>>>,
    at: usize,
    deadline: Instant,
}

#[derive(Debug)]
struct Node {
    parent: Option<usize>,
    agent: AgentId,
    limits: DefinitionLimits,
    spend: Spend,
    /// A price was unknown, so `spend.cost_usd` is no sum.
    unknown_cost: bool,
    /// Tokens set aside for calls that run.
    reserved: u64,
    /// US dollars set aside for them.
    reserved_usd: f64,
    /// Tokens of calls whose end was never seen.
    lost: u64,
    /// US dollars that they may have cost.
    lost_usd: f64,
}

/// Which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `max_turns`.
    Turns,
    /// `max_tokens_per_invocation`.
    Tokens,
    /// `max_cost_usd`.
    Cost,
    /// A price is unknown where a cost limit holds.
    UnknownPrice,
}

impl Limit {
    /// The key that sets it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Turns => "max_turns",
            Self::Tokens => "max_tokens_per_invocation",
            Self::Cost => "max_cost_usd",
            Self::UnknownPrice => "allow_unknown_price",
        }
    }
}

/// A limit that stops work.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct Exceeded {
    /// Which.
    pub limit: Limit,
    /// Whose.
    pub agent: AgentId,
    /// How much was used, in the limit's unit; for cost in millionths of a dollar.
    pub used: u64,
    /// How much is allowed.
    pub allowed: u64,
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, agent, used, allowed } = self;
        match limit {
            Limit::Turns => {
                write!(f, "agent `{agent}` has used {used} of the {allowed} steps of `max_turns`")
            }
            Limit::Tokens => write!(
                f,
                "agent `{agent}` has used {used} of {allowed} tokens (`max_tokens_per_invocation`), and the next model \
                 call does not fit"
            ),
            Limit::Cost => write!(
                f,
                "agent `{agent}` has used ${:.4} of ${:.4} (`max_cost_usd`), and the next model call may cost more",
                *used as f64 / 1e6,
                *allowed as f64 / 1e6
            ),
            Limit::UnknownPrice => write!(
                f,
                "agent `{agent}` has a cost limit (`max_cost_usd`), but the price of its model is unknown; set \
                 `allow_unknown_price: true` or give the price under `models.profiles`"
            ),
        }
    }
}

/// What is set aside for one model call.
#[derive(Debug)]
#[must_use = "a reservation is settled or lost"]
pub struct Reservation {
    /// Input and output tokens.
    pub tokens: u64,
    /// The most that the answer may have.
    pub max_output_tokens: u32,
    usd: f64,
}

impl Budget {
    /// The root of a tree.
    pub fn root(agent: AgentId, limits: &DefinitionLimits, now: Instant) -> Self {
        let deadline = now + std::time::Duration::from_millis(limits.time_budget_ms);
        Self { tree: Arc::new(Mutex::new(vec![Node::new(None, agent, limits)])), at: 0, deadline }
    }

    /// A node below this one: bounded by its own limits, and by what all above it have left.
    #[must_use]
    pub fn child(&self, agent: AgentId, limits: &DefinitionLimits, now: Instant) -> Self {
        let mut nodes = self.nodes();
        nodes.push(Node::new(Some(self.at), agent, limits));
        let deadline = self.deadline.min(now + std::time::Duration::from_millis(limits.time_budget_ms));
        Self { tree: Arc::clone(&self.tree), at: nodes.len() - 1, deadline }
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
        let nodes = self.nodes();
        let node = &nodes[self.at];
        Spend { cost_usd: (!node.unknown_cost).then_some(node.spend.cost_usd.unwrap_or(0.0)), ..node.spend }
    }

    /// Sets the worst case of a model call aside: `input` tokens, and an answer as long as `max_output`, the model
    /// and what is left allow.
    pub fn reserve(
        &self,
        input: u64,
        max_output: Option<u32>,
        model: &ModelProfile,
    ) -> Result<Reservation, Exceeded> {
        let mut nodes = self.nodes();
        let chain: Vec<usize> = self.chain(&nodes).collect();
        let mut output =
            u64::from(max_output.unwrap_or(model.max_output_tokens).min(model.max_output_tokens));
        for &at in &chain {
            let left = nodes[at].left();
            if left <= input {
                let node = &nodes[at];
                return Err(node.exceeded(Limit::Tokens, node.used(), node.limits.max_tokens_per_invocation));
            }
            output = output.min(left - input);
        }
        let worst = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
        let usd = model.price.map_or(0.0, |price| price.cost(&worst));
        for &at in &chain {
            nodes[at].check_cost(usd, model.price.is_some())?;
        }
        for &at in &chain {
            nodes[at].reserved += input + output;
            nodes[at].reserved_usd += usd;
        }
        let max_output_tokens = u32::try_from(output).unwrap_or(u32::MAX);
        Ok(Reservation { tokens: input + output, max_output_tokens, usd })
    }

    /// Replaces a reservation by what the call has used; no cost stands for an unknown price.
    pub fn settle(&self, reservation: Reservation, usage: Usage, cost_usd: Option<f64>) {
        let mut nodes = self.nodes();
        for at in self.chain(&nodes).collect::<Vec<_>>() {
            let node = &mut nodes[at];
            node.reserved -= reservation.tokens;
            node.reserved_usd -= reservation.usd;
            node.charge(usage, cost_usd);
        }
    }

    /// Ends a reservation whose use is not known: all of it counts as used.
    pub fn lose(&self, reservation: Reservation) {
        let mut nodes = self.nodes();
        for at in self.chain(&nodes).collect::<Vec<_>>() {
            nodes[at].reserved -= reservation.tokens;
            nodes[at].reserved_usd -= reservation.usd;
            nodes[at].lost += reservation.tokens;
            nodes[at].lost_usd += reservation.usd;
        }
    }

    /// Charges what an attempt that was repeated has used, or what an earlier process spent at this place.
    pub fn recharge(&self, usage: Usage, cost_usd: Option<f64>) {
        let mut nodes = self.nodes();
        for at in self.chain(&nodes).collect::<Vec<_>>() {
            nodes[at].charge(usage, cost_usd);
        }
    }

    /// Counts tokens as used whose end an earlier process never saw, at the dearest price of the model where it is
    /// known.
    pub fn recharge_lost(&self, tokens: u64, price: Option<Price>) {
        let usd = price.map_or(0.0, |p| tokens as f64 * p.input.max(p.output) / 1_000_000.0);
        let mut nodes = self.nodes();
        for at in self.chain(&nodes).collect::<Vec<_>>() {
            nodes[at].lost = nodes[at].lost.saturating_add(tokens);
            nodes[at].lost_usd += usd;
        }
    }

    /// Charges a whole run that ended in an earlier process, or that reports its own spending.
    pub fn recharge_run(&self, spend: &Spend) {
        let mut nodes = self.nodes();
        for at in self.chain(&nodes).collect::<Vec<_>>() {
            let node = &mut nodes[at];
            node.charge(spend.usage, spend.cost_usd);
            node.spend.turns += spend.turns;
            node.spend.tool_calls += spend.tool_calls;
            node.spend.invocations += spend.invocations;
        }
    }

    /// Whether the run may take one more step; `own` is how many it has taken.
    pub fn may_step(&self, own: u32) -> Result<(), Exceeded> {
        let nodes = self.nodes();
        let node = &nodes[self.at];
        if own >= node.limits.max_turns {
            return Err(node.exceeded(Limit::Turns, own.into(), node.limits.max_turns.into()));
        }
        Ok(())
    }

    /// Counts one step.
    pub fn step(&self) {
        let mut nodes = self.nodes();
        for at in self.chain(&nodes).collect::<Vec<_>>() {
            nodes[at].spend.turns += 1;
        }
    }

    /// Counts tool calls.
    pub fn tool_calls(&self, count: u32) {
        let mut nodes = self.nodes();
        for at in self.chain(&nodes).collect::<Vec<_>>() {
            nodes[at].spend.tool_calls += count;
        }
    }

    /// Counts a run.
    pub fn invocation(&self) {
        let mut nodes = self.nodes();
        for at in self.chain(&nodes).collect::<Vec<_>>() {
            nodes[at].spend.invocations += 1;
        }
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        // Sums stay sums when a holder panics between two of them.
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chain<'a>(&self, nodes: &'a [Node]) -> impl Iterator<Item = usize> + use<'a> {
        std::iter::successors(Some(self.at), |&at| nodes[at].parent)
    }
}

impl Node {
    fn new(parent: Option<usize>, agent: AgentId, limits: &DefinitionLimits) -> Self {
        Self {
            parent,
            agent,
            limits: limits.clone(),
            spend: Spend::default(),
            unknown_cost: false,
            reserved: 0,
            reserved_usd: 0.0,
            lost: 0,
            lost_usd: 0.0,
        }
    }

    fn used(&self) -> u64 {
        self.spend.usage.total() + self.lost
    }

    fn left(&self) -> u64 {
        self.limits.max_tokens_per_invocation.saturating_sub(self.used() + self.reserved)
    }

    fn charge(&mut self, usage: Usage, cost_usd: Option<f64>) {
        self.spend.usage += usage;
        match cost_usd {
            Some(cost) => *self.spend.cost_usd.get_or_insert(0.0) += cost,
            None => self.unknown_cost |= usage.total() > 0,
        }
    }

    fn check_cost(&self, usd: f64, price_known: bool) -> Result<(), Exceeded> {
        let Some(allowed) = self.limits.max_cost_usd else { return Ok(()) };
        let micro = |usd: f64| (usd * 1e6) as u64;
        if !price_known {
            return if self.limits.allow_unknown_price {
                Ok(())
            } else {
                Err(self.exceeded(Limit::UnknownPrice, 0, micro(allowed)))
            };
        }
        let used = self.spend.cost_usd.unwrap_or(0.0) + self.lost_usd;
        if used + self.reserved_usd + usd > allowed {
            return Err(self.exceeded(Limit::Cost, micro(used), micro(allowed)));
        }
        Ok(())
    }

    fn exceeded(&self, limit: Limit, used: u64, allowed: u64) -> Exceeded {
        Exceeded { limit, agent: self.agent.clone(), used, allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(tokens: u64) -> DefinitionLimits {
        DefinitionLimits { max_tokens_per_invocation: tokens, ..DefinitionLimits::default() }
    }

    fn agent(id: &str) -> AgentId {
        AgentId::new(id).expect("a valid id")
    }

    fn model(price: Option<Price>) -> ModelProfile {
        ModelProfile { name: "m/m".into(), context_window: 100_000, max_output_tokens: 1_000, price }
    }

    #[test]
    fn a_child_is_bounded_by_what_its_parent_has_left() {
        let parent = Budget::root(agent("p"), &limits(1_500), Instant::now());
        let held = parent.reserve(400, Some(600), &model(None)).expect("fits");
        let child = parent.child(agent("c"), &limits(50_000), Instant::now());
        let reserved = child.reserve(100, None, &model(None)).expect("fits");
        assert_eq!(reserved.max_output_tokens, 400);
        parent.lose(held);
        child.settle(reserved, Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() }, None);
        assert_eq!(parent.remaining_tokens(), 390);
        assert_eq!(parent.spend().usage.total(), 110);
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
        assert_eq!(budget.reserve(1, None, &model(None)).expect_err("refused").limit, Limit::UnknownPrice);
        with_cost.allow_unknown_price = true;
        let budget = Budget::root(agent("p"), &with_cost, Instant::now());
        budget.lose(budget.reserve(1, None, &model(None)).expect("allowed"));
        let dear = Price { input: 1.0, cached: 1.0, output: 100.0 };
        assert_eq!(budget.reserve(1, None, &model(Some(dear))).expect_err("refused").limit, Limit::Cost);
    }
}
