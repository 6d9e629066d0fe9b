//! A client of the control socket: one connection, one line of JSON a request.
//!
//! Synchronous and small. [`Daemon`] is the way to ask one thing: it comes back while the kernel restarts. What lasts
//! longer than a question (a turn, a subscription) reads a [`Client`] by itself and decides what a lost connection means.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use drupe_extension_api::{
    Event, Fault, FaultCode, SessionId,
    control::{
        CONTROL_VERSION, DaemonState, EventsSubscribe, Hello, Reply, ReplyBody, Request, Status, Welcome,
        method,
    },
};
use drupe_link::{ControlToken, Home, TokenError};
use rustix::io::Errno;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    console::Console,
    failure::{Failure, UNKNOWN_FORM, status},
    wait::{Interrupt, Wait},
};

/// How long one read waits, so that its caller can look after other things.
pub const TICK: Duration = Duration::from_millis(100);

/// How long a daemon may take with an answer that needs no model. A kernel that hangs is replaced sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long an extension may take to begin its work: each of its stages has a deadline of up to 30 s.
const DECISION: Duration = Duration::from_secs(120);

/// How long to come back while the kernel restarts: boots with many extensions and a failed attempt or two fit.
pub const RESTART: Duration = Duration::from_secs(90);

/// The first and the longest pause before another attempt.
const PAUSES: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(250));

/// Why a question has no answer.
#[derive(Debug)]
pub enum ClientError {
    /// No daemon serves the home.
    Absent,
    /// The path of the home can lead to no folder, so that none will ever serve it.
    Impossible(io::Error),
    /// There is one, but not for this user.
    Forbidden(io::Error),
    /// The connection ended. Whether the request took effect is not known.
    Lost(String),
    /// The same of what must not be asked twice.
    Unknown(String),
    Fault(Fault),
    /// The same of a kernel that is well: it will not answer otherwise in a moment.
    Refused(Fault),
}

impl ClientError {
    /// Whether the same may go well in a moment.
    pub fn passes(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Fault(fault) => transient(fault),
            Self::Absent | Self::Impossible(_) | Self::Forbidden(_) | Self::Unknown(_) | Self::Refused(_) => {
                false
            }
        }
    }

    pub fn into_failure(self, home: &Home) -> Failure {
        match self {
            Self::Absent => Failure::absent(home),
            Self::Impossible(error) => {
                let message = format!("`{}` cannot be a home: {error}", home.path().display());
                Failure::new(status::CANNOT_CREATE, message).help("choose another home with `--home`")
            }
            Self::Forbidden(error) => {
                let message = format!("the daemon of `{}` cannot be used: {error}", home.path().display());
                Failure::new(77, message).help("run drupe as the user who started the daemon")
            }
            Self::Lost(reason) => {
                let message = format!("the daemon of `{}` does not answer: {reason}", home.path().display());
                Failure::new(status::LATER, message).help("`drupe status` shows what it is doing")
            }
            Self::Unknown(reason) => {
                let message = format!("the kernel ended while it did that: {reason}");
                Failure::new(status::FAILED, message).help("`drupe status` shows what became of it")
            }
            Self::Fault(fault) | Self::Refused(fault) => fault.into(),
        }
    }
}

/// A connection to the process that serves the control socket now: the kernel, or between kernels the supervisor.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    line: Vec<u8>,
    next: u64,
    /// How long an answer is waited for.
    patience: Duration,
    interrupt: Option<Interrupt>,
    /// Whether a kernel answers, and not the supervisor in its place.
    pub kernel: bool,
}

impl Client {
    pub fn connect(home: &Home) -> Result<Self, ClientError> {
        Self::connect_within(home, PATIENCE)
    }

    fn connect_within(home: &Home, patience: Duration) -> Result<Self, ClientError> {
        let unreachable = |error| unreachable(home, error);
        let stream = home.connect().map_err(unreachable)?;
        // After the connection: a daemon that begins writes its token before it listens.
        let token = ControlToken::read(home).map_err(|error| match error {
            TokenError::Io(error) => unreachable(error),
            error => ClientError::Lost(error.to_string()),
        })?;
        stream.set_read_timeout(Some(TICK)).map_err(lost)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(lost)?;
        let stream = BufReader::new(stream);
        let (line, interrupt) = (Vec::new(), None);
        let mut client = Self { stream, line, next: 1, patience, interrupt, kernel: false };
        let hello = Hello { token: token.reveal().to_owned(), version: CONTROL_VERSION };
        let welcome: Welcome = client.call(method::HELLO, &hello)?;
        client.kernel = welcome.from == "kernel";
        Ok(client)
    }

    /// Gives up waiting when the user does.
    #[must_use]
    fn heeding(self, interrupt: Option<&Interrupt>) -> Self {
        Self { interrupt: interrupt.cloned(), ..self }
    }

