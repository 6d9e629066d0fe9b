//! What each attempt of a model used and cost, and its record, which for an answer is the caller's.
//!
//! It charges nothing.

use drupe_extension_api::{FailureClass, ItemOutcome, Preview, Usage};

use super::{
    Progress, Stop,
    stream::{Asked, Collected},
};
use crate::{
    journal::{Attempted, BrokenAnswer, Entry, ShownAnswer, reasoning_id},
    run::millis,
};

/// An attempt without an answer.
pub(super) struct Failure {
    pub class: FailureClass,
    pub message: String,
    /// What it used, and whether that is an estimate.
    pub used: (Usage, bool),
    /// US dollars for that, where the price is known; none also for what was lost where it is not.
    pub cost_usd: Option<f64>,
    /// Tokens and US dollars that count as used since nobody knows.
    pub lost: (u64, f64),
}

impl Failure {
    /// That which ended so, and used nothing.
    pub(super) fn of(stop: &Stop) -> Self {
        let used = (Usage::default(), true);
        Self { class: stop.class(), message: stop.reason(), used, cost_usd: Some(0.0), lost: (0, 0.0) }
    }
}

impl Progress<'_> {
    /// How the present attempt went. `ended`, if nobody is shown anything more of the answer: how it broke off, if it did.
    pub(super) fn went(
        &self,
        asked: Asked<'_>,
        got: &Collected,
        ended: Option<Option<ItemOutcome>>,
    ) -> Attempted {
        let shown = asked.item.zip(ended).map(|(id, broken)| ShownAnswer {
            since: asked.attempt,
            elapsed_ms: millis(asked.began.elapsed()),
            reasoned_ms: got.reasoned.map(|(_, lasted)| millis(lasted)),
            broken: broken.map(|outcome| BrokenAnswer {
                outcome,
                text: Preview::kept(&got.text, id),
                reasoning: Preview::kept(&got.reasoning, &reasoning_id(id)),
            }),
        });
        let (attempt, latency_ms) = (asked.attempt + got.failed, millis(got.began.elapsed()));
        let first_ms = got.first.map(|first| millis(first - got.began));
        Attempted { attempt, latency_ms, first_ms, shown }
    }

    /// What that model takes for it: of a list each has its own price.
    pub(super) fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        self.agent.model.price_of(model).map(|price| price.cost(usage))
    }

    /// Records that the present attempt gave no answer; `ended`, unless another one follows.
    pub(super) fn record_failure(
        &self,
        asked: Asked<'_>,
        got: &Collected,
        failure: Failure,
        ended: Option<ItemOutcome>,
    ) {
        if asked.item.is_some() && ended.is_some() {
            self.run.item_failed();
        }
        let Failure { class, message, used: (usage, estimated), cost_usd, lost: (lost_tokens, lost_usd) } =
            failure;
        self.run.record(Entry::Failed {
            invocation: self.run.id.clone(),
            step: asked.step,
            attempt: asked.attempt + got.failed,
            model: got.model.clone(),
            class,
            message,
            usage,
            cost_usd,
            estimated: estimated && usage.total() > 0,
            lost_tokens,
            lost_usd,
            repeated: ended.is_none(),
            told: Some(self.went(asked, got, ended.map(Some)).into()),
        });
    }
}
