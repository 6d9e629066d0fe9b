//! What every kind of provider implements: one attempt, without a second thought.
//!
//! A source neither retries nor waits its turn nor keeps the request's time; [`retry`](crate::retry) does.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_agent::{ModelEvent, ModelFault, ModelProfile, ModelRequest, Price, Usage};
use drupe_extension_api::{FailureClass, Message, ModelParameters};
use futures_util::stream::BoxStream;

use crate::error::Unsupported;

/// One model of one provider.
pub(crate) trait Source: Send + Sync {
    fn profile(&self) -> &ModelProfile;

    /// What its model of this name takes; none where it has no such model.
    fn price_of(&self, model: &str) -> Option<Option<Price>> {
        let profile = self.profile();
        (profile.name == model).then_some(profile.price)
    }

    /// Whether the model's provider can do all that is asked for; else what it cannot, for people. Called when an
    /// agent is loaded, before any request.
    fn supports(&self, parameters: &ModelParameters) -> Result<(), Unsupported>;

    /// Asks once. Yields text, reasoning and tool calls, then either [`ModelEvent::Done`] or an error, and ends.
    /// What comes that no event tells of is noted in `progress`.
    fn attempt(
        &self,
        request: Arc<ModelRequest>,
        progress: Arc<Progress>,
    ) -> BoxStream<'static, Result<ModelEvent, Broken>>;
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Broken {
    pub(crate) fault: ModelFault,
    pub(crate) whose: Whose,
}

/// Whose a failure is: who rests where it comes again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The account's or the host's: the provider's other models would fail in the same way.
    Provider,
    /// The model's. Others of the same provider may be well.
    Model,
    /// The request's own: another request may succeed. Also for an answer that came and cannot be used.
    Request,
    /// It says nothing of either, since the asker did not wait.
    Nobody,
}

impl From<ModelFault> for Broken {
    fn from(fault: ModelFault) -> Self {
        let whose = match fault.class {
            FailureClass::Auth => Whose::Provider,
            // Without another attempt it is the credit or the quota of the account that is used up.
            FailureClass::RateLimit if !fault.retriable => Whose::Provider,
            _ if fault.retriable => Whose::Model,
            _ => Whose::Request,
        };
        Self { fault, whose }
    }
}

/// How far an attempt came. It outlives one that is cut off, whose cost would be lost otherwise.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Came>);

#[derive(Debug, Default, Clone, Copy)]
struct Came {
    began: bool,
    /// What came holds nothing of an answer.
    empty: bool,
    usage: Option<Usage>,
}

impl Progress {
    /// Bytes of an answer came; `usage` is what it is known to cost by now, and `empty` whether there is nothing of it yet.
    pub(crate) fn note(&self, usage: Option<Usage>, empty: bool) {
        *self.came() = Came { began: true, empty, usage };
    }

    /// Whether the other side only showed that it is there.
    pub(crate) fn only_lives(&self) -> bool {
        let came = *self.came();
        came.began && came.empty
    }

    /// What came was no answer: the request was turned away.
    pub(crate) fn forget(&self) {
        *self.came() = Came::default();
    }

    /// The fault, with how far the attempt came that it ended.
    pub(crate) fn tell(&self, fault: ModelFault) -> ModelFault {
        let came = *self.came();
        let usage = fault.usage.or(came.usage);
        let fault = if came.began { fault.began() } else { fault };
        fault.with_usage(usage)
    }

    /// A panic elsewhere cannot leave a `Copy` state half written.
    fn came(&self) -> MutexGuard<'_, Came> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `name` is a snapshot of `model`: its name with a day or a number of three digits behind it.
pub(crate) fn is_snapshot(name: &str, model: &str) -> bool {
    let Some(mark) = name.strip_prefix(model).and_then(|rest| rest.strip_prefix('-')) else { return false };
    let form: String = mark.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    matches!(form.as_str(), "000" | "00000000" | "0000-00-00")
}

/// A span of time that can be added to any instant: what is longer than a year is a year.
pub(crate) fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms.min(366 * 24 * 3_600_000))
}

/// Bytes of an answer for each token of its bound, and beside them. Tokens have three or four bytes; what has more than this
/// comes from one that does not keep the bound.
const MOST_BYTES_OF_A_TOKEN: usize = 16;
const BESIDE: usize = 64 << 10;

/// Bytes that an answer may have: far more than its bound on tokens holds.
pub(crate) fn longest(max_output_tokens: u32) -> usize {
    let tokens = usize::try_from(max_output_tokens).unwrap_or(usize::MAX);
    tokens.saturating_mul(MOST_BYTES_OF_A_TOKEN).saturating_add(BESIDE)
}

/// Which step of its run a request is: the answers so far, and one.
pub(crate) fn step(messages: &[Arc<Message>]) -> usize {
    1 + messages.iter().filter(|m| matches!(***m, Message::Assistant { .. })).count()
}
