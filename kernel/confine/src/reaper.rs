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
        Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpgid, getpgrp, getpid, getppid,
        ioctl_tiocsctty, kill_process, kill_process_group, set_child_subreaper,
        set_parent_process_death_signal, setrlimit, setsid, wait,
    },
};
use signal_hook::consts::{SIGCHLD, SIGPROF};

use crate::{
    inherit::{close_all_but, inherited, keep_on_exec},
    mounts, own,
    profile::Limits,
    restrict::restrict,
    spec::{MAX_SPEC, Report, Spec},
    tree::{self, Excess},
};

/// Status of a reaper that could not do its work, as shells report a program that cannot be started.
const FAILED: i32 = 126;

/// Status after a deadline, as `timeout` reports it.
const TIMED_OUT: i32 = 124;

/// Status after a bound on the whole tree was broken.
const EXCEEDED: i32 = 125;

/// How often it is looked what the whole tree uses while its program works. What is taken within this time is seen late.
const LOOK: Duration = Duration::from_millis(250);

/// How often it is looked while the program rests, but has started others.
const SELDOM: Duration = Duration::from_secs(1);

/// How much of a processor's time a program uses between two looks that works.
const WORK: Duration = Duration::from_millis(10);

/// Runs the `confined` verb. `args` are those after it: `--spec N`, the number of the inherited socket. Never
/// returns; the process must have no other thread and must have done nothing else before.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ! {
    own::take_name();
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
    // SAFETY: this process has just begun and owns nothing yet.
    let socket = UnixStream::from(unsafe { inherited(number) }?);
    let mut line = Vec::new();
    io::Read::take(BufReader::new(&socket), MAX_SPEC as u64).read_until(b'\n', &mut line)?;
    let spec: Spec = serde_json::from_slice(&line)?;
    if getppid().is_none_or(|parent| parent.as_raw_pid() as u32 != spec.parent) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    set_child_subreaper(Some(getpid()))?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // SAFETY: what this process has opened since it began closes on `exec`, and is refused.
    let take = |number: &RawFd| unsafe { inherited(*number) };
    let passed = spec.passed.iter().map(take).collect::<io::Result<Vec<_>>>()?;
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
    report(&socket, &Report::Started { program: program.as_raw_pid() });
    // While this process holds a copy, the other end would not see that the program closed its own.
    drop(passed);
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // While this process holds the streams, a reader of the program's output would wait for it, too.
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let deadline = spec.deadline_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
    let ended = supervise(&socket, &changes, program, deadline, &spec.profile.limits);
    // The report goes out before the processes are ended: whoever sees their end asks for the reason.
    let status = match ended {
        Ended::Program(status) => Err(status),
        Ended::TimedOut => {
            report(&socket, &Report::TimedOut);
            Ok(TIMED_OUT)
        }
        Ended::Exceeded(what) => {
            report(&socket, &Report::Exceeded(what));
            Ok(EXCEEDED)
        }
        Ended::Abandoned => Ok(FAILED),
    };
    kill_descendants(program);
    status.unwrap_or_else(mimic)
}

fn report(mut socket: &UnixStream, report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        // The parent may be gone; then nobody needs it.
        let _ = socket.write_all(&line);
    }
}

/// A stream that becomes readable when a child changes its state, or the program has worked.
fn changes() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    write.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGPROF, write.try_clone()?)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    Ok(read)
}

