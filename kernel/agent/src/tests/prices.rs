//! A list of models: each attempt costs what its own model takes.

use std::sync::Arc;

use drupe_extension_api::{EventBody, FailureClass, Usage};
use drupe_limits::{QuotaLimits, Quotas};

use super::*;
use crate::*;

const DEAR: Price = Price::flat(10.0, 10.0, 20.0);
/// A tenth of it.
const CHEAP: Price = Price::flat(1.0, 1.0, 2.0);

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

fn fault() -> ModelFault {
    ModelFault::transient(FailureClass::Network, "it broke")
}

/// A model of the list fails with 1,000 tokens of input, and another one is asked.
fn fails(model: &str, next: &str) -> ModelEvent {
    let (model, next) = (model.to_owned(), next.to_owned());
    ModelEvent::Retry { fault: fault(), model, next, usage: Some(usage(1_000, 0)) }
}

/// A model of the list answers with 100 tokens of input and 50 of output.
fn answers(model: &str) -> ModelEvent {
    ModelEvent::Done { usage: Some(usage(100, 50)), stop: StopReason::End, model: model.into() }
}

fn text() -> ModelEvent {
    ModelEvent::Text("done".into())
}

/// What the turn lost, and the model that lost it: that of the last attempt.
fn lost(seen: &Seen) -> (f64, Option<&str>) {
    let failed = seen.entries.iter().find_map(|e| match e {
        Entry::Failed { model, lost_usd, repeated: false, .. } => Some((*lost_usd, Some(model.as_str()))),
        _ => None,
    });
    failed.unwrap_or_default()
}

/// Asks a list whose first model is `first`, and which plays that. Asserts what each attempt is told to have cost, by
/// its model, and that the run's sum and the day's are the sums of these.
async fn check(first: &str, reply: Reply, each: &[(&str, Option<f64>)]) -> Seen {
    let mut model = Plays::new(&[("main", &[reply])]);
    (model.profile.name, model.profile.price) = (first.to_owned(), Some(DEAR));
    model.prices = [("list/dear", Some(DEAR)), ("list/cheap", Some(CHEAP)), ("list/unknown", None)].into();
    let model = Arc::new(model);
    let mut main = definition("main");
    main.limits.time_budget_ms = 1_000;
    let mut limits = QuotaLimits::unlimited();
    limits.day.max_cost_usd = Some(1_000.0);
    let quotas = Arc::new(Quotas::new(limits));
    let shared = Arc::clone(&quotas);
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.quotas = shared);
    let seen = Case { scope, ..Case::new(looping(main, &model, []), &model) }.run().await;
    let micros = |usd: f64| (usd * 1e6).round() as u64;
    let told = seen.events.iter().filter_map(|(_, e)| match e {
        EventBody::ModelAttempt { model, cost_usd, .. } => Some((model.as_str(), cost_usd.map(micros))),
        _ => None,
    });
    let expected: Vec<_> = each.iter().map(|(model, cost)| (*model, cost.map(micros))).collect();
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let known: f64 = each.iter().filter_map(|(_, cost)| *cost).sum();
    // What was lost is in no sum of what was spent.
    let all_known = each.iter().all(|(_, cost)| cost.is_some()) || seen.spend.usage.total() == 0;
    assert_eq!(seen.spend.cost_usd.map(micros), all_known.then_some(micros(known)));
    let day = quotas.standing(0).into_iter().find(|s| s.used.limit == "limits.day.max_cost_usd");
    let day = day.expect("it is bounded").used.used;
    assert!(
        day.abs_diff(micros(known + lost(&seen).0)) <= 1,
        "the day has used {day}: {known} and what was lost"
    );
    seen
}

#[tokio::test]
async fn an_answer_costs_what_the_model_that_gave_it_takes() {
    for (model, cost) in [("list/dear", Some(0.002)), ("list/cheap", Some(0.000_2)), ("list/unknown", None)] {
        check("list/dear", Reply::Gives(vec![text(), answers(model)]), &[(model, cost)]).await;
    }
}

