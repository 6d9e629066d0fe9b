//! What is set aside for a model call before it is asked, and how that ends.

use std::sync::Arc;

use drupe_extension_api::Usage;

use super::{Budget, Exceeded, Node, Spent, Tree};
use crate::model::{ModelProfile, Price};

/// Room that an answer needs to be one, in tokens. Less is not taken while others of the tree, who are about to give back
/// what they do not use, have the rest reserved.
const ANSWER: u64 = 4096;

/// What is set aside for one model call.
///
/// One that is dropped, as when the future of a run is, counts as used whole: what the provider has done by then is not
/// known. Those that wait for the room hear of it.
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as used whole"]
pub struct Reservation {
    tree: Arc<Tree>,
    at: usize,
    open: bool,
    price: Option<Price>,
    /// The most that the call may use.
    pub worst: Usage,
    /// US dollars for it, at the highest price that is known; 0 where none is.
    pub usd: f64,
}

impl Reservation {
    /// Input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.worst.total()
    }

    /// The most that the answer may have.
    pub fn max_output_tokens(&self) -> u32 {
        u32::try_from(self.worst.output_tokens).unwrap_or(u32::MAX)
    }

    /// Sets so much aside, in the node and in all above it.
    fn hold(&mut self, nodes: &mut [Node], input: u64, output: u64) {
        // All of the input may go into the provider's cache, which costs more than to be read.
        self.worst = Usage {
            input_tokens: input,
            cache_write_tokens: input,
            output_tokens: output,
            ..Usage::default()
        };
        self.usd = self.price.map_or(0.0, |price| price.cost(&self.worst));
        super::each(nodes, self.at, |node| {
            node.reserved += self.worst.total();
            node.reserved_usd += self.usd;
        });
    }

    /// Gives all of it free and charges what was used instead.
    fn release(&mut self, nodes: &mut [Node], spent: Spent) {
        super::each(nodes, self.at, |node| {
            node.release(self.worst.total(), self.usd);
            node.spent += spent;
        });
        (self.worst, self.usd) = (Usage::default(), 0.0);
    }

    fn end(&mut self, spent: Spent) {
        self.open = false;
        let tree = Arc::clone(&self.tree);
        self.release(&mut tree.nodes(), spent);
        tree.freed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.open {
            self.end(Spent::lost(self.tokens(), self.usd));
        }
    }
}

