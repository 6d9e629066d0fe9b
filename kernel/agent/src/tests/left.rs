//! Runs that code begins: after a crash they count as spent, whether or not the code asks for them again.

use std::sync::Arc;

use drupe_extension_api::{
    AgentResponse, DefinitionLimits, EffectClass, EventBody, ResponseStatus, ToolStatus, Usage,
};
use drupe_limits::{QuotaLimits, Quotas};

use super::*;
use crate::*;

const TASK: &str = r#"{"task": "t"}"#;
const PRICE: Price = Price::flat(10.0, 10.0, 20.0);

/// When the code asks for its runs.
#[derive(Clone, Copy, PartialEq)]
pub enum Asks {
    /// In the first process only.
    Once,
    Again,
}

/// An answer, with that many tokens used.
fn answer(events: Vec<ModelEvent>, tokens: u64) -> Reply {
    let told = |event| match event {
        ModelEvent::Done { stop, model, .. } => {
            let usage = Some(Usage { input_tokens: tokens - 5, output_tokens: 5, ..Usage::default() });
            ModelEvent::Done { usage, stop, model }
        }
        other => other,
    };
    Reply::Gives(events.into_iter().map(told).collect())
}

/// A root that calls the agent `native`, which is code and runs its own loop; this calls a tool, and an agent below it.
pub fn case(journal: &Arc<MemoryJournal>, resumed: bool, asks: Asks, limits: DefinitionLimits) -> Case {
    let root = [answer(ScriptedModel::call(&[("agent_native", TASK)]), 15), say("done")];
    let own = [
        answer(ScriptedModel::call(&[("once", "{}"), ("agent_sub", TASK)]), 400),
        answer(ScriptedModel::say("a part"), 400),
    ];
    let sub = [answer(ScriptedModel::say("a detail"), 330)];
    let mut model = Plays::new(&[("main", &root), ("native", &own), ("sub", &sub)]);
    model.profile.price = Some(PRICE);
    let model = Arc::new(model);
    let once = Fake::says("once").class(EffectClass::Once).registered();
    let sub = looping(definition("sub"), &model, []);
    let own = looping(definition("native"), &model, [once, as_tool(&sub)]);
    let native: Arc<dyn Agent> = Arc::new(Native {
        id: agent_id("native"),
        limits: DefinitionLimits::default(),
        code: Box::new(move |task, run| {
            let own = Arc::clone(&own);
            Box::pin(async move {
                if resumed && asks == Asks::Once {
                    return AgentResponse::success("it has done without");
                }
                run.invoke_own(&Asker::Agent, &own, task).await
            })
        }),
    });
    let main = Definition { limits, ..definition("main") };
    let root = looping(main, &model, [as_tool(&native)]);
    Case { journal: Arc::clone(journal), resumed, ..Case::new(root, &model) }
}

pub fn tokens_of_a_day() -> QuotaLimits {
    let mut limits = QuotaLimits::unlimited();
    limits.day.max_tokens = 1_000_000;
    limits
}

/// What attempts are told to have used and cost.
pub fn attempts(batches: &[Batch]) -> (u64, f64) {
    let events = batches.iter().flat_map(Batch::events);
    let attempts = events.filter_map(|(_, e)| match e {
        EventBody::ModelAttempt { usage, cost_usd, .. } => Some((usage.total(), cost_usd.unwrap_or(0.0))),
        _ => None,
    });
    attempts.fold((0, 0.0), |(a, b), (c, d)| (a + c, b + d))
}

/// What the records say was lost.
fn lost(seen: &Seen) -> u64 {
    let lost = seen.entries.iter().filter_map(|e| match e {
        Entry::Failed { lost_tokens, .. } => Some(*lost_tokens),
        _ => None,
    });
    lost.sum()
}

