//! How a program ends, and that it ends with whoever held it.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus},
    sync::Arc,
};

use drupe_confine::{Child, Stopped, Terminal};
use drupe_extension_api::{Fault, wire::ProcessExit};
use drupe_handles::{Credit, Given, Source};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::value::to_raw_value;
use tokio::{net::UnixStream, task::JoinHandle};

use crate::pipes::Place;

/// A program with its place among those that its instance may have. Dropping it kills the program and waits some
/// milliseconds for that, on a thread of its own: whoever drops it may be a thread of the runtime.
pub(crate) struct Held(Option<(Child, Place)>);

impl Held {
    pub fn new(child: Child, place: Place) -> Self {
        Self(Some((child, place)))
    }

    pub fn streams(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        match &mut self.0 {
            Some((child, _)) => (child.stdin.take(), child.stdout.take(), child.stderr.take()),
            None => (None, None, None),
        }
    }

    /// The terminal, where it has one in place of its streams.
    pub fn terminal(&mut self) -> Option<Terminal> {
        self.0.as_mut().and_then(|(child, _)| child.terminal.take())
    }

    fn wait(&mut self) -> Waited {
        match &mut self.0 {
            Some((child, _)) => child.wait(),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn ending(&self) -> io::Result<std::os::unix::net::UnixStream> {
        match &self.0 {
            Some((child, _)) => child.ending(),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            // Without a thread the closure is dropped here, and the program with it.
            let _ = std::thread::Builder::new().name("end-program".into()).spawn(move || drop(held));
        }
    }
}

/// How a program ended, and why its reaper ended it, if it did.
type Waited = io::Result<(ExitStatus, Option<Stopped>)>;

/// Gives how a program ended, once. Dropping it kills the program.
pub(crate) struct Exit {
    /// Can be read when the program has ended, or is being ended. Waiting for that takes no thread, however long it runs.
    ending: Option<UnixStream>,
    /// Until it is waited for.
    held: Option<Held>,
    /// Kept over a question that was dropped before its answer.
    waiting: Option<JoinHandle<Waited>>,
    told: bool,
}

impl Exit {
    pub fn new(held: Held) -> io::Result<Self> {
        let ending = held.ending()?;
        ending.set_nonblocking(true)?;
        let ending = Some(UnixStream::from_std(ending)?);
        Ok(Self { ending, held: Some(held), waiting: None, told: false })
    }

    /// Waits until the program and all that it started are gone.
    pub async fn wait(&mut self) -> Result<ProcessExit, Fault> {
        if let Some(ending) = &self.ending {
            ending.readable().await?;
        }
        if let (Some(ending), Some(mut held)) = (self.ending.take(), self.held.take()) {
            ending.into_std()?.set_nonblocking(false)?;
            self.waiting = Some(tokio::task::spawn_blocking(move || held.wait()));
        }
        let gone = || Fault::internal("the end of the program was told before");
        let waited = self.waiting.as_mut().ok_or_else(gone)?.await;
        self.waiting = None;
        let (status, stopped) = waited.map_err(Fault::internal)??;
        // One that was killed for a bound did not come to a status of its own.
        let own = stopped.is_none();
        Ok(ProcessExit {
            status: status.code().filter(|_| own),
            signal: status.signal().filter(|_| own),
            timed_out: stopped == Some(Stopped::TimedOut),
            exceeded: match stopped {
                Some(Stopped::Exceeded(what)) => Some(what),
                _ => None,
            },
        })
    }
}

impl Source for Exit {
    fn next(&mut self, _: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        async move {
            if self.told {
                return Ok(Given::Items(Vec::new()));
            }
            let exit = self.wait().await?;
            self.told = true;
            Ok(Given::Items(vec![Arc::from(to_raw_value(&exit)?)]))
        }
        .boxed()
    }
}
