//! The control socket while no kernel serves.
//!
//! A client then finds the supervisor, which answers `status` and `stop` and asks it to come back for the rest. While
//! a kernel serves, the same listening socket is the kernel's, and this module does not look at it.

use std::{
    fs,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    time::{Duration, Instant},
};

use drupe_extension_api::{
    Fault, FaultCode,
    control::{CONTROL_VERSION, Hello, Reply, ReplyBody, Request, Status, Welcome, method},
};
use drupe_link::{ControlToken, Home, TokenError, is_named_token};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::{Timeout, set_socket_timeout},
};
use serde_json::Value;

#[cfg(test)]
mod tests;

/// Connections that are served at once; others wait in the listener's queue until one of them ends.
const MOST_CONNECTIONS: usize = 16;
/// The longest request line. The requests that a supervisor answers are far shorter.
const MOST_INPUT: usize = 64 * 1024;
/// How long a connection may be silent, or not read its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time that accepting a connection blocks if a kernel clears the shared flag at that very moment.
const ACCEPT: Duration = Duration::from_millis(10);

/// How long none is taken in after one could not be: out of descriptors, most likely. The listener stays ready meanwhile, and
/// looking again at once would only spin.
const REST: Duration = Duration::from_millis(50);

/// The listening socket and the clients that are served here.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    /// Device and inode of the socket's file.
    place: (u64, u64),
    token: ControlToken,
    connections: Vec<Connection>,
    /// Whether new connections are taken: not while a kernel takes them.
    serving: bool,
    /// Until when none are taken in, since one could not be.
    resting: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    greeted: bool,
    /// Gets what is in `output`, and no more.
    closing: bool,
    /// The last time that something came of it.
    since: Instant,
}

impl Control {
    /// Opens the home's control socket with a new token. The home's lock must be held: what is left of an earlier
    /// daemon is replaced.
    pub fn open(home: &Home) -> io::Result<Self> {
        // Before it listens: a client that connects finds the token.
        let token = ControlToken::create(home).map_err(without_token)?;
        let (listener, place) = listen(home)?;
        Ok(Self { listener, place, token, connections: Vec::new(), serving: true, resting: None })
    }

    /// The token that clients present.
    pub fn token(&self) -> &ControlToken {
        &self.token
    }

    /// The listening socket, to be inherited by kernels.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes connections from now on, or leaves them to the kernel. In the latter case those that are here get the
    /// answers to what they have asked, and are closed: they will come back and find the kernel.
    pub fn serve(&mut self, serving: bool) {
        self.serving = serving;
    }

    pub fn fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let listener = (self.serving && self.resting.is_none() && self.connections.len() < MOST_CONNECTIONS)
            .then(|| (self.listener.as_fd(), PollFlags::IN));
        let connections = self.connections.iter().map(|connection| {
            let interest = if connection.output.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            (connection.stream.as_fd(), interest)
        });
        listener.into_iter().chain(connections)
    }

    /// When a client has had its time, or others are taken in again.
    pub fn deadline(&self) -> Option<Instant> {
        let clients = self.connections.iter().map(|connection| connection.since + PATIENCE);
        clients.chain(self.resting.filter(|_| self.serving)).min()
    }

    /// Does what can be done without waiting. Whether a client asked the daemon to stop.
    pub fn turn(&mut self, now: Instant, status: impl Fn() -> Status) -> bool {
        self.resting = self.resting.filter(|until| now < *until);
        while self.serving && self.resting.is_none() && self.connections.len() < MOST_CONNECTIONS {
            // Kernels share this socket, and with it the flag that says whether accepting waits. One that clears it
            // must not make the supervisor wait, so it is set anew each time; the timeout bounds what is left.
            if self.listener.set_nonblocking(true).is_err() {
                break;
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.resting = (error.kind() != io::ErrorKind::WouldBlock).then(|| now + REST);
                    break;
                }
            };
            if stream.set_nonblocking(true).is_ok() {
                self.connections.push(Connection::new(stream, now));
            }
        }
        let mut stop = false;
        let (token, serving) = (&self.token, self.serving);
        self.connections.retain_mut(|connection| {
            let alive = connection.turn(now, token, &status, &mut stop);
            alive && (serving || !connection.output.is_empty())
        });
        stop
    }

    /// Why clients cannot find the listener, if they cannot.
    pub fn lost(&self, home: &Home) -> Option<Lost> {
        if !place(home).is_ok_and(|place| place == self.place) {
            return Some(Lost::Path);
        }
        let mut listener = [PollFd::new(&self.listener, PollFlags::RDHUP)];
        let looked = poll(&mut listener, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        looked.is_ok_and(|found| found > 0).then_some(Lost::Shut)
    }

    /// Listens anew. The old listener and its connections stay open for those who have them.
    pub fn renew(&mut self, home: &Home) -> io::Result<()> {
        (self.listener, self.place) = listen(home)?;
        Ok(())
    }

    /// Writes the token again where its file is gone, or is another one's.
    pub fn keep_token(&self, home: &Home) -> Result<(), TokenError> {
        match ControlToken::read(home) {
            Ok(found) if self.token.matches(found.reveal()) => Ok(()),
            _ => self.token.write(home),
        }
    }

    /// Removes socket, token and process id, unless they are another daemon's: this one has ended.
    pub fn close(self, home: &Home) -> io::Result<()> {
        if self.lost(home) == Some(Lost::Path) {
            return Ok(());
        }
        [home.socket(), home.token(), home.pid_file()].iter().try_for_each(fs::remove_file)
    }
}

