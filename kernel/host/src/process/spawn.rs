//! The operating system's side of a process: its start, its end, what it has used.

use std::{
    os::{
        fd::{OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    process::{ChildStderr, Stdio},
    time::Duration,
};

use drupe_confine::{Child, Confined, Stopped};

use crate::{Code, HostProcess, OpenError, child, ended};

/// How long a process may take to be gone after it closed its socket: what it started is killed meanwhile.
const LEAVING: Duration = Duration::from_secs(5);

/// How often its end is looked for then. It takes a few milliseconds, and nothing waits for the exact one.
const LOOK: Duration = Duration::from_millis(1);

/// A process that runs. Dropping it kills it, on a thread of its own: that waits.
pub struct Running {
    child: Option<Child>,
    program: Option<u32>,
    passed: Vec<RawFd>,
}

impl Running {
    /// Starts the process, which finds `socket` open. Dropping the future kills it.
    pub async fn start(code: &Code, place: HostProcess, socket: UnixStream) -> Result<Self, OpenError> {
        let id = code.id.clone();
        let (mut confined, number) =
            Confined::new(&place.exe, place.profile, &place.exe).pass(OwnedFd::from(socket));
        let mut passed = Vec::new();
        for socket in &code.listening {
            let copy = socket.try_clone().map_err(|reason| OpenError::Io { id: id.clone(), reason })?;
            let number;
            (confined, number) = confined.pass(OwnedFd::from(copy));
            passed.push(number);
        }
        let mut confined = confined
            .arg(child::VERB)
            .args(["--fd", &number.to_string()])
            .arg("--library")
            .arg(&code.file)
            .args(["--id", id.as_str()])
            .directory(place.directory)
            .stderr(Stdio::piped());
        for (name, value) in place.env {
            confined = confined.env(name, value);
        }
        let started = tokio::task::spawn_blocking(move || {
            let child = confined.spawn()?;
            let program = Some(child.program());
            Ok(Self { child: Some(child), program, passed })
        });
        match started.await {
            Ok(started) => started.map_err(|reason| OpenError::Process { id, reason }),
            Err(error) => Err(OpenError::Io { id, reason: std::io::Error::other(error) }),
        }
    }

    /// The process that runs the extension's code, beneath the one that confines it.
    pub fn program(&self) -> Option<u32> {
        self.program
    }

    /// The sockets that it was handed, as it knows them.
    pub fn passed(&self) -> &[RawFd] {
        &self.passed
    }

    /// Its standard error stream, once.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.as_mut()?.stderr.take()
    }

    /// How it ended, after it closed its socket.
    pub async fn left(&mut self) -> String {
        let look = async {
            loop {
                match self.child.as_mut()?.try_wait() {
                    Ok(Some(status)) => return Some(ended::how(status)),
                    Ok(None) => tokio::time::sleep(LOOK).await,
                    Err(_) => return None,
                }
            }
        };
        let left = tokio::time::timeout(LEAVING, look).await;
        match left {
            // The one above it has ended, so that what it told of the reason is there.
            Ok(Some(how)) => self.child.as_mut().and_then(Child::stopped).and_then(told).unwrap_or(how),
            Ok(None) | Err(_) => {
                let stopped = self.kill().await.and_then(told);
                stopped.unwrap_or_else(|| "killed: it closed its socket and did not end".into())
            }
        }
    }

    /// Kills it with all that it started, and waits until they are gone. Why the one above it had begun to do so before.
    pub async fn kill(&mut self) -> Option<Stopped> {
        let child = self.child.take()?;
        // An error means that it is gone.
        let killed = tokio::task::spawn_blocking(move || child.kill()).await.ok()?;
        killed.ok()?.1
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // Without a thread the closure is dropped here, and the child with it.
            let _ = std::thread::Builder::new().name("end-host".into()).spawn(move || drop(child));
        }
    }
}

/// Why the one above it killed it, in words.
fn told(stopped: Stopped) -> Option<String> {
    match stopped {
        Stopped::Exceeded(what) => Some(format!("killed: it {what}")),
        // It has no deadline.
        Stopped::TimedOut => None,
    }
}
