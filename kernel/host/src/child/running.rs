//! The extension's side of calls: each a task, ended by its result or by its cancellation.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_abi::{CallHeader, ExtensionBox, Reply};
use drupe_extension_api::{Fault, FaultCode};
use futures_util::FutureExt as _;
use tokio::{runtime::Handle, sync::oneshot};

use super::{fault_body, host_table::Link, reply};
use crate::frame::{self, Call, Frame};

/// The instance and its calls.
pub struct Running {
    table: Arc<ExtensionBox>,
    link: Arc<Link>,
    calls: Arc<Calls>,
    runtime: Handle,
}

/// The calls that run, each with what cancels it.
#[derive(Default)]
struct Calls(Mutex<HashMap<u64, oneshot::Sender<()>>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    pub fn new(table: ExtensionBox, link: Arc<Link>, runtime: Handle) -> Self {
        Self { table: Arc::new(table), link, calls: Arc::default(), runtime }
    }

    /// Asks the extension what it is, on a thread where that holds nobody up.
    pub fn describe(&self, id: u64) {
        let (table, link) = (Arc::clone(&self.table), Arc::clone(&self.link));
        self.runtime.spawn(async move {
            match tokio::task::spawn_blocking(move || table.describe()).await {
                Ok(body) => reply(&link.outbox, id, Reply::OK, &body).await,
                Err(_) => reply(&link.outbox, id, Reply::FAULT, &panicked("describe")).await,
            }
        });
    }

    pub fn call(&self, call: &Call<'_>) {
        let header = CallHeader {
            call_id: call.id,
            deadline_ms: call.deadline_ms,
            parent_token: call.token.into(),
            trace: call.trace.into(),
        };
        let (id, operation, payload) = (call.id, call.operation.to_owned(), call.payload.into());
        let (cancel, cancelled) = oneshot::channel();
        self.calls.lock().insert(id, cancel);
        let (table, link, calls) = (Arc::clone(&self.table), Arc::clone(&self.link), Arc::clone(&self.calls));
        self.runtime.spawn(async move {
            let begun =
                catch_unwind(AssertUnwindSafe(|| table.call(header, operation.as_str().into(), payload)));
            let work = async {
                let Ok(work) = begun else { return Err(()) };
                AssertUnwindSafe(work).catch_unwind().await.map_err(drop)
            };
            let mut work = Box::pin(work);
            let done = tokio::select! {
                biased;
                _ = cancelled => None,
                done = &mut work => Some(done),
            };
            // The call's state goes before its end is told.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(work)));
            calls.lock().remove(&id);
            match done {
                Some(Ok(done)) => reply(&link.outbox, id, done.status, &done.body).await,
                Some(Err(())) => reply(&link.outbox, id, Reply::FAULT, &panicked(&operation)).await,
                None => {
                    drop(dropped);
                    if let Ok(ended) = frame::encode(&Frame::Ended { id }) {
                        // Where the kernel is gone, nobody waits.
                        let _ = link.outbox.push(ended);
                    }
                }
            }
        });
    }

    /// Cancels a call. One that is not there has just answered.
    pub fn cancel(&self, id: u64) {
        if let Some(cancel) = self.calls.lock().remove(&id) {
            // The same.
            let _ = cancel.send(());
        }
    }

    /// Tells the extension that it ends.
    pub async fn close(&self) {
        let table = Arc::clone(&self.table);
        // The process ends next, however this went.
        let _ = tokio::task::spawn_blocking(move || table.close()).await;
    }
}

fn panicked(operation: &str) -> Vec<u8> {
    fault_body(&Fault::new(FaultCode::Panicked, format!("the extension panicked in `{operation}`")))
}
