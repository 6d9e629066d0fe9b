//! An extension in this process.
//!
//! Every entry into its code is noted for blame: opening, each poll and each drop of a future, describing, closing. On
//! its way back into the kernel's own code the note is taken off, so that the kernel's faults are not the extension's.

mod blamed;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use drupe_blame::{Operation, Who};
use drupe_extension_abi::{CallHeader, ExtensionBox, HostBox, Reply};
use drupe_extension_api::{ExtensionId, Fault, FaultCode};
use futures_util::FutureExt as _;

use self::blamed::{Blamed, without_blame};
use crate::{Code, OpenError, PluginLibrary};

/// The instance with what is needed to blame it.
pub struct Inproc {
    id: ExtensionId,
    who: Who,
    /// There until it is dropped.
    table: Option<ExtensionBox>,
    calls: AtomicUsize,
    closed: AtomicBool,
}

impl Inproc {
    /// Opens the library on a blocking thread.
    pub async fn open(code: Code, host: HostBox) -> Result<Arc<Self>, OpenError> {
        let id = code.id.clone();
        let work = move || {
            let who = drupe_blame::register(code.id.as_str(), &code.hash);
            let host = without_blame(host);
            let _entered = drupe_blame::enter(who, Operation::Load);
            let table = Some(PluginLibrary::open(&code.file)?.instance(host));
            Ok(Arc::new(Self {
                id: code.id,
                who,
                table,
                calls: AtomicUsize::new(0),
                closed: AtomicBool::new(false),
            }))
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
            let message = format!("extension `{id}` panicked while it was opened");
            Err(OpenError::Refused(Fault::new(FaultCode::Panicked, message)))
        })
    }

    /// Asks it on a blocking thread.
    pub async fn describe(self: &Arc<Self>) -> Result<Vec<u8>, Fault> {
        self.table("describe")?;
        let own = Arc::clone(self);
        let work = move || {
            let _entered = drupe_blame::enter(own.who, Operation::Describe);
            own.table.as_ref().map(|table| table.describe().into_vec()).unwrap_or_default()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| self.panicked("describe"))
    }

    /// Performs an operation in the task that polls this.
    pub async fn call(
        &self,
        header: CallHeader,
        operation: &'static str,
        payload: Vec<u8>,
    ) -> Result<Reply, Fault> {
        let table = self.table(operation)?;
        let _counted = Counted::new(&self.calls);
        let named = Operation::named(operation);
        let begin = AssertUnwindSafe(|| {
            let _entered = drupe_blame::enter(self.who, named);
            table.call(header, operation.into(), payload.into())
        });
        let future = catch_unwind(begin).map_err(|_| self.panicked(operation))?;
        let reply = AssertUnwindSafe(Blamed::new(self.who, named, future)).catch_unwind().await;
        reply.map_err(|_| self.panicked(operation))
    }

    /// How many calls were begun and have not ended.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Closes it on a blocking thread, the first time.
    pub async fn close(self: &Arc<Self>) {
        let own = Arc::clone(self);
        // A panic there is caught and told below.
        let _ = tokio::task::spawn_blocking(move || own.close_here()).await;
    }

    fn close_here(&self) {
        let Some(table) = self.table.as_ref().filter(|_| !self.closed.swap(true, Ordering::AcqRel)) else {
            return;
        };
        let _entered = drupe_blame::enter(self.who, Operation::Close);
        if catch_unwind(AssertUnwindSafe(|| table.close())).is_err() {
            tracing::error!(extension = %self.id, "the extension panicked while it was closed");
        }
    }

    fn table(&self, operation: &str) -> Result<&ExtensionBox, Fault> {
        let table = self.table.as_ref().filter(|_| !self.closed.load(Ordering::Acquire));
        table.ok_or_else(|| closed(&self.id, operation))
    }

    fn panicked(&self, operation: &str) -> Fault {
        Fault::new(FaultCode::Panicked, format!("extension `{}` panicked in `{operation}`", self.id))
    }
}

impl Drop for Inproc {
    fn drop(&mut self) {
        self.close_here();
        let _entered = drupe_blame::enter(self.who, Operation::Drop);
        let table = self.table.take();
        if catch_unwind(AssertUnwindSafe(|| drop(table))).is_err() {
            tracing::error!(extension = %self.id, "the extension panicked while its instance was dropped");
        }
    }
}

/// The fault of a call that came after the end.
pub fn closed(id: &ExtensionId, operation: &str) -> Fault {
    Fault::new(FaultCode::Unavailable, format!("extension `{id}` was closed: it does not do `{operation}`"))
}

/// Counts a call as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(calls: &'a AtomicUsize) -> Self {
        calls.fetch_add(1, Ordering::Relaxed);
        Self(calls)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
