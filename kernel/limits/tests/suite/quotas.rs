//! Counting, refusing, warning, and what a day and a restart change.

use drupe_extension_api::{AgentId, BudgetUse, LimitScope, SessionId};
use drupe_limits::{Counted, QuotaExceeded, QuotaLimits, Quotas, ScopeLimits, Spender};

/// 2026-03-01T00:00:00Z in milliseconds.
const MORNING: i64 = 1_772_323_200_000;
const LAST: i64 = MORNING + 86_400_000 - 1;

fn session(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::new(name).unwrap()
}

/// Limits of which those that a case names are bounded.
fn limits(change: impl FnOnce(&mut QuotaLimits)) -> QuotaLimits {
    let mut limits = QuotaLimits { warn_at: 0.8, ..QuotaLimits::unlimited() };
    change(&mut limits);
    limits
}

fn scope(tokens: u64, usd: f64, runs: u64) -> ScopeLimits {
    ScopeLimits { max_tokens: tokens, max_cost_usd: Some(usd), max_invocations: runs }
}

/// One call of `tokens` and `usd` by agent `a` in session `s`, settled as reserved.
fn spend(quotas: &Quotas, tokens: u64, usd: f64, now: i64) -> Result<Vec<BudgetUse>, QuotaExceeded> {
    spend_as(quotas, "s", "a", tokens, usd, now)
}

fn spend_as(
    quotas: &Quotas,
    s: &str,
    a: &str,
    tokens: u64,
    usd: f64,
    now: i64,
) -> Result<Vec<BudgetUse>, QuotaExceeded> {
    let (session, agent) = (session(s), agent(a));
    let hold = quotas.reserve(Spender { session: &session, agent: &agent }, tokens, Some(usd), now)?;
    Ok(quotas.settle(hold, tokens, Some(usd), now))
}

fn run(quotas: &Quotas, now: i64) -> Result<Vec<BudgetUse>, QuotaExceeded> {
    quotas.begin_run(Spender { session: &session("s"), agent: &agent("a") }, now)
}

/// Spends until refused and compares what is said.
fn check(limits: QuotaLimits, step: impl Fn(&Quotas) -> Result<Vec<BudgetUse>, QuotaExceeded>, said: &str) {
    let quotas = Quotas::new(limits);
    for _ in 0..100 {
        if let Err(exceeded) = step(&quotas) {
            assert_eq!(exceeded.to_string(), said);
            assert_eq!(step(&quotas), Err(exceeded), "a refusal counts nothing");
            return;
        }
    }
    panic!("never refused");
}

#[test]
fn each_limit_stops_work_and_says_what_and_until_when() {
    let tokens = |quotas: &Quotas| spend(quotas, 1_000_000, 0.0, MORNING);
    let costs = |quotas: &Quotas| spend(quotas, 1, 0.125, LAST);
    let runs = |quotas: &Quotas| run(quotas, MORNING);
    check(
        limits(|l| l.day.max_tokens = 20_000_000),
        tokens,
        "the day's budget is used up: 20,000,000 of 20,000,000 tokens (`limits.day.max_tokens`); \
         it begins anew at 2026-03-02T00:00:00Z",
    );
    check(
        limits(|l| l.session.max_tokens = 1_500_000),
        tokens,
        "the session's budget is used up: 1,000,000 of 1,500,000 tokens, and the next call may take 1,000,000 \
         (`limits.session.max_tokens`); start a new session",
    );
    check(
        limits(|l| l.agent.max_tokens = 999_999),
        tokens,
        "agent `a`'s budget is used up: 0 of 999,999 tokens, and the next call may take 1,000,000 \
         (`limits.agent.max_tokens`); it begins anew at 2026-03-02T00:00:00Z",
    );
    check(
        limits(|l| l.day.max_cost_usd = Some(1.0)),
        costs,
        "the day's budget is used up: 1.00 of 1.00 US dollars (`limits.day.max_cost_usd`); \
         it begins anew at 2026-03-02T00:00:00Z",
    );
    check(
        limits(|l| l.session.max_cost_usd = Some(1.2)),
        costs,
        "the session's budget is used up: 1.125 of 1.20 US dollars, and the next call may cost 0.125 \
         (`limits.session.max_cost_usd`); start a new session",
    );
    check(
        limits(|l| l.agent.max_cost_usd = Some(0.0)),
        costs,
        "agent `a`'s budget is used up: 0.00 of 0.00 US dollars (`limits.agent.max_cost_usd`); \
         it begins anew at 2026-03-02T00:00:00Z",
    );
    check(
        limits(|l| l.day.max_invocations = 3),
        runs,
        "the day's budget is used up: 3 of 3 runs of agents (`limits.day.max_invocations`); \
         it begins anew at 2026-03-02T00:00:00Z",
    );
    check(
        limits(|l| l.session.max_invocations = 2),
        runs,
        "the session's budget is used up: 2 of 2 runs of agents (`limits.session.max_invocations`); \
         start a new session",
    );
    check(
        limits(|l| l.agent.max_invocations = 1),
        runs,
        "agent `a`'s budget is used up: 1 of 1 runs of agents (`limits.agent.max_invocations`); \
         it begins anew at 2026-03-02T00:00:00Z",
    );
}

