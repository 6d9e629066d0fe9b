//! Terminals that are closed and readers that leave, while a client waits.

use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
};

use drupe_link::Home;
use rustix::process::{Pid, Signal, test_kill_process};

use crate::harness::{
    DRUPE, Daemon, PATIENCE,
    model_server::{ModelServer, Say},
    text, until,
};

/// How a client comes to its terminal.
#[derive(Clone, Copy)]
enum Session {
    /// As from a shell: the terminal tells it by a signal that it is closed.
    Own,
    /// Without that signal.
    Foreign,
}

/// A terminal that runs a client, made by `script`: closed when that is killed.
struct Terminal {
    script: Child,
    pid_file: PathBuf,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    fn open(daemon: &Daemon, verb: &str, session: Session) -> Self {
        let pid_file = daemon.path().join("client.pid");
        let client = format!(
            "echo $$ > {}; exec {DRUPE} {verb} --home {}",
            pid_file.display(),
            daemon.path().display()
        );
        let line = match session {
            Session::Own => client,
            Session::Foreign => format!("exec setsid -w sh -c '{client}'"),
        };
        // Whoever runs the tests may have done so with `nohup`, which clients would heed.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=HUP", "script", "-qfc", &line, "/dev/null"])
            .current_dir(daemon.path())
            .env_clear();
        command
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", daemon.path())
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh");
        command.env("LANG", "C.UTF-8").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut script = command.spawn().expect("`script` of util-linux is installed");
        let (mut read, mut keys) =
            (script.stdout.take().expect("a pipe"), script.stdin.take().expect("a pipe"));
        let (sender, shown) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = read.read(&mut buffer) {
                // The editor asks where the cursor is.
                if buffer[..length].windows(4).any(|bytes| bytes == b"\x1b[6n") {
                    let _ = keys.write_all(b"\x1b[1;1R");
                }
                let _ = sender.send(buffer[..length].to_vec());
            }
        });
        Self { script, pid_file, shown, text: String::new() }
    }

    /// Waits until it shows something.
    fn until_shown(&mut self, what: &str) {
        while !self.text.contains(what) {
            match self.shown.recv_timeout(PATIENCE) {
                Ok(bytes) => self.text.push_str(&text(&bytes)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("it never showed `{what}`: {}", self.text)
                }
            }
        }
    }

    fn client(&self) -> Pid {
        let pid = until("the client starts", || fs::read_to_string(&self.pid_file).ok()?.trim().parse().ok());
        Pid::from_raw(pid.expect("it starts")).expect("a process id")
    }

    fn close(&mut self) {
        self.script.kill().expect("it runs");
        self.script.wait().expect("it is a child");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn ended(pid: Pid) -> Option<()> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    (test_kill_process(pid).is_err() || stat.contains(") Z ")).then_some(())
}

fn released(daemon: &Daemon) -> Option<()> {
    (!Home::new(daemon.path()).ok()?.is_held()).then_some(())
}

const PROMPT: &str = "Ctrl-D leaves";

#[test]
fn a_closed_terminal_ends_the_chat_and_the_daemon_that_was_started_for_it() {
    for session in [Session::Own, Session::Foreign] {
        let daemon = Daemon::home("");
        let mut terminal = Terminal::open(&daemon, "", session);
        terminal.until_shown(PROMPT);
        let client = terminal.client();
        terminal.close();
        until("the client ends", || ended(client)).expect("it does not go on without a terminal");
        until("the daemon ends", || released(&daemon)).expect("it was started for the chat");
    }
}

#[test]
fn a_closed_terminal_leaves_a_daemon_alone_that_ran_before() {
    let daemon = Daemon::start("");
    let mut terminal = Terminal::open(&daemon, "chat", Session::Foreign);
    terminal.until_shown(PROMPT);
    let client = terminal.client();
    terminal.close();
    until("the client ends", || ended(client)).expect("it does not go on without a terminal");
    daemon.until_ready();
}

