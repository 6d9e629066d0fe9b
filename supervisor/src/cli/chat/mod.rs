//! `drupe chat`: a conversation at a terminal, or over a pipe.
//!
//! While a turn runs, the screen has the terminal: the answer streams, and what goes on has live lines. Otherwise the
//! line editor has it, and news appears above its line. One thread hears the session's events over restarts of the
//! kernel; this one reads the keyboard.

mod talk;

mod commands;
mod editor;

mod follow;
mod render;
mod screen;

use std::{
    io::{self, BufRead, IsTerminal},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
};

use drupe_extension_api::{
    AgentId, SessionId,
    control::{Status, method},
};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::{
    Context, agent,
    client::{Daemon, TICK},
    console::Style,
    failure::{Failure, status},
    models::offline_notice,
    session, start,
    wait::Interrupt,
};
use commands::{COMMANDS, Command};
use editor::{Editor, Typed};
use follow::locked;
use screen::{Mode, Screen};
use talk::{Outcome, Talk};

/// The session of those who name none.
const MAIN: &str = "main";

/// Arguments of `drupe chat`.
#[derive(Debug, clap::Args)]
pub struct Chat {
    /// The conversation
    #[arg(long, value_name = "ID", default_value = MAIN)]
    session: SessionId,
    /// The agent that shall answer
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
}

