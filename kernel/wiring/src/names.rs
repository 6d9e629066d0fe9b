//! Which names are kept for whom. A name that was given does not change hands: what a model calls, and what an operator
//! agreed to, must go on meaning the same.

use std::borrow::Cow;

use drupe_agent::{
    hand_over, load_skill, read_output, refuse, request_input, search_tools, session_search, spawn_agent,
    update_plan,
};
use drupe_extension_api::{AgentId, ExtensionId, ToolName};

/// What the names of agents begin with where they are tools.
const AGENTS: [&str; 2] = ["agent_", "handoff_"];

/// The loop's own tools.
pub(crate) const CORE: [&str; 13] = [
    hand_over::RETURN,
    load_skill::NAME,
    read_output::NAME,
    refuse::NAME,
    request_input::ANSWERS,
    request_input::SECRET,
    search_tools::NAME,
    session_search::NAME,
    spawn_agent::SPAWN,
    spawn_agent::SEND,
    spawn_agent::WAIT,
    spawn_agent::CLOSE,
    update_plan::NAME,
];

/// Ids that stand before topics and sessions of the kernel, or for a part of it in messages.
const KERNEL: [&str; 5] = [crate::ORCHESTRATOR, "kernel", "event", "core", "schedule"];

/// How a name looks: two names that look the same are taken for each other, by people, by models, and by providers that
/// allow fewer characters than we do.
pub(crate) fn looks(name: &str) -> String {
    let mut seen = String::with_capacity(name.len());
    for character in name.chars() {
        let character = match character.to_ascii_lowercase() {
            '-' | '.' => '_',
            '0' => 'o',
            '1' | 'i' => 'l',
            other => other,
        };
        if character != '_' || !seen.ends_with('_') {
            seen.push(character);
        }
    }
    seen
}

/// Why no extension may have this id.
pub fn kept_id(id: &str) -> Option<String> {
    let kept = KERNEL.into_iter().find(|kept| looks(kept) == looks(id))?;
    Some(match kept == id {
        true => format!("the id `{id}` is the kernel's own"),
        false => format!("the id `{id}` looks like `{kept}`, which is the kernel's own"),
    })
}

/// Why an extension's tool may not bear this name; `agents` are all that there are.
pub(crate) fn kept_from_tool<'a>(
    name: &ToolName,
    owner: &ExtensionId,
    agents: impl IntoIterator<Item = &'a AgentId>,
) -> Option<String> {
    let is = match core(name) {
        Some(core) => Cow::from(format!("of the tool `{core}`, which is the loop's own")),
        None => {
            let prefix = agent_prefix(name)?;
            let whose = |agent: &&AgentId| looks(name.as_str()) == looks(&format!("{prefix}{agent}"));
            match agents.into_iter().find(whose) {
                Some(agent) => format!("of the agent `{agent}`").into(),
                None => "of an agent".into(),
            }
        }
    };
    Some(format!(
        "its tool `{name}` has the name {is}; rename the tool, by custom to `{owner}_` and what it does"
    ))
}

/// Why an agent may not be offered under this name, which its manifest chose.
pub(crate) fn kept_from_agent(name: &ToolName, agent: &AgentId) -> Option<String> {
    if let Some(core) = core(name) {
        return Some(format!(
            "`agent.tool_name` is `{name}`, the name of the tool `{core}`, which every agent has"
        ));
    }
    let prefix = agent_prefix(name)?;
    let own = name.as_str().strip_prefix(prefix) == Some(agent.as_str());
    (!own).then(|| {
        format!(
            "`agent.tool_name` is `{name}`, but what begins with `{prefix}` is the name of the agent that follows, and \
             this one is `{agent}`"
        )
    })
}

fn core(name: &ToolName) -> Option<&'static str> {
    CORE.into_iter().find(|core| looks(core) == looks(name.as_str()))
}

fn agent_prefix(name: &ToolName) -> Option<&'static str> {
    AGENTS.into_iter().find(|prefix| looks(name.as_str()).starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Option<String> {
        let agents = ["haiku", "code_reviewer"].map(|id| AgentId::new(id).expect("an id"));
        let (name, owner) = (ToolName::new(name).expect("a name"), ExtensionId::new("evil").expect("an id"));
        kept_from_tool(&name, &owner, &agents)
    }

    #[test]
    fn a_tool_cannot_have_the_name_of_an_agent_or_a_core_tool_in_any_spelling() {
        for (name, whose) in [
            ("agent_haiku", "agent `haiku`"),
            ("Agent-Haiku", "agent `haiku`"),
            ("agent.ha1ku", "agent `haiku`"),
            ("agent_code-reviewer", "agent `code_reviewer`"),
            ("agent__code__reviewer", "agent `code_reviewer`"),
            ("handoff_haiku", "agent `haiku`"),
            ("agent_nobody", "an agent"),
            ("refuse", "`refuse`"),
            ("Read-0utput", "`read_output`"),
            ("UPDATE_PLAN", "`update_plan`"),
            ("search_tools", "`search_tools`"),
            ("request-secure_1nput", "`request_secure_input`"),
            ("Request.Input", "`request_input`"),
        ] {
            let why = tool(name).unwrap_or_else(|| panic!("`{name}` was let through"));
            assert!(why.contains(whose) && why.contains(name), "{name}: {why}");
        }
        for fine in ["evil_haiku", "agents_list", "agentic_search", "handoffs", "refuse_all", "read_outputs"]
        {
            assert_eq!(tool(fine), None, "{fine}");
        }
    }

    #[test]
    fn an_agent_may_choose_a_name_but_not_that_of_another_agent_or_of_a_core_tool() {
        let check = |name: &str| {
            let agent = AgentId::new("two").expect("an id");
            kept_from_agent(&ToolName::new(name).expect("a name"), &agent)
        };
        for taken in
            ["agent_builder_agent", "agent_tw0", "Agent_two", "handoff_one", "refuse", "search-tools"]
        {
            assert!(check(taken).is_some_and(|why| why.contains(taken)), "{taken}");
        }
        for fine in ["agent_two", "ask.two", "two"] {
            assert_eq!(check(fine), None, "{fine}");
        }
    }

    #[test]
    fn no_extension_can_be_named_as_the_kernel_or_look_like_it() {
        for kept in ["orchestrator", "kernel", "event", "schedule", "core", "0rchestrator", "c0re"] {
            assert!(kept_id(kept).is_some(), "{kept}");
        }
        assert_eq!(kept_id("events"), None);
    }
}
