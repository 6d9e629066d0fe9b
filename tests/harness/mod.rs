//! Runs a real supervisor with a real kernel in a home of its own, and talks to it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use drupe_link::{ControlToken, Home};
use serde_json::{Value, json};

pub mod copied;
mod learned;
pub mod model_server;
pub mod plugins;
pub mod wire;
pub mod without_landlock;

pub use plugins::built;

/// Longer than anything here takes on a slow machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test.
pub const DRUPE: &str = env!("CARGO_BIN_EXE_drupe");

/// A home in a temporary folder, with a daemon where one was started.
pub struct Daemon {
    /// What is removed in the end.
    root: tempfile::TempDir,
    home: PathBuf,
    program: PathBuf,
    supervisor: Option<Child>,
    variables: Vec<(String, String)>,
}

impl Daemon {
    /// A home without a daemon. `config` is its `drupe.yaml`; empty for none.
    pub fn home(config: &str) -> Self {
        let daemon = Self::that_knows_nothing(config);
        learned::hand_over(daemon.path());
        daemon
    }

    /// A home as the first start of a new user finds it: nothing is known of the libraries beside the program.
    pub fn that_knows_nothing(config: &str) -> Self {
        let root = tempfile::Builder::new().prefix("drupe").tempdir().expect("a temporary folder");
        Self::in_folder(root, config)
    }

    /// The same in a folder that is called the same each time, for what is kept of it. One such home is there at a time.
    pub fn home_called(name: &str, config: &str) -> Self {
        let root = tempfile::Builder::new().prefix(name).rand_bytes(0).tempdir_in("/tmp");
        Self::in_folder(root.expect("no other test has the folder, or left it behind"), config)
    }

    fn in_folder(root: tempfile::TempDir, config: &str) -> Self {
        let home = root.path().to_owned();
        let daemon = Self { root, home, program: DRUPE.into(), supervisor: None, variables: Vec::new() };
        daemon.configure(config);
        daemon
    }

    /// The same program, with another home.
    pub fn another_home(&mut self, config: &str) {
        self.home = self.root.path().join("another");
        fs::create_dir_all(&self.home).expect("a folder");
        self.configure(config);
    }

    /// A user's folder with a copy of the program in `.local/bin`, and the home that is usual there.
    pub fn installed(config: &str) -> Self {
        let mut daemon = Self::home("");
        let program = daemon.root.path().join(".local/bin/drupe");
        let home = daemon.root.path().join(".local/share/drupe");
        for folder in [program.parent().expect("a file has a folder"), &home] {
            fs::create_dir_all(folder).expect("a folder");
        }
        // A link would be the program where it was built.
        copied::copy_program(DRUPE, &program);
        (daemon.home, daemon.program) = (home, program);
        daemon.configure(config);
        daemon
    }

    fn configure(&self, config: &str) {
        if !config.is_empty() {
            self.write("drupe.yaml", config);
        }
    }

    /// A running daemon that is ready.
    pub fn start(config: &str) -> Self {
        let mut daemon = Self::home(config);
        daemon.run();
        daemon
    }