fn start(spec: &Spec, socket: &UnixStream) -> io::Result<Pid> {
    #[expect(clippy::disallowed_methods, reason = "this crate starts the child processes")]
    let mut command = Command::new(&spec.program);
    command.arg0(own::name(&spec.program)).args(&spec.args).env_clear().envs(&spec.env);
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    if let Some(directory) = &spec.directory {
        command.current_dir(directory);
    }
    let (profile, passed, socket) = (spec.profile.clone(), spec.passed.clone(), socket.try_clone()?);
    let (directory, terminal) = (spec.directory.clone(), spec.terminal);
    let become_program = move || {
        // First of all: a process that enters a namespace of users loses the signal of the next line.
        let kept = mounts::keep(&profile);
        hear_all_signals();
        // No terminal but its own, and no group with anybody outside.
        setsid()?;
        if terminal {
            ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        if let (false, Some(directory)) = (mounts::needs_none(&profile), &directory) {
            // Where it is by now lies beneath the new mounts.
            rustix::process::chdir(directory)?;
        }
        // Defence in depth: should the program kill this process, it dies with it. That this follows a thread is no
        // harm here, there is only one.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        keep_on_exec(&passed)?;
        match kept.and_then(|kept| restrict(&profile, kept)) {
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

/// Lets the program hear each signal as any program does. Whoever started the daemon may have had some ignored, as `nohup` has SIGHUP,
/// and what is ignored when a program starts stays so: a shell cannot even ask for it.
fn hear_all_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default disposition needs no code of ours. Of signals that cannot be set it is refused, and they have it.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Why waiting ended.
enum Ended {
    Program(WaitStatus),
    TimedOut,
    /// All that it started and it together used more than they may.
    Exceeded(String),
    /// The parent closed the socket or died.
    Abandoned,
}

fn supervise(
    socket: &UnixStream,
    changes: &UnixStream,
    program: Pid,
    deadline: Option<Instant>,
    limits: &Limits,
) -> Ended {
    let mut watch = limits.of_the_tree().then(|| Watch::new(program));
    loop {
        if let Some(status) = reap(program) {
            return Ended::Program(status);
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Ended::TimedOut;
        }
        if let Some(watch) = &mut watch
            && watch.next.is_some_and(|next| next <= now)
            && let Err(Excess(what)) = watch.look(limits)
        {
            return Ended::Exceeded(what);
        }
        let next = deadline.into_iter().chain(watch.as_ref().and_then(|watch| watch.next)).min();
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN | PollFlags::RDHUP),
            PollFd::from_borrowed_fd(changes.as_fd(), PollFlags::IN),
        ];
        if poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready == 0) {
            continue;
        }
        // The parent never writes after the spec: whatever happens on the socket is its end.
        if !fds[0].revents().is_empty() {
            return Ended::Abandoned;
        }
        while matches!(io::Read::read(&mut &*changes, &mut [0; 64]), Ok(1..)) {}
        watch.iter_mut().for_each(Watch::wake);
    }
}

/// When a look at the whole tree is worth its price. A program that is alone and does not run takes nothing and starts
/// nobody, so that nobody looks until it has run: a timer on its clock tells when it has worked, and the parent's
/// [clocks](crate::clocks) whatever little it did. Both do so by a signal.
struct Watch {
    program: Pid,
    timer: Option<libc::timer_t>,
    used: Option<Duration>,
    next: Option<Instant>,
    /// The earliest that it is worth it: a look at a tree that is large takes long.
    earliest: Instant,
}

impl Watch {
    fn new(program: Pid) -> Self {
        let (now, mut timer) = (Instant::now(), std::ptr::null_mut());
        // SAFETY: all of it is plain numbers, for which zero is a value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, SIGPROF);
        // SAFETY: both are valid while it is called.
        let made = unsafe { libc::timer_create(tree::clock(program.as_raw_pid()), &mut event, &mut timer) };
        Self { program, timer: (made == 0).then_some(timer), used: None, next: Some(now), earliest: now }
    }

    /// The program has run, or something else has changed.
    fn wake(&mut self) {
        self.next = Some(self.next.map_or(self.earliest, |next| next.min(self.earliest)));
    }

    /// Looks, and finds when to do so again. Which bound was broken.
    fn look(&mut self, limits: &Limits) -> Result<(), Excess> {
        // Before the look, so that what happens during it is seen by the next one.
        let used = tree::cpu_time(self.program.as_raw_pid().unsigned_abs());
        let before = std::mem::replace(&mut self.used, used);
        let processes = tree::count(limits)?;
        self.earliest = Instant::now() + LOOK;
        let works = used.zip(before).is_none_or(|(used, before)| used.saturating_sub(before) >= WORK);
        self.next = match processes {
            _ if works || !self.set(WORK) => Some(self.earliest),
            1 => None,
            _ => Some(Instant::now() + SELDOM),
        };
        Ok(())
    }

    /// Has the timer ring once the program has run for so long from now on; false where there is none.
    fn set(&self, after: Duration) -> bool {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_nsec: i64::from(after.subsec_nanos()), ..zero };
        let setting = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the timer is this process's own, and is never deleted.
        let set = |timer| unsafe { libc::timer_settime(timer, 0, &setting, std::ptr::null_mut()) };
        self.timer.is_some_and(|timer| set(timer) == 0)
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
/// process, and are killed in the next one. Where they start others as fast as they are killed, only short rounds come
/// to an end: all the dead are buried in each, so that the next has none but the living to look through.
fn kill_descendants(program: Pid) {
    kill_groups();
    // Else those that are left would start others as fast as these are killed.
    tree::stop_descendants();
    loop {
        // Without `/proc` only the program itself is known. Its group would miss who left it.
        for pid in tree::children().unwrap_or_else(|| vec![program]) {
            // One that ended meanwhile is still unburied, so its number cannot belong to another process.
            let _ = kill_process(pid, Signal::KILL);
        }
        if bury() == 0 {
            return;
        }
    }
}

/// Kills whole groups of processes at once, each with all that is being started in it at that moment: thousands that all want
/// to run leave this process no time for one after another. Whoever was started here is in no session, hence in no group,
/// with anybody else.
fn kill_groups() {
    for child in tree::children().unwrap_or_default() {
        if let Ok(group) = getpgid(Some(child))
            && group != getpgrp()
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Waits until a child has ended, and buries all that have: how many. None is left where it was none.
fn bury() -> usize {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 0,
        }
    }
    1 + std::iter::from_fn(|| wait(WaitOptions::NOHANG).ok().flatten()).count()
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
    #![expect(clippy::disallowed_methods, reason = "a test starts the processes that it is about")]

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    /// Takes every child of its process, so that it has one of its own.
    #[test]
    #[ignore = "a test below runs it"]
    fn alone() {
        let children: Vec<_> =
            (0..50).map(|_| Command::new("true").spawn().expect("it exists").id() as i32).collect();
        for pid in children.into_iter().filter_map(Pid::from_raw) {
            let dead = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            assert!(dead.is_ok());
        }
        assert_eq!((bury(), bury()), (50, 0));
    }

    /// Hears signals of its process, so that it has one of its own.
    #[test]
    #[ignore = "a test below runs it"]
    fn rung() {
        let changes = changes().expect("a pair");
        let heard = |seconds| {
            let mut fds = [PollFd::new(&changes, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).map_or(true, |ready| ready > 0)
        };
        let script = "read line; while :; do :; done";
        let busy = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn();
        let mut busy = busy.expect("it exists");
        let watch = Watch::new(Pid::from_raw(busy.id() as i32).expect("a process"));
        // What it needs to begin is less.
        assert!(watch.set(Duration::from_millis(200)) && !heard(1));
        busy.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        let told = heard(20);
        busy.kill().and_then(|()| busy.wait()).expect("it runs");
        assert!(told, "it works, and nobody is told");
    }

    fn by_itself(test: &str) {
        let this = std::env::current_exe().expect("a test has a file");
        let run = Command::new(this).args(["--exact", test, "--ignored"]).output();
        let run = run.expect("it starts");
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn a_round_buries_all_that_have_died() {
        by_itself("reaper::tests::alone");
    }

    #[test]
    fn a_program_that_works_is_noticed_by_its_clock() {
        by_itself("reaper::tests::rung");
    }
}
