//! A server that is a confined program: what it is started with, and its streams as what the protocol's library reads and writes.
//!
//! One task drains both of its outputs, so that neither fills up, and ends it where it writes without measure.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{prelude::*, sdk::ByteWriter};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf},
    sync::oneshot,
};

use crate::{
    config::{McpSettings, ServerSettings},
    tail::{self, LastLines},
};

/// Bytes of one message. What is longer ends the server: it might never end.
pub const MESSAGE: usize = 8 * 1024 * 1024;

/// Bytes that it may write without having been asked for anything.
const UNASKED: usize = 64 * 1024 * 1024;

/// Bytes between the program and the library.
const BUFFER: usize = 64 * 1024;

/// How long it may take to end by itself when its input has ended. Then it is killed, with all that it started.
const GRACE: Duration = Duration::from_secs(2);

/// How a server is started. It gets a folder of its own, and of the rest of the data folder only temporary files.
pub fn spec(
    host: &Host,
    settings: &McpSettings,
    name: &str,
    server: &ServerSettings,
) -> Result<ProcessSpec, Fault> {
    let own = host.data_folder().join("servers").join(name);
    let temporary = own.join("tmp");
    std::fs::create_dir_all(&temporary)?;
    let directory = if server.workspace { host.workspace() } else { &own };
    let command = server.command.clone().unwrap_or_default();
    let folders: Vec<String> =
        host.program_folders().iter().filter(|folder| !folder.is_empty()).cloned().collect();
    // A program finds those that lie beside it, as `npx` does `node`.
    let beside =
        Path::new(&command).parent().filter(|beside| folders.iter().any(|folder| beside.starts_with(folder)));
    let path = beside.map(|beside| beside.display().to_string()).into_iter().collect();
    let mut env = server.env.clone();
    for (variable, folder) in [("HOME", &own), ("TMPDIR", &temporary)] {
        env.entry(variable.to_owned()).or_insert_with(|| folder.display().to_string());
    }
    Ok(ProcessSpec {
        args: server.args.clone(),
        env,
        path,
        read: folders,
        folders: vec![own.display().to_string()],
        workspace: server.workspace,
        network: server.network,
        memory_mb: Some(settings.memory_mb),
        tasks: Some(settings.tasks),
        ..ProcessSpec::new(command, directory)
    })
}

/// Keeps a program running; dropping it ends the program, also one that reads nothing of what it is asked.
pub struct ProgramGuard {
    _ends: oneshot::Sender<()>,
}

/// Starts a server; gives what is said to it and what it says.
pub async fn start(
    host: &Host,
    spec: &ProcessSpec,
    tail: &Arc<LastLines>,
) -> Result<(DuplexStream, ProgramGuard), Fault> {
    let mut process = host.open_process(spec).await?;
    let stdin = process.stdin.take().ok_or_else(|| Fault::internal("the server has no standard input"))?;
    let (near, far) = tokio::io::duplex(BUFFER);
    let (asks, mut answers) = tokio::io::split(near);
    let unasked = Arc::new(AtomicUsize::new(0));
    let (ends, closing) = oneshot::channel();
    host.spawn(write(stdin, asks, Arc::clone(&unasked)))?;
    let (host_of_task, tail) = (host.clone(), Arc::clone(tail));
    host.spawn(async move {
        read(&host_of_task, process, &mut answers, unasked, closing, &tail).await;
        // The library learns that it ended only now, when it has been noted how.
        let _ = answers.shutdown().await;
    })?;
    Ok((far, ProgramGuard { _ends: ends }))
}

/// Passes on what is asked, until nobody asks any more. That is then the end of the program's input, by which it ends itself.
async fn write(mut stdin: ByteWriter, mut asks: ReadHalf<DuplexStream>, unasked: Arc<AtomicUsize>) {
    let mut bytes = vec![0; BUFFER];
    while let Ok(count @ 1..) = asks.read(&mut bytes).await {
        unasked.store(0, Ordering::Relaxed);
        if stdin.write(&bytes[..count]).await.is_err() {
            break;
        }
    }
}

/// Passes on what it answers, until it ends or nobody reads any more.
async fn read(
    host: &Host,
    mut process: Process,
    answers: &mut WriteHalf<DuplexStream>,
    unasked: Arc<AtomicUsize>,
    mut closing: oneshot::Receiver<()>,
    tail: &LastLines,
) {
    let (mut line, mut errors) = (0, true);
    loop {
        tokio::select! {
            _ = &mut closing => return end(host, process, tail).await,
            read = process.stderr.read(), if errors => match read {
                Ok(Some(bytes)) => tail.push(&bytes),
                _ => errors = false,
            },
            read = process.stdout.read() => {
                let Ok(Some(bytes)) = read else { break };
                line = bytes.iter().rposition(|byte| *byte == b'\n').map_or(line + bytes.len(), |at| bytes.len() - at - 1);
                if line > MESSAGE {
                    tail.ended(format!("it was stopped: it wrote more than {} MiB without the end of a message", MESSAGE >> 20));
                    return;
                }
                if unasked.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len() > UNASKED {
                    tail.ended(format!("it was stopped: it wrote more than {} MiB that nobody asked for", UNASKED >> 20));
                    return;
                }
                tokio::select! {
                    _ = &mut closing => return end(host, process, tail).await,
                    written = answers.write_all(&bytes) => if written.is_err() {
                        return end(host, process, tail).await;
                    },
                }
            }
        }
    }
    end(host, process, tail).await;
}

/// Lets it end by itself for a moment. What it still writes is read, since it could not end otherwise.
async fn end(host: &Host, mut process: Process, tail: &LastLines) {
    let waited = async {
        let (mut output, mut errors) = (true, true);
        loop {
            tokio::select! {
                biased;
                read = process.stderr.read(), if errors => match read {
                    Ok(Some(bytes)) => tail.push(&bytes),
                    _ => errors = false,
                },
                read = process.stdout.read(), if output => output = matches!(read, Ok(Some(_))),
                else => return process.wait().await,
            }
        }
    };
    tokio::select! {
        exit = waited => if let Ok(exit) = exit { tail.ended(tail::how(&exit)) },
        _ = host.sleep(GRACE) => tail.ended("it was stopped"),
    }
}
