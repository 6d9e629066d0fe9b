//! What every kind of provider implements: one attempt, without a second thought.
//!
//! A source neither retries nor waits its turn nor keeps the request's time; [`retry`](crate::retry) does.

use std::{sync::Arc, time::Duration};

use drupe_agent::{ModelEvent, ModelFault, ModelProfile, ModelRequest, Usage};
use drupe_extension_api::{Message, ModelParameters};
use futures_util::stream::BoxStream;

/// One model of one provider.
pub(crate) trait Source: Send + Sync {
    /// What is known of the model.
    fn profile(&self) -> &ModelProfile;

    /// Whether the model's provider can do all that is asked for; else what it cannot, for people. Called when an
    /// agent is loaded, before any request.
    fn supports(&self, parameters: &ModelParameters) -> Result<(), String>;

    /// Asks once. Yields text, reasoning and tool calls, then either [`ModelEvent::Done`] or an error, and ends.
    fn attempt(&self, request: Arc<ModelRequest>) -> BoxStream<'static, Result<ModelEvent, Broken>>;
}

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Broken {
    pub(crate) fault: ModelFault,
    /// Tokens that it is known to have cost all the same.
    pub(crate) usage: Option<Usage>,
}

impl From<ModelFault> for Broken {
    fn from(fault: ModelFault) -> Self {
        Self { fault, usage: None }
    }
}

/// A span of time that can be added to any instant: what is longer than a year is a year.
pub(crate) fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms.min(366 * 24 * 3_600_000))
}

/// Which step of its run a request is: the answers so far, and one.
pub(crate) fn step(messages: &[Arc<Message>]) -> usize {
    1 + messages.iter().filter(|m| matches!(***m, Message::Assistant { .. })).count()
}
