//! What one instance of an extension keeps for itself: the kernel's table, the stop signal, the runtime.
//!
//! It holds nothing of the author's, so that the author's state may hold it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
};

use drupe_extension_abi::{CallHeader, HostBox, Reply};
use futures_util::FutureExt as _;
use serde::{Serialize, de::DeserializeOwned};

use super::{guard, signal::Signal};
use crate::{
    Fault, FaultCode,
    wire::{Log, host},
};

pub(crate) struct Shared {
    table: HostBox,
    pub(crate) shutdown: Signal,
    /// The author said that the tools are others now.
    pub(crate) tools_changed: AtomicBool,
    /// The kernel did not take the tools that were described last.
    pub(crate) refused: AtomicBool,
    /// Why the tools that were announced last could not be described.
    unannounced: Mutex<Option<Fault>>,
    closed: AtomicBool,
    #[cfg(feature = "runtime")]
    runtime: super::runtime::Cell,
}

/// On whose behalf the kernel is called.
#[derive(Clone, Default)]
pub(crate) struct Origin {
    pub(crate) deadline_ms: u64,
    pub(crate) token: String,
    pub(crate) trace: String,
}

impl Shared {
    pub(crate) fn new(table: HostBox) -> Arc<Self> {
        let shared = Arc::new(Self {
            table,
            shutdown: Signal::default(),
            tools_changed: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            unannounced: Mutex::new(None),
            closed: AtomicBool::new(false),
            #[cfg(feature = "runtime")]
            runtime: super::runtime::Cell::default(),
        });
        let mut instances = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
        instances.retain(|instance| instance.strong_count() > 0);
        instances.push(Arc::downgrade(&shared));
        shared
    }

    pub(crate) fn unannounced(&self) -> MutexGuard<'_, Option<Fault>> {
        self.unannounced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the kernel and reads its answer.
    pub(crate) async fn request<R: DeserializeOwned>(
        &self,
        origin: &Origin,
        operation: &str,
        payload: &(impl Serialize + Sync + ?Sized),
    ) -> Result<R, Fault> {
        let body = self.exchange(origin, operation, serde_json::to_vec(payload)?).await?;
        serde_json::from_slice(&body).map_err(|e| {
            Fault::internal(format!("the kernel's answer to `{operation}` could not be read: {e}"))
        })
    }

    /// Calls the kernel with bytes as they are, and gives those that it answers.
    pub(crate) async fn exchange(
        &self,
        origin: &Origin,
        operation: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Fault> {
        let reply = self.send(origin, operation, payload)?.await;
        read(&reply)?;
        Ok(reply.body.into())
    }

    /// Calls the kernel; what it answers beyond success is of no interest.
    pub(crate) async fn tell(
        &self,
        operation: &str,
        payload: &(impl Serialize + Sync + ?Sized),
    ) -> Result<(), Fault> {
        let future = self.send(&Origin::default(), operation, serde_json::to_vec(payload)?)?;
        read(&future.await).map(|_| ())
    }

    /// Calls the kernel from where nothing can wait: the operation is polled once. The kernel logs and
    /// closes handles within that poll.
    pub(crate) fn tell_now(&self, operation: &str, payload: &impl Serialize) {
        let Ok(payload) = serde_json::to_vec(payload) else { return };
        if let Ok(future) = self.send(&Origin::default(), operation, payload) {
            let mut future = std::pin::pin!(future);
            let _ = future.poll_unpin(&mut Context::from_waker(Waker::noop()));
        }
    }

    fn send(
        &self,
        origin: &Origin,
        operation: &str,
        payload: Vec<u8>,
    ) -> Result<drupe_extension_abi::async_ffi::FfiFuture<Reply>, Fault> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Fault::new(FaultCode::Unavailable, "this instance of the extension was closed"));
        }
        let header = CallHeader {
            call_id: 0,
            deadline_ms: origin.deadline_ms,
            parent_token: origin.token.as_str().into(),
            trace: origin.trace.as_str().into(),
        };
        Ok(self.table.call(header, operation.into(), payload.into()))
    }

    pub(crate) fn log(&self, level: &str, message: &str) {
        self.tell_now(host::LOG, &Log { level: level.to_owned(), message: message.to_owned() });
    }

    pub(crate) fn report(&self, message: &str) {
        self.log("error", message);
    }

    /// Drops something of the author's; a panic there is logged and goes no further.
    pub(crate) fn discard<T>(&self, what: &str, value: T) {
        let outcome = {
            let _inside = self.enter();
            guard::catch(|| drop(value))
        };
        if let Err(panic) = outcome {
            self.report(&format!("dropping {what} {panic}"));
        }
    }

    /// Ends what the instance has open. Later calls of the kernel are refused on this side.
    pub(crate) fn close(&self) {
        self.shutdown.fire();
        let first = !self.closed.swap(true, Ordering::AcqRel);
        #[cfg(feature = "runtime")]
        self.runtime.end();
        if first {
            self.table.close();
        }
    }

    #[cfg(feature = "runtime")]
    pub(crate) fn enter(&self) -> Option<tokio::runtime::EnterGuard<'_>> {
        self.runtime.enter()
    }

    #[cfg(not(feature = "runtime"))]
    pub(crate) fn enter(&self) -> Option<std::convert::Infallible> {
        None
    }

    #[cfg(feature = "runtime")]
    pub(crate) fn handle(&self) -> Option<&tokio::runtime::Handle> {
        self.runtime.handle()
    }
}

fn read(reply: &Reply) -> Result<&[u8], Fault> {
    let body = reply.body.as_slice();
    if reply.status == Reply::OK {
        return Ok(body);
    }
    Err(serde_json::from_slice(body).unwrap_or_else(|_| {
        Fault::new(FaultCode::Other, format!("the kernel answered with status {}", reply.status))
    }))
}

/// The instances of this library, for panics on threads that belong to none of them.
static INSTANCES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Logs for every instance. Called by the panic hook: it must not wait for a lock that the thread may hold.
pub(crate) fn report_to_all(message: &str) -> bool {
    let Ok(instances) = INSTANCES.try_lock() else { return false };
    let live: Vec<_> = instances.iter().filter_map(Weak::upgrade).collect();
    drop(instances);
    let told = !live.is_empty();
    for instance in live {
        instance.report(message);
    }
    told
}
