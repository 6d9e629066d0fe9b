//! Who answers a message: a function of the message and of its session's state.
//!
//! It knows neither which agents there are nor who may reach them; whoever carries it out asks that.

use drupe_extension_api::{AgentId, wire::Submit};
use drupe_journal::SessionState;

/// Who answers, and what they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route<'a> {
    /// The agent, and how it was chosen; none for the orchestrator.
    pub agent: Option<(AgentId, ChosenBy)>,
    /// The message, without the address at its start where that was followed.
    pub text: &'a str,
}

/// How an agent was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenBy {
    /// The request names it.
    Request,
    /// The text begins with its address.
    Address,
    /// The user talks with it in this session.
    Session,
    /// The orchestrator handed the conversation to it.
    Handoff,
}

impl ChosenBy {
    /// Whether the agent has the conversation, and nobody named it.
    pub fn is_handoff(self) -> bool {
        self == Self::Handoff
    }

    /// As events spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "agent",
            Self::Address => "@id",
            Self::Session => "session",
            Self::Handoff => "handoff",
        }
    }
}

/// Who answers: the agent that the request names, else the one that its text is addressed to, else the one that the user
/// chose to talk with, else the one that has the conversation, else the orchestrator. Fails where an address cannot be followed.
pub fn route<'a>(ask: &'a Submit, state: &SessionState) -> Result<Route<'a>, String> {
    let whole = ask.text.as_str();
    if let Some(agent) = &ask.agent {
        return Ok(Route { agent: Some((agent.clone(), ChosenBy::Request)), text: whole });
    }
    if let Some((agent, text)) = addressed(whole)? {
        return Ok(Route { agent: Some((agent, ChosenBy::Address)), text });
    }
    let chosen = state.talks_with.clone().map(|agent| (agent, ChosenBy::Session));
    let has_it = || state.conversation.agent().cloned().map(|agent| (agent, ChosenBy::Handoff));
    Ok(Route { agent: chosen.or_else(has_it), text: whole })
}

/// Whether a message says who shall answer it, or how: it cannot be a part of another's answer.
pub fn wants_its_own(ask: &Submit) -> bool {
    let chosen = ask.agent.is_some() || ask.model.is_some() || ask.output.is_some() || ask.carried.is_some();
    chosen
        || ask.time_budget_ms.is_some()
        || asks_back(&ask.text).is_some()
        || !matches!(addressed(&ask.text), Ok(None))
}

/// What a message says that asks for the orchestrator, `/back` alone or before a text: that text.
pub fn asks_back(text: &str) -> Option<&str> {
    let rest = text.trim().strip_prefix("/back")?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim_start())
}

/// `@id …` at the start of a message: the agent, and the rest.
fn addressed(text: &str) -> Result<Option<(AgentId, &str)>, String> {
    let Some(rest) = text.trim_start().strip_prefix('@') else { return Ok(None) };
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, task) = rest.split_at(end);
    if name.is_empty() {
        return Ok(None);
    }
    let agent = AgentId::new(name).map_err(|error| error.to_string())?;
    match task.trim_start() {
        "" => Err(format!("write a task after `@{agent}`")),
        task => Ok(Some((agent, task))),
    }
}

#[cfg(test)]
mod tests {
    use drupe_agent::Conversation;

    use super::*;

    #[test]
    fn the_request_goes_before_the_address_and_that_before_the_session() {
        let id = |id: &str| id.parse::<AgentId>().expect("an id");
        let all = [
            // request, text, session → agent, by, text
            (None, "rust", None, None, "rust"),
            (None, "rust", Some("poet"), Some(("poet", "session")), "rust"),
            (None, "@haiku rust", Some("poet"), Some(("haiku", "@id")), "rust"),
            (None, "  @haiku  on rust", None, Some(("haiku", "@id")), "on rust"),
            (Some("other"), "@haiku rust", Some("poet"), Some(("other", "agent")), "@haiku rust"),
            (None, "mail me @haiku", None, None, "mail me @haiku"),
            (None, "@ nothing", None, None, "@ nothing"),
        ];
        for (request, text, session, agent, told) in all {
            let ask =
                Submit { agent: request.map(id), ..Submit::new("s".parse().expect("an id"), "1", text) };
            let state = SessionState { talks_with: session.map(id), conversation: Conversation::default() };
            let route = route(&ask, &state).expect("it leads somewhere");
            let chosen = route.agent.map(|(agent, by)| (agent.to_string(), by.name()));
            assert_eq!((chosen, route.text), (agent.map(|(id, by)| (id.to_owned(), by)), told), "{text}");
            assert_eq!(wants_its_own(&ask), agent.is_some_and(|(_, by)| by != "session"), "{text}");
        }
    }

    #[test]
    fn an_address_that_leads_nowhere_is_refused_with_the_reason() {
        for (text, reason) in
            [("@haiku", "write a task after `@haiku`"), ("@HAIKU x", "`HAIKU` is not valid")]
        {
            let ask = Submit::new("s".parse().expect("an id"), "1", text);
            let refused = route(&ask, &SessionState::default()).expect_err("it leads nowhere");
            assert!(refused.contains(reason), "{refused}");
            assert!(wants_its_own(&ask));
        }
    }
}
