//! What is told of calls about which a person was asked.

use std::sync::Arc;

use drupe_agent::{Answer, Decision, JournalFault, Need, Policy, PolicyCall, Question};
use drupe_extension_api::{ToolAnnotations, control::ApprovalState};
use futures_util::future::BoxFuture;

use super::{
    door::{Fault, rows, told},
    fakes::{Does, call, say, tool},
};
use crate::trace;

/// Asks about everything, and is answered so.
struct Answers(ApprovalState, Option<&'static str>);

impl Policy for Answers {
    fn decide(&self, _: PolicyCall<'_>) -> Decision {
        Decision::Ask(Need {
            why: "it reaches far".into(),
            patience_ms: 600_000,
            about: None,
            for_taint: false,
        })
    }

    fn answer<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, Result<Answer, JournalFault>> {
        Box::pin(async {
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            Ok(Answer { state: self.0, by: self.1.map(str::to_owned), given: None })
        })
    }
}

async fn check(state: ApprovalState, by: Option<&'static str>, said: &[&str], remark: &str) {
    let erase = tool("erase", Does::Says("gone"), ToolAnnotations::default());
    let fault = super::faults::alone(vec![call(&[("erase", "{}")]), say("done")], vec![erase]);
    let rows = rows(Fault::scope(fault, move |scope| scope.policy = Arc::new(Answers(state, by)))).await;
    told(&rows, said, &["turns", "entries", "events"]);
    let trace = serde_json::to_string(&trace(&rows)).expect("JSON");
    assert!(trace.contains("it reaches far") && trace.contains(remark), "{trace}");
}

#[tokio::test(start_paused = true)]
async fn who_agreed_is_told_with_how_long_it_took() {
    let said = ["`erase` was allowed by operator after 5.0 s (step 1 of `main`)."];
    check(ApprovalState::Allowed, Some("operator"), &said, "`erase` is allowed by operator").await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_allowed_is_told_as_such() {
    let said = ["`erase` was denied by operator after 5.0 s", "`erase` did not run (step 1 of `main`)"];
    check(ApprovalState::Denied, Some("operator"), &said, "`erase` is denied by operator").await;
    let said = ["Nobody answered whether `erase` may run after 5.0 s", "`erase` did not run"];
    check(ApprovalState::Expired, None, &said, "`erase` is expired").await;
}
