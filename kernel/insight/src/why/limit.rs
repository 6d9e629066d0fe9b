//! A limit of a session, an agent or a day: what is set, how much is used, when it begins anew.

use drupe_extension_api::{
    BudgetUse,
    control::{Cited, ConfigValue, Explanation},
};

use crate::{
    limit,
    told::{Told, cited},
    words::amount,
};

/// How much of a limit somebody uses.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitUse {
    /// Who, for people: `the day`, `the session`, or the agent by name.
    pub whose: String,
    /// The key of the counters that say so: a day as `2026-03-01`, an agent's as `2026-03-01/agent`, or a session.
    pub counted: String,
    /// How much.
    pub used: BudgetUse,
}

/// How the limit under `key` stands: `set` is its value in the effective configuration, `uses` are those that it
/// holds for now, in whatever order.
pub fn why_limit(key: &str, set: &ConfigValue, uses: &[LimitUse]) -> Explanation {
    let mut told = Told::of("limit", key);
    let mut uses: Vec<&LimitUse> = uses.iter().collect();
    // Those who are nearest to it first; cross products, as nothing may be allowed at all.
    uses.sort_by(|a, b| {
        let share =
            |of: &LimitUse, other: &LimitUse| u128::from(of.used.used) * u128::from(other.used.allowed);
        share(b, a).cmp(&share(a, b)).then_with(|| a.counted.cmp(&b.counted))
    });
    for LimitUse { whose, counted, used } in uses.iter().copied() {
        let over = used.used >= used.allowed;
        let so = if over { "stops work" } else { "does not stop work" };
        told.say(format!("It {so} for {whose}: {}.", limit::standing(used)), [usage(counted, used)]);
        if over {
            told.remedy(limit::remedy(used));
        }
    }
    let says = format!("{} ({})", set.value, set.origin);
    let value = match uses.first() {
        Some(LimitUse { used, .. }) => amount(key, used.allowed),
        None => set.value.to_string(),
    };
    let row = || cited("kernel", format!("config/{key}"), says.as_str());
    told.say(format!("`{key}` is {value}, as set by {}.", set.origin), [row()]);
    match uncounted(key) {
        Some(text) => told.say(text, [row()]),
        None if uses.is_empty() => told.say(
            "Nothing is counted against it now.",
            [cited("kernel", "quotas", "no counter of this limit")],
        ),
        None => {}
    }
    told.done()
}

/// What a key means against which nothing is ever counted.
fn uncounted(key: &str) -> Option<&'static str> {
    match key {
        "limits.warn_at" => Some(
            "It stops no work: when this part of a limit of the day, of a session or of an agent is used, that is told.",
        ),
        "limits.concurrency.turns" => Some(
            "It stops no work: of the turns of all sessions, so many run at the same time; further ones wait.",
        ),
        "limits.concurrency.runs_of_one_agent" => Some(
            "It stops no work: of the runs of any one agent, so many go on at the same time; further ones wait.",
        ),
        key if key.starts_with("limits.concurrency.") => {
            Some("It stops no work: so many go on at the same time; further ones wait.")
        }
        _ => None,
    }
}

fn usage(counted: &str, used: &BudgetUse) -> Cited {
    cited(
        "usage",
        counted,
        format!("{} of {}", amount(&used.limit, used.used), amount(&used.limit, used.allowed)),
    )
}
