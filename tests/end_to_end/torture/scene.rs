//! A home with an extension that fails and one that waits meanwhile.

use std::{cell::Cell, fs, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Daemon, model_server::ModelServer, until};

/// Turns that still run at the end of a test are not waited for.
const CONFIG: &str = "drain_timeout_ms: 300\n";

/// A daemon with the torture plugin as `torture`, and again as `waiter`, whose tools begin with `waiter`.
pub struct Scene {
    pub daemon: Daemon,
    pub isolation: &'static str,
    /// When the extension had lost the process whose end was asked for last.
    lost: Cell<Timestamp>,
    _server: ModelServer,
}

/// What a failure led to.
pub struct Outcome {
    /// How the process ended; none if none did.
    pub how: Option<String>,
    /// `extension: operation` of each that was named.
    pub named: Vec<String>,
    /// From the end of the process to the work of all.
    pub ready: Option<Duration>,
}

impl Scene {
    /// Runs it with this manifest of `torture`.
    pub fn run(isolation: &'static str, manifest: &str) -> Self {
        let mut scene = Self::prepare(isolation, manifest);
        scene.daemon.run();
        scene
    }

    /// Does not run it yet.
    pub fn prepare(isolation: &'static str, manifest: &str) -> Self {
        let server = ModelServer::obedient();
        let daemon = Daemon::home(&(server.config() + CONFIG));
        daemon.plugin_in(isolation, "torture", "torture", manifest);
        daemon.plugin_in(isolation, "waiter", "torture", "config: {prefix: waiter}\n");
        Self { daemon, isolation, lost: Cell::new(Timestamp::MIN), _server: server }
    }

    pub fn in_process(&self) -> bool {
        self.isolation == "inproc"
    }

    /// Begins a call of `waiter` that takes longer than any failure here; its turn.
    pub fn wait_meanwhile(&self, session: &str) -> String {
        let turn = self.daemon.submit(session, "waiter_wait {\"ms\": 500000}");
        let began = until("the call has begun", || {
            self.daemon.events(session).iter().any(|e| began(e, "waiter_wait")).then_some(())
        });
        began.unwrap_or_else(|| panic!("it did not begin: {:#?}", self.daemon.events(session)));
        turn
    }

    /// Ends the call of `waiter`, which must still be going on.
    pub fn end_wait(&self, turn: &str) {
        self.daemon.client().ask("turn.stop", json!({"turn": turn})).expect("it is stopped");
        let ended = self.daemon.wait(turn);
        assert_eq!(ended["class"], "cancelled", "another extension's call went on: {ended}");
    }

    /// The lines that a call of `torture_append` has left.
    pub fn lines(&self, text: &str) -> usize {
        let file = self.daemon.path().join("data/torture/appended");
        let lines = fs::read_to_string(file).unwrap_or_default();
        lines.lines().filter(|line| line.ends_with(&format!(" {text}"))).count()
    }

    /// What has happened since the status was `before`: in process to the kernel, else to the extension's process.
    /// Waits until all works again.
    pub fn outcome(&self, before: &Value) -> Outcome {
        if self.in_process() { self.kernel_ended(before) } else { self.process_ended(before) }
    }

    /// That nothing has ended since then.
    pub fn nothing_ended(&self, before: &Value) -> Outcome {
        let now = self.daemon.until_ready();
        assert_eq!(now["kernel_pid"], before["kernel_pid"], "{}", self.daemon.log());
        assert_eq!(self.daemon.extension("torture").0, "active");
        assert!(!states(&self.history()).contains(&"degraded".to_owned()), "{:?}", self.history());
        Outcome { how: None, named: Vec::new(), ready: None }
    }

    /// Waits for another kernel.
    pub fn kernel_ended(&self, before: &Value) -> Outcome {
        self.daemon.until_status("the next kernel", |s| {
            s["state"] == "ready" && s["kernel_pid"] != before["kernel_pid"]
        });
        self.last_end()
    }

