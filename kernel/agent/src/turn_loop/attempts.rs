//! What each attempt of a model used and cost, and its records: one event for each, and one entry, which for an answer is
//! the caller's.
//!
//! It charges nothing.

use drupe_extension_api::{EventBody, FailureClass, Preview, Usage};

use super::{
    Progress, Stop,
    stream::{Asked, Collected},
};
use crate::{journal::Entry, model::ModelFault, run::millis};

/// An attempt without an answer.
pub(super) struct Failure {
    pub class: FailureClass,
    pub message: String,
    /// What it used, and whether that is an estimate.
    pub used: (Usage, bool),
    /// US dollars for that, where the price is known.
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

    /// What an attempt that failed has used, and whether that is an estimate. What was reported of an answer that broke
    /// off was counted before it did.
    pub(super) fn used_by_a_failure(
        &self,
        bytes: usize,
        got: &Collected,
        fault: &ModelFault,
        reported: Option<Usage>,
    ) -> (Usage, bool) {
        if got.is_empty() && reported.is_none() && fault.used_nothing() {
            return (Usage::default(), true);
        }
        let least = self.estimate(bytes, got);
        let Some(reported) = reported else { return (least, true) };
        let used = Usage {
            input_tokens: if reported.input_tokens > 0 { reported.input_tokens } else { least.input_tokens },
            output_tokens: reported.output_tokens.max(least.output_tokens),
            ..reported
        };
        (used, used != reported)
    }

    /// What an answer used, and whether that is estimated. Some gateways report zeros for what they did not count.
    pub(super) fn used_by_an_answer(
        &self,
        bytes: usize,
        got: &Collected,
        reported: Option<Usage>,
    ) -> (Usage, bool) {
        let least = self.estimate(bytes, got);
        let Some(reported) = reported else { return (least, true) };
        let counted = |reported, least| if reported > 0 { reported } else { least };
        let used = Usage {
            input_tokens: counted(reported.input_tokens, least.input_tokens),
            output_tokens: counted(reported.output_tokens, least.output_tokens),
            ..reported
        };
        (used, used != reported)
    }

    /// Usage for a provider that reports none.
    pub(super) fn estimate(&self, request: usize, got: &Collected) -> Usage {
        let tokens = |bytes| self.run.scope.ratios.tokens(&got.model, bytes);
        Usage { input_tokens: tokens(request), output_tokens: tokens(got.bytes()), ..Usage::default() }
    }
}
