//! A daemon in a home of its own, and one connection to it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::OpenOptionsExt,
        net::{UnixDatagram, UnixStream},
    },
    path::Path,
    process::{Child, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use drupe_link::{ControlToken, Home};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    process,
    settings::Settings,
    turns::{KEEPER, VALUE, Work},
};

/// Nothing takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file that changed less than this before it was read is read again at the next start, in case it changes again.
const SETTLED: Duration = Duration::from_millis(2100);

/// A home, with a daemon where one was started.
pub struct Daemon {
    home: tempfile::TempDir,
    settings: Settings,
    supervisor: Mutex<Option<Child>>,
    notices: UnixDatagram,
}

impl Daemon {
    /// A home whose default model listens at this host and port.
    pub fn home(address: &str, settings: Settings) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("drupe-bench").tempdir()?;
        let notices = UnixDatagram::bind(home.path().join("notices"))?;
        notices.set_read_timeout(Some(PATIENCE))?;
        // JSON is YAML.
        fs::write(home.path().join("drupe.yaml"), settings.config(address)?.to_string())?;
        let daemon = Self { home, settings, supervisor: Mutex::new(None), notices };
        daemon.value_of("orchestrator")?;
        Ok(daemon)
    }

    /// Puts a copy of the test plugin there, whose tools begin with its id, to run where `isolation` says. Each copy has
    /// bytes of its own: libraries of one content are one file to the daemon, and one mapping to the system.
    pub fn native(&self, id: &str, isolation: &str) -> Result<()> {
        let manifest = format!(
            "id: {id}\nname: {id}\ndescription: Is there to be measured.\nentrypoint: lib{id}\n\
             isolation: {isolation}\nconfig: {{prefix: {id}}}\n"
        );
        self.extension(id, &manifest)?;
        let library = self.path().join(format!("extensions/{id}/lib{id}.so"));
        fs::copy(process::built("libfaulty.so")?, &library)?;
        // Behind the sections, where no loader looks.
        Ok(fs::File::options().append(true).open(library)?.write_all(id.as_bytes())?)
    }

    /// Puts the extension there that has a tool of 50 ms and so many others.
    pub fn tools(&self, id: &str, records: usize) -> Result<()> {
        let manifest = format!(
            "id: {id}\nname: {id}\ndescription: Is there to be measured.\nentrypoint: lib{id}\n\
             isolation: inproc\nconfig: {{records: {records}}}\n"
        );
        self.extension(id, &manifest)?;
        let library = format!("lib{id}.so");
        fs::copy(process::built(&library)?, self.path().join("extensions").join(id).join(&library))?;
        Ok(())
    }

    /// Puts an agent without code there, with nothing that the operator would have to agree to.
    pub fn agent(&self, id: &str) -> Result<()> {
        let manifest = format!(
            "id: {id}\nname: Agent {id}\ndescription: Knows everything about {id}. Ask it nothing else.\nagent:\n  \
             model: default\n  instructions: You know everything about {id}. Answer in one sentence.\n  \
             uses_tools: [kv]\n"
        );
        self.extension(id, &manifest)
    }

    /// Puts the agent of [`Work::Delegate`] there, with a value to find.
    pub fn keeper(&self, manifest: &str) -> Result<()> {
        self.extension(KEEPER.0, manifest)?;
        self.value_of(KEEPER.0)
    }

    /// Keeps the value of [`Work::Tool`] for an agent, as `kv_set` would.
    fn value_of(&self, agent: &str) -> Result<()> {
        let folder = self.path().join("data/kv/agents");
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(format!("{agent}.json")), json!({VALUE.0: VALUE.1}).to_string())?)
    }

    /// Puts an extension without code there.
    pub fn extension(&self, id: &str, manifest: &str) -> Result<()> {
        let folder = self.path().join("extensions").join(id);
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join("manifest.yaml"), manifest)?)
    }

    /// Keeps a value of nobody's under each of these names, as `drupe secret set` would.
    pub fn secrets(&self, names: &[&str]) -> Result<()> {
        let file =
            fs::File::options().create(true).append(true).mode(0o600).open(self.path().join(".env"))?;
        names.iter().try_for_each(|name| Ok(writeln!(&file, "{name}=1:of-nobody")?))
    }

    /// Waits until what was put there is old enough that its hash is remembered.
    pub fn settle(&self) {
        thread::sleep(SETTLED);
    }

    /// The home.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// Starts the daemon and waits until it serves; how long that took.
    pub fn start(&self) -> Result<Duration> {
        let log = fs::File::options().create(true).append(true).open(self.path().join("bench.log"))?;
        let drupe = self.settings.drupe.clone().map_or_else(|| process::built("drupe"), Ok)?;
        let mut command = process::command(&drupe);
        command.arg("run").arg("--home").arg(self.path()).current_dir(self.path()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", self.path());
        // As under systemd: being told takes no processor time from what is measured, asking would.
        command.env("NOTIFY_SOCKET", self.path().join("notices"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let began = Instant::now();
        let held = self.settings.cores.hold()?;
        *self.process() = Some(command.spawn()?);
        drop(held);
        self.ready()?;
        Ok(began.elapsed())
    }

    /// Starts it and sees to it that nothing was left out; how long the start took.
    pub fn start_whole(&self) -> Result<Duration> {
        let took = self.start()?;
        for extension in self.client()?.ask("extensions.list", &json!({}))?.as_array().into_iter().flatten() {
            let state = extension["state"].as_str().unwrap_or_default();
            ensure!(["active", "disabled"].contains(&state), "an extension is not active: {extension}");
        }
        Ok(took)
    }

    /// Waits until a kernel is ready.
    pub fn ready(&self) -> Result<()> {
        let mut notice = [0; 4096];
        loop {
            let length = self.notices.recv(&mut notice).context("the daemon is not ready")?;
            if notice[..length].starts_with(b"READY=1") {
                return Ok(());
            }
        }
    }

    /// Forgets what was told so far.
    pub fn forget_notices(&self) -> Result<()> {
        self.notices.set_nonblocking(true)?;
        while self.notices.recv(&mut [0; 4096]).is_ok() {}
        Ok(self.notices.set_nonblocking(false)?)
    }

    /// The supervisor's process.
    pub fn supervisor(&self) -> Result<u32> {
        Ok(self.process().as_ref().context("no daemon was started")?.id())
    }

    /// The kernel's process.
    pub fn kernel(&self) -> Result<u32> {
        let status = self.client()?.ask("status", &json!({}))?;
        Ok(u32::try_from(status["kernel_pid"].as_u64().context("a kernel")?)?)
    }

    /// A connection.
    pub fn client(&self) -> Result<Client> {
        Client::connect(self.path())
    }

    /// Ends it and waits for that.
    pub fn stop(&self) -> Result<()> {
        let Some(mut child) = self.process().take() else { return Ok(()) };
        signal(child.id(), Signal::TERM)?;
        let status = child.wait()?;
        ensure!(status.success(), "the daemon ended with {status}");
        self.forget_notices()
    }

    /// Ends both processes at once, as a power cut does; the kernel follows its supervisor.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.process().take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        self.forget_notices()
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What has ended already is no concern of whoever leaves.
        let _ = self.kill();
    }
}

/// Sends a signal.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("a process")?;
    Ok(kill_process(pid, signal)?)
}

