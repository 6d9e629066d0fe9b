//! The kernel, as an extension sees it.
//!
//! What belongs to one call (its session, its budget, calling tools and agents) is on [`Call`](super::Call)
//! and not here: a [`Host`] has no session.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, value::to_raw_value};

use super::{
    Items, Process, Shutdown, Subscription, guard,
    shared::{Origin, Shared},
};
use crate::{
    Definition, ExtensionId, Fault, FaultCode, SessionId, ToolSpec,
    wire::{
        Admission, ControlCall, Emit, Initialize, Listening, NotifyUser, OutwardRequest, OutwardResponse,
        ProcessOutput, ProcessSpec, RestartRequest, RunProcess, Sender, StopConversation, Submit, Submitted,
        Subscribe, host,
    },
};

/// The kernel, for one extension. Clones are cheap and the same.
///
/// Methods that need a right say so; without it in the manifest they end with
/// [`FaultCode::Denied`](crate::FaultCode::Denied), and the attempt is recorded.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
    given: Arc<Initialize>,
}

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What the operator may want to know.
    Info,
    /// What the author may want to know.
    Debug,
    /// Everything else.
    Trace,
}

impl Level {
    /// Its name in [`Log`](crate::wire::Log).
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// What the extension was given at `initialize`.
impl Host {
    pub(crate) fn new(shared: Arc<Shared>, given: Initialize) -> Self {
        Self { shared, given: Arc::new(given) }
    }

    /// The extension's id.
    pub fn id(&self) -> &ExtensionId {
        &self.given.id
    }

