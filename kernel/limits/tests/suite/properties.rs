//! What holds whatever the order in which spenders race.

use drupe_extension_api::{AgentId, SessionId};
use drupe_limits::{Hold, QuotaLimits, Quotas, ScopeLimits, Spender};
use proptest::prelude::*;

const LIMIT: u64 = 1_000;

/// What one of two spenders does next.
#[derive(Debug, Clone)]
enum Step {
    Reserve {
        who: usize,
        tokens: u64,
    },
    /// Ends the oldest call of a spender with a part of what was reserved, in hundredths.
    Settle {
        who: usize,
        part: u64,
    },
    Drop {
        who: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..2_usize, 0..400_u64).prop_map(|(who, tokens)| Step::Reserve { who, tokens }),
        2 => (0..2_usize, 0..=100_u64).prop_map(|(who, part)| Step::Settle { who, part }),
        1 => (0..2_usize).prop_map(|who| Step::Drop { who }),
    ]
}

fn quotas() -> Quotas {
    let day = ScopeLimits { max_tokens: LIMIT, max_cost_usd: Some(LIMIT as f64), max_invocations: LIMIT };
    Quotas::new(QuotaLimits { day, warn_at: 0.8, ..QuotaLimits::unlimited() })
}

proptest! {
    #[test]
    fn spenders_that_race_never_pass_a_limit_and_never_lose_room(steps in prop::collection::vec(step(), 1..80)) {
        let quotas = quotas();
        let session = SessionId::new("s").unwrap();
        let agents = [AgentId::new("a").unwrap(), AgentId::new("b").unwrap()];
        let mut open: [Vec<(u64, Hold)>; 2] = [vec![], vec![]];
        let (mut used, mut warnings) = (0, 0);
        for step in steps {
            let reserved = |open: &[Vec<(u64, Hold)>; 2]| open.iter().flatten().map(|(t, _)| t).sum::<u64>();
            match step {
                Step::Reserve { who, tokens } => {
                    let spender = Spender { session: &session, agent: &agents[who] };
                    let fits = used + reserved(&open) + tokens <= LIMIT;
                    // The same number of dollars: both counters walk alike.
                    let hold = quotas.reserve(spender, tokens, Some(tokens as f64), 0);
                    prop_assert_eq!(hold.is_ok(), fits);
                    open[who].extend(hold.map(|hold| (tokens, hold)));
                }
                Step::Settle { who, part } if !open[who].is_empty() => {
                    let (tokens, hold) = open[who].remove(0);
                    let real = tokens * part / 100;
                    warnings += quotas.settle(hold, real, Some(real as f64), 0).len();
                    used += real;
                }
                Step::Drop { who } if !open[who].is_empty() => used += open[who].remove(0).0,
                _ => {}
            }
            prop_assert!(used <= LIMIT);
        }
        prop_assert!(warnings <= 2, "one for tokens and one for costs");
        prop_assert!(warnings == 0 || used * 10 >= LIMIT * 8);
    }

    #[test]
    fn what_a_call_uses_beyond_its_reservation_is_all_that_a_limit_is_passed_by(
        calls in prop::collection::vec((1..300_u64, 0..300_u64), 1..40),
    ) {
        let quotas = quotas();
        let (session, agent) = (SessionId::new("s").unwrap(), AgentId::new("a").unwrap());
        let who = Spender { session: &session, agent: &agent };
        let mut used = 0;
        for (reserved, real) in calls {
            match quotas.reserve(who, reserved, None, 0) {
                Ok(hold) => {
                    prop_assert!(used + reserved <= LIMIT);
                    used += real;
                    quotas.settle(hold, real, None, 0);
                }
                Err(exceeded) => prop_assert_eq!(exceeded.used.used, used),
            }
            prop_assert!(used <= LIMIT + 300);
        }
    }
}

#[test]
fn threads_that_race_never_pass_a_limit() {
    let quotas = quotas();
    let session = SessionId::new("s").unwrap();
    let agent = AgentId::new("a").unwrap();
    let spent: u64 = std::thread::scope(|scope| {
        let one = || {
            let who = Spender { session: &session, agent: &agent };
            let mut spent = 0;
            while let Ok(hold) = quotas.reserve(who, 7, None, 0) {
                quotas.settle(hold, 7, None, 0);
                spent += 7;
            }
            spent
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|t| t.join().expect("a thread that ends")).sum()
    });
    // Nobody stops before the rest is too small for a call, were it not for what others hold meanwhile.
    assert!((LIMIT - 7 * 4..=LIMIT).contains(&spent), "{spent}");
}
