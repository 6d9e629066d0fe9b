//! A conversation at a terminal: the editor while nothing runs, the screen and its keyboard while something does.

use std::sync::{Arc, Mutex};

use drupe_extension_api::{
    AgentId, SessionId,
    control::{Status, method},
};

use super::{
    dispatch::{Next, dispatch, dispatch_meanwhile},
    editor::{Editor, Typed},
    follow::locked,
    keyboard::Keyboard,
    screen::{Mode, Paper, Screen},
    talk::{Outcome, Talk},
};
use crate::cli::{
    Context,
    client::Daemon,
    console::Style,
    failure::{Failure, status},
    hangup,
    models::offline_notice,
    open,
    wait::Interrupt,
};

pub fn converse(
    context: &Context,
    interrupt: &Interrupt,
    session: SessionId,
    agent: Option<AgentId>,
) -> Result<u8, Failure> {
    let mut editor = Editor::new(context.home(), context.console, interrupt)?;
    let screen = Arc::new(Mutex::new(Screen::new(context.console, Mode::Free, Paper::default())));
    greet(&context.daemon().heeding(interrupt), &session, &screen)?;
    let on_gone = Arc::new(editor.breaker());
    let leave = editor.breaker();
    hangup::watch(interrupt, move || {
        leave();
        hangup::silence_stdin();
    })?;
    let mut talk = Talk::join(context, interrupt, session, agent, Arc::clone(&screen), Some(on_gone))?;
    let mut leaving = false;
    loop {
        if talk.waits() {
            if !until_quiet(&mut talk, &screen, &mut editor)? {
                return Ok(0);
            }
            continue;
        }
        locked(&screen).set_mode(Mode::Editor(editor.sender()));
        let typed = editor.read(talk.agent.as_ref());
        locked(&screen).set_mode(Mode::Free);
        // A Ctrl-C that came between the editor and the screen is about neither.
        interrupt.came();
        if interrupt.leaving() {
            // What a closed terminal did to the editor is no fault.
            return Ok(status::INTERRUPTED);
        }
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
                None => continue,
            },
        };
        leaving = false;
        match dispatch(&mut talk, &screen, &line) {
            Ok(Next::Read) => {}
            Ok(Next::Leave | Next::Quit) => return Ok(0),
            Err(failure) => complain(&screen, failure)?,
        }
    }
}

/// What one message caused is no reason to end the conversation, unless there is nobody left to talk to.
fn complain(screen: &Mutex<Screen>, failure: Failure) -> Result<(), Failure> {
    if failure.status == status::ABSENT {
        return Err(failure);
    }
    locked(screen).say(Style::Bad, failure.render(false).trim_end());
    Ok(())
}

/// Waits for the end of every turn, with what is typed meanwhile. Whether to go on talking.
fn until_quiet(talk: &mut Talk<'_>, screen: &Mutex<Screen>, editor: &mut Editor) -> Result<bool, Failure> {
    let mut keyboard = Keyboard::take();
    locked(screen).set_typed(keyboard.is_some().then(String::new));
    let outcome = loop {
        let line = match talk.wait(keyboard.as_mut()) {
            Ok(Outcome::Typed(line)) => line,
            Ok(Outcome::Ended(_)) => break Ok(true),
            Ok(Outcome::Left) => break Ok(false),
            Err(failure) => break Err(failure),
        };
        match dispatch_meanwhile(talk, screen, &line) {
            Ok(Next::Read) => {}
            Ok(Next::Leave | Next::Quit) => break Ok(false),
            Err(failure) => {
                if let Err(failure) = complain(screen, failure) {
                    break Err(failure);
                }
            }
        }
    };
    locked(screen).set_typed(None);
    let mut screen = locked(screen);
    match outcome {
        // The shell's prompt, or the failure, begins on a line of its own.
        Ok(false) | Err(_) => screen.close(),
        Ok(true) => {}
    }
    // What was typed and not sent goes on in the editor.
    if let Some(keyboard) = &keyboard {
        editor.insert(keyboard.unsent());
    }
    outcome
}

fn greet(daemon: &Daemon<'_>, session: &SessionId, screen: &Mutex<Screen>) -> Result<(), Failure> {
    let status: Status = daemon.get(method::STATUS)?;
    let model = status.model.unwrap_or_else(|| "no model yet".into());
    let mut screen = locked(screen);
    screen.say(Style::Bold, &format!("drupe {} · {model} · session {session}", status.version));
    if let Some(notice) = offline_notice(daemon) {
        screen.say(Style::Warning, notice);
    }
    // Where nothing serves the page, there is none to speak of; `/open` says why.
    if let Ok(link) = open::link(daemon, open::PAGE) {
        screen.say(Style::Dim, &format!("the same in a browser, a link for one use: {link}#/s/{session}"));
    }
    let help = "/help shows commands, /open gives another link, @id asks an agent, Alt-Enter begins a new line, Ctrl-C stops a turn, Ctrl-D leaves";
    screen.say(Style::Dim, help);
    Ok(())
}
