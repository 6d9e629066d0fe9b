//! One command: what it is started with, how its output is read, and how its end is told.

use std::{
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

use drupe_extension_api::{
    prelude::*,
    wire::{ProcessExit, ProcessSpec, TerminalSize},
};

use crate::{config::ShellConfig, plain::PlainText};

/// The longest command: who is asked must be able to read it, and it goes to the program as one argument.
const LONGEST: usize = 32 * 1024;

/// Where commands keep what is theirs between calls, beneath the data folder.
const HOME: &str = "home";

/// Toolchains in the manifest's order that need to be told where they are.
const CARGO_BIN: usize = 0;
const RUSTUP: usize = 1;

/// Both streams are one, so that what is written comes in the order in which it was written; the command is then the
/// argument of a shell of its own.
const SCRIPT: &str = r#"exec /bin/sh -c "$1" 2>&1"#;

/// What is to run, as it was asked for and shown.
pub struct CommandLine<'a> {
    pub text: &'a str,
    pub folder: &'a Path,
    pub network: bool,
    pub terminal: bool,
    pub time: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Exited(ProcessExit),
    /// It wrote more than it may in all.
    TooMuch,
    Stopped,
    /// Its session asked for none of its commands for long.
    Idle,
    /// Who read its output is gone.
    Lost,
}

/// A folder of the workspace by its name in a call: relative to the call's base folder, or absolute. What lies beneath the
/// workspace in fact is decided where the command is started.
pub fn folder(workspace: &Path, base: &str, named: Option<&str>) -> Result<PathBuf, Fault> {
    let base = Path::new(base).strip_prefix(workspace).unwrap_or(Path::new(""));
    let base = workspace.join(base);
    let Some(named) = named else { return Ok(base) };
    let path = Path::new(named);
    let plain = path.components().all(|part| !matches!(part, Component::ParentDir)) && !named.contains('\0');
    if !plain || path.is_absolute() && !path.starts_with(workspace) {
        return Err(Fault::denied(format!("`{named}` is outside of the workspace"))
            .help("use a path relative to the workspace, without `..`"));
    }
    Ok(base.join(path))
}

/// Refuses what cannot be run as it is shown.
pub fn check(text: &str) -> Result<(), Fault> {
    let reason = match text {
        _ if text.trim().is_empty() => "the command is empty".to_owned(),
        _ if text.contains('\0') => "the command holds a character that no command can hold".to_owned(),
        _ if text.len() > LONGEST => format!("the command is longer than {LONGEST} bytes"),
        _ => return Ok(()),
    };
    Err(Fault::invalid(reason).help("write longer scripts to a file of the workspace"))
}

/// What the kernel is asked to start.
pub fn spec(host: &Host, config: &ShellConfig, command: &CommandLine<'_>) -> ProcessSpec {
    let text = |path: &Path| path.display().to_string();
    let home = text(&host.data_folder().join(HOME));
    let folders = host.program_folders();
    let named = |at: usize| folders.get(at).filter(|folder| !folder.is_empty()).cloned();
    let mut env: Vec<(&str, String)> = vec![
        ("HOME", home.clone()),
        ("LANG", "C.UTF-8".to_owned()),
        // Nobody sits before it: no colours, no pager, no question. A program that is to behave as at a terminal is told of one
        // that every system describes.
        ("TERM", if command.terminal { "xterm-256color" } else { "dumb" }.to_owned()),
        ("PAGER", "cat".to_owned()),
        ("GIT_PAGER", "cat".to_owned()),
        ("GIT_TERMINAL_PROMPT", "0".to_owned()),
    ];
    env.extend(named(RUSTUP).map(|rustup| ("RUSTUP_HOME", rustup)));
    let args = ["-c", SCRIPT, "sh", command.text];
    ProcessSpec {
        args: args.map(str::to_owned).into(),
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        path: named(CARGO_BIN).into_iter().collect(),
        read: folders.iter().filter(|folder| !folder.is_empty()).cloned().collect(),
        folders: vec![home],
        workspace: true,
        skills: true,
        keep: config.keep.iter().map(|path| text(&host.workspace().join(path))).collect(),
        network: command.network,
        timeout_ms: u64::try_from(command.time.as_millis()).ok(),
        memory_mb: Some(config.memory_mb),
        tasks: Some(config.tasks),
        terminal: command.terminal.then(TerminalSize::default),
        ..ProcessSpec::new("/bin/sh", command.folder)
    }
}

/// Starts it; it has nothing to read. Nobody types at a terminal: what asks there reads the end of its input, as it would of a
/// pipe, and does not wait for an answer until its time is over.
pub async fn start(host: &Host, config: &ShellConfig, command: &CommandLine<'_>) -> Result<Process, Fault> {
    let mut process =
        host.open_process(&spec(host, config, command)).await.map_err(|fault| match fault.code {
            FaultCode::NotFound => {
                Fault::not_found(format!("there is no folder `{}`", command.folder.display()))
            }
            _ => fault,
        })?;
    process.stdin = None;
    Ok(process)
}