#[tokio::test]
async fn an_attempt_that_failed_costs_what_its_own_model_takes() {
    for (first, failed, second, answered) in [
        ("list/dear", Some(0.01), "list/cheap", Some(0.000_2)),
        ("list/cheap", Some(0.001), "list/dear", Some(0.002)),
        ("list/unknown", None, "list/cheap", Some(0.000_2)),
        ("list/cheap", Some(0.001), "list/unknown", None),
    ] {
        let reply = Reply::Gives(vec![text(), fails(first, second), text(), answers(second)]);
        // Two more tokens came than were reported before the answer broke off.
        let broken =
            |usd: f64| usd + 2.0 * if first == "list/dear" { DEAR.output } else { CHEAP.output } / 1e6;
        check(first, reply, &[(first, failed.map(broken)), (second, answered)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_costs_what_its_own_model_takes_however_it_ends() {
    let half = |end: Option<ModelFault>| {
        let begun = [fails("list/dear", "list/cheap"), text()];
        begun.into_iter().chain(end.map(ModelEvent::Failed)).collect::<Vec<_>>()
    };
    let reported = Reply::Gives(half(Some(fault().began().with_usage(Some(usage(500, 100))))));
    let seen =
        check("list/dear", reported, &[("list/dear", Some(0.01)), ("list/cheap", Some(0.000_7))]).await;
    assert_eq!(lost(&seen), (0.0, Some("list/cheap")));
    // What is known of an answer that the provider broke off: the request, and the text that came.
    let broken = Reply::Gives(half(Some(fault().began())));
    let estimated = |seen: &Seen| {
        seen.entries.iter().find_map(|e| match e {
            Entry::Failed { usage, repeated: false, estimated: true, .. } => Some(CHEAP.cost(usage)),
            _ => None,
        })
    };
    let cost = 0.000_013;
    let seen = check("list/dear", broken, &[("list/dear", Some(0.01)), ("list/cheap", Some(cost))]).await;
    assert_eq!((estimated(&seen).is_some(), lost(&seen)), (true, (0.0, Some("list/cheap"))));
    // Nobody knows what it used where we broke it off: all that was set aside, at its own price and not at the dear one's.
    let hangs = Reply::Hangs(half(None));
    let seen = check("list/dear", hangs, &[("list/dear", Some(0.01)), ("list/cheap", Some(0.0))]).await;
    let (lost, model) = lost(&seen);
    let worst = CHEAP.cost(&usage(1_000, 100));
    assert!((lost - worst).abs() < 1e-9, "{lost} of {worst}");
    assert_eq!(model, Some("list/cheap"));
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_at_a_model_without_a_price_costs_what_nobody_knows() {
    let recorded = |seen: &Seen| {
        seen.entries.iter().find_map(|e| match e {
            Entry::Failed { cost_usd, lost_tokens, lost_usd, .. } => {
                Some((*cost_usd, *lost_tokens > 0, *lost_usd > 0.0))
            }
            _ => None,
        })
    };
    let hangs = || Reply::Hangs(vec![text()]);
    let seen = check("list/unknown", hangs(), &[("list/unknown", None)]).await;
    assert_eq!(recorded(&seen), Some((None, true, false)));
    let seen = check("list/cheap", hangs(), &[("list/cheap", Some(0.0))]).await;
    assert_eq!(recorded(&seen), Some((Some(0.0), true, true)));
    // The same where a crash cut it off.
    for price in [None, Some(CHEAP)] {
        let case = |journal: &Arc<MemoryJournal>, resumed| {
            let mut model = Plays::new(&[("main", &[say("done")])]);
            model.profile.price = price;
            let model = Arc::new(model);
            let journal = Arc::clone(journal);
            Case { journal, resumed, ..Case::new(looping(definition("main"), &model, []), &model) }
        };
        let journal = Arc::new(MemoryJournal::default());
        case(&journal, false).run().await;
        let seen = case(&crashed(&journal, 1).await, true).run().await;
        let known = price.map(|_| 0.0);
        assert_eq!(recorded(&seen), Some((known, true, price.is_some())), "{price:?}");
    }
}

#[test]
fn what_goes_into_a_cache_has_its_own_price_and_a_long_prompt_a_dearer_one_for_the_whole_request() {
    let long = LongPrompts { above: 1_000, input: 2.0, output: 1.5 };
    let price = Price { input: 4.0, cached: 1.0, written: 5.0, output: 20.0, long: Some(long) };
    let cost = |input_tokens, cached_tokens, cache_write_tokens, output_tokens| {
        let reasoning_tokens = 0;
        price.cost(&Usage {
            input_tokens,
            cached_tokens,
            cache_write_tokens,
            output_tokens,
            reasoning_tokens,
        }) * 1e6
    };
    for (used, usd) in [
        ((100, 0, 0, 10), 400.0 + 200.0),
        ((100, 40, 50, 10), 40.0 + 40.0 + 250.0 + 200.0),
        ((1_000, 0, 1_000, 0), 5_000.0),
        ((1_001, 0, 1_001, 10), 2.0 * 5_005.0 + 1.5 * 200.0),
        // What a provider reports need not be sensible.
        ((10, 40, 50, 0), 40.0 + 250.0),
    ] {
        let (input, cached, written, output) = used;
        assert!((cost(input, cached, written, output) - usd).abs() < 1e-6, "{used:?}");
    }
    assert_eq!((price.output_after(1_000), price.output_after(1_001)), (20.0, 30.0));
}

#[tokio::test]
async fn zeros_that_a_gateway_reports_are_no_count() {
    let done =
        ModelEvent::Done { usage: Some(usage(0, 0)), stop: StopReason::End, model: "list/cheap".into() };
    let model = Arc::new(Plays::new(&[("main", &[Reply::Gives(vec![text(), done])])]));
    let seen = Case::new(looping(definition("main"), &model, []), &model).run().await;
    assert!(seen.spend.usage.output_tokens > 0 && seen.spend.usage.input_tokens > 0, "{:?}", seen.spend);
}
