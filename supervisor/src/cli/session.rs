//! `drupe session`: what was said, with the tree of sub-agent runs.

mod export;

use std::{
    fs,
    io::{self, BufRead, IsTerminal, Write},
};

use drupe_extension_api::{
    AgentId, InvocationId, Message, ResponseStatus, SessionId,
    control::{
        ArchivedTurn, DeletedSession, InvocationRecord, Named, SessionDetail, SessionShow, SessionStatus,
        SpawnedArgument, SpawnedQuery, SpawnedStatus, SpawnedTell, TranscriptEntry, TurnResult, method,
    },
};
use serde::Serialize;
use serde_json::Value;

use super::{
    Context, Facts,
    client::Daemon,
    console::{Style, plain, short, table},
    failure::{Failure, status},
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
    /// Delete a session for good: all that was said and recorded in it
    Delete(Delete),
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

/// What `drupe session delete` is told.
#[derive(Debug, clap::Args)]
pub struct Delete {
    /// The session that is deleted
    id: SessionId,
    /// Do not ask whether it is meant
    #[arg(long)]
    yes: bool,
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
                let mut said = whole(&context.daemon(), &id, false)?;
                let detail: SessionDetail = serde_json::from_value(said.clone())?;
                let archive = Archive::of(&detail, context)?;
                if facts.json {
                    if let Some(archive) = &archive {
                        said["archived_turns"] = serde_json::to_value(&archive.turns)?;
                    }
                    return context.console.json(&said).map(|()| 0);
                }
                context.console.draw(&render(&detail, archive.as_ref(), context.console.colour))?;
            }
            Self::Delete(delete) => return delete.execute(context),
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

/// Turns that are in a file alone.
struct Archive {
    file: String,
    turns: Vec<ArchivedTurn>,
}

impl Archive {
    /// Reads the file of a session; none where there is none, or nothing in it that is not in the journal too.
    fn of(detail: &SessionDetail, context: &Context) -> Result<Option<Self>, Failure> {
        let Some(file) = detail.archived.clone() else { return Ok(None) };
        let unread = |error: io::Error| Failure::new(status::IO, format!("`{file}` cannot be read: {error}"));
        let mut turns: Vec<ArchivedTurn> = Vec::new();
        let mut unclear = 0;
        for line in io::BufReader::new(fs::File::open(&file).map_err(unread)?).split(b'\n') {
            let line = line.map_err(unread)?;
            if line.is_empty() {
                continue;
            }
            match serde_json::from_slice::<ArchivedTurn>(&line) {
                // Twice, where a kernel ended between the writing and the deleting.
                Ok(turn) if turn.form == ArchivedTurn::FORM => {
                    let is_same = |other: &TurnResult| other.turn == turn.result.turn;
                    if !turns.iter().any(|other| is_same(&other.result)) && !detail.turns.iter().any(is_same)
                    {
                        turns.push(turn);
                    }
                }
                _ => unclear += 1,
            }
        }
        if unclear > 0 {
            let lines = many(unclear, "line", "lines");
            context.console.remark(&format!("{lines} of {file} cannot be read and are left out"));
        }
        Ok((!turns.is_empty()).then_some(Self { file, turns }))
    }
}

impl Delete {
    fn execute(self, context: &Context) -> Result<u8, Failure> {
        let Self { id, yes, facts } = self;
        if !yes && !is_meant(&id, context)? {
            return Ok(status::FAILED);
        }
        let said: Value = context.daemon().call(method::SESSIONS_DELETE, &Named { id: id.to_string() })?;
        if facts.json {
            return context.console.json(&said).map(|()| 0);
        }
        let deleted: DeletedSession = serde_json::from_value(said)?;
        let mut parts = vec![
            many(deleted.turns, "turn", "turns"),
            many(deleted.records, "record", "records"),
            many(deleted.deliveries, "message to people", "messages to people"),
        ];
        let others = deleted.sessions.len().saturating_sub(1) as u64;
        if others > 0 {
            parts.push(many(others, "session of a spawned agent", "sessions of spawned agents"));
        }
        context.console.remark(&format!(
            "`{id}` is deleted: {}; sums of use stay, and so does what backups have of it",
            parts.join(", ")
        ));
        Ok(0)
    }
}

/// Asks whoever sits there. Where nobody does, `--yes` has to say it.
fn is_meant(id: &SessionId, context: &Context) -> Result<bool, Failure> {
    let ask = SessionShow { id: id.to_string(), after: None, brief: true };
    let detail: SessionDetail = context.daemon().call(method::SESSIONS_SHOW, &ask)?;
    if !io::stdin().is_terminal() {
        return Err(Failure::new(
            status::FAILED,
            format!("`{id}` is not deleted: nobody is there to be asked"),
        )
        .help("give `--yes`"));
    }
    let turns = many(detail.status.turn_count, "turn", "turns");
    let _ = write!(io::stderr(), "Delete `{id}` with {turns}, for good? [yes | no] ");
    let mut said = String::new();
    io::stdin().read_line(&mut said)?;
    Ok(matches!(said.trim(), "yes" | "y"))
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

fn render(detail: &SessionDetail, archive: Option<&Archive>, colour: bool) -> String {
    let SessionStatus { id, created, .. } = &detail.status;
    let agent =
        answered_by(&detail.status).map(|agent| format!(", answered by @{agent}")).unwrap_or_default();
    let mut text = format!("{} since {created}{agent}\n", Style::Bold.paint(id.as_str(), colour));
    let archived = archive.map_or(&[][..], |archive| &archive.turns);
    if let Some(archive) = archive {
        let turns = many(archived.len() as u64, "turn is", "turns are");
        text.push_str(&format!("its first {turns} archived, in {}\n", plain(&archive.file)));
    }
    if let Some(gone) = gone(detail).filter(|_| let_go(detail) > archived.len() as u64) {
        text.push_str(&format!("{gone}\n"));
    }
    if let Some(summary) = &detail.summary {
        let older = "Of its older turns the orchestrator is told this:";
        text.push_str(&format!("\n{}\n", Style::Dim.paint(older, colour)));
        summary.lines().for_each(|line| text.push_str(&format!("  {}\n", plain(line))));
    }
    let archived = archived.iter().map(|turn| (&turn.result, " (archived)"));
    for (turn, mark) in archived.chain(detail.turns.iter().map(|turn| (turn, ""))) {
        let input = Style::Bold.paint(&format!("› {}", plain(&turn.input)), colour);
        text.push_str(&format!("\n{input}{}\n", Style::Dim.paint(mark, colour)));
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
        assert_eq!(render(&detail, None, false), expected);
    }
}
