//! Answers and tool calls of one agent.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use drupe_extension_api::{EffectClass, EventBody, FailureClass, ItemKind, ResponseStatus, ToolStatus};

use super::*;
use crate::*;

/// Runs one step of those calls with those tools, then an answer.
async fn check(calls: &[(&str, &str)], tools: Vec<Arc<Registered>>, expected: &[(ToolStatus, &str)]) -> Seen {
    let seen = Case::of(&[call(calls), say("done")], tools).run().await;
    assert_eq!(seen.response.content, "done");
    assert_eq!(seen.response.turns_used, Some(2));
    let results = seen.results();
    assert_eq!(results.len(), expected.len());
    for ((status, text), (wanted, part)) in results.iter().zip(expected) {
        assert_eq!(status, wanted, "{text}");
        assert!(text.contains(part), "{text} does not say {part}");
    }
    seen
}

#[tokio::test]
async fn a_plain_answer_takes_one_step() {
    let seen = Case::of(&[say("hello")], []).run().await;
    assert_eq!(seen.response.content, "hello");
    assert_eq!((seen.response.status, seen.response.turns_used), (ResponseStatus::Success, Some(1)));
    assert_eq!((seen.spend.turns, seen.spend.tool_calls, seen.spend.invocations), (1, 0, 1));
    assert_eq!(seen.spend.usage.total(), 15);
}

