//! A daemon for the time of a client: started where none runs, stopped at the end by whoever started it.
//!
//! The daemon is a process of its own, as if `drupe run` had been typed elsewhere: in a group of its own, so that a
//! Ctrl-C is the client's, and with its log in `HOME/state/daemon.log`.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use drupe_extension_api::control::{DaemonState, Status, method};
use drupe_link::Home;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    Context,
    client::ClientError,
    failure::{Failure, status},
    wait::{Interrupt, Wait},
};

/// A log larger than this is begun anew.
const MOST_LOG: u64 = 1024 * 1024;

/// Lines of the log that are shown when a daemon does not come up: a diagnostic with its source line fits.
const SHOWN: usize = 30;

/// Between two looks at a daemon that starts or ends.
const LOOK: Duration = Duration::from_millis(25);

/// A daemon that this process started; it is stopped when this is dropped.
#[derive(Debug)]
pub struct Started<'a> {
    context: &'a Context,
    interrupt: Interrupt,
    child: Child,
    keep: bool,
}

/// Sees to it that a daemon runs and is ready. One that was started for this call is given back; with `keep` it goes
/// on when the client ends.
pub fn ensure<'a>(
    context: &'a Context,
    interrupt: &Interrupt,
    keep: bool,
) -> Result<Option<Started<'a>>, Failure> {
    if runs(context, interrupt)? {
        return Ok(None);
    }
    let home = Home::create(context.home.path()).map_err(|error| {
        let message = format!("`{}` cannot be made: {error}", context.home.path().display());
        match Failure::unmade(&error, message) {
            lasting if lasting.status == status::CANNOT_CREATE => {
                lasting.help("choose another home with `--home`")
            }
            passing => passing,
        }
    })?;
    let path = home.state().join("daemon.log");
    let (log, from) = open_log(&path).map_err(|error| {
        Failure::unmade(&error, format!("`{}` cannot be written: {error}", path.display()))
    })?;
    #[expect(clippy::disallowed_methods, reason = "a client starts the daemon, as an operator would")]
    let mut command = Command::new(&context.exe);
    command.arg("run").arg("--home").arg(home.path());
    if let Some(config) = &context.config {
        command.arg("--config").arg(config);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    let child = command
        .spawn()
        .map_err(|error| Failure::new(status::SYSTEM, format!("the daemon cannot be started: {error}")))?;
    let mut started = Started { context, interrupt: interrupt.clone(), child, keep: false };
    let mut wait = Wait::new(context.console, None);
    loop {
        let found = context.daemon().heeding(interrupt).once::<Status>(method::STATUS, &Value::Null);
        if found.is_ok_and(|status| status.state == DaemonState::Ready) {
            started.keep = keep;
            return Ok(Some(started));
        }
        if let Some(ended) = started.child.try_wait()? {
            wait.clear();
            started.keep = true;
            // Another client was faster: its daemon will do.
            if ended.code() == Some(i32::from(status::ABSENT))
                && context.daemon().get::<Status>(method::STATUS).is_ok()
            {
                return Ok(None);
            }
            return Err(ended_early(&path, from, ended));
        }
        if interrupt.came() || interrupt.leaving() {
            return Err(Failure::said(status::INTERRUPTED));
        }
        wait.pause("starting the daemon (Ctrl-C gives up)", LOOK);
    }
}

/// Whether a daemon runs that goes on. If one is ending, this waits for its end: a message that it took now might never be
/// answered.
fn runs(context: &Context, interrupt: &Interrupt) -> Result<bool, Failure> {
    let mut wait = Wait::new(context.console, None);
    let mut ends = false;
    loop {
        match context.daemon().heeding(interrupt).once::<Status>(method::STATUS, &Value::Null) {
            Err(ClientError::Absent) => return Ok(false),
            Err(error) if !error.passes() => return Err(error.into_failure(&context.home)),
            Ok(status) if matches!(status.state, DaemonState::Draining | DaemonState::Stopped) => ends = true,
            // Between its kernel and its own end it says nothing.
            Err(_) if ends => {}
            // It runs; what is asked next waits for it where it must.
            _ => return Ok(true),
        }
        if interrupt.came() || interrupt.leaving() {
            return Err(Failure::said(status::INTERRUPTED));
        }
        wait.pause("waiting for a daemon that ends or restarts (Ctrl-C gives up)", LOOK);
    }
}

/// Opens the log for the daemon; where its part will begin.
fn open_log(path: &PathBuf) -> io::Result<(File, u64)> {
    let log = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if log.metadata()?.len() > MOST_LOG {
        log.set_len(0)?;
    }
    let from = log.metadata()?.len();
    Ok((log, from))
}

/// What a daemon that did not come up wrote, and how it ended.
fn ended_early(path: &PathBuf, from: u64, ended: ExitStatus) -> Failure {
    let written = read_from(path, from).unwrap_or_default();
    let lines: Vec<String> = written.lines().map(readable).collect();
    let last = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    // What is wrong with a configuration is for the caller to see as such.
    let status = code.filter(|code| *code >= 64 && *code < 80).unwrap_or(status::SOFTWARE);
    Failure::new(status, format!("the daemon ended before it was ready ({ended})\n{last}"))
        .help(format!("its log is `{}`", path.display()))
}

fn read_from(path: &PathBuf, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MOST_LOG).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The message of a line of the log.
fn readable(line: &str) -> String {
    let message = serde_json::from_str::<Value>(line)
        .ok()
        .and_then(|entry| Some(entry.get("fields")?.get("message")?.as_str()?.to_owned()));
    message.unwrap_or_else(|| line.to_owned())
}

impl Started<'_> {
    /// Whether turns of other clients run or wait in it: those clients wait for their answers, and would not start a daemon.
    fn has_turns(&self) -> bool {
        let found =
            self.context.daemon().heeding(&self.interrupt).once::<Status>(method::STATUS, &Value::Null);
        found.is_ok_and(|status| {
            status.state == DaemonState::Ready && status.running_turns + status.queued_turns > 0
        })
    }

    fn stop(&mut self) -> Result<(), Failure> {
        let mut wait = Wait::new(self.context.console, None);
        while self.child.try_wait()?.is_none() && self.has_turns() {
            if self.interrupt.came() || self.interrupt.leaving() {
                break;
            }
            wait.pause("the daemon has other turns; Ctrl-C stops it all the same", LOOK);
        }
        if self.child.try_wait()?.is_none() {
            // It hears this whatever became of its socket.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        while self.child.try_wait()?.is_none() {
            // It ends by itself once it was asked.
            if self.interrupt.came() || self.interrupt.leaving() {
                return Ok(());
            }
            wait.pause("stopping the daemon after its running turns", LOOK);
        }
        Ok(())
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(failure) = self.stop() {
            let console = self.context.console;
            console.remark_drawn(failure.render(console.colour_err).trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_programs_are_shown_as_people_read_them() {
        let line = r#"{"fields":{"message":"kernel 1 starts"},"level":"INFO"}"#;
        assert_eq!(readable(line), "kernel 1 starts");
        assert_eq!(readable("  × `drupe.yaml` is wrong"), "  × `drupe.yaml` is wrong");
        assert_eq!(readable("{\"a\": 1}"), "{\"a\": 1}");
    }

    #[test]
    fn a_large_log_is_begun_anew_and_a_small_one_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("daemon.log");
        fs::write(&path, "before\n").expect("a file");
        assert_eq!(open_log(&path).expect("it opens").1, 7);
        fs::write(&path, vec![b'x'; 1024 * 1024 + 1]).expect("a file");
        assert_eq!(open_log(&path).expect("it opens").1, 0);
    }
}