/// What a client says first.
pub fn hello(home: &Path) -> Result<Value> {
    let token = ControlToken::read(&Home::new(home)?)?;
    Ok(json!({"id": 0, "method": "hello", "params": {"token": token.reveal(), "version": 1}}))
}

/// A name that nothing else has.
pub fn unique() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// A message in that conversation.
pub fn submit_in(session: &str, text: &str) -> Value {
    json!({"external_id": unique(), "session": session, "text": text})
}

/// Refuses a turn that did not go well: measuring it would be measuring something else.
pub fn check_turn(result: &Value, work: Work) -> Result<()> {
    let entries = result["transcript"].as_array().into_iter().flatten();
    let ran = entries.filter(|entry| entry["role"] == "tool" && entry["status"] == "ok");
    let mut ran: Vec<_> = ran.filter_map(|entry| entry["name"].as_str()).collect();
    ran.sort_unstable();
    let well = result["status"] == "success" && ran == work.tools();
    ensure!(well, "a turn of `{}` went wrong: {result}", work.name());
    Ok(())
}

/// A connection to the control socket.
pub struct Client {
    stream: BufReader<UnixStream>,
    next: u64,
}

impl Client {
    fn connect(home: &Path) -> Result<Self> {
        let stream = Home::new(home)?.connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self { stream: BufReader::new(stream), next: 1 };
        client.send(&hello(home)?)?;
        client.answer()?;
        Ok(client)
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.send(&json!({"id": self.next, "method": method, "params": params}))?;
        self.next += 1;
        self.answer()
    }

    /// The events of a conversation that are kept.
    pub fn events(&mut self, session: &str) -> Result<Vec<Value>> {
        self.send(&json!({"id": self.next, "method": "events.subscribe", "params": {"session": session, "after": 0}}))?;
        self.next += 1;
        let mut events = Vec::new();
        loop {
            let mut line: Value = serde_json::from_str(&self.line()?)?;
            match line.get_mut("event") {
                Some(event) => events.push(event.take()),
                None => return Ok(events),
            }
        }
    }

    /// One turn in a new conversation; how long it took until the whole result was there.
    pub fn turn(&mut self, work: Work) -> Result<Duration> {
        let message = submit_in(&unique(), work.text());
        let began = Instant::now();
        let turn = self.ask("turn.submit", &message)?;
        let result = self.ask("turn.wait", &json!({"turn": turn["turn"]}))?;
        let took = began.elapsed();
        check_turn(&result, work)?;
        Ok(took)
    }

    fn send(&mut self, request: &Value) -> Result<()> {
        Ok(self.stream.get_mut().write_all(format!("{request}\n").as_bytes())?)
    }

    fn answer(&mut self) -> Result<Value> {
        result(&self.line()?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("the daemon closed the connection");
        }
        Ok(line)
    }
}

/// The result in a reply.
pub fn result(line: &str) -> Result<Value> {
    let mut reply: Value = serde_json::from_str(line)?;
    match reply.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => bail!("the daemon answered: {}", reply["error"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_counts_only_with_the_tools_that_it_should_run() {
        let tool = |name, status| json!({"role": "tool", "name": name, "status": status});
        let turn = |status, transcript| json!({"status": status, "transcript": transcript});
        let user = json!({"role": "user", "content": "x"});
        for (result, work, good) in [
            (turn("success", json!([user])), Work::Echo, true),
            (turn("success", json!([tool("kv_get", "ok")])), Work::Echo, false),
            (turn("success", json!([user, tool("kv_get", "ok")])), Work::Tool, true),
            (turn("failed", json!([tool("kv_get", "ok")])), Work::Tool, false),
            (turn("success", json!([tool("kv_get", "error")])), Work::Tool, false),
            (turn("success", json!([tool("kv_list", "ok")])), Work::Tool, false),
            (
                turn("success", json!([tool("agent_keeper", "ok"), tool("kv_get", "ok")])),
                Work::Delegate,
                true,
            ),
            (turn("success", json!([tool("kv_get", "ok"), tool("kv_get", "ok")])), Work::Delegate, false),
        ] {
            assert_eq!(check_turn(&result, work).is_ok(), good, "{result}");
        }
    }
}
