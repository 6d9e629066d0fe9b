//! What goes on in a session at the moment, from its events: the model's thinking, tools, sub-agents.
//!
//! Pure: events and the time come in, lines come out. Where an agent is called through its tool, or hands its task on
//! to its own loop, the same work has several events and is one entry here.

use std::{collections::BTreeMap, time::Instant};

use drupe_extension_api::{AgentId, Event, EventBody, InvocationId, Item, ItemKind};

use super::console::{duration, short};

/// Characters of a call's parameters, or of a task, that are shown.
const INPUT: usize = 60;

/// The open work of a session.
#[derive(Debug, Default)]
pub struct Activity {
    open: Vec<Open>,
    /// Who runs, by run.
    agents: BTreeMap<InvocationId, AgentId>,
}

#[derive(Debug)]
struct Open {
    key: String,
    label: String,
    depth: u32,
    since: Instant,
    run: Option<InvocationId>,
    /// The agent that this call calls.
    calls: Option<String>,
}

/// The label of a call.
pub fn label(item: &Item) -> String {
    let name = item.name.as_deref().unwrap_or("a tool");
    let input = item.input.as_ref().map(|input| input.text.as_str()).unwrap_or_default();
    match name.strip_prefix("agent_") {
        Some(agent) => {
            let task = serde_json::from_str::<serde_json::Value>(input).ok();
            let task = task.as_ref().and_then(|input| input.get("task")?.as_str()).unwrap_or(input);
            format!("@{} {}", short(agent, INPUT), short(task, INPUT)).trim_end().to_owned()
        }
        None => format!("{} {}", short(name, INPUT), short(input, INPUT)).trim_end().to_owned(),
    }
}

/// Whether it is a call, and not text.
pub fn is_call(item: &Item) -> bool {
    !matches!(item.kind, ItemKind::AgentMessage | ItemKind::Reasoning | ItemKind::Error)
}

impl Activity {
    /// Takes an event in. Gives the label of the work that it ends; none for work that another entry stands for.
    pub fn take(&mut self, event: &Event, now: Instant) -> Option<String> {
        let depth = event.agent.as_ref().map_or(0, |agent| agent.depth);
        let run = event.agent.as_ref().map(|agent| agent.invocation.clone());
        if let Some(agent) = &event.agent {
            self.agents.insert(agent.invocation.clone(), agent.id.clone());
        }
        match &event.body {
            EventBody::ItemStarted { item } if is_call(item) => {
                let calls =
                    item.name.as_deref().and_then(|name| name.strip_prefix("agent_")).map(str::to_owned);
                let key = item.id.clone();
                self.open.push(Open { key, label: label(item), depth, since: now, run, calls });
            }
            EventBody::ItemStarted { item } if depth == 0 && item.kind == ItemKind::AgentMessage => {
                let who = event.agent.as_ref().map_or("the model", |agent| agent.id.as_str());
                let label = format!("{who} is thinking");
                let key = item.id.clone();
                self.open.push(Open { key, label, depth, since: now, run, calls: None });
            }
            // Text that comes is progress enough.
            EventBody::ItemUpdated { id, .. } => return self.close(id),
            EventBody::ItemCompleted { item, .. } => return self.close(&item.id),
            EventBody::SubagentStarted { task } => {
                let agent = event.agent.as_ref()?;
                if self.stands_for(&agent.id, agent.parent.as_ref()) {
                    return None;
                }
                let label = format!("@{} {}", agent.id, short(&task.text, INPUT));
                let key = agent.invocation.to_string();
                self.open.push(Open { key, label, depth, since: now, run, calls: None });
            }
            EventBody::SubagentCompleted { .. } | EventBody::SubagentFailed { .. } => {
                return self.close(event.agent.as_ref()?.invocation.as_str());
            }
            EventBody::TurnStarted { .. } | EventBody::TurnCompleted { .. } => {
                self.open.clear();
                self.agents.clear();
            }
            _ => {}
        }
        None
    }

    /// Whether an entry for that sub-agent is there already.
    fn stands_for(&self, agent: &AgentId, parent: Option<&InvocationId>) -> bool {
        let Some(parent) = parent else { return false };
        self.agents.get(parent) == Some(agent)
            || self.open.iter().any(|open| {
                open.run.as_ref() == Some(parent) && open.calls.as_deref() == Some(agent.as_str())
            })
    }

