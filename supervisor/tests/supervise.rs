//! The real supervisor over a fake kernel: processes, signals, sockets.

#![expect(clippy::disallowed_methods, reason = "a test starts the processes that it is about")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixDatagram, net::UnixStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use drupe_extension_api::control::{DaemonState, Hello, Reply, ReplyBody, Request, Status, method};
use drupe_extension_api::{Fault, FaultCode};
use drupe_link::{ControlToken, Home};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

#[path = "supervise/blame.rs"]
mod blame;
#[path = "supervise/exchanged.rs"]
mod exchanged;
#[path = "supervise/home.rs"]
mod home;

/// Long enough for a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon in a home of its own; it ends with the test.
struct Daemon {
    folder: tempfile::TempDir,
    home: Home,
    process: Child,
}

impl Daemon {
    fn start(script: &str) -> Self {
        Self::start_with(script, &[])
    }

    fn start_with(script: &str, more: &[&std::ffi::OsStr]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let process = command(&folder, script).args(more).spawn().expect("the example is built");
        let home = Home::new(folder.path().join("home")).expect("a path");
        Self { folder, home, process }
    }

    /// One whose kernel serves.
    fn serving(script: &str) -> Self {
        let daemon = Self::start(script);
        daemon.kernel();
        daemon
    }

    /// The process of the kernel that serves, once one does.
    fn kernel(&self) -> Pid {
        let pid = eventually("a kernel serves", || {
            let mut client = Client::connect(&self.home, "kernel")?;
            client.ask(method::STATUS).ok()?.as_i64()
        });
        Pid::from_raw(pid as i32).expect("a process id")
    }

    /// A client of the kernel. Just after it became ready the supervisor may still take one.
    fn client(&self) -> Client {
        eventually("the kernel takes a client", || Client::connect(&self.home, "kernel"))
    }

    /// What the supervisor says while no kernel serves.
    fn status(&self) -> Status {
        eventually("the supervisor answers", || {
            let mut client = Client::connect(&self.home, "supervisor")?;
            serde_json::from_value(client.ask(method::STATUS).ok()?).ok()
        })
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("the supervisor runs");
    }

    fn end(&mut self) -> ExitStatus {
        eventually("the supervisor ends", || self.process.try_wait().expect("it is a child"))
    }

    /// Waits until the supervisor has read all that its first kernel sent before it was ready: that
    /// kernel serves as soon as it has said so, which may be earlier.
    fn eventually_read_on(&self) {
        eventually("the supervisor reads on", || (self.log("ready").len() == 1).then_some(()));
    }

    /// The lines of its log of a kind.
    fn log(&self, event: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.home.state().join("supervisor.log")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == event).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "{log}");
        }
    }
}

fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    test.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("examples/fake_daemon")
}

fn command(folder: &tempfile::TempDir, script: &str) -> Command {
    command_of(&example(), folder, script)
}

fn command_of(program: &std::path::Path, folder: &tempfile::TempDir, script: &str) -> Command {
    let log = fs::OpenOptions::new().append(true).create(true).open(folder.path().join("stderr"));
    let mut command = Command::new(program);
    command.arg("run").arg("--home").arg(folder.path().join("home")).arg("--script").arg(script);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a file"));
    command
}

/// Tries until there is an answer: other processes must get there first.
fn eventually<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = so() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A client that has said hello.
struct Client {
    reader: BufReader<UnixStream>,
    from: String,
}

impl Client {
    fn open(home: &Home) -> Option<Self> {
        let stream = home.connect().ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(Self { reader: BufReader::new(stream), from: String::new() })
    }

    /// Connects if the one who answers is the one wanted.
    fn connect(home: &Home, wanted: &str) -> Option<Self> {
        let mut client = Self::open(home)?;
        let token = ControlToken::read(home).ok()?.reveal().to_owned();
        let hello = serde_json::to_value(Hello { token, version: 1 }).ok()?;
        let welcome = client.request(method::HELLO, hello)?.ok()?;
        client.from = welcome["from"].as_str()?.to_owned();
        (client.from == wanted).then_some(client)
    }

    fn ask(&mut self, method: &str) -> Result<Value, Fault> {
        self.request(method, Value::Null).unwrap_or_else(|| Err(Fault::internal("closed")))
    }

    fn request(&mut self, method: &str, params: Value) -> Option<Result<Value, Fault>> {
        let request = Request { id: 5, method: method.into(), params };
        self.line(&serde_json::to_string(&request).ok()?)
    }

    /// Sends a line and reads one; none if the connection is closed.
    fn line(&mut self, line: &str) -> Option<Result<Value, Fault>> {
        self.reader.get_mut().write_all(format!("{line}\n").as_bytes()).ok()?;
        let mut answer = String::new();
        self.reader.read_line(&mut answer).ok()?;
        match serde_json::from_str::<Reply>(&answer).ok()?.body {
            ReplyBody::Result(value) => Some(Ok(value)),
            ReplyBody::Error(fault) => Some(Err(fault)),
            ReplyBody::Event(_) => None,
        }
    }
}