#[test]
fn where_two_limits_are_reached_the_wider_one_is_told() {
    let both =
        limits(|l| (l.day, l.agent, l.session) = (scope(1, 1.0, 1), scope(1, 1.0, 1), scope(1, 1.0, 1)));
    let quotas = Quotas::new(both);
    assert_eq!(spend(&quotas, 2, 0.0, MORNING).unwrap_err().used.scope, LimitScope::Day);
}

#[test]
fn sessions_and_agents_are_counted_apart_and_the_day_counts_all() {
    let quotas = Quotas::new(limits(|l| {
        l.session.max_tokens = 10;
        l.agent.max_tokens = 15;
        l.day.max_tokens = 25;
    }));
    spend_as(&quotas, "s", "a", 10, 0.0, MORNING).unwrap();
    assert_eq!(spend_as(&quotas, "s", "b", 1, 0.0, MORNING).unwrap_err().used.scope, LimitScope::Session);
    spend_as(&quotas, "t", "a", 5, 0.0, MORNING).unwrap();
    assert_eq!(spend_as(&quotas, "t", "a", 1, 0.0, MORNING).unwrap_err().used.scope, LimitScope::Agent);
    spend_as(&quotas, "u", "b", 10, 0.0, MORNING).unwrap();
    assert_eq!(spend_as(&quotas, "v", "c", 1, 0.0, MORNING).unwrap_err().used.scope, LimitScope::Day);
}

#[test]
fn what_is_reserved_is_not_given_twice_and_what_was_not_used_comes_back() {
    let quotas = Quotas::new(limits(|l| l.day = scope(100, 1.0, 9)));
    let (session, agent) = (session("s"), agent("a"));
    let who = Spender { session: &session, agent: &agent };
    let hold = quotas.reserve(who, 60, Some(0.6), MORNING).unwrap();
    assert_eq!(quotas.reserve(who, 60, None, MORNING).unwrap_err().used.used, 60);
    assert_eq!(quotas.reserve(who, 0, Some(0.6), MORNING).unwrap_err().used.used, 600_000);
    quotas.settle(hold, 10, Some(0.1), MORNING);
    let hold = quotas.reserve(who, 90, Some(0.9), MORNING).unwrap();
    quotas.settle(hold, 0, None, MORNING);
    quotas.settle(quotas.reserve(who, 90, Some(0.9), MORNING).unwrap(), 0, None, MORNING);
}

