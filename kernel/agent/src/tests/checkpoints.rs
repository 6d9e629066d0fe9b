//! Turns that go on from what a checkpoint keeps of their records.

use std::sync::Arc;

use drupe_extension_api::{DefinitionLimits, EffectClass, Message, Spend};
use serde_json::json;

use super::{
    context::{Sums, case as long_history},
    *,
};
use crate::*;

/// What a checkpoint keeps, written and read.
fn written(mut turn: RecordedTurn) -> RecordedTurn {
    turn.prune();
    let text = serde_json::to_string(&turn).expect("it can be written");
    serde_json::from_str(&text).expect("and read")
}

fn entries(journal: &MemoryJournal) -> Vec<Entry> {
    journal.batches().into_iter().flat_map(|batch| batch.entries).collect()
}

/// The records of a journal as a second checkpoint keeps them, which was made from one in their midst and what followed.
pub fn kept(journal: &MemoryJournal) -> RecordedTurn {
    let all = entries(journal);
    let (before, after) = all.split_at(all.len() / 2);
    let mut turn = written(before.iter().cloned().collect());
    turn.extend(after.iter().cloned());
    written(turn)
}

/// Asserts that a checkpoint at any entry, and what follows it, come to the same as all; gives what is kept in the end.
fn same_from_any_entry(all: &[Entry]) -> RecordedTurn {
    let whole = written(all.iter().cloned().collect());
    for at in 0..=all.len() {
        let (before, after) = all.split_at(at);
        let mut turn = written(before.iter().cloned().collect());
        turn.extend(after.iter().cloned());
        assert_eq!(written(turn), whole, "a checkpoint after {at} entries");
    }
    whole
}

fn size(turn: &RecordedTurn) -> usize {
    serde_json::to_string(turn).expect("it can be written").len()
}

#[tokio::test]
async fn a_checkpoint_at_any_entry_of_a_long_turn_and_what_follows_come_to_the_same_as_all_of_it() {
    let journal = Arc::default();
    long_history(45, 4_000, 3_000, Sums::Well)(&journal, false).run().await;
    let all = entries(&journal);
    // What is still in the window of the model is kept, and of the rest some hundred bytes a step.
    let kept = size(&same_from_any_entry(&all));
    assert!(kept < 4_000 * 4 + 45 * 600, "{kept}");
    assert!(size(&all.iter().cloned().collect()) > 45 * 3_000);
}

#[tokio::test]
async fn a_long_turn_is_shown_to_its_model_as_it_was_after_any_checkpoint() {
    let seen = same_after_any_cut(long_history(16, 4_000, 3_000, Sums::Well)).await;
    let codes = seen.diagnostics();
    assert!(codes.contains(&"context_elided") && codes.contains(&"context_summarised"), "{codes:?}");
}

#[tokio::test]
async fn parameters_that_are_let_go_still_count_as_the_same_call_over_and_over() {
    let of = |n: char| format!(r#"{{"n": {}}}"#, n.to_string().repeat(100));
    let calls = |which: &str| which.chars().map(|n| call(&[("a", &of(n))])).collect::<Vec<_>>();
    for (before, after, warns) in [("122", "11", false), ("122", "21", true), ("211", "11", true)] {
        let case = |journal: &Arc<MemoryJournal>, script: Vec<Reply>| {
            let tool = Fake::says("a").class(EffectClass::Pure).registered();
            Case { journal: Arc::clone(journal), ..Case::of(&[script, vec![say("done")]].concat(), [tool]) }
        };
        let journal = Arc::default();
        case(&journal, calls(before)).run().await;
        // The answer after these calls is cut off, and a summary stands for most of them.
        let cut = crashed(&journal, journal.batches().len() - 1).await;
        let mut last = cut.batches().remove(0);
        last.entries = vec![Entry::Compacted {
            invocation: last.entries[0].invocation().clone(),
            step: 4,
            compaction: Compaction::Summarised { before: 3, summary: "so far".into() },
            model: String::new(),
            usage: Usage::default(),
            cost_usd: Some(0.0),
            estimated: false,
            stop: StopReason::End,
            told: None,
        }];
        cut.commit(last).await.expect("a journal in memory records");
        let turn = kept(&cut);
        let text = serde_json::to_string(&turn).expect("it can be written");
        let whole = ['1', '2'].map(|n| text.matches(&n.to_string().repeat(100)).count());
        assert_eq!(whole.iter().sum::<usize>(), 1, "those of the last step: {text}");
        let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.records = turn.into());
        // The model knows its place in the script by the one answer that it is still shown.
        let seen = Case { scope, ..case(&cut, calls(&format!("9{after}"))) }.run().await;
        assert_eq!(seen.response.content, "done");
        let warned = seen.model.requests().iter().any(|request| {
            let of = |message: &Arc<Message>| matches!(&**message, Message::User { content } if content.contains("in a row"));
            request.messages.iter().any(of)
        });
        assert_eq!(warned, warns, "{before} and then {after}");
    }
}

