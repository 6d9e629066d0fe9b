//! The sums of one run.

use drupe_extension_api::{AgentId, BudgetUse, DefinitionLimits, Usage};

use super::{Exceeded, Limit, Spent, UnknownPrice, Unpriced};
use crate::model::Price;

/// Of a limit, the part in tenths at which its use is told.
const MOST: u64 = 8;

/// What one run and all below it may spend and have spent.
#[derive(Debug)]
pub(super) struct Node {
    pub parent: Option<usize>,
    agent: AgentId,
    pub limits: DefinitionLimits,
    pub spent: Spent,
    /// What an earlier process is recorded to have used, and nobody has come back to yet: it counts as used from the
    /// beginning, for code may never ask for it again.
    pub ahead: Spent,
    /// Tokens set aside for calls that run.
    pub reserved: u64,
    /// US dollars set aside for them.
    pub reserved_usd: f64,
    /// The limits whose use was told.
    warned: Vec<Limit>,
}

impl Node {
    pub(super) fn new(parent: Option<usize>, agent: AgentId, limits: &DefinitionLimits) -> Self {
        Self {
            parent,
            agent,
            limits: limits.clone(),
            spent: Spent::default(),
            ahead: Spent::default(),
            reserved: 0,
            reserved_usd: 0.0,
            warned: Vec::new(),
        }
    }

    /// All that counts as used.
    pub(super) fn used(&self) -> Spent {
        let mut used = self.spent;
        used += self.ahead;
        used
    }

    /// Comes back to a part of what lies ahead.
    pub(super) fn replay(&mut self, part: Spent) {
        self.ahead.take(&part);
        self.spent += part;
    }

    pub(super) fn left(&self) -> u64 {
        self.limits
            .max_tokens_per_invocation
            .saturating_sub(self.used().tokens().saturating_add(self.reserved))
    }

    pub(super) fn release(&mut self, tokens: u64, usd: f64) {
        self.reserved -= tokens;
        // Sums of parts leave no rest, for which somebody would wait.
        self.reserved_usd = if self.reserved == 0 { 0.0 } else { self.reserved_usd - usd };
    }

    /// Whether a model whose price is not known may be asked.
    pub(super) fn may_ask(&self, unpriced: &str) -> Result<(), Unpriced> {
        let Some(unknown) = UnknownPrice::under(&self.limits, unpriced) else { return Ok(()) };
        let allowed = micros(self.limits.max_cost_usd.unwrap_or(0.0));
        Err(Unpriced { agent: self.agent.clone(), allowed, unknown })
    }

    /// How long an answer may be after so much input, by what is left of tokens and of money.
    pub(super) fn room(&self, input: u64, price: Option<Price>) -> Result<u64, Exceeded> {
        let tokens = self.left().saturating_sub(input);
        if tokens == 0 {
            return Err(self.out_of_tokens(input));
        }
        let Some((allowed, price)) = self.limits.max_cost_usd.zip(price) else { return Ok(tokens) };
        let paid = answer_for(allowed - self.used().dollars() - self.reserved_usd, input, price);
        if paid == 0 { Err(self.out_of_money(allowed, input, price)) } else { Ok(tokens.min(paid)) }
    }

    /// A call with so much input does not fit.
    fn out_of_tokens(&self, input: u64) -> Exceeded {
        let allowed = self.limits.max_tokens_per_invocation;
        let used = self.used().tokens();
        let held_up = self.reserved > 0 && used.saturating_add(input) < allowed;
        Exceeded { held_up, ..self.exceeded(Limit::Tokens, used, allowed) }
    }

    /// Whether `output` is all that is left for the answer, and there would be more of it were nothing reserved: the limit
    /// then.
    pub(super) fn is_held_up(&self, input: u64, output: u64, price: Option<Price>) -> Result<(), Exceeded> {
        let used = self.used();
        let whole = self.limits.max_tokens_per_invocation.saturating_sub(used.tokens()).saturating_sub(input);
        if self.reserved > 0 && self.left().saturating_sub(input) <= output && whole > output {
            return Err(self.out_of_tokens(input));
        }
        let Some((allowed, price)) = self.limits.max_cost_usd.zip(price) else { return Ok(()) };
        let paid = |left: f64| answer_for(left - used.dollars(), input, price);
        let short = self.reserved_usd > 0.0 && paid(allowed - self.reserved_usd) <= output;
        if short && paid(allowed) > output { Err(self.out_of_money(allowed, input, price)) } else { Ok(()) }
    }

    fn out_of_money(&self, allowed: f64, input: u64, price: Price) -> Exceeded {
        let used = self.used().dollars();
        let held_up = self.reserved_usd > 0.0 && answer_for(allowed - used, input, price) > 0;
        Exceeded { held_up, ..self.exceeded(Limit::Cost, micros(used), micros(allowed)) }
    }

    pub(super) fn exceeded(&self, limit: Limit, used: u64, allowed: u64) -> Exceeded {
        Exceeded { limit, agent: self.agent.clone(), used, allowed, held_up: false }
    }

    /// The limits of which most is `used` and that were not told yet.
    pub(super) fn warnings(&mut self, used: &Spent, own: u32, time: (u64, u64)) -> Vec<BudgetUse> {
        let limits = &self.limits;
        let of = |count: u32, most: u32| (u64::from(count), u64::from(most));
        let uses = [
            (Limit::Turns, of(own, limits.max_turns)),
            (Limit::Tokens, (used.tokens(), limits.max_tokens_per_invocation)),
            (Limit::Cost, limits.max_cost_usd.map_or((0, 0), |most| (micros(used.dollars()), micros(most)))),
            (Limit::ToolCalls, of(used.tool_calls, limits.max_tool_calls)),
            (Limit::Time, time),
        ];
        let mut due = Vec::new();
        for (limit, (used, allowed)) in uses {
            // A limit of 0 or 1 has no most: it is used whole or not at all.
            let most = allowed > 1 && used.saturating_mul(10) >= allowed.saturating_mul(MOST);
            if most && !self.warned.contains(&limit) {
                self.warned.push(limit);
                due.push(limit.told(used, allowed));
            }
        }
        due
    }
}

/// The longest answer that `usd` pay for, after so much input; any where an answer costs nothing.
fn answer_for(usd: f64, input: u64, price: Price) -> u64 {
    let asked = Usage { input_tokens: input, cache_write_tokens: input, ..Usage::default() };
    let output = price.output_after(input);
    match usd - price.cost(&asked) {
        rest if rest < 0.0 => 0,
        _ if output <= 0.0 => u64::MAX,
        rest => (rest * 1e6 / output) as u64,
    }
}

/// US dollars in millionths, as limits are told.
fn micros(usd: f64) -> u64 {
    (usd * 1e6) as u64
}
