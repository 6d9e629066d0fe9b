//! Why a run ends without the model's answer, and what it reports then.

use drupe_extension_api::{AgentResponse, EventBody, FailureClass, ItemOutcome};
use drupe_limits::QuotaExceeded;

use super::Progress;
use crate::{
    budget::{Exceeded, Limit, Unpriced},
    journal::JournalFault,
    model::ModelFault,
    prompt,
    run::{Over, millis},
};

/// Why a run ends without the model's answer.
pub(super) enum Stop {
    /// A limit of a run.
    Exceeded(Exceeded),
    /// A cost limit of a run, and a model without a price.
    Unpriced(Unpriced),
    /// A limit of the day, the session or the agent.
    Quota(Box<QuotaExceeded>),
    Window {
        needed: u64,
        window: u64,
    },
    Cancelled,
    Timeout,
    /// Nobody waits for what comes of it, and it took too long.
    Late,
    /// Nobody waits for what comes of it, and the process is about to end.
    GivenUp,
    Model(ModelFault),
    Loop(String),
    /// A hook forbids it.
    Blocked(String),
    Journal(JournalFault),
}

impl From<Exceeded> for Stop {
    fn from(error: Exceeded) -> Self {
        Self::Exceeded(error)
    }
}

impl From<Unpriced> for Stop {
    fn from(error: Unpriced) -> Self {
        Self::Unpriced(error)
    }
}

impl From<QuotaExceeded> for Stop {
    fn from(error: QuotaExceeded) -> Self {
        Self::Quota(Box::new(error))
    }
}

impl From<JournalFault> for Stop {
    fn from(error: JournalFault) -> Self {
        Self::Journal(error)
    }
}

impl From<Over> for Stop {
    fn from(over: Over) -> Self {
        match over {
            Over::Cancelled => Self::Cancelled,
            Over::Timeout => Self::Timeout,
        }
    }
}

impl Stop {
    pub(super) fn class(&self) -> FailureClass {
        match self {
            Self::Exceeded(_) | Self::Unpriced(_) | Self::Quota(_) | Self::Window { .. } => {
                FailureClass::Budget
            }
            Self::Cancelled | Self::GivenUp => FailureClass::Cancelled,
            Self::Timeout | Self::Late => FailureClass::Timeout,
            Self::Model(fault) => fault.class,
            Self::Loop(_) => FailureClass::Loop,
            Self::Blocked(_) => FailureClass::Refused,
            Self::Journal(_) => FailureClass::Internal,
        }
    }

    /// For the record of an attempt that gave no answer.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Exceeded(error) => error.to_string(),
            Self::Unpriced(error) => error.to_string(),
            Self::Quota(error) => error.to_string(),
            Self::Window { needed, window } => format!(
                "the conversation needs about {needed} tokens, but the model's window holds {window}; ask for less at \
                 once, or choose a model with a larger window"
            ),
            Self::Cancelled => "cancelled".into(),
            Self::Timeout => "timeout".into(),
            Self::Late => "it took too long".into(),
            Self::GivenUp => "the daemon ends, and a later turn goes on with it".into(),
            Self::Model(fault) => fault.message.clone(),
            Self::Loop(reason) | Self::Blocked(reason) => reason.clone(),
            Self::Journal(fault) => fault.to_string(),
        }
    }

    /// How the item of the attempt ended.
    pub(super) fn outcome(&self) -> ItemOutcome {
        match self {
            Self::Cancelled | Self::Timeout | Self::Late | Self::GivenUp => ItemOutcome::Cancelled,
            _ => ItemOutcome::Error,
        }
    }
}

impl Progress<'_> {
    /// The report of a run that stops early.
    pub(super) fn stopped(&mut self, stop: Stop) -> AgentResponse {
        let class = stop.class();
        let reason = match &stop {
            Stop::Exceeded(error) => {
                self.run.tell(EventBody::BudgetExceeded(error.told()));
                stop.reason()
            }
            Stop::Unpriced(error) => {
                self.run.tell(EventBody::BudgetExceeded(error.told()));
                stop.reason()
            }
            Stop::Quota(error) => {
                self.run.tell(EventBody::BudgetExceeded(error.used.clone()));
                stop.reason()
            }
            Stop::Cancelled => "it was cancelled".into(),
            Stop::Timeout => {
                let (used, allowed) = self.run.budget.time().used();
                let (used, allowed) = (millis(used), millis(allowed));
                self.run.tell(EventBody::BudgetExceeded(Limit::Time.told(used, allowed)));
                format!("its time was over: {used} of {allowed} ms (`time_budget_ms`)")
            }
            Stop::Blocked(reason) => return AgentResponse::refused(reason),
            _ => stop.reason(),
        };
        // What could not be gone on with is a part of why it ends.
        let reason = match self.begun.take() {
            Some(begun) => begun.before(&reason),
            None => reason,
        };
        let report = prompt::report(&reason, self.asked, (self.ran, self.refused), self.last_text.as_deref());
        AgentResponse { content: report, ..AgentResponse::error(class, reason) }
    }
}
