//! The servers of the configuration: begun with when they are needed, asked, left alone for a while where they fail, and what
//! they say of themselves compared with what was agreed to.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{prelude::*, wire::AgentServers};
use futures_util::future::BoxFuture;
use rmcp::service::ServiceError;
use tokio::sync::Semaphore;

use crate::{
    backoff::Backoff,
    catalog::{self, is_shared},
    config::{McpSettings, ServerSettings},
    connection::{Connection, connect, is_lacking, within, within_asked},
    instances::{Instances, Lease},
    oauth::{SignIns, Signed},
    offer::Offer,
    pins::Pins,
};

/// Servers that are begun with at the same time when the daemon starts.
const AT_ONCE: usize = 8;

/// How often a server is tried when the daemon starts. Later it is tried when it is refreshed.
const TRIES: usize = 7;

/// How often one that is to be kept running is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// How long a server may go on changing its tools before it is asked for them.
const SETTLES: Duration = Duration::from_secs(2);

/// Calls in a row without an answer after which an instance is ended.
const LATE: usize = 3;

/// A wait that a call takes part in, in seconds. It does not wait for a longer one.
const SHORT: u64 = 5;

pub struct Servers {
    pub host: Host,
    /// Those of the configuration, with the servers of agents.
    settings: RwLock<Arc<McpSettings>>,
    pub pins: Arc<Pins>,
    pub signins: Arc<SignIns>,
    pub offer: Offer,
    pub instances: Instances,
    live: Mutex<BTreeMap<String, Condition>>,
    starting: Semaphore,
}

/// How a server does at the moment.
#[derive(Default)]
pub struct Condition {
    backoff: Backoff,
    /// What went wrong last, since it worked last.
    pub error: Option<String>,
    /// It wants to know who asks.
    pub wants_sign_in: bool,
    /// The revision of the protocol that it was last spoken to by.
    pub version: Option<String>,
}

impl Servers {
    pub fn new(host: Host, settings: McpSettings) -> Result<Arc<Self>, Fault> {
        let pins = Pins::open(host.data_folder())?;
        pins.begin(&settings.servers);
        let offer = Offer::new(&settings, &pins.state());
        let signins = Arc::new(SignIns::open(host.clone(), host.data_folder())?);
        let servers = Self {
            signins,
            offer,
            host,
            settings: RwLock::new(Arc::new(settings)),
            pins: Arc::new(pins),
            instances: Instances::default(),
            live: Mutex::default(),
            starting: Semaphore::new(AT_ONCE),
        };
        Ok(Arc::new(servers))
    }

    pub fn live(&self) -> MutexGuard<'_, BTreeMap<String, Condition>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn settings(&self) -> Arc<McpSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The server of a name that is the operator's own: what nobody is to reach who is not its agent, is none here.
    pub fn shared(&self, name: &str) -> Result<ServerSettings, Fault> {
        if is_shared(&self.settings(), name) { self.used(name) } else { Err(self.missing(name)) }
    }

    fn missing(&self, name: &str) -> Fault {
        let settings = self.settings();
        let shared = settings.servers.iter().filter(|(_, server)| server.only_for.is_none());
        let names: Vec<&str> = shared.map(|(name, _)| name.as_str()).collect();
        Fault::not_found(format!("there is no MCP server `{name}`"))
            .help(format!("there are: {}", names.join(", ")))
    }

    /// Takes in the servers of agents, all of them. Those that are gone or others now end; new ones are begun with.
    pub fn serve(self: &Arc<Self>, given: &AgentServers) -> Result<(), Fault> {
        let before = self.settings();
        let (settings, faults) = before.with_agents(given);
        faults.iter().for_each(|fault| self.host.error(fault));
        let of_agents = |of: &McpSettings| {
            let all = of.servers.iter().filter(|(_, server)| server.only_for.is_some());
            all.map(|(name, server)| (name.clone(), server.clone())).collect::<BTreeMap<_, _>>()
        };
        let (old, new) = (of_agents(&before), of_agents(&settings));
        self.pins.begin(&settings.servers);
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        let changed = |name: &String, server: &ServerSettings| old.get(name).is_none_or(|old| old != server);
        for name in old.keys().filter(|name| new.get(*name) != old.get(*name)) {
            self.instances.end(name);
            self.live().remove(name);
        }
        let begun: Vec<String> =
            new.iter().filter(|(name, server)| changed(name, server)).map(|(name, _)| name.clone()).collect();
        let servers = Arc::clone(self);
        // By itself: the kernel waits for this, and is asked by that.
        self.host.spawn(async move {
            servers.announce().await;
            for name in begun.into_iter().filter(|name| !servers.pins.known(name).gathered) {
                let servers = Arc::clone(&servers);
                // Where nothing can be spawned any more, nobody is there who would be offered anything.
                let _ = servers.host.clone().spawn(async move { servers.keep(&name).await });
            }
        })
    }

