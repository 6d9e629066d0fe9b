//! Who rests for which failures, and who is asked on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::breaker::FAILURES;

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(10)
}

fn gate(places: usize) -> Arc<Gate> {
    Gate::new("p", places, Duration::from_secs(1))
}

/// A failure of this kind, as often as it takes for a rest.
async fn fail(gate: &Arc<Gate>, model: &str, class: FailureClass, whose: Whose) {
    for _ in 0..FAILURES {
        let fault = ModelFault::transient(class, "oops");
        gate.enter(model, soon()).await.unwrap().failed(&Broken { fault, whose });
    }
}

async fn told(gate: &Arc<Gate>, model: &str) -> Option<String> {
    gate.enter(model, soon()).await.err().map(|fault| fault.message)
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_rests_and_the_others_of_its_provider_are_asked() {
    let gate = gate(1);
    fail(&gate, "p/bad", FailureClass::Model, Whose::Model).await;
    let text = "model `p/bad` rests for 31 s after repeated failures, the last of which was: oops";
    assert_eq!(told(&gate, "p/bad").await.as_deref(), Some(text));
    assert_eq!(told(&gate, "p/good").await, None);
    tokio::time::sleep(Duration::from_secs(31)).await;
    gate.enter("p/bad", soon()).await.unwrap().answered();
    assert!(gate.health().models.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_account_or_the_host_rests_all_models_and_says_what_it_is_for() {
    let gate = gate(1);
    fail(&gate, "p/one", FailureClass::Auth, Whose::Provider).await;
    let fault = gate.enter("p/two", soon()).await.err().unwrap();
    let text = "provider `p` rests for 31 s after repeated failures, the last of which was: oops";
    assert_eq!((fault.class, fault.message.as_str(), fault.unused), (FailureClass::Auth, text, true));
}

#[tokio::test(start_paused = true)]
async fn what_is_the_requests_own_or_asks_for_a_slower_pace_rests_nobody() {
    for (class, whose) in [
        (FailureClass::Model, Whose::Request),
        (FailureClass::RateLimit, Whose::Model),
        (FailureClass::Timeout, Whose::Nobody),
    ] {
        let gate = gate(1);
        fail(&gate, "p/m", class, whose).await;
        assert_eq!(told(&gate, "p/m").await, None, "{whose:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_rests_does_not_use_up_its_providers_probe() {
    let gate = gate(4);
    let bad = Broken::from(ModelFault::transient(FailureClass::Model, "oops"));
    fail(&gate, "p/bad", FailureClass::Model, Whose::Model).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    // It rests for a minute now, and its provider for half of it.
    gate.enter("p/bad", soon()).await.unwrap().failed(&bad);
    fail(&gate, "p/good", FailureClass::Network, Whose::Provider).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(told(&gate, "p/bad").await.unwrap().contains("model `p/bad`"));
    let probe = gate.enter("p/good", soon()).await.unwrap();
    assert!(told(&gate, "p/other").await.unwrap().contains("provider `p`"));
    // That a model fails shows that its host is there.
    probe.failed(&bad);
    assert_eq!(told(&gate, "p/other").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_failure_from_before_a_rest_does_not_end_it() {
    let gate = gate(2);
    let before = gate.enter("p/slow", soon()).await.unwrap();
    fail(&gate, "p/m", FailureClass::Network, Whose::Provider).await;
    before.failed(&ModelFault::transient(FailureClass::Timeout, "late").into());
    assert!(told(&gate, "p/m").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_models_is_bounded() {
    let gate = gate(1);
    for n in 0..MOST_MODELS * 2 {
        let fault = ModelFault::transient(FailureClass::Model, "oops");
        gate.enter(&format!("p/{n}"), soon()).await.unwrap().failed(&fault.into());
    }
    assert!(gate.health().models.len() <= MOST_MODELS);
}

#[tokio::test(start_paused = true)]
async fn a_gate_lets_no_more_in_than_it_has_places() {
    let gate = gate(1);
    let held = gate.enter("p/m", soon()).await.ok();
    assert!(held.is_some());
    assert_eq!(gate.enter("p/m", soon()).await.err().map(|f| f.class), Some(FailureClass::Timeout));
    drop(held);
    assert!(gate.enter("p/m", soon()).await.is_ok());
}
