//! What goes on in a session at the moment, from its events: the model's thinking, tools, sub-agents.
//!
//! Pure: events and the time come in, lines come out. Where an agent is called through its tool, or hands its task on
//! to its own loop, the same work has several events and is one entry here.

use std::{collections::BTreeMap, time::Instant};

use drupe_extension_api::{AgentId, Event, EventBody, InvocationId, Item, ItemKind};

use super::{
    console::{cut, duration, plain, short, width},
    figures::count,
};

/// Characters of a call's parameters, or of a task, that are shown.
const INPUT: usize = 60;

/// The least that a label is cut to, in columns.
const LABEL: usize = 8;

/// Characters of what a call or a model says meanwhile that are shown, and kept.
const SAID: usize = 60;

/// The open work of a session.
#[derive(Debug, Default)]
pub struct Activity {
    open: Vec<Open>,
    runs: BTreeMap<InvocationId, Running>,
}

#[derive(Debug)]
struct Running {
    agent: AgentId,
    parent: Option<InvocationId>,
    /// Of its model calls, and of those of the runs below it.
    tokens: u64,
}

#[derive(Debug)]
struct Open {
    key: String,
    label: String,
    depth: u32,
    since: Instant,
    run: Option<InvocationId>,
    calls: Option<String>,
    /// The run that it stands for, whose tokens it shows.
    works: Option<InvocationId>,
    /// The end of what it says meanwhile.
    said: String,
}

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

/// Whether it is a call, and not text or a plan.
pub fn is_call(item: &Item) -> bool {
    !matches!(item.kind, ItemKind::AgentMessage | ItemKind::Reasoning | ItemKind::Error | ItemKind::TodoList)
}

/// Whether it is the call by which an agent shows its plan: the plan is shown instead.
pub fn is_plan(item: &Item) -> bool {
    item.name.as_deref() == Some("update_plan")
}

impl Activity {
    /// Takes an event in. Gives the label of the work that it ends; none for work that another entry stands for.
    pub fn take(&mut self, event: &Event, now: Instant) -> Option<String> {
        let depth = event.agent.as_ref().map_or(0, |agent| agent.depth);
        let run = event.agent.as_ref().map(|agent| agent.invocation.clone());
        if let Some(agent) = &event.agent {
            self.runs.entry(agent.invocation.clone()).or_insert_with(|| Running {
                agent: agent.id.clone(),
                parent: agent.parent.clone(),
                tokens: 0,
            });
        }
        let open = |key: &str, label: String, calls: Option<String>, works: Option<InvocationId>| Open {
            key: key.to_owned(),
            label,
            depth,
            since: now,
            run: run.clone(),
            calls,
            works,
            said: String::new(),
        };
        match &event.body {
            EventBody::ItemStarted { item } if is_call(item) && !is_plan(item) => {
                let calls = item.name.as_deref().and_then(|name| name.strip_prefix("agent_"));
                self.open.push(open(&item.id, label(item), calls.map(str::to_owned), None));
            }
            EventBody::ItemStarted { item } if depth == 0 && item.kind == ItemKind::AgentMessage => {
                let who = event.agent.as_ref().map_or("the model", |agent| agent.id.as_str());
                self.open.push(open(&item.id, format!("{who} is thinking"), None, run.clone()));
            }
            EventBody::ItemUpdated { id, item: ItemKind::AgentMessage, .. } => {
                // Text that comes is progress enough.
                return self.close(id);
            }
            EventBody::ItemUpdated { id, item, delta } => self.say(id, *item, run.as_ref(), delta),
            EventBody::ItemCompleted { item, .. } => return self.close(&item.id),
            EventBody::ModelAttempt { usage, .. } => self.charge(run.as_ref(), usage.total()),
            EventBody::SubagentStarted { task } => {
                let agent = event.agent.as_ref()?;
                if self.stands_for(&agent.id, &agent.invocation, agent.parent.as_ref()) {
                    return None;
                }
                let label = format!("@{} {}", agent.id, short(&task.text, INPUT));
                self.open.push(open(agent.invocation.as_str(), label, None, run.clone()));
            }
            EventBody::SubagentCompleted { .. } | EventBody::SubagentFailed { .. } => {
                return self.close(event.agent.as_ref()?.invocation.as_str());
            }
            EventBody::TurnStarted { .. } | EventBody::TurnCompleted { .. } => {
                self.open.clear();
                self.runs.clear();
            }
            _ => {}
        }
        None
    }

    /// Whether an entry for that sub-agent is there already; a call that began it shows its tokens from then on.
    fn stands_for(&mut self, agent: &AgentId, run: &InvocationId, parent: Option<&InvocationId>) -> bool {
        let Some(parent) = parent else { return false };
        if self.runs.get(parent).is_some_and(|parent| parent.agent == *agent) {
            return true;
        }
        let mut calls = self.open.iter_mut().filter(|open| {
            open.run.as_ref() == Some(parent) && open.calls.as_deref() == Some(agent.as_str())
        });
        // Calls of the same agent side by side: each run has one of its own.
        let Some(call) = calls.find(|open| open.works.is_none()) else { return calls.next().is_some() };
        call.works = Some(run.clone());
        true
    }

    /// Tokens count for a run and all above it.
    fn charge(&mut self, run: Option<&InvocationId>, tokens: u64) {
        let mut at = run.cloned();
        // A tree is no deeper than it has runs; a forged ring would have no end.
        for _ in 0..self.runs.len() {
            let Some(running) = at.and_then(|run| self.runs.get_mut(&run)) else { return };
            running.tokens += tokens;
            at = running.parent.clone();
        }
    }

