//! Updates of a session as ACP v1 writes them: `update` of `session/update`
//! (<https://agentclientprotocol.com/protocol/v1/schema>, and the types of `agent-client-protocol-schema` 1.15.1, 2026-11-24).

use drupe_extension_api::control::AgentStatus;
use serde_json::{Value, json};

/// Agents that are offered as modes and commands: a longer menu helps nobody.
pub const MOST_AGENTS: usize = 200;

/// The mode that stands for whoever answers by itself.
pub const ORCHESTRATOR: &str = "drupe";

/// The option by which clients choose that know no modes.
pub const AGENT_OPTION: &str = "agent";

/// A part of a message: `kind` is `user_message_chunk`, `agent_message_chunk` or `agent_thought_chunk`.
pub fn chunk(kind: &str, text: &str, message: &str) -> Value {
    json!({ "sessionUpdate": kind, "content": text_block(text), "messageId": message })
}

/// What of a message is to be sent after what was; none where that is all. One that does not go on from it comes whole, as
/// a message of its own.
pub fn rest(kind: &str, text: &str, sent: &str, message: &str) -> Option<Value> {
    match text.strip_prefix(sent) {
        Some("") => None,
        Some(rest) => Some(chunk(kind, rest, message)),
        None => Some(chunk(kind, text, &format!("{message}#whole"))),
    }
}

pub fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Contents of a call are replaced, not added to.
pub fn contents(text: &str) -> Value {
    if text.is_empty() {
        return json!([]);
    }
    json!([{ "type": "content", "content": text_block(text) }])
}

pub fn call_status(call: &str, status: &str) -> Value {
    json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status })
}

pub fn call_content(call: &str, text: &str) -> Value {
    json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "content": contents(text) })
}

/// A plan: a list of steps, or an object that holds one as `items`. None for what is neither, such as a text that was cut.
pub fn plan(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    let steps = value.get("items").unwrap_or(&value).as_array()?;
    let entry = |step: &Value| {
        let status = match step["status"].as_str() {
            Some("done") => "completed",
            Some("in_progress") => "in_progress",
            _ => "pending",
        };
        // Our plans rank nothing.
        Some(json!({ "content": step["step"].as_str()?, "priority": "medium", "status": status }))
    };
    let entries: Vec<Value> = steps.iter().map(entry).collect::<Option<_>>()?;
    Some(json!({ "sessionUpdate": "plan", "entries": entries }))
}

pub fn commands(agents: &[AgentStatus]) -> Value {
    let command = |agent: &AgentStatus| {
        let hint = if agent.input.is_some() { "its parameters, as JSON" } else { "the task" };
        json!({
            "name": agent.id,
            "description": format!("Ask {} this once: {}", agent.name, agent.description),
            "input": { "hint": hint },
        })
    };
    let commands: Vec<Value> = agents.iter().take(MOST_AGENTS).map(command).collect();
    json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands })
}

/// Who answers, as modes of a session. One that was chosen is always among them.
pub fn modes(agents: &[AgentStatus], current: &str) -> Value {
    let mut modes = vec![
        json!({ "id": ORCHESTRATOR, "name": "drupe", "description": "Answers itself, or has others answer." }),
    ];
    modes.extend(
        listed(agents, current)
            .into_iter()
            .map(|agent| json!({ "id": agent.id, "name": agent.name, "description": agent.description })),
    );
    json!({ "currentModeId": current, "availableModes": modes })
}

/// The same as an option, for clients that show options in place of modes.
pub fn options(agents: &[AgentStatus], current: &str) -> Value {
    let mut options = vec![json!({ "value": ORCHESTRATOR, "name": "drupe" })];
    options.extend(
        listed(agents, current)
            .into_iter()
            .map(|agent| json!({ "value": agent.id, "name": agent.name, "description": agent.description })),
    );
    json!([{
        "id": AGENT_OPTION,
        "name": "Agent",
        "description": "Who answers in this session.",
        "category": "mode",
        "type": "select",
        "currentValue": current,
        "options": options,
    }])
}

fn listed<'a>(agents: &'a [AgentStatus], current: &str) -> Vec<&'a AgentStatus> {
    let shown = agents.iter().enumerate();
    shown
        .filter(|(at, agent)| *at < MOST_AGENTS || agent.id.as_str() == current)
        .map(|(_, agent)| agent)
        .collect()
}
