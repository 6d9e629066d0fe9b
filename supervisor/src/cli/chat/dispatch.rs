//! What a line does: a message is sent, a command is carried out.

use std::sync::Mutex;

use drupe_extension_api::{
    control::{
        SessionDetail, SessionShow, SpawnedArgument, SpawnedQuery, Status, TraceArgument, TurnTrace, UsageBy,
        UsageQuery, UsageRow, method,
    },
    wire::QueueMode,
};

use serde_json::Value;

use super::{
    commands::{self, COMMANDS, Command, QUEUE},
    follow::locked,
    plan::PlanView,
    screen::Screen,
    talk::{self, Talk},
};
use crate::cli::{
    agent,
    console::{Console, Style, plain, table},
    failure::Failure,
    open, session, trace, usage,
};

/// What comes after a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next one, once the turns that wait have ended.
    Read,
    /// The end: it is not known what became of the message.
    Leave,
    Quit,
}

pub fn dispatch(talk: &mut Talk<'_>, screen: &Mutex<Screen>, line: &str) -> Result<Next, Failure> {
    let text = match commands::parse(line) {
        None if line.trim().is_empty() => return Ok(Next::Read),
        None => line.to_owned(),
        Some(Err(error)) => return refuse(screen, &error.to_string()),
        Some(Ok(Command::Quit)) => return Ok(Next::Quit),
        // Who has the conversation is the daemon's to know.
        Some(Ok(Command::Back)) => line.trim().to_owned(),
        Some(Ok(Command::Retry)) => match talk.last() {
            Some(last) => last.to_owned(),
            None => return refuse(screen, "there is no message to ask again"),
        },
        Some(Ok(command)) => {
            carry_out(talk, screen, &command)?;
            return Ok(Next::Read);
        }
    };
    Ok(if talk.say(&text)? { Next::Read } else { Next::Leave })
}

/// The same while a turn runs: what would leave the turn behind has to wait.
pub fn dispatch_meanwhile(talk: &mut Talk<'_>, screen: &Mutex<Screen>, line: &str) -> Result<Next, Failure> {
    match commands::parse(line) {
        Some(Ok(Command::New | Command::Retry | Command::Back | Command::Sessions(Some(_)))) => {
            refuse(screen, "a turn runs; `/stop` stops it")
        }
        None if !line.trim().is_empty() => {
            let how = match talk.queue {
                None => "sent",
                Some(mode) => told(mode),
            };
            locked(screen).say(Style::Dim, &format!("› {} ({how})", plain(line)));
            dispatch(talk, screen, line)
        }
        _ => dispatch(talk, screen, line),
    }
}

fn refuse(screen: &Mutex<Screen>, why: &str) -> Result<Next, Failure> {
    locked(screen).say(Style::Bad, why);
    Ok(Next::Read)
}

fn told(mode: QueueMode) -> &'static str {
    QUEUE.iter().find(|(_, known, _)| *known == mode).map_or("sent", |(_, _, help)| help)
}