    /// Tells a refusal from an answer that may be another one in a moment: a kernel that begins or ends has no time now, one
    /// that is ready means what it says.
    pub fn refusal(&mut self, error: ClientError) -> ClientError {
        match error {
            ClientError::Fault(fault) if self.kernel && transient(&fault) => {
                match self.call::<Status>(method::STATUS, &Value::Null) {
                    Ok(status) if status.state == DaemonState::Ready => ClientError::Refused(fault),
                    _ => ClientError::Fault(fault),
                }
            }
            error => error,
        }
    }

    /// Sends a request; its number.
    pub fn send(&mut self, method: &str, params: &impl Serialize) -> Result<u64, ClientError> {
        let id = self.next;
        self.next += 1;
        let params = serde_json::to_value(params).map_err(|error| ClientError::Fault(error.into()))?;
        let request = Request { id, method: method.to_owned(), params };
        let mut line = serde_json::to_vec(&request).map_err(|error| ClientError::Fault(error.into()))?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(lost)?;
        Ok(id)
    }

    /// The next reply; none if there is none within a [`TICK`].
    pub fn receive(&mut self) -> Result<Option<Reply>, ClientError> {
        match self.stream.read_until(b'\n', &mut self.line) {
            Ok(_) if self.line.last() == Some(&b'\n') => {
                let reply = serde_json::from_slice(&self.line);
                self.line.clear();
                reply.map(Some).map_err(|error| unknown_form(&error))
            }
            Ok(_) => Err(ClientError::Lost("the connection ended".into())),
            // What came so far stays in `line`.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(lost(error)),
        }
    }

    /// Asks, and waits for the answer.
    pub fn call<T: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, ClientError> {
        let id = self.send(method, params)?;
        self.answer_to(id, self.patience, method)
    }

    fn answer_to<T: DeserializeOwned>(
        &mut self,
        id: u64,
        patience: Duration,
        method: &str,
    ) -> Result<T, ClientError> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            match self.receive()? {
                Some(Reply { id: of, body }) if of == id || of == 0 => return answer(body),
                _ if self.interrupt.as_ref().is_some_and(Interrupt::waits) => {
                    return Err(ClientError::Lost("it was not waited for".into()));
                }
                _ => {}
            }
        }
        Err(ClientError::Lost(format!(
            "`{method}` was not answered within {} s",
            patience.as_secs_f32().ceil()
        )))
    }
}

impl Client {
    /// Gives each event of a subscription that does not follow, up to its end, or to the first that is not taken.
    fn each_event(
        &mut self,
        mut take: impl FnMut(Event) -> Result<(), Failure>,
    ) -> Result<Result<(), Failure>, ClientError> {
        let mut heard = Instant::now();
        while heard.elapsed() < PATIENCE {
            let Some(reply) = self.receive()? else { continue };
            match reply.body {
                ReplyBody::Event(event) => match take(*event) {
                    Ok(()) => {}
                    Err(failure) => return Ok(Err(failure)),
                },
                ReplyBody::Result(_) => return Ok(Ok(())),
                ReplyBody::Error(fault) => return Err(ClientError::Fault(fault)),
            }
            heard = Instant::now();
        }
        Err(ClientError::Lost(format!("the events did not end within {} s", PATIENCE.as_secs())))
    }
}

fn unknown_form(what: &dyn std::fmt::Display) -> ClientError {
    let fault = Fault::internal(format!("the daemon's answer has an unknown form: {what}"));
    ClientError::Fault(fault.help(UNKNOWN_FORM))
}

pub fn answer<T: DeserializeOwned>(body: ReplyBody) -> Result<T, ClientError> {
    match body {
        ReplyBody::Result(value) => serde_json::from_value(value).map_err(|error| unknown_form(&error)),
        ReplyBody::Error(fault) => Err(ClientError::Fault(fault)),
        ReplyBody::Event(_) => Err(unknown_form(&"an event came in place of it")),
    }
}

fn transient(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::Unavailable | FaultCode::Busy)
}

fn lost(error: io::Error) -> ClientError {
    ClientError::Lost(error.to_string())
}

fn unreachable(home: &Home, error: io::Error) -> ClientError {
    // Only a folder is held, and only while it is there.
    let held = || home.path().is_dir() && home.is_held();
    match Errno::from_io_error(&error) {
        // It begins, ends, or makes its folder or its socket anew.
        Some(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) if held() => {
            ClientError::Lost("it does not listen".into())
        }
        Some(Errno::NOENT | Errno::CONNREFUSED) => ClientError::Absent,
        Some(Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => ClientError::Impossible(error),
        _ if error.kind() == io::ErrorKind::PermissionDenied => ClientError::Forbidden(error),
        _ => lost(error),
    }
}

/// The daemon of a home, for questions with one answer.
#[derive(Debug, Clone, Copy)]
pub struct Daemon<'a> {
    home: &'a Home,
    console: Console,
    patience: Duration,
    interrupt: Option<&'a Interrupt>,
}

