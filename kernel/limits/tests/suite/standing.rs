//! What `status` and `why` tell of budgets.

use drupe_extension_api::{AgentId, SessionId};
use drupe_limits::{QuotaLimits, Quotas, ScopeLimits, Spender};

#[test]
fn of_agents_and_sessions_the_one_that_used_most_stands_for_all() {
    let scope = |max_tokens| ScopeLimits { max_tokens, ..ScopeLimits::unlimited() };
    let limits = QuotaLimits { day: scope(1000), session: scope(500), agent: scope(400), warn_at: 0.8 };
    let quotas = Quotas::new(limits);
    for (session, agent, tokens) in
        [("a", "x", 10), ("b", "y", 30), ("b", "x", 5), ("c", "z", 30), ("d", "w", 5)]
    {
        let (session, agent) = (SessionId::new(session).unwrap(), AgentId::new(agent).unwrap());
        let hold = quotas.reserve(Spender { session: &session, agent: &agent }, 50, None, 0).unwrap();
        assert!(quotas.settle(hold, tokens, None, 0).is_empty());
    }
    let told: Vec<String> = quotas
        .standing(0)
        .into_iter()
        .map(|s| format!("{} {} of {} by {}: {}", s.used.limit, s.used.used, s.used.allowed, s.whose, s.name))
        .collect();
    assert_eq!(
        told,
        [
            "limits.day.max_tokens 80 of 1000 by the day: day",
            "limits.agent.max_tokens 30 of 400 by agent `y`: y",
            "limits.session.max_tokens 35 of 500 by session `b`: b",
        ]
    );
}
