//! One request to the model: what is set aside for it, what is recorded of it, and what it cost.

use std::sync::Arc;

use drupe_extension_api::{EventBody, Message, ProviderItems, ToolCallRequest, Usage, wire::HookPoint};
use drupe_limits::{Hold, Spender};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Progress, Stop,
    attempts::Failure,
    ending::{Ending, none_ran},
    stream::{Asked, Collected, Ended},
    usage::Made,
};
use crate::{
    budget::{Reservation, Spent},
    images::Weight,
    journal::{Attempted, Entry},
    model::{Dispatch, ModelRequest, Room, StopReason},
    run::millis,
    told::is_blank,
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
    /// What all that is sent weighs.
    pub weight: Weight,
    /// Hash over it, in hex.
    pub hash: String,
    pub max_output_tokens: u32,
    pub patience: Patience,
    /// Until when it may take, where nobody waits for what comes of it.
    pub until: Option<Instant>,
}

/// How long the model may take.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// For one attempt, in milliseconds.
    pub timeout_ms: u64,
    /// How often the request may be repeated.
    pub max_retries: u32,
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
    pub ending: Ending,
    /// How the attempt went, for its record.
    pub told: Attempted,
}

impl Given {
    /// Whether it is of use as a summary: also where its bound cut it off, but not what a filter or the model left of it.
    pub(super) fn sums_up(&self) -> bool {
        let said = self.ending.stop.is_whole() || matches!(self.ending.stop, StopReason::Length { .. });
        said && !is_blank(&self.text)
    }
}

/// What is set aside for a request, in the run's tree and in the quotas.
pub(super) struct Reserved {
    own: Reservation,
    hold: Hold,
    /// What bounds the answers of attempts that repeat the first.
    room: Room,
    /// Whether the present attempt was sent.
    dispatch: Dispatch,
}

impl Reserved {
    /// The most that the present attempt may use.
    pub(super) fn worst(&self) -> Usage {
        self.own.worst
    }
}