/// Whoever has to change what is written here changes the form of checkpoints, and counts its version up in the journal.
#[test]
fn a_checkpoint_is_written_in_the_form_of_its_version() {
    let spent = json!({"usage": Usage::default(), "usd": 0.5, "unpriced": true, "lost_tokens": 1, "lost_usd": 0.5, "turns": 1, "tool_calls": 1, "invocations": 1});
    let question = json!({
        "effect": "e-1", "session": "s", "turn": "t", "invocation": "i-1", "agent": "main", "tool": "a", "params": "{}", "need": "n", "digest": "d", "asked_ms": 1, "expires_ms": 2,
    });
    let spend = serde_json::to_value(Spend { turns: 1, ..Spend::default() }).expect("a value");
    let note = json!({"role": "user", "content": "more"});
    let form = json!({"i-1": {
        "agent": "main",
        "below": ["i-2"],
        "steps": [{
            "step": 1, "attempt": 2, "model": "m", "reserved_tokens": 3, "reserved_usd": 0.5, "unpriced": true, "lost_tokens": 4, "lost_usd": 0.5,
            "answer": {"role": "assistant", "content": "yes"}, "stop": {"length": {"dropped_calls": 1}}, "said": "why", "used": spent,
            "compactions": [{"how": "elided", "before": 1}, {"how": "summarised", "before": 1, "summary": "so far"}, {"how": "forced"}],
            "effects": [
                {"index": 1, "effect": "e-1", "tool": "a", "class": "once", "over_limit": true, "question": question, "reached": "asked", "result": ["ok", "x"], "size": 5},
                {"index": 2, "effect": "e-2", "tool": "a", "class": "pure", "reached": "intended"},
                {"index": 3, "effect": "e-3", "tool": "a", "class": "idempotent", "reached": "started"},
            ],
            "notes": [note], "steered": [["t-2", note]],
        }],
        "response": {"status": "success", "content": "done"},
        "spend": spend,
        "beside": spent,
    }});
    let turn: RecordedTurn = serde_json::from_value(form.clone()).expect("it is read");
    assert_eq!(serde_json::to_value(&turn).expect("it is written"), form);
}

#[test]
fn what_a_tool_reads_again_outlives_the_summary_that_stands_for_its_step() {
    let long = |what: &str| format!("{what} {}", "x".repeat(2_000));
    let tools = [search_tools::NAME, update_plan::NAME, "a"];
    let (mut calls, mut entries) = (Vec::new(), Vec::new());
    for (index, tool) in tools.iter().enumerate() {
        let (effect, asked) = (format!("e-{index}"), long(&format!("asked of {tool}")));
        calls.push(json!({"call_id": index.to_string(), "name": tool, "arguments": asked}));
        let place = json!({"invocation": "i-1", "step": 1, "index": index, "effect": effect, "tool": tool});
        let more = [
            json!({"entry": "intent", "class": "pure"}),
            json!({"entry": "result", "status": "ok", "content": long(&format!("given by {tool}"))}),
        ];
        for more in more {
            let mut entry = place.clone();
            let more = more.as_object().expect("an object").clone();
            entry.as_object_mut().expect("an object").extend(more);
            entries.push(entry);
        }
    }
    let message = json!({"role": "assistant", "content": "", "tool_calls": calls});
    let mut all = vec![
        json!({"entry": "begin", "invocation": "i-1", "agent": "main", "parent": null, "depth": 0, "task": "do it"}),
        json!({"entry": "answer", "invocation": "i-1", "step": 1, "message": message, "model": "m", "usage": Usage::default(), "cost_usd": 0.0}),
    ];
    all.extend(entries);
    for how in [json!({"how": "elided"}), json!({"how": "summarised", "summary": "so far"})] {
        let mut compaction = how;
        compaction["before"] = json!(2);
        all.push(json!({"entry": "compacted", "invocation": "i-1", "step": 3, "compaction": compaction}));
        let read = |entry: &serde_json::Value| serde_json::from_value(entry.clone()).expect("an entry");
        let turn = written(all.iter().map(read).collect::<Vec<Entry>>().into_iter().collect());
        let text = serde_json::to_string(&turn).expect("it can be written");
        let kept = ["given by search_tools", "asked of update_plan", "given by a x", "given by update_plan"];
        assert_eq!(kept.map(|part| text.contains(part)), [true, true, false, false], "{text}");
    }
}

#[tokio::test]
async fn a_step_that_was_cut_off_is_lost_once_and_its_attempt_is_numbered_anew_each_time() {
    let main = |max_tokens| {
        let limits =
            DefinitionLimits { max_tokens_per_invocation: max_tokens, ..DefinitionLimits::default() };
        Definition { limits, ..definition("main") }
    };
    let case = |journal: &Arc<MemoryJournal>, resumed, max_tokens| {
        let case = Case::defined(main(max_tokens), &[say("done")], []);
        Case { journal: Arc::clone(journal), resumed, ..case }
    };
    let journal = Arc::new(MemoryJournal::default());
    case(&journal, false, 50_000).run().await;
    // The model was about to be asked, and nobody saw an answer: twice.
    let cut = crashed(&journal, 1).await;
    let before = cut.batches().len();
    case(&cut, true, 50_000).run().await;
    let twice = crashed(&cut, before + 1).await;
    let seen = case(&twice, true, 50_000).run().await;
    assert_eq!(seen.response.content, "done");
    let (mut asked, mut lost) = (Vec::new(), Vec::new());
    for entry in &seen.entries {
        match entry {
            Entry::Step { attempt, reserved_tokens, .. } => asked.push((*attempt, *reserved_tokens)),
            Entry::Failed { attempt, lost_tokens, repeated: false, .. } => {
                lost.push((*attempt, *lost_tokens))
            }
            _ => {}
        }
    }
    assert_eq!(asked.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(lost, asked[..2], "what was set aside for each of the two, once");
    // What is lost is used: where it leaves no room, nothing is asked again.
    let reserved = asked[0].1;
    let seen = case(&crashed(&journal, 1).await, true, reserved + 1).run().await;
    assert_eq!((seen.exceeded(), seen.model.requests().len()), (vec!["max_tokens_per_invocation"], 0));
}
