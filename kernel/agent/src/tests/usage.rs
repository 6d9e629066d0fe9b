//! What a provider reports is held against what a request and its answer can be.

use std::sync::Arc;

use drupe_extension_api::{EventBody, FailureClass, ResponseStatus, Usage};
use drupe_limits::{QuotaLimits, Quotas};

use super::*;
use crate::*;

/// Far beyond what any request holds.
const ABSURD: u64 = 9_000_000_000_000_000;
const PRICE: Price = Price::flat(10.0, 1.0, 20.0);

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

fn done(usage: Usage, stop: StopReason) -> ModelEvent {
    ModelEvent::Done { usage: Some(usage), stop, model: "plays/script".into() }
}

fn answer(usage: Usage) -> Reply {
    Reply::Gives(vec![ModelEvent::Text("done".into()), done(usage, StopReason::End)])
}

/// A step that calls a tool.
fn step(usage: Usage) -> Reply {
    let mut events = ScriptedModel::call(&[("a", "{}")]);
    events.pop();
    events.push(done(usage, StopReason::ToolCalls));
    Reply::Gives(events)
}

/// A day that has room for some calls, and the turn that these answers make.
async fn day(replies: &[Reply]) -> (Seen, u64) {
    let mut limits = QuotaLimits::unlimited();
    limits.day.max_tokens = 1_000_000;
    let quotas = Arc::new(Quotas::new(limits));
    let shared = Arc::clone(&quotas);
    let mut model = Plays::new(&[("main", replies)]);
    model.profile.price = Some(PRICE);
    let model = Arc::new(model);
    let agent = looping(definition("main"), &model, [Fake::says("a").registered()]);
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.quotas = shared);
    let seen = Case { scope, ..Case::new(agent, &model) }.run().await;
    let used = quotas.standing(0).into_iter().find(|s| s.used.limit == "limits.day.max_tokens");
    (seen, used.expect("it is bounded").used.used)
}

fn estimated(seen: &Seen) -> Vec<(u64, u64, bool)> {
    let of = |entry: &Entry| match entry {
        Entry::Answer { usage, estimated, .. } | Entry::Failed { usage, estimated, .. } => {
            Some((usage.input_tokens, usage.output_tokens, *estimated))
        }
        _ => None,
    };
    seen.entries.iter().filter_map(of).collect()
}

#[tokio::test]
async fn one_absurd_report_does_not_use_up_the_day_and_is_told_once_a_turn() {
    for absurd in [usage(10, ABSURD), usage(ABSURD, 5), usage(u64::MAX, u64::MAX)] {
        let (seen, used) = day(&[step(absurd), step(absurd), answer(absurd)]).await;
        assert_eq!(seen.response.status, ResponseStatus::Success, "{:?}", seen.response);
        assert!(used < 3_000, "the day has used {used}");
        assert_eq!(used, seen.spend.usage.total());
        assert!(seen.spend.cost_usd.is_some_and(|usd| usd < 0.05), "{:?}", seen.spend);
        assert_eq!(seen.diagnostics(), ["usage_doubted"]);
        assert!(estimated(&seen).iter().all(|(.., estimated)| *estimated), "{:?}", estimated(&seen));
    }
}

#[tokio::test]
async fn what_is_beyond_its_bound_counts_as_what_was_set_aside() {
    let (seen, _) = day(&[answer(usage(10, ABSURD))]).await;
    assert_eq!(estimated(&seen), [(10, 100, true)], "the bound on the answer is 100");
    let bytes = seen.model.requests()[0].system.len();
    let (seen, _) = day(&[answer(usage(ABSURD, 5))]).await;
    let (input, output, _) = estimated(&seen)[0];
    assert!((1..=bytes as u64 + 100).contains(&input) && output == 5, "{input} {output}");
    let told = seen.events.iter().find_map(|(_, event)| match event {
        EventBody::Diagnostic { message, .. } => Some(message.as_str()),
        _ => None,
    });
    let told = told.expect("it is told");
    assert!(told.contains("plays/script") && told.contains(&ABSURD.to_string()), "{told}");
}