    /// How the last kernel ended, by the supervisor's record. The next one is ready, or about to be.
    pub fn last_end(&self) -> Outcome {
        let found = until("the next kernel's start is recorded", || {
            let log = fs::read_to_string(self.daemon.path().join("state/supervisor.log")).ok()?;
            let entries: Vec<Value> =
                log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let last = entries.iter().rposition(|entry| entry["event"] == "exit")?;
            let ready = entries[last..].iter().find(|entry| entry["event"] == "ready")?;
            Some((entries[last].clone(), ready.clone()))
        });
        let (exit, ready) = found.unwrap_or_else(|| panic!("{}", self.daemon.log()));
        let blamed = exit["blamed"].as_array().cloned().unwrap_or_default();
        let named = blamed.iter().map(|b| format!("{}: {}", text(b, "extension"), text(b, "operation")));
        Outcome {
            how: Some(text(&exit, "how")),
            named: named.collect(),
            ready: Some(since(&text(&exit, "time"), &text(&ready, "time"))),
        }
    }

    /// Waits until the extension, which has lost its process, works again in the same kernel.
    fn process_ended(&self, before: &Value) -> Outcome {
        let found = until("it has lost its process and works again", || {
            let history = self.history();
            // An earlier loss is no answer.
            let lost = history.iter().rposition(|change| {
                change["state"] == "degraded" && time(&text(change, "time")) > self.lost.get()
            })?;
            let works = history[lost..].iter().find(|change| change["state"] == "active")?;
            Some((history[lost].clone(), works.clone()))
        });
        let (lost, works) = found.unwrap_or_else(|| panic!("{:#?}\n{}", self.history(), self.daemon.log()));
        assert_eq!(self.daemon.until_ready()["kernel_pid"], before["kernel_pid"], "{}", self.daemon.log());
        self.lost.set(time(&text(&lost, "time")));
        let reason = text(&lost, "reason");
        // `its process ended in `tool.call`: signal 6 (SIGABRT)`
        let (operation, how) = reason
            .strip_prefix("its process ended in `")
            .and_then(|rest| rest.split_once("`: "))
            .unwrap_or_else(|| panic!("a reason: {reason}"));
        Outcome {
            how: Some(how.to_owned()),
            named: vec![format!("torture: {operation}")],
            ready: Some(since(&text(&lost, "time"), &text(&works, "time"))),
        }
    }

    /// The states of `torture` since its kernel began.
    pub fn history(&self) -> Vec<Value> {
        let shown =
            self.daemon.client().ask("extensions.show", json!({"id": "torture"})).expect("it is shown");
        shown["history"].as_array().cloned().unwrap_or_default()
    }

    /// Forgets what it has done, so that it is not quarantined for it; every few times, crashes of kernels as well, so
    /// that they do not lead to safe mode. The other extension's process, and its calls, are left alone but for that.
    pub fn forgive(&self, run: usize) {
        self.daemon.client().ask("extensions.release", json!({"id": "torture"})).expect("it is released");
        if self.in_process() && run % 4 == 3 {
            self.restart();
        }
        self.daemon.until_extension("torture", "active");
    }

    /// An orderly restart.
    pub fn restart(&self) {
        let before = self.daemon.until_ready();
        self.daemon.client().ask("restart", json!({})).expect("it is agreed");
        self.daemon.until_status("the next kernel", |s| {
            s["state"] == "ready" && s["generation"] != before["generation"]
        });
    }
}

/// Whether the model, and with it the session, was told that the outcome of a call of the turn is unknown.
pub fn told_unknown(turn: &Value) -> bool {
    let entries = turn["transcript"].as_array().cloned().unwrap_or_default();
    entries.iter().any(|entry| entry["role"] == "tool" && entry["status"] == "outcome_unknown")
}

fn began(event: &Value, tool: &str) -> bool {
    event["kind"] == "interaction.item.started" && event["data"]["item"]["name"] == tool
}

pub fn states(history: &[Value]) -> Vec<String> {
    history.iter().map(|change| text(change, "state")).collect()
}

pub fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

pub fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn since(from: &str, to: &str) -> Duration {
    Duration::try_from(time(to).duration_since(time(from))).unwrap_or_default()
}
