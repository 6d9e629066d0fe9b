//! Spawned agents while something is in the way: crashes at any commit, checkpoints, a full gate, people who are asked, panics,
//! a process that ends.

use std::panic::AssertUnwindSafe;

use drupe_extension_api::{EffectId, FailureClass, InvocationId, ToolSpec, control::ApprovalState};
use drupe_limits::{QuotaLimits, Quotas};
use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tests::approvals::Asks;

/// A root with those limits that has `sub` and `other` as agents.
fn house(
    limits: impl FnOnce(&mut drupe_extension_api::DefinitionLimits),
    root: &[Reply],
    sub: &[Reply],
    tools: &[Arc<Registered>],
) -> Case {
    let mut main = definition("main");
    limits(&mut main.limits);
    let model = Arc::new(Plays::new(&[("main", root), ("sub", sub), ("other", sub)]));
    let agents = ["sub", "other"].map(|id| as_tool(&looping(definition(id), &model, tools.to_vec())));
    let own = spawn_agent::tools().into_iter().chain(agents).chain(tools.to_vec());
    Case::new(looping(main, &model, own), &model)
}

fn entries(journal: &MemoryJournal) -> Vec<Entry> {
    journal.batches().into_iter().flat_map(|batch| batch.entries).collect()
}

fn begun(journal: &MemoryJournal, of: &str) -> usize {
    let begins = |entry: &&Entry| matches!(entry, Entry::Begin { agent, .. } if agent.as_str() == of);
    entries(journal).iter().filter(begins).count()
}

fn asks() -> Arc<Registered> {
    Fake::says("asks").with(|annotations| annotations.needs_approval = true).registered()
}

fn sleeps(name: &str, ms: u64) -> Arc<Registered> {
    Fake::new(name, Does::Sleeps(ms)).class(EffectClass::Pure).registered()
}

fn patient(handles: &[String]) -> Reply {
    calls(&[("wait_agent", json!({"handles": handles, "timeout_ms": 600_000}).to_string())])
}

