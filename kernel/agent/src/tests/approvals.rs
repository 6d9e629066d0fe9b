//! Calls about which a person is asked.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use drupe_extension_api::{
    AgentResponse, EffectClass, EffectId, EventBody, FailureClass, ToolStatus, control::ApprovalState,
};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{resume::same_after_any_cut, *};
use crate::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Asks about tools that need approval; the answer comes after a while, and stays.
pub struct Asks {
    after: Duration,
    state: ApprovalState,
    answered: Mutex<HashMap<EffectId, Answer>>,
}

impl Asks {
    pub fn answers(state: ApprovalState, after: Duration) -> Arc<Self> {
        Arc::new(Self { after, state, answered: Mutex::default() })
    }
}

impl Policy for Asks {
    fn decide(&self, call: PolicyCall<'_>) -> Decision {
        match call.spec.annotations.needs_approval {
            true => Decision::Ask(Need {
                why: "it says so".into(),
                patience_ms: 600_000,
                about: None,
                for_taint: false,
            }),
            false => Decision::Allow { by: None },
        }
    }

    fn answer<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<Answer, JournalFault>> {
        Box::pin(async move {
            if !self.answered.lock().expect("it is whole").contains_key(&question.effect) {
                tokio::time::sleep(self.after).await;
            }
            let by = (self.state != ApprovalState::Expired).then(|| "the operator".to_owned());
            let asks = question.preview.as_ref().is_some_and(|preview| preview.input.is_some());
            let given = asks.then(|| r#"{"days":3}"#.to_owned());
            let answer = Answer { state: self.state, by, given };
            let mut all = self.answered.lock().expect("it is whole");
            Ok(all.entry(question.effect.clone()).or_insert(answer).clone())
        })
    }
}

fn asking(name: &str, world: &Arc<World>, journal: &Arc<MemoryJournal>) -> Arc<Registered> {
    Fake::says(name).with(|a| a.needs_approval = true).counted(world, journal).registered()
}

/// What the events say of questions, in order.
fn told(seen: &Seen) -> Vec<&'static str> {
    let said = |(_, event): &(_, EventBody)| match event {
        EventBody::ApprovalRequested { .. } => Some("requested"),
        EventBody::ApprovalAnswered { state, .. } => Some(match state {
            ApprovalState::Allowed => "allowed",
            ApprovalState::Denied => "denied",
            ApprovalState::Expired => "expired",
            ApprovalState::Withdrawn => "withdrawn",
            ApprovalState::Pending => "pending",
        }),
        _ => None,
    };
    seen.events.iter().filter_map(said).collect()
}