#[tokio::test]
async fn what_can_be_is_believed() {
    // Templates, tools of the provider, and an answer that went past its bound a little.
    for can_be in [usage(10, 5), usage(12_000, 5), usage(10, 250)] {
        let (seen, used) = day(&[answer(can_be)]).await;
        assert_eq!((seen.diagnostics(), used), (Vec::new(), can_be.total()));
        assert_eq!(estimated(&seen), [(can_be.input_tokens, can_be.output_tokens, false)]);
    }
}

#[tokio::test]
async fn an_answer_far_past_its_bound_counts_within_it_whatever_came_and_whatever_is_reported() {
    let long = || ModelEvent::Text("long ".repeat(2_000_000));
    // Twice the bound of 100, and some beyond it.
    let most = 2 * 100 + 4_096;
    let fault = ModelFault::fatal(FailureClass::Model, "it goes on").began();
    let none = ModelEvent::Done { usage: None, stop: StopReason::End, model: "plays/script".into() };
    for (last, doubted) in [
        (done(usage(10, 2_500_000), StopReason::End), true),
        (none, false),
        (ModelEvent::Failed(fault.clone()), false),
        (ModelEvent::Failed(fault.with_usage(Some(usage(10, 2_500_000)))), true),
    ] {
        let (seen, used) = day(&[Reply::Gives(vec![long(), last.clone()])]).await;
        assert_eq!(seen.spend.usage.output_tokens, most, "{last:?}");
        assert!(used < most + 1_000, "{last:?}: the day has used {used}");
        assert_eq!(seen.diagnostics(), if doubted { vec!["usage_doubted"] } else { Vec::new() });
    }
}

#[tokio::test]
async fn a_report_far_below_what_came_counts_as_the_least_that_it_can_be() {
    let said = |bytes: usize| ModelEvent::Text("x".repeat(bytes));
    // A short answer proves nothing: the first four KiB do not count.
    let cases = [(5_696, 1, 100), (5_696, 100, 100), (5_696, 101, 101), (1_600, 1, 1), (1_600, 0, 534)];
    for (bytes, reported, counted) in cases {
        let (seen, _) =
            day(&[Reply::Gives(vec![said(bytes), done(usage(10, reported), StopReason::End)])]).await;
        assert_eq!(estimated(&seen), [(10, counted, counted != reported)], "{reported}");
    }
}

#[tokio::test]
async fn no_part_of_a_report_is_more_than_its_whole() {
    let cached = Usage { cached_tokens: ABSURD, cache_write_tokens: 30, ..usage(100, 5) };
    let (seen, used) = day(&[answer(cached)]).await;
    assert_eq!((seen.diagnostics(), used), (vec!["usage_doubted"], 105));
    assert_eq!((seen.spend.usage.cached_tokens, seen.spend.usage.cache_write_tokens), (100, 0));
    let reasoned = Usage { reasoning_tokens: 90, ..usage(100, 5) };
    let (seen, used) = day(&[answer(reasoned)]).await;
    assert_eq!((seen.diagnostics(), seen.spend.usage.output_tokens, used), (Vec::new(), 90, 190));
}

#[tokio::test]
async fn an_attempt_that_failed_is_held_against_the_same_bounds() {
    let fault = || ModelFault::transient(FailureClass::Network, "the line broke").began();
    let retry = ModelEvent::Retry {
        fault: fault(),
        model: "plays/script".into(),
        next: "plays/script".into(),
        usage: Some(usage(ABSURD, ABSURD)),
    };
    let last = ModelEvent::Failed(fault().with_usage(Some(usage(ABSURD, ABSURD))));
    let (seen, used) = day(&[Reply::Gives(vec![retry, last])]).await;
    assert_eq!((seen.response.class, seen.diagnostics()[0]), (Some(FailureClass::Network), "usage_doubted"));
    assert!(used < 1_000, "{used}");
}

#[tokio::test]
async fn a_report_that_cannot_be_teaches_nothing_of_the_length_of_tokens() {
    let model = Arc::new(Plays::new(&[("main", &[answer(usage(ABSURD, 5))])]));
    let ratios = Arc::new(Ratios::default());
    let shared = Arc::clone(&ratios);
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.ratios = shared);
    Case { scope, ..Case::new(looping(definition("main"), &model, []), &model) }.run().await;
    assert_eq!(ratios.bytes_per_token("plays/script"), Ratios::default().bytes_per_token("plays/script"));
}
