//! A process's calls to the kernel.
//!
//! What the process asks for is bounded in number and size, and each answer waits for room in the socket.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use drupe_extension_abi::{CallHeader, HostBox, Reply};
use drupe_extension_api::{Fault, FaultCode};
use futures_util::FutureExt as _;
use tokio::task::{AbortHandle, JoinSet};

use super::Shared;
use crate::frame::{self, Answer, Call, Frame};

/// How many calls of one process may be under way: more than an extension with a thousand calls of its own needs.
const CALLS: usize = 4096;

/// The bytes of their payloads, and those of answers that wait to be read.
const BYTES: usize = 64 * 1024 * 1024;

/// The calls that are under way.
pub struct Answers {
    shared: Arc<Shared>,
    host: HostBox,
    tasks: JoinSet<u64>,
    open: HashMap<u64, (AbortHandle, usize)>,
    bytes: usize,
    /// The bytes of answers that are ready and not written.
    unread: Arc<AtomicUsize>,
    closed: bool,
}

/// What became of a call that was just asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun {
    Running,
    /// There is no room for it, as the process was told.
    Busy,
    /// Another call of this number runs.
    Twice,
}

impl Answers {
    pub fn new(shared: Arc<Shared>, host: HostBox) -> Self {
        Self {
            shared,
            host,
            tasks: JoinSet::new(),
            open: HashMap::new(),
            bytes: 0,
            unread: Arc::default(),
            closed: false,
        }
    }

    pub fn begin(&mut self, call: &Call<'_>) -> Begun {
        if self.open.contains_key(&call.id) {
            return Begun::Twice;
        }
        let size = call.payload.len();
        // What wants no answer holds nothing: it is done at once.
        if call.id != 0 && (self.open.len() >= CALLS || self.bytes + size > BYTES) {
            let fault = Fault::new(FaultCode::Busy, "the extension asks the kernel for too much at once");
            if let Some(bytes) = reply(call.id, Reply::FAULT, &fault_body(&fault)) {
                // Bounded because the process is read no further while this queue is full.
                let _ = self.shared.outbox.push(bytes);
            }
            return Begun::Busy;
        }
        let header = CallHeader {
            call_id: call.id,
            deadline_ms: call.deadline_ms,
            parent_token: call.token.into(),
            trace: call.trace.into(),
        };
        // Where the kernel panics, that is the end of this call and not of the task that reads all others. A panic before
        // there is a future is caught by the table.
        let work = self.host.call(header, call.operation.into(), call.payload.into());
        let work = async move { AssertUnwindSafe(work).catch_unwind().await.ok() };
        if call.id == 0 {
            // Nobody waits for it: what is not done at the first poll is not done, as in process.
            let _ = work.now_or_never();
            return Begun::Running;
        }
        let (id, shared, unread) = (call.id, Arc::clone(&self.shared), Arc::clone(&self.unread));
        let task = self.tasks.spawn(async move {
            let done = work.await;
            if let Some(bytes) = answer(id, done, &unread) {
                let _held = Held::new(&unread, bytes.len());
                // Where the process is gone, nobody waits.
                let _ = shared.outbox.send(bytes).await;
            }
            id
        });
        self.open.insert(id, (task, size));
        self.bytes += size;
        Begun::Running
    }

    /// The process waits no more.
    pub fn cancel(&mut self, id: u64) {
        if let Some((task, size)) = self.open.remove(&id) {
            task.abort();
            self.bytes -= size;
        }
    }

    /// Waits until one is done, and forgets it. For ever where none runs.
    pub async fn done(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(id)) => {
                if let Some((_, size)) = self.open.remove(&id) {
                    self.bytes -= size;
                }
            }
            // Cancelled, and forgotten then.
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    /// The extension needs the kernel no more.
    pub fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            self.host.close();
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.close();
    }
}

/// Bytes that are held for a process which has not read them yet.
struct Held<'a>(&'a AtomicUsize, usize);

impl<'a> Held<'a> {
    fn new(unread: &'a AtomicUsize, bytes: usize) -> Self {
        unread.fetch_add(bytes, Ordering::Relaxed);
        Self(unread, bytes)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// The frame of an answer, or of the fault that stands for it.
fn answer(id: u64, done: Option<Reply>, unread: &AtomicUsize) -> Option<Vec<u8>> {
    let Some(Reply { status, body }) = done else {
        return reply(id, Reply::FAULT, &fault_body(&Fault::internal("the kernel panicked")));
    };
    if unread.load(Ordering::Relaxed) + body.len() > BYTES {
        let fault = Fault::new(FaultCode::Busy, "the extension has too many answers of the kernel unread");
        return reply(id, Reply::FAULT, &fault_body(&fault));
    }
    reply(id, status, &body).or_else(|| too_long(id))
}

fn reply(id: u64, status: u32, body: &[u8]) -> Option<Vec<u8>> {
    frame::encode(&Frame::HostReply(Answer { id, status, body })).ok()
}

fn too_long(id: u64) -> Option<Vec<u8>> {
    let message = format!("the kernel's answer is longer than {} bytes", frame::LONGEST);
    reply(id, Reply::FAULT, &fault_body(&Fault::invalid(message)))
}

fn fault_body(fault: &Fault) -> Vec<u8> {
    // A fault is plain text; it always has a form in JSON.
    serde_json::to_vec(fault).unwrap_or_default()
}
