//! Numbers, durations and texts as sentences have them.

pub(crate) use drupe_agent::grouped;
use jiff::Timestamp;
use serde::Serialize;

/// The longest quotation, in bytes: a line or three.
const QUOTED: usize = 300;

/// `1 run`, `1,200 runs`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(number)) }
}

/// Milliseconds in the unit that people would use.
pub(crate) fn lasting(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds}.{} s", ms % 1_000 / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// From `begin` to `end`, in milliseconds; 0 where the clock was set back in between.
pub(crate) fn between(begin: Timestamp, end: Timestamp) -> u64 {
    u64::try_from(end.duration_since(begin).as_millis()).unwrap_or(0)
}

/// US dollars, with more digits where they are few.
pub(crate) fn dollars(usd: f64) -> String {
    if usd == 0.0 || usd >= 1.0 { format!("${usd:.2}") } else { format!("${usd:.6}") }
}

/// The name of a unit value in records, such as `outcome_unknown`.
pub(crate) fn name(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().map(str::to_owned).unwrap_or_default()
}

/// The beginning of a text, on one line.
pub(crate) fn excerpt(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(QUOTED) + 4);
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        if line.len() + word.len() > QUOTED {
            line.push_str(&word[..word.floor_char_boundary(QUOTED.saturating_sub(line.len()))]);
            line.push('…');
            break;
        }
        line.push_str(word);
    }
    line
}

/// The text as a sentence: begins with a capital and ends with a stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.trim().chars();
    let first: String = letters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    ended(&(first + letters.as_str()))
}

/// The text as the end of a sentence.
pub(crate) fn ended(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?', '…']) { text.to_owned() } else { format!("{text}.") }
}

/// How much of the limit under `key` is `value`, with its unit.
pub(crate) fn amount(key: &str, value: u64) -> String {
    match key.rsplit('.').next().unwrap_or(key) {
        "max_cost_usd" | "allow_unknown_price" => dollars(value as f64 / 1e6),
        "time_budget_ms" => lasting(value),
        "max_turns" => count(value, "step"),
        "max_tool_calls" | "max_tool_calls_per_step" => count(value, "tool call"),
        "max_invocations" => count(value, "run"),
        "max_depth" => count(value, "level"),
        "max_tokens" | "max_tokens_per_invocation" => count(value, "token"),
        _ => grouped(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_amounts_bear_the_unit_that_people_use() {
        let told = [0, 999, 1_250, 59_999, 61_000, 3_600_000].map(lasting);
        assert_eq!(told, ["0 ms", "999 ms", "1.2 s", "59.9 s", "1 min 1 s", "1 h 0 min"]);
        assert_eq!(amount("limits.day.max_tokens", 20_000_000), "20,000,000 tokens");
        assert_eq!(amount("max_cost_usd", 12_500), "$0.012500");
        assert_eq!(amount("max_turns", 1), "1 step");
        assert_eq!(amount("time_budget_ms", 90_000), "1 min 30 s");
    }

    #[test]
    fn a_quotation_is_one_bounded_line() {
        assert_eq!(excerpt("a\n  b\tc"), "a b c");
        let long = excerpt(&"ä".repeat(1_000));
        assert!(long.len() <= QUOTED + 3 && long.ends_with('…'), "{long}");
    }

    #[test]
    fn a_sentence_begins_and_ends_as_one() {
        assert_eq!(sentence("it was cancelled"), "It was cancelled.");
        assert_eq!(sentence("`m` failed: why?"), "`m` failed: why?");
    }
}