    /// Begins in the background with those whose tools are not known, and with those that are to be kept running.
    pub fn begin(self: &Arc<Self>) -> Result<(), Fault> {
        for (name, server) in &self.settings().servers {
            let known = self.pins.known(name);
            if catalog::is_used(server, &known) && (server.preconnect || !known.gathered) {
                let (servers, name) = (Arc::clone(self), name.clone());
                self.host.spawn(async move { servers.keep(&name).await })?;
            } else if server.enabled && known.definition != server.definition() {
                self.host.warn(format!(
                    "the MCP server `{name}` waits for you: its command, arguments or address changed"
                ));
            }
        }
        Ok(())
    }

    /// Tries a server until it has told its tools; keeps it running where it is to be.
    async fn keep(self: &Arc<Self>, name: &str) {
        let keeps = self.settings().servers.get(name).is_some_and(|server| server.preconnect);
        let mut tries = 0;
        loop {
            let begun = async {
                let _place = self.starting.acquire().await.map_err(Fault::internal)?;
                if keeps {
                    self.connected(name, None).await.map(Some)
                } else {
                    self.refresh(name).await.map(|()| None)
                }
            };
            match begun.await {
                Ok(None) => return,
                Ok(Some((_lease, connection))) => {
                    tries = 0;
                    if self.gather_skills(name, &connection).await.is_err() {
                        return;
                    }
                    while !connection.is_closed() {
                        if self.host.sleep(LOOK).await.is_err() {
                            return;
                        }
                    }
                    let fault =
                        Fault::new(FaultCode::Unavailable, format!("it ended{}", connection.tail.told()));
                    self.failed(name, &fault);
                }
                Err(fault) => {
                    tries += 1;
                    self.host.warn(&fault);
                    // Whoever signs in has it tried again.
                    if self.wants_sign_in(name) {
                        return;
                    }
                    if tries >= TRIES && !keeps {
                        self.host.warn(format!(
                            "the MCP server `{name}` is not tried any more until it is refreshed"
                        ));
                        return;
                    }
                }
            }
            let waits = self.live().get(name).and_then(|live| live.backoff.waits()).unwrap_or_default();
            if self.host.sleep(Duration::from_secs(waits)).await.is_err() {
                return;
            }
        }
    }

    /// Asks a server anew what it has.
    pub async fn refresh(self: &Arc<Self>, name: &str) -> Result<(), Fault> {
        let connection = self.open(name, false).await?;
        self.gather_skills(name, &connection).await
    }

    /// Whether a server wants to know who asks.
    pub fn wants_sign_in(&self, name: &str) -> bool {
        self.live().get(name).is_some_and(|live| live.wants_sign_in)
    }

    /// Begins with a server anew, since somebody signed in to it or out of it.
    pub async fn begin_anew(self: &Arc<Self>, name: &str) -> Result<(), Fault> {
        self.instances.end(name);
        self.forgive(name);
        match self.settings().servers.get(name) {
            Some(server) if server.preconnect => {
                let (servers, name) = (Arc::clone(self), name.to_owned());
                self.host.spawn(async move { servers.keep(&name).await })
            }
            Some(server) if server.enabled => self.refresh(name).await,
            _ => Ok(()),
        }
    }

    /// Counts a server as one that works, so that it is tried at once.
    pub fn forgive(&self, name: &str) {
        if let Some(live) = self.live().get_mut(name) {
            live.backoff.works();
            live.error = None;
            live.wants_sign_in = false;
        }
    }

    /// The server of a name, where it may be used.
    pub fn used(&self, name: &str) -> Result<ServerSettings, Fault> {
        let server = self.settings().servers.get(name).filter(|server| server.enabled).cloned();
        let server = server.ok_or_else(|| self.missing(name))?;
        if self.pins.known(name).definition != server.definition() {
            let message =
                format!("the command, the arguments or the address of the MCP server `{name}` changed");
            return Err(Fault::denied(message).help("the operator approves it first"));
        }
        Ok(server)
    }

