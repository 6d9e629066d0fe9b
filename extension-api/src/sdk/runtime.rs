//! A tokio runtime of one instance: one worker thread, made when the extension's code first runs.
//!
//! A library has its own copy of tokio, which knows nothing of the kernel's. The runtime is *entered* around
//! each poll and drop, so that timers and sockets work in any future of the extension, wherever it is polled;
//! spawning every call on it would cost twenty times as much.

use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

#[derive(Debug, Default)]
pub(crate) struct Cell {
    handle: OnceLock<Option<Handle>>,
    runtime: Mutex<Option<Runtime>>,
}

impl Cell {
    /// Makes this thread part of the runtime until the guard is dropped. None where the system gives no more
    /// threads: a future that needs the runtime then panics, which is caught.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.handle().map(Handle::enter)
    }

    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.handle.get_or_init(|| self.make()).as_ref()
    }

    fn make(&self) -> Option<Handle> {
        let built =
            Builder::new_multi_thread().worker_threads(1).thread_name("extension").enable_all().build();
        let runtime = built.ok()?;
        let handle = runtime.handle().clone();
        *self.runtime.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime);
        Some(handle)
    }

    /// Ends its tasks without waiting for them: waiting could hold the kernel.
    pub(crate) fn end(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.end();
    }
}