#[tokio::test]
async fn after_a_cut_at_any_commit_all_that_was_spent_counts() {
    let limits = DefinitionLimits::default;
    for asks in [Asks::Once, Asks::Again] {
        let journal = Arc::new(MemoryJournal::default());
        let whole = case(&journal, false, asks, limits()).run().await;
        assert_eq!(whole.spend.usage.total(), 15 + 400 + 330 + 400 + 15);
        let commits = journal.batches().len();
        assert!(commits > 8, "{commits}");
        for commits in 0..commits {
            let cut = crashed(&journal, commits).await;
            let (open, before) = (asked_and_not_answered(&cut), attempts(&cut.batches()).0);
            let quotas = Arc::new(Quotas::new(tokens_of_a_day()));
            let shared = Arc::clone(&quotas);
            let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.quotas = shared);
            let seen = Case { scope, ..case(&cut, true, asks, limits()) }.run().await;
            assert_eq!(seen.response.status, ResponseStatus::Success, "cut after {commits}");
            let ((tokens, usd), lost) = (attempts(&cut.batches()), lost(&seen));
            let cost = seen.spend.cost_usd.expect("all prices are known");
            assert!(seen.spend.usage.total() == tokens && (cost - usd).abs() < 1e-9, "cut after {commits}");
            assert_eq!(lost, open, "cut after {commits}");
            // What the earlier process recorded was counted for the day when this one began.
            assert_eq!(quotas.standing(0)[0].used.used, tokens - before + lost, "cut after {commits}");
            if asks == Asks::Again {
                assert_eq!(seen.spend.tool_calls, whole.spend.tool_calls, "cut after {commits}");
                assert_eq!(seen.spend.invocations, whole.spend.invocations, "cut after {commits}");
            }
        }
    }
}

/// Tokens that were set aside for model calls without an end.
pub fn asked_and_not_answered(journal: &MemoryJournal) -> u64 {
    let mut open = std::collections::HashMap::new();
    for entry in journal.batches().into_iter().flat_map(|b| b.entries) {
        match entry {
            Entry::Step { invocation, reserved_tokens, .. } => drop(open.insert(invocation, reserved_tokens)),
            Entry::Answer { invocation, .. } | Entry::Failed { invocation, .. } => {
                open.remove(&invocation);
            }
            _ => {}
        }
    }
    open.values().sum()
}

#[tokio::test]
async fn limits_hold_for_what_a_run_spent_that_nobody_asks_for_again() {
    let tokens = DefinitionLimits { max_tokens_per_invocation: 750, ..DefinitionLimits::default() };
    let cost = DefinitionLimits { max_cost_usd: Some(0.007_8), ..DefinitionLimits::default() };
    let journal = Arc::new(MemoryJournal::default());
    case(&journal, false, Asks::Once, DefinitionLimits::default()).run().await;
    let asked = |n: usize| {
        let events = journal.cut(n).batches().into_iter().flat_map(|b| b.events());
        events.filter(|(_, e)| matches!(e, EventBody::ModelAttempt { .. })).count()
    };
    for (limits, limit) in [(tokens, "max_tokens_per_invocation"), (cost, "max_cost_usd")] {
        // The root, the code's loop and the agent below it have asked.
        let cut = (0..journal.batches().len()).find(|n| asked(*n) == 3).expect("three attempts are recorded");
        let cut = crashed(&journal, cut).await;
        let seen = case(&cut, true, Asks::Once, limits).run().await;
        assert_eq!((seen.exceeded(), seen.model.requests().len()), (vec![limit], 0));
    }
}