    /// Sets a variable of the daemon and of commands.
    pub fn variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.into(), value.into()));
    }

    /// The home.
    pub fn path(&self) -> &Path {
        &self.home
    }

    /// Writes a file of the home.
    pub fn write(&self, file: &str, content: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    }

    /// Starts the daemon and waits until it is ready.
    pub fn run(&mut self) {
        self.run_with(&[]);
    }

    /// The same, with more arguments.
    pub fn run_with(&mut self, more: &[&str]) {
        self.spawn_with(more);
        self.until_ready();
    }

    /// Starts the daemon.
    pub fn spawn(&mut self) {
        self.spawn_with(&[]);
    }

    fn spawn_with(&mut self, more: &[&str]) {
        let log = fs::File::options().create(true).append(true).open(self.log_file()).expect("a log file");
        let mut command = self.command(&["run"]);
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.supervisor = Some(command.spawn().expect("drupe starts"));
    }

    /// A command of the program for this home, with nothing of the surrounding environment that could matter.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).arg("--home").arg(self.path()).current_dir(self.path()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", self.path()).env("USER", "tester");
        // It listens at an address of its own, which is one for all; a test of it turns it on.
        command.env("DRUPE_EXTENSIONS__HTTP__ENABLED", "false");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command to its end.
    pub fn drupe(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("drupe runs")
    }

    /// Runs a command that must succeed; its standard output.
    pub fn says(&self, args: &[&str]) -> String {
        let output = self.drupe(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "drupe {args:?}: {}\n{out}\n{err}\n{}", output.status, self.log());
        out
    }

    /// Runs a command that must succeed and prints JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let out = self.says(args);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("drupe {args:?}: {error}: {out}"))
    }

    /// What the daemon wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.path().join("test.log")
    }

    /// Process of the supervisor.
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor.as_ref().expect("a daemon runs").id()
    }

    /// A connection to the control socket, once a kernel answers.
    pub fn client(&self) -> Client {
        until("a kernel answers", || Client::connect(self.path()).ok())
            .unwrap_or_else(|| panic!("{}", self.log()))
    }

    /// Waits until a kernel serves; its status.
    pub fn until_ready(&self) -> Value {
        self.until_status("ready", |status| status["state"] == "ready")
    }

    /// Waits until the status is as wanted.
    pub fn until_status(&self, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let found = until(what, || {
            let status = Client::connect(self.path()).ok()?.ask("status", json!({})).ok()?;
            good(&status).then_some(status)
        });
        found.unwrap_or_else(|| panic!("waited for: {what}\n{}", self.log()))
    }

    /// The state of an extension, with its reason.
    pub fn extension(&self, id: &str) -> (String, String) {
        let list = self.client().ask("extensions.list", json!({})).expect("a list");
        let all = list.as_array().expect("a list").iter();
        let one = all.clone().find(|e| e["id"] == id).unwrap_or_else(|| panic!("no `{id}` in {list}"));
        let field = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        (field("state"), field("reason"))
    }

    /// Whether a turn that begins now would be offered this tool.
    pub fn offers(&self, tool: &str) -> bool {
        let shown = self.client().ask("agents.show", json!({"id": "orchestrator"})).expect("it is shown");
        let mut sizes = shown["sizes"].as_array().expect("a list").iter();
        sizes.any(|size| size["tool"] == tool)
    }

    /// Submits a message and waits for its answer, over restarts of the kernel.
    pub fn turn(&self, session: &str, text: &str) -> Value {
        let turn = self.submit(session, text);
        self.wait(&turn)
    }

    /// Submits a message; the turn's id.
    pub fn submit(&self, session: &str, text: &str) -> String {
        let submit = json!({"external_id": unique(), "session": session, "text": text});
        let found = until("the message is taken in", || {
            let reply = Client::connect(self.path()).ok()?.ask("turn.submit", submit.clone()).ok()?;
            Some(reply["turn"].as_str().expect("a turn").to_owned())
        });
        found.unwrap_or_else(|| panic!("{}", self.log()))
    }

    /// Waits for the end of a turn.
    pub fn wait(&self, turn: &str) -> Value {
        let found = until("the turn ends", || {
            Client::connect(self.path()).ok()?.ask("turn.wait", json!({"turn": turn})).ok()
        });
        found.unwrap_or_else(|| panic!("{}", self.log()))
    }

    /// All kept events of a session.
    pub fn events(&self, session: &str) -> Vec<Value> {
        self.client().events(session)
    }

    /// Sends a signal to a process.
    pub fn signal(pid: u32, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("the process can be signalled");
    }

    /// Kills the kernel and waits until another one is ready; how long that took.
    pub fn kill_kernel(&self) -> Duration {
        let before = self.until_ready();
        let pid = u32::try_from(before["kernel_pid"].as_u64().expect("a pid")).expect("a pid");
        let began = Instant::now();
        Self::signal(pid, rustix::process::Signal::KILL);
        self.until_status("the next kernel", |s| {
            s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"]
        });
        began.elapsed()
    }

    /// Kills supervisor and kernel at the same moment, as a power failure ends both, and starts anew.
    pub fn kill_all(&mut self) {
        let status = self.until_ready();
        let kernel = u32::try_from(status["kernel_pid"].as_u64().expect("a pid")).expect("a pid");
        for pid in [self.supervisor_pid(), kernel] {
            Self::signal(pid, rustix::process::Signal::KILL);
        }
        self.ended();
        self.run();
    }

    /// Waits for the daemon to end; its status.
    pub fn ended(&mut self) -> Option<i32> {
        let mut child = self.supervisor.take().expect("a daemon runs");
        let status = until("the daemon ends", || child.try_wait().expect("it can be waited for"));
        status.unwrap_or_else(|| panic!("{}", self.log())).code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(mut child) = self.supervisor.take() else { return };
        let pid = child.id();
        if matches!(child.try_wait(), Ok(None)) {
            Self::signal(pid, rustix::process::Signal::TERM);
        }
        let ended = until("the daemon ends", || child.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A connection to the control socket.
pub struct Client {
    stream: BufReader<UnixStream>,
    next: u64,
}

impl Client {
    /// Connects to the daemon of a home and says hello; fails while only a supervisor answers.
    pub fn connect(home: &Path) -> Result<Self, String> {
        let home = Home::new(home).map_err(|e| e.to_string())?;
        let token = ControlToken::read(&home).map_err(|e| e.to_string())?;
        Self::with_token(&home, token.reveal())
    }

    /// Connects as the bearer of a token.
    pub fn with_token(home: &Home, token: &str) -> Result<Self, String> {
        let stream = home.connect().map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        let mut client = Self { stream: BufReader::new(stream), next: 1 };
        let welcome = client.ask("hello", json!({"token": token, "version": 1}))?;
        if welcome["from"] == "kernel" { Ok(client) } else { Err("only the supervisor answers".into()) }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.send(method, params)?;
        loop {
            let mut reply = self.reply()?;
            if reply["id"] == id {
                return match reply.get_mut("result") {
                    Some(result) => Ok(result.take()),
                    None => Err(reply["error"].to_string()),
                };
            }
        }
    }

    /// All kept events of a session.
    pub fn events(&mut self, session: &str) -> Vec<Value> {
        self.send("events.subscribe", json!({"session": session, "after": 0})).expect("it is sent");
        let mut events = Vec::new();
        loop {
            let mut reply = self.reply().expect("a reply");
            match reply.get_mut("event") {
                Some(event) => events.push(event.take()),
                None => return events,
            }
        }
    }

    /// Sends a request without waiting.
    pub fn send(&mut self, method: &str, params: Value) -> Result<u64, String> {
        let id = self.next;
        self.next += 1;
        let line = json!({"id": id, "method": method, "params": params}).to_string() + "\n";
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|e| e.to_string())?;
        Ok(id)
    }

    /// The next reply.
    pub fn reply(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("the connection ended".into()),
            Ok(_) => serde_json::from_str(&line).map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Looks again and again until there is something; none when patience ends.
pub fn until<T>(_what: &str, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A text that no other test has.
pub fn unique() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Bytes for people.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