/// A case of one step in which `a` is asked about and `b` is not, with a second to do it in.
fn case(policy: &Arc<Asks>, world: &Arc<World>, journal: &Arc<MemoryJournal>, resumed: bool) -> Case {
    let mut main = definition("main");
    main.limits.time_budget_ms = 1_000;
    let pure = Fake::says("b").class(EffectClass::Pure).counted(world, journal).registered();
    let tools = [asking("a", world, journal), pure];
    let script = [call(&[("a", "{}"), ("b", "{}")]), say("done")];
    let (journal, policy) = (Arc::clone(journal), Arc::clone(policy) as Arc<dyn Policy>);
    Case { journal, policy, resumed, ..Case::defined(main, &script, tools) }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_waits_alone_and_costs_nobody_time() {
    let (world, journal) = Default::default();
    let seen = case(&Asks::answers(ApprovalState::Allowed, HOUR), &world, &journal, false).run().await;
    assert_eq!(seen.response.content, "done");
    assert_eq!(seen.statuses(), [ToolStatus::Ok, ToolStatus::Ok]);
    assert!(seen.elapsed >= HOUR, "{:?}", seen.elapsed);
    assert_eq!(told(&seen), ["requested", "allowed"]);
    let states = seen.entries.iter().filter_map(|entry| match entry {
        Entry::Answer { step: 1, .. } => Some("answer"),
        Entry::Asked { .. } => Some("asked"),
        Entry::Decided { .. } => Some("decided"),
        Entry::Intent { tool, .. } if tool == "a" => Some("intended"),
        Entry::Intent { .. } => Some("b"),
        Entry::Result { index: 0, .. } => Some("ended"),
        Entry::Result { .. } => Some("b ended"),
        _ => None,
    });
    let expected = ["answer", "asked", "b", "b ended", "decided", "intended", "ended"];
    assert_eq!(states.collect::<Vec<_>>(), expected, "the neighbour ends while the question waits");
    assert_eq!(world.runs().len(), 2);
}

#[tokio::test]
async fn what_is_not_allowed_does_not_run_and_the_model_reads_why() {
    for (state, says, event) in [
        (ApprovalState::Denied, "was denied by the operator", "denied"),
        (ApprovalState::Expired, "nobody answered in time", "expired"),
        (ApprovalState::Withdrawn, "nobody can give any more", "withdrawn"),
        (ApprovalState::Pending, "nobody can give any more", "pending"),
    ] {
        let (world, journal) = Default::default();
        let seen = case(&Asks::answers(state, Duration::ZERO), &world, &journal, false).run().await;
        assert_eq!(seen.statuses(), [ToolStatus::Refused, ToolStatus::Ok], "{state:?}");
        assert!(seen.told()[0].contains(says), "{:?}", seen.told());
        assert_eq!(told(&seen), ["requested", event]);
        assert_eq!(world.runs().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_withdrawn_when_its_run_ends() {
    let (world, journal) = Default::default();
    let cancel = CancellationToken::new();
    let asks = Asks::answers(ApprovalState::Allowed, HOUR);
    let waiting = Case { cancel: cancel.clone(), ..case(&asks, &world, &journal, false) };
    let (seen, ()) = tokio::join!(waiting.run(), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        cancel.cancel();
    });
    assert_eq!(seen.response.class, Some(FailureClass::Cancelled));
    assert_eq!(told(&seen), ["requested", "withdrawn"]);
    let withdrawn = |e: &&Entry| matches!(e, Entry::Decided { state: ApprovalState::Withdrawn, .. });
    assert_eq!(seen.entries.iter().filter(withdrawn).count(), 1);
    assert_eq!(world.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn time_goes_on_while_a_neighbour_works_and_its_end_withdraws_the_question() {
    let (world, journal) = Default::default();
    let mut main = definition("main");
    main.limits.time_budget_ms = 300;
    let tools = [asking("a", &world, &journal), Fake::new("hang", Does::Hangs).registered()];
    let script = [call(&[("a", "{}"), ("hang", "{}")])];
    let policy = Asks::answers(ApprovalState::Allowed, HOUR);
    let seen = Case { policy, journal, ..Case::defined(main, &script, tools) }.run().await;
    assert_eq!(seen.response.class, Some(FailureClass::Timeout));
    assert!(seen.elapsed < Duration::from_secs(2), "{:?}", seen.elapsed);
    assert_eq!(told(&seen), ["requested", "withdrawn"]);
}

#[tokio::test(start_paused = true)]
async fn the_clocks_of_all_above_stand_still_with_the_one_that_asks() {
    let (world, journal): (Arc<World>, Arc<MemoryJournal>) = Default::default();
    let replies = [call(&[("a", "{}")]), say("a part")];
    let root = [
        call(&[("agent_sub", r#"{"task": "t"}"#)]),
        call(&[("agent_code", r#"{"task": "t"}"#)]),
        say("done"),
    ];
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &replies)]));
    let short = |id| {
        let mut definition = definition(id);
        definition.limits.time_budget_ms = 1_000;
        definition
    };
    let sub = looping(short("sub"), &model, [asking("a", &world, &journal)]);
    let own = registry([asking("a", &world, &journal)]);
    let code: Arc<dyn Agent> = Arc::new(fakes::Native {
        id: agent_id("code"),
        limits: short("code").limits,
        code: Box::new(move |_, run| {
            let own = Arc::clone(&own);
            Box::pin(async move {
                let request = drupe_extension_api::ToolCallRequest {
                    call_id: String::new(),
                    name: "a".into(),
                    arguments: "{}".into(),
                };
                let ended =
                    call_tool(&run, (&Asker::Agent, run.budget.time()), &own, &Default::default(), request)
                        .await;
                let (status, content) = ended.expect("the journal records");
                assert!(!run.budget.time().left().is_zero());
                AgentResponse::success(format!("{status:?} {content}"))
            })
        }),
    });
    let main = looping(short("main"), &model, [as_tool(&sub), as_tool(&code)]);
    let policy = Asks::answers(ApprovalState::Allowed, HOUR);
    let seen = Case { policy, journal, ..Case::new(main, &model) }.run().await;
    assert_eq!(seen.response.content, "done", "{:?}", seen.response);
    assert!(seen.elapsed >= 2 * HOUR, "{:?}", seen.elapsed);
    assert!(seen.told()[1].contains("Ok a was here"), "{:?}", seen.told());
    assert_eq!((world.runs().len(), seen.warned()), (2, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_call_in_which_code_calls_a_tool_that_asks_stands_still_as_well() {
    let (world, journal) = <(Arc<World>, Arc<MemoryJournal>)>::default();
    let own = registry([asking("inner", &world, &journal)]);
    let outer = Fake::new("outer", fakes::Does::Calls(own, "inner"))
        .with(|a| a.timeout_ms = Some(1_000))
        .registered();
    let script = [call(&[("outer", "{}")]), say("done")];
    let policy = Asks::answers(ApprovalState::Allowed, HOUR);
    let seen = Case { policy, journal, ..Case::of(&script, [outer]) }.run().await;
    assert_eq!((seen.statuses(), seen.elapsed >= HOUR), (vec![ToolStatus::Ok], true), "{:?}", seen.told());
    assert_eq!(world.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_comes_back_to_the_same_question_and_the_model_is_not_asked_again() {
    let (world, journal): (Arc<World>, Arc<MemoryJournal>) = Default::default();
    let asks = Asks::answers(ApprovalState::Allowed, HOUR);
    let whole = case(&asks, &world, &journal, false).run().await;
    let commits = journal.batches().len();
    for cut in 0..commits {
        let after = Arc::new(World::default());
        let left = crashed(&journal, cut).await;
        let asked_before =
            left.batches().iter().flat_map(|b| &b.entries).any(|e| matches!(e, Entry::Asked { .. }));
        let policy = Asks::answers(ApprovalState::Allowed, HOUR);
        let seen = case(&policy, &after, &left, true).run().await;
        assert_eq!(seen.response.content, whole.response.content, "cut after {cut}");
        let questions = seen.entries.iter().filter_map(|entry| match entry {
            Entry::Asked { question, .. } => Some(question.effect.clone()),
            _ => None,
        });
        let questions: Vec<EffectId> = questions.collect();
        assert_eq!(questions.len(), 1, "cut after {cut}: one question, whoever asked it");
        assert_eq!(seen.model.requests().len(), if asked_before { 1 } else { 2 }, "cut after {cut}");
        let before = world.runs().into_iter().filter(|(_, at)| *at <= cut);
        let ran = before.chain(after.runs()).filter(|(effect, _)| *effect == questions[0]);
        assert!(ran.count() <= 1, "cut after {cut}: it runs at most once");
    }
    assert!(commits >= 5, "{commits}");
    let denied = Asks::answers(ApprovalState::Denied, HOUR);
    same_after_any_cut(|journal, resumed| case(&denied, &Arc::default(), journal, resumed)).await;
}

#[tokio::test]
async fn a_question_about_another_tool_than_there_is_now_is_not_answered() {
    let (world, journal): (Arc<World>, Arc<MemoryJournal>) = Default::default();
    let asks = Asks::answers(ApprovalState::Allowed, Duration::ZERO);
    case(&asks, &world, &journal, false).run().await;
    let left = crashed(&journal, 2).await;
    let script = [call(&[("a", "{}"), ("b", "{}")]), say("done")];
    let world = Arc::<World>::default();
    let other = Fake::says("a").described("Something else.").with(|a| a.needs_approval = true);
    let pure = Fake::says("b").class(EffectClass::Pure);
    let tools = [other.in_world(&world).registered(), pure.in_world(&world).registered()];
    let seen = Case { policy: asks, journal: left, resumed: true, ..Case::of(&script, tools) }.run().await;
    assert_eq!(seen.statuses()[0], ToolStatus::Refused);
    assert!(seen.told()[0].contains("another tool"), "{:?}", seen.told());
    assert_eq!(world.runs().len(), 1, "`b` alone");
    assert_eq!(told(&seen), ["requested", "withdrawn"]);
}

/// Goes on with two calls that had started, or were allowed, when their process ended, with tools that are others by now.
async fn goes_on_with(left: Arc<MemoryJournal>, a: Fake, b: Fake) -> (Seen, Arc<World>) {
    let world = Arc::<World>::default();
    let script = [call(&[("a", "{}"), ("b", "{}")]), say("done")];
    let tools = [a.in_world(&world).registered(), b.in_world(&world).registered()];
    let policy = Asks::answers(ApprovalState::Allowed, Duration::ZERO);
    let seen = Case { policy, journal: left, resumed: true, ..Case::of(&script, tools) }.run().await;
    (seen, world)
}

#[tokio::test]
async fn what_was_decided_about_a_call_holds_for_no_other_tool_of_its_name() {
    let pure = |name| Fake::says(name).class(EffectClass::Pure);
    let before = |a: Fake| async {
        let journal = Arc::<MemoryJournal>::default();
        let script = [call(&[("a", "{}"), ("b", "{}")]), say("done")];
        let tools = [a.registered(), pure("b").registered()];
        let policy = Asks::answers(ApprovalState::Allowed, Duration::ZERO);
        Case { policy, journal: Arc::clone(&journal), ..Case::of(&script, tools) }.run().await;
        let intended = |batch: &Batch| {
            batch.entries.iter().any(|e| matches!(e, Entry::Intent { tool, .. } if tool == "a"))
        };
        let cut = journal.batches().iter().position(intended).expect("it was to run") + 1;
        crashed(&journal, cut).await
    };
    let asked = || before(pure("a").with(|a| a.needs_approval = true));
    let same = pure("a").with(|a| a.needs_approval = true);
    let (seen, world) = goes_on_with(asked().await, same, pure("b")).await;
    assert_eq!((seen.statuses()[0], world.runs().len()), (ToolStatus::Ok, 1), "the tool that was agreed to");
    let other = pure("a").described("Something else.").with(|a| a.needs_approval = true);
    let (seen, world) = goes_on_with(asked().await, other, pure("b")).await;
    assert_eq!((seen.statuses()[0], world.runs().len()), (ToolStatus::Refused, 0), "{:?}", seen.told());
    assert!(seen.told()[0].contains("another tool"), "{:?}", seen.told());

    let allowed = || before(pure("a"));
    let asks = pure("a").with(|a| a.needs_approval = true);
    let (seen, world) = goes_on_with(allowed().await, asks, pure("b")).await;
    assert_eq!((seen.statuses()[0], world.runs().len()), (ToolStatus::Refused, 1), "{:?}", seen.told());
    assert!(seen.told()[0].contains("agree"), "{:?}", seen.told());
    let once = Fake::says("a").class(EffectClass::Once);
    let (seen, world) = goes_on_with(allowed().await, once, pure("b")).await;
    assert_eq!(
        (seen.statuses()[0], world.runs().len()),
        (ToolStatus::OutcomeUnknown, 1),
        "{:?}",
        seen.told()
    );
}

/// The commits of a step with these calls, where so many run at once, without that of the turn's end.
async fn commits(calls: &[(&str, &str)], parallel: u32) -> usize {
    let mut main = definition("main");
    main.limits.parallel_tool_calls = parallel;
    let tools = [Fake::says("once").registered(), Fake::says("pure").class(EffectClass::Pure).registered()];
    let case = Case::defined(main, &[call(calls), say("done")], tools);
    let journal = Arc::clone(&case.journal);
    case.run().await;
    journal.batches().len() - 1
}

#[tokio::test]
async fn a_step_in_which_nobody_is_asked_has_no_commit_more() {
    let (once, pure) = (("once", "{}"), ("pure", "{}"));
    // The step, its answer with the intents, each result but the last, the next step with that.
    assert_eq!(commits(&[once], 8).await, 3);
    assert_eq!(commits(&[once, once, pure], 8).await, 5);
    assert_eq!(commits(&[pure, pure, pure], 1).await, 5);
    // What must not run twice and has waited says that it starts.
    assert_eq!(commits(&[once, once, once], 1).await, 7);
}

#[tokio::test]
async fn a_call_that_had_not_started_runs_after_a_crash() {
    let (world, journal): (Arc<World>, Arc<MemoryJournal>) = Default::default();
    let case = |world: &Arc<World>, journal: &Arc<MemoryJournal>, resumed| {
        let mut main = definition("main");
        main.limits.parallel_tool_calls = 1;
        let tools = [Fake::says("once").counted(world, journal).registered()];
        let script = [call(&[("once", "{}"), ("once", r#"{"n": 1}"#)]), say("done")];
        Case { journal: Arc::clone(journal), resumed, ..Case::defined(main, &script, tools) }
    };
    case(&world, &journal, false).run().await;
    // Only the intents of both are there.
    let (left, after) = (crashed(&journal, 2).await, Arc::default());
    let seen = case(&after, &left, true).run().await;
    assert_eq!(seen.statuses(), [ToolStatus::OutcomeUnknown, ToolStatus::Ok]);
    assert_eq!(after.runs().len(), 1);
    // And once it has started it may have happened.
    let left = crashed(&journal, 4).await;
    let seen = case(&after, &left, true).run().await;
    assert_eq!(seen.statuses(), [ToolStatus::Ok, ToolStatus::OutcomeUnknown]);
    assert_eq!(after.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_code_waits_for_no_longer_is_withdrawn_while_its_run_goes_on() {
    let (world, journal): (Arc<World>, Arc<MemoryJournal>) = Default::default();
    let own = registry([asking("a", &world, &journal), Fake::says("b").registered()]);
    let seen = Arc::clone(&journal);
    let code: Arc<dyn Agent> = Arc::new(fakes::Native {
        id: agent_id("code"),
        limits: definition("code").limits,
        code: Box::new(move |_, run| {
            let (own, seen) = (Arc::clone(&own), Arc::clone(&seen));
            Box::pin(async move {
                let request = |name: &str| drupe_extension_api::ToolCallRequest {
                    call_id: String::new(),
                    name: name.into(),
                    arguments: "{}".into(),
                };
                let limits = Default::default();
                let asked = call_tool(&run, (&Asker::Agent, run.budget.time()), &own, &limits, request("a"));
                assert!(tokio::time::timeout(HOUR / 2, asked).await.is_err());
                call_tool(&run, (&Asker::Agent, run.budget.time()), &own, &limits, request("b"))
                    .await
                    .expect("the journal records");
                let batches = seen.batches();
                let mut entries = batches.iter().flat_map(|batch| &batch.entries);
                assert!(entries.any(|e| matches!(e, Entry::Decided { state: ApprovalState::Withdrawn, .. })));
                AgentResponse::success("it did without")
            })
        }),
    });
    let model =
        Arc::new(Plays::new(&[("main", &[call(&[("agent_code", r#"{"task": "t"}"#)]), say("done")])]));
    let main = looping(definition("main"), &model, [as_tool(&code)]);
    let policy = Asks::answers(ApprovalState::Allowed, HOUR);
    let seen = Case { policy, journal, ..Case::new(main, &model) }.run().await;
    assert_eq!((seen.response.content.as_str(), told(&seen)), ("done", vec!["requested", "withdrawn"]));
}
