//! Each limit, hit once: what is said, and how many requests the model got.

use std::sync::Arc;

use drupe_extension_api::{
    AgentId, BudgetUse, DefinitionLimits, EffectClass, EventBody, FailureClass, LimitScope, SessionId,
};
use drupe_limits::{Counted, QuotaLimits, Quotas, ScopeLimits};

use super::*;
use crate::*;

const TASK: &str = r#"{"task": "t"}"#;

/// A root that calls `a` for ever, by other parameters each time, with its limits and quotas.
struct Endless {
    limits: DefinitionLimits,
    quotas: QuotaLimits,
    calls: &'static str,
    price: Option<Price>,
    window: u64,
}

impl Default for Endless {
    fn default() -> Self {
        Self {
            limits: DefinitionLimits { max_turns: 30, ..DefinitionLimits::default() },
            quotas: QuotaLimits::unlimited(),
            calls: "a",
            price: None,
            window: 1_000_000,
        }
    }
}

impl Endless {
    fn case(&self) -> Case {
        let step = |n: u32| {
            let parameters = if self.calls == "agent_sub" { TASK.into() } else { format!(r#"{{"n": {n}}}"#) };
            call(&[(self.calls, &parameters)])
        };
        let script: Vec<Reply> = (0..30).map(step).collect();
        let mut model = Plays::new(&[("main", &script), ("sub", &[say("a part")])]);
        (model.profile.price, model.profile.context_window) = (self.price, self.window);
        let model = Arc::new(model);
        let sub = looping(definition("sub"), &model, []);
        let main = Definition { limits: self.limits.clone(), ..definition("main") };
        let tools = [
            Fake::says("a").class(EffectClass::Pure).registered(),
            Fake::new("hang", Does::Hangs).registered(),
            as_tool(&sub),
        ];
        let agent = looping(main, &model, tools);
        let quotas = Arc::new(Quotas::new(self.quotas));
        let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.quotas = quotas);
        Case { scope, ..Case::new(agent, &model) }
    }
}

fn limited(change: impl FnOnce(&mut DefinitionLimits)) -> Endless {
    let mut endless = Endless::default();
    change(&mut endless.limits);
    endless
}

fn quota(change: impl FnOnce(&mut QuotaLimits)) -> Endless {
    let mut endless = Endless::default();
    endless.quotas.warn_at = 0.8;
    change(&mut endless.quotas);
    endless
}

fn scope(tokens: u64, usd: Option<f64>, runs: u64) -> ScopeLimits {
    ScopeLimits { max_tokens: tokens, max_cost_usd: usd, max_invocations: runs }
}

#[expect(clippy::print_stdout, reason = "with `--nocapture` it is a table of all limits")]
fn row(limit: &str, used: &BudgetUse, seen: &Seen) {
    println!(
        "{limit:27} {:?}/{:?} {:>7} of {:<7} {:>2} requests | {}",
        seen.response.class.expect("a class"),
        used.scope,
        used.used,
        used.allowed,
        seen.model.requests().len(),
        seen.response.error.as_deref().unwrap_or_default(),
    );
}

/// Runs it, and asserts by which limit it ends, what that says, and after how many requests.
async fn check(endless: Endless, limit: &str, class: FailureClass, says: &str, requests: usize) -> Seen {
    let seen = endless.case().run().await;
    let used = seen.events.iter().find_map(|(_, e)| match e {
        EventBody::BudgetExceeded(used) => Some(used.clone()),
        _ => None,
    });
    let used = used.unwrap_or_else(|| panic!("{limit} is told: {}", seen.response.content));
    row(limit, &used, &seen);
    assert_eq!(used.limit, limit);
    // Time goes on while what was cancelled ends.
    assert!(used.used <= used.allowed || limit == "time_budget_ms", "{used:?}");
    assert_eq!(seen.response.class, Some(class));
    assert!(seen.response.content.contains(says), "{}", seen.response.content);
    assert_eq!(seen.model.requests().len(), requests, "{limit}");
    seen
}

#[tokio::test(start_paused = true)]
async fn every_limit_of_a_run_stops_it_and_says_so() {
    use FailureClass::{Budget, Timeout};
    let dear = Some(Price::flat(10.0, 1.0, 20.0));
    check(limited(|l| l.max_turns = 3), "max_turns", Budget, "3 of the 3 steps", 3).await;
    let says = "of 300 tokens (`max_tokens_per_invocation`)";
    check(limited(|l| l.max_tokens_per_invocation = 300), "max_tokens_per_invocation", Budget, says, 5).await;
    let endless = Endless { price: dear, ..limited(|l| l.max_cost_usd = Some(0.004)) };
    // The bound of each answer is what the rest pays for.
    check(endless, "max_cost_usd", Budget, "of $0.0040 (`max_cost_usd`)", 7).await;
    let says = "`max_cost_usd` is set, but the price of model `plays/script` is not known";
    check(limited(|l| l.max_cost_usd = Some(0.004)), "allow_unknown_price", Budget, says, 0).await;
    let says = "5 of the 5 tool calls of `max_tool_calls`";
    let seen = check(limited(|l| l.max_tool_calls = 5), "max_tool_calls", Budget, says, 6).await;
    assert_eq!(seen.spend.tool_calls, 5);
    let report = "6 steps, 5 tool calls; 1 more was refused.";
    assert!(seen.response.content.contains(report), "{}", seen.response.content);
    let hangs = Endless { calls: "hang", ..limited(|l| l.time_budget_ms = 500) };
    check(hangs, "time_budget_ms", Timeout, "of 500 ms (`time_budget_ms`)", 1).await;
}

#[tokio::test]
async fn every_quota_stops_it_and_says_when_it_begins_anew() {
    use FailureClass::Budget;
    let dear = Some(Price::flat(10.0, 1.0, 20.0));
    let open = ScopeLimits::unlimited();
    let anew = "it begins anew at 1970-01-02T00:00:00Z";
    check(quota(|q| q.day = scope(300, None, 99)), "limits.day.max_tokens", Budget, anew, 2).await;
    check(quota(|q| q.agent = scope(300, None, 99)), "limits.agent.max_tokens", Budget, anew, 2).await;
    let says = "start a new session";
    check(quota(|q| q.session = scope(300, None, 99)), "limits.session.max_tokens", Budget, says, 2).await;
    let endless =
        Endless { price: dear, ..quota(|q| q.session = ScopeLimits { max_cost_usd: Some(0.004), ..open }) };
    check(endless, "limits.session.max_cost_usd", Budget, says, 2).await;
    let runs = quota(|q| q.day = ScopeLimits { max_invocations: 0, ..open });
    let seen = check(runs, "limits.day.max_invocations", Budget, anew, 0).await;
    assert_eq!(seen.spend.invocations, 0);
}

/// A root that calls `sub` once a step, and answers after three.
async fn below(quotas: QuotaLimits, max_invocations: u32) -> Seen {
    let script: Vec<Reply> = vec![call(&[("agent_sub", TASK); 2]), call(&[("agent_sub", TASK)]), say("done")];
    let model = Arc::new(Plays::new(&[("main", &script), ("sub", &[say("a part")])]));
    let sub = looping(definition("sub"), &model, []);
    let mut main = definition("main");
    (main.limits.max_invocations, main.limits.parallel_tool_calls) = (max_invocations, 1);
    let agent = looping(main, &model, [as_tool(&sub)]);
    let quotas = Arc::new(Quotas::new(quotas));
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.quotas = quotas);
    Case { scope, ..Case::new(agent, &model) }.run().await
}

