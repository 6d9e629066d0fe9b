//! `drupe session`: what was said, with the tree of sub-agent runs.

mod export;

use drupe_extension_api::{
    AgentId, InvocationId, Message, ResponseStatus, SessionId,
    control::{
        InvocationRecord, Named, SessionDetail, SessionShow, SessionStatus, SpawnedArgument, SpawnedQuery,
        SpawnedStatus, SpawnedTell, TranscriptEntry, TurnResult, method,
    },
};
use serde::Serialize;
use serde_json::Value;

use super::{
    Context, Facts,
    client::Daemon,
    console::{Style, plain, short, table},
    failure::Failure,
    figures::{many, spent},
};

/// Characters of a tool's result that are shown; `--json` has all.
const RESULT: usize = 100;

/// The verbs of `drupe session`.
#[derive(Debug, clap::Subcommand)]
pub enum Session {
    /// List the sessions
    List(Facts),
    /// Show a session: its turns, with what agents and tools did
    Show(Show),
    /// Print everything about a session, or write it to a file: transcripts, events, traces
    Export(export::Export),
    /// Stop a session's running turn and those that wait, or one agent that works beside it
    Stop(Stop),
    /// List the agents that work beside running turns
    Agents(Beside),
    /// Tell an agent that works beside a turn more: it reads it between two steps
    Tell(Tell),
}

/// What `drupe session stop` is told.
#[derive(Debug, clap::Args)]
pub struct Stop {
    /// The session whose turns are stopped
    id: SessionId,
    /// End this agent alone: its handle, as `drupe session agents` shows it
    #[arg(long, value_name = "HANDLE")]
    agent: Option<String>,
    #[command(flatten)]
    facts: Facts,
}

/// What `drupe session agents` is told.
#[derive(Debug, clap::Args)]
pub struct Beside {
    /// Only those of this session
    id: Option<SessionId>,
    #[command(flatten)]
    facts: Facts,
}

/// What `drupe session tell` is told.
#[derive(Debug, clap::Args)]
pub struct Tell {
    /// The session in which it works
    id: SessionId,
    /// The agent's handle, as `drupe session agents` shows it
    handle: String,
    /// What it is told, in one argument
    text: String,
    #[command(flatten)]
    facts: Facts,
}

/// What `drupe session show` is told.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Its id
    id: String,
    #[command(flatten)]
    facts: Facts,
}

/// What `session stop --json` prints.
#[derive(Debug, Serialize)]
struct Stopped {
    stopped: u64,
}

impl Session {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::List(facts) => {
                let said: Value = context.daemon().get(method::SESSIONS_LIST)?;
                if facts.json {
                    return context.console.json(&said).map(|()| 0);
                }
                let list: Vec<SessionStatus> = serde_json::from_value(said)?;
                match list.is_empty() {
                    true => context.console.remark("there are no sessions yet"),
                    false => context.console.draw(&lines(&list))?,
                }
            }
            Self::Show(Show { id, facts }) => {
                let said = whole(&context.daemon(), &id, false)?;
                if facts.json {
                    return context.console.json(&said).map(|()| 0);
                }
                let detail: SessionDetail = serde_json::from_value(said)?;
                context.console.draw(&render(&detail, context.console.colour))?;
            }
            Self::Export(export) => return export.execute(context),
            Self::Agents(Beside { id, facts }) => {
                let said: Value =
                    context.daemon().call(method::SPAWNED_LIST, &SpawnedQuery { session: id })?;
                if facts.json {
                    return context.console.json(&said).map(|()| 0);
                }
                let list: Vec<SpawnedStatus> = serde_json::from_value(said)?;
                match list.is_empty() {
                    true => context.console.remark("no agent works beside a turn"),
                    false => context.console.draw(&beside(&list))?,
                }
            }
            Self::Tell(Tell { id: session, handle, text, facts }) => {
                let told = SpawnedTell { session, handle: handle.clone(), text };
                let said: Value = context.daemon().call(method::SPAWNED_TELL, &told)?;
                match facts.json {
                    true => context.console.json(&said)?,
                    false => context.console.remark(&format!("`{handle}` has read it")),
                }
            }
            Self::Stop(Stop { id, agent: Some(handle), facts }) => {
                let ask = SpawnedArgument { session: id, handle: handle.clone() };
                context.daemon().call::<Value>(method::SPAWNED_STOP, &ask)?;
                match facts.json {
                    true => context.console.json(&Stopped { stopped: 1 })?,
                    false => context.console.remark(&format!("`{handle}` has ended")),
                }
            }
            Self::Stop(Stop { id, agent: None, facts }) => {
                let stopped: u64 =
                    context.daemon().call(method::SESSIONS_STOP, &Named { id: id.to_string() })?;
                if stopped == 0 {
                    exists(&context.daemon(), id.as_str())?;
                }
                match (facts.json, stopped) {
                    (true, _) => context.console.json(&Stopped { stopped })?,
                    (false, 0) => context.console.remark("no turn ran or waited"),
                    (false, _) => {
                        let turns = many(stopped, "turn is", "turns are");
                        context.console.remark(&format!("{turns} being stopped"));
                    }
                }
            }
        }
        Ok(0)
    }
}

