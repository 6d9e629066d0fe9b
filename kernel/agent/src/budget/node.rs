//! The sums of one run.

use drupe_extension_api::{AgentId, BudgetUse, DefinitionLimits, Spend, Usage};

use super::{Exceeded, Limit, Reservation};

/// Of a limit, the part in tenths at which its use is told.
const MOST: u64 = 8;

/// What one run and all below it may spend and have spent.
#[derive(Debug)]
pub(super) struct Node {
    pub parent: Option<usize>,
    agent: AgentId,
    pub limits: DefinitionLimits,
    pub spend: Spend,
    /// A price was unknown, so `spend.cost_usd` is no sum.
    unknown_cost: bool,
    /// Tokens set aside for calls that run.
    pub reserved: u64,
    /// US dollars set aside for them.
    pub reserved_usd: f64,
    /// Tokens of calls whose end was never seen.
    pub lost: u64,
    /// US dollars that they may have cost.
    pub lost_usd: f64,
    /// The limits whose use was told.
    warned: Vec<Limit>,
}

impl Node {
    pub(super) fn new(parent: Option<usize>, agent: AgentId, limits: &DefinitionLimits) -> Self {
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
            warned: Vec::new(),
        }
    }

    pub(super) fn spend(&self) -> Spend {
        let cost_usd = (!self.unknown_cost).then_some(self.spend.cost_usd.unwrap_or(0.0));
        Spend { cost_usd, ..self.spend }
    }

    pub(super) fn left(&self) -> u64 {
        self.limits.max_tokens_per_invocation.saturating_sub(self.used().saturating_add(self.reserved))
    }

    pub(super) fn release(&mut self, reservation: &Reservation) {
        self.reserved -= reservation.tokens;
        self.reserved_usd -= reservation.usd;
    }

    pub(super) fn charge(&mut self, usage: Usage, cost_usd: Option<f64>) {
        self.spend.usage += usage;
        match cost_usd {
            Some(cost) => *self.spend.cost_usd.get_or_insert(0.0) += cost,
            None => self.unknown_cost |= usage.total() > 0,
        }
    }

    pub(super) fn check_cost(&self, usd: f64, price_known: bool) -> Result<(), Exceeded> {
        let Some(allowed) = self.limits.max_cost_usd else { return Ok(()) };
        if !price_known {
            return if self.limits.allow_unknown_price {
                Ok(())
            } else {
                Err(self.exceeded(Limit::UnknownPrice, 0, micros(allowed)))
            };
        }
        if self.used_usd() + self.reserved_usd + usd > allowed {
            Err(self.out_of_money(allowed, usd))
        } else {
            Ok(())
        }
    }

    pub(super) fn overdrawn(&self) -> Option<Exceeded> {
        if self.used().saturating_add(self.reserved) > self.limits.max_tokens_per_invocation {
            return Some(self.out_of_tokens(0));
        }
        let allowed = self.limits.max_cost_usd?;
        (self.used_usd() + self.reserved_usd > allowed).then(|| self.out_of_money(allowed, 0.0))
    }

    /// A call with so much input does not fit.
    pub(super) fn out_of_tokens(&self, input: u64) -> Exceeded {
        let allowed = self.limits.max_tokens_per_invocation;
        let held_up = self.reserved > 0 && self.used().saturating_add(input) < allowed;
        Exceeded { held_up, ..self.exceeded(Limit::Tokens, self.used(), allowed) }
    }

    /// Whether there would be more room than `output` for the answer were nothing reserved.
    pub(super) fn is_short_of(&self, input: u64, output: u64) -> bool {
        let whole = self.limits.max_tokens_per_invocation.saturating_sub(self.used()).saturating_sub(input);
        self.reserved > 0 && self.left().saturating_sub(input) <= output && whole > output
    }

    fn out_of_money(&self, allowed: f64, usd: f64) -> Exceeded {
        let held_up = self.reserved_usd > 0.0 && self.used_usd() + usd <= allowed;
        Exceeded { held_up, ..self.exceeded(Limit::Cost, micros(self.used_usd()), micros(allowed)) }
    }

    pub(super) fn exceeded(&self, limit: Limit, used: u64, allowed: u64) -> Exceeded {
        Exceeded { limit, agent: self.agent.clone(), used, allowed, held_up: false }
    }

    /// The limits of which most is used and that were not told yet.
    pub(super) fn warnings(&mut self, own: u32, time: (u64, u64)) -> Vec<BudgetUse> {
        let limits = &self.limits;
        let of = |count: u32, most: u32| (u64::from(count), u64::from(most));
        let uses = [
            (Limit::Turns, of(own, limits.max_turns)),
            (Limit::Tokens, (self.used(), limits.max_tokens_per_invocation)),
            (Limit::Cost, limits.max_cost_usd.map_or((0, 0), |most| (micros(self.used_usd()), micros(most)))),
            (Limit::ToolCalls, of(self.spend.tool_calls, limits.max_tool_calls)),
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

    fn used(&self) -> u64 {
        self.spend.usage.total().saturating_add(self.lost)
    }

    fn used_usd(&self) -> f64 {
        self.spend.cost_usd.unwrap_or(0.0) + self.lost_usd
    }
}

/// US dollars in millionths, as limits are told.
fn micros(usd: f64) -> u64 {
    (usd * 1e6) as u64
}
