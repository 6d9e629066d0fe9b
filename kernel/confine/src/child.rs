//! The side that asks for a confined program.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::getpid,
};

use crate::{
    Enforcement, Profile, VERB, clocks,
    own::NAME,
    spec::{MAX_SPEC, Report, Spec},
    terminal::Terminal,
};

/// Why a program was not started confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Its arguments and environment are too long.
    #[error("arguments and environment of `{0}` are longer than {MAX_SPEC} bytes")]
    TooLong(String),
    /// The program does not exist, cannot be executed, or this kernel cannot confine it as asked.
    #[error("{0}")]
    Refused(String),
    /// The system refused a process or a socket.
    #[error("a confined process could not be made: {0}")]
    Io(#[from] io::Error),
}

/// A program to be started confined.
#[derive(Debug)]
pub struct Confined {
    exe: PathBuf,
    spec: Spec,
    passed: Vec<OwnedFd>,
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
    /// The columns and the rows of it.
    terminal: Option<(u16, u16)>,
}

impl Confined {
    /// `exe` is drupe's own binary, whose `confined` verb calls [`main`](crate::main).
    pub fn new(exe: impl Into<PathBuf>, profile: Profile, program: impl Into<PathBuf>) -> Self {
        let spec = Spec {
            parent: getpid().as_raw_pid() as u32,
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            directory: None,
            deadline_ms: None,
            terminal: false,
            passed: Vec::new(),
            profile,
        };
        Self {
            exe: exe.into(),
            spec,
            passed: Vec::new(),
            stdin: Stdio::null(),
            stdout: Stdio::null(),
            stderr: Stdio::null(),
            terminal: None,
        }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.spec.args.push(arg.into());
        self
    }

    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.spec.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable. The program sees those given here and no others.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.spec.env.insert(name.into(), value.into());
        self
    }

    /// Hands a descriptor to the program, which takes it with [`inherited`](crate::inherited) under the number
    /// returned. Besides these and the standard streams it gets none. The copy on this side is closed by `spawn`, and
    /// no process between holds one: when the program closes its own, or ends, the other end of a socket sees it.
    ///
    /// A descriptor is a right that the profile does not bind. Of a local socket pass one end of a connected stream
    /// pair: with one that is not connected the program could connect to any path.
    #[must_use]
    pub fn pass(mut self, descriptor: OwnedFd) -> (Self, RawFd) {
        let number = descriptor.as_raw_fd();
        self.spec.passed.push(number);
        self.passed.push(descriptor);
        (self, number)
    }

    /// Sets the folder to start in.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spec.directory = Some(directory.into());
        self
    }

    /// Kills the program with all its descendants after this time.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.spec.deadline_ms = Some(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Sets the standard input; nothing by default.
    #[must_use]
    pub fn stdin(mut self, stdin: Stdio) -> Self {
        self.stdin = stdin;
        self
    }

    /// Sets where the standard output goes; nowhere by default.
    #[must_use]
    pub fn stdout(mut self, stdout: Stdio) -> Self {
        self.stdout = stdout;
        self
    }

    /// Sets where the standard error stream goes; nowhere by default.
    #[must_use]
    pub fn stderr(mut self, stderr: Stdio) -> Self {
        self.stderr = stderr;
        self
    }

    /// Gives it a terminal of its own of this size, which takes the place of the three standard streams.
    #[must_use]
    pub fn terminal(mut self, columns: u16, rows: u16) -> Self {
        self.spec.terminal = true;
        self.terminal = Some((columns, rows));
        self
    }

    /// Starts it, and waits the few milliseconds until it is confined. An error means that the program's first
    /// instruction was not run.
    pub fn spawn(self) -> Result<Child, ConfineError> {
        if let Some(number) = self.spec.passed.iter().find(|number| **number <= 2) {
            return Err(ConfineError::Refused(format!(
                "descriptor {number} is a standard stream; set it as one"
            )));
        }
        let (own, theirs) = UnixStream::pair()?;
        self.write_spec(&own)?;
        #[expect(clippy::disallowed_methods, reason = "this crate starts the child processes")]
        let mut command = Command::new(&self.exe);
        command.arg0(NAME).arg(VERB).arg("--spec").arg(theirs.as_raw_fd().to_string());
        // A group of its own: a Ctrl-C on the terminal is for the daemon, which decides what ends.
        command.env_clear().process_group(0);
        let mut terminal = None;
        match self.terminal {
            None => command.stdin(self.stdin).stdout(self.stdout).stderr(self.stderr),
            Some((columns, rows)) => {
                let opened = Terminal::open(columns, rows)
                    .map_err(|error| io::Error::new(error.kind(), format!("no terminal for it: {error}")));
                let (own, theirs) = opened?;
                terminal = Some(own);
                command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs)
            }
        };
        keep_open_in_child(&mut command, [&[theirs.as_raw_fd()], self.spec.passed.as_slice()].concat());
        let mut process = command.spawn()?;
        drop((theirs, self.passed));
        let mut reports = BufReader::new(own);
        let (enforcement, program) = match read_start(&mut reports) {
            Ok(started) => started,
            Err(reason) => {
                process.wait()?;
                return Err(ConfineError::Refused(reason));
            }
        };
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let child = Child { stdin, stdout, stderr, terminal, process, program, reports, enforcement };
        if self.spec.profile.limits.of_the_tree() {
            clocks::watch(program, child.id())?;
        }
        Ok(child)
    }

    /// Runs it to its end with both output streams captured, at most `most` bytes of each: what is beyond is thrown
    /// away. Blocks; give it a [`deadline`](Self::deadline).
    pub fn run(self, most: usize) -> Result<Outcome, ConfineError> {
        self.spawn_captured()?.finish(most)
    }

    /// Starts it with both output streams to be captured by [`Child::finish`].
    pub fn spawn_captured(self) -> Result<Child, ConfineError> {
        self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }

    /// Leaves the spec in the socket's buffer, where it waits for the process that is yet to be started.
    fn write_spec(&self, mut socket: &UnixStream) -> Result<(), ConfineError> {
        let mut line = serde_json::to_vec(&self.spec).map_err(io::Error::other)?;
        line.push(b'\n');
        if line.len() > MAX_SPEC {
            return Err(ConfineError::TooLong(self.spec.program.display().to_string()));
        }
        socket.set_nonblocking(true)?;
        socket.write_all(&line)?;
        socket.set_nonblocking(false)?;
        Ok(())
    }
}

