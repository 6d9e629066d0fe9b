//! Budgets, time, cancellation, and the form of the answer.

use std::{sync::Arc, time::Duration};

use drupe_extension_api::{DefinitionLimits, FailureClass, Format, OutputSpec, ResponseStatus, ToolStatus};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::*;

fn limited(change: impl FnOnce(&mut DefinitionLimits)) -> Definition {
    let mut definition = definition("main");
    change(&mut definition.limits);
    definition
}

/// A run that a limit ends: its class, and what its report says.
async fn check(
    definition: Definition,
    script: &[Reply],
    tools: Vec<Arc<Registered>>,
    class: FailureClass,
    says: &[&str],
) -> Seen {
    let seen = Case::defined(definition, script, tools).run().await;
    assert_eq!((seen.response.status, seen.response.class), (ResponseStatus::Error, Some(class)));
    for part in says {
        assert!(seen.response.content.contains(part), "{} does not say {part}", seen.response.content);
    }
    seen
}

/// A model that never comes to an end, and never does the same twice.
fn endless() -> Vec<Reply> {
    (0..20).map(|n| call(&[("a", &format!(r#"{{"n": {n}}}"#))])).collect()
}

fn tool() -> Vec<Arc<Registered>> {
    vec![Fake::says("a").registered()]
}

#[tokio::test]
async fn steps_are_bounded_and_the_report_says_how_far_it_came() {
    let says = ["`max_turns`", "3 steps, 3 tool calls"];
    let seen = check(limited(|l| l.max_turns = 3), &endless(), tool(), FailureClass::Budget, &says).await;
    assert_eq!(seen.model.requests().len(), 3);
    assert_eq!(seen.exceeded(), ["max_turns"]);
    assert_eq!((seen.response.turns_used, seen.spend.turns), (Some(3), 3));
}

#[tokio::test]
async fn tokens_are_reserved_before_the_model_is_asked() {
    let definition = limited(|l| l.max_tokens_per_invocation = 200);
    let seen = check(definition, &endless(), tool(), FailureClass::Budget, &["of 200 tokens"]).await;
    assert_eq!(seen.exceeded(), ["max_tokens_per_invocation"]);
    assert!(seen.spend.usage.total() <= 200);
    for request in seen.model.requests() {
        assert!(request.max_output_tokens <= 100);
    }
}

#[tokio::test]
async fn a_child_may_spend_no_more_than_its_parent_has_left() {
    let root = [call(&[("agent_sub", r#"{"task": "t"}"#)]), say("done")];
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &endless())]));
    let sub = looping(definition("sub"), &model, tool());
    let root = looping(limited(|l| l.max_tokens_per_invocation = 260), &model, [as_tool(&sub)]);
    let seen = Case::new(root, &model).run().await;
    assert!(seen.spend.usage.total() <= 260);
    assert!(model.asked_by("sub") < 10, "its own limits would have let it go on");
    assert!(seen.exceeded().contains(&"max_tokens_per_invocation"));
}

#[tokio::test]
async fn cost_is_bounded_and_an_unknown_price_is_not_guessed() {
    let definition = || limited(|l| l.max_cost_usd = Some(0.003));
    let script = endless();
    let says = ["agent `main`: `max_cost_usd` is set", "price of model `plays/script` is not known"];
    check(definition(), &script, tool(), FailureClass::Budget, &says).await;
    let mut model = Plays::new(&[("main", &script)]);
    model.profile.price = Some(Price::flat(10.0, 1.0, 20.0));
    let model = Arc::new(model);
    let seen = Case::new(looping(definition(), &model, tool()), &model).run().await;
    assert_eq!(seen.exceeded(), ["max_cost_usd"]);
    let cost = seen.spend.cost_usd.expect("the price is known");
    assert!(cost > 0.0 && cost <= 0.003, "{cost}");
}

#[tokio::test(start_paused = true)]
async fn time_ends_a_model_s_stream_with_a_report() {
    let script = [Reply::Hangs(vec![ModelEvent::Text("so far".into())])];
    let seen =
        check(limited(|l| l.time_budget_ms = 500), &script, vec![], FailureClass::Timeout, &["500 ms"]).await;
    assert_eq!(seen.elapsed, Duration::from_millis(500));
    assert_eq!(seen.exceeded(), ["time_budget_ms"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_time_asks_no_model() {
    let definition = limited(|l| l.time_budget_ms = 0);
    let seen = check(definition, &[say("never")], vec![], FailureClass::Timeout, &[]).await;
    assert!(seen.model.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn time_ends_a_tool_and_the_report_says_what_was_done() {
    let tools = vec![Fake::new("hang", Does::Hangs).registered(), Fake::says("a").registered()];
    let script = [call(&[("a", "{}"), ("hang", "{}")]), say("never")];
    let definition = limited(|l| l.time_budget_ms = 500);
    let seen = check(definition, &script, tools, FailureClass::Timeout, &["1 step, 2 tool calls"]).await;
    assert!(seen.elapsed <= Duration::from_millis(1_500), "{:?}", seen.elapsed);
}

#[tokio::test(start_paused = true)]
async fn a_tool_s_own_time_ends_the_tool_and_not_the_run() {
    let tools = vec![Fake::new("hang", Does::Hangs).with(|a| a.timeout_ms = Some(200)).registered()];
    let seen = Case::of(&[call(&[("hang", "{}")]), say("done")], tools).run().await;
    assert_eq!(seen.response.content, "done");
    assert_eq!(seen.statuses(), [ToolStatus::Cancelled]);
    assert!(seen.told()[0].contains("its time was over"), "{:?}", seen.told());
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_whose_time_is_over_reports_to_its_parent() {
    let root = [call(&[("agent_sub", r#"{"task": "t"}"#)]), say("done")];
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &[Reply::Hangs(Vec::new())])]));
    let mut slow = definition("sub");
    slow.limits.time_budget_ms = 300;
    let sub = looping(slow, &model, []);
    let seen = Case::new(looping(definition("main"), &model, [as_tool(&sub)]), &model).run().await;
    assert_eq!(seen.elapsed, Duration::from_millis(300));
    assert!(seen.told()[0].contains(r#""class":"timeout""#), "{:?}", seen.told());
}

/// Cancels after 100 ms; the run ends within a second, with that class.
async fn cancelled(agent: Arc<dyn Agent>, model: &Arc<Plays>) -> Seen {
    let cancel = CancellationToken::new();
    let commit_takes = Duration::from_millis(5);
    let case = Case { cancel: cancel.clone(), commit_takes, ..Case::new(agent, model) };
    let later = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    };
    let (seen, ()) = tokio::join!(case.run(), later);
    assert_eq!(seen.response.class, Some(FailureClass::Cancelled));
    assert!(seen.elapsed <= Duration::from_millis(1_100), "{:?}", seen.elapsed);
    seen
}

/// The recorded results of tool calls.
fn recorded(seen: &Seen) -> Vec<(ToolStatus, String)> {
    let result = |e: &Entry| match e {
        Entry::Result { status, content, .. } => Some((*status, content.clone())),
        _ => None,
    };
    seen.entries.iter().filter_map(result).collect()
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_a_model_s_stream() {
    let model = Arc::new(Plays::new(&[("main", &[Reply::Hangs(vec![ModelEvent::Text("a".into())])])]));
    let seen = cancelled(looping(definition("main"), &model, []), &model).await;
    assert_eq!(seen.elapsed, Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_tools_and_their_results_say_so_with_the_time_and_what_was_done() {
    let model = Arc::new(Plays::new(&[("main", &[call(&[("hang", "{}"), ("listen", "{}"), ("a", "{}")])])]));
    let tools = [
        Fake::new("hang", Does::Hangs).registered(),
        Fake::new("listen", Does::Listens).registered(),
        Fake::says("a").registered(),
    ];
    let seen = cancelled(looping(definition("main"), &model, tools), &model).await;
    let results = recorded(&seen);
    let listened = (ToolStatus::Cancelled, "cancelled after 90 ms: half of it is done".to_owned());
    assert!(results.contains(&listened), "{results:?}");
    assert!(results.contains(&(ToolStatus::Ok, "a was here".into())), "{results:?}");
    assert_eq!(
        results
            .iter()
            .filter(|(s, t)| *s == ToolStatus::Cancelled && t.starts_with("cancelled after "))
            .count(),
        2
    );
    assert!(seen.response.content.contains("1 step, 3 tool calls"), "{}", seen.response.content);
}

#[tokio::test(start_paused = true)]
async fn cancelling_reaches_the_deepest_run_and_all_report() {
    let task = r#"{"task": "t"}"#;
    let scripts: Vec<(String, [Reply; 1])> = (0..4)
        .map(|n| {
            (
                format!("a{n}"),
                [if n < 3 {
                    call(&[(&format!("agent_a{}", n + 1), task)])
                } else {
                    call(&[("hang", "{}"), ("hang", "{}")])
                }],
            )
        })
        .collect();
    let pairs: Vec<(&str, &[Reply])> = scripts.iter().map(|(n, s)| (n.as_str(), &s[..])).collect();
    let model = Arc::new(Plays::new(&pairs));
    let mut below = Fake::new("hang", Does::Hangs).registered();
    for n in (1..4).rev() {
        below = as_tool(&looping(definition(&format!("a{n}")), &model, [below]));
    }
    let seen = cancelled(looping(definition("a0"), &model, [below]), &model).await;
    let ends = seen.entries.iter().filter(
        |e| matches!(e, Entry::End { response, .. } if response.class == Some(FailureClass::Cancelled)),
    );
    assert_eq!(ends.count(), 4);
    let reported = recorded(&seen);
    assert_eq!(
        reported.iter().filter(|(_, text)| text.contains("Done so far: 1 step,")).count(),
        3,
        "{reported:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_hear_is_dropped_and_still_ends_in_the_records() {
    let root = [call(&[("agent_deaf", r#"{"task": "t"}"#)])];
    let model = Arc::new(Plays::new(&[("main", &root)]));
    let deaf: Arc<dyn Agent> = Arc::new(Native {
        id: agent_id("deaf"),
        limits: DefinitionLimits::default(),
        code: Box::new(|_, _| Box::pin(std::future::pending())),
    });
    let seen = cancelled(looping(definition("main"), &model, [as_tool(&deaf)]), &model).await;
    let ends = seen.entries.iter().filter(|e| matches!(e, Entry::End { .. }));
    assert_eq!(ends.count(), 2);
}

#[tokio::test]
async fn an_empty_answer_is_an_error() {
    for text in ["", " \n"] {
        check(definition("main"), &[say(text)], vec![], FailureClass::Model, &["empty answer"]).await;
    }
}

fn wants_json() -> Definition {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    Definition {
        output: Some(OutputSpec { format: Format::Json, schema: Some(schema) }),
        ..definition("main")
    }
}

#[tokio::test]
async fn a_json_answer_is_checked_and_repaired_once() {
    for (script, answer) in [
        (vec![say(r#"{"n": 1}"#)], Some(r#"{"n": 1}"#)),
        (vec![say("```json\n{\"n\": 2}\n```")], Some(r#"{"n": 2}"#)),
        (vec![say("one"), say(r#"{"n": 3}"#)], Some(r#"{"n": 3}"#)),
        (vec![say(r#"{"n": "x"}"#), say(r#"{"n": 4}"#)], Some(r#"{"n": 4}"#)),
        (vec![say("one"), say("two"), say(r#"{"n": 5}"#)], None),
    ] {
        let seen = Case::defined(wants_json(), &script, []).run().await;
        match answer {
            Some(answer) => assert_eq!(seen.response.content, answer),
            None => assert_eq!(seen.response.class, Some(FailureClass::Output)),
        }
        assert_eq!(seen.model.requests().len(), script.len().min(2));
    }
}

#[tokio::test]
async fn the_same_call_over_and_over_is_warned_of_and_then_ends_the_run() {
    let script = [call(&[("a", "{}")])];
    let says = ["`a` with the same parameters 5 times in a row"];
    let seen = check(definition("main"), &script, tool(), FailureClass::Loop, &says).await;
    assert_eq!(seen.model.requests().len(), 5);
    let results = recorded(&seen);
    assert_eq!(results.iter().map(|(status, _)| *status).filter(|s| *s == ToolStatus::Ok).count(), 4);
    assert!(results[4].1.starts_with("not run: "), "{results:?}");
    let notes = seen.entries.iter().filter(|e| matches!(e, Entry::Note { step: 3, .. }));
    assert_eq!(notes.count(), 1);
    let last = seen.model.requests().pop().expect("it was asked");
    let warned = last.messages.iter().filter(|m| match &***m {
        drupe_extension_api::Message::User { content } => content.contains("3 times in a row"),
        _ => false,
    });
    assert_eq!(warned.count(), 1);
}
