//! A confined program that runs beside its extension.

use std::sync::Arc;

use super::{Items, handle::Handle, shared::Shared};
use crate::{
    Fault,
    wire::{HandleNext, LARGEST_PUT, OpenedProcess, ProcessExit},
};

/// The most bytes that are read at once: as much as a pipe holds.
const CHUNK: u32 = 64 * 1024;

/// A program that [`Host::open_process`](super::Host::open_process) started. Dropping it kills the program with all
/// that it started; so does the end of the extension.
///
/// The program waits while nobody reads what it writes, and a write waits while the program does not read. Where both
/// write a lot, read [`stdout`](Self::stdout) and write [`stdin`](Self::stdin) side by side, in two tasks.
#[derive(Debug)]
pub struct Process {
    /// Its standard input; dropping it, or setting it to none, is the end of that.
    pub stdin: Option<ByteWriter>,
    /// Its standard output.
    pub stdout: ByteReader,
    /// Its standard error stream.
    pub stderr: ByteReader,
    exit: Items<ProcessExit>,
    ended: Option<ProcessExit>,
}

impl Process {
    pub(super) fn new(shared: &Arc<Shared>, opened: OpenedProcess) -> Self {
        let handle = |number| Handle::new(shared.clone(), number);
        Self {
            stdin: Some(ByteWriter(handle(opened.stdin))),
            stdout: ByteReader { handle: handle(opened.stdout), ended: false },
            stderr: ByteReader { handle: handle(opened.stderr), ended: false },
            exit: Items::new(shared.clone(), opened.exit),
            ended: None,
        }
    }

    /// Writes all of it to the standard input; waits while the program does not read.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match &mut self.stdin {
            Some(stdin) => stdin.write(bytes).await,
            None => Err(Fault::invalid("the standard input of the program was closed")),
        }
    }

    /// The next bytes of its standard output; none at its end. Dropping this future loses nothing.
    pub async fn read(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        self.stdout.read().await
    }

    /// Waits until it and all that it started have ended. What it wrote can still be read afterwards, as far as it fits
    /// into a pipe: a program that writes more waits for a reader, and this with it. Dropping this future loses nothing.
    pub async fn wait(&mut self) -> Result<ProcessExit, Fault> {
        if self.ended.is_none() {
            self.ended = self.exit.next().await?;
        }
        self.ended.clone().ok_or_else(|| Fault::internal("how the program ended was not told"))
    }
}

/// Bytes that come, pulled. Dropping it ends it.
#[derive(Debug)]
pub struct ByteReader {
    handle: Handle,
    ended: bool,
}

impl ByteReader {
    /// The next bytes; none at the end. Where they are cut says nothing. Dropping this future loses nothing.
    pub async fn read(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if self.ended {
            return Ok(None);
        }
        let bytes = self.handle.next(&HandleNext::bytes(self.handle.number(), CHUNK)).await?;
        self.ended = bytes.is_empty();
        Ok((!self.ended).then_some(bytes))
    }

    /// All bytes up to the end, but a fault where there are more than `most`.
    pub async fn read_all(&mut self, most: usize) -> Result<Vec<u8>, Fault> {
        let mut all = Vec::new();
        while let Some(bytes) = self.read().await? {
            all.extend(bytes);
            if all.len() > most {
                return Err(Fault::invalid(format!("there are more than {most} bytes to read")));
            }
        }
        Ok(all)
    }
}

/// Takes bytes. Dropping it is their end.
#[derive(Debug)]
pub struct ByteWriter(Handle);

impl ByteWriter {
    /// Writes all of it; waits until it is taken. A future that is dropped may have written a part.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        for part in bytes.chunks(LARGEST_PUT) {
            self.0.put(part).await?;
        }
        Ok(())
    }
}