/// Keeps the kind of the error, since a disk that is full may have room later.
pub(super) fn without_token(error: TokenError) -> io::Error {
    match error {
        TokenError::Io(io) => io::Error::new(io.kind(), format!("the token of the control socket: {io}")),
        other => io::Error::other(other),
    }
}

/// How clients miss a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Its path is gone or leads elsewhere.
    Path,
    /// Somebody who has it shut it down.
    Shut,
}

/// Listens on the home's control socket, in place of whatever is there; the listener, and where its file is.
fn listen(home: &Home) -> io::Result<(UnixListener, (u64, u64))> {
    let path = home.socket();
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = home.listen()?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    set_socket_timeout(&listener, Timeout::Recv, Some(ACCEPT))?;
    Ok((listener, place(home)?))
}

fn place(home: &Home) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(home.socket()).map(|found| (found.dev(), found.ino()))
}

impl Connection {
    fn new(stream: UnixStream, now: Instant) -> Self {
        Self { stream, input: Vec::new(), output: Vec::new(), greeted: false, closing: false, since: now }
    }

    fn turn(
        &mut self,
        now: Instant,
        token: &ControlToken,
        status: &dyn Fn() -> Status,
        stop: &mut bool,
    ) -> bool {
        let open = self.read();
        // One answer at a time: a client that asks without reading fills its own buffer, not this one.
        while self.output.is_empty()
            && !self.closing
            && let Some(end) = self.input.iter().position(|byte| *byte == b'\n')
        {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            self.since = now;
            self.answer(&line, token, status, stop);
            if !self.write() {
                return false;
            }
        }
        if self.input.len() >= MOST_INPUT && !self.closing && self.output.is_empty() {
            self.fail(0, unavailable());
        }
        self.write() && !(self.closing && self.output.is_empty()) && open && now < self.since + PATIENCE
    }

    /// Reads what is there, up to the bound; false at the end.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        while self.input.len() < MOST_INPUT {
            match self.stream.read(&mut buffer) {
                // A client that has said all may still read its answers.
                Ok(0) => return self.input.contains(&b'\n') || !self.output.is_empty(),
                Ok(length) => self.input.extend_from_slice(&buffer[..length]),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Writes what can be written; false if the client is gone.
    fn write(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => drop(self.output.drain(..length)),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn answer(&mut self, line: &[u8], token: &ControlToken, status: &dyn Fn() -> Status, stop: &mut bool) {
        let Ok(request) = serde_json::from_slice::<Request>(line) else {
            return self.fail(0, Fault::invalid("a request is one line of JSON with `id` and `method`"));
        };
        let id = request.id;
        if !self.greeted {
            let hello = serde_json::from_value::<Hello>(request.params);
            let shown = hello.ok().filter(|_| request.method == method::HELLO).map(|hello| hello.token);
            // What a named token stands for is in the journal, which only a kernel reads.
            if shown.as_deref().is_some_and(is_named_token) {
                return self.fail(id, unavailable());
            }
            if !shown.is_some_and(|shown| token.matches(&shown)) {
                return self
                    .fail(id, Fault::denied("the first request is `hello` with the token of this home"));
            }
            self.greeted = true;
            return self.reply(id, &Welcome { version: CONTROL_VERSION, from: "supervisor".into() });
        }
        match request.method.as_str() {
            method::STATUS => self.reply(id, &status()),
            method::STOP => {
                *stop = true;
                self.reply(id, &Value::Null);
            }
            _ => self.put(&Reply { id, body: ReplyBody::Error(unavailable()) }),
        }
    }

    fn reply(&mut self, id: u64, result: &impl serde::Serialize) {
        let body = match serde_json::to_value(result) {
            Ok(result) => ReplyBody::Result(result),
            Err(error) => ReplyBody::Error(Fault::internal(error)),
        };
        self.put(&Reply { id, body });
    }

    /// An answer after which nothing more is said.
    fn fail(&mut self, id: u64, fault: Fault) {
        self.put(&Reply { id, body: ReplyBody::Error(fault) });
        self.closing = true;
    }

    fn put(&mut self, reply: &Reply) {
        if let Ok(line) = serde_json::to_vec(reply) {
            self.output.extend_from_slice(&line);
            self.output.push(b'\n');
        }
    }
}

fn unavailable() -> Fault {
    Fault::new(FaultCode::Unavailable, "the kernel is restarting")
}