#[tokio::test]
async fn runs_below_are_bounded_and_their_caller_goes_on() {
    let seen = below(QuotaLimits::unlimited(), 2).await;
    assert_eq!((seen.response.content.as_str(), seen.model.asked_by("sub")), ("done", 1));
    assert_eq!((seen.exceeded(), seen.spend.invocations), (vec!["max_invocations"; 2], 2));
    assert!(seen.told()[1].contains("2 of the 2 runs of `max_invocations`"), "{:?}", seen.told());
    let mut quotas = QuotaLimits::unlimited();
    quotas.agent.max_invocations = 2;
    let seen = below(quotas, 32).await;
    assert_eq!((seen.response.content.as_str(), seen.model.asked_by("sub")), ("done", 2));
    assert_eq!((seen.exceeded(), seen.spend.invocations), (vec!["limits.agent.max_invocations"], 3));
}

#[tokio::test]
async fn tool_calls_of_sub_agents_count_for_their_callers() {
    let root = [call(&[("agent_sub", TASK)]), say("done")];
    let many: Vec<Reply> = (0..9).map(|n| call(&[("a", &format!(r#"{{"n": {n}}}"#))])).collect();
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &many)]));
    let sub = looping(definition("sub"), &model, [Fake::says("a").registered()]);
    let mut main = definition("main");
    main.limits.max_tool_calls = 4;
    let seen = Case::new(looping(main, &model, [as_tool(&sub)]), &model).run().await;
    assert_eq!((seen.response.content.as_str(), seen.spend.tool_calls), ("done", 4));
    assert_eq!(model.asked_by("sub"), 4);
    assert!(seen.told()[0].contains("agent `main` has used 4 of the 4 tool calls"), "{:?}", seen.told());
}

#[tokio::test]
async fn a_run_that_used_its_tool_calls_up_ends_the_same_after_a_cut() {
    let step = |n: u32| [n, n + 1].map(|n| format!(r#"{{"n": {n}}}"#));
    let script: Vec<Reply> =
        (0..9).map(|n| call(&step(2 * n).each_ref().map(|p| ("a", p.as_str())))).collect();
    let mut main = definition("main");
    main.limits.max_tool_calls = 3;
    let seen = same_after_any_cut(|journal, resumed| {
        let tool = Fake::says("a").class(EffectClass::Pure).registered();
        let case = Case::defined(main.clone(), &script, [tool]);
        Case { journal: Arc::clone(journal), resumed, ..case }
    })
    .await;
    assert_eq!((seen.exceeded(), seen.spend.tool_calls), (vec!["max_tool_calls"], 3));
}

#[tokio::test(start_paused = true)]
async fn most_of_a_limit_is_told_once_before_it_stops_work() {
    for (endless, limit) in
        [(limited(|l| l.max_turns = 5), "max_turns"), (limited(|l| l.max_tool_calls = 5), "max_tool_calls")]
    {
        let seen = endless.case().run().await;
        assert_eq!((seen.warned(), seen.exceeded()), (vec![limit], vec![limit]));
    }
    let mut slow = limited(|l| l.time_budget_ms = 1_000);
    slow.calls = "hang";
    let hang = |ms| Fake::new("hang", Does::Sleeps(ms)).registered();
    let script = [call(&[("hang", "{}")]), say("done")];
    let main = Definition { limits: slow.limits.clone(), ..definition("main") };
    let seen = Case::defined(main, &script, [hang(850)]).run().await;
    assert_eq!((seen.response.content.as_str(), seen.warned()), ("done", vec!["time_budget_ms"]));
    let seen = quota(|q| q.day = scope(300, None, 99)).case().run().await;
    assert_eq!((seen.warned(), seen.exceeded()), (vec![], vec!["limits.day.max_tokens"]));
    let seen = quota(|q| q.day = scope(100_000, None, 1)).case().run().await;
    assert_eq!(seen.warned(), ["limits.day.max_invocations", "max_turns"]);
}

#[tokio::test]
async fn warnings_are_told_once_however_often_a_run_is_cut_off() {
    let case = |journal: &Arc<MemoryJournal>, resumed| {
        let case = limited(|l| l.max_turns = 5).case();
        Case { journal: Arc::clone(journal), resumed, ..case }
    };
    let journal = Arc::new(MemoryJournal::default());
    assert_eq!(case(&journal, false).run().await.warned(), ["max_turns"]);
    for commits in 0..journal.batches().len() {
        let cut = crashed(&journal, commits).await;
        assert_eq!(case(&cut, true).run().await.warned(), ["max_turns"], "cut after {commits}");
    }
}

#[tokio::test]
async fn a_run_that_goes_on_is_counted_once_and_what_it_lost_is_charged() {
    let session = SessionId::new("s").expect("a valid id");
    let script = [call(&[("a", "{}")]), say("done")];
    let case = |journal: &Arc<MemoryJournal>, resumed, used: Counted, quotas: QuotaLimits| {
        let quotas = Arc::new(Quotas::new(quotas));
        quotas.open_session(&session, used);
        let shared = Arc::clone(&quotas);
        let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.quotas = shared);
        let tool = Fake::says("a").registered();
        Case { journal: Arc::clone(journal), resumed, scope, ..Case::of(&script, [tool]) }
    };
    let mut one = QuotaLimits::unlimited();
    one.session.max_invocations = 1;
    let journal = Arc::new(MemoryJournal::default());
    assert_eq!(case(&journal, false, Counted::default(), one).run().await.response.content, "done");
    let begun = Counted { invocations: 1, ..Counted::default() };
    for commits in 1..journal.batches().len() {
        let cut = crashed(&journal, commits).await;
        assert_eq!(case(&cut, true, begun, one).run().await.response.content, "done", "cut after {commits}");
    }
    // The answer of the first step was lost: what it had set aside leaves too little for another.
    let cut = crashed(&journal, 1).await;
    let mut small = QuotaLimits::unlimited();
    small.session.max_tokens = 200;
    let seen = case(&cut, true, begun, small).run().await;
    assert_eq!((seen.exceeded(), seen.model.requests().len()), (vec!["limits.session.max_tokens"], 0));
    let lost = seen.entries.iter().filter(|e| matches!(e, Entry::Failed { step: 1, lost_tokens: 100.., .. }));
    assert_eq!(lost.count(), 1);
}

/// A request that fails after those events: what the record says was lost, and what was used.
async fn failing(events: Vec<ModelEvent>, fault: ModelFault) -> (u64, u64) {
    let (mut events, class) = (events, fault.class);
    events.push(ModelEvent::Failed(fault));
    let mut limits = QuotaLimits::unlimited();
    limits.day.max_tokens = 1_000_000;
    let quotas = Arc::new(Quotas::new(limits));
    let shared = Arc::clone(&quotas);
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.quotas = shared);
    let seen = Case { scope, ..Case::of(&[Reply::Gives(events)], []) }.run().await;
    let charged: u64 = seen
        .entries
        .iter()
        .map(|e| match e {
            Entry::Failed { lost_tokens, usage, .. } => lost_tokens + usage.total(),
            _ => 0,
        })
        .sum();
    let day = quotas.standing(0).into_iter().find(|s| s.used.limit == "limits.day.max_tokens");
    assert_eq!((seen.spend.usage.total(), day.expect("it is bounded").used.used), (charged, charged));
    let failed: Vec<(u64, u64)> = seen
        .entries
        .iter()
        .filter_map(|e| match e {
            Entry::Failed { lost_tokens, usage, step: 1, attempt: 1, .. } => {
                Some((*lost_tokens, usage.total()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(failed.len(), 1, "one record of the failure");
    assert_eq!(seen.response.class, Some(class));
    failed[0]
}

#[tokio::test]
async fn a_failed_call_is_given_back_only_where_nothing_can_have_been_used() {
    use FailureClass::{Auth, Config, Internal, Model, Network, RateLimit};
    let fault = |class| ModelFault::fatal(class, "it broke");
    let half = || ModelEvent::Text("half".into());
    for class in [Auth, Config, RateLimit] {
        assert_eq!(failing(vec![], fault(class)).await, (0, 0), "{class:?}");
    }
    // The request may have been worked at, unless it is known that it was not.
    let request = failing(vec![], fault(Model)).await;
    assert!(
        request.0 == 0 && (1..100).contains(&request.1),
        "what was sent, not what was set aside: {request:?}"
    );
    for class in [Model, Internal, Network] {
        assert_eq!(failing(vec![], fault(class)).await, request, "{class:?}");
        assert_eq!(failing(vec![], fault(class).unused()).await, (0, 0), "{class:?}");
    }
    let seen = (0, request.1 + 2);
    assert_eq!(failing(vec![half()], fault(Network).unused()).await, seen, "some of it was seen");
    assert_eq!(failing(vec![], fault(Auth).began()).await, request, "it came and could not be shown");
    let usage = Some(Usage { input_tokens: 7, ..Usage::default() });
    let told = fault(Network).began().with_usage(usage);
    // What was reported before the answer broke off did not count what came of it.
    assert_eq!(failing(vec![half()], told).await, (0, 9));
    let retry = ModelEvent::Retry {
        fault: fault(Network),
        model: "plays/script".into(),
        next: "plays/script".into(),
        usage,
    };
    assert_eq!(failing(vec![half(), retry], fault(Auth)).await, (0, 9));
}

#[tokio::test]
async fn attempts_that_are_repeated_cannot_outrun_a_budget() {
    let usage = Some(Usage { input_tokens: 400, ..Usage::default() });
    let retry = || {
        let fault = ModelFault::transient(FailureClass::Model, "it broke");
        ModelEvent::Retry { fault, model: "plays/script".into(), next: "plays/script".into(), usage }
    };
    let events = [vec![retry(), retry(), retry()], ScriptedModel::say("never")].concat();
    let mut small = definition("main");
    small.limits.max_tokens_per_invocation = 600;
    let seen = Case::defined(small, &[Reply::Gives(events)], []).run().await;
    assert_eq!(seen.exceeded(), ["max_tokens_per_invocation"]);
    assert_eq!(seen.spend.usage.total(), 400, "as much again does not fit");
}

#[tokio::test(start_paused = true)]
async fn runs_of_one_agent_wait_for_their_place() {
    let calls = [call(&[("agent_sub", TASK); 4]), say("done")];
    for (places, ms) in [(1, 400), (2, 200), (9, 100)] {
        let model =
            Arc::new(Plays::new(&[("main", &calls), ("sub", &[call(&[("sleep", "{}")]), say("a part")])]));
        let sleep = Fake::new("sleep", Does::Sleeps(100)).registered();
        let sub = looping(definition("sub"), &model, [sleep]);
        let agent = looping(definition("main"), &model, [as_tool(&sub)]);
        let gates = Arc::new(drupe_limits::Gates::new(9, places));
        let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.gates = gates);
        let seen = Case { scope, ..Case::new(agent, &model) }.run().await;
        assert_eq!(seen.response.content, "done");
        assert_eq!(seen.elapsed.as_millis(), ms, "{places} places");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_place_can_be_cancelled() {
    let gates = Arc::new(drupe_limits::Gates::new(9, 1));
    let _taken = gates.agent(&AgentId::new("sub").expect("a valid id")).await;
    let model = Arc::new(Plays::new(&[("main", &[call(&[("agent_sub", TASK)]), say("done")])]));
    let sub = looping(definition("sub"), &model, []);
    let mut main = definition("main");
    main.limits.time_budget_ms = 300;
    let shared = Arc::clone(&gates);
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.gates = shared);
    let seen = Case { scope, ..Case::new(looping(main, &model, [as_tool(&sub)]), &model) }.run().await;
    assert_eq!((seen.response.class, seen.elapsed.as_millis()), (Some(FailureClass::Timeout), 300));
    assert_eq!(model.asked_by("sub"), 0);
}

#[tokio::test]
async fn limits_of_a_run_are_told_as_such() {
    let seen = limited(|l| l.max_turns = 1).case().run().await;
    let scopes: Vec<LimitScope> = seen
        .events
        .iter()
        .filter_map(|(_, e)| match e {
            EventBody::BudgetExceeded(used) => Some(used.scope),
            _ => None,
        })
        .collect();
    assert_eq!(scopes, [LimitScope::Run]);
}