#[tokio::test]
async fn a_checkpoint_behind_a_summary_keeps_what_was_spawned() {
    let task = "a task that says more than what a hash of it has bytes, as most tasks do, and a little more than that";
    for checkpoint in [false, true] {
        let journal: Arc<MemoryJournal> = Arc::default();
        let case = |root: &[Reply], journal: &Arc<MemoryJournal>| Case {
            journal: Arc::clone(journal),
            ..house(|_| {}, root, &[say("a part")], &[sleeps("nap", 1)])
        };
        let naps = |n: u32| call(&[("nap", &format!(r#"{{"n": {n}}}"#))]);
        case(&[calls(&[spawn("sub", task)]), naps(1), naps(2), say("done")], &journal).run().await;
        let fourth = |entry: &Entry| matches!(entry, Entry::Step { step: 4, .. });
        let whole = journal.batches();
        let at = whole.iter().position(|batch| batch.entries.iter().any(fourth)).expect("there is one");
        let cut = crashed(&journal, at).await;
        let mut summary = cut.batches().remove(0);
        summary.entries = vec![Entry::Compacted {
            invocation: ids::root_invocation(&TurnId::new("s").expect("valid")),
            step: 4,
            compaction: Compaction::Summarised { before: 3, summary: "so far".into() },
            model: String::new(),
            usage: Usage::default(),
            cost_usd: Some(0.0),
            estimated: false,
            stop: StopReason::End,
            told: None,
        }];
        cut.commit(summary).await.expect("it is kept");
        let again = [say("x"), calls(&[wait(&[handle(1, 0)])]), say("done")];
        let seen = Case { resumed: true, checkpoint, ..case(&again, &cut) }.run().await;
        let told = seen.told();
        assert!(told.last().is_some_and(|told| told.contains("a part")), "{checkpoint}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_that_would_begin_an_agent_anew_counts_against_the_limit() {
    let world = Arc::<World>::default();
    let nap = Fake::new("nap", Does::Sleeps(1_000)).in_world(&world).registered();
    let both = [handle(1, 0), handle(3, 0)];
    let root = [
        calls(&[spawn("sub", "1")]),
        calls(&[wait(&both[..1])]),
        calls(&[spawn("sub", "2")]),
        calls(&[wait(&both[1..])]),
        calls(&[send(&both[0], "x"), send(&both[1], "y")]),
        calls(&[wait(&both)]),
        say("done"),
    ];
    let sub = [call(&[("nap", "{}")]), say("a part")];
    let seen = house(|limits| limits.max_active_children = 1, &root, &sub, &[nap]).run().await;
    assert_eq!(world.peak.load(std::sync::atomic::Ordering::Relaxed), 1);
    let refused = seen.told().iter().filter(|told| told.starts_with("limit_reached: 1")).count();
    assert_eq!(refused, 1, "{:?}", seen.told());
}

#[tokio::test]
async fn after_a_crash_at_any_commit_nothing_is_refused_and_no_text_is_lost() {
    let (one, two) = (handle(1, 0), handle(4, 0));
    let sends = |of: &str, n: u32| (0..n).map(|i| send(of, &format!("{n}.{i}"))).collect::<Vec<_>>();
    let root = [
        calls(&[spawn("sub", "1")]),
        calls(&sends(&one, 10)),
        calls(&[wait(std::slice::from_ref(&one))]),
        calls(&[spawn("other", "2")]),
        calls(&[wait(std::slice::from_ref(&two))]),
        calls(&sends(&one, 9)),
        calls(&[wait(std::slice::from_ref(&one))]),
        say("done"),
    ];
    let case = |journal: &Arc<MemoryJournal>| Case {
        journal: Arc::clone(journal),
        ..house(|limits| limits.max_active_children = 1, &root, &[say("a part")], &[])
    };
    let journal = Arc::default();
    let whole = case(&journal).run().await;
    assert_eq!(whole.spend.invocations, 22, "{:?}", whole.told());
    for at in 0..journal.batches().len() {
        let cut = crashed(&journal, at).await;
        let seen = Case { resumed: true, ..case(&cut) }.run().await;
        assert_eq!((seen.spend.invocations, seen.spend.tool_calls), (22, whole.spend.tool_calls), "cut {at}");
        assert!(
            seen.told().iter().all(|told| !told.starts_with("limit_reached")),
            "cut {at}: {:?}",
            seen.told()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn ones_own_time_goes_on_while_ones_own_model_works_whoever_is_asked_beside() {
    let root = [calls(&[spawn("sub", "1")]), call(&[("nap", "{}")]), Reply::Hangs(vec![])];
    let sub = [call(&[("asks", "{}")]), say("a part")];
    let case = house(|limits| limits.time_budget_ms = 1_000, &root, &sub, &[asks(), sleeps("nap", 50)]);
    let policy = Asks::answers(ApprovalState::Allowed, Duration::from_secs(90));
    let seen = Case { policy, ..case }.run().await;
    assert_eq!(seen.response.class, Some(FailureClass::Timeout));
    assert!(seen.elapsed < Duration::from_secs(2), "{:?}", seen.elapsed);
}

#[tokio::test(start_paused = true)]
async fn nobodys_time_is_used_up_while_all_that_is_waited_for_waits_for_a_person() {
    let (one, two) = (handle(1, 0), handle(1, 1));
    // One of them has answered when the other asks; and one asks in its second run.
    let both =
        [calls(&[spawn("sub", "ask"), spawn("other", "1")]), patient(&[one.clone(), two]), say("done")];
    let anew = [
        calls(&[spawn("other", "1")]),
        calls(&[wait(std::slice::from_ref(&one))]),
        calls(&[send(&one, "ask")]),
        patient(std::slice::from_ref(&one)),
        say("done"),
    ];
    for root in [&both[..], &anew[..]] {
        let mut model = Plays::new(&[("main", root)]);
        model.by_request = Some(Box::new(|request: &ModelRequest| {
            let answered =
                request.messages.iter().any(|message| matches!(&**message, Message::Assistant { .. }));
            let asked = request.messages.iter().find_map(|message| match &**message {
                Message::User { content } => Some(prompt::task_of(content).to_owned()),
                _ => None,
            });
            (request.agent.id.as_str() != "main").then(|| match (answered, asked.as_deref()) {
                (false, Some("ask")) => call(&[("asks", "{}")]),
                _ => say("a part"),
            })
        }));
        let model = Arc::new(model);
        let agents = ["sub", "other"].map(|id| as_tool(&looping(definition(id), &model, [asks()])));
        let own = spawn_agent::tools().into_iter().chain(agents);
        let mut main = definition("main");
        main.limits.time_budget_ms = 10_000;
        let policy = Asks::answers(ApprovalState::Allowed, Duration::from_secs(300));
        let seen = Case { policy, ..Case::new(looping(main, &model, own), &model) }.run().await;
        assert_eq!(seen.response.content, "done", "{:?}", seen.told());
        assert!(seen.elapsed >= Duration::from_secs(300), "{:?}", seen.elapsed);
    }
}

#[tokio::test]
async fn what_nobody_comes_back_to_after_a_crash_has_an_end() {
    let root = [calls(&[spawn("sub", "1")]), call(&[("nap", "{}")]), say("done")];
    let case = |journal: &Arc<MemoryJournal>| Case {
        journal: Arc::clone(journal),
        ..house(|_| {}, &root, &[Reply::Hangs(vec![])], &[sleeps("nap", 5)])
    };
    let journal = Arc::default();
    case(&journal).run().await;
    for at in 0..journal.batches().len() {
        let cut = crashed(&journal, at).await;
        // That each intent has one result is asserted of every run.
        assert_eq!(Case { resumed: true, ..case(&cut) }.run().await.response.content, "done", "cut {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn four_that_hang_leave_their_caller_its_calls() {
    let four = ["1", "2", "3", "4"].map(|task| spawn("sub", task));
    let root = [calls(&four), call(&[("nap", "{}")]), calls(&[close(&handle(1, 0))]), say("done")];
    let case = house(|_| {}, &root, &[Reply::Hangs(vec![])], &[sleeps("nap", 5)]);
    let seen = Case { commit_takes: Duration::from_millis(10), ..case }.run().await;
    assert_eq!(seen.response.content, "done", "{:?}", seen.told());
    assert!(seen.elapsed < Duration::from_secs(5), "{:?}", seen.elapsed);
}

#[tokio::test]
async fn one_that_is_described_by_an_agent_of_the_longest_id_is_another_one_and_charged_to_it() {
    let id = "a".repeat(48);
    let root = [
        calls(&[("spawn_agent", json!({"instructions": "x", "task": "t"}).to_string())]),
        calls(&[wait(&[handle(1, 0)])]),
        say("done"),
    ];
    let inline = format!("{}-inline", &id[..41]);
    let model = Arc::new(Plays::new(&[(&id, &root), (&inline, &[say("inline is done")])]));
    let mut quotas = QuotaLimits::unlimited();
    quotas.agent.max_invocations = 1;
    let case = || Case::new(looping(definition(&id), &model, spawn_agent::tools()), &model);
    let seen = case().run().await;
    assert!(seen.told()[1].contains("inline is done"), "{:?}", seen.told());
    // Of its own it has no budget of a day.
    let quotas = Arc::new(Quotas::new(quotas));
    let seen = Case { scope: Box::new(move |scope| scope.quotas = quotas), ..case() }.run().await;
    assert!(seen.told()[1].contains("limits.agent.max_invocations"), "{:?}", seen.told());
}

#[tokio::test(start_paused = true)]
async fn a_person_hears_that_something_was_read_when_it_is_kept() {
    let one = handle(1, 0);
    let root = [calls(&[spawn("sub", "count")]), calls(&[wait(std::slice::from_ref(&one))]), say("done")];
    let case = house(|_| {}, &root, &[call(&[("nap", "{}")]), say("x")], &[sleeps("nap", 5_000)]);
    let journal = Arc::clone(&case.journal);
    let spawned: Arc<SpawnedAgents> = Arc::default();
    let beside = Arc::clone(&spawned);
    let scope = Box::new(move |scope: &mut TurnScope| scope.spawned = spawned);
    let case = Case { scope, commit_takes: Duration::from_millis(100), ..case };
    let person = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let effect = || EffectId::new("e-0123").expect("an id");
        assert_eq!(beside.tell("a-none", effect(), "x".into()).await, Err(Unread::Unknown));
        assert_eq!(beside.tell(&one, effect(), "in French".into()).await, Ok(()));
        let given = |entry: &Entry| matches!(entry, Entry::Note { given_by: Some(_), .. });
        assert!(entries(&journal).iter().any(given), "it is kept by then");
    };
    tokio::join!(case.run(), person);
}

/// A root that sends its agent a text which is not read before the agent ends.
fn unread(journal: &Arc<MemoryJournal>, closes: bool) -> Case {
    let one = handle(1, 0);
    let end = if closes { calls(&[close(&one)]) } else { calls(&[wait(std::slice::from_ref(&one))]) };
    let mut root = vec![calls(&[spawn("sub", "count")]), calls(&[send(&one, "more")])];
    root.extend((0..20).map(|n| call(&[("quick", &format!(r#"{{"n": {n}}}"#))])));
    // Time in which one that was stopped reports, and in which one that would begin anew does so.
    let nap = |n: u32| call(&[("nap", &format!(r#"{{"n": {n}}}"#))]);
    root.extend([
        nap(1),
        nap(2),
        end,
        call(&[("quick", r#"{"n": 100}"#)]),
        call(&[("late", "{}")]),
        nap(3),
        nap(4),
        say("done"),
    ]);
    let quick = Fake::says("quick").class(EffectClass::Pure).registered();
    let tools = [sleeps("nap", 300), quick, Fake::says("late").class(EffectClass::Pure).registered()];
    let sub = [call(&[("nap", "{}")]), say("x")];
    Case { journal: Arc::clone(journal), ..house(|limits| limits.max_turns = 100, &root, &sub, &tools) }
}

/// The journal as it was when the call `late` was to run.
async fn before_late(journal: &Arc<MemoryJournal>) -> Arc<MemoryJournal> {
    let late = |entry: &Entry| matches!(entry, Entry::Intent { tool, .. } if tool == "late");
    let at =
        journal.batches().iter().position(|batch| batch.entries.iter().any(late)).expect("it is intended");
    crashed(journal, at).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_that_was_closed_stays_closed_after_a_crash() {
    for _ in 0..3 {
        let journal: Arc<MemoryJournal> = Arc::default();
        unread(&journal, true).run().await;
        let (before, cut) = (begun(&journal, "sub"), before_late(&journal).await);
        let seen = Case { resumed: true, ..unread(&cut, true) }.run().await;
        assert_eq!((begun(&cut, "sub"), seen.model.asked_by("sub")), (before, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_a_person_stopped_stays_so_after_a_crash() {
    let journal: Arc<MemoryJournal> = Arc::default();
    let spawned: Arc<SpawnedAgents> = Arc::default();
    let beside = Arc::clone(&spawned);
    let case = Case { scope: Box::new(move |scope| scope.spawned = spawned), ..unread(&journal, false) };
    let person = async {
        // A text waits for it: it would begin anew with that.
        while !beside.list().iter().any(|one| one.unread == 1) {
            tokio::task::yield_now().await;
        }
        assert!(beside.stop(&handle(1, 0)).await);
    };
    tokio::join!(case.run(), person);
    let (before, cut) = (begun(&journal, "sub"), before_late(&journal).await);
    Case { resumed: true, ..unread(&cut, false) }.run().await;
    assert_eq!(begun(&cut, "sub"), before);
}

/// A tool that does something at once.
struct Acts(Arc<ToolSpec>, fn());

impl Tool for Acts {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn origin(&self) -> &str {
        "fake"
    }

    fn call(&self, _: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
        let act = self.1;
        Box::pin(async move {
            act();
            Ok(ToolOutput::text("acted"))
        })
    }
}

fn acts(name: &str, act: fn()) -> Arc<Registered> {
    let spec = Arc::clone(Tool::spec(&Fake::says(name)));
    Registered::new(Arc::new(Acts(spec, act))).expect("a valid schema")
}

#[tokio::test]
async fn a_panic_in_one_is_what_whoever_waits_for_it_hears() {
    let root = [calls(&[spawn("sub", "1")]), calls(&[wait(&[handle(1, 0)])]), say("done")];
    let sub = [call(&[("panics", "{}")]), say("a part")];
    let case = house(|_| {}, &root, &sub, &[acts("panics", || panic!("a tool that panics"))]);
    let seen = AssertUnwindSafe(case.run()).catch_unwind().await;
    let told = seen.unwrap_or_else(|_| panic!("the turn goes on")).told();
    let one = read(&told[1])["agents"][0].clone();
    assert_eq!((&one["state"], &one["status"]), (&json!("done"), &json!("error")), "{told:?}");
    assert!(one["result"].as_str().is_some_and(|why| why.starts_with("it broke off")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_that_is_dropped_when_the_process_ends_records_no_end_of_its_agents() {
    let life = CancellationToken::new();
    let blocks = acts("blocks", || std::thread::sleep(Duration::from_millis(300)));
    let root = [
        calls(&[spawn("sub", "1"), spawn("other", "2")]),
        patient(&[handle(1, 0), handle(1, 1)]),
        say("done"),
    ];
    let model = Arc::new(Plays::new(&[
        ("main", &root),
        ("sub", &[Reply::Hangs(vec![])]),
        ("other", &[call(&[("blocks", "{}")]), say("a part")]),
    ]));
    let agents = ["sub", "other"].map(|id| as_tool(&looping(definition(id), &model, [blocks.clone()])));
    let own = spawn_agent::tools().into_iter().chain(agents);
    let ends = life.clone();
    let case = Case::new(looping(definition("main"), &model, own), &model);
    let journal = Arc::clone(&case.journal);
    let case = Case { scope: Box::new(move |scope| scope.life = ends), ..case };
    let dropped = async {
        let intended = |entry: &Entry| matches!(entry, Entry::Intent { tool, .. } if tool == "blocks");
        while !entries(&journal).iter().any(intended) {
            tokio::task::yield_now().await;
        }
        life.cancel();
    };
    tokio::select! {
        _ = case.run() => panic!("it does not end by itself"),
        () = dropped => {}
    }
    // The one that blocked its thread goes on for so long.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let ended: Vec<InvocationId> = entries(&journal)
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::End { invocation, .. } => Some(invocation),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [], "whoever goes on with the turn comes back to them");
}