/// Lets descriptors through the next `exec` of the child, and of the child only: other threads of this process may
/// start processes at the same time, which must not get them.
fn keep_open_in_child(command: &mut Command, numbers: Vec<RawFd>) {
    let keep = move || {
        for number in &numbers {
            // SAFETY: the descriptor is open in the parent until `spawn` returns, hence in its forked copy.
            fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*number) }, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it does not allocate or lock.
    unsafe { command.pre_exec(keep) };
}

fn read_report(reports: &mut BufReader<UnixStream>) -> Option<Report> {
    let mut line = String::new();
    reports.by_ref().take(64 * 1024).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// What is enforced, once the program runs; else why it does not.
fn read_start(reports: &mut BufReader<UnixStream>) -> Result<(Enforcement, u32), String> {
    let mut enforced = None;
    loop {
        match (read_report(reports), enforced) {
            (Some(Report::Confined(enforcement)), _) => enforced = Some(enforcement),
            (Some(Report::Started { program }), Some(enforcement)) => {
                return Ok((enforcement, program.unsigned_abs()));
            }
            (Some(Report::Failed(reason)), _) => return Err(reason),
            _ => return Err("the confining process ended before it started the program".into()),
        }
    }
}

fn capture(stream: Option<impl Read>, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(most as u64).read_to_end(&mut bytes)?;
        io::copy(&mut stream, &mut io::sink())?;
    }
    Ok(bytes)
}

