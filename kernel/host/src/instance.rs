//! A running instance of an extension, as the kernel sees it: typed operations over the frozen table.

use std::{
    borrow::Cow,
    fmt,
    future::pending,
    net::TcpListener,
    ops::Deref,
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use drupe_extension_abi::{CallHeader, Reply};
use drupe_extension_api::{
    ExtensionId, Fault, FaultCode,
    wire::{Description, op},
};
use drupe_redact::Redactor;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Ended, frame,
    inproc::Inproc,
    process::Process,
    shown,
    words::{FAULT, cut},
};

/// An instance. Dropping it closes it; a process of its own is then killed. Prefer [`close`](Self::close).
pub struct Instance {
    id: ExtensionId,
    side: Side,
    next_call: AtomicU64,
    /// What it was handed stays open as long as it is there.
    listening: Vec<Arc<TcpListener>>,
    redactor: Redactor,
}

pub(crate) enum Side {
    Here(Arc<Inproc>),
    There(Process),
}

/// To look through a longer reply for secrets takes milliseconds, in which a thread could do what others wait for.
const LONG: usize = 32 << 10;

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
    pub(crate) fn new(
        id: ExtensionId,
        side: Side,
        listening: Vec<Arc<TcpListener>>,
        redactor: Redactor,
    ) -> Self {
        Self { id, side, next_call: AtomicU64::new(1), listening, redactor }
    }

    /// The sockets that it was handed, each with its descriptor in the process that runs its code.
    pub fn listening(&self) -> impl Iterator<Item = (&TcpListener, RawFd)> {
        let there = match &self.side {
            Side::Here(_) => &[][..],
            Side::There(process) => process.passed(),
        };
        let here = self.listening.iter().map(|socket| socket.as_raw_fd());
        let descriptors = there.iter().copied().chain(here.skip(there.len()));
        self.listening.iter().map(Arc::as_ref).zip(descriptors)
    }

    /// What it says of itself now. In process this runs on a blocking thread and goes on there when the future is
    /// dropped.
    pub async fn describe(&self) -> Result<Description, Fault> {
        let body = match &self.side {
            Side::Here(inproc) => inproc.describe().await,
            Side::There(process) => process.describe().await,
        };
        description(&self.id, &self.redactor.json(&body?))
    }

    /// Performs an operation. Dropping the future cancels it. A panic on the other side is a fault of this call; so is
    /// the end of the process that ran it, as [`FaultCode::Crashed`]. Payload and result may have 16 MiB where a
    /// process of its own runs it.
    pub async fn call<R: DeserializeOwned>(
        &self,
        operation: &'static str,
        payload: &impl Serialize,
        header: Header<'_>,
    ) -> Result<R, Fault> {
        match &self.side {
            Side::Here(inproc) => {
                let header_out = CallHeader {
                    call_id: self.next_call.fetch_add(1, Ordering::Relaxed),
                    deadline_ms: header.timeout.map_or(0, deadline_ms),
                    parent_token: header.token.into(),
                    trace: header.trace.into(),
                };
                let payload = serde_json::to_vec(payload).map_err(Fault::internal)?;
                let call = inproc.call(header_out, operation, payload);
                let reply = self.in_time(operation, header.timeout, call).await?;
                self.read(operation, reply.status, reply.body).await
            }
            Side::There(process) => {
                let id = process.next_id();
                let mut draft = frame::Draft::call(&frame::Call {
                    id,
                    deadline_ms: header.timeout.map_or(0, deadline_ms),
                    token: header.token,
                    trace: header.trace,
                    operation,
                    payload: &[],
                })
                .map_err(|error| self.unsendable(operation, error))?;
                serde_json::to_writer(draft.payload(), payload).map_err(Fault::internal)?;
                let bytes = draft.finish().map_err(|error| self.unsendable(operation, error))?;
                let call = process.request(id, operation, bytes);
                let reply = self.in_time(operation, header.timeout, call).await?;
                self.read(operation, reply.status, reply.body).await
            }
        }
    }

    /// Resolves when the process of the extension has ended by itself or was killed for cause, also where it has done so
    /// before. Waits for ever in process and after [`close`](Self::close).
    pub async fn ended(&self) -> Ended {
        match &self.side {
            Side::Here(_) => pending().await,
            Side::There(process) => process.ended().await,
        }
    }

    /// The same for a task that must not hold the instance: none where the end was asked for, or there is no process.
    pub fn ending(&self) -> impl Future<Output = Option<Ended>> + Send + use<> {
        let ending = match &self.side {
            Side::Here(_) => None,
            Side::There(process) => Some(process.ending()),
        };
        async move { ending?.await }
    }

    /// The id of its process; none in process.
    pub fn process(&self) -> Option<u32> {
        match &self.side {
            Side::Here(_) => None,
            Side::There(process) => process.pid(),
        }
    }

    /// How many calls are in flight: begun, and not known to have ended on the other side.
    pub fn calls(&self) -> usize {
        match &self.side {
            Side::Here(inproc) => inproc.calls(),
            Side::There(process) => process.calls(),
        }
    }

    /// The same, without the one that runs its service for as long as it lives. In process it is among them.
    pub fn calls_beside_service(&self) -> usize {
        match &self.side {
            Side::Here(inproc) => inproc.calls(),
            Side::There(process) => process.calls_beside_service(),
        }
    }

    /// How many calls have begun so far.
    pub fn begun(&self) -> u64 {
        match &self.side {
            Side::Here(_) => self.next_call.load(Ordering::Relaxed),
            Side::There(process) => process.begun(),
        }
    }

    /// CPU time that its process has used, to 10 ms; none in process or once that has ended.
    pub fn cpu_time(&self) -> Option<Duration> {
        match &self.side {
            Side::Here(_) => None,
            Side::There(process) => process.cpu_time(),
        }
    }

    /// Ends its process for a cause, which [`ended`](Self::ended) and the calls in flight then tell. Does nothing in
    /// process: code there cannot be ended.
    pub fn kill(&self, why: &str) {
        match &self.side {
            Side::Here(_) => {
                tracing::warn!(extension = %self.id, why, "code in the kernel's own process cannot be ended");
            }
            Side::There(process) => process.kill(why),
        }
    }

    /// Ends it in order: it is told, and its process ends, or is killed after 5 s. Later calls are refused; calls in
    /// flight end with the process, and in process as they will. Closing again does nothing.
    pub async fn close(&self) {
        match &self.side {
            Side::Here(inproc) => inproc.close().await,
            Side::There(process) => process.close().await,
        }
    }

    async fn in_time<T>(
        &self,
        operation: &str,
        limit: Option<Duration>,
        call: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let Some(limit) = limit else { return call.await };
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            let message = format!("extension `{}` did not finish `{operation}` within {limit:?}", self.id);
            Err(Fault::new(FaultCode::Timeout, message))
        })
    }

    /// Reads a reply. Nothing of the extension's gets past this with a secret in it.
    async fn read<R: DeserializeOwned>(
        &self,
        operation: &str,
        status: u32,
        body: impl Deref<Target = [u8]> + Send + 'static,
    ) -> Result<R, Fault> {
        let body = match status == Reply::OK && operation == op::TOOL_CALL && shown::may_show(&body) {
            true => {
                let redactor = self.redactor.clone();
                let apart = move || shown::read(&redactor, body);
                match tokio::task::spawn_blocking(apart).await.map_err(Fault::internal)? {
                    Ok(value) => {
                        return serde_json::from_value(value).map_err(|e| self.unreadable(operation, &e));
                    }
                    Err(body) => body,
                }
            }
            false => body,
        };
        let (clean, kept);
        let body = match body.len() > LONG && !self.redactor.is_empty() {
            true => {
                let redactor = self.redactor.clone();
                let work = move || redactor.json(&body).into_owned();
                clean = Cow::Owned(tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?);
                &*clean
            }
            false => {
                kept = body;
                clean = self.redactor.json(&kept);
                &*clean
            }
        };
        if status != Reply::OK {
            return Err(fault(&self.id, operation, body));
        }
        serde_json::from_slice(body).map_err(|error| self.unreadable(operation, &error))
    }

    fn unreadable(&self, operation: &str, error: &serde_json::Error) -> Fault {
        let id = &self.id;
        // It quotes what it does not understand.
        let error = cut(error.to_string(), FAULT);
        Fault::invalid(format!("extension `{id}` answered `{operation}` with something unreadable: {error}"))
    }

    fn unsendable(&self, operation: &str, error: frame::TooLong) -> Fault {
        Fault::invalid(format!("`{operation}` cannot be sent to extension `{}`: {error}", self.id))
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("id", &self.id)
            .field("process", &self.process())
            .finish_non_exhaustive()
    }
}