impl<'a> Daemon<'a> {
    /// Names it; whether it runs shows when it is asked.
    pub fn new(home: &'a Home, console: Console) -> Self {
        Self { home, console, patience: PATIENCE, interrupt: None }
    }

    pub fn home(&self) -> &'a Home {
        self.home
    }

    /// Gives up waiting for a kernel when the user does. For those who have taken the signals over.
    #[must_use]
    pub fn heeding(self, interrupt: &'a Interrupt) -> Self {
        Self { interrupt: Some(interrupt), ..self }
    }

    /// Waits at most so long for an answer that needs no model.
    #[must_use]
    pub fn within(self, patience: Duration) -> Self {
        Self { patience: patience.min(PATIENCE), ..self }
    }

    pub fn once<T: DeserializeOwned>(&self, method: &str, params: &impl Serialize) -> Result<T, ClientError> {
        let mut client = self.connect()?;
        client.call(method, params).map_err(|error| client.refusal(error))
    }

    fn connect(&self) -> Result<Client, ClientError> {
        Ok(Client::connect_within(self.home, self.patience)?.heeding(self.interrupt))
    }

    /// Asks a kernel once for what must not be repeated by itself: it lets extensions begin to work, which takes a while, and
    /// which may end the kernel. Where none is there yet it is waited for: whoever answers in its place does nothing.
    pub fn decide<T: DeserializeOwned>(&self, method: &str, params: &impl Serialize) -> Result<T, Failure> {
        self.decided(method, params)?.map_err(Failure::from)
    }

    /// The same, with what the kernel refuses.
    pub fn decided<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Result<T, Fault>, Failure> {
        self.waited_for(method, params, DECISION)
    }

    /// The same for what may take so long.
    pub fn waited_for<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        patience: Duration,
    ) -> Result<Result<T, Fault>, Failure> {
        self.persist(|| {
            let mut client = self.connect()?;
            // Nobody carries out a line that was not taken whole, so it may be sent again.
            let asked = client.send(method, params)?;
            match client.answer_to(asked, patience, method) {
                Ok(decided) => Ok(Ok(decided)),
                Err(ClientError::Fault(fault)) if client.kernel => Ok(Err(fault)),
                Err(ClientError::Lost(reason)) if client.kernel => Err(ClientError::Unknown(reason)),
                Err(error) => Err(error),
            }
        })
    }

    /// Asks, again and again while the kernel restarts. For what may safely be asked twice.
    pub fn call<T: DeserializeOwned>(&self, method: &str, params: &impl Serialize) -> Result<T, Failure> {
        self.persist(|| self.once(method, params))
    }

    fn persist<T>(&self, mut ask: impl FnMut() -> Result<T, ClientError>) -> Result<T, Failure> {
        let mut wait = Wait::new(self.console, Some(RESTART));
        let mut pauses = Pauses::default();
        loop {
            match ask() {
                Err(error) if error.passes() && !wait.over() => {
                    if self.interrupt.is_some_and(|interrupt| interrupt.came() || interrupt.leaving()) {
                        return Err(Failure::said(status::INTERRUPTED));
                    }
                    wait.pause("waiting for the kernel", pauses.next());
                }
                answer => return answer.map_err(|error| error.into_failure(self.home)),
            }
        }
    }

    pub fn events(&self, session: &SessionId) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        self.each_event(session, |event| {
            events.push(event);
            Ok(())
        })?;
        Ok(events)
    }

    /// Gives the kept events of a session one by one, each once: where the kernel goes away in the middle, the next one
    /// is asked for what comes after the last.
    pub fn each_event(
        &self,
        session: &SessionId,
        mut take: impl FnMut(Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut ask = EventsSubscribe { session: session.clone(), after: 0, follow: false };
        self.persist(|| {
            let mut client = self.connect()?;
            client.send(method::EVENTS_SUBSCRIBE, &ask)?;
            client.each_event(|event| {
                ask.after = ask.after.max(event.seq);
                take(event)
            })
        })?
    }

    /// Asks for something without parameters.
    pub fn get<T: DeserializeOwned>(&self, method: &str) -> Result<T, Failure> {
        self.call(method, &Value::Null)
    }
}

/// Pauses before further attempts, growing.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSES.0)
    }
}

impl Pauses {
    pub fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(PAUSES.1);
        now
    }

    pub fn sleep(&mut self) {
        thread::sleep(self.next());
    }
}

#[cfg(test)]
mod tests;
