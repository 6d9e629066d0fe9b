//! What the offline model says in its own words.

use std::{fmt::Write, sync::Arc};

use drupe_agent::AgentCard;
use drupe_extension_api::{AgentResponse, ResponseStatus, ToolSpec, ToolStatus};
use serde_json::Value;

const WHO: &str = "This is the offline model: it follows rules and matches words, and is no language model.";
/// Of a description in a list.
const LONGEST_LINE: usize = 140;

/// What there is, for somebody who asked.
pub(super) fn abilities(tools: &[Arc<ToolSpec>]) -> String {
    format!("{WHO} {}", list(tools))
}

/// For a sentence that fits nothing.
pub(super) fn nothing(tools: &[Arc<ToolSpec>]) -> String {
    format!("{WHO} It found nothing that fits what you said. {}", list(tools))
}

fn list(tools: &[Arc<ToolSpec>]) -> String {
    if tools.is_empty() {
        return "There are no tools or agents here.".to_owned();
    }
    let mut out =
        "Say what you want in words of these, or write `name key=value` or `name {json}`:".to_owned();
    for tool in tools {
        let _ = write!(out, "\n- {}: {}", tool.name, summary(&tool.description));
    }
    out
}

/// The first sentence, cut where it is long.
fn summary(description: &str) -> String {
    let line = description.trim().lines().next().unwrap_or_default();
    let line = line.split_once(". ").map_or(line, |(first, _)| first).trim_end_matches('.');
    match line.char_indices().nth(LONGEST_LINE) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

pub(super) fn how_to_call(tool: &ToolSpec) -> String {
    let schema = &tool.input_schema;
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut out = format!("`{}` is called like this: {}", tool.name, tool.name);
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let kind = property.get("type").and_then(Value::as_str).unwrap_or("value");
        let _ = match required.contains(&name.as_str()) {
            true => write!(out, " {name}=<{kind}>"),
            false => write!(out, " [{name}=<{kind}>]"),
        };
    }
    out
}

/// An agent that can do nothing without a language model.
pub(super) fn identity(agent: &AgentCard, task: &str) -> String {
    let name = if agent.name.is_empty() { agent.id.as_str() } else { &agent.name };
    let mut out = format!("I am the agent {name}");
    if !agent.description.is_empty() {
        let _ = write!(out, " ({})", agent.description.trim().trim_end_matches('.'));
    }
    let _ = writeln!(out, ". I was asked: {}", task.trim());
    out + "To do that I need a language model, and I run on the offline model, which is none."
}

/// What a tool gave, or why it gave nothing.
pub(super) fn outcome(tool: &str, status: ToolStatus, content: &str) -> String {
    let response = response(content);
    match (status, response) {
        (ToolStatus::Ok | ToolStatus::Error, Some(response)) => answer(tool, response),
        (ToolStatus::Ok, None) if content.trim().is_empty() => {
            format!("`{tool}` is done; it returned nothing.")
        }
        (ToolStatus::Ok, None) => content.to_owned(),
        (ToolStatus::Error, None) => format!("`{tool}` failed: {content}"),
        (ToolStatus::Refused, _) => format!("`{tool}` was refused: {content}"),
        (ToolStatus::Cancelled, _) => format!("`{tool}` was stopped: {content}"),
        (ToolStatus::OutcomeUnknown, _) => format!("It is not known what became of `{tool}`: {content}"),
    }
}

fn answer(tool: &str, response: AgentResponse) -> String {
    let verb = match response.status {
        ResponseStatus::Success => return response.content,
        ResponseStatus::Error => "failed",
        ResponseStatus::Refused => "declined",
    };
    match response.error {
        Some(error) if error != response.content => format!("`{tool}` {verb}: {error}. {}", response.content),
        _ => format!("`{tool}` {verb}: {}", response.content),
    }
}

/// An agent's answer, if that is what the text is.
fn response(content: &str) -> Option<AgentResponse> {
    content.trim_start().starts_with('{').then(|| serde_json::from_str(content).ok()).flatten()
}

/// Whether a tool that ran did what it was asked: agents may answer that they did not.
pub(super) fn succeeded(content: &str) -> bool {
    response(content).is_none_or(|r| r.status == ResponseStatus::Success)
}

/// A result for people: an agent's words without their wrapping.
pub(super) fn readable(content: &str) -> String {
    response(content).map_or_else(|| content.to_owned(), |r| r.content)
}