#[tokio::test]
async fn what_nobody_comes_back_to_ends_as_cancelled() {
    let journal = Arc::new(MemoryJournal::default());
    case(&journal, false, Asks::Once, DefinitionLimits::default()).run().await;
    let begun = |n: usize| {
        let entries = journal.cut(n).batches().into_iter().flat_map(|b| b.entries);
        entries.filter(|e| matches!(e, Entry::Intent { .. })).count()
    };
    // The calls of its first step are intended, and none of them has a result.
    let cut = (0..journal.batches().len()).find(|n| begun(*n) == 3).expect("three calls are recorded");
    let cut = crashed(&journal, cut).await;
    let kept = cut.batches().len();
    case(&cut, true, Asks::Once, DefinitionLimits::default()).run().await;
    let after: Vec<Entry> = cut.batches().into_iter().skip(kept).flat_map(|b| b.entries).collect();
    let results = after.iter().filter_map(|e| match e {
        Entry::Result { status, .. } => Some(*status),
        _ => None,
    });
    // The call that may have taken effect, the agent that never began, and the call of the root.
    let expected = [ToolStatus::OutcomeUnknown, ToolStatus::Cancelled, ToolStatus::Ok];
    assert_eq!(results.collect::<Vec<_>>(), expected);
    let ended = after.iter().filter_map(|e| match e {
        Entry::End { response, .. } => Some(response.status),
        _ => None,
    });
    let expected = [ResponseStatus::Error, ResponseStatus::Success, ResponseStatus::Success];
    assert_eq!(ended.collect::<Vec<_>>(), expected, "its own loop, the code, and the root");
}

#[tokio::test]
async fn the_end_of_a_run_is_committed_before_the_code_that_asked_for_it_goes_on() {
    let journal = Arc::<MemoryJournal>::default();
    let model = Arc::new(Plays::new(&[
        ("main", &[call(&[("agent_native", TASK)]), say("done")]),
        ("native", &[say("a part")]),
    ]));
    let own = looping(definition("native"), &model, []);
    let seen = Arc::clone(&journal);
    let native: Arc<dyn Agent> = Arc::new(Native {
        id: agent_id("native"),
        limits: DefinitionLimits::default(),
        code: Box::new(move |task, run| {
            let (own, seen) = (Arc::clone(&own), Arc::clone(&seen));
            Box::pin(async move {
                let response = run.invoke_own(&Asker::Agent, &own, task).await;
                let ended = |entry: &Entry| matches!(entry, Entry::End { response, .. } if response.content == "a part");
                assert!(seen.batches().iter().flat_map(|batch| &batch.entries).any(ended));
                response
            })
        }),
    });
    let main = looping(definition("main"), &model, [as_tool(&native)]);
    Case { journal, ..Case::new(main, &model) }.run().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_run_leaves_that_is_dropped_is_in_the_next_commit_whichever_run_makes_it() {
    let journal = Arc::<MemoryJournal>::default();
    let model = Arc::new(Plays::new(&[
        ("main", &[call(&[("agent_native", TASK), ("agent_sub", TASK)]), say("done")]),
        ("native", &[Reply::Hangs(Vec::new())]),
        ("sub", &[call(&[("slow", "{}"), ("fast", "{}")]), say("a part")]),
    ]));
    let own = looping(definition("native"), &model, []);
    let native: Arc<dyn Agent> = Arc::new(Native {
        id: agent_id("native"),
        limits: DefinitionLimits::default(),
        code: Box::new(move |task, run| {
            let own = Arc::clone(&own);
            Box::pin(async move {
                // It loses its patience, and then works on without a word.
                let asked = run.invoke_own(&Asker::Agent, &own, task);
                let _ = tokio::time::timeout(std::time::Duration::from_millis(10), asked).await;
                tokio::time::sleep(std::time::Duration::from_secs(10)).await;
                AgentResponse::success("it went on")
            })
        }),
    });
    let tools =
        [Fake::new("slow", Does::Sleeps(200)).registered(), Fake::new("fast", Does::Sleeps(50)).registered()];
    let sub = looping(definition("sub"), &model, tools);
    let main = looping(definition("main"), &model, [as_tool(&native), as_tool(&sub)]);
    Case { journal: Arc::clone(&journal), ..Case::new(main, &model) }.run().await;
    let holds = |batch: &Batch, wanted: fn(&Entry) -> bool| batch.entries.iter().any(wanted);
    let dropped = |e: &Entry| matches!(e, Entry::End { response, .. } if response.content.contains("before it could report"));
    let fast = |e: &Entry| matches!(e, Entry::Result { index: 1, step: 1, .. });
    let at = journal.batches().iter().position(|batch| holds(batch, dropped)).expect("it has an end");
    assert!(holds(&journal.batches()[at], fast), "with what the sub-agent beside it committed next");
}
