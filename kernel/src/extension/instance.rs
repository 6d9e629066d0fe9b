//! A running instance of an extension, as the rest of the kernel sees it: typed operations over the frozen table.

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use drupe_extension_abi::{CallHeader, ExtensionBox, Reply};
use drupe_extension_api::{ExtensionId, Fault, FaultCode, wire::Description};
use futures_util::FutureExt;
use serde::{Serialize, de::DeserializeOwned};

/// An instance; dropping it closes it.
pub struct Instance {
    id: ExtensionId,
    table: ExtensionBox,
    next_call: AtomicU64,
}

/// What accompanies a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Header<'a> {
    /// Lets the extension call back on behalf of this call.
    pub token: &'a str,
    /// The trace that the call belongs to.
    pub trace: &'a str,
    /// How long the caller waits; none for as long as it takes.
    pub timeout: Option<Duration>,
}

impl Instance {
    /// Takes the table of an instance.
    pub fn new(id: ExtensionId, table: ExtensionBox) -> Self {
        Self { id, table, next_call: AtomicU64::new(1) }
    }

    /// What it says of itself now.
    pub fn describe(&self) -> Result<Description, Fault> {
        let bytes = std::panic::catch_unwind(AssertUnwindSafe(|| self.table.describe()))
            .map_err(|_| self.panicked("describe"))?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Fault::invalid(format!("extension `{}` describes itself badly: {error}", self.id))
        })
    }

    /// Performs an operation. Dropping the future cancels it; a panic on the other side is a fault of this call.
    pub async fn call<R: DeserializeOwned>(
        &self,
        operation: &'static str,
        payload: &impl Serialize,
        header: Header<'_>,
    ) -> Result<R, Fault> {
        let payload = serde_json::to_vec(payload).map_err(Fault::internal)?;
        let header_out = CallHeader {
            call_id: self.next_call.fetch_add(1, Ordering::Relaxed),
            deadline_ms: header.timeout.map_or(0, deadline_ms),
            parent_token: header.token.into(),
            trace: header.trace.into(),
        };
        let call =
            AssertUnwindSafe(async { self.table.call(header_out, operation.into(), payload.into()).await });
        let reply = match header.timeout {
            None => call.catch_unwind().await,
            Some(limit) => tokio::time::timeout(limit, call.catch_unwind())
                .await
                .map_err(|_| self.late(operation, limit))?,
        };
        let reply = reply.map_err(|_| self.panicked(operation))?;
        if reply.status != Reply::OK {
            return Err(serde_json::from_slice(&reply.body).unwrap_or_else(|_| {
                Fault::internal(format!(
                    "extension `{}` failed in `{operation}` without a readable fault",
                    self.id
                ))
            }));
        }
        serde_json::from_slice(&reply.body).map_err(|error| {
            Fault::invalid(format!(
                "extension `{}` answered `{operation}` with something unreadable: {error}",
                self.id
            ))
        })
    }

    fn late(&self, operation: &str, limit: Duration) -> Fault {
        let message = format!("extension `{}` did not finish `{operation}` within {limit:?}", self.id);
        Fault::new(FaultCode::Timeout, message)
    }

    fn panicked(&self, operation: &str) -> Fault {
        Fault::new(FaultCode::Panicked, format!("extension `{}` panicked in `{operation}`", self.id))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::panic::catch_unwind(AssertUnwindSafe(|| self.table.close())).is_err() {
            tracing::error!(extension = %self.id, "the extension panicked while it was closed");
        }
    }
}

fn deadline_ms(timeout: Duration) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from((now + timeout).as_millis()).unwrap_or(u64::MAX)
}