/// What a command does next.
pub enum Step {
    Wrote(Vec<u8>),
    Ended(End),
}

/// A command that is read to its end. Dropping it stops the command.
pub struct CommandReader {
    process: Process,
    written: u64,
    /// What it may write in all; it is to be stopped beyond that.
    most: u64,
    /// Of one that runs in a terminal.
    plain: Option<PlainText>,
}

impl CommandReader {
    pub fn new(process: Process, most: u64, terminal: bool) -> Self {
        Self { process, written: 0, most, plain: terminal.then(PlainText::default) }
    }

    /// Waits for what it writes next, or for its end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Step, Fault> {
        if self.written > self.most {
            return Ok(Step::Ended(End::TooMuch));
        }
        match self.process.read().await? {
            Some(bytes) => {
                self.written += bytes.len() as u64;
                Ok(Step::Wrote(match &mut self.plain {
                    Some(plain) => plain.push(&bytes),
                    None => bytes,
                }))
            }
            None => Ok(Step::Ended(End::Exited(self.process.wait().await?))),
        }
    }

    /// The line of a terminal that has not ended, as it is by now.
    pub fn line(&self) -> String {
        self.plain.as_ref().map(PlainText::unfinished).unwrap_or_default()
    }
}

impl End {
    /// As the first line of what a call gives: `ended with status 0 after 1.2 s`.
    pub fn told(&self, after: Duration, config: &ShellConfig, time: Duration) -> String {
        let seconds = after.as_secs_f64();
        let how = match self {
            Self::Exited(ProcessExit { timed_out: true, .. }) => {
                format!("was stopped because its {} s were over", time.as_secs_f64().round())
            }
            Self::Exited(ProcessExit { exceeded: Some(what), .. }) => {
                format!("was stopped: its processes {what}")
            }
            Self::Exited(ProcessExit { status: Some(status), .. }) => format!("ended with status {status}"),
            Self::Exited(ProcessExit { signal: Some(signal), .. }) => {
                format!("was ended by signal {signal}{}", name(*signal))
            }
            Self::Exited(_) => "ended".to_owned(),
            Self::TooMuch => format!("was stopped because it wrote more than {} MiB", config.written() >> 20),
            Self::Stopped => "was stopped".to_owned(),
            Self::Idle => {
                "was stopped because its session asked for none of its commands for long".to_owned()
            }
            Self::Lost => "was stopped with who read its output".to_owned(),
        };
        format!("{how} after {seconds:.1} s")
    }
}

/// The names of the signals that commands commonly end by, the same numbers on all machines that drupe runs on.
fn name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        31 => " (SIGSYS)",
        _ => "",
    }
}

/// The time until the deadline of a call, less what telling about it takes; none without one.
pub fn left(call: &Call, host: &Host) -> Option<Duration> {
    let left = call.deadline?.duration_since(host.now());
    let left = Duration::try_from(left).unwrap_or_default();
    Some(left.saturating_sub(Duration::from_secs(2)).max(Duration::from_secs(1)))
}

/// Shows output while a command runs: at most so much in a second, so that a flood of it costs nobody anything.
pub struct LiveOutput {
    began: Instant,
    shown: usize,
    held_back: u64,
    rest: Vec<u8>,
}

impl LiveOutput {
    /// Bytes that are shown in a second.
    const A_SECOND: usize = 32 * 1024;
    /// Bytes of a piece: what the kernel does not cut.
    const PIECE: usize = 8 * 1024;

    pub fn new() -> Self {
        Self { began: Instant::now(), shown: 0, held_back: 0, rest: Vec::new() }
    }

    /// What is shown of these bytes now.
    pub fn pieces(&mut self, bytes: &[u8], now: Instant) -> Vec<String> {
        if now.duration_since(self.began) >= Duration::from_secs(1) {
            (self.began, self.shown) = (now, 0);
        }
        let room = (Self::A_SECOND - self.shown).min(bytes.len());
        let (fits, beyond) = bytes.split_at(room);
        self.shown += room;
        let mut pieces = Vec::new();
        if room > 0 && self.held_back > 0 {
            pieces.push(format!("\n[… {} bytes are not shown while it runs …]\n", self.held_back));
            self.held_back = 0;
        }
        self.held_back += beyond.len() as u64;
        let mut text = std::mem::take(&mut self.rest);
        text.extend_from_slice(fits);
        self.rest = text.split_off(crate::output::whole(&text));
        pieces.extend(text.chunks(Self::PIECE).map(|piece| String::from_utf8_lossy(piece).into_owned()));
        pieces
    }
}