/// Agents that work beside turns, a line each.
pub fn beside(list: &[SpawnedStatus]) -> String {
    let row = |one: &SpawnedStatus| {
        vec![one.handle.clone(), format!("@{}", one.agent), one.state.clone(), plain(one.session.as_str())]
    };
    table(&list.iter().map(row).collect::<Vec<_>>())
}

/// Fails where there is no such session: that nothing is found of a name that was mistyped says nothing.
pub fn exists(daemon: &Daemon<'_>, id: &str) -> Result<(), Failure> {
    let ask = SessionShow { id: id.to_owned(), after: None, brief: true };
    daemon.call::<Value>(method::SESSIONS_SHOW, &ask).map(drop)
}

/// A session with all its turns, which come in pages.
pub fn whole(daemon: &Daemon<'_>, id: &str, brief: bool) -> Result<Value, Failure> {
    let mut ask = SessionShow { id: id.to_owned(), after: None, brief };
    let mut session: Value = daemon.call(method::SESSIONS_SHOW, &ask)?;
    while let Some(next) = session["next"].as_u64() {
        ask.after = Some(next);
        let mut page: Value = daemon.call(method::SESSIONS_SHOW, &ask)?;
        if let (Some(turns), Some(more)) = (session["turns"].as_array_mut(), page["turns"].as_array_mut()) {
            turns.append(more);
        }
        session["next"] = page["next"].take();
    }
    if let Some(fields) = session.as_object_mut() {
        fields.remove("next");
    }
    Ok(session)
}

pub fn lines(list: &[SessionStatus]) -> String {
    let row = |session: &SessionStatus| {
        let turns = many(session.turn_count, "turn", "turns");
        // A tenth of a second is of no interest here.
        let updated = session.updated.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        vec![session.id.to_string(), turns, updated, short(&session.title, 60)]
    };
    table(&list.iter().map(row).collect::<Vec<_>>())
}

fn render(detail: &SessionDetail, colour: bool) -> String {
    let SessionStatus { id, created, .. } = &detail.status;
    let agent =
        answered_by(&detail.status).map(|agent| format!(", answered by @{agent}")).unwrap_or_default();
    let mut text = format!("{} since {created}{agent}\n", Style::Bold.paint(id.as_str(), colour));
    if let Some(gone) = gone(detail) {
        text.push_str(&format!("{gone}\n"));
    }
    if let Some(summary) = &detail.summary {
        let older = "Of its older turns the orchestrator is told this:";
        text.push_str(&format!("\n{}\n", Style::Dim.paint(older, colour)));
        summary.lines().for_each(|line| text.push_str(&format!("  {}\n", plain(line))));
    }
    for turn in &detail.turns {
        text.push_str(&format!("\n{}\n", Style::Bold.paint(&format!("› {}", plain(&turn.input)), colour)));
        // More than one where the conversation went from one agent to another.
        let roots = turn.invocations.iter().filter(|run| run.depth == 0);
        for (nth, root) in roots.enumerate() {
            if nth > 0 {
                text.push_str(&format!("  {}\n", Style::Bold.paint(&format!("@{}", root.agent), colour)));
            }
            below(turn, root, colour, &mut text);
        }
        text.push_str(&ending(turn, colour));
    }
    text
}

/// The agent that answers what is written in a session; none for the orchestrator.
pub fn answered_by(session: &SessionStatus) -> Option<&AgentId> {
    session.agent.as_ref().or(session.handoff.as_ref().map(|handoff| &handoff.agent))
}

/// What is said of turns that are not there any more.
pub fn gone(detail: &SessionDetail) -> Option<String> {
    match let_go(detail) {
        0 => None,
        1 => Some("its first turn is deleted, as `journal.retention` says".into()),
        many => Some(format!("its first {many} turns are deleted, as `journal.retention` says")),
    }
}

/// Turns that are not there any more. The detail holds all that are.
pub fn let_go(detail: &SessionDetail) -> u64 {
    detail.status.turn_count.saturating_sub(detail.turns.len() as u64)
}

