//! `drupe chat`: a conversation at a terminal, or over a pipe.
//!
//! While a turn runs, the screen has the terminal: the answer streams, what goes on has live lines, and what is typed
//! stands below them. Otherwise the line editor has it, and news appears above its line. One thread hears the session's
//! events over restarts of the kernel; this one reads the keyboard.

mod dispatch;
mod talk;
mod terminal;

mod commands;
mod editor;
mod keyboard;
mod typing;

mod follow;
mod personas;
mod plan;
mod render;
mod screen;

use std::{
    io::{self, BufRead, IsTerminal},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
};

use drupe_extension_api::{
    AgentId, SessionId,
    control::{SessionPersonas, method},
};
use serde_json::Value;

use super::{
    Context,
    client::TICK,
    failure::{Failure, status},
    hangup,
    models::offline_notice,
    start,
    wait::Interrupt,
};
use dispatch::{Next, dispatch};
use screen::{Mode, Paper, Screen};
use talk::{Outcome, Talk};

/// The session of those who name none.
const MAIN: &str = "main";

/// Arguments of `drupe chat`.
#[derive(Debug, clap::Args)]
pub struct Chat {
    /// The conversation; `main` without it, and with --personas a new one
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// The agent that shall answer
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
    /// A file with agents that this new conversation alone has: a list of `name`, `prompt`, and more, in YAML or JSON
    #[arg(long, value_name = "FILE")]
    personas: Option<PathBuf>,
}

impl Chat {
    /// Chats with the running daemon.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let main = || SessionId::new(MAIN).map_err(|error| Failure::new(status::SOFTWARE, error.to_string()));
        let session = match (self.session, &self.personas) {
            (Some(session), _) => session,
            (None, None) => main()?,
            (None, Some(_)) => talk::fresh()?,
        };
        if let Some(file) = &self.personas {
            let given = SessionPersonas {
                session: session.clone(),
                personas: personas::read(&context.here.join(file))?,
            };
            context.daemon().call::<Value>(method::SESSION_PERSONAS, &given)?;
        }
        converse(context, &Interrupt::take()?, session, self.agent)
    }
}

/// `drupe` without a verb: the same with a daemon that is started where none runs.
pub fn with_daemon(keep: bool, context: &Context) -> Result<u8, Failure> {
    let interrupt = Interrupt::take()?;
    let _started = start::ensure(context, &interrupt, keep)?;
    let session = SessionId::new(MAIN).map_err(|error| Failure::new(status::SOFTWARE, error.to_string()))?;
    converse(context, &interrupt, session, None)
}

fn converse(
    context: &Context,
    interrupt: &Interrupt,
    session: SessionId,
    agent: Option<AgentId>,
) -> Result<u8, Failure> {
    let dumb = context.environment.text.get("TERM").is_none_or(|term| term == "dumb");
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb {
        terminal::converse(context, interrupt, session, agent)
    } else {
        over_a_pipe(context, interrupt, session, agent)
    }
}

/// A line a message, until there is no more. Fails if a turn did.
fn over_a_pipe(
    context: &Context,
    interrupt: &Interrupt,
    session: SessionId,
    agent: Option<AgentId>,
) -> Result<u8, Failure> {
    hangup::watch(interrupt, || {})?;
    if let Some(notice) = offline_notice(&context.daemon().heeding(interrupt)) {
        context.console.remark(notice);
    }
    let screen = Arc::new(Mutex::new(Screen::new(context.console, Mode::Pipe, Paper::default())));
    let mut talk = Talk::join(context, interrupt, session, agent, Arc::clone(&screen), None)?;
    let lines = lines()?;
    let mut status = 0;
    loop {
        let line = match lines.recv_timeout(TICK) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Disconnected) => return Ok(status),
            Err(RecvTimeoutError::Timeout) if interrupt.came() || interrupt.leaving() => {
                return Ok(status::INTERRUPTED);
            }
            Err(RecvTimeoutError::Timeout) => match talk.gone() {
                Some(failure) => return Err(failure),
                None => continue,
            },
        };
        match dispatch(&mut talk, &screen, &line)? {
            Next::Read => {}
            Next::Leave => return Ok(status::INTERRUPTED),
            Next::Quit => return Ok(status),
        }
        match talk.wait(None)? {
            Outcome::Ended(true) => {}
            Outcome::Ended(false) => status = status::FAILED,
            Outcome::Left | Outcome::Typed(_) => return Ok(status::INTERRUPTED),
        }
    }
}

/// The lines of the standard input, read on a thread of their own: reading waits for nothing else.
fn lines() -> Result<Receiver<io::Result<String>>, Failure> {
    let (sender, lines) = sync_channel(1);
    let read = move || {
        for line in io::stdin().lock().lines() {
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("lines".into())
        .spawn(read)
        .map_err(|error| Failure::new(status::SYSTEM, format!("a thread cannot be started: {error}")))?;
    Ok(lines)
}
