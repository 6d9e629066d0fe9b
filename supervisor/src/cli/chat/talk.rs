//! A conversation: messages go in once, and their turns are waited for, whatever happens to the kernel meanwhile.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use drupe_extension_api::{
    AgentId, SessionId, TurnId,
    control::{
        Persona, SessionDetail, SessionShow, SessionStatus, SpawnedTell, TurnArgument, TurnResult, method,
    },
    wire::{QueueMode, Submit, Submitted},
};
use serde_json::Value;

use super::{
    follow::{Follower, Heard, OnGone, TurnNews, follow, locked},
    keyboard::{Keyboard, Pressed},
    screen::Screen,
};
use crate::cli::{
    Context,
    client::{ClientError, Daemon, Pauses, TICK},
    console::{Style, plain},
    failure::{Failure, status},
    session::{answered_by, whole},
    wait::Interrupt,
};

/// The channel whose messages come from a terminal.
const CHANNEL: &str = "terminal";

/// How long to wait for a key before looking at the events: too short to be seen.
const KEY: Duration = Duration::from_millis(30);

/// Lines of the last answer that are shown to somebody who comes back.
const LINES: usize = 12;

/// The id of a session that nobody has.
///
/// # Errors
/// An id that no session can have, which would be a fault of this program.
pub fn fresh() -> Result<SessionId, Failure> {
    SessionId::new(format!("chat-{}", uuid::Uuid::new_v4().simple()))
        .map_err(|error| Failure::new(status::SOFTWARE, error.to_string()))
}

/// How a turn went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It ended, with success or not.
    Ended(bool),
    /// It goes on; the user does not want to wait.
    Left,
    /// It goes on, and somebody typed a line.
    Typed(String),
}