#[tokio::test]
async fn a_tool_s_result_reaches_the_model_before_its_answer() {
    let seen =
        check(&[("a", r#"{"n": 1}"#)], vec![Fake::says("a").registered()], &[(ToolStatus::Ok, "a was here")])
            .await;
    assert_eq!((seen.spend.turns, seen.spend.tool_calls), (2, 1));
}

#[tokio::test]
async fn a_tool_that_fails_is_told_and_the_run_goes_on() {
    let tools = vec![Fake::new("a", Does::Fails("no disk")).registered()];
    check(&[("a", "{}")], tools, &[(ToolStatus::Error, "no disk")]).await;
}

/// Eight calls of 50 ms; how long they take together.
async fn eight(parallel: u32, change: impl Fn(Fake) -> Fake) -> (Duration, usize) {
    let world = Arc::new(World::default());
    let tool = change(Fake::new("a", Does::Sleeps(50)).in_world(&world)).registered();
    let mut definition = definition("main");
    definition.limits.parallel_tool_calls = parallel;
    let script = [call(&[("a", "{}"); 8]), say("done")];
    let seen = Case::defined(definition, &script, [tool]).run().await;
    assert_eq!(seen.told(), ["slept"; 8]);
    (seen.elapsed, world.peak.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_step_run_in_parallel_up_to_the_agent_s_bound() {
    let ms = Duration::from_millis;
    assert_eq!(eight(8, |t| t).await, (ms(50), 8));
    assert_eq!(eight(1, |t| t).await, (ms(400), 1));
    assert_eq!(eight(3, |t| t).await, (ms(150), 3));
}

#[tokio::test(start_paused = true)]
async fn the_gate_bounds_calls_by_their_weight() {
    let ms = Duration::from_millis;
    assert_eq!(eight(8, |t| t.with(|a| a.weight = 8)).await, (ms(200), 2));
    assert_eq!(eight(8, |t| t.with(|a| a.weight = 5)).await, (ms(150), 3));
    assert_eq!(eight(8, |t| t.with(|a| a.weight = 99)).await, (ms(400), 1));
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_call_runs_alone_and_in_its_place() {
    let world = Arc::new(World::default());
    let plain = Fake::new("plain", Does::Sleeps(50)).in_world(&world).registered();
    let alone =
        Fake::new("alone", Does::Sleeps(50)).in_world(&world).with(|a| a.exclusive = true).registered();
    let calls = [("plain", "{}"), ("plain", "{}"), ("alone", "{}"), ("plain", "{}"), ("alone", "{}")];
    let seen = Case::of(&[call(&calls), say("done")], [plain, alone]).run().await;
    assert_eq!(seen.elapsed, Duration::from_millis(200));
    assert_eq!(world.peak.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn answers_come_in_call_order_whatever_ends_first() {
    tokio::time::pause();
    let tools = vec![Fake::new("slow", Does::Sleeps(90)).registered(), Fake::says("fast").registered()];
    let expected = [(ToolStatus::Ok, "slept"), (ToolStatus::Ok, "fast was here")];
    check(&[("slow", "{}"), ("fast", "{}")], tools, &expected).await;
}

#[tokio::test]
async fn a_forged_tool_name_is_refused_by_any_spelling() {
    let spellings = ["shell", "KV", "Kv", "kv ", " kv", "kv\u{0}", "ｋｖ", "k\u{200b}v", "../kv", "kv.kv"];
    let world = Arc::new(World::default());
    let kv = Fake::says("kv").in_world(&world).registered();
    let calls: Vec<(&str, &str)> = spellings.iter().map(|name| (*name, "{}")).collect();
    let seen = check(&calls, vec![kv], &[(ToolStatus::Refused, "there is no tool"); 10]).await;
    assert!(world.runs().is_empty());
    assert_eq!(seen.spend.tool_calls, 10, "a refused call counts");
}

#[tokio::test]
async fn a_bad_call_says_what_was_wrong_and_nothing_runs() {
    let world = Arc::new(World::default());
    let tool = Fake::says("a").in_world(&world).registered();
    let twice = ("a", r#"{"n": 1, "\\\":": ":", "b": [{"k": 1, "\u006b": 2}]}"#);
    let calls = [("a", "{not json"), ("a", r#"{"n": "one"}"#), ("a", r#"{"m": 1}"#), ("a", "[]"), twice];
    let expected = [
        (ToolStatus::Refused, "not valid JSON"),
        (ToolStatus::Refused, "/n"),
        (ToolStatus::Refused, "do not fit the schema of `a`"),
        (ToolStatus::Refused, "do not fit the schema of `a`"),
        (ToolStatus::Refused, "an object has the same key twice"),
    ];
    check(&calls, vec![tool], &expected).await;
    assert!(world.runs().is_empty());
}

#[tokio::test]
async fn calls_beyond_the_bound_of_a_step_are_refused() {
    let world = Arc::new(World::default());
    let tool = Fake::says("a").in_world(&world).registered();
    let mut expected = vec![(ToolStatus::Ok, "a was here"); 16];
    expected.extend([(ToolStatus::Refused, "at most 16"); 2]);
    check(&[("a", "{}"); 18], vec![tool], &expected).await;
    assert_eq!(world.runs().len(), 16);
}

#[tokio::test]
async fn a_tool_that_needs_agreement_is_denied_where_nobody_can_be_asked() {
    let world = Arc::new(World::default());
    let tool = Fake::says("a").in_world(&world).with(|a| a.needs_approval = true).registered();
    check(&[("a", "{}")], vec![tool], &[(ToolStatus::Refused, "needs the operator's approval")]).await;
    assert!(world.runs().is_empty());
}

#[tokio::test]
async fn refusing_ends_the_run_with_that_status() {
    let script = [call(&[("refuse", r#"{"reason": "not my field"}"#)]), say("never")];
    let seen = Case::of(&script, [refuse::tool()]).run().await;
    assert_eq!(seen.response.status, ResponseStatus::Refused);
    assert_eq!(seen.response.class, Some(FailureClass::Refused));
    assert_eq!(seen.response.content, "not my field");
    assert!(seen.entries.iter().any(|e| matches!(e, Entry::Result { status: ToolStatus::Ok, .. })));
    assert_eq!(seen.model.requests().len(), 1);
}

/// What a run with a tool of that origin shows, apart from ids that are the same anyway.
async fn of_origin(origin: &'static str) -> (Vec<EventBody>, Vec<Entry>, drupe_extension_api::Spend) {
    let tools = [
        Fake::says("a").of(origin).registered(),
        Fake::new("b", Does::Fails("no")).of(origin).class(EffectClass::Pure).registered(),
    ];
    let script = [call(&[("a", "{}"), ("b", "{}"), ("a", "[]")]), call(&[("b", "{}")]), say("done")];
    let seen = Case::of(&script, tools).run().await;
    (seen.events.into_iter().map(|(_, body)| body).collect(), seen.entries, seen.spend)
}

#[tokio::test(start_paused = true)]
async fn the_loop_treats_tools_of_all_origins_alike() {
    let first = of_origin("kv").await;
    for origin in ["core", "mcp:github", "some_agent"] {
        assert_eq!(of_origin(origin).await, first, "{origin}");
    }
}

#[tokio::test]
async fn a_tool_declares_how_its_calls_are_shown() {
    let tool = Fake::says("a").with(|a| a.item = ItemKind::CommandExecution).registered();
    let seen = check(&[("a", "{}")], vec![tool], &[(ToolStatus::Ok, "")]).await;
    let shown = seen.events.iter().filter(|(_, e)| match e {
        EventBody::ItemStarted { item } | EventBody::ItemCompleted { item, .. } => {
            item.kind == ItemKind::CommandExecution
        }
        _ => false,
    });
    assert_eq!(shown.count(), 2);
}

#[tokio::test]
async fn the_model_is_offered_its_tools_sorted_by_name_and_the_same_bytes_each_step() {
    let tools = ["c", "a", "b"].map(|name| Fake::says(name).registered());
    let seen = Case::of(&[call(&[("a", "{}")]), say("done")], tools).run().await;
    for request in seen.model.requests() {
        let names: Vec<&str> = request.tools.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(&*request.system, "You work.");
    }
}

#[tokio::test]
async fn every_attempt_of_the_model_is_accounted_for() {
    let usage = Some(Usage { input_tokens: 7, ..Usage::default() });
    let fault = ModelFault::transient(FailureClass::Network, "the line broke");
    let retry = ModelEvent::Retry { fault, model: "plays/first".into(), next: "plays/script".into(), usage };
    let events = [vec![ModelEvent::Text("half".into()), retry], ScriptedModel::say("whole")].concat();
    let seen = Case::of(&[Reply::Gives(events)], []).run().await;
    assert_eq!(seen.response.content, "whole");
    // The broken answer was counted before it came.
    assert_eq!(seen.spend.usage.total(), 15 + 7 + 2);
    let attempts: Vec<(u32, String)> = seen.events.iter().filter_map(|(_, e)| attempt(e)).collect();
    assert_eq!(attempts, [(1, "the line broke".into()), (2, "end".into())]);
    assert_eq!(seen.diagnostics(), ["model_retry"]);
    let recorded: Vec<_> = seen.entries.iter().filter_map(recorded).collect();
    assert_eq!(recorded, [("plays/first", 9, true), ("scripted/list", 15, false)]);
}

fn attempt(event: &EventBody) -> Option<(u32, String)> {
    match event {
        EventBody::ModelAttempt { attempt, stop, .. } => Some((*attempt, stop.clone())),
        _ => None,
    }
}

/// Model and tokens of an attempt, and whether it was repeated.
fn recorded(entry: &Entry) -> Option<(&str, u64, bool)> {
    match entry {
        Entry::Failed { model, usage, repeated, .. } => Some((model, usage.total(), *repeated)),
        Entry::Answer { model, usage, .. } => Some((model, usage.total(), false)),
        _ => None,
    }
}

#[tokio::test]
async fn a_model_that_fails_is_the_run_s_error() {
    let fault = ModelFault::fatal(FailureClass::Auth, "the key was refused");
    let seen = Case::of(&[Reply::Gives(vec![ModelEvent::Failed(fault)])], []).run().await;
    assert_eq!(seen.response.class, Some(FailureClass::Auth));
    assert!(seen.response.content.contains("the key was refused"), "{}", seen.response.content);
    let attempts: Vec<_> = seen.events.iter().filter_map(|(_, e)| attempt(e)).collect();
    assert_eq!(attempts, [(1, "the key was refused".into())]);
}

#[tokio::test]
async fn each_result_is_recorded_as_it_comes() {
    let case = Case::of(&[call(&[("a", "{}"); 3]), say("done")], [Fake::says("a").registered()]);
    let journal = Arc::clone(&case.journal);
    case.run().await;
    let results = |b: &Batch| b.entries.iter().filter(|e| matches!(e, Entry::Result { .. })).count();
    let counts: Vec<usize> = journal.batches().iter().map(results).filter(|n| *n > 0).collect();
    assert_eq!(counts, [1, 1, 1]);
}

#[tokio::test]
async fn a_call_that_is_refused_is_recorded_as_one_that_may_be_repeated_whatever_its_tool_is() {
    let once = Fake::says("a").class(EffectClass::Once).registered();
    let script = [call(&[("a", r#"{"unknown": 1}"#), ("nobody", "{}"), ("a", "{}")]), say("done")];
    let seen = Case::of(&script, [once]).run().await;
    let intents = seen.entries.iter().filter_map(|e| match e {
        Entry::Intent { tool, class, .. } => Some((tool.as_str(), *class)),
        _ => None,
    });
    // Nothing ran of the first two: a journal need not wait for the disk for them, and a crash leaves nothing unknown.
    let expected = [("a", EffectClass::Pure), ("nobody", EffectClass::Pure), ("a", EffectClass::Once)];
    assert_eq!(intents.collect::<Vec<_>>(), expected);
    assert_eq!(seen.statuses(), [ToolStatus::Refused, ToolStatus::Refused, ToolStatus::Ok]);
}
