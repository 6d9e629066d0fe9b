//! Each attempt of a model has one record of its own, and what a run has used is their sum.

use std::{collections::HashSet, sync::Arc};

use drupe_extension_api::{AgentRef, EventBody, FailureClass, InvocationId, ResponseStatus, Usage};
use serde_json::json;

use super::*;
use crate::{run::INTERRUPTED, *};

const PRICE: Price = Price::flat(10.0, 10.0, 20.0);

/// An attempt as an event or a record has it.
#[derive(Debug)]
struct Attempt<'a> {
    run: &'a InvocationId,
    step: u32,
    /// Records of answers have none.
    number: Option<u32>,
    model: &'a str,
    usage: Usage,
    cost_usd: Option<f64>,
}

impl Attempt<'_> {
    fn is(&self, told: &Self) -> bool {
        let number = self.number.is_none_or(|number| Some(number) == told.number);
        // Nothing costs nothing, whatever the price is.
        let cost = self.cost_usd == told.cost_usd || self.usage.total() == 0;
        let place = (self.run, self.step, self.model) == (told.run, told.step, told.model);
        number && cost && place && self.usage == told.usage
    }
}

fn told((place, event): &(Option<AgentRef>, EventBody)) -> Option<Attempt<'_>> {
    let EventBody::ModelAttempt { step, attempt, model, usage, cost_usd, .. } = event else { return None };
    let run = &place.as_ref().expect("it is a run's").invocation;
    Some(Attempt { run, step: *step, number: Some(*attempt), model, usage: *usage, cost_usd: *cost_usd })
}

fn recorded(entry: &Entry) -> Option<Attempt<'_>> {
    let (step, number, model, usage, cost_usd) = match entry {
        Entry::Failed { message, .. } if message == INTERRUPTED => return None,
        Entry::Failed { step, attempt, model, usage, cost_usd, .. } => {
            (step, Some(*attempt), model, usage, cost_usd)
        }
        Entry::Answer { step, model, usage, cost_usd, .. } => (step, None, model, usage, cost_usd),
        Entry::Compacted { step, model, usage, cost_usd, .. } if !model.is_empty() => {
            (step, None, model, usage, cost_usd)
        }
        _ => return None,
    };
    Some(Attempt { run: entry.invocation(), step: *step, number, model, usage: *usage, cost_usd: *cost_usd })
}

/// What holds for every turn: each attempt that is told has a number and a record of its own, and these sum up to what
/// the turn has spent.
pub fn each_has_one_record(seen: &Seen) {
    let mut told: Vec<_> = seen.events.iter().filter_map(told).collect();
    let numbers: HashSet<_> = told.iter().map(|of| (of.run, of.step, of.number)).collect();
    assert_eq!(numbers.len(), told.len(), "two attempts have one number: {told:#?}");
    let (mut usage, mut usd, mut unpriced) = (Usage::default(), 0.0, false);
    for attempt in seen.entries.iter().filter_map(recorded) {
        let at = told.iter().position(|of| attempt.is(of));
        told.remove(at.unwrap_or_else(|| panic!("nobody was told of {attempt:#?}, but of {told:#?}")));
        usage += attempt.usage;
        usd += attempt.cost_usd.unwrap_or(0.0);
        unpriced |= attempt.cost_usd.is_none() && attempt.usage.total() > 0;
    }
    assert!(told.is_empty(), "without a record: {told:#?}");
    assert_eq!(seen.spend.usage, usage);
    assert_eq!(seen.spend.cost_usd.is_none(), unpriced, "{:?}", seen.spend);
    assert!(
        seen.spend.cost_usd.is_none_or(|cost| (cost - usd).abs() < 1e-9),
        "{:?} is not {usd}",
        seen.spend
    );
}

/// An attempt fails that took so many tokens of input.
fn fails(model: &str, next: &str, input_tokens: u64) -> ModelEvent {
    let fault = ModelFault::transient(FailureClass::Network, "the line broke");
    let usage = Some(Usage { input_tokens, ..Usage::default() });
    ModelEvent::Retry { fault, model: model.into(), next: next.into(), usage }
}