/// How a program that [`Confined::run`] started has ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its status or signal.
    pub status: ExitStatus,
    pub timed_out: bool,
    /// Which bound on all its processes together it was killed for, as the end of a sentence.
    pub exceeded: Option<String>,
    /// The beginning of its standard output.
    pub stdout: Vec<u8>,
    /// The beginning of its standard error stream.
    pub stderr: Vec<u8>,
    /// What the kernel enforced.
    pub enforcement: Enforcement,
}

/// Why a reaper killed what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    TimedOut,
    /// It and what it started used more than they may together: `held more than 64 MiB of memory together`.
    Exceeded(String),
}

/// A confined program that runs. Dropping it kills the program and all its descendants; so does the end of this
/// process, whatever its cause.
#[derive(Debug)]
pub struct Child {
    /// Its standard input, if it was piped.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if it was piped.
    pub stdout: Option<ChildStdout>,
    /// Its standard error stream, if it was piped.
    pub stderr: Option<ChildStderr>,
    /// The other side of its terminal, if it has one.
    pub terminal: Option<Terminal>,
    process: std::process::Child,
    program: u32,
    reports: BufReader<UnixStream>,
    enforcement: Enforcement,
}

impl Child {
    /// What the kernel enforces for it.
    pub fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    /// The process id of the reaper that stands for it.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The process id of the program.
    pub fn program(&self) -> u32 {
        self.program
    }

    /// A socket that can be read when it has ended or its reaper begins to end it, for waiting without a thread;
    /// [`wait`](Self::wait) then takes milliseconds. It is to be looked at, never read, and blocks again when `wait` is
    /// called.
    pub fn ending(&self) -> io::Result<UnixStream> {
        self.reports.get_ref().try_clone()
    }

    /// Waits for its end, at most `most` bytes of each piped output stream kept: what is beyond is thrown away. What was written
    /// to a terminal is its standard output. Blocks.
    pub fn finish(mut self, most: usize) -> Result<Outcome, ConfineError> {
        drop(self.stdin.take());
        let (stdout, stderr, terminal) = (self.stdout.take(), self.stderr.take(), self.terminal.take());
        // Two pipes that fill up independently need two readers.
        let errors = std::thread::Builder::new().spawn(move || capture(stderr, most))?;
        let stdout = match terminal {
            None => capture(stdout, most)?,
            terminal => capture(terminal, most)?,
        };
        let stderr = errors.join().map_err(|_| io::Error::other("the reader of a pipe failed"))??;
        let enforcement = self.enforcement();
        let (status, stopped) = self.wait()?;
        let timed_out = stopped == Some(Stopped::TimedOut);
        let exceeded = match stopped {
            Some(Stopped::Exceeded(what)) => Some(what),
            _ => None,
        };
        Ok(Outcome { status, timed_out, exceeded, stdout, stderr, enforcement })
    }

    /// Waits for its end, and that of all descendants. The second value says why its reaper killed it, if it did.
    pub fn wait(&mut self) -> io::Result<(ExitStatus, Option<Stopped>)> {
        let stopped = self.stopped();
        Ok((self.process.wait()?, stopped))
    }

    /// Why its reaper killed it, once it has ended; waits for that.
    pub fn stopped(&mut self) -> Option<Stopped> {
        match read_report(&mut self.reports)? {
            Report::TimedOut => Some(Stopped::TimedOut),
            Report::Exceeded(what) => Some(Stopped::Exceeded(what)),
            _ => None,
        }
    }

    /// Its status if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Kills it and all its descendants, and waits until they are gone. The second value says why its reaper had begun to
    /// do so before.
    pub fn kill(mut self) -> io::Result<(ExitStatus, Option<Stopped>)> {
        self.reports.get_ref().shutdown(std::net::Shutdown::Both)?;
        // What was sent before can still be read.
        self.wait()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Closing the socket ends the reaper; waiting for it here leaves no zombie. It takes a few milliseconds.
        let _ = self.reports.get_ref().shutdown(std::net::Shutdown::Both);
        let _ = self.process.wait();
    }
}
