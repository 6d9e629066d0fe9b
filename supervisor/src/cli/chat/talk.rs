//! A conversation: messages go in once, and their turns are waited for, whatever happens to the kernel meanwhile.

use std::sync::{
    Arc, Mutex,
    mpsc::{Receiver, RecvTimeoutError, channel},
};

use drupe_extension_api::{
    AgentId, SessionId, TurnId,
    control::{Named, SessionDetail, SessionStatus, TurnArgument, method},
    wire::{Submit, Submitted},
};
use serde_json::Value;

use super::{
    follow::{Follower, Heard, OnGone, Told, follow, locked},
    screen::Screen,
};
use crate::cli::{
    Context,
    client::{ClientError, Daemon, Pauses, TICK},
    console::{Style, plain},
    failure::{Failure, status},
    wait::Interrupt,
};

/// The channel whose messages come from a terminal.
const CHANNEL: &str = "terminal";

/// Lines of the last answer that are shown to somebody who comes back.
const LINES: usize = 12;

/// How a turn went, for whoever waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It ended, with success or not.
    Ended(bool),
    /// It goes on; the user does not want to wait.
    Left,
}

/// A conversation in one session.
pub struct Talk<'a> {
    /// The agent that shall answer.
    pub agent: Option<AgentId>,
    context: &'a Context,
    interrupt: &'a Interrupt,
    session: SessionId,
    screen: Arc<Mutex<Screen>>,
    told: Receiver<Told>,
    follower: Follower,
    last: Option<String>,
    on_gone: Option<OnGone>,
}

impl<'a> Talk<'a> {
    /// Joins a session. `on_gone` is called, on another thread, when the daemon is gone for good.
    pub fn join(
        context: &'a Context,
        interrupt: &'a Interrupt,
        session: SessionId,
        agent: Option<AgentId>,
        screen: Arc<Mutex<Screen>>,
        on_gone: Option<OnGone>,
    ) -> Result<Self, Failure> {
        let (told, follower, last) =
            attach(&context.daemon().heeding(interrupt), &session, &screen, on_gone.clone())?;
        Ok(Self { agent, context, interrupt, session, screen, told, follower, last, on_gone })
    }

    /// Goes to another session.
    pub fn go(&mut self, session: SessionId) -> Result<(), Failure> {
        locked(&self.screen).reset();
        let (told, follower, last) = attach(&self.daemon(), &session, &self.screen, self.on_gone.clone())?;
        (self.told, self.follower, self.last, self.session) = (told, follower, last, session);
        Ok(())
    }

