//! An extension in a process of its own, as the kernel holds it.

mod answers;
mod calls;
mod drive;
mod spawn;
mod stderr;

use std::{
    os::{fd::RawFd, unix::net::UnixStream as StdStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use drupe_extension_abi::{HostBox, Reply};
use drupe_extension_api::{ExtensionId, Fault, FaultCode};
use drupe_redact::Redactor;
use tokio::{
    net::UnixStream,
    sync::{Notify, watch},
    task::JoinSet,
};

use self::{calls::Calls, drive::Driver, spawn::Running};
use crate::{
    Code, Ended, HostProcess, OpenError,
    frame::{self, Frame},
    inbox::Inbox,
    inproc::closed,
    instance::fault,
    outbox::Outbox,
};

/// How long an orderly end may take before the process is killed.
const CLOSING: Duration = Duration::from_secs(5);

/// The process. Dropping it kills it.
pub struct Process {
    shared: Arc<Shared>,
    ended: watch::Receiver<Option<Ended>>,
    next_id: AtomicU64,
    /// The driver and the writer, which end with this.
    _tasks: JoinSet<()>,
}

/// What the tasks of a process and its callers share.
struct Shared {
    id: ExtensionId,
    redactor: Redactor,
    outbox: Outbox,
    calls: Calls,
    /// The process that runs the extension's code.
    program: Option<u32>,
    /// The sockets that it was handed, as it knows them.
    passed: Vec<RawFd>,
    /// Why it shall be killed; the first cause counts.
    cause: Mutex<Option<String>>,
    killed: Notify,
    /// Whether the end was asked for.
    closing: Arc<AtomicBool>,
}

/// A result that came over the socket.
pub struct Answer {
    /// As in [`Reply`].
    pub status: u32,
    /// JSON.
    pub body: Vec<u8>,
}

impl Process {
    /// Starts the process and lets it open the library.
    pub async fn open(code: &Code, place: HostProcess, host: HostBox) -> Result<Self, OpenError> {
        let failed = |reason| OpenError::Io { id: code.id.clone(), reason };
        let (ours, theirs) = StdStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let (reading, writing) = UnixStream::from_std(ours).map_err(failed)?.into_split();
        let about = host.describe();
        let running = Running::start(code, place, theirs).await?;
        let shared = Arc::new(Shared {
            id: code.id.clone(),
            redactor: code.redactor.clone(),
            outbox: Outbox::new(writing),
            calls: Calls::default(),
            program: running.program(),
            passed: running.passed().to_vec(),
            cause: Mutex::default(),
            killed: Notify::new(),
            closing: Arc::default(),
        });
        let (tell_end, ended) = watch::channel(None);
        let driver = Driver::new(Arc::clone(&shared), Inbox::new(reading), host, running, tell_end);
        let mut tasks = JoinSet::new();
        tasks.spawn(driver.run());
        let writer = Arc::clone(&shared);
        tasks.spawn(async move { writer.outbox.run().await });
        let process = Self { shared, ended, next_id: AtomicU64::new(1), _tasks: tasks };
        let opened = process.ask("load", |id| Frame::Open { id, about: &about }).await;
        match opened {
            Ok(_) => Ok(process),
            Err(fault) => Err(match process.has_ended() {
                Some(ended) => OpenError::Ended { id: code.id.clone(), ended },
                None => OpenError::Refused(fault),
            }),
        }
    }

    /// What the extension says of itself.
    pub async fn describe(&self) -> Result<Vec<u8>, Fault> {
        self.ask("describe", |id| Frame::Describe { id }).await
    }

    async fn ask<'a>(
        &self,
        operation: &'static str,
        frame: impl FnOnce(u64) -> Frame<'a>,
    ) -> Result<Vec<u8>, Fault> {
        let id = self.next_id();
        let bytes = frame::encode(&frame(id)).map_err(Fault::internal)?;
        let answer = self.request(id, operation, bytes).await?;
        if answer.status == Reply::OK {
            return Ok(answer.body);
        }
        Err(fault(&self.shared.id, operation, &answer.body))
    }

    /// A number that no call had before.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a call and waits for its result. Dropping the future cancels the call.
    pub async fn request(&self, id: u64, operation: &'static str, bytes: Vec<u8>) -> Result<Answer, Fault> {
        let shared = &*self.shared;
        if shared.closing.load(Ordering::Acquire) {
            return Err(closed(&shared.id, operation));
        }
        let call = shared.calls.begin(id, operation, &shared.outbox);
        let mut call = call.map_err(|ended| self.not_there(operation, &ended))?;
        // Where the other side is gone, the driver is about to end the call.
        if shared.outbox.send(bytes).await.is_ok() {
            call.sent();
        }
        call.answer().await.map_err(|ended| self.crashed(operation, &ended))
    }

    /// How it ends; none where that was asked for. Holds nothing of the process.
    pub fn ending(&self) -> impl Future<Output = Option<Ended>> + Send + use<> {
        let (mut ended, asked) = (self.ended.clone(), Arc::clone(&self.shared.closing));
        async move {
            let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
            end.filter(|_| !asked.load(Ordering::Acquire))
        }
    }

    pub async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        match end.filter(|_| !self.shared.closing.load(Ordering::Acquire)) {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }

    /// How it has ended, if it has.
    pub fn has_ended(&self) -> Option<Ended> {
        self.shared.calls.ended()
    }

    pub fn passed(&self) -> &[RawFd] {
        &self.shared.passed
    }

    pub fn pid(&self) -> Option<u32> {
        self.shared.program
    }

    pub fn calls(&self) -> usize {
        self.shared.calls.count()
    }

    pub fn calls_beside_service(&self) -> usize {
        self.shared.calls.beside_service()
    }

    pub fn begun(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    pub fn cpu_time(&self) -> Option<Duration> {
        drupe_confine::cpu_time(self.shared.program.filter(|_| self.has_ended().is_none())?)
    }

    pub fn kill(&self, why: &str) {
        self.shared.kill(why.to_owned());
    }

    pub async fn close(&self) {
        let shared = &*self.shared;
        // One that has ended by itself stays one that did, for those who are about to hear of it.
        if self.has_ended().is_some() {
            return;
        }
        let first = !shared.closing.swap(true, Ordering::AcqRel);
        let mut ended = self.ended.clone();
        if first {
            let close = frame::encode(&Frame::Close);
            // A side that is gone is closed.
            let _ = close.map(|bytes| shared.outbox.push(bytes));
        }
        let over = ended.wait_for(Option::is_some);
        if tokio::time::timeout(CLOSING, over).await.is_err() {
            shared.kill(format!("it did not end in order within {CLOSING:?}"));
            // The driver ends it now, however it is.
            let _ = ended.wait_for(Option::is_some).await;
        }
    }

    fn crashed(&self, operation: &str, ended: &Ended) -> Fault {
        let id = &self.shared.id;
        if self.shared.closing.load(Ordering::Acquire) {
            let message =
                format!("extension `{id}` was closed during `{operation}`: whether it did that is not known");
            return Fault::new(FaultCode::OutcomeUnknown, message);
        }
        Fault::new(FaultCode::Crashed, format!("extension `{id}` ended during `{operation}`: {}", ended.how))
    }

    fn not_there(&self, operation: &str, ended: &Ended) -> Fault {
        let id = &self.shared.id;
        let message =
            format!("extension `{id}` does not run, so that it cannot do `{operation}`: {}", ended.how);
        Fault::new(FaultCode::Unavailable, message)
    }
}

impl Shared {
    fn kill(&self, why: String) {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.killed.notify_one();
    }

    /// Waits until it shall be killed.
    async fn killed(&self) -> String {
        loop {
            if let Some(why) = self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                return why;
            }
            self.killed.notified().await;
        }
    }
}
