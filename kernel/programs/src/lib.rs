//! Programs that extensions run: confined, bounded, and gone with the instance that started them.
//!
//! [`open`] starts one whose streams are handles: it is the one implementation. [`run`] opens a program, reads it to its end
//! and keeps what fits. Both admit what is asked in one place, `admit.rs`. Whether an extension may run programs at all is
//! decided by the caller.

mod admit;
mod exit;
mod pipes;
mod terminal;

use std::sync::Arc;

use drupe_confine::Confined;
use drupe_extension_api::{
    Fault, FaultCode,
    wire::{ProcessExit, ProcessOutput, ProcessSpec, RunProcess},
};
use drupe_handles::{Credit, Given, Sink, Source};
use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};
use tokio::sync::OwnedSemaphorePermit;

pub use admit::{Surroundings, resolve};
use exit::Exit;

/// Programs that one instance may have running at once. Each is two processes and four descriptors of the kernel's. Servers
/// that speak over pipes come by the dozen; what wants more is a leak.
pub const MOST: usize = 64;

/// The most that [`run`] keeps of an output stream.
const MOST_OUTPUT: u64 = 1024 * 1024;

/// What [`run`] reads at once, of what is kept and of what is thrown away.
const CREDIT: Credit = Credit { items: 1, bytes: 64 * 1024 };

/// The streams of a program that runs. Dropping [`exit`](Self::exit) kills it.
pub struct Opened {
    /// Gives one item, when it and all that it started have ended: [`ProcessExit`].
    pub exit: Box<dyn Source>,
    pub stdin: Box<dyn Sink>,
    pub stdout: Box<dyn Source>,
    pub stderr: Box<dyn Source>,
}

/// Starts a program. `place` is given back when it is gone and all its streams are closed.
///
/// # Errors
///
/// `invalid` for bounds that are out of range, `denied` for what it may not reach, `not_found` for a program that is not
/// there, `unavailable` where it cannot be started confined.
pub async fn open(
    at: &Surroundings<'_>,
    spec: &ProcessSpec,
    place: OwnedSemaphorePermit,
) -> Result<Opened, Fault> {
    let confined = admit::admit(at, spec)?.stdin(std::process::Stdio::piped());
    let (exit, stdin, stdout, stderr) = start(confined, place).await?;
    let stdin = stdin.ok_or_else(|| Fault::internal("the program has no standard input"))?;
    Ok(Opened { exit: Box::new(exit), stdin, stdout, stderr })
}

/// Runs a program to its end. Dropping the future kills it.
///
/// # Errors
///
/// Those of [`open`].
pub async fn run(
    at: &Surroundings<'_>,
    ask: RunProcess,
    place: OwnedSemaphorePermit,
) -> Result<ProcessOutput, Fault> {
    if ask.spec.timeout_ms.is_none() || ask.max_output > MOST_OUTPUT {
        let message = format!("`process.run` needs `timeout_ms`, and `max_output` is at most {MOST_OUTPUT}");
        return Err(Fault::invalid(message).help("open the program instead, and read its streams"));
    }
    let most = usize::try_from(ask.max_output).unwrap_or(usize::MAX);
    let (mut exit, stdin, mut stdout, mut stderr) = start(admit::admit(at, &ask.spec)?, place).await?;
    drop(stdin);
    // Two pipes that fill up independently are read side by side.
    let (stdout, stderr) = tokio::try_join!(beginning(&mut *stdout, most), beginning(&mut *stderr, most))?;
    let ProcessExit { status, timed_out, exceeded, .. } = exit.wait().await?;
    let mut stderr = String::from_utf8_lossy(&stderr).into_owned();
    if let Some(what) = exceeded {
        stderr += &format!("\ndrupe killed it: its processes {what}\n");
    }
    Ok(ProcessOutput { status, timed_out, stdout: String::from_utf8_lossy(&stdout).into_owned(), stderr })
}

type Started = (Exit, Option<Box<dyn Sink>>, Box<dyn Source>, Box<dyn Source>);

async fn start(confined: Confined, place: OwnedSemaphorePermit) -> Result<Started, Fault> {
    let piped = std::process::Stdio::piped;
    let confined = confined.stdout(piped()).stderr(piped());
    // Each end keeps it: what is left of a program that was closed in part are open files.
    let place = Arc::new(place);
    let held_place = Arc::clone(&place);
    // Waits some milliseconds until it is confined. Where nobody waits for it any more, it ends at once.
    let started =
        tokio::task::spawn_blocking(move || confined.spawn().map(|child| exit::Held::new(child, held_place)));
    let mut held = started
        .await
        .map_err(Fault::internal)?
        .map_err(|error| Fault::new(FaultCode::Unavailable, error.to_string()))?;
    if let Some(terminal) = held.terminal() {
        let (typed, written) = terminal::streams(terminal, &place)?;
        return Ok((Exit::new(held)?, Some(Box::new(typed)), Box::new(written), Box::new(Nothing)));
    }
    let (stdin, stdout, stderr) = held.streams();
    let missing = || Fault::internal("the program has no streams");
    let stdin = stdin.map(|pipe| pipes::Input::new(pipe, &place)).transpose()?;
    let stdin = stdin.map(|stdin| Box::new(stdin) as Box<dyn Sink>);
    let stdout = pipes::Output::new(stdout.ok_or_else(missing)?, &place)?;
    let stderr = pipes::Output::new(stderr.ok_or_else(missing)?, &place)?;
    Ok((Exit::new(held)?, stdin, Box::new(stdout), Box::new(stderr)))
}

/// A stream at its end: the standard error of a program that writes all to its terminal.
struct Nothing;

impl Source for Nothing {
    fn next(&mut self, _: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        ready(Ok(Given::Bytes(Vec::new()))).boxed()
    }
}

/// The first bytes of a stream; what is beyond is read and thrown away, so that the program goes on.
async fn beginning(stream: &mut dyn Source, most: usize) -> Result<Vec<u8>, Fault> {
    let mut kept = Vec::new();
    loop {
        match stream.next(CREDIT).await? {
            Given::Bytes(bytes) if !bytes.is_empty() => {
                let room = most - kept.len();
                kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            _ => return Ok(kept),
        }
    }
}