#[test]
fn a_call_of_which_nothing_is_known_counts_whole() {
    let (session, agent) = (session("s"), agent("a"));
    let who = Spender { session: &session, agent: &agent };
    let quotas = Quotas::new(limits(|l| l.session.max_tokens = 100));
    drop(quotas.reserve(who, 90, None, MORNING).unwrap());
    assert_eq!(spend(&quotas, 1, 0.0, MORNING).unwrap().len(), 1, "told by the next call");
    assert_eq!(spend(&quotas, 11, 0.0, MORNING).unwrap_err().used.used, 91);
}

#[test]
fn a_call_that_an_earlier_process_lost_counts_once_whatever_is_left() {
    let (session, agent) = (session("s"), agent("a"));
    let who = Spender { session: &session, agent: &agent };
    let quotas = Quotas::new(limits(|l| (l.session.max_tokens, l.day.max_cost_usd) = (100, Some(5.0))));
    for call in ["i-1.1.1", "i-1.1.1", "i-2.1.1", "i-1.1.1"] {
        quotas.lose(who, call, 90, 0.5, MORNING);
    }
    assert_eq!(quotas.due(who, MORNING).len(), 1, "180 of 100 are worth a warning");
    assert_eq!(quotas.due(who, MORNING), [], "told once");
    assert_eq!(spend(&quotas, 1, 0.0, MORNING).unwrap_err().used.used, 180);
    let dollars = quotas.standing(MORNING).into_iter().find(|of| of.used.limit == "limits.day.max_cost_usd");
    assert_eq!(dollars.map(|of| of.used.used), Some(1_000_000));
}

#[test]
fn a_warning_is_told_once_for_each_limit_and_anew_on_another_day() {
    let quotas = Quotas::new(limits(|l| {
        l.day = scope(100, 1.0, 5);
        l.session.max_tokens = 200;
    }));
    assert_eq!(spend(&quotas, 79, 0.79, MORNING), Ok(vec![]));
    let due = spend(&quotas, 1, 0.01, MORNING).unwrap();
    let told: Vec<_> = due.iter().map(|d| (d.limit.as_str(), d.used, d.allowed)).collect();
    assert_eq!(
        told,
        [("limits.day.max_tokens", 80, 100), ("limits.day.max_cost_usd", 800_000, 1_000_000)],
        "both at their mark"
    );
    assert_eq!(spend(&quotas, 1, 0.01, MORNING), Ok(vec![]), "told before");
    let runs: Vec<usize> = (0..5).map(|_| run(&quotas, MORNING).unwrap().len()).collect();
    assert_eq!(runs, [0, 0, 0, 1, 0]);
    let due = spend(&quotas, 80, 0.0, LAST + 1).unwrap();
    assert_eq!(due.len(), 2, "the new day's and the session's: {due:?}");
    assert_eq!(due[1].scope, LimitScope::Session);
    assert_eq!(due[1].resets, None);
}

#[test]
fn the_day_ends_at_midnight_of_utc_and_no_clock_brings_one_back() {
    let quotas = Quotas::new(limits(|l| {
        l.day.max_tokens = 10;
        l.agent.max_invocations = 1;
    }));
    spend(&quotas, 10, 0.0, MORNING).unwrap();
    run(&quotas, MORNING).unwrap();
    assert!(spend(&quotas, 1, 0.0, LAST).is_err());
    assert!(run(&quotas, LAST).is_err());
    spend(&quotas, 10, 0.0, LAST + 1).unwrap();
    run(&quotas, LAST + 1).unwrap();
    assert!(spend(&quotas, 1, 0.0, MORNING).is_err(), "a clock that is set back");
    assert!(run(&quotas, MORNING).is_err());
}