    fn close(&mut self, key: &str) -> Option<String> {
        let at = self.open.iter().position(|open| open.key == key)?;
        Some(self.open.remove(at).label)
    }

    /// A line for each, in the order in which they began.
    pub fn lines(&self, now: Instant) -> Vec<String> {
        let line = |open: &Open| {
            let time = duration(u64::try_from((now - open.since).as_millis()).unwrap_or(u64::MAX));
            format!("{}{} … {time}", "  ".repeat(open.depth as usize), open.label)
        };
        self.open.iter().map(line).collect()
    }

    /// The innermost one.
    pub fn latest(&self) -> Option<&str> {
        self.open.last().map(|open| open.label.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn event(agent: Value, kind: &str, data: Value) -> Event {
        let event = json!({
            "seq": 1, "time": "2026-01-01T00:00:00Z", "session": "s", "agent": agent, "kind": kind, "data": data,
        });
        serde_json::from_value(event).expect("an event")
    }

    fn root() -> Value {
        json!({"id": "orchestrator", "invocation": "i-0", "depth": 0})
    }

    fn child(id: &str, run: &str, parent: &str, depth: u32) -> Value {
        json!({"id": id, "invocation": run, "parent": parent, "depth": depth})
    }

    fn text(text: &str) -> Value {
        json!({"text": text, "bytes": text.len()})
    }

    /// What is open after these events; the label that the last one ended.
    fn check(events: &[Event], lines: &[&str]) -> Option<String> {
        let now = Instant::now();
        let mut activity = Activity::default();
        let mut told = None;
        for event in events {
            told = activity.take(event, now);
        }
        assert_eq!(activity.lines(now + Duration::from_millis(1500)), lines);
        told
    }

    fn call(agent: Value, id: &str, name: &str, input: &str) -> Event {
        let item = json!({"id": id, "type": "tool_call", "name": name, "input": text(input)});
        event(agent, "interaction.item.started", json!({"item": item}))
    }

    #[test]
    fn a_running_tool_has_a_line_with_its_time_until_it_ends() {
        let began = call(root(), "e-1", "files_read", "{\"path\":\n\"a\"}");
        check(std::slice::from_ref(&began), &["files_read {\"path\": \"a\"} … 1.5 s"]);
        let item = json!({"id": "e-1", "type": "tool_call", "name": "files_read"});
        let ended = event(
            root(),
            "interaction.item.completed",
            json!({"item": item, "outcome": "ok", "elapsed_ms": 3}),
        );
        assert!(check(&[began, ended], &[]).is_some_and(|label| label.starts_with("files_read")));
    }

    #[test]
    fn a_sub_agent_that_was_called_as_a_tool_is_one_line() {
        let began = [
            call(root(), "e-1", "agent_builder", "{\"task\":\"make haiku\"}"),
            event(
                child("builder", "i-1", "i-0", 1),
                "interaction.subagent.started",
                json!({"task": text("make haiku")}),
            ),
            event(
                child("builder", "i-2", "i-1", 2),
                "interaction.subagent.started",
                json!({"task": text("make haiku")}),
            ),
            call(child("builder", "i-2", "i-1", 2), "e-2", "builder_draft", "{}"),
        ];
        check(&began, &["@builder make haiku … 1.5 s", "    builder_draft {} … 1.5 s"]);
    }

    #[test]
    fn a_sub_agent_without_a_call_has_a_line_of_its_own_and_its_end_is_told() {
        let child = || child("haiku", "i-1", "i-0", 1);
        let began = event(child(), "interaction.subagent.started", json!({"task": text("rust")}));
        check(std::slice::from_ref(&began), &["  @haiku rust … 1.5 s"]);
        let data = json!({"content": text("x"), "spend": {}});
        let ended = || event(child(), "interaction.subagent.completed", data.clone());
        assert_eq!(check(&[began, ended()], &[]).as_deref(), Some("@haiku rust"));
        assert_eq!(check(&[ended()], &[]), None);
    }

    #[test]
    fn a_model_thinks_until_its_text_comes() {
        let began = event(
            root(),
            "interaction.item.started",
            json!({"item": {"id": "m-1", "type": "agent_message"}}),
        );
        check(std::slice::from_ref(&began), &["orchestrator is thinking … 1.5 s"]);
        let delta = json!({"id": "m-1", "item": "agent_message", "delta": "x"});
        check(&[began, event(root(), "interaction.item.updated", delta)], &[]);
    }
}