impl Progress<'_> {
    /// Asks the model as that attempt, which moves on by all that are made. What they used is charged and told, whatever
    /// the way in which they end; failures are recorded, an answer is the caller's to record.
    pub(super) async fn put(&mut self, question: Question, attempt: &mut u32) -> Result<Given, Stop> {
        let item = question.item.clone();
        let (step, weight) = (question.step, question.weight);
        self.before_model(&question).await?;
        self.check_end()?;
        let mut reserved = self.reserve_in_turn(&question).await?;
        self.announce(&question, *attempt, &reserved);
        if let Err(fault) = self.run.commit().await {
            // Nothing was sent.
            self.give_back(reserved);
            return Err(fault.into());
        }
        let (began, until) = (Instant::now(), question.until);
        let asked = Asked { step, attempt: *attempt, item: item.as_deref(), weight, began, until };
        let mut got = Collected::new(self.model_name().to_owned());
        let request = self.request(question, reserved.own.max_output_tokens());
        (reserved.room, reserved.dispatch) = (request.room.clone(), request.dispatch.clone());
        let events = self.agent.model.stream(request);
        let ended = self.read(asked, events, &mut got, &mut reserved).await;
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
                stop = self.spared(question.until) => return Err(stop),
                () = freed => {}
            }
        }
    }

    /// Ends when what nobody waits for is to be given up; never for anything else.
    pub(super) async fn spared(&self, until: Option<Instant>) -> Stop {
        let Some(until) = until else { return std::future::pending().await };
        tokio::select! {
            biased;
            () = self.run.scope.behind.given_up() => Stop::GivenUp,
            () = tokio::time::sleep_until(until) => Stop::Late,
        }
    }

    fn give_back(&self, reserved: Reserved) {
        self.settle(reserved, Usage::default(), Some(0.0));
    }

    fn reserve(&self, question: &Question) -> Result<Reserved, Stop> {
        let scope = &self.run.scope;
        let profile = self.agent.model.profile();
        let input = question.weight.tokens(&scope.ratios, &profile.name);
        self.run.budget.may_ask(self.agent.model.unpriced())?;
        let own = self.run.budget.reserve(input, Some(question.max_output_tokens), profile)?;
        match scope.quotas.reserve(self.spender(), own.tokens(), self.priced(own.usd), self.now_ms()) {
            Ok(hold) => Ok(Reserved { own, hold, room: Room::default(), dispatch: Dispatch::default() }),
            Err(error) => {
                self.run.budget.settle(own, Usage::default(), Some(0.0));
                Err(error.into())
            }
        }
    }

    /// Dollars that the quotas are to put aside; none where no price is known.
    fn priced(&self, usd: f64) -> Option<f64> {
        self.agent.model.profile().price.map(|_| usd)
    }

    /// An attempt failed, and another is to follow: what it used is charged, and what is set aside is for the next one,
    /// within what is left. Nothing is set aside any more where a limit leaves no room for it.
    pub(super) fn follow(
        &self,
        reserved: &mut Reserved,
        used: Usage,
        cost_usd: Option<f64>,
    ) -> Result<(), Stop> {
        let followed = self.run.budget.follow(&mut reserved.own, Spent::of(used, cost_usd));
        let (next, quotas) = (&reserved.own, &self.run.scope.quotas);
        let ahead = (next.tokens(), self.priced(next.usd));
        let charged = quotas.follow(&mut reserved.hold, (used.total(), cost_usd), ahead, self.now_ms());
        followed?;
        self.tell(charged?);
        reserved.room.narrow(next.max_output_tokens());
        Ok(())
    }

    /// Records that the model is about to be asked.
    fn announce(&mut self, question: &Question, attempt: u32, reserved: &Reserved) {
        if question.item.is_some() {
            self.run.budget.step();
            self.asked = question.step;
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
            unpriced: self.agent.model.profile().price.is_none(),
            bytes_per_token: self.run.scope.ratios.learned(self.model_name()),
            shown: question.item.is_some(),
        });
    }

    /// How long the model may take where somebody needs what it says.
    pub(super) fn patience(&self) -> Patience {
        Patience {
            timeout_ms: self.agent.shared.parameters.timeout_ms.unwrap_or(REQUEST_TIMEOUT_MS),
            max_retries: self.agent.definition.limits.max_retries,
        }
    }

    fn request(&self, question: Question, max_output_tokens: u32) -> ModelRequest {
        let shared = &self.agent.shared;
        let left = millis(self.run.budget.time().left());
        ModelRequest {
            agent: shared.card.clone(),
            system: question.system,
            messages: question.messages,
            tools: question.offer.tools,
            deferred: question.offer.deferred,
            parameters: match &question.item {
                Some(_) => Arc::clone(&shared.parameters),
                None => Arc::clone(&shared.plain),
            },
            sparing: question.item.is_none(),
            max_output_tokens,
            room: Room::default(),
            dispatch: Dispatch::default(),
            output: shared.output.clone().filter(|_| question.item.is_some()),
            timeout_ms: question.patience.timeout_ms.min(left),
            max_retries: question.patience.max_retries,
        }
    }

    /// Charges and tells an answer.
    fn answered_by(&self, asked: Asked<'_>, mut got: Collected, ended: Ended, reserved: Reserved) -> Given {
        got.model = ended.model;
        let (usage, estimated) =
            self.used_by_an_answer(Made::new(asked.weight, &got, &reserved), ended.usage);
        let cost_usd = self.cost(&got.model, &usage);
        let bound = reserved.own.max_output_tokens();
        self.settle(reserved, usage, cost_usd);
        let mut stop = ended.stop;
        if !stop.is_whole() {
            // No tool runs from an answer that is not whole.
            stop = stop.dropping(u32::try_from(std::mem::take(&mut got.calls).len()).unwrap_or(u32::MAX));
        }
        let reasoned = !got.reasoning.is_empty() || usage.reasoning_tokens > 0;
        let ending = Ending { stop, bound: Some(bound), reasoned, said: std::mem::take(&mut got.said) };
        let told = match stop {
            StopReason::Length { .. } => {
                Some(("answer_cut", format!("was cut off at its bound of {bound} tokens")))
            }
            StopReason::Filter { .. } => {
                let words = ending.in_its_words();
                Some(("answer_filtered", format!("was cut off by the provider's filter{words}")))
            }
            StopReason::Refusal { dropped_calls: 1.. } => {
                Some(("answer_declined", "ended in a refusal".into()))
            }
            StopReason::End | StopReason::ToolCalls | StopReason::Refusal { .. } => None,
        };
        // A summary is nobody's answer.
        if let Some((code, what)) = told.filter(|_| asked.item.is_some()) {
            let message = format!("the answer of {} {what}{}", got.model, none_ran(stop.dropped_calls()));
            self.diagnostic(code, &message);
        }
        Given {
            ending,
            told: self.went(asked, &got, Some(None)),
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

    /// Charges, records and tells a failure: of what the provider broke off, what is known of its use; all that was set
    /// aside where we did, unless nothing was sent.
    fn failed(&self, asked: Asked<'_>, mut got: Collected, stop: &Stop, reserved: Reserved) {
        let mut failure = Failure::of(stop);
        // Of several models any may have been asked, and each has its own price.
        got.model = reserved.dispatch.model().unwrap_or(got.model);
        match stop {
            Stop::Model(fault) => {
                let made = Made::new(asked.weight, &got, &reserved);
                failure.used = self.used_by_a_failure(made, fault, fault.usage);
                failure.cost_usd = self.cost(&got.model, &failure.used.0);
                self.settle(reserved, failure.used.0, failure.cost_usd);
            }
            // Nothing was sent, or the attempt before it was the last, and is charged.
            Stop::Exceeded(_) | Stop::Quota(_) => self.give_back(reserved),
            _ if reserved.dispatch.is_unsent() => self.give_back(reserved),
            _ => {
                // Of the worst case, what that model takes for it.
                let known = self.cost(&got.model, &reserved.own.worst);
                let usd = known.unwrap_or(0.0);
                failure.cost_usd = known.map(|_| 0.0);
                failure.lost = (reserved.own.tokens(), usd);
                self.run.budget.lose(reserved.own, usd);
                let lost = (failure.lost.0, Some(usd));
                self.tell(self.run.scope.quotas.settle(reserved.hold, lost.0, lost.1, self.now_ms()));
            }
        }
        // An attempt that a limit stopped before it was sent is none: the one before it was the last.
        if !matches!(stop, Stop::Exceeded(_) | Stop::Quota(_)) {
            self.record_failure(asked, &got, failure, Some(stop.outcome()));
        }
    }

    /// Replaces what is set aside by what was used.
    fn settle(&self, reserved: Reserved, used: Usage, cost_usd: Option<f64>) {
        self.run.budget.settle(reserved.own, used, cost_usd);
        let quotas = &self.run.scope.quotas;
        self.tell(quotas.settle(reserved.hold, used.total(), cost_usd, self.now_ms()));
    }

    /// Whether the quotas have room for anything more.
    pub(super) fn has_room(&self) -> Result<(), Stop> {
        let quotas = &self.run.scope.quotas;
        let none = quotas.reserve(self.spender(), 0, None, self.now_ms())?;
        quotas.settle(none, 0, None, self.now_ms());
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        self.run.scope.clock.now_ms()
    }

    fn spender(&self) -> Spender<'_> {
        self.run.spender()
    }

    /// Tells what most is used of.
    fn tell(&self, warnings: Vec<drupe_extension_api::BudgetUse>) {
        for warning in warnings {
            self.run.tell(EventBody::BudgetWarning(warning));
        }
    }

    /// Tells of which limits of the run most is used, with `steps` begun.
    pub(super) fn warn(&self, steps: u32) {
        self.tell(self.run.budget.warnings(steps));
    }

    async fn before_model(&self, question: &Question) -> Result<(), Stop> {
        let facts = || {
            let tokens = question.weight.tokens(&self.run.scope.ratios, self.model_name());
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
