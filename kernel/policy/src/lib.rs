//! The policy of the kernel: which tool calls a person is asked about, and how the answer comes to the call.
//!
//! It is one for the whole daemon, and every call of every run passes it ([`Policy`]). A question is a row of the journal
//! before anybody hears of it; an answer is a change of that row. So it does not matter who answers over which way, nor
//! whether the process that asked is still there.
//!
//! It decides by what a tool says of itself and by nothing else. It must not start anything, must not wait while it
//! decides, and must not let a call run without an answer that is in the journal.

use std::{pin::pin, sync::Arc, time::Duration};

use drupe_agent::{Answer, Clock, Decision, JournalFault, Policy, PolicyCall, Question};
use drupe_extension_api::control::{Approval, ApprovalState};
use drupe_journal::{Store, StoreError};
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

/// How long a question waits before it counts as denied: long enough to come back to the desk, short enough that nobody
/// agrees to what was wanted yesterday.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The rule by which calls run about which nobody is asked.
const ALLOWED_BY: &str = "on-request";

/// Asks about tools that declare a need for it, and lets all others run.
pub struct OnRequest {
    store: Store,
    clock: Arc<dyn Clock>,
    /// Some question was answered; whoever waits looks whether it is theirs.
    answered: Notify,
}

impl OnRequest {
    /// A policy that keeps its questions there.
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, answered: Notify::new() }
    }

    /// Every question, those that wait first.
    pub async fn questions(&self) -> Result<Vec<Approval>, StoreError> {
        self.store.questions().await
    }

    /// A person's answer to a question, and who it is; none where no question has that id, or begins so. It comes to the
    /// call at once, whatever else its session waits for. Where `shown` is given it is the hash of what the person has read,
    /// and an answer about anything else is refused.
    pub async fn answer_question(
        &self,
        id: &str,
        allow: bool,
        shown: Option<String>,
        by: &str,
    ) -> Result<Option<Approval>, StoreError> {
        let answered = self.store.answer_question(id, allow, shown, by.to_owned()).await?;
        self.answered.notify_waiters();
        Ok(answered)
    }

    async fn wait(&self, question: &Question) -> Result<Answer, StoreError> {
        loop {
            let mut answered = pin!(self.answered.notified());
            // Before the look, so that an answer after it is heard.
            answered.as_mut().enable();
            match self.store.question(&question.effect, &question.digest).await? {
                Some(answer) if answer.state == ApprovalState::Pending => {}
                Some(answer) => return Ok(answer),
                None => return Ok(Answer { state: ApprovalState::Withdrawn, by: None }),
            }
            let left = u64::try_from(question.expires_ms.saturating_sub(self.clock.now_ms())).unwrap_or(0);
            tokio::select! {
                biased;
                () = answered => {}
                () = tokio::time::sleep(Duration::from_millis(left)) => {
                    self.store.expire_question(&question.effect).await?;
                }
            }
        }
    }
}

impl Policy for OnRequest {
    fn decide(&self, call: PolicyCall<'_>) -> Decision {
        if !call.spec.annotations.needs_approval {
            return Decision::Allow { by: ALLOWED_BY.into() };
        }
        let need = format!("`{}` declares that each of its calls needs approval", call.spec.name);
        Decision::Ask { need, patience_ms: u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX) }
    }

    fn answer<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<Answer, JournalFault>> {
        Box::pin(async { Ok(self.wait(question).await?) })
    }
}

#[cfg(test)]
mod tests;
