//! Whose facts a call sees. Agents have a namespace each, unless they share one; people are never given each other's.
//!
//! A person behind a named token talks in sessions below `token.NAME:PERSON`, a program with a token of its own in those below
//! `token.NAME`, somebody who writes through a chat service in those below `CHANNEL:person.ID`. What the operator told the orchestrator is not for them, nor what one of them told it for another.

use drupe_extension_api::prelude::{Call, SessionId};

use crate::settings::Sharing;

/// The agent that is given facts with its turns.
const ORCHESTRATOR: &str = "orchestrator";
/// The longest name of somebody for whom the bearer of a token speaks, in bytes: see `docs/reference/control.md`.
const LONGEST_NAME: usize = 24;
/// The namespace of all agents. No agent's: those names have no `*`.
const SHARED: &str = "*";

pub fn of_call(sharing: Sharing, call: &Call) -> String {
    namespace(sharing, call.agent.as_str(), call.session.as_str())
}

pub fn of_orchestrator(sharing: Sharing, session: &SessionId) -> String {
    namespace(sharing, ORCHESTRATOR, session.as_str())
}

fn namespace(sharing: Sharing, agent: &str, session: &str) -> String {
    let agents = match sharing {
        Sharing::Agent => agent,
        Sharing::Shared => SHARED,
    };
    match person(session) {
        Some(person) => format!("{agents}@{person}"),
        None => agents.to_owned(),
    }
}

/// Who talks in a session, where that is not the operator: `token.NAME:PERSON`, `token.NAME`, or, in a chat service,
/// `CHANNEL:person.ID` and `CHANNEL:group.ID`.
fn person(session: &str) -> Option<&str> {
    let (token, below) = session.split_once(':').unwrap_or((session, ""));
    if below.starts_with("person.") || below.starts_with("group.") {
        let name = below.split(':').next().unwrap_or_default();
        return Some(&session[..token.len() + 1 + name.len()]);
    }
    token.starts_with("token.").then_some(())?;
    let name = below.split(':').next().unwrap_or_default();
    // Conversations of a program without a session of its own get a long number for one.
    let is_person = (1..=LONGEST_NAME).contains(&name.len());
    Some(if is_person { &session[..token.len() + 1 + name.len()] } else { token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_agents_have_their_own_facts_and_people_have_them_also_where_agents_share() {
        for (session, agent, own, shared) in [
            ("main", "orchestrator", "orchestrator", "*"),
            ("terminal:1", "haiku", "haiku", "*"),
            ("token.shop", "orchestrator", "orchestrator@token.shop", "*@token.shop"),
            ("token.shop:ann", "orchestrator", "orchestrator@token.shop:ann", "*@token.shop:ann"),
            ("token.shop:ann:chat:2", "orchestrator", "orchestrator@token.shop:ann", "*@token.shop:ann"),
            (
                "token.shop:0197b3c1d2e47f00a1b2c3d4e5f60718",
                "orchestrator",
                "orchestrator@token.shop",
                "*@token.shop",
            ),
            ("telegram:person.7", "orchestrator", "orchestrator@telegram:person.7", "*@telegram:person.7"),
            ("telegram:person.7:12", "haiku", "haiku@telegram:person.7", "*@telegram:person.7"),
            ("telegram:group.-100:3", "haiku", "haiku@telegram:group.-100", "*@telegram:group.-100"),
            ("telegram:personal", "haiku", "haiku", "*"),
            ("token.shop:annette", "orchestrator", "orchestrator@token.shop:annette", "*@token.shop:annette"),
        ] {
            assert_eq!(namespace(Sharing::Agent, agent, session), own);
            assert_eq!(namespace(Sharing::Shared, agent, session), shared);
        }
    }
}
