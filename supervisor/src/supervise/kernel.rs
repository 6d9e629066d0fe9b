//! The kernel process: how it is made, heard and killed.

use std::{
    collections::VecDeque,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::{
            fs::MetadataExt,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use drupe_link::{SupervisorLink, pair};
use rustix::{
    io::{FdFlags, fcntl_setfd, ioctl_fionbio},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid},
};

use super::{Options, arguments::KernelArguments, output::Output, stall::Stall, state::Exit};

/// Lines kept for the record of an exit: a panic with its backtrace fits.
const LAST_LINES: usize = 40;
/// Bytes kept of each.
const LINE: usize = 300;
/// Reads of the kernel's output a round, of 4 KiB each: a flood of it must not keep the supervisor from its work.
const READS: usize = 16;

/// A kernel process and both ways to hear it.
#[derive(Debug)]
pub struct Kernel {
    child: Child,
    stderr: Option<ChildStderr>,
    tail: Tail,
    /// How much processor time it gets while it is silent.
    stall: Stall,
    /// What kept it from running when it was killed, where that was not its own code.
    pub stood_still: Option<&'static str>,
    pub link: SupervisorLink,
    pub generation: u64,
    pub started: Instant,
}

impl Kernel {
    /// Starts one from `program`. With `last_good` it reads the last good configuration in place of the operator's.
    /// `control` is its listening socket, `blame` the page in which it notes whose code runs.
    pub fn spawn(
        options: &Options,
        program: &Path,
        home: &Path,
        last_good: bool,
        control: BorrowedFd<'_>,
        blame: Option<BorrowedFd<'_>>,
        generation: u64,
    ) -> io::Result<Self> {
        let (link, theirs) = pair()?;
        let arguments = KernelArguments {
            home: home.to_owned(),
            link_fd: theirs.as_raw_fd(),
            control_fd: control.as_raw_fd(),
            blame_fd: blame.map(|page| page.as_raw_fd()),
            config: options.config.clone(),
            last_good,
            agents: options.agents.clone(),
            human_log: options.human_log,
        };
        #[expect(clippy::disallowed_methods, reason = "the supervisor starts the kernel, and nothing else")]
        let mut command = Command::new(program);
        command.args(arguments.to_args()).args(&options.kernel_args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // These are for the process that systemd started.
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        // A group of its own: a Ctrl-C on the terminal is for the supervisor, which asks the kernel to drain.
        command.process_group(0);
        // Nobody else starts processes here, so the two need not be closed on `exec` for this moment.
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let lent = || std::iter::once(control).chain(blame);
        lent().try_for_each(|fd| fcntl_setfd(fd, FdFlags::empty()))?;
        let spawned = command.spawn();
        lent().try_for_each(|fd| fcntl_setfd(fd, FdFlags::CLOEXEC))?;
        let mut child = spawned?;
        let stderr = child.stderr.take();
        if let Some(stderr) = &stderr {
            ioctl_fionbio(stderr, true)?;
        }
        let (tail, stall, started) = (Tail::default(), Stall::default(), Instant::now());
        Ok(Self { child, stderr, tail, stall, stood_still: None, link, generation, started })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Notes how a kernel spends its time that has been silent for so long.
    pub fn watch(&mut self, silence: Duration, now: Instant) {
        let pid = self.pid();
        self.stall.look(pid, silence, now);
    }

    pub fn kill(&mut self) {
        self.stood_still = self.stall.why(self.pid(), Instant::now());
        // An error means that it has ended by itself.
        let _ = self.child.kill();
    }

    /// How it ended, if it has. The rest of its process group is killed: a process that code in it made by `fork` holds the
    /// connections of clients, who would wait for ever.
    pub fn exit(&mut self) -> Option<Exit> {
        let pid = Pid::from_child(&self.child);
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), look).ok()??;
        // Until somebody waits for it, no other group can have its number.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = self.child.try_wait().ok()??;
        Some(match (status.code(), status.signal()) {
            (Some(status), _) => Exit::Status(status),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        })
    }

    /// Its standard error stream, while it is open.
    pub fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.stderr.as_ref().map(AsFd::as_fd)
    }

    /// Passes on what it wrote, and remembers the end of it.
    pub fn listen(&mut self, output: &mut Output) {
        let Some(stderr) = &mut self.stderr else { return };
        let mut buffer = [0; 4096];
        for _ in 0..READS {
            match stderr.read(&mut buffer) {
                Ok(0) => {
                    self.stderr = None;
                    return output.end_line();
                }
                Ok(length) => {
                    output.pass(&buffer[..length]);
                    self.tail.take(&buffer[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    pub fn last_lines(&self) -> Vec<String> {
        self.tail.lines()
    }
}

/// The program that this process runs, whatever became of its file. A child that is about to become a kernel still runs
/// the same.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Whether a file is another program than the one that this process runs. What cannot be told counts as unchanged.
pub fn is_exchanged(program: &Path) -> bool {
    let file = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino()));
    matches!((file(program), file(Path::new(OWN_PROGRAM))), (Ok(found), Ok(own)) if found != own)
}

/// The last lines of a stream.
#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<String>,
    line: Vec<u8>,
}

impl Tail {
    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            self.line.extend_from_slice(&text[..text.len().min(LINE - self.line.len())]);
            if part.len() > text.len() {
                if self.lines.len() == LAST_LINES {
                    self.lines.pop_front();
                }
                self.lines.push_back(String::from_utf8_lossy(&self.line).into_owned());
                self.line.clear();
            }
        }
    }

    /// With the unfinished one, which is often the most telling.
    fn lines(&self) -> Vec<String> {
        let unfinished = (!self.line.is_empty()).then(|| String::from_utf8_lossy(&self.line).into_owned());
        self.lines.iter().cloned().chain(unfinished).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_are_cut() {
        let mut tail = Tail::default();
        for number in 0..100 {
            tail.take(format!("line {number}\nhalf of ").as_bytes());
            tail.line.clear();
        }
        tail.take(&[b'x'; 10_000]);
        tail.take(b"\nunfinished \xff");
        let lines = tail.lines();
        assert_eq!(lines.len(), LAST_LINES + 1);
        assert_eq!(lines[0], "line 61");
        assert_eq!(lines[LAST_LINES - 1], "x".repeat(LINE));
        assert_eq!(lines[LAST_LINES], "unfinished \u{fffd}");
    }
}
