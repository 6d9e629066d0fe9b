//! The kernel's table as the extension in this process holds it: it forwards to the socket.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use abi_stable::{
    sabi_trait::TD_Opaque,
    std_types::{RString, RVec},
};
use async_ffi::{FfiFuture, FutureExt as _};
use drupe_extension_abi::{CallHeader, Host, Host_TO, HostBox, Reply};
use drupe_extension_api::{Fault, FaultCode, wire::host};
use tokio::sync::oneshot;

use super::fault_body;
use crate::{
    frame::{self, Answer, Call, Frame},
    outbox::Outbox,
};

/// The socket to the kernel, and who waits for its answers.
pub struct Link {
    pub outbox: Outbox,
    about: OnceLock<Vec<u8>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    next: AtomicU64,
}

impl Link {
    pub fn new(outbox: Outbox) -> Self {
        // 0 is the number of calls that want no answer.
        Self { outbox, about: OnceLock::new(), waiting: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// What the kernel says of itself.
    pub fn set_about(&self, about: &[u8]) {
        let _ = self.about.set(about.to_owned());
    }

    /// The kernel's answer to a call. One that nobody waits for was cancelled.
    pub fn answered(&self, answer: &Answer<'_>) {
        if let Some(sender) = self.lock().remove(&answer.id) {
            let _ = sender.send(Reply { status: answer.status, body: answer.body.into() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Reply>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn table(link: &Arc<Link>) -> HostBox {
    Host_TO::from_value(Kernel(Arc::clone(link)), TD_Opaque)
}

#[derive(Clone)]
struct Kernel(Arc<Link>);

impl Host for Kernel {
    fn describe(&self) -> RVec<u8> {
        self.0.about.get().map(Vec::as_slice).unwrap_or_default().into()
    }

    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        let unanswered = matches!(operation.as_str(), host::LOG | host::HANDLE_CLOSE);
        let id = if unanswered { 0 } else { self.0.next.fetch_add(1, Ordering::Relaxed) };
        let frame = frame::encode(&Frame::HostCall(Call {
            id,
            deadline_ms: header.deadline_ms,
            token: &header.parent_token,
            trace: &header.trace,
            operation: &operation,
            payload: &payload,
        }));
        let bytes = match frame {
            Ok(bytes) => bytes,
            Err(error) => {
                let message = format!("`{operation}` cannot be sent to the kernel: {error}");
                return std::future::ready(failed(&Fault::invalid(message))).into_ffi();
            }
        };
        if unanswered {
            return std::future::ready(self.tell(&operation, bytes)).into_ffi();
        }
        ask(Arc::clone(&self.0), id, bytes).into_ffi()
    }

    fn close(&self) {
        if let Ok(bytes) = frame::encode(&Frame::HostClose) {
            // Where the kernel is gone, it needs no telling.
            let _ = self.0.outbox.push(bytes);
        }
    }
}

impl Kernel {
    /// What an extension does not wait for: a line of the log may be lost where the kernel is slow, the end of a handle
    /// must not.
    fn tell(&self, operation: &str, bytes: Vec<u8>) -> Reply {
        if operation == host::LOG {
            self.0.outbox.offer(bytes);
        } else {
            let _ = self.0.outbox.push(bytes);
        }
        Reply { status: Reply::OK, body: b"null".as_slice().into() }
    }
}

async fn ask(link: Arc<Link>, id: u64, bytes: Vec<u8>) -> Reply {
    let (sender, receiver) = oneshot::channel();
    link.lock().insert(id, sender);
    let mut waiting = Waiting { link: &link, id, sent: false };
    let sent = link.outbox.send(bytes).await;
    waiting.sent = sent.is_ok();
    let answer = if waiting.sent { receiver.await.ok() } else { None };
    answer.unwrap_or_else(|| failed(&Fault::new(FaultCode::Unavailable, "the kernel is gone")))
}

/// A call as its future holds it: dropping it before the answer cancels the call.
struct Waiting<'a> {
    link: &'a Link,
    id: u64,
    sent: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unanswered = self.link.lock().remove(&self.id).is_some();
        if unanswered
            && self.sent
            && let Ok(cancel) = frame::encode(&Frame::HostCancel { id: self.id })
        {
            // Where the kernel is gone, so is the call.
            let _ = self.link.outbox.push(cancel);
        }
    }
}

fn failed(fault: &Fault) -> Reply {
    Reply { status: Reply::FAULT, body: fault_body(fault).into() }
}
