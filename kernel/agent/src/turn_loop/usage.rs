//! What each attempt counts as used: what the provider reports where it can be, else an estimate.
//!
//! One number that cannot be must not fill the limits of a day. So a report is held against what the request can hold and
//! against the bound on its answer; what is beyond them is replaced by what was set aside, and that is told.

use std::sync::atomic::Ordering;

use drupe_extension_api::Usage;

use super::{Progress, ask::Reserved, stream::Collected};
use crate::{images::Weight, model::ModelFault};

/// Tokens that a request may have beyond those of its texts: what a provider or a gateway puts in front of them.
const BEFORE: u64 = 16_384;

/// Tokens that an answer may have beyond twice its bound. Providers count reasoning within the bound, and most keep it;
/// some servers look at it late or not at all.
const BEYOND: u64 = 4_096;

/// Bytes that a token of a text has at most, on average over a text that is longer than [`SHORT`].
const LONGEST_TOKEN: u64 = 16;

/// Bytes of an answer about whose number of tokens its length says nothing.
const SHORT: u64 = 4_096;

/// What an attempt was.
#[derive(Clone, Copy)]
pub(super) struct Made<'a> {
    pub weight: Weight,
    /// What came of the answer.
    pub got: &'a Collected,
    /// The most that it was expected to use.
    pub worst: Usage,
}

impl<'a> Made<'a> {
    pub(super) fn new(weight: Weight, got: &'a Collected, reserved: &Reserved) -> Self {
        Self { weight, got, worst: reserved.worst() }
    }

    /// The most that counts as output, whatever came and whatever is reported.
    fn most_output(&self) -> u64 {
        self.worst.output_tokens.saturating_mul(2).saturating_add(BEYOND)
    }

    /// The least that what came can be, whatever is reported.
    fn least_output(&self) -> u64 {
        (texts(self.got.bytes()).saturating_sub(SHORT) / LONGEST_TOKEN).min(self.most_output())
    }

    /// The report, as far as it can be; `came` is an estimate of the answer.
    fn believed(&self, reported: Usage, came: u64) -> Usage {
        // A token of a text has at least one byte; a template may render the schemas of tools at twice their length.
        let most_input = texts(self.weight.bytes)
            .saturating_add(self.weight.images)
            .saturating_mul(2)
            .saturating_add(BEFORE);
        let mut used = reported;
        if reported.input_tokens > most_input {
            let input_tokens = self.worst.input_tokens;
            used = Usage { input_tokens, cached_tokens: 0, cache_write_tokens: 0, ..used };
        }
        if reported.output_tokens > self.most_output() {
            let output_tokens = self.worst.output_tokens.max(came);
            used = Usage { output_tokens, reasoning_tokens: 0, ..used };
        }
        let cached_tokens = used.cached_tokens.min(used.input_tokens);
        let cache_write_tokens = used.cache_write_tokens.min(used.input_tokens - cached_tokens);
        Usage { cached_tokens, cache_write_tokens, ..used }
    }
}

impl Progress<'_> {
    /// What an attempt that failed has used, and whether that is an estimate. What was reported of an answer that broke
    /// off was counted before it did.
    pub(super) fn used_by_a_failure(
        &self,
        made: Made<'_>,
        fault: &ModelFault,
        reported: Option<Usage>,
    ) -> (Usage, bool) {
        if made.got.is_empty() && reported.is_none() && fault.used_nothing() {
            return (Usage::default(), true);
        }
        self.used(made, reported, u64::max)
    }

    /// What an answer used, and whether that is an estimate.
    pub(super) fn used_by_an_answer(&self, made: Made<'_>, reported: Option<Usage>) -> (Usage, bool) {
        if let Some(reported) = reported.filter(|of| made.believed(*of, 0).input_tokens == of.input_tokens) {
            // What a picture counts says nothing of texts.
            if made.weight.images == 0 {
                self.run.scope.ratios.observe(&made.got.model, made.weight.bytes, reported.input_tokens);
            }
        }
        self.used(made, reported, counted)
    }

    /// What is believed of a report, with `output` of what it says and of what came; an estimate where there is none.
    fn used(&self, made: Made<'_>, reported: Option<Usage>, output: fn(u64, u64) -> u64) -> (Usage, bool) {
        let least = self.estimate(made);
        let Some(reported) = reported else { return (least, true) };
        let filled = Usage {
            input_tokens: counted(reported.input_tokens, least.input_tokens),
            // Reasoning is a part of it, also where a server counts it beside.
            output_tokens: output(reported.output_tokens.max(reported.reasoning_tokens), least.output_tokens)
                .max(made.least_output()),
            ..reported
        };
        let used = made.believed(filled, least.output_tokens);
        if used != filled {
            self.doubt(made, reported, used);
        }
        (used, used != reported)
    }

    /// Usage for a provider that reports none.
    fn estimate(&self, made: Made<'_>) -> Usage {
        let tokens = |bytes| self.run.scope.ratios.tokens(&made.got.model, bytes);
        Usage {
            input_tokens: made.weight.tokens(&self.run.scope.ratios, &made.got.model),
            output_tokens: tokens(made.got.bytes()).min(made.most_output()),
            ..Usage::default()
        }
    }

    /// Tells of a report that cannot be, once a turn.
    fn doubt(&self, made: Made<'_>, reported: Usage, used: Usage) {
        if self.run.scope.doubted.swap(true, Ordering::Relaxed) {
            return;
        }
        let Usage { input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens } =
            reported;
        let message = format!(
            "{} reported {input_tokens} tokens of input ({cached_tokens} from its cache, {cache_write_tokens} into it) \
             and {output_tokens} of output ({reasoning_tokens} of reasoning), which cannot be: the request had {} bytes, \
             and its answer was bounded to {} tokens. Counted are {} of input and {} of output",
            made.got.model,
            made.weight.bytes,
            made.worst.output_tokens,
            used.input_tokens,
            used.output_tokens,
        );
        self.diagnostic("usage_doubted", &message);
    }
}

fn texts(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Some gateways report zeros for what they did not count.
fn counted(reported: u64, least: u64) -> u64 {
    if reported > 0 { reported } else { least }
}
