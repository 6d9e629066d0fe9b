//! One request to the model: what is set aside for it, what is recorded of it, and what it cost.

use std::sync::Arc;

use drupe_extension_api::{
    EventBody, Item, ItemKind, ItemOutcome, Message, ProviderItems, ToolCallRequest, Usage, wire::HookPoint,
};
use drupe_limits::{Hold, Spender};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Progress, Stop,
    attempts::Failure,
    stream::{Asked, Collected, Ended},
};
use crate::{
    budget::Reservation,
    journal::Entry,
    model::{ModelRequest, StopReason},
    run::millis,
};

/// Time for one model request where the agent names none.
const REQUEST_TIMEOUT_MS: u64 = 120_000;

/// What the model is asked.
pub(super) struct Question {
    pub step: u32,
    /// The item of a step's answer; none for what nobody is shown, which is no step either.
    pub item: Option<String>,
    pub system: Arc<str>,
    pub messages: Arc<Vec<Arc<Message>>>,
    pub offer: super::Offer,
    /// Size of all that is sent.
    pub bytes: usize,
    /// Hash over it, in hex.
    pub hash: String,
    pub max_output_tokens: u32,
}

/// What it answered.
pub(super) struct Given {
    pub text: String,
    pub reasoning: Option<String>,
    pub calls: Vec<ToolCallRequest>,
    pub provider_items: Option<ProviderItems>,
    pub model: String,
    /// What it used; attempts that failed before it are recorded.
    pub usage: Usage,
    pub cost_usd: Option<f64>,
    pub estimated: bool,
}

/// What is set aside for a request, in the run's tree and in the quotas.
struct Reserved {
    own: Reservation,
    hold: Hold,
}