/// The entries of a run, each child after the call that began it, as far as that shows: children come in their order.
fn below(turn: &TurnResult, run: &InvocationRecord, colour: bool, text: &mut String) {
    let indent = "  ".repeat(run.depth as usize + 1);
    let mut children = turn.invocations.iter().filter(|child| child.parent.as_ref() == Some(&run.id));
    for entry in entries(turn, &run.id) {
        match &entry.message {
            // The turn's own message is above it.
            Message::User { .. } if run.depth == 0 => {}
            Message::User { content } => {
                text.push_str(&format!(
                    "{indent}{}\n",
                    Style::Dim.paint(&format!("task: {}", short(content, RESULT)), colour)
                ));
            }
            Message::Assistant { content, tool_calls, .. } => {
                for line in plain(content).lines() {
                    text.push_str(&format!("{indent}{line}\n"));
                }
                for call in tool_calls {
                    let call = format!("→ {} {}", short(&call.name, RESULT), short(&call.arguments, RESULT));
                    text.push_str(&format!("{indent}{}\n", Style::Dim.paint(&call, colour)));
                }
            }
            Message::Tool { name, content, .. } => {
                if let Some(child) = children.next() {
                    head(turn, child, colour, text);
                }
                let result = format!("← {}: {}", short(name, RESULT), short(content, RESULT));
                text.push_str(&format!("{indent}{}\n", Style::Dim.paint(&result, colour)));
            }
        }
    }
    for child in children {
        head(turn, child, colour, text);
    }
}

fn head(turn: &TurnResult, run: &InvocationRecord, colour: bool, text: &mut String) {
    let indent = "  ".repeat(run.depth as usize);
    let steps = many(run.turns_used.into(), "step", "steps");
    let spent = format!("{steps}, {}", many(run.tokens_used, "token", "tokens"));
    text.push_str(&format!("{indent}{} {spent}\n", Style::Bold.paint(&format!("@{}", run.agent), colour)));
    below(turn, run, colour, text);
}

fn entries<'a>(turn: &'a TurnResult, run: &'a InvocationId) -> impl Iterator<Item = &'a TranscriptEntry> {
    turn.transcript.iter().filter(move |entry| &entry.invocation == run)
}

fn ending(turn: &TurnResult, colour: bool) -> String {
    let spent = spent(&turn.spend);
    let (style, line) = match turn.status {
        None => (Style::Warning, "it runs, or waits".to_owned()),
        Some(ResponseStatus::Success) => (Style::Dim, spent),
        Some(_) => {
            let error = turn.error.as_deref().unwrap_or("failed");
            (Style::Bad, format!("{} ({spent})", plain(error)))
        }
    };
    format!("  {}\n", style.paint(&line, colour))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sub_agents_run_stands_within_the_call_that_began_it() {
        let run = |id: &str, agent: &str, parent: Option<&str>, depth: u32| {
            json!({
                "id": id, "agent": agent, "parent": parent, "depth": depth, "status": "success", "usage": {},
                "tokens_used": 7, "turns_used": 1,
            })
        };
        let entry = |run: &str, rest: serde_json::Value| {
            let mut entry = json!({"invocation": run, "agent": "a"});
            for (key, value) in rest.as_object().expect("an object") {
                entry[key] = value.clone();
            }
            entry
        };
        let call = json!([{"call_id": "c", "name": "agent_haiku", "arguments": "{\"task\":\"rust\"}"}]);
        let mut detail = json!({
            "id": "s", "created": "2026-01-01T00:00:00Z", "updated": "2026-01-01T00:00:00Z", "agent": null,
            "title": "x", "turn_count": 1, "last_seq": 9,
        });
        detail["turns"] = json!([{
            "session": "s", "turn": "t", "input": "a haiku", "status": "success", "content": "done", "spend": {},
            "invocations": [run("i-0", "orchestrator", None, 0), run("i-1", "haiku", Some("i-0"), 1)],
            "transcript": [
                entry("i-0", json!({"role": "user", "content": "a haiku"})),
                entry("i-0", json!({"role": "assistant", "content": "", "tool_calls": call})),
                entry("i-1", json!({"role": "user", "content": "rust"})),
                entry("i-1", json!({"role": "assistant", "content": "old crab"})),
                entry("i-0", json!({"role": "tool", "call_id": "c", "name": "agent_haiku", "status": "ok", "content": "old crab"})),
                entry("i-0", json!({"role": "assistant", "content": "done"})),
            ],
            "diagnostics": [], "trace": "c",
        }]);
        let parsed: Result<SessionDetail, _> = serde_json::from_value(detail);
        let Ok(detail) = parsed else { panic!("{parsed:?}") };
        let expected = "s since 2026-01-01T00:00:00Z\n\n› a haiku\n  → agent_haiku {\"task\":\"rust\"}\n  @haiku 1 step, 7 \
                        tokens\n    task: rust\n    old crab\n  ← agent_haiku: old crab\n  done\n  0 ms, 0 tokens\n";
        assert_eq!(render(&detail, false), expected);
    }
}