/// Reads the body of a reply that is a fault. It may become a state's reason, a remark or a row.
pub(crate) fn fault(id: &ExtensionId, operation: &str, body: &[u8]) -> Fault {
    match serde_json::from_slice(body) {
        Ok(Fault { code, message, help, retriable }) => {
            Fault { code, message: cut(message, FAULT), help: help.map(|help| cut(help, FAULT)), retriable }
        }
        Err(_) => {
            Fault::internal(format!("extension `{id}` failed in `{operation}` without a readable fault"))
        }
    }
}

/// Reads what an extension says of itself.
pub(crate) fn description(id: &ExtensionId, body: &[u8]) -> Result<Description, Fault> {
    serde_json::from_slice(body)
        .map_err(|error| cut(error.to_string(), FAULT))
        .map_err(|error| Fault::invalid(format!("extension `{id}` describes itself badly: {error}")))
}

fn deadline_ms(timeout: Duration) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from((now + timeout).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fault_of_an_extension_is_longer_than_its_bound() {
        let id: ExtensionId = "chatty".parse().expect("an id");
        let long = "x".repeat(1 << 20);
        let said = Fault::new(FaultCode::Other, long.clone()).help(long.clone());
        let body = serde_json::to_vec(&said).expect("a fault");
        let Fault { message, help, code, .. } = fault(&id, "tool.call", &body);
        let help = help.expect("its help");
        assert!(message.len() < FAULT + 100 && help.len() < FAULT + 100, "{} {}", message.len(), help.len());
        assert!(code == FaultCode::Other && message.ends_with("1048576 bytes]"), "{message}");
        // What is not understood is quoted.
        let odd = serde_json::json!({"hooks": [long]}).to_string();
        let refused = description(&id, odd.as_bytes()).expect_err("there is no such point");
        assert!(refused.message.len() < FAULT + 200, "{}", refused.message.len());
        let short = Fault::invalid("no").help("yes");
        assert_eq!(fault(&id, "tool.call", &serde_json::to_vec(&short).expect("a fault")), short);
    }
}