fn gone(pid: Pid) -> Option<()> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    (test_kill_process(pid).is_err() || stat.contains(") Z ")).then_some(())
}

#[test]
fn a_killed_kernel_is_started_again_and_recorded() {
    let daemon = Daemon::serving("serve");
    let first = daemon.kernel();
    kill_process(first, Signal::KILL).expect("it runs");
    eventually("another kernel serves", || (daemon.kernel() != first).then_some(()));
    let exits = daemon.log("exit");
    assert_eq!(exits.len(), 1);
    assert!(
        exits[0]["how"].as_str().is_some_and(|how| how.starts_with("signal 9 (SIGKILL) of another process"))
    );
    assert_eq!(exits[0]["crash"], true);
    assert_eq!(daemon.log("start").len(), 2);
}

#[test]
fn what_a_kernel_leaves_of_its_group_ends_with_it_and_its_clients_see_the_end() {
    let daemon = Daemon::serving("serve");
    let mut client = daemon.client();
    let orphan = client.ask("orphan").expect("it agrees").as_i64().expect("a process id");
    kill_process(daemon.kernel(), Signal::KILL).expect("it runs");
    let mut rest = String::new();
    assert_eq!(client.reader.read_line(&mut rest).expect("no wait"), 0, "{rest}");
    let orphan = Pid::from_raw(orphan as i32).expect("a process id");
    eventually("the orphan ends", || gone(orphan));
}

#[test]
fn a_killed_supervisor_takes_its_kernel_with_it() {
    let daemon = Daemon::serving("serve");
    let kernel = daemon.kernel();
    daemon.signal(Signal::KILL);
    eventually("the kernel ends", || gone(kernel));
}

#[test]
fn the_next_supervisor_takes_over_what_a_killed_one_left() {
    let mut daemon = Daemon::serving("serve");
    daemon.signal(Signal::KILL);
    daemon.end();
    assert!(daemon.home.token().exists());
    daemon.process = command(&daemon.folder, "serve").spawn().expect("it starts");
    // The first kernel may still answer while it learns that its supervisor is gone.
    eventually("the second kernel is ready", || {
        daemon.log("ready").iter().any(|ready| ready["generation"] == 2).then_some(())
    });
    daemon.kernel();
}

#[test]
fn a_requested_restart_is_at_once_and_no_crash() {
    let daemon = Daemon::serving("serve");
    let first = daemon.kernel();
    let mut client = daemon.client();
    client.ask(method::RESTART).expect("it agrees");
    eventually("another kernel serves", || (daemon.kernel() != first).then_some(()));
    let exits = daemon.log("exit");
    assert_eq!(exits[0]["how"], "restart: a client asked");
    assert_eq!(exits[0]["crash"], false);
}

#[test]
fn a_refused_configuration_or_a_home_in_use_ends_a_cold_start() {
    for status in [69, 78] {
        let mut daemon = Daemon::start(&format!("exit:{status}"));
        assert_eq!(daemon.end().code(), Some(status));
        assert_eq!(daemon.log("start").len(), 1);
        assert!(!daemon.home.token().exists() && !daemon.home.socket().exists());
    }
}

#[test]
fn a_configuration_that_went_bad_is_replaced_by_the_last_good_one() {
    let daemon = Daemon::serving("serve,refuse");
    let first = daemon.kernel();
    daemon.client().ask(method::RESTART).expect("it agrees");
    eventually("another kernel serves", || (daemon.kernel() != first).then_some(()));
    let hows: Vec<_> = daemon.log("exit").iter().map(|exit| exit["how"].clone()).collect();
    assert_eq!(hows, ["restart: a client asked", "exit status 78"]);
    assert_eq!(fs::read_to_string(daemon.home.good_config()).expect("it was kept"), "# the good one");
    assert_eq!(daemon.log("note").len(), 1);
}

#[test]
fn the_supervisor_answers_until_a_kernel_does() {
    let daemon = Daemon::start("hold");
    let status = daemon.status();
    assert_eq!(status.state, DaemonState::Starting);
    assert_eq!(status.supervisor_pid, daemon.process.id());
    assert_eq!(status.generation, 1);
    assert!(status.kernel_pid.is_some());

    let mut client = Client::connect(&daemon.home, "supervisor").expect("it answers");
    let fault = client.ask(method::TURN_SUBMIT).expect_err("there is nobody to take it");
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(fault.retriable);

    let wrong = serde_json::json!({ "token": "0".repeat(64) });
    let mut stranger = Client::open(&daemon.home).expect("it listens");
    let fault = stranger.request(method::HELLO, wrong).expect("an answer").expect_err("not the token");
    assert_eq!(fault.code, FaultCode::Denied);
    assert!(stranger.request(method::STATUS, Value::Null).is_none(), "the connection is closed");
    let mut stranger = Client::open(&daemon.home).expect("it listens");
    assert!(stranger.request(method::STOP, Value::Null).expect("an answer").is_err());

    fs::write(daemon.home.path().join("go"), "").expect("a file");
    daemon.kernel();
    eventually("the supervisor lets its client go", || {
        client.request(method::STATUS, Value::Null).is_none().then_some(())
    });
}