impl Chat {
    /// Chats with the running daemon.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        converse(context, &Interrupt::take()?, self.session, self.agent)
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
    let dumb = context.environment.get("TERM").is_none_or(|term| term == "dumb");
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb {
        at_a_terminal(context, interrupt, session, agent)
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
    if let Some(notice) = offline_notice(&context.daemon()) {
        context.console.remark(notice);
    }
    let screen = Arc::new(Mutex::new(Screen::new(context.console, Mode::Pipe)));
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
        match react(&mut talk, &screen, &line)? {
            Next::Go(Some(false)) => status = status::FAILED,
            Next::Go(_) => {}
            Next::Leave => return Ok(status::INTERRUPTED),
            Next::Quit => return Ok(status),
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

fn at_a_terminal(
    context: &Context,
    interrupt: &Interrupt,
    session: SessionId,
    agent: Option<AgentId>,
) -> Result<u8, Failure> {
    let mut editor = Editor::new(context.home(), context.console.colour, interrupt)?;
    let screen = Arc::new(Mutex::new(Screen::new(context.console, Mode::Free)));
    greet(&context.daemon().heeding(interrupt), &session, &screen)?;
    let on_gone = Arc::new(editor.breaker());
    let mut talk = Talk::join(context, interrupt, session, agent, Arc::clone(&screen), Some(on_gone))?;
    let mut leaving = false;
    loop {
        locked(&screen).set_mode(Mode::Editor(editor.sender()));
        let typed = editor.read(talk.agent.as_ref());
        locked(&screen).set_mode(Mode::Free);
        // A Ctrl-C that came between the editor and the screen is about neither.
        interrupt.came();
        let line = match typed? {
            Typed::Line(line) => line,
            Typed::End => return Ok(0),
            Typed::Interrupt if leaving => return Ok(0),
            Typed::Interrupt => {
                leaving = true;
                locked(&screen).say(Style::Dim, "Ctrl-C again or Ctrl-D leaves");
                continue;
            }
            Typed::Broken => match talk.gone() {
                Some(failure) => return Err(failure),
                None if interrupt.leaving() => return Ok(status::INTERRUPTED),
                None => continue,
            },
        };
        leaving = false;
        let _quiet = Quiet::terminal();
        match react(&mut talk, &screen, &line) {
            Ok(Next::Go(_)) => {}
            Ok(Next::Leave | Next::Quit) => return Ok(0),
            // What one message caused is no reason to end the conversation, unless there is nobody left to talk to.
            Err(failure) if failure.status == status::ABSENT => return Err(failure),
            Err(failure) => locked(&screen).say(Style::Bad, failure.render(false).trim_end()),
        }
    }
}

fn greet(daemon: &Daemon<'_>, session: &SessionId, screen: &Mutex<Screen>) -> Result<(), Failure> {
    let status: Status = daemon.get(method::STATUS)?;
    let model = status.model.unwrap_or_else(|| "no model yet".into());
    let mut screen = locked(screen);
    screen.say(Style::Bold, &format!("drupe {} · {model} · session {session}", status.version));
    if let Some(notice) = offline_notice(daemon) {
        screen.say(Style::Warning, notice);
    }
    let help = "/help shows commands, @id asks an agent, Alt-Enter begins a new line, Ctrl-C stops a turn, Ctrl-D leaves";
    screen.say(Style::Dim, help);
    Ok(())
}

/// What comes after a line.
enum Next {
    /// The next one; whether the turn that it was succeeded.
    Go(Option<bool>),
    /// The end, with a turn that goes on.
    Leave,
    /// The end.
    Quit,
}

/// Does what a line says.
fn react(talk: &mut Talk<'_>, screen: &Mutex<Screen>, line: &str) -> Result<Next, Failure> {
    let say = |style, text: &str| locked(screen).say(style, text.trim_end());
    let text = match commands::parse(line) {
        None if line.trim().is_empty() => return Ok(Next::Go(None)),
        None => line.to_owned(),
        Some(Err(message)) => {
            say(Style::Bad, &message);
            return Ok(Next::Go(None));
        }
        Some(Ok(Command::Quit)) => return Ok(Next::Quit),
        Some(Ok(Command::Retry)) => match talk.last() {
            Some(last) => last.to_owned(),
            None => {
                say(Style::Bad, "there is no message to ask again");
                return Ok(Next::Go(None));
            }
        },
        Some(Ok(command)) => {
            obey(talk, &command, &say)?;
            return Ok(Next::Go(None));
        }
    };
    Ok(match talk.say(&text)? {
        Outcome::Ended(success) => Next::Go(Some(success)),
        Outcome::Left => Next::Leave,
    })
}

fn obey(talk: &mut Talk<'_>, command: &Command, say: &dyn Fn(Style, &str)) -> Result<(), Failure> {
    match command {
        Command::Stop => match talk.stop_running()? {
            true => say(Style::Dim, "the turn is being stopped"),
            false => say(Style::Dim, "no turn runs"),
        },
        Command::Agents => {
            say(Style::Plain, &agent::lines(&talk.daemon().get::<Vec<_>>(method::AGENTS_LIST)?))
        }
        Command::Who => {
            let status: Status = talk.daemon().get(method::STATUS)?;
            let who = talk.agent.as_ref().map_or("the orchestrator".to_owned(), |agent| format!("@{agent}"));
            let model = status.model.unwrap_or_else(|| "no model yet".into());
            say(
                Style::Plain,
                &format!("{who} answers in session {}; the default model is {model}", talk.session()),
            );
        }
        Command::New => {
            let fresh = format!("chat-{}", uuid::Uuid::new_v4().simple());
            let fresh =
                SessionId::new(fresh).map_err(|error| Failure::new(status::SOFTWARE, error.to_string()))?;
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
            say(Style::Plain, &super::console::table(&lines));
        }
        // Those that are messages, or the end, do not come here.
        Command::Retry | Command::Quit => {}
    }
    Ok(())
}

/// Keeps what is typed while a turn runs out of the answer: it is not shown, and not lost either, but waits for the
/// editor.
struct Quiet(Option<Termios>);

impl Quiet {
    fn terminal() -> Self {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok();
        if let Some(mut quiet) = before.clone() {
            quiet.local_modes.remove(LocalModes::ECHO);
            // Ctrl-C stops the turn; what was typed before it stays.
            quiet.local_modes.insert(LocalModes::NOFLSH);
            // A terminal that refuses shows what is typed, which is no harm.
            let _ = tcsetattr(stdin, OptionalActions::Now, &quiet);
        }
        Self(before)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