/// A conversation in one session.
pub struct Talk<'a> {
    /// The agent that shall answer.
    pub agent: Option<AgentId>,
    /// What becomes of messages while a turn runs; none leaves it to the configuration.
    pub queue: Option<QueueMode>,
    context: &'a Context,
    interrupt: &'a Interrupt,
    session: SessionId,
    screen: Arc<Mutex<Screen>>,
    told: Receiver<TurnNews>,
    follower: Follower,
    last: Option<String>,
    /// The newest turn of the session that is known.
    newest: Option<TurnId>,
    on_gone: Option<OnGone>,
    /// Turns whose end is awaited.
    waiting: Vec<TurnId>,
    /// The turn that is to be stopped, and whether a kernel has heard it.
    stop: Option<(TurnId, bool)>,
    /// Whether a turn that was awaited failed.
    failed: bool,
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
        let Attached { told, follower, last, newest, waiting } =
            attach(&context.daemon().heeding(interrupt), &session, &screen, on_gone.clone())?;
        Ok(Self {
            agent,
            queue: None,
            context,
            interrupt,
            session,
            screen,
            told,
            follower,
            last,
            newest,
            on_gone,
            waiting,
            stop: None,
            failed: false,
        })
    }

    pub fn go(&mut self, session: SessionId) -> Result<(), Failure> {
        locked(&self.screen).reset();
        let attached = attach(&self.daemon(), &session, &self.screen, self.on_gone.clone())?;
        (self.told, self.follower) = (attached.told, attached.follower);
        (self.last, self.newest) = (attached.last, attached.newest);
        (self.waiting, self.stop, self.failed) = (attached.waiting, None, false);
        self.session = session;
        Ok(())
    }

    /// The daemon that it goes through.
    pub fn daemon(&self) -> Daemon<'a> {
        self.context.daemon().heeding(self.interrupt)
    }

    pub fn colour(&self) -> bool {
        self.context.console.colour
    }

    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Where the page shows the conversation: at its newest turn, if there is one.
    pub fn place(&self) -> String {
        let turn = self.newest.as_ref().map(|turn| format!("/t/{turn}")).unwrap_or_default();
        format!("#/s/{}{turn}", self.session)
    }

    /// The message that was sent last.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Sends a message. Whether it was taken: the user may give up while there is no kernel.
    pub fn say(&mut self, text: &str) -> Result<bool, Failure> {
        self.last = Some(text.to_owned());
        if !self.waits() {
            locked(&self.screen).renderer.expect(text);
        }
        let turn = self.submit(text)?;
        let taken = turn.is_some();
        if taken {
            self.newest.clone_from(&turn);
        }
        self.waiting.extend(turn);
        Ok(taken)
    }

    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Waits for the end of all turns, or for a line that is typed meanwhile. Ctrl-C stops the turn; a second one leaves
    /// it alone.
    pub fn wait(&mut self, mut keyboard: Option<&mut Keyboard>) -> Result<Outcome, Failure> {
        let mut drawn = Instant::now();
        while self.waits() {
            let moment = match keyboard.as_deref_mut() {
                None => TICK,
                Some(keyboard) => match keyboard.read(KEY)? {
                    Some(Pressed::End) => return Ok(Outcome::Left),
                    Some(Pressed::Sent(line)) => {
                        locked(&self.screen).set_typed(Some(String::new()));
                        return Ok(Outcome::Typed(line));
                    }
                    Some(Pressed::Typing(text)) => {
                        locked(&self.screen).set_typed(Some(text));
                        Duration::ZERO
                    }
                    None => Duration::ZERO,
                },
            };
            self.hear(moment)?;
            if drawn.elapsed() >= TICK {
                locked(&self.screen).tick();
                drawn = Instant::now();
            }
            if self.interrupt.leaving() || self.interrupted() {
                return Ok(Outcome::Left);
            }
        }
        Ok(Outcome::Ended(!std::mem::take(&mut self.failed)))
    }

    /// What the events tell within a moment.
    fn hear(&mut self, moment: Duration) -> Result<(), Failure> {
        match self.told.recv_timeout(moment) {
            Ok(TurnNews::Ended(ended, success)) => {
                let before = self.waiting.len();
                self.waiting.retain(|turn| *turn != ended);
                self.failed |= !success && self.waiting.len() < before;
                self.stop.take_if(|(turn, _)| *turn == ended);
                Ok(())
            }
            Ok(TurnNews::Gone(failure)) => Err(failure),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Failure::new(status::SOFTWARE, "the events of the session are not heard any more"))
            }
        }
    }

    /// Ctrl-C: whether it was the second one.
    fn interrupted(&mut self) -> bool {
        if self.interrupt.came() {
            if self.stop.is_some() {
                return true;
            }
            let running = locked(&self.screen).renderer.running().cloned();
            let running = running.filter(|turn| self.waiting.contains(turn));
            self.stop = running.or_else(|| self.waiting.first().cloned()).map(|turn| (turn, false));
            locked(&self.screen).say(Style::Warning, "stopping the turn; Ctrl-C again leaves at once");
        }
        // Again and again, over a restart, until a kernel has heard it.
        if let Some((turn, false)) = &self.stop
            && self.stop(turn.clone()).is_ok()
        {
            self.stop = self.stop.take().map(|(turn, _)| (turn, true));
        }
        false
    }

    /// Hands the message in: again and again while the kernel restarts, always as the same message. None if the user
    /// gives up before it is taken.
    fn submit(&self, text: &str) -> Result<Option<TurnId>, Failure> {
        let submit = Submit {
            carried: None,
            sender: None,
            files: Vec::new(),
            channel: CHANNEL.into(),
            external_id: uuid::Uuid::new_v4().to_string(),
            session: self.session.clone(),
            address: None,
            text: text.to_owned(),
            agent: self.agent.clone(),
            model: None,
            output: None,
            time_budget_ms: None,
            queue: self.queue,
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

    /// The agent that answers in the session; none for the orchestrator, or where nobody has talked yet.
    pub fn answered_by(&self) -> Option<AgentId> {
        let show =
            SessionShow { id: self.session.to_string(), after: Some(SessionShow::BEHIND_ALL), brief: true };
        let detail: SessionDetail = self.daemon().call(method::SESSIONS_SHOW, &show).ok()?;
        answered_by(&detail.status).cloned()
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

    /// The agents that this session alone has, a line each.
    pub fn personas(&self) -> Result<Vec<Vec<String>>, Failure> {
        let ask =
            SessionShow { id: self.session.to_string(), after: Some(SessionShow::BEHIND_ALL), brief: true };
        let detail: SessionDetail = match self.daemon().once(method::SESSIONS_SHOW, &ask) {
            Ok(detail) => detail,
            // Nobody has written in it yet.
            Err(_) => return Ok(Vec::new()),
        };
        let line = |persona: Persona| vec![format!("@{}", persona.name), plain(&persona.description)];
        Ok(detail.personas.into_iter().map(line).collect())
    }

    /// Tells an agent that works beside the turn something. It reads that when it comes to it, and then this is said.
    pub fn tell(&self, handle: String, text: String) {
        let told = SpawnedTell { session: self.session.clone(), handle: handle.clone(), text };
        let (home, console) = (self.context.home().clone(), self.context.console);
        let screen = Arc::clone(&self.screen);
        thread::spawn(move || match Daemon::new(&home, console).call::<Value>(method::SPAWNED_TELL, &told) {
            Ok(_) => locked(&screen).say(Style::Dim, &format!("{handle} has read it")),
            Err(failure) => locked(&screen).say(Style::Bad, &failure.to_string()),
        });
    }

    fn stop(&self, turn: TurnId) -> Result<(), ClientError> {
        self.daemon().once::<Value>(method::TURN_STOP, &TurnArgument::brief(turn)).map(|_| ())
    }

    /// Whether the daemon went away while nobody waited for a turn.
    pub fn gone(&self) -> Option<Failure> {
        self.told.try_iter().find_map(|told| match told {
            TurnNews::Gone(failure) => Some(failure),
            TurnNews::Ended(..) => None,
        })
    }
}

struct Attached {
    told: Receiver<TurnNews>,
    follower: Follower,
    last: Option<String>,
    newest: Option<TurnId>,
    /// Turns that run or wait, for somebody at a terminal: a program waits for its own.
    waiting: Vec<TurnId>,
}

/// Shows where a session stands, and follows it from there.
fn attach(
    daemon: &Daemon<'_>,
    session: &SessionId,
    screen: &Arc<Mutex<Screen>>,
    on_gone: Option<OnGone>,
) -> Result<Attached, Failure> {
    let (mut after, mut last, mut newest, mut waiting) = (0, None, None, Vec::new());
    if let Some(detail) = detail(daemon, session)? {
        after = detail.last_seq;
        let open: Vec<&TurnResult> = detail.turns.iter().filter(|turn| turn.status.is_none()).collect();
        let mut screen = locked(screen);
        // Turns of a session come one after the other: the first open one runs, or is the next to run.
        if let Some(turn) = open.first().or(detail.turns.last().as_ref()) {
            screen.recall(&format!("› {}", beginning(&turn.input)));
            match turn.status {
                Some(_) => screen.recall(&beginning(&turn.content)),
                None => screen.renderer.runs(turn.turn.clone()),
            }
        }
        (last, newest) = detail.turns.last().map(|turn| (turn.input.clone(), turn.turn.clone())).unzip();
        if screen.has_terminal() {
            waiting = open.iter().map(|turn| turn.turn.clone()).collect();
        }
    }
    let (sender, told) = channel();
    let heard = Heard { screen: Arc::clone(screen), told: sender, on_gone };
    let follower = follow(daemon.home().clone(), session.clone(), after, heard)?;
    Ok(Attached { told, follower, last, newest, waiting })
}

fn detail(daemon: &Daemon<'_>, session: &SessionId) -> Result<Option<SessionDetail>, Failure> {
    // Asked as a list first: that it is not there is no failure.
    let list: Vec<SessionStatus> = daemon.get(method::SESSIONS_LIST)?;
    if !list.iter().any(|one| one.id == *session) {
        return Ok(None);
    }
    Ok(Some(serde_json::from_value(whole(daemon, session.as_str(), true)?)?))
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
mod tests;
