//! Transcripts that outgrow the model's window.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, FailureClass, Message, Reasoning};

use super::*;
use crate::*;

/// What a model makes of requests for a summary.
#[derive(Clone, Copy)]
pub enum Sums {
    Well,
    Fails,
    /// Reasoning uses all of the room.
    Reasons,
}

/// An agent that calls `a` in so many steps and then answers, by a model of that window. It knows its step by its own
/// words alone, as models do.
pub fn case(
    steps: u32,
    window: u64,
    result: usize,
    sums: Sums,
) -> impl Fn(&Arc<MemoryJournal>, bool) -> Case {
    move |journal, resumed| {
        let mut model = Plays::new(&[]);
        model.profile.context_window = window;
        model.by_request = Some(Box::new(move |request| Some(work(request, steps, sums))));
        let mut definition = definition("main");
        definition.limits.max_turns = steps + 1;
        definition.limits.max_tokens_per_invocation = 10_000_000;
        let tool = Fake::new("a", Does::Fills(result)).class(EffectClass::Pure).registered();
        let model = Arc::new(model);
        let agent = looping(definition, &model, [tool]);
        Case { journal: Arc::clone(journal), resumed, ..Case::new(agent, &model) }
    }
}

fn work(request: &ModelRequest, steps: u32, sums: Sums) -> Reply {
    if &*request.system == prompt::SUMMARISE {
        let events = match sums {
            Sums::Well => ScriptedModel::say("step 0 and more went well"),
            Sums::Reasons => {
                let stop = StopReason::Length { dropped_calls: 0 };
                let done = ModelEvent::Done { usage: None, stop, model: "plays/script".into() };
                vec![ModelEvent::Reasoning("hm".into()), done]
            }
            Sums::Fails => vec![ModelEvent::Failed(ModelFault::fatal(FailureClass::Model, "no summary"))],
        };
        let (fault, model) =
            (ModelFault::transient(FailureClass::RateLimit, "later"), "plays/script".to_owned());
        let retry = ModelEvent::Retry { fault, next: model.clone(), model, usage: None };
        return Reply::Gives([vec![retry], events].concat());
    }
    if request.tools.is_empty() {
        return say("all that I have");
    }
    let number = |m: &Arc<Message>| match &**m {
        Message::Assistant { content, .. } => content.strip_prefix("step ")?.parse::<u32>().ok(),
        _ => None,
    };
    let done = request.messages.iter().filter_map(number).max().unwrap_or(0);
    if done == steps {
        return say("done");
    }
    let n = done + 1;
    let mut events = vec![ModelEvent::Text(format!("step {n}"))];
    events.extend(ScriptedModel::call(&[("a", &format!(r#"{{"n": {n}}}"#))]));
    Reply::Gives(events)
}

fn size(request: &ModelRequest) -> usize {
    let text = |m: &Arc<Message>| match &**m {
        Message::User { content } | Message::Tool { content, .. } | Message::Assistant { content, .. } => {
            content.len()
        }
    };
    request.messages.iter().map(text).sum()
}

#[tokio::test]
async fn a_history_ten_times_the_window_ends_well() {
    let (steps, window, result) = (45, 4_000, 3_000);
    let seen = case(steps, window, result, Sums::Well)(&Arc::default(), false).run().await;
    assert_eq!(seen.response.content, "done");
    assert!(u64::from(steps) * result as u64 / 3 > 10 * window);
    for request in seen.model.requests() {
        assert!(size(&request) as u64 / 3 < window, "{}", size(&request));
    }
    let codes = seen.diagnostics();
    assert!(codes.contains(&"context_elided") && codes.contains(&"context_summarised"), "{codes:?}");
    assert!(!codes.contains(&"context_forced"), "{codes:?}");
    let summaries = seen.entries.iter().filter(
        |e| matches!(e, Entry::Compacted { model, usage, .. } if !model.is_empty() && usage.total() == 15),
    );
    assert_eq!(summaries.count(), codes.iter().filter(|c| **c == "context_summarised").count());
    assert_eq!(seen.spend.turns, steps + 1, "a summary is no step");
    let asked = u64::try_from(seen.model.requests().len()).expect("few");
    assert_eq!(seen.spend.usage.total(), 15 * asked, "but it is paid for");
}

#[tokio::test]
async fn the_latest_results_and_the_task_stay_whole() {
    let seen = case(20, 4_000, 3_000, Sums::Well)(&Arc::default(), false).run().await;
    for request in seen.model.requests().iter().filter(|r| &*r.system != prompt::SUMMARISE) {
        let result = |m: &&Arc<Message>| matches!(&***m, Message::Tool { .. });
        let whole =
            |m: &Arc<Message>| matches!(&**m, Message::Tool { content, .. } if content.len() == 3_000);
        assert!(request.messages.iter().rev().filter(result).take(2).all(whole));
        let task = request
            .messages
            .iter()
            .filter(|m| matches!(&***m, Message::User { content } if content == "do it"));
        assert_eq!(task.count(), 1);
    }
}

#[tokio::test]
async fn a_history_that_nobody_sums_up_is_left_out_and_the_run_goes_on() {
    let seen = case(45, 4_000, 3_000, Sums::Fails)(&Arc::default(), false).run().await;
    assert_eq!(seen.response.content, "done");
    assert!(seen.diagnostics().contains(&"context_left_out"), "{:?}", seen.diagnostics());
    let charged = |e: &Entry| matches!(e, Entry::Failed { usage, lost_tokens: 0, estimated: true, .. } if usage.total() > 0);
    assert!(seen.entries.iter().any(charged));
}

#[tokio::test]
async fn a_summary_that_reasoning_used_up_is_told_as_left_out_and_no_reasoning_is_asked_for() {
    let journal = Arc::new(MemoryJournal::default());
    let mut of = case(45, 4_000, 3_000, Sums::Reasons)(&journal, false);
    let model = Arc::clone(&of.model);
    let mut main = definition("main");
    (main.limits.max_turns, main.limits.max_tokens_per_invocation) = (46, 10_000_000);
    main.parameters.reasoning = Some(Reasoning::High);
    let tool = Fake::new("a", Does::Fills(3_000)).class(EffectClass::Pure).registered();
    of.agent = looping(main, &model, [tool]);
    let seen = of.run().await;
    assert_eq!(seen.response.content, "done");
    assert!(!seen.diagnostics().contains(&"context_summarised"), "{:?}", seen.diagnostics());
    assert!(
        seen.outcome.iter().any(|d| d.contains("left out: plays/script gave no summary")),
        "{:?}",
        seen.outcome
    );
    let (sums, steps): (Vec<_>, Vec<_>) =
        seen.model.requests().into_iter().partition(|r| &*r.system == prompt::SUMMARISE);
    assert!(sums.iter().all(|r| r.parameters.reasoning.is_none()) && !sums.is_empty());
    assert!(steps.iter().all(|r| r.parameters.reasoning == Some(Reasoning::High)));
}

#[tokio::test]
async fn a_full_window_is_emptied_far_enough_for_some_steps() {
    let seen = case(90, 4_000, 300, Sums::Well)(&Arc::default(), false).run().await;
    assert_eq!(seen.response.content, "done");
    let changes: std::collections::BTreeSet<u32> = seen
        .entries
        .iter()
        .filter_map(|e| match e {
            Entry::Compacted { step, .. } => Some(*step),
            _ => None,
        })
        .collect();
    let apart = changes.iter().zip(changes.iter().skip(1)).map(|(one, next)| next - one);
    assert!(changes.len() > 2 && apart.min() > Some(4), "{changes:?}");
}

#[tokio::test]
async fn a_compacted_transcript_is_the_same_after_a_cut() {
    let whole = same_after_any_cut(case(16, 1_300, 1_000, Sums::Well)).await;
    assert!(whole.diagnostics().contains(&"context_summarised"), "{:?}", whole.diagnostics());
}

/// A model whose window is nearly filled by what the tool says of itself.
fn narrow(journal: &Arc<MemoryJournal>, resumed: bool) -> Case {
    let mut model = Plays::new(&[]);
    model.profile.context_window = 2_000;
    model.by_request = Some(Box::new(|request| Some(work(request, 9, Sums::Well))));
    let tool = Fake::new("a", Does::Fills(2_000)).class(EffectClass::Pure).described(&"d".repeat(4_500));
    let model = Arc::new(model);
    let agent = looping(definition("main"), &model, [tool.registered()]);
    Case { journal: Arc::clone(journal), resumed, ..Case::new(agent, &model) }
}

#[tokio::test]
async fn last_the_model_is_asked_for_its_answer_without_tools() {
    let seen = same_after_any_cut(narrow).await;
    assert_eq!(seen.response.content, "all that I have");
    assert_eq!(seen.diagnostics(), ["context_forced"]);
    let last = seen.model.requests().pop().expect("it was asked");
    assert!(last.tools.is_empty() && last.deferred.is_empty());
    assert!(
        matches!(&**last.messages.last().expect("one"), Message::User { content } if content == prompt::FORCED)
    );
}

#[tokio::test]
async fn what_fits_no_window_asks_no_model() {
    let seen = case(1, 10, 10, Sums::Well)(&Arc::default(), false).run().await;
    assert_eq!(seen.response.class, Some(FailureClass::Budget));
    assert!(seen.response.content.contains("the model's window holds 10"), "{}", seen.response.content);
    assert!(seen.model.requests().is_empty());
}

#[tokio::test]
async fn reported_usage_corrects_what_is_reserved() {
    let ratios = Arc::new(Ratios::default());
    let mut model = Plays::new(&[]);
    let usage = Usage { input_tokens: 10_000, output_tokens: 1, ..Usage::default() };
    model.by_request = Some(Box::new(move |_| {
        let model = "plays/script".to_owned();
        Some(Reply::Gives(vec![
            ModelEvent::Text("done".into()),
            ModelEvent::Done { usage: Some(usage), stop: StopReason::End, model },
        ]))
    }));
    let model = Arc::new(model);
    let mut definition = definition("main");
    definition.instructions = "x".repeat(40_000);
    let agent = looping(definition, &model, []);
    let mut reserved = Vec::new();
    for _ in 0..30 {
        let shared = Arc::clone(&ratios);
        let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.ratios = shared);
        let seen = Case { scope, ..Case::new(Arc::clone(&agent), &model) }.run().await;
        reserved.extend(seen.entries.iter().find_map(|e| match e {
            Entry::Step { reserved_tokens, .. } => Some(*reserved_tokens),
            _ => None,
        }));
    }
    assert!(reserved[0] > 13_000 && reserved[29] < 10_300, "{reserved:?}");
}