/// The same by that model.
fn by(model: &str, events: Vec<ModelEvent>) -> Vec<ModelEvent> {
    let by = |event| match event {
        ModelEvent::Done { usage, stop, .. } => ModelEvent::Done { usage, stop, model: model.to_owned() },
        other => other,
    };
    events.into_iter().map(by).collect()
}

#[tokio::test]
async fn attempts_that_are_repeated_are_recorded_by_the_transaction_of_the_answer() {
    let run = async |failed: Vec<ModelEvent>| {
        let first = Reply::Gives([failed, ScriptedModel::call(&[("a", "{}")])].concat());
        let case = Case::of(&[first, say("done")], [Fake::says("a").registered()]);
        let journal = Arc::clone(&case.journal);
        case.run().await;
        journal.batches()
    };
    let (once, again) = (run(vec![]).await, run(vec![fails("m/a", "m/b", 7), fails("m/b", "m/a", 8)]).await);
    assert_eq!(once.len(), again.len(), "no further transaction");
    let answered = |batch: &&Batch| batch.entries.iter().any(|e| matches!(e, Entry::Answer { .. }));
    let batch = again.iter().find(answered).expect("the model answered");
    let failed = batch.entries.iter().filter_map(|e| match e {
        Entry::Failed { attempt, model, class, usage, repeated, .. } => {
            Some((*attempt, model.as_str(), *class, usage.total(), *repeated))
        }
        _ => None,
    });
    let network = FailureClass::Network;
    assert_eq!(failed.collect::<Vec<_>>(), [(1, "m/a", network, 7, true), (2, "m/b", network, 8, true)]);
}

#[tokio::test]
async fn an_attempt_that_a_limit_lets_nothing_follow_is_the_last() {
    let mut small = definition("main");
    small.limits.max_tokens_per_invocation = 500;
    let reply = Reply::Gives([vec![fails("m/a", "m/b", 1_000)], ScriptedModel::say("done")].concat());
    let seen = Case::defined(small, &[reply], []).run().await;
    assert_eq!(
        (seen.response.status, seen.exceeded()),
        (ResponseStatus::Error, vec!["max_tokens_per_invocation"])
    );
    let failed = seen.entries.iter().filter_map(|e| match e {
        Entry::Failed { model, usage, lost_tokens, repeated, .. } => {
            Some((model.as_str(), usage.total(), *lost_tokens, *repeated))
        }
        _ => None,
    });
    assert_eq!(failed.collect::<Vec<_>>(), [("m/a", 1_000, 0, false)]);
}