    /// What a tool shows meanwhile, or what a model reasons.
    fn say(&mut self, id: &str, item: ItemKind, run: Option<&InvocationId>, delta: &str) {
        let open = match item {
            ItemKind::TodoList => None,
            // Reasoning may be an item of its own, within the model's call.
            ItemKind::Reasoning => {
                self.open.iter_mut().find(|open| open.calls.is_none() && open.works.as_ref() == run)
            }
            _ => self.open.iter_mut().find(|open| open.key == id),
        };
        if let Some(open) = open {
            open.said.push_str(delta);
            let long = open.said.chars().count().saturating_sub(SAID);
            open.said = open.said.chars().skip(long).collect();
        }
    }

    fn close(&mut self, key: &str) -> Option<String> {
        let at = self.open.iter().position(|open| open.key == key)?;
        Some(self.open.remove(at).label)
    }

    /// A line for each, in the order in which they began. Names give way, so that the figures fit into so many columns.
    pub fn lines(&self, now: Instant, columns: usize) -> Vec<String> {
        let line = |open: &Open| {
            let time = duration(u64::try_from((now - open.since).as_millis()).unwrap_or(u64::MAX));
            let tokens = open.works.as_ref().and_then(|run| self.runs.get(run)).map_or(0, |run| run.tokens);
            let tokens = if tokens > 0 { format!(", {} tokens", count(tokens)) } else { String::new() };
            let said = plain(&open.said.split_whitespace().collect::<Vec<_>>().join(" "));
            let said = if said.is_empty() { said } else { format!(": {said}") };
            let figures = format!(" … {time}{tokens}");
            let indent = "  ".repeat(open.depth as usize);
            let room = columns.saturating_sub(indent.len() + width(&figures)).max(LABEL);
            format!("{indent}{}{figures}{said}", cut(&open.label, room))
        };
        self.open.iter().map(line).collect()
    }

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
        assert_eq!(activity.lines(now + Duration::from_millis(1500), 500), lines);
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

    fn attempt(agent: Value, tokens: u64) -> Event {
        let data = json!({"step": 1, "attempt": 1, "model": "m", "usage": {"input_tokens": tokens}, "latency_ms": 1,
                          "stop": "stop"});
        event(agent, "interaction.model.attempt", data)
    }

    #[test]
    fn a_sub_agents_line_has_the_tokens_of_all_below_it_so_far() {
        let began = |run: &str| {
            event(
                child("haiku", run, "i-0", 1),
                "interaction.subagent.started",
                json!({"task": text("rust")}),
            )
        };
        let events = [
            attempt(root(), 100),
            call(root(), "e-1", "agent_haiku", "{\"task\":\"a\"}"),
            call(root(), "e-2", "agent_haiku", "{\"task\":\"b\"}"),
            began("i-1"),
            began("i-2"),
            attempt(child("haiku", "i-1", "i-0", 1), 1200),
            attempt(child("helper", "i-3", "i-1", 2), 34),
            attempt(child("haiku", "i-2", "i-0", 1), 5),
        ];
        check(&events, &["@haiku a … 1.5 s, 1,234 tokens", "@haiku b … 1.5 s, 5 tokens"]);
    }

    #[test]
    fn a_long_label_gives_way_to_its_figures() {
        let now = Instant::now();
        let mut activity = Activity::default();
        activity.take(&call(root(), "e-1", "agent_haiku", "{\"task\":\"a poem on rust\"}"), now);
        activity.take(&call(child("haiku", "i-1", "i-0", 1), "e-2", "a_tool_with_a_long_name", "{}"), now);
        let lines = activity.lines(now + Duration::from_millis(1500), 24);
        assert_eq!(lines, ["@haiku a poem o… … 1.5 s", "  a_tool_with_a… … 1.5 s"]);
        let lines = activity.lines(now + Duration::from_millis(1500), 4);
        assert_eq!(lines, ["@haiku … … 1.5 s", "  a_tool_… … 1.5 s"]);
    }

    #[test]
    fn what_a_tool_shows_meanwhile_stands_at_its_end_and_does_not_end_it() {
        let said = |delta: &str| {
            let data = json!({"id": "e-1", "item": "command_execution", "delta": delta});
            event(root(), "interaction.item.updated", data)
        };
        let began = call(root(), "e-1", "shell_run", "{}");
        check(&[began.clone(), said("one\n"), said("two\u{1b}[2J")], &["shell_run {} … 1.5 s: one two[2J"]);
        let long = "x".repeat(200);
        check(&[began, said(&long)], &[&format!("shell_run {{}} … 1.5 s: {}", "x".repeat(60))]);
    }

    #[test]
    fn reasoning_is_shown_with_the_model_that_thinks_and_a_plan_is_no_call() {
        let item = |id: &str, kind: &str| {
            event(root(), "interaction.item.started", json!({"item": {"id": id, "type": kind}}))
        };
        let reasons = json!({"id": "r-1", "item": "reasoning", "delta": "who can?"});
        let reasons = event(root(), "interaction.item.updated", reasons);
        let plan = json!({"id": "p-1", "item": "todo_list", "delta": "[]"});
        let plan = event(root(), "interaction.item.updated", plan);
        let events =
            [item("m-1", "agent_message"), item("r-1", "reasoning"), reasons, item("p-1", "todo_list"), plan];
        check(&events, &["orchestrator is thinking … 1.5 s: who can?"]);
    }
}