    /// The configuration as the author's type: the manifest's defaults with the operator's values over them.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_value(Value::Object(self.given.config.clone())).map_err(|e| {
            Fault::invalid(format!("the configuration of `{}` cannot be used: {e}", self.id()))
                .help(format!("see `extensions.{}` in drupe.yaml", self.id()))
        })
    }

    /// A secret that the manifest lists under `secrets`.
    pub fn secret(&self, name: &str) -> Result<&str, Fault> {
        self.given.secrets.get(name).and_then(Value::as_str).ok_or_else(|| {
            Fault::new(FaultCode::NotConfigured, format!("`{}` has no secret `{name}`", self.id()))
                .help("list it under `secrets` in the manifest")
        })
    }

    /// The folder that it may write; it exists, and outlives restarts and updates.
    pub fn data_folder(&self) -> &Path {
        Path::new(&self.given.data_folder)
    }

    /// Its own folder, to read.
    pub fn folder(&self) -> &Path {
        Path::new(&self.given.folder)
    }

    /// The root of the file tools.
    pub fn workspace(&self) -> &Path {
        Path::new(&self.given.workspace)
    }

    /// The `agent` section of the manifest with rendered instructions.
    pub fn agent(&self) -> Option<&Definition> {
        self.given.agent.as_ref()
    }

    /// The tools that `uses_tools` resolved to; [`Call::call_tool`](super::Call::call_tool) reaches these.
    pub fn resolved_tools(&self) -> &[ToolSpec] {
        &self.given.resolved_tools
    }

    /// Where the `program_folders` of the manifest are, in their order; an empty text for one that is nowhere.
    pub fn program_folders(&self) -> &[String] {
        &self.given.program_folders
    }

    /// The model that [`Call::embed`](super::Call::embed) asks, as `provider/model`; none where there is none, or the manifest
    /// lacks the right `embed`. Vectors of different models cannot be compared.
    pub fn embedding_model(&self) -> Option<&str> {
        self.given.embedding_model.as_deref()
    }

    /// The sockets that it was handed; [`listener`](Self::listener) gives one of them.
    pub fn listening(&self) -> &[Listening] {
        &self.given.listening
    }

    /// Has the kernel send a request, with the secrets filled in that `bound_secrets` of the manifest binds to its host. This extension
    /// never has them, and needs no right to the network.
    ///
    /// # Errors
    /// [`FaultCode::Denied`] for a host that no secret is bound to, and what becomes of a request on its way.
    pub async fn send(&self, request: &OutwardRequest) -> Result<OutwardResponse, Fault> {
        self.shared.request(&Origin::default(), host::HTTP_SEND, request).await
    }

    /// Ends when the extension shall stop.
    pub fn shutdown(&self) -> Shutdown {
        self.shared.shutdown.shutdown()
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The log. Lines bear the extension's id; a line never waits, and a kernel that is busy may drop it.
impl Host {
    /// Writes a line.
    pub fn log(&self, level: Level, message: impl fmt::Display) {
        self.shared.log(level.name(), &message.to_string());
    }

    /// Something failed.
    pub fn error(&self, message: impl fmt::Display) {
        self.log(Level::Error, message);
    }

    /// Something is not as it should be.
    pub fn warn(&self, message: impl fmt::Display) {
        self.log(Level::Warn, message);
    }

    /// What the operator may want to know.
    pub fn info(&self, message: impl fmt::Display) {
        self.log(Level::Info, message);
    }

    /// What the author may want to know.
    pub fn debug(&self, message: impl fmt::Display) {
        self.log(Level::Debug, message);
    }
}

/// What the kernel does for it.
impl Host {
    /// Waits, on the kernel's clock; needs no runtime in the extension. Part of a millisecond counts as one.
    pub async fn sleep(&self, time: Duration) -> Result<(), Fault> {
        let milliseconds = time.as_nanos().div_ceil(1_000_000);
        let milliseconds = u64::try_from(milliseconds).unwrap_or(u64::MAX);
        self.shared.tell(host::SLEEP, &milliseconds).await
    }

    /// Publishes a message on this extension's topic `<id>.<topic>`.
    pub async fn emit(&self, topic: &str, payload: &(impl Serialize + ?Sized)) -> Result<(), Fault> {
        let emit = Emit { topic: topic.to_owned(), payload: serde_json::to_value(payload)? };
        self.shared.tell(host::EMIT, &emit).await
    }

    /// Receives the messages of a whole topic, such as `kv.changed`, from now on.
    pub async fn subscribe(&self, topic: &str) -> Result<Subscription, Fault> {
        self.follow(topic, false).await
    }

    /// The same, and messages wait while the extension is away: each comes at least once. What a
    /// [`Subscription`] gave counts as done when the next message is asked for.
    pub async fn subscribe_durable(&self, topic: &str) -> Result<Subscription, Fault> {
        self.follow(topic, true).await
    }

    async fn follow(&self, topic: &str, durable: bool) -> Result<Subscription, Fault> {
        let subscribe = Subscribe { topic: topic.to_owned(), durable };
        let handle = self.shared.request(&Origin::default(), host::SUBSCRIBE, &subscribe).await?;
        Ok(Subscription::new(self.shared.clone(), handle))
    }

    /// Shows a text to the user, in `session` or where a person wrote last.
    pub async fn notify_user(
        &self,
        text: impl Into<String>,
        session: Option<SessionId>,
    ) -> Result<(), Fault> {
        self.shared.tell(host::NOTIFY, &NotifyUser { text: text.into(), session }).await
    }

    /// Asks for a restart of the kernel after its running turns. Needs the right `restart`.
    pub async fn request_restart(&self, reason: impl Into<String>) -> Result<(), Fault> {
        self.shared.tell(host::RESTART, &RestartRequest { reason: reason.into() }).await
    }

    /// Hands an inbound message to the kernel; once this returns it will be answered, restarts included.
    /// Within a call it counts as set off by that call: a chain of messages that set each other off ends. Needs the
    /// right `submit`.
    pub async fn submit(&self, message: Submit) -> Result<Submitted, Fault> {
        self.shared.request(&guard::behalf(), host::SUBMIT, &message).await
    }

    /// Whether somebody is answered in this channel, where its manifest has `senders: known`. Who is not known and waits for the
    /// operator is to be shown the text of [`Admission::Waiting`], and nothing else. [`submit`](Self::submit) of a message of theirs is
    /// [`FaultCode::Unauthenticated`](crate::FaultCode::Unauthenticated). Needs the right `submit`.
    pub async fn admit(&self, sender: &Sender) -> Result<Admission, Fault> {
        self.shared.request(&Origin::default(), host::PEOPLE_ADMIT, sender).await
    }

    /// Ends what runs or waits in a conversation of the extension's own; gives how many turns that were. Needs the right `submit`.
    pub async fn stop_session(&self, session: SessionId, sender: Option<Sender>) -> Result<u64, Fault> {
        self.shared
            .request(&Origin::default(), host::SESSION_STOP, &StopConversation { session, sender })
            .await
    }

    /// Runs a program, confined, to its end; see [`ProcessSpec`] for what it may do. Needs the right `processes`.
    /// Dropping the future kills it.
    pub async fn run_process(&self, process: &RunProcess) -> Result<ProcessOutput, Fault> {
        self.shared.request(&guard::behalf(), host::PROCESS_RUN, process).await
    }

    /// Starts a program, confined, whose streams are read and written while it runs. Needs the right `processes`.
    ///
    /// ```
    /// # use drupe_extension_api::{prelude::*, wire::ProcessSpec};
    /// # async fn example(host: Host) -> Result<(), Fault> {
    /// let mut sort = host.open_process(&ProcessSpec::new("sort", host.data_folder())).await?;
    /// sort.write(b"pear\nfig\n").await?;
    /// sort.stdin = None;
    /// while let Some(bytes) = sort.read().await? {
    ///     host.info(String::from_utf8_lossy(&bytes));
    /// }
    /// assert_eq!(sort.wait().await?.status, Some(0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_process(&self, spec: &ProcessSpec) -> Result<Process, Fault> {
        let opened = self.shared.request(&guard::behalf(), host::PROCESS_OPEN, spec).await?;
        Ok(Process::new(&self.shared, opened))
    }

    /// Calls a method of the [control API](crate::control) that has one answer. Needs the right `control`.
    pub async fn control<R: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize + Send,
    ) -> Result<R, Fault> {
        self.control_for(None, method, params).await
    }

    /// The same for the bearer of a named token, whom the extension has heard: what both of them may do is done.
    pub async fn control_for<R: DeserializeOwned>(
        &self,
        bearer: Option<&str>,
        method: &str,
        params: impl Serialize + Send,
    ) -> Result<R, Fault> {
        let call = control_call(bearer, method, params)?;
        self.shared.request(&guard::behalf(), host::CONTROL, &call).await
    }

    /// Opens a method of the [control API](crate::control) that streams, such as
    /// [`events.subscribe`](crate::control::method::EVENTS_SUBSCRIBE). Needs the right `control`.
    ///
    /// ```
    /// # use drupe_extension_api::{Event, control::{EventsSubscribe, method}, prelude::*};
    /// # async fn example(host: Host, session: SessionId) -> Result<(), Fault> {
    /// let ask = EventsSubscribe { session, after: 0, follow: true };
    /// let mut events = host.open::<Event>(method::EVENTS_SUBSCRIBE, &ask).await?;
    /// while let Some(event) = events.next().await? {
    ///     host.debug(event.seq);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize + Send,
    ) -> Result<Items<T>, Fault> {
        self.open_for(None, method, params).await
    }

    /// The same for the bearer of a named token, whom the extension has heard. It ends when the token is revoked.
    pub async fn open_for<T: DeserializeOwned>(
        &self,
        bearer: Option<&str>,
        method: &str,
        params: impl Serialize + Send,
    ) -> Result<Items<T>, Fault> {
        let call = control_call(bearer, method, params)?;
        let handle = self.shared.request(&guard::behalf(), host::CONTROL_OPEN, &call).await?;
        Ok(Items::new(self.shared.clone(), handle))
    }

    /// Says that [`ToolProvider::tools`](super::ToolProvider::tools) would answer otherwise now. Where the new tools cannot be
    /// used (a name that is taken, a schema that is none, too much of anything), this fails and nothing changes.
    pub async fn tools_changed(&self) -> Result<(), Fault> {
        *self.shared.unannounced() = None;
        self.shared.tools_changed.store(true, std::sync::atomic::Ordering::Release);
        let told = self.shared.tell(host::TOOLS_CHANGED, &()).await;
        // Why they could not even be described goes before what the kernel said of those that it was given instead.
        let unannounced = self.shared.unannounced().take();
        if told.is_err() && unannounced.is_none() {
            self.shared.refused.store(true, std::sync::atomic::Ordering::Release);
        }
        unannounced.map_or(told, Err)
    }

    /// Does work that blocks, such as writing a file, on a thread where it holds nobody up. Once begun it
    /// runs to its end, even where the call that waits for it is cancelled. A panic in it is a fault.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        super::blocking::run(self.shared.clone(), work).await
    }

    /// Runs a task beside the calls, on the extension's runtime, until it ends or the instance is closed.
    /// A panic in it is logged and ends it alone.
    #[cfg(feature = "runtime")]
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), Fault> {
        let no_thread = || Fault::new(FaultCode::Unavailable, "the system gives no thread for a runtime");
        let runtime = self.shared.handle().ok_or_else(no_thread)?;
        let task = super::guard::Guarded::new(self.shared.clone(), "a spawned task".into(), Box::pin(task));
        // The guard has logged a panic.
        runtime.spawn(async move { drop(task.await) });
        Ok(())
    }
}

fn control_call(bearer: Option<&str>, method: &str, params: impl Serialize) -> Result<ControlCall, Fault> {
    let (method, bearer) = (method.to_owned(), bearer.map(str::to_owned));
    Ok(ControlCall { method, params: to_raw_value(&params)?, bearer })
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Configuration and secrets stay out of logs.
        f.debug_struct("Host").field("id", self.id()).finish_non_exhaustive()
    }
}