fn carry_out(talk: &mut Talk<'_>, screen: &Mutex<Screen>, command: &Command) -> Result<(), Failure> {
    let colour = talk.colour();
    let say = |style, text: &str| locked(screen).say(style, text.trim_end());
    match command {
        Command::Stop(Some(handle)) => {
            let ask = SpawnedArgument { session: talk.session().clone(), handle: handle.clone() };
            match talk.daemon().call::<Value>(method::SPAWNED_STOP, &ask) {
                Ok(_) => say(Style::Dim, &format!("{handle} has ended")),
                Err(failure) => say(Style::Bad, &failure.to_string()),
            }
        }
        Command::Tell { handle, text } => talk.tell(handle.clone(), text.clone()),
        Command::Stop(None) => match talk.stop_running()? {
            true => say(Style::Dim, "the turn is being stopped"),
            false => say(Style::Dim, "no turn runs"),
        },
        Command::Plan => match plan(talk, screen)? {
            Some(plan) => say(Style::Plain, &plan.lines().join("\n")),
            None => say(Style::Dim, "no plan was made in this session"),
        },
        Command::Usage => {
            let by = UsageBy::Model;
            let query = UsageQuery { since: None, by, session: Some(talk.session().clone()) };
            let rows: Vec<UsageRow> = talk.daemon().call(method::USAGE_SHOW, &query)?;
            match rows.is_empty() {
                true => say(Style::Dim, "nothing was used in this session"),
                false => say(Style::Plain, &usage::render(&rows, by, colour)),
            }
        }
        Command::Trace(number) => {
            // The last one, where none is named.
            let argument = TraceArgument { id: talk.session().to_string(), turn: Some(number.unwrap_or(-1)) };
            let traces: Vec<TurnTrace> = talk.daemon().call(method::TRACE_SHOW, &argument)?;
            say(Style::Plain, &trace::render(&traces, colour, Console::columns()));
        }
        Command::Queue(mode) => queue(talk, *mode, &say),
        Command::Agents => {
            say(Style::Plain, &agent::lines(&talk.daemon().get::<Vec<_>>(method::AGENTS_LIST)?));
            let personas = talk.personas()?;
            if !personas.is_empty() {
                say(Style::Plain, &table(&personas));
            }
        }
        Command::Who => {
            let status: Status = talk.daemon().get(method::STATUS)?;
            let who = talk.agent.clone().or_else(|| talk.answered_by());
            let who = who.map_or("the orchestrator".to_owned(), |agent| format!("@{agent}"));
            let model = status.model.unwrap_or_else(|| "no model yet".into());
            let session = talk.session();
            say(Style::Plain, &format!("{who} answers in session {session}; the default model is {model}"));
            let query = SpawnedQuery { session: Some(session.clone()) };
            let beside: Vec<_> = talk.daemon().call(method::SPAWNED_LIST, &query)?;
            if !beside.is_empty() {
                say(Style::Plain, &session::beside(&beside));
            }
        }
        // A page keeps what stands behind the `#` of the link that led to it.
        Command::Open => match open::link(&talk.daemon(), open::PAGE) {
            Ok(link) => say(Style::Plain, &format!("{link}{}", talk.place())),
            Err(failure) => say(Style::Bad, &failure.to_string()),
        },
        Command::New => {
            let fresh = talk::fresh()?;
            say(Style::Dim, &format!("session {fresh}"));
            talk.go(fresh)?;
        }
        Command::Sessions(None) => {
            let list: Vec<_> = talk.daemon().get(method::SESSIONS_LIST)?;
            say(Style::Plain, &session::lines(&list));
        }
        Command::Sessions(Some(id)) => {
            say(Style::Dim, &format!("session {id}"));
            talk.go(id.clone())?;
        }
        Command::Help => {
            let lines: Vec<_> =
                COMMANDS.iter().map(|(name, help)| vec![(*name).to_owned(), (*help).to_owned()]).collect();
            say(Style::Plain, &table(&lines));
        }
        // Those that are messages, or the end, do not come here.
        Command::Retry | Command::Back | Command::Quit => {}
    }
    Ok(())
}

fn queue(talk: &mut Talk<'_>, mode: Option<QueueMode>, say: &dyn Fn(Style, &str)) {
    talk.queue = mode.or(talk.queue);
    let text = match talk.queue {
        None => {
            "a message that is typed while a turn runs: as `inbox.queue` of the configuration says".to_owned()
        }
        Some(mode) => format!("a message that is typed while a turn runs: {}", told(mode)),
    };
    say(Style::Dim, &text);
}

/// The last plan: of what was heard, else of what the session keeps.
fn plan(talk: &Talk<'_>, screen: &Mutex<Screen>) -> Result<Option<PlanView>, Failure> {
    let heard = locked(screen).renderer.plan().cloned();
    if heard.is_some() {
        return Ok(heard);
    }
    // A session that nobody has talked in does not exist.
    if talk.last().is_none() {
        return Ok(None);
    }
    let told = talk.daemon().events(talk.session())?.iter().rev().find_map(PlanView::of);
    if told.is_some() {
        return Ok(told);
    }
    // What told of it is deleted after a while.
    let ask = SessionShow { id: talk.session().to_string(), after: Some(u64::MAX), brief: true };
    let session: SessionDetail = talk.daemon().call(method::SESSIONS_SHOW, &ask)?;
    Ok(session.snapshot.plans.values().max_by_key(|plan| plan.after_turns).and_then(PlanView::of_kept))
}