#[test]
fn a_call_over_midnight_belongs_to_the_day_on_which_it_ended() {
    let quotas = Quotas::new(limits(|l| {
        l.day.max_tokens = 20;
        l.agent.max_tokens = 18;
        l.session.max_tokens = 25;
    }));
    let (session, agent) = (session("s"), agent("a"));
    let who = Spender { session: &session, agent: &agent };
    let hold = quotas.reserve(who, 10, None, LAST).unwrap();
    quotas.settle(hold, 10, None, LAST + 1);
    let used = |scope| {
        let standing = quotas.standing(LAST + 1).into_iter().find(|of| of.used.scope == scope);
        standing.unwrap().used.used
    };
    assert_eq!([LimitScope::Day, LimitScope::Agent, LimitScope::Session].map(used), [10; 3]);
    let dropped = quotas.reserve(who, 8, None, LAST + 1).unwrap();
    drop(dropped);
    assert_eq!([LimitScope::Day, LimitScope::Agent, LimitScope::Session].map(used), [18; 3]);
    assert_eq!(spend(&quotas, 1, 0.0, LAST + 1).unwrap_err().used.scope, LimitScope::Agent);
}

#[test]
fn an_attempt_that_follows_needs_room_beside_what_the_failed_one_used() {
    let quotas = Quotas::new(limits(|l| l.session.max_tokens = 100));
    let (session, agent) = (session("s"), agent("a"));
    let who = Spender { session: &session, agent: &agent };
    let mut hold = quotas.reserve(who, 100, Some(1.0), MORNING).unwrap();
    quotas.follow(&mut hold, (30, Some(0.1)), (70, Some(0.7)), MORNING).unwrap();
    assert!(quotas.reserve(who, 1, None, MORNING).is_err(), "all of it is used or put aside");
    let exceeded = quotas.follow(&mut hold, (30, None), (41, None), MORNING).unwrap_err();
    assert_eq!((exceeded.used.scope, exceeded.used.used), (LimitScope::Session, 60));
    drop(hold);
    assert_eq!(spend(&quotas, 40, 0.0, MORNING).map(drop), Ok(()), "nothing was put aside any more");
}

#[test]
fn counters_go_on_after_a_restart() {
    let used = Counted { tokens: 90, cost_usd: 0.9, invocations: 9 };
    let bound = || scope(100, 1.0, 10);
    for wide in [LimitScope::Day, LimitScope::Agent, LimitScope::Session] {
        let quotas = Quotas::new(limits(|l| match wide {
            LimitScope::Agent => l.agent = bound(),
            LimitScope::Session => l.session = bound(),
            _ => l.day = bound(),
        }));
        quotas.seed_day(MORNING, used, [(agent("a"), used)]);
        quotas.open_session(&session("s"), used);
        quotas.open_session(&session("s"), Counted::default());
        assert_eq!(spend(&quotas, 1, 0.01, MORNING), Ok(vec![]), "{wide:?}: the warning was told before");
        assert_eq!(spend(&quotas, 10, 0.0, MORNING).unwrap_err().used.scope, wide);
        assert_eq!(spend(&quotas, 0, 0.1, MORNING).unwrap_err().used.scope, wide);
        run(&quotas, MORNING).unwrap();
        assert_eq!(run(&quotas, MORNING).unwrap_err().used.scope, wide);
    }
}

#[test]
fn a_session_that_is_closed_is_forgotten_even_by_a_call_that_ends_later() {
    let quotas = Quotas::new(limits(|l| l.session.max_tokens = 10));
    let (session, agent) = (session("s"), agent("a"));
    let hold = quotas.reserve(Spender { session: &session, agent: &agent }, 10, None, MORNING).unwrap();
    quotas.close_session(&session);
    assert_eq!(quotas.settle(hold, 10, None, MORNING), vec![]);
    quotas.open_session(&session, Counted { tokens: 4, ..Counted::default() });
    spend(&quotas, 6, 0.0, MORNING).unwrap();
    assert!(spend(&quotas, 1, 0.0, MORNING).is_err());
}

#[test]
fn without_limits_nothing_is_refused_or_warned_of() {
    let quotas = Quotas::unlimited();
    for _ in 0..3 {
        assert_eq!(spend(&quotas, u64::MAX, 1e300, MORNING), Ok(vec![]));
        assert_eq!(run(&quotas, MORNING), Ok(vec![]));
    }
}
