//! The process between a [`Child`](crate::Child) and its program.
//!
//! It has one thread, inherits nothing but its socket, and keeps its own rights: only what becomes the program gives
//! them up. It is the sub-reaper of all that the program starts, so that a process which detaches itself twice still
//! comes back here and is killed. It ends as the program did.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::{AsFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process,
        set_child_subreaper, set_parent_process_death_signal, setrlimit, wait,
    },
};
use signal_hook::consts::SIGCHLD;

use crate::{
    inherit::{close_all_but, inherited, keep_on_exec},
    restrict::restrict,
    spec::{MAX_SPEC, Report, Spec},
};

/// Status of a reaper that could not do its work, as shells report a program that cannot be started.
const FAILED: i32 = 126;

/// Status after a deadline, as `timeout` reports it.
const TIMED_OUT: i32 = 124;

/// Runs the `confined` verb. `args` are those after it: `--spec N`, the number of the inherited socket. Never
/// returns; the process must have no other thread and must have done nothing else before.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ! {
    std::process::exit(match prepare(args) {
        Ok((spec, socket, passed)) => run(&spec, socket, passed),
        // There is nobody to tell: a person called the verb by hand, or the parent is gone.
        Err(_) => FAILED,
    })
}

/// Reads the spec from the socket and takes the reaper's place in the process tree.
fn prepare(args: impl IntoIterator<Item = OsString>) -> io::Result<(Spec, UnixStream, Vec<OwnedFd>)> {
    let args: Vec<_> = args.into_iter().collect();
    let number: RawFd = match args.as_slice() {
        [flag, number] if flag == "--spec" => number.to_str().and_then(|text| text.parse().ok()),
        _ => None,
    }
    .ok_or(io::ErrorKind::InvalidInput)?;
    let socket = UnixStream::from(inherited(number)?);
    let mut line = Vec::new();
    io::Read::take(BufReader::new(&socket), MAX_SPEC as u64).read_until(b'\n', &mut line)?;
    let spec: Spec = serde_json::from_slice(&line)?;
    if getppid().is_none_or(|parent| parent.as_raw_pid() as u32 != spec.parent) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    set_child_subreaper(Some(getpid()))?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let passed = spec.passed.iter().map(|number| inherited(*number)).collect::<io::Result<Vec<_>>>()?;
    close_all_but(&spec.passed.iter().copied().chain([number]).collect::<BTreeSet<_>>())?;
    Ok((spec, socket, passed))
}

/// Starts the program, waits, and leaves no descendant. Returns the status to end with.
fn run(spec: &Spec, socket: UnixStream, passed: Vec<OwnedFd>) -> i32 {
    let started = changes().and_then(|changes| Ok((changes, start(spec, &socket)?)));
    let (changes, program) = match started {
        Ok(started) => started,
        Err(error) => {
            let reason = format!("`{}` cannot be started: {error}", spec.program.display());
            report(&socket, &Report::Failed(reason));
            return FAILED;
        }
    };
    report(&socket, &Report::Started);
    // Else whoever holds the other end would not see that the program closed its own.
    drop(passed);
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // Else a reader of the program's output would wait for this process, too.
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let deadline = spec.deadline_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
    let ended = supervise(&socket, &changes, program, deadline);
    kill_descendants(program);
    match ended {
        Ended::Program(status) => mimic(status),
        Ended::TimedOut => {
            report(&socket, &Report::TimedOut);
            TIMED_OUT
        }
        Ended::Abandoned => FAILED,
    }
}

fn report(mut socket: &UnixStream, report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        // The parent may be gone; then nobody needs it.
        let _ = socket.write_all(&line);
    }
}

/// A stream that becomes readable when a child changes its state.
fn changes() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    write.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    Ok(read)
}

fn start(spec: &Spec, socket: &UnixStream) -> io::Result<Pid> {
    #[expect(clippy::disallowed_methods, reason = "this crate starts the child processes")]
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().envs(&spec.env);
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    if let Some(directory) = &spec.directory {
        command.current_dir(directory);
    }
    let (profile, passed, socket) = (spec.profile.clone(), spec.passed.clone(), socket.try_clone()?);
    let become_program = move || {
        // Defence in depth: should the program kill this process, it dies with it. That this follows a thread is no
        // harm here, there is only one.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        keep_on_exec(&passed)?;
        match restrict(&profile) {
            Ok(enforcement) => report(&socket, &Report::Confined(enforcement)),
            Err(error) => {
                // An error from here loses its text on the way to the parent, so that it is told directly.
                report(&socket, &Report::Failed(error.to_string()));
                return Err(error);
            }
        }
        Ok(())
    };
    // SAFETY: the closure runs in a forked copy of a process with one thread, so no lock can be held by a thread that
    // does not exist there, and allocating is allowed.
    unsafe { command.pre_exec(become_program) };
    let child = command.spawn()?;
    Pid::from_raw(child.id() as i32).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Why waiting ended.
enum Ended {
    Program(WaitStatus),
    TimedOut,
    /// The parent closed the socket or died.
    Abandoned,
}

fn supervise(socket: &UnixStream, changes: &UnixStream, program: Pid, deadline: Option<Instant>) -> Ended {
    loop {
        if let Some(status) = reap(program) {
            return Ended::Program(status);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ended::TimedOut;
        }
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN | PollFlags::RDHUP),
            PollFd::from_borrowed_fd(changes.as_fd(), PollFlags::IN),
        ];
        if poll(&mut fds, timeout.as_ref()).is_err() {
            continue;
        }
        // The parent never writes after the spec: whatever happens on the socket is its end.
        if !fds[0].revents().is_empty() {
            return Ended::Abandoned;
        }
        while matches!(io::Read::read(&mut &*changes, &mut [0; 64]), Ok(1..)) {}
    }
}

/// Buries every dead child; the program's status, if it is among them.
fn reap(program: Pid) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == program {
            found = Some(status);
        }
    }
    found
}

/// Kills until nothing is left. Each round kills the children; their own children then become children of this
/// process, and are killed in the next one.
fn kill_descendants(program: Pid) {
    loop {
        // Without `/proc` only the program itself is known. Its group would miss who left it.
        let children = children().or_else(scan).unwrap_or_else(|| vec![program]);
        for pid in children {
            // One that ended meanwhile is still unburied, so its number cannot belong to another process.
            let _ = kill_process(pid, Signal::KILL);
        }
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The children of this process, from the list that most kernels keep.
fn children() -> Option<Vec<Pid>> {
    let list = fs::read_to_string(format!("/proc/self/task/{}/children", getpid().as_raw_pid())).ok()?;
    Some(list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect())
}

/// The children of this process, from a look at every process.
fn scan() -> Option<Vec<Pid>> {
    let own = getpid().as_raw_pid();
    let parent_of = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; the state and the parent follow it.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Some(all.filter(|pid| parent_of(*pid) == Some(own)).filter_map(Pid::from_raw).collect())
}

/// Ends as the program did: by its signal, or with the returned status.
fn mimic(status: WaitStatus) -> i32 {
    if let Some(signal) = status.terminating_signal() {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process(getpid(), signal);
        }
        return 128 + signal;
    }
    status.exit_status().unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test starts the process that it looks for")]

    use super::*;

    #[test]
    fn a_look_at_every_process_finds_the_children() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep exists");
        let pid = Pid::from_raw(child.id() as i32).expect("a process id");
        assert!(scan().expect("proc is mounted").contains(&pid));
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(!scan().expect("proc is mounted").contains(&pid));
    }
}