    /// The daemon that it goes through.
    pub fn daemon(&self) -> Daemon<'a> {
        self.context.daemon().heeding(self.interrupt)
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The message that was sent last.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Sends a message and waits for the end of its turn. Ctrl-C stops the turn; a second one leaves it alone.
    pub fn say(&mut self, text: &str) -> Result<Outcome, Failure> {
        self.last = Some(text.to_owned());
        locked(&self.screen).renderer.expect(text);
        let Some(turn) = self.submit(text)? else { return Ok(Outcome::Left) };
        let mut stop: Option<bool> = None;
        loop {
            match self.told.recv_timeout(TICK) {
                Ok(Told::Ended(ended, success)) if ended == turn => return Ok(Outcome::Ended(success)),
                Ok(Told::Ended(..)) => {}
                Ok(Told::Gone(failure)) => return Err(failure),
                Err(RecvTimeoutError::Timeout) => locked(&self.screen).tick(),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(
                        status::SOFTWARE,
                        "the events of the session are not heard any more",
                    ));
                }
            }
            if self.interrupt.leaving() {
                return Ok(Outcome::Left);
            }
            if self.interrupt.came() {
                if stop.is_some() {
                    return Ok(Outcome::Left);
                }
                stop = Some(false);
                locked(&self.screen).say(Style::Warning, "stopping the turn; Ctrl-C again leaves at once");
            }
            // Again and again, over a restart, until a kernel has heard it.
            if stop == Some(false) && self.stop(turn.clone()).is_ok() {
                stop = Some(true);
            }
        }
    }

    /// Hands the message in: again and again while the kernel restarts, always as the same message. None if the user
    /// gives up before it is taken.
    fn submit(&self, text: &str) -> Result<Option<TurnId>, Failure> {
        let submit = Submit {
            channel: CHANNEL.into(),
            external_id: uuid::Uuid::new_v4().to_string(),
            session: self.session.clone(),
            address: None,
            text: text.to_owned(),
            agent: self.agent.clone(),
            model: None,
            output: None,
            time_budget_ms: None,
        };
        let mut pauses = Pauses::default();
        loop {
            match self.daemon().once::<Submitted>(method::TURN_SUBMIT, &submit) {
                Ok(accepted) => return Ok(Some(accepted.turn)),
                Err(error) if error.passes() => {}
                Err(error) => return Err(error.into_failure(self.context.home())),
            }
            if self.interrupt.came() || self.interrupt.leaving() {
                locked(&self.screen).say(Style::Warning, "it is not known whether the message was taken");
                return Ok(None);
            }
            locked(&self.screen).tick();
            pauses.sleep();
        }
    }

    /// Stops the turn that runs, if one does.
    pub fn stop_running(&self) -> Result<bool, Failure> {
        let running = locked(&self.screen).renderer.running().cloned();
        match running {
            None => Ok(false),
            Some(turn) => {
                self.stop(turn).map_err(|error| error.into_failure(self.context.home()))?;
                Ok(true)
            }
        }
    }

    fn stop(&self, turn: TurnId) -> Result<(), ClientError> {
        self.daemon().once::<Value>(method::TURN_STOP, &TurnArgument { turn }).map(|_| ())
    }

    /// Whether the daemon went away while nobody waited for a turn.
    pub fn gone(&self) -> Option<Failure> {
        self.told.try_iter().find_map(|told| match told {
            Told::Gone(failure) => Some(failure),
            Told::Ended(..) => None,
        })
    }
}

type Attached = (Receiver<Told>, Follower, Option<String>);

/// Shows where a session stands, and follows it from there.
fn attach(
    daemon: &Daemon<'_>,
    session: &SessionId,
    screen: &Arc<Mutex<Screen>>,
    on_gone: Option<OnGone>,
) -> Result<Attached, Failure> {
    let (mut after, mut last) = (0, None);
    if let Some(detail) = detail(daemon, session)? {
        after = detail.last_seq;
        if let Some(turn) = detail.turns.last() {
            last = Some(turn.input.clone());
            let mut screen = locked(screen);
            screen.recall(&format!("› {}", beginning(&turn.input)));
            match turn.status {
                Some(_) => screen.recall(&beginning(&turn.content)),
                None => screen.renderer.runs(turn.turn.clone()),
            }
        }
    }
    let (sender, told) = channel();
    let heard = Heard { screen: Arc::clone(screen), told: sender, on_gone };
    let follower = follow(daemon.home().clone(), session.clone(), after, heard)?;
    Ok((told, follower, last))
}

/// The session, if it exists.
fn detail(daemon: &Daemon<'_>, session: &SessionId) -> Result<Option<SessionDetail>, Failure> {
    // Asked as a list first: that it is not there is no failure.
    let list: Vec<SessionStatus> = daemon.get(method::SESSIONS_LIST)?;
    if !list.iter().any(|one| one.id == *session) {
        return Ok(None);
    }
    daemon.call(method::SESSIONS_SHOW, &Named { id: session.to_string() }).map(Some)
}

/// The first lines of a text.
fn beginning(text: &str) -> String {
    let text = plain(text);
    let mut lines: Vec<&str> = text.lines().take(LINES + 1).collect();
    if lines.len() > LINES {
        lines[LINES] = "…";
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_recalled_by_its_beginning() {
        assert_eq!(beginning("a\nb"), "a\nb");
        let long = "x\n".repeat(40);
        assert_eq!(beginning(&long).lines().count(), LINES + 1);
        assert!(beginning(&long).ends_with("x\n…"));
    }
}
