//! What an attempt costs that drupe breaks off: nothing before it was sent, and all that was set aside after that.

use std::sync::Arc;

use drupe_extension_api::FailureClass;
use drupe_limits::Quotas;
use tokio_util::sync::CancellationToken;

use super::{left::tokens_of_a_day, *};
use crate::*;

/// A turn that is cancelled while its model has not answered.
struct Broken {
    /// Model, tokens that were used, tokens that were lost and US dollars for these: of each attempt that is recorded.
    attempts: Vec<(String, u64, u64, f64)>,
    /// Tokens that the day has used, and the turn.
    used: (u64, u64),
}

/// Breaks a turn off whose model notes this of its attempt, gives these events and then nothing.
async fn broken_off(notes: fn(&Dispatch), gives: Vec<ModelEvent>) -> Broken {
    let mut model = Plays::new(&[("main", &[Reply::Hangs(gives)])]);
    model.prices = [
        ("plays/script", Some(Price::flat(1.0, 1.0, 1.0))),
        ("plays/dear", Some(Price::flat(100.0, 100.0, 100.0))),
    ]
    .into();
    model.by_request = Some(Box::new(move |request| {
        notes(&request.dispatch);
        None
    }));
    let model = Arc::new(model);
    let cancel = CancellationToken::new();
    let quotas = Arc::new(Quotas::new(tokens_of_a_day()));
    let shared = Arc::clone(&quotas);
    let case = Case {
        cancel: cancel.clone(),
        scope: Box::new(move |scope| scope.quotas = shared),
        ..Case::new(looping(definition("main"), &model, []), &model)
    };
    let asked = async {
        while model.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (seen, ()) = tokio::join!(case.run(), asked);
    assert_eq!(seen.response.class, Some(FailureClass::Cancelled));
    let attempts = seen.entries.iter().filter_map(|entry| match entry {
        Entry::Failed { model, usage, lost_tokens, lost_usd, .. } => {
            Some((model.clone(), usage.total(), *lost_tokens, *lost_usd))
        }
        _ => None,
    });
    let day = quotas.standing(0).into_iter().find(|s| s.used.limit == "limits.day.max_tokens");
    let day = day.expect("it is bounded").used.used;
    Broken { attempts: attempts.collect(), used: (day, seen.spend.usage.total()) }
}

#[tokio::test]
async fn an_attempt_that_was_never_sent_is_charged_to_nobody() {
    let broken = broken_off(Dispatch::begins, Vec::new()).await;
    assert_eq!(broken.attempts, [("plays/script".to_owned(), 0, 0, 0.0)], "its step has an end all the same");
    assert_eq!(broken.used, (0, 0));
}

#[tokio::test]
async fn what_was_sent_before_the_one_that_waits_is_charged_and_no_more() {
    let fault = ModelFault::transient(FailureClass::Network, "the line broke");
    let usage = Some(Usage { input_tokens: 7, ..Usage::default() });
    let (model, next) = ("plays/dear".to_owned(), "plays/script".to_owned());
    let failed = ModelEvent::Retry { fault, model: model.clone(), next: next.clone(), usage };
    let broken = broken_off(Dispatch::begins, vec![failed]).await;
    assert_eq!(broken.attempts, [(model, 7, 0, 0.0), (next, 0, 0, 0.0)]);
    assert_eq!(broken.used, (7, 7));
}

#[tokio::test]
async fn what_was_sent_is_lost_at_the_price_of_the_model_that_it_went_to() {
    type Notes = fn(&Dispatch);
    let nothing: Notes = |_| ();
    let notes: [(Notes, &str, f64); 3] = [
        (nothing, "plays/script", 1.0),
        (|dispatch| dispatch.goes_to("plays/script"), "plays/script", 1.0),
        (|dispatch| dispatch.goes_to("plays/dear"), "plays/dear", 100.0),
    ];
    for (notes, name, usd) in notes {
        let broken = broken_off(notes, Vec::new()).await;
        let [(model, 0, lost, lost_usd)] = &broken.attempts[..] else { panic!("{:?}", broken.attempts) };
        assert_eq!((model.as_str(), broken.used.0), (name, *lost));
        assert!(*lost > 100 && (lost_usd - *lost as f64 * usd / 1e6).abs() < 1e-9, "{lost} {lost_usd}");
    }
}
