//! What the sessions of a named token use, and those of each person for whom its bearer speaks.

use drupe_extension_api::{AgentId, LimitScope, SessionId};
use drupe_limits::{Counted, QuotaExceeded, QuotaLimits, Quotas, ScopeLimits, Spender, TokenLimits};

const DAY_MS: i64 = 86_400_000;

fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn tokens(max_tokens: u64) -> ScopeLimits {
    ScopeLimits { max_tokens, ..ScopeLimits::unlimited() }
}

fn limits() -> TokenLimits {
    TokenLimits { sessions: "shop".into(), all: tokens(100), each: tokens(30) }
}

/// Token `shop` may use 100 tokens a day, and each person 30 of them.
fn shop() -> Quotas {
    let quotas = Quotas::new(QuotaLimits { warn_at: 0.8, ..QuotaLimits::unlimited() });
    quotas.bind("shop", limits(), []);
    quotas
}

/// Opens a session of whose purses this was used, and has a call of so many tokens in it.
fn spend(quotas: &Quotas, id: &str, before: u64, call: u64, now: i64) -> Result<usize, QuotaExceeded> {
    let (session, agent) = (session(id), AgentId::new("a").unwrap());
    quotas.open_session(&session, Counted::default());
    for purse in quotas.unknown_purses(&session, now) {
        quotas.open_purse(purse, Counted { tokens: before, ..Counted::default() });
    }
    let hold = quotas.reserve(Spender { session: &session, agent: &agent }, call, None, now)?;
    Ok(quotas.settle(hold, call, None, now).len())
}

#[test]
fn a_person_and_all_of_a_token_are_bounded_and_others_are_not() {
    let quotas = shop();
    assert_eq!(spend(&quotas, "shop:ann:1", 0, 20, 0), Ok(0));
    let refused = spend(&quotas, "shop:ann:2", 0, 20, 0).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "token `shop/ann`'s budget is used up: 20 of 30 tokens, and the next call may take 20 \
         (`tokens.shop.per_day_each.max_tokens`); it begins anew at 1970-01-02T00:00:00Z"
    );
    assert_eq!(refused.used.scope, LimitScope::Token);
    for person in ["bob", "cid"] {
        // More than most of what one person has: a warning.
        assert_eq!(
            spend(&quotas, &format!("shop:{person}"), 0, 30, 0),
            Ok(if person == "bob" { 1 } else { 2 })
        );
    }
    let refused = spend(&quotas, "shop:dot", 0, 30, 0).unwrap_err();
    assert_eq!((refused.whose.as_str(), refused.used.used), ("token `shop`", 80));
    // Its own session is nobody else's, and counts with all.
    assert_eq!(spend(&quotas, "shop", 0, 20, 0), Ok(0));
    assert!(spend(&quotas, "shop", 0, 1, 0).is_err());
    for other in ["shopping", "token.shop", "a:shop"] {
        assert_eq!(spend(&quotas, other, 0, 1000, 0), Ok(0), "{other}");
    }
    let told: Vec<_> = quotas.standing(0).into_iter().map(|s| (s.used.limit, s.used.used, s.whose)).collect();
    assert_eq!(told, [("tokens.shop.per_day.max_tokens".to_owned(), 100, "token `shop`".to_owned())]);
}

#[test]
fn what_was_used_before_is_told_by_whoever_opens_a_session_and_a_day_begins_anew() {
    let quotas = shop();
    assert!(spend(&quotas, "shop:ann", 25, 10, 0).is_err(), "25 of 30 were used before");
    // Of most of it a warning was given then.
    assert_eq!(spend(&quotas, "shop:ann", 0, 5, 0), Ok(0));
    assert!(spend(&quotas, "shop:ann", 0, 1, 0).is_err(), "it is known, and not read again");
    // A session stays open over midnight.
    assert_eq!(spend(&quotas, "shop:ann", 0, 10, DAY_MS), Ok(0));
    assert!(spend(&quotas, "shop:ann", 0, 21, DAY_MS).is_err());
}

#[test]
fn a_purse_is_known_while_one_of_its_sessions_is_open() {
    let quotas = shop();
    for id in ["shop:ann:1", "shop:ann:2"] {
        assert_eq!(spend(&quotas, id, 0, 10, 0), Ok(0));
    }
    quotas.close_session(&session("shop:ann:1"));
    assert!(spend(&quotas, "shop:ann:3", 0, 11, 0).is_err(), "the second is open");
    for id in ["shop:ann:2", "shop:ann:3"] {
        quotas.close_session(&session(id));
    }
    assert_eq!(quotas.unknown_purses(&session("shop:ann:1"), 0).len(), 2, "nobody is there any more");
}

#[test]
fn a_purse_that_is_shared_stays_while_another_session_comes() {
    let quotas = shop();
    assert_eq!(spend(&quotas, "shop:ann", 0, 30, 0), Ok(1));
    // One comes, and the last that was there goes before it is known what the first one's purse has used.
    let bob = session("shop:bob");
    quotas.open_session(&bob, Counted::default());
    let unknown = quotas.unknown_purses(&bob, 0);
    assert_eq!(unknown.len(), 1, "the one of all is known");
    quotas.close_session(&session("shop:ann"));
    unknown.into_iter().for_each(|purse| quotas.open_purse(purse, Counted::default()));
    assert_eq!(spend(&quotas, "shop:bob", 0, 30, 0), Ok(1));
    let all = quotas.standing(0).remove(0);
    assert_eq!((all.used.used, all.whose.as_str()), (60, "token `shop`"));
}

#[test]
fn a_token_is_bound_with_what_its_sessions_have_used_and_free_once_it_is_revoked() {
    let quotas = Quotas::new(QuotaLimits { warn_at: 0.8, ..QuotaLimits::unlimited() });
    assert_eq!(spend(&quotas, "shop:ann", 0, 25, 0), Ok(0));
    let used = quotas.purses_of("shop", &limits()).into_iter().map(|purse| {
        let tokens = if purse.sessions() == "shop" { 95 } else { 25 };
        (purse, Counted { tokens, ..Counted::default() })
    });
    let used: Vec<_> = used.collect();
    assert_eq!(used.len(), 2, "of all, and of the one who is at work");
    quotas.bind("shop", limits(), used);
    assert!(spend(&quotas, "shop:ann", 0, 6, 0).is_err(), "95 of 100 were used before");
    assert_eq!(spend(&quotas, "shop:ann", 0, 5, 0), Ok(0));
    assert!(spend(&quotas, "shop:ann", 0, 1, 0).is_err());
    quotas.unbind("shop");
    assert_eq!(spend(&quotas, "shop:ann", 0, 1000, 0), Ok(0));
    assert!(quotas.standing(0).is_empty());
}