impl Budget {
    /// Sets the worst case of a model call aside: `input` tokens, and an answer as long as `max_output`, the model
    /// and what is left of tokens and money allow; below the root, where others may run beside it, at most half of what
    /// is left.
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
        let wanted = u64::from(max_output.unwrap_or(model.max_output_tokens).min(model.max_output_tokens));
        let mut output = self.room(&nodes, input, wanted, model.price)?;
        if self.at > 0 {
            output = output.min((output / 2).max(ANSWER));
        }
        for at in self.chain(&nodes).filter(|_| output < ANSWER) {
            nodes[at].is_held_up(input, output, model.price)?;
        }
        let mut reserved = Reservation {
            tree: Arc::clone(&self.tree),
            at: self.at,
            open: true,
            price: model.price,
            worst: Usage::default(),
            usd: 0.0,
        };
        reserved.hold(&mut nodes, input, output);
        Ok(reserved)
    }

    /// Moves a reservation on to the attempt that follows one which failed and used `spent`: that is charged, and what is
    /// left bounds the answer anew.
    ///
    /// # Errors
    /// The limit that leaves no room for a further attempt; nothing is set aside any more then.
    pub fn follow(&self, reserved: &mut Reservation, spent: Spent) -> Result<(), Exceeded> {
        let mut nodes = self.nodes();
        // Of an estimate that was too low one knows better by now.
        let input = reserved.worst.input_tokens.max(spent.usage.input_tokens);
        let wanted = reserved.worst.output_tokens;
        reserved.release(&mut nodes, spent);
        let room = self.room(&nodes, input, wanted, reserved.price);
        if let Ok(output) = room {
            reserved.hold(&mut nodes, input, output);
        }
        drop(nodes);
        self.tree.freed.notify_waiters();
        room.map(drop)
    }

    /// Ends when something that was reserved in the tree is free or used, from the moment on at which this is called.
    pub fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.tree.freed.notified()
    }

    /// Replaces a reservation by what the call has used; no cost stands for an unknown price.
    pub fn settle(&self, mut reserved: Reservation, usage: Usage, cost_usd: Option<f64>) {
        reserved.end(Spent::of(usage, cost_usd));
    }

    /// Ends a reservation whose use is not known: all of its tokens count as used, and `usd` as what they cost.
    pub fn lose(&self, mut reserved: Reservation, usd: f64) {
        let lost = Spent::lost(reserved.tokens(), usd);
        reserved.end(lost);
    }

    /// How long an answer may be after so much input: as long as is wanted, and as each of the limits allows.
    fn room(&self, nodes: &[Node], input: u64, wanted: u64, price: Option<Price>) -> Result<u64, Exceeded> {
        let mut output = wanted;
        for at in self.chain(nodes) {
            output = output.min(nodes[at].room(input, price)?);
        }
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::{AgentId, DefinitionLimits};

    use super::*;
    use crate::budget::Limit;

    const DEAR: Price = Price::flat(1.0, 1.0, 100.0);

    fn limits(tokens: u64) -> DefinitionLimits {
        DefinitionLimits { max_tokens_per_invocation: tokens, ..DefinitionLimits::default() }
    }

    fn root(limits: &DefinitionLimits) -> Budget {
        Budget::root(agent("p"), limits)
    }

    fn below(parent: &Budget) -> Budget {
        parent.child(agent("c"), &limits(50_000), parent.time())
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
            images: true,
        }
    }

    fn wide() -> ModelProfile {
        ModelProfile { max_output_tokens: 128_000, context_window: 400_000, ..model(None) }
    }

    fn used(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, ..Usage::default() }
    }

    #[test]
    fn a_child_is_bounded_by_what_its_parent_has_left() {
        let parent = root(&limits(1_500));
        let held = parent.reserve(400, Some(600), &model(None)).expect("fits");
        let child = below(&parent);
        let error = child.reserve(100, None, &model(None)).expect_err("the rest is no room for an answer");
        assert!(error.held_up, "it would fit, were nothing reserved");
        parent.lose(held, 0.0);
        let reserved = child.reserve(100, None, &model(None)).expect("what is lost does not come back");
        assert_eq!(reserved.max_output_tokens(), 400);
        child.settle(reserved, used(100, 10), None);
        assert_eq!(parent.remaining_tokens(), 390);
        assert_eq!(parent.spend().usage.total(), 110);
    }

    #[test]
    fn one_below_the_root_leaves_room_for_those_beside_it() {
        let parent = root(&limits(50_000));
        let mut held = Vec::new();
        let rooms: Vec<Option<u32>> = (0..4)
            .map(|_| match below(&parent).reserve(1_000, None, &wide()) {
                Ok(reserved) => {
                    let room = reserved.max_output_tokens();
                    held.push(reserved);
                    Some(room)
                }
                Err(error) => {
                    assert!(error.held_up);
                    None
                }
            })
            .collect();
        assert_eq!(rooms, [Some(24_500), Some(11_750), Some(5_375), Some(4_096)]);
    }

    #[test]
    fn a_call_that_does_not_fit_names_whose_limit_it_is() {
        let parent = root(&limits(100));
        let error = below(&parent).reserve(100, None, &model(None)).expect_err("does not fit");
        assert_eq!((error.limit, error.agent.as_str(), error.allowed), (Limit::Tokens, "p", 100));
    }

    #[test]
    fn an_unknown_price_counts_as_over_a_cost_limit_unless_allowed() {
        let mut with_cost = DefinitionLimits { max_cost_usd: Some(0.01), ..limits(50_000) };
        let budget = root(&with_cost);
        assert_eq!(below(&budget).may_ask(None), Ok(()), "all prices are known");
        let error = below(&budget).may_ask(Some("m/m")).expect_err("refused");
        assert_eq!((error.agent.as_str(), error.allowed), ("p", 10_000));
        with_cost.allow_unknown_price = true;
        let budget = root(&with_cost);
        assert_eq!(budget.may_ask(Some("m/m")), Ok(()));
        assert_eq!(budget.reserve(1, None, &model(None)).expect("allowed").max_output_tokens(), 1_000);
    }

    #[test]
    fn the_money_that_is_left_bounds_the_answer_and_refuses_only_what_it_cannot_begin_to_pay() {
        let parent = root(&DefinitionLimits { max_cost_usd: Some(0.01), ..limits(50_000) });
        let child = below(&parent);
        let reserved = child.reserve(1_000, None, &model(Some(DEAR))).expect("some of an answer is paid for");
        assert_eq!(reserved.max_output_tokens(), 90);
        assert!(reserved.usd <= 0.01, "{}", reserved.usd);
        let beside = parent.reserve(1_000, None, &model(Some(DEAR))).expect_err("all of it is reserved");
        assert_eq!((beside.limit, beside.held_up), (Limit::Cost, true));
        child.settle(reserved, used(1_000, 10), Some(0.002));
        let rest = parent.reserve(1_000, None, &model(Some(DEAR))).expect("what was not used is free");
        assert_eq!(rest.max_output_tokens(), 70);
        drop(rest);
        let error = parent.reserve(1_000, None, &model(Some(DEAR))).expect_err("nothing is left");
        assert_eq!((error.limit, error.held_up), (Limit::Cost, false));
        let free = Price::flat(0.0, 0.0, 0.0);
        let budget = root(&DefinitionLimits { max_cost_usd: Some(0.0), ..limits(50_000) });
        assert_eq!(
            budget.reserve(1, None, &model(Some(free))).expect("it is free").max_output_tokens(),
            1_000
        );
    }

    #[test]
    fn an_attempt_that_failed_leaves_room_for_those_that_follow_it() {
        let budget = root(&limits(50_000));
        let mut reserved = budget.reserve(2_900, None, &wide()).expect("fits");
        assert_eq!(reserved.max_output_tokens(), 47_100, "the first may have all");
        for (received, room) in [(0, 44_200), (200, 41_100)] {
            budget.follow(&mut reserved, Spent::of(used(2_900, received), None)).expect("fits");
            assert_eq!(reserved.max_output_tokens(), room);
            let known = budget.spend().usage.total() + reserved.tokens();
            assert_eq!((known, budget.remaining_tokens()), (50_000, 0), "hard");
        }
        let error = budget.follow(&mut reserved, Spent::of(used(2_900, 41_000), None)).expect_err("no room");
        assert_eq!((error.limit, reserved.tokens()), (Limit::Tokens, 0));
        budget.settle(reserved, Usage::default(), Some(0.0));
        assert_eq!(budget.remaining_tokens(), 50_000 - 3 * 2_900 - 41_200);
    }

    #[test]
    fn the_input_that_was_reported_stands_for_the_attempt_that_follows() {
        let budget = root(&limits(1_000));
        let mut reserved = budget.reserve(10, Some(100), &model(None)).expect("fits");
        let error = budget.follow(&mut reserved, Spent::of(used(600, 0), None)).expect_err("as much again");
        assert_eq!((error.limit, error.used), (Limit::Tokens, 600));
    }

    #[tokio::test]
    async fn a_reservation_that_is_dropped_is_lost_and_wakes_who_waits_for_it() {
        let parent = root(&limits(1_500));
        let held = parent.reserve(400, Some(600), &model(None)).expect("fits");
        let child = below(&parent);
        let freed = child.freed();
        assert!(child.reserve(100, None, &model(None)).is_err());
        drop(held);
        freed.await;
        assert_eq!(parent.remaining_tokens(), 500, "all of it counts as used");
        assert_eq!(child.reserve(100, None, &model(None)).expect("fits").max_output_tokens(), 400);
    }
}
