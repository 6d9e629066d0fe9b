//! How a limit stands, in words.

use drupe_extension_api::{BudgetUse, LimitScope};

use crate::words::amount;

/// How much of a limit is used, and when it begins anew.
pub(crate) fn standing(used: &BudgetUse) -> String {
    let BudgetUse { limit, scope, used, allowed, resets } = used;
    let whose = whose(*scope);
    let text = match limit.as_str() {
        // Nothing is counted here: the price itself is what is missing.
        "allow_unknown_price" => {
            format!("the model's price is unknown, and at most {} may be spent", amount(limit, *allowed))
        }
        _ => format!("used {} of {}{whose}", bare(limit, *used), amount(limit, *allowed)),
    };
    let anew = resets.map(|at| format!("; it begins anew at {at}")).unwrap_or_default();
    format!("`{limit}`: {text}{anew}")
}

/// What to do about a limit that stopped work.
pub(crate) fn remedy(used: &BudgetUse) -> String {
    let BudgetUse { limit, scope, resets, .. } = used;
    match (limit.as_str(), resets, scope) {
        ("allow_unknown_price", ..) => {
            "set `allow_unknown_price: true`, or give the model's price under `models.profiles`".to_owned()
        }
        (_, Some(at), _) => format!("raise `{limit}`, or wait until {at}"),
        (_, None, LimitScope::Session) => format!("raise `{limit}`, or start a new session"),
        (_, None, _) => format!("raise `{limit}`, or ask for less at once"),
    }
}

/// For what a limit holds, after what is used of it.
fn whose(scope: LimitScope) -> &'static str {
    match scope {
        LimitScope::Run => "",
        LimitScope::Session => " in the session",
        LimitScope::Agent => " by the agent in the day",
        LimitScope::Token => " with the token in the day",
        LimitScope::Day => " in the day",
    }
}

/// The amount without its unit, where the unit stands behind what is allowed.
fn bare(limit: &str, value: u64) -> String {
    let whole = amount(limit, value);
    match limit.rsplit('.').next().unwrap_or(limit) {
        "max_cost_usd" | "time_budget_ms" => whole,
        _ => whole.split(' ').next().unwrap_or_default().to_owned(),
    }
}