/// `main` calls `sub`, and this `deep`. Of one of them, an attempt of a known price failed; what follows it in `main` and
/// `sub` has none.
fn known_in_part(who: &str, journal: &Arc<MemoryJournal>, resumed: bool, max_cost_usd: f64) -> Case {
    let reply = |agent: &str, events| {
        let model = if agent == "deep" { "list/known" } else { "list/unknown" };
        let failed = (agent == who).then(|| fails("list/known", model, 1_000));
        Reply::Gives(failed.into_iter().chain(by(model, events)).collect())
    };
    let calls = |agent: &str, tool| reply(agent, ScriptedModel::call(&[(tool, r#"{"task": "t"}"#)]));
    let ends = |text| Reply::Gives(by("list/unknown", ScriptedModel::say(text)));
    let main = [calls("main", "agent_sub"), ends("done")];
    let sub = [calls("sub", "agent_deep"), ends("a part")];
    let deep = [reply("deep", ScriptedModel::say("a detail"))];
    let mut model = Plays::new(&[("main", &main), ("sub", &sub), ("deep", &deep)]);
    (model.profile.name, model.profile.price) = ("list/known".into(), Some(PRICE));
    model.prices = [("list/known", Some(PRICE)), ("list/unknown", None)].into();
    let model = Arc::new(model);
    let deep = looping(definition("deep"), &model, []);
    let sub = looping(definition("sub"), &model, [as_tool(&deep)]);
    let mut main = definition("main");
    (main.limits.max_cost_usd, main.limits.allow_unknown_price) = (Some(max_cost_usd), true);
    let root = looping(main, &model, [as_tool(&sub)]);
    Case { journal: Arc::clone(journal), resumed, ..Case::new(root, &model) }
}

#[tokio::test]
async fn what_is_known_of_a_cost_counts_after_a_cut_at_any_commit() {
    for who in ["main", "sub", "deep"] {
        let journal = Arc::new(MemoryJournal::default());
        let whole = known_in_part(who, &journal, false, 1.0).run().await;
        assert_eq!((whole.response.content.as_str(), whole.spend.cost_usd), ("done", None));
        let mut counted = 0;
        for commits in 0..journal.batches().len() {
            let cut = crashed(&journal, commits).await;
            let entries: Vec<_> = cut.batches().into_iter().flat_map(|b| b.entries).collect();
            let known: f64 = entries.iter().filter_map(recorded).filter_map(|of| of.cost_usd).sum();
            let seen = known_in_part(who, &cut, true, 0.010_1).run().await;
            if known >= 0.01 {
                counted += 1;
                assert!(seen.model.requests().is_empty(), "{who}: cut after {commits}");
                assert!(seen.exceeded().contains(&"max_cost_usd"), "{who}: cut after {commits}");
            }
        }
        assert!(counted > 1, "{who}: {counted} cuts");
    }
}

fn entries(lines: &[serde_json::Value]) -> Vec<Entry> {
    lines.iter().map(|line| serde_json::from_value(line.clone()).expect("a record")).collect()
}

fn step(entries: Vec<Entry>) -> RecordedStep {
    let run = InvocationId::new("r").expect("a valid id");
    RecordedTurn::from_iter(entries).run(&run).expect("it is there").steps[0].clone()
}

#[test]
fn an_older_record_that_stands_for_all_attempts_of_a_step_reads_right() {
    let begun = json!({"entry": "step", "invocation": "r", "step": 1, "attempt": 1, "model": "m/a", "request_hash": "",
                       "reserved_tokens": 100, "reserved_usd": 0.5});
    let message = json!({"role": "assistant", "content": "done"});
    let answer = json!({"entry": "answer", "invocation": "r", "step": 1, "message": message, "model": "m/a",
                        "usage": {"input_tokens": 30, "output_tokens": 5}, "cost_usd": 0.25});
    let read = step(entries(&[begun.clone(), answer]));
    assert_eq!(
        (read.used.usage.total(), read.used.usd, read.used.unpriced, read.lost()),
        (35, 0.25, false, 0)
    );
    let failed = json!({"entry": "failed", "invocation": "r", "step": 1, "attempt": 1, "model": "m/b",
                        "class": "network", "message": "gone", "usage": {"input_tokens": 30}, "cost_usd": null,
                        "lost_tokens": 70, "lost_usd": 0.5});
    let read = step(entries(&[begun, failed]));
    assert_eq!((read.used.usage.total(), read.used.usd, read.used.unpriced), (30, 0.0, true));
    assert_eq!((read.lost(), read.lost_usd()), (70, 0.5));
}

#[test]
fn what_is_set_aside_stays_so_until_the_last_attempt_has_ended() {
    let begun = json!({"entry": "step", "invocation": "r", "step": 1, "attempt": 1, "model": "m/a", "request_hash": "",
                       "reserved_tokens": 100, "reserved_usd": 0.5});
    let failed = |repeated: bool| {
        json!({"entry": "failed", "invocation": "r", "step": 1, "attempt": 1, "model": "m/a", "class": "network",
               "message": "gone", "usage": {"input_tokens": 30}, "cost_usd": 0.25, "lost_tokens": 0, "lost_usd": 0.0,
               "repeated": repeated})
    };
    let read = step(entries(&[begun.clone(), failed(true)]));
    assert_eq!((read.used.usage.total(), read.used.usd, read.lost(), read.lost_usd()), (30, 0.25, 100, 0.5));
    let read = step(entries(&[begun, failed(true), failed(false)]));
    assert_eq!((read.used.usage.total(), read.used.usd, read.lost(), read.lost_usd()), (60, 0.5, 0, 0.0));
}
