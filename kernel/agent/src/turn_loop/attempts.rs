//! What each attempt of a model used and cost, and its records: one event for each, and one entry, which for an answer is
//! the caller's.
//!
//! It charges nothing.

use drupe_extension_api::{EventBody, FailureClass, Preview, Usage};

use super::{
    Progress, Stop,
    stream::{Asked, Collected},
};
use crate::{journal::Entry, run::millis};

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
    /// Tells how the present attempt ended.
    pub(super) fn attempt(
        &self,
        asked: Asked<'_>,
        got: &Collected,
        (usage, estimated): (Usage, bool),
        stop: &str,
    ) {
        self.run.event(EventBody::ModelAttempt {
            step: asked.step,
            attempt: asked.attempt + got.failed,
            model: got.model.clone(),
            usage,
            estimated,
            latency_ms: millis(got.began.elapsed()),
            stop: Preview::of(stop).text,
            cost_usd: self.cost(&got.model, &usage),
        });
    }

    /// What that model takes for it: of a list each has its own price.
    pub(super) fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        self.agent.model.price_of(model).map(|price| price.cost(usage))
    }

    /// Records that the present attempt gave no answer; `repeated`, if another one follows.
    pub(super) fn record_failure(&self, asked: Asked<'_>, got: &Collected, failure: Failure, repeated: bool) {
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
            repeated,
        });
    }
}
