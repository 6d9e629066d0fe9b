//! A call about which a person is asked: the question, the wait, and what follows from the answer.

use std::sync::Arc;

use drupe_extension_api::{ToolStatus, control::ApprovalState};
use tokio::time::Instant;

use super::{Place, execute::stopped};
use crate::{
    journal::{Entry, JournalFault},
    policy::Question,
    registry::Registered,
    stopwatch::Stopwatch,
};

/// Records the question.
pub(super) fn ask(place: Place<'_>, index: u32, tool: &Arc<Registered>, question: &Question) {
    place.run.record(Entry::Asked {
        step: place.step,
        index,
        class: tool.spec().annotations.effect,
        kind: tool.spec().annotations.item,
        question: Box::new(question.clone()),
    });
}

/// While this lives, somebody waits for the answer. Where it goes without one the question is withdrawn, however that comes:
/// code may drop what it has asked for.
struct Waits<'a>(Place<'a>, &'a Question);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.run.withdraw(&self.1.effect);
    }
}

/// Waits for the answer, and records it; gives what the person filled in, or how the call ends where it may not run. Meanwhile the time of all stands still
/// that wait for this alone, and others may have the turn's place, which it waits for before it goes on.
pub(super) async fn agreed(
    place: Place<'_>,
    time: &Stopwatch,
    question: &Question,
) -> Result<Result<Option<String>, (ToolStatus, String)>, JournalFault> {
    let (run, began) = (place.run, Instant::now());
    let _waits = Waits(place, question);
    let answered = async {
        let answer = run.scope.policy.answer(question).await;
        (answer, run.scope.place.back().await)
    };
    // Until the time runs again, so that the place is not left again before that.
    let _returned;
    let answer = {
        let _asked = time.ask();
        tokio::select! {
            biased;
            over = place.over() => {
                let error = stopped(over, began);
                return Ok(Err((error.status, error.message)));
            }
            (answer, returned) = answered => {
                _returned = returned;
                answer?
            }
            never = run.scope.leave_while_still() => match never {},
        }
    };
    let (effect, tool, state) = (question.effect.clone(), question.tool.clone(), answer.state);
    run.record(Entry::Decided { invocation: run.id.clone(), effect, tool, state, by: answer.by.clone() });
    let tool = &question.tool;
    let by = answer.by.as_deref().unwrap_or("nobody");
    let why = match state {
        ApprovalState::Allowed => return Ok(Ok(answer.given)),
        ApprovalState::Denied => format!("this call of `{tool}` was denied by {by}"),
        ApprovalState::Expired => format!("`{tool}` needs approval, and nobody answered in time"),
        ApprovalState::Withdrawn | ApprovalState::Pending => {
            format!("`{tool}` needs approval, which nobody can give any more")
        }
    };
    Ok(Err((ToolStatus::Refused, format!("not run: {why}"))))
}