    /// Whether a tool may be called.
    pub fn check(&self, name: &str, server: &ServerSettings, tool: &str) -> Result<(), Fault> {
        let known = self.pins.known(name);
        if known.stands(tool) && server.tools.admits(tool) {
            return Ok(());
        }
        Err(match known.seen.get(tool) {
            Some(_) if !server.tools.admits(tool) => {
                Fault::denied(format!("the tool `{tool}` of `{name}` is not allowed"))
            }
            Some(_) => {
                let message =
                    format!("the MCP server `{name}` describes its tool `{tool}` in another way than before");
                Fault::denied(message).help("the operator looks at it and approves it first")
            }
            None => Fault::not_found(format!("the MCP server `{name}` has no tool `{tool}` any more")),
        })
    }

    /// The instance for a conversation, begun with where there is none.
    pub async fn connected(
        self: &Arc<Self>,
        name: &str,
        session: Option<&SessionId>,
    ) -> Result<(Lease, Arc<Connection>), Fault> {
        let server = self.used(name)?;
        let key = (name.to_owned(), session.filter(|_| !server.share).cloned());
        let idle = (!server.preconnect).then(|| self.settings().idle());
        let lease = self.instances.take(&self.host, key, self.settings().instances, idle)?;
        let connection = lease.connection(|| self.open(name, true)).await?;
        Ok((lease, connection))
    }

    /// Begins with a server, and learns what it says of itself before anybody uses it.
    async fn open(self: &Arc<Self>, name: &str, listens: bool) -> Result<Arc<Connection>, Fault> {
        let server = self.used(name)?;
        self.wait(name).await?;
        let known = self.pins.known(name);
        let changed = self.listener(name, listens);
        let begun = async {
            let connection = connect(
                &self.host,
                &self.settings(),
                name,
                &server,
                self.may_sign_in(name, &server),
                known.initialize,
                changed,
            )
            .await?;
            let told = within(&self.host, self.settings().start(), connection.tell()).await?;
            let told = told.unwrap_or_else(|| {
                let message = format!("did not tell its tools in {} s", self.settings().start().as_secs());
                Err(Fault::new(FaultCode::Timeout, message))
            });
            let told = told.map_err(|fault| {
                let message = format!("the MCP server `{name}` is of no use: {}", fault.message);
                Fault { message, ..fault }
            })?;
            Ok((connection, told))
        };
        let (connection, told) = begun.await.inspect_err(|fault| self.failed(name, fault))?;
        {
            let mut live = self.live();
            let live = live.entry(name.to_owned()).or_default();
            live.error = None;
            live.wants_sign_in = false;
            live.version = Some(connection.version.clone());
        }
        let is_new = {
            let mut state = self.pins.state();
            let known = state.servers.entry(name.to_owned()).or_default();
            let before = known.clone();
            known.learn(told);
            known.initialize = connection.initialize;
            *known != before
        };
        if is_new {
            self.announce().await;
        }
        Ok(Arc::new(connection))
    }

    /// What its requests are signed with: a token that the operator gives goes before.
    fn may_sign_in(&self, name: &str, server: &ServerSettings) -> Option<Signed> {
        let can = server.url.is_some() && !server.has_authorization();
        can.then(|| Signed {
            signins: Arc::clone(&self.signins),
            name: name.to_owned(),
            server: server.clone(),
        })
    }

