//! What is said when a limit stops work: which one, how much was used, when it begins anew.

use std::fmt;

use drupe_extension_api::BudgetUse;

use crate::tally::Unit;

/// A limit that stops work. Nothing was counted or reserved.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct QuotaExceeded {
    /// The limit, and what is used and reserved of it.
    pub used: BudgetUse,
    /// Whose budget it is, for people: `the day`, `the session`, or the agent by name.
    pub whose: String,
    /// How much more was asked for, in the unit of `used`.
    pub needs: u64,
}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BudgetUse { limit, used, allowed, resets, .. } = &self.used;
        write!(f, "{}'s budget is used up: ", self.whose)?;
        if limit.ends_with(Unit::Tokens.key()) {
            write!(f, "{} of {} tokens", grouped(*used), grouped(*allowed))?;
            // With much left, only the size of the call explains the refusal.
            if used < allowed {
                write!(f, ", and the next call may take {}", grouped(self.needs))?;
            }
        } else if limit.ends_with(Unit::Micros.key()) {
            write!(f, "{} of {} US dollars", dollars(*used), dollars(*allowed))?;
            if used < allowed {
                write!(f, ", and the next call may cost {}", dollars(self.needs))?;
            }
        } else {
            write!(f, "{} of {} runs of agents", grouped(*used), grouped(*allowed))?;
        }
        match resets {
            Some(at) => write!(f, " (`{limit}`); it begins anew at {at}"),
            None => write!(f, " (`{limit}`); start a new session"),
        }
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Millionths of a dollar as dollars: at least cents, and as much more as there is.
fn dollars(micros: u64) -> String {
    let rest = format!("{:06}", micros % 1_000_000);
    let cents = rest.trim_end_matches('0');
    format!("{}.{cents:0<2}", grouped(micros / 1_000_000))
}
