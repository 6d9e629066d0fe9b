//! The sessions in which agents work at messages: one a day, since what a session may spend is for its whole life.

use drupe_extension_api::{AgentId, SessionId};
use jiff::Timestamp;

/// Before the agent and the day in their names.
const SESSION: &str = "event:";

const DAY_MS: i64 = 86_400_000;

/// The session of an agent on the day (UTC) of `now_ms`, in milliseconds since 1970.
pub fn session_of(agent: &AgentId, now_ms: i64) -> Option<SessionId> {
    let day = Timestamp::from_millisecond(now_ms).unwrap_or_default();
    SessionId::new(format!("{SESSION}{agent}:{}", day.strftime("%Y-%m-%d"))).ok()
}

/// Whether a session is one of these.
pub fn is_of_messages(session: &SessionId) -> bool {
    session.as_str().starts_with(SESSION)
}

/// Whether an agent is at work at a message. A turn of the day before may go on past midnight, and the first of today would
/// run beside it.
pub fn at_work(agent: &AgentId, now_ms: i64, busy: impl Fn(&SessionId) -> bool) -> bool {
    [now_ms, now_ms.saturating_sub(DAY_MS)].iter().filter_map(|day| session_of(agent, *day)).any(|s| busy(&s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_of_the_day_before_that_goes_on_past_midnight_holds_the_first_of_today_back() {
        let agent: AgentId = "gardener".parse().expect("an id");
        let midnight = 20_000 * DAY_MS;
        let works = |busy: &'static str| at_work(&agent, midnight + 5, move |s| s.as_str() == busy);
        assert!(works("event:gardener:2024-10-04") && works("event:gardener:2024-10-03"));
        assert!(!works("event:gardener:2024-10-02") && !works("event:other:2024-10-04"));
        assert!(session_of(&agent, midnight).is_some_and(|session| is_of_messages(&session)));
    }
}
