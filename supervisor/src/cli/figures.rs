//! Figures for people: tokens, money, bytes, and how much of a limit is used.

use drupe_extension_api::{BudgetUse, LimitScope, Spend};
use jiff::Timestamp;

use super::console::duration;

/// Costs in limits are in millionths of a US dollar.
const MICROS: f64 = 1_000_000.0;

/// A number with its thousands apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things, with their name for one and for several.
pub fn many(number: u64, one: &str, several: &str) -> String {
    let name = if number == 1 { one } else { several };
    format!("{} {name}", count(number))
}

/// US dollars; small sums keep the digits that matter.
pub fn money(usd: f64) -> String {
    match usd {
        usd if usd <= 0.0 => "$0".into(),
        usd if usd < 0.0001 => "<$0.0001".into(),
        usd if usd < 1.0 => format!("${usd:.4}"),
        usd => format!("${usd:.2}"),
    }
}

/// What `tokens` cost, where a part of them may have no known price: that part is `?`, never nothing.
pub fn cost(usd: f64, unpriced_tokens: u64) -> String {
    match (usd > 0.0, unpriced_tokens > 0) {
        (_, false) => money(usd),
        (true, true) => format!("{} + ?", money(usd)),
        (false, true) => "?".into(),
    }
}

pub fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1000 => return format!("{bytes} B"),
        1000..1_000_000 => (1000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    format!("{}.{} {name}", bytes / unit, bytes % unit / (unit / 10))
}

pub fn spent(spend: &Spend) -> String {
    let tokens = spend.usage.total();
    let cost = match spend.cost_usd {
        Some(usd) if usd > 0.0 => format!(", {}", money(usd)),
        None if tokens > 0 => ", cost unknown".into(),
        _ => String::new(),
    };
    format!("{}, {}{cost}", duration(spend.elapsed_ms), many(tokens, "token", "tokens"))
}

/// A time at which something happens, to the minute.
pub fn moment(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// How much of a limit is used, in hundredths.
pub fn percent(budget: &BudgetUse) -> u64 {
    let percent = (u128::from(budget.used) * 100).checked_div(budget.allowed.into()).unwrap_or(100);
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// That most of a limit is used.
pub fn warning(budget: &BudgetUse) -> String {
    format!("{} % of {}", percent(budget), state(budget, "used"))
}

/// That a limit stops work.
pub fn exceeded(budget: &BudgetUse) -> String {
    state(budget, "used up")
}

fn state(budget: &BudgetUse, word: &str) -> String {
    let whose = match budget.scope {
        LimitScope::Run => "this run's",
        LimitScope::Session => "this session's",
        LimitScope::Agent => "this agent's daily",
        LimitScope::Token => "this token's daily",
        LimitScope::Day => "the day's",
    };
    let anew = match (budget.resets, budget.scope) {
        (Some(time), _) => format!("; it begins anew at {}", moment(time)),
        (None, LimitScope::Session) => "; a new session begins anew".into(),
        (None, _) => String::new(),
    };
    format!("{whose} limit `{}` is {word}: {}{anew}", budget.limit, amount(budget))
}

/// How much is used of how much; the unit shows in the limit's key.
pub fn amount(budget: &BudgetUse) -> String {
    let BudgetUse { limit, used, allowed, .. } = budget;
    let key = limit.rsplit('.').next().unwrap_or(limit);
    if key.contains("cost") {
        #[expect(clippy::cast_precision_loss, reason = "fractions of a cent do not matter here")]
        let usd = |micros: u64| money(micros as f64 / MICROS);
        return format!("{} of {}", usd(*used), usd(*allowed));
    }
    if key.ends_with("_ms") {
        return format!("{} of {}", duration(*used), duration(*allowed));
    }
    let unit = match key {
        key if key.contains("token") => " tokens",
        "max_turns" => " steps",
        "max_tool_calls" => " tool calls",
        "max_invocations" => " runs",
        _ => "",
    };
    format!("{} of {}{unit}", count(*used), count(*allowed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_thing_is_not_several() {
        for (number, expected) in [(0, "0 turns"), (1, "1 turn"), (2, "2 turns"), (1_200, "1,200 turns")] {
            assert_eq!(many(number, "turn", "turns"), expected);
        }
    }

    #[test]
    fn numbers_are_written_as_people_write_them() {
        let check = |number, text| assert_eq!(count(number), text);
        check(0, "0");
        check(999, "999");
        check(1_000, "1,000");
        check(1_234_567, "1,234,567");
        let check = |bytes, text| assert_eq!(size(bytes), text);
        check(999, "999 B");
        check(2_150, "2.1 kB");
        check(100_000_000, "100.0 MB");
    }

    #[test]
    fn an_unknown_price_is_never_nothing() {
        let check = |usd, unpriced, text| assert_eq!(cost(usd, unpriced), text);
        check(0.0, 0, "$0");
        check(0.00001, 0, "<$0.0001");
        check(0.01234, 0, "$0.0123");
        check(12.345, 0, "$12.35");
        check(0.0, 7, "?");
        check(0.5, 7, "$0.5000 + ?");
    }

    #[test]
    fn what_was_spent_says_when_its_price_is_unknown() {
        let check = |spend, text| {
            let spend: Spend = serde_json::from_value(spend).expect("it is one");
            assert_eq!(spent(&spend), text);
        };
        check(json!({}), "0 ms, 0 tokens");
        check(
            json!({"elapsed_ms": 1500, "usage": {"input_tokens": 1200}}),
            "1.5 s, 1,200 tokens, cost unknown",
        );
        check(json!({"usage": {"output_tokens": 3}, "cost_usd": 0.02}), "0 ms, 3 tokens, $0.0200");
    }

    #[test]
    fn a_limit_is_told_with_its_scope_its_amounts_and_when_it_begins_anew() {
        let check = |budget, percent, text: &str| {
            let budget: BudgetUse = serde_json::from_value(budget).expect("it is one");
            assert_eq!(exceeded(&budget), text);
            let warned = text.replace("used up", "used");
            assert_eq!(warning(&budget), format!("{percent} % of {warned}"));
        };
        check(
            json!({"limit": "max_turns", "used": 8, "allowed": 10}),
            80,
            "this run's limit `max_turns` is used up: 8 of 10 steps",
        );
        check(
            json!({"limit": "limits.day.max_tokens", "scope": "day", "used": 20_000, "allowed": 20_000,
                   "resets": "2026-03-02T00:00:00Z"}),
            100,
            "the day's limit `limits.day.max_tokens` is used up: 20,000 of 20,000 tokens; it begins anew at \
             2026-03-02 00:00 UTC",
        );
        check(
            json!({"limit": "limits.session.max_cost_usd", "scope": "session", "used": 450_000, "allowed": 500_000}),
            90,
            "this session's limit `limits.session.max_cost_usd` is used up: $0.4500 of $0.5000; a new session begins \
             anew",
        );
        check(
            json!({"limit": "time_budget_ms", "used": 0, "allowed": 0}),
            100,
            "this run's limit `time_budget_ms` is used up: 0 ms of 0 ms",
        );
        check(
            json!({"limit": "limits.agent.max_invocations", "scope": "agent", "used": 9, "allowed": 10}),
            90,
            "this agent's daily limit `limits.agent.max_invocations` is used up: 9 of 10 runs",
        );
    }
}