#[test]
fn a_stop_between_kernels_is_obeyed() {
    let mut daemon = Daemon::start("hold");
    eventually("it agrees", || Client::connect(&daemon.home, "supervisor")?.ask(method::STOP).ok());
    assert_eq!(daemon.end().code(), Some(0));
    assert!(!daemon.home.socket().exists());
}

#[test]
fn sigterm_stops_cleanly_and_leaves_no_socket() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::serving("serve");
        let kernel = daemon.kernel();
        daemon.signal(signal);
        assert_eq!(daemon.end().code(), Some(0));
        gone(kernel).expect("the kernel ended first");
        assert_eq!(daemon.log("exit")[0]["how"], "stopped");
        assert!(!daemon.home.token().exists() && !daemon.home.socket().exists());
    }
}

#[test]
fn a_second_sigterm_does_not_wait_for_the_drain() {
    let mut daemon = Daemon::serving("stubborn");
    let kernel = daemon.kernel();
    daemon.signal(Signal::TERM);
    daemon.signal(Signal::INT);
    assert_eq!(daemon.end().code(), Some(1));
    gone(kernel).expect("the kernel was killed");
}

#[test]
fn garbage_on_the_link_harms_nothing() {
    let daemon = Daemon::serving("flood");
    daemon.eventually_read_on();
    daemon.kernel();
    assert!(daemon.log("exit").is_empty());
}

#[test]
fn a_crash_loop_ends_in_safe_mode_and_the_last_lines_are_kept() {
    let daemon = Daemon::serving("fragile");
    let starts = daemon.log("start");
    let safe: Vec<_> = starts.iter().map(|start| start["safe_mode"] == true).collect();
    assert_eq!(safe, [false, false, false, false, false, false, true]);
    for exit in daemon.log("exit") {
        assert_eq!(exit["how"], "signal 6 (SIGABRT)");
        assert_eq!(exit["last_lines"][0], "the fake kernel is about to crash");
    }
}

#[test]
fn a_kernel_that_cannot_go_on_with_its_journal_leaves_no_safe_mode_and_comes_again_after_longer_and_longer() {
    let daemon = Daemon::serving("fragile");
    let begin = Instant::now();
    let mut kernel = daemon.kernel();
    for _ in 0..5 {
        let restart =
            serde_json::json!({ "frame": "restart", "reason": "the journal is damaged", "unasked": true });
        daemon.client().request("send", restart).expect("an answer").expect("it agrees");
        kernel = daemon.kernel_after(kernel);
    }
    assert!(begin.elapsed() > Duration::from_millis(1_500), "the first comes at once, the others wait");
    assert!(daemon.ends()[6..].iter().all(|(how, crash)| how == "restart: the journal is damaged" && !crash));
    let safe = || daemon.log("start").iter().map(|start| start["safe_mode"] == true).collect::<Vec<_>>();
    assert_eq!(safe(), [vec![false; 6], vec![true; 6]].concat());
    daemon.client().ask(method::RESTART).expect("it agrees");
    eventually("what somebody asks for leaves it", || (safe().get(12) == Some(&false)).then_some(()));
}

#[test]
fn a_kernel_that_cannot_be_helped_ends_the_daemon_with_status_70() {
    let mut daemon = Daemon::start("crash");
    assert_eq!(daemon.end().code(), Some(70));
    assert_eq!(daemon.log("start").len(), 9);
}

#[test]
fn the_home_is_private_and_the_kernel_inherits_three_descriptors() {
    let daemon = Daemon::serving("serve");
    for path in [daemon.home.path(), &daemon.home.state(), &daemon.home.run()] {
        assert_eq!(fs::metadata(path).expect("it exists").permissions().mode() & 0o777, 0o700);
    }
    for path in [daemon.home.token(), daemon.home.socket(), daemon.home.state().join("supervisor.log")] {
        assert_eq!(fs::metadata(path).expect("it exists").permissions().mode() & 0o777, 0o600);
    }
    let mut entries: Vec<_> = fs::read_dir(daemon.home.path())
        .expect("it exists")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    entries.sort();
    assert_eq!(entries, ["run", "state"]);

    let mut client = daemon.client();
    let held = client.ask("descriptors").expect("an answer");
    let below = daemon.home.path().display().to_string();
    let held = held.as_array().expect("a list").iter().filter_map(Value::as_str);
    assert_eq!(held.filter(|held| held.starts_with(&below)).count(), 0);
}

#[test]
fn systemd_hears_of_each_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).expect("a socket");
    systemd.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut daemon = Daemon::start_with("serve", &["--notify".as_ref(), path.as_ref()]);
    let heard = || {
        let mut buffer = [0; 512];
        let length = systemd.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(heard().starts_with("READY=1\n"));
    daemon.signal(Signal::HUP);
    assert!(heard().starts_with("RELOADING=1\n"));
    assert!(heard().starts_with("READY=1\n"));
    daemon.signal(Signal::TERM);
    assert!(heard().starts_with("STOPPING=1\n"));
    assert_eq!(daemon.end().code(), Some(0));
}