impl Progress<'_> {
    /// Asks the model as that attempt, which moves on by all that are made. What they used is charged and told, whatever
    /// the way in which they end; failures are recorded, an answer is the caller's to record.
    pub(super) async fn put(&mut self, question: Question, attempt: &mut u32) -> Result<Given, Stop> {
        let item = question.item.clone();
        let (step, bytes) = (question.step, question.bytes);
        self.before_model(&question).await?;
        self.check_end()?;
        let reserved = self.reserve_in_turn(&question).await?;
        let max_output_tokens = reserved.own.max_output_tokens;
        self.announce(&question, *attempt, &reserved);
        if let Err(fault) = self.run.commit().await {
            // Nothing was sent.
            self.give_back(reserved);
            return Err(fault.into());
        }
        let asked = Asked { step, attempt: *attempt, item: item.as_deref(), bytes, began: Instant::now() };
        let mut got = Collected::new(self.model_name().to_owned());
        let events = self.agent.model.stream(self.request(question, max_output_tokens));
        let ended = self.read(asked, events, &mut got).await;
        *attempt += got.failed + 1;
        let given = match ended {
            Ok(ended) => Ok(self.answered_by(asked, got, ended, reserved)),
            Err(stop) => {
                self.failed(asked, got, &stop, reserved);
                Err(stop)
            }
        };
        self.after_model(asked, &given).await;
        given
    }

    /// Reserves; where only what other runs of the tree have reserved is in the way, waits until they are done with it.
    /// They hold it for as long as their models answer, and wait for nobody meanwhile.
    async fn reserve_in_turn(&self, question: &Question) -> Result<Reserved, Stop> {
        loop {
            // Before the attempt, so that what comes free meanwhile is heard.
            let freed = self.run.budget.freed();
            let exceeded = match self.reserve(question) {
                Err(Stop::Exceeded(exceeded)) if exceeded.held_up => exceeded,
                other => return other,
            };
            tracing::debug!(%exceeded, "waits for what other runs have reserved");
            tokio::select! {
                biased;
                over = self.run.over() => return Err(over.into()),
                () = freed => {}
            }
        }
    }

    fn give_back(&self, reserved: Reserved) {
        self.run.budget.settle(reserved.own, Usage::default(), Some(0.0));
        self.tell(self.run.scope.quotas.settle(reserved.hold, 0, Some(0.0)));
    }

    fn reserve(&self, question: &Question) -> Result<Reserved, Stop> {
        let scope = &self.run.scope;
        let profile = self.agent.model.profile();
        let input = scope.ratios.tokens(&profile.name, question.bytes);
        self.run.budget.may_ask(self.agent.model.unpriced())?;
        let own = self.run.budget.reserve(input, Some(question.max_output_tokens), profile)?;
        let usd = profile.price.map(|_| own.usd);
        match scope.quotas.reserve(self.spender(), own.tokens(), usd, scope.clock.now_ms()) {
            Ok(hold) => Ok(Reserved { own, hold }),
            Err(error) => {
                self.run.budget.settle(own, Usage::default(), Some(0.0));
                Err(error.into())
            }
        }
    }

    /// Records that the model is about to be asked.
    fn announce(&mut self, question: &Question, attempt: u32, reserved: &Reserved) {
        if question.item.is_some() {
            self.run.budget.step();
            self.warn(question.step);
        }
        self.run.record(Entry::Step {
            invocation: self.run.id.clone(),
            step: question.step,
            attempt,
            model: self.model_name().to_owned(),
            request_hash: question.hash.clone(),
            reserved_tokens: reserved.own.tokens(),
            reserved_usd: reserved.own.usd,
        });
        if let Some(id) = &question.item {
            let kind = ItemKind::AgentMessage;
            let item = Item { id: id.clone(), kind, name: None, input: None, output: None };
            self.run.event(EventBody::ItemStarted { item });
        }
    }

    fn request(&self, question: Question, max_output_tokens: u32) -> ModelRequest {
        let shared = &self.agent.shared;
        let left = millis(self.run.budget.deadline().saturating_duration_since(Instant::now()));
        ModelRequest {
            agent: shared.card.clone(),
            system: question.system,
            messages: question.messages,
            tools: question.offer.tools,
            deferred: question.offer.deferred,
            parameters: shared.parameters.clone(),
            max_output_tokens,
            output: shared.output.clone().filter(|_| question.item.is_some()),
            timeout_ms: shared.parameters.timeout_ms.unwrap_or(REQUEST_TIMEOUT_MS).min(left),
            max_retries: self.agent.definition.limits.max_retries,
        }
    }

    /// Charges and tells an answer.
    fn answered_by(&self, asked: Asked<'_>, mut got: Collected, ended: Ended, reserved: Reserved) -> Given {
        let estimated = ended.usage.is_none();
        got.model = ended.model;
        if let Some(usage) = ended.usage {
            self.run.scope.ratios.observe(&got.model, asked.bytes, usage.input_tokens);
        }
        let usage = ended.usage.unwrap_or_else(|| self.estimate(asked.bytes, &got));
        let cost_usd = self.cost(&got.model, &usage);
        self.run.budget.settle(reserved.own, usage, cost_usd);
        self.tell(self.run.scope.quotas.settle(reserved.hold, usage.total(), cost_usd));
        self.attempt(asked, &got, (usage, estimated), ended.stop.name());
        if matches!(ended.stop, StopReason::Length { .. }) {
            let message = format!("the answer of {} was cut off at its bound on tokens", got.model);
            self.diagnostic("answer_cut", &message);
        }
        self.items_done(asked, &got, ItemOutcome::Ok);
        Given {
            text: got.text,
            reasoning: Some(got.reasoning).filter(|r| !r.is_empty()),
            calls: got.calls,
            provider_items: got.provider_items,
            model: got.model,
            usage,
            cost_usd,
            estimated,
        }
    }

    /// Charges, records and tells a failure. What may have been used counts as used.
    fn failed(&self, asked: Asked<'_>, got: Collected, stop: &Stop, reserved: Reserved) {
        let quotas = &self.run.scope.quotas;
        let known = match stop {
            Stop::Model(fault) => {
                fault.usage.map(|usage| self.used_by_a_failure(asked.bytes, &got, fault, Some(usage)))
            }
            _ => None,
        };
        let used = known.unwrap_or((Usage::default(), true));
        let cost_usd = known.map_or(Some(0.0), |(usage, _)| self.cost(&got.model, &usage));
        let lost = if let Some((usage, _)) = known {
            self.run.budget.settle(reserved.own, usage, cost_usd);
            self.tell(quotas.settle(reserved.hold, usage.total(), cost_usd));
            (0, 0.0)
        } else if got.is_empty() && stop.used_nothing() {
            self.give_back(reserved);
            (0, 0.0)
        } else {
            // Of the worst case, what that model takes for it.
            let usd = self.cost(&got.model, &reserved.own.worst).unwrap_or(0.0);
            let lost = (reserved.own.tokens(), usd);
            self.run.budget.lose(reserved.own, usd);
            self.tell(quotas.settle(reserved.hold, lost.0, Some(usd)));
            lost
        };
        let message = stop.reason();
        // An attempt that a limit stopped before it was sent is none: the one before it was the last.
        if !matches!(stop, Stop::Exceeded(_) | Stop::Quota(_)) {
            self.attempt(asked, &got, used, &message);
            let failure = Failure { class: stop.class(), message, used, cost_usd, lost };
            self.record_failure(asked, &got, failure, false);
        }
        self.items_done(asked, &got, stop.outcome());
    }

    /// Charges the quotas for what no reservation stands for.
    pub(super) fn charge_quotas(&self, tokens: u64, usd: Option<f64>) -> Result<(), Stop> {
        let scope = &self.run.scope;
        let hold = scope.quotas.reserve(self.spender(), 0, None, scope.clock.now_ms())?;
        self.tell(scope.quotas.settle(hold, tokens, usd));
        Ok(())
    }

    fn spender(&self) -> Spender<'_> {
        Spender { session: &self.run.scope.session, agent: &self.run.agent }
    }

    /// Tells what most is used of.
    fn tell(&self, warnings: Vec<drupe_extension_api::BudgetUse>) {
        for warning in warnings {
            self.run.event(EventBody::BudgetWarning(warning));
        }
    }

    /// Tells of which limits of the run most is used, with `steps` begun.
    pub(super) fn warn(&self, steps: u32) {
        self.tell(self.run.budget.warnings(steps, Instant::now()));
    }

    async fn before_model(&self, question: &Question) -> Result<(), Stop> {
        let facts = || {
            let tokens = self.run.scope.ratios.tokens(self.model_name(), question.bytes);
            json!({"step": question.step, "model": self.model_name(), "tokens": tokens})
        };
        match self.run.ask_before(HookPoint::BeforeModel, facts).await {
            Some(reason) => Err(Stop::Blocked(reason)),
            None => Ok(()),
        }
    }

    async fn after_model(&self, asked: Asked<'_>, given: &Result<Given, Stop>) {
        let facts = || match given {
            Ok(given) => json!({
                "step": asked.step, "model": given.model, "status": "success", "usage": given.usage,
                "tool_calls": given.calls.len(),
            }),
            Err(stop) => json!({
                "step": asked.step, "model": self.model_name(), "status": "error", "class": stop.class(),
                "error": stop.reason(),
            }),
        };
        self.run.ask_after(HookPoint::AfterModel, facts).await;
    }
}