    /// Hears that the tools of a server are others now. It is then asked by a new connection, as when the operator asks; one that
    /// says so without end is asked once at a time. What that connection says is not heard: some say so whenever they begin.
    fn listener(self: &Arc<Self>, name: &str, listens: bool) -> Arc<dyn Fn() + Send + Sync> {
        let (servers, name, asks) = (Arc::downgrade(self), name.to_owned(), Arc::<AtomicBool>::default());
        Arc::new(move || {
            let Some(servers) = servers.upgrade().filter(|_| listens && !asks.swap(true, Ordering::AcqRel))
            else {
                return;
            };
            let (host, name, asks) = (servers.host.clone(), name.clone(), Arc::clone(&asks));
            // Boxed, since a connection is made within what a connection heard.
            let asking: BoxFuture<'static, ()> = Box::pin(async move {
                let waited = servers.host.sleep(SETTLES).await;
                asks.store(false, Ordering::Release);
                let Ok(_place) = servers.starting.acquire().await else { return };
                if waited.is_ok()
                    && let Err(fault) = servers.refresh(&name).await
                {
                    servers.host.warn(&fault);
                }
            });
            // Where the runtime is gone, so is the server.
            let _ = host.spawn(asking);
        })
    }

    /// Writes down what is known, and offers what may be offered.
    pub async fn announce(&self) {
        if let Err(fault) = self.offer.announce(&self.host, &self.settings(), &self.pins).await {
            self.host.error(format!("the tools of MCP servers cannot be offered: {fault}"));
        }
    }

    /// Waits where a server has just failed; a fault where that would take long.
    async fn wait(&self, name: &str) -> Result<(), Fault> {
        let waits = self
            .live()
            .get(name)
            .and_then(|live| Some((live.backoff.waits()?, live.backoff.failures(), live.error.clone())));
        let Some((seconds, failures, error)) = waits else { return Ok(()) };
        if seconds <= SHORT {
            return self.host.sleep(Duration::from_secs(seconds)).await;
        }
        let message = format!(
            "the MCP server `{name}` failed {failures} times in a row and is left alone for {seconds} s: {}",
            error.unwrap_or_default()
        );
        Err(Fault::new(FaultCode::Unavailable, message))
    }

    fn failed(self: &Arc<Self>, name: &str, fault: &Fault) {
        let wait = {
            let mut live = self.live();
            let live = live.entry(name.to_owned()).or_default();
            live.error = Some(fault.message.clone());
            live.wants_sign_in = is_refused(fault);
            // It works, and is asked again when somebody has signed in.
            if live.wants_sign_in { None } else { live.backoff.failed() }
        };
        let Some(wait) = wait else { return };
        let (servers, name) = (Arc::clone(self), name.to_owned());
        // Where nothing can be spawned any more, nobody comes who would be kept waiting.
        let _ = self.host.spawn(async move {
            if servers.host.sleep(wait.time).await.is_ok()
                && let Some(live) = servers.live().get_mut(&name)
            {
                live.backoff.passed(wait.generation);
            }
        });
    }

    /// Asks something of a server, within its time. `once` says that it must not happen twice.
    pub async fn ask<T>(
        self: &Arc<Self>,
        name: &str,
        (lease, connection): &(Lease, Arc<Connection>),
        once: bool,
        work: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, Fault> {
        let time = self.settings().servers.get(name).map(ServerSettings::timeout).unwrap_or_default();
        match within_asked(&self.host, time, &connection.asking, work).await? {
            Some(Ok(answer)) => {
                lease.answered();
                self.forgive(name);
                Ok(answer)
            }
            Some(Err(error @ ServiceError::McpError(_))) => {
                lease.answered();
                self.forgive(name);
                Err(connection.fault(&error))
            }
            Some(Err(error)) if is_lacking(&error) => {
                lease.answered();
                self.forgive(name);
                Err(connection.fault(&error))
            }
            Some(Err(error)) if error.is_authorization_required() => {
                let fault = connection.fault(&error);
                lease.end().await;
                self.failed(name, &fault);
                Err(fault)
            }
            Some(Err(error)) => {
                let fault = connection.fault(&error);
                lease.end().await;
                self.failed(name, &fault);
                Err(match once {
                    true => {
                        let message = format!(
                            "the MCP server `{name}` broke off, so that the call may have happened or not: {}",
                            fault.message
                        );
                        Fault::new(FaultCode::OutcomeUnknown, message)
                    }
                    false => Fault {
                        message: format!("the MCP server `{name}` broke off: {}", fault.message),
                        ..fault
                    },
                })
            }
            None => {
                let message = format!(
                    "the MCP server `{name}` gave no answer in {} s{}",
                    time.as_secs(),
                    connection.tail.told()
                );
                let fault = Fault { retriable: !once, ..Fault::new(FaultCode::Timeout, message) };
                if lease.late() >= LATE {
                    lease.end().await;
                    self.failed(name, &fault);
                }
                Err(fault)
            }
        }
    }
}

/// Whether a server answered that it wants to know who asks.
fn is_refused(fault: &Fault) -> bool {
    fault.code == FaultCode::Unauthenticated
}