#[test]
fn a_chat_that_is_told_to_end_takes_the_daemon_along_that_was_started_for_it() {
    for signal in [Signal::TERM, Signal::HUP] {
        let daemon = Daemon::home("");
        let mut terminal = Terminal::open(&daemon, "", Session::Own);
        terminal.until_shown(PROMPT);
        let client = terminal.client();
        Daemon::signal(client.as_raw_pid().unsigned_abs(), signal);
        until("the client ends", || ended(client)).expect("it heeds the signal");
        until("the daemon ends", || released(&daemon)).expect("it was started for the chat");
    }
}

#[test]
fn a_daemon_in_a_terminal_ends_in_order_when_that_is_closed() {
    let daemon = Daemon::home("");
    let mut terminal = Terminal::open(&daemon, "run", Session::Own);
    terminal.until_shown("is ready");
    let supervisor = terminal.client();
    terminal.close();
    until("the daemon ends", || ended(supervisor)).expect("it ends");
    let log = fs::read_to_string(daemon.path().join("state/supervisor.log")).expect("a log");
    assert!(log.contains(r#""how":"stopped""#), "{log}");
}

/// A model that answers when the test lets it.
fn held() -> (ModelServer, Receiver<()>, Sender<()>) {
    let (told, asked) = channel();
    let (go, held) = channel::<()>();
    let (told, held) = (std::sync::Mutex::new(told), std::sync::Mutex::new(held));
    let server = ModelServer::start(move |_| {
        let _ = told.lock().expect("one at a time").send(());
        let _ = held.lock().expect("one at a time").recv();
        Say::Text("late".into())
    });
    (server, asked, go)
}

#[test]
fn a_terminal_that_is_closed_in_the_middle_of_a_turn_ends_the_client() {
    let (server, asked, go) = held();
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    for verb in ["ask hello", "chat"] {
        let mut terminal = Terminal::open(&daemon, verb, Session::Foreign);
        if verb == "chat" {
            let submit = daemon.submit("main", "hello");
            assert!(!submit.is_empty());
        }
        asked.recv_timeout(PATIENCE).expect("the model is asked");
        let client = terminal.client();
        if verb == "chat" {
            terminal.until_shown(PROMPT);
        }
        terminal.close();
        until("the client ends", || ended(client)).expect("it does not go on without a terminal");
    }
    drop(go);
}

#[test]
fn a_client_that_was_started_to_outlive_its_terminal_does() {
    let (server, asked, go) = held();
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    let line = format!("trap '' HUP; exec {DRUPE} ask hello --home {}", daemon.path().display());
    let client = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let client = client.expect("it starts");
    asked.recv_timeout(PATIENCE).expect("the model is asked");
    Daemon::signal(client.id(), Signal::HUP);
    drop(go);
    let output = client.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stdout).trim()), (Some(0), "late"));
}

#[test]
fn a_reader_that_leaves_ends_who_waits_without_a_word() {
    let (server, asked, go) = held();
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    for args in [&["ask", "hello"][..], &["chat"]] {
        let mut client = daemon
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // Kept: that there is more to come is not for the reader to say.
        let mut stdin = client.stdin.take();
        if args == ["chat"] {
            stdin.as_mut().expect("a pipe").write_all(b"hello\n").expect("it reads");
        }
        asked.recv_timeout(PATIENCE).expect("the model is asked");
        drop(client.stdout.take());
        until("the client ends", || client.try_wait().expect("it is a child"))
            .expect("it does not wait for nobody");
        let mut said = String::new();
        client.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert_eq!(said, "", "{args:?}");
    }
    drop(go);
}

#[test]
fn a_reader_that_has_left_is_no_fault_of_any_verb() {
    let daemon = Daemon::start("");
    daemon.says(&["ask", "what can you do?", "--session", "s"]);
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["ext", "list"],
        &["agent", "list"],
        &["session", "show", "s"],
        &["session", "export", "s"],
        &["trace", "s"],
        &["usage"],
        &["config", "show"],
        &["config", "template"],
        &["completions", "bash"],
        &["man"],
        &["restart"],
        &["stop"],
    ] {
        let mut client = daemon
            .command(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(client.stdout.take());
        let output = client.wait_with_output().expect("it ends");
        // What it waits for may be said, a fault may not.
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(0) && !said.contains("error"), "{args:?}: {said}");
    }
}
