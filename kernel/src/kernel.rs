//! What the parts of a running kernel share.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Instant,
};

use drupe_agent::{Chain, Clock, Ratios, Run};
use drupe_bus::Bus;
use drupe_config::{Config, Sources};
use drupe_extension_api::{
    AgentId, ExtensionId, Fault, FaultCode, SessionId,
    control::ExitRecord,
    wire::{Submit, Submitted},
};
use drupe_folders::{content::Contents, discovery::Layout, generation::Generations, held::Held};
use drupe_gate::survey::Eyes;
use drupe_handles::Handles;
use drupe_host::home::Folders;
use drupe_journal::{Inbound, Origin, RestartVerdict, Store, StoreError};
use drupe_limits::{Gates, Quotas};
use drupe_link::{KernelLink, Up, Verdicts};
use drupe_models::{Models, NamedBy};
use drupe_policy::OnRequest;
use drupe_prompts::Day;
use drupe_surface::{grants::Grants, panics};
use drupe_wiring::{AgentEntry, Snapshot, live::Live, tokens::Tokens};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    beginning::{self, Refusal},
    channels::Deliveries,
    ending::{Ending, Why},
    ends::Ends,
    extension::Extensions,
    pace::Pace,
    sessions::Sessions,
};

/// The longest text that an extension may show by itself, in bytes: what is longer is an answer, or a file.
const LONGEST_NOTICE: usize = 4 * 1024;

/// The longest id, and the longest address, that a client has for a message, in bytes: they stand in each row of it.
const LONGEST_ID: usize = 1024;

/// A running kernel.
pub struct Kernel {
    /// Its folders.
    pub home: Folders,
    /// Its configuration.
    pub config: Arc<Config>,
    /// Where the operator's configuration comes from.
    pub settings: Sources,
    /// The text of the configuration file that is in force.
    pub config_text: String,
    /// How it was started.
    pub start: Start,
    /// What lasts.
    pub store: Store,
    /// The models.
    pub models: Models,
    /// What happens now.
    pub bus: Arc<Bus>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What the bearers of named tokens may do.
    pub grants: Grants,
    /// Proofs of running calls.
    pub tokens: Arc<Tokens>,
    /// What extensions pull from.
    pub handles: Handles,
    /// Where extensions are looked for, and whose they are.
    pub layout: Layout,
    /// The extensions and their states.
    pub extensions: Extensions,
    /// How often each may show something to the user.
    pub notices: Pace,
    /// How often each may have everything wired again.
    pub announcements: Pace,
    /// Turns that wait and run.
    pub sessions: Sessions,
    /// Whether and why it is to end.
    pub ending: Ending,
    /// Who waits for the end of a turn.
    pub ends: Arc<Ends>,
    /// Every task of the kernel.
    pub tasks: TaskTracker,
    /// What goes out to people.
    pub deliveries: Deliveries,
    /// Messages of topics on their way to agents and extensions.
    pub topics: drupe_bus::Deliveries,
    /// What days, sessions and agents may spend, and have spent.
    pub quotas: Arc<Quotas>,
    /// How much may run at once.
    pub gates: Arc<Gates>,
    /// Bytes of a token, by model.
    pub ratios: Arc<Ratios>,
    /// Decides about tool calls.
    pub policy: Arc<OnRequest>,
    /// Cancelled when turns that still run are to be left to the next kernel.
    pub cancel: CancellationToken,
    /// Cancelled when nothing more is served: after turns and extensions have ended.
    pub closing: CancellationToken,
    /// The instances that work now.
    pub live: Arc<Live>,
    /// Hashes of the extensions' files.
    pub contents: Contents,
    /// Sets of extensions that worked.
    pub generations: Generations,
    /// Where the contents lie that are quarantined.
    pub held: Held,
    /// One change of the extensions at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// One wiring at a time.
    pub(crate) wiring: tokio::sync::Mutex<()>,
    pub(crate) verdicts: RwLock<Verdicts>,
    pub(crate) link: Arc<KernelLink>,
    pub(crate) snapshot: RwLock<Arc<Snapshot>>,
    /// Why what the operator has written is not in force, where it was found to be refused.
    pub(crate) refused: Mutex<Option<String>>,
}

/// How this kernel was started.
#[derive(Debug, Clone)]
pub struct Start {
    /// Number of the start in this home.
    pub generation: u64,
    /// Whether third-party extensions are left out.
    pub safe_mode: bool,
    /// Process of the supervisor.
    pub supervisor_pid: u32,
    /// Restarts since the supervisor began.
    pub restarts: u32,
    /// The last exits, newest first.
    pub exits: Vec<ExitRecord>,
    /// Remarks for the operator.
    pub notices: Vec<String>,
    /// Whether its configuration is the last good one, since the operator's was refused.
    pub last_good: bool,
    /// The set of extensions to return to.
    pub fallback: Option<String>,
    /// The agents that surfaces may offer; none for all.
    pub agents: Option<Vec<AgentId>>,
    /// When it began, in milliseconds since 1970.
    pub began_ms: i64,
    /// The program.
    pub exe: PathBuf,
}

impl Kernel {
    /// What is wired now. Whoever begins something keeps it to the end.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_snapshot(&self, snapshot: Snapshot) {
        let mut current = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, Arc::new(snapshot));
        drop(current);
        // It may hold the last reference to an instance, whose end is the extension's own code.
        drop(old);
    }

    /// What the supervisor knows of extensions that crash.
    pub fn verdicts(&self) -> Verdicts {
        self.verdicts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over what the supervisor knows now.
    pub fn set_verdicts(&self, verdicts: Verdicts) {
        *self.verdicts.write().unwrap_or_else(PoisonError::into_inner) = verdicts;
    }

    /// An extension is given another chance.
    pub fn forgive(&self, extension: &str) {
        let mut verdicts = self.verdicts.write().unwrap_or_else(PoisonError::into_inner);
        verdicts.quarantined.retain(|q| q.extension != extension);
        drop(verdicts);
        let reason = "the operator released it".to_owned();
        self.tell_supervisor(&Up::Released { extension: extension.to_owned(), reason });
    }

    /// Sends a frame without waiting. The supervisor reads all the time; one that it does not take is lost, and said.
    pub fn tell_supervisor(&self, frame: &Up) {
        if let Err(error) = self.link.try_send(frame) {
            tracing::warn!(%error, "a frame was not sent to the supervisor");
        }
    }

    /// What tells the supervisor that this kernel serves; with the name of its set of extensions once that is kept.
    pub fn ready_frame(&self, extensions: Option<String>) -> Up {
        let snapshot = self.snapshot();
        Up::Ready {
            drain_timeout_ms: u64::try_from(self.config.drain_timeout.as_millis()).unwrap_or(u64::MAX),
            config: self.config_text.clone(),
            model: Some(snapshot.orchestrator.model().profile().name.clone()),
            notices: snapshot.notices.clone(),
            extensions,
        }
    }

    /// Begins what goes on as long as this kernel.
    pub(crate) fn keep_up<F>(
        self: &Arc<Self>,
        what: &'static str,
        begin: impl Fn(Arc<Self>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let kernel = Arc::clone(self);
        self.tasks.spawn(panics::lasting(what, move || begin(Arc::clone(&kernel))));
    }

    /// Does something that must not be left half done when whoever asked goes away.
    pub async fn whole<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        self.tasks.spawn(work).await.unwrap_or_else(|error| Err(Fault::internal(error)))
    }

    /// Takes a message in. Once this returns it will be answered, whatever happens to this process.
    /// `chain` is what set it off through events.
    pub async fn submit(
        self: &Arc<Self>,
        origin: Origin,
        submit: Submit,
        chain: Chain,
    ) -> Result<Submitted, Fault> {
        if submit.text.trim().is_empty() {
            return Err(Fault::invalid("the message is empty"));
        }
        let address = submit.address.as_deref().unwrap_or_default();
        for (what, given) in [("external_id", submit.external_id.as_str()), ("address", address)] {
            if given.len() > LONGEST_ID {
                let message = format!("`{what}` has {} bytes; it may have {LONGEST_ID}", given.len());
                return Err(Fault::invalid(message));
            }
        }
        if let Some(why) = submit.output.as_ref().and_then(drupe_wiring::bounds::answer_fault) {
            return Err(Fault::invalid(why));
        }
        let snapshot = self.snapshot();
        if let Some(agent) = &submit.agent {
            self.agent(&snapshot, agent)?;
        }
        if let Some(model) = &submit.model {
            // The bearer of a token is no operator: it names no file and no endpoint.
            let by = match origin {
                Origin::Client { token: None } => NamedBy::Operator,
                _ => NamedBy::Extension,
            };
            self.models
                .resolve(by, std::slice::from_ref(model))
                .map_err(|e| Fault::invalid(e.to_string()))?;
        }
        let ask = Submit { queue: Some(submit.queue.unwrap_or(self.config.inbox.queue)), ..submit };
        self.take_in(Inbound { ask, origin, chain, correlation: None }).await
    }

    /// Records a message and queues its turn, both or neither.
    pub(crate) async fn take_in(self: &Arc<Self>, inbound: Inbound) -> Result<Submitted, Fault> {
        let coming = self.sessions.check_room(&inbound.origin)?;
        let kernel = Arc::clone(self);
        self.whole(async move {
            let session = inbound.ask.session.clone();
            let accepted = kernel.store.accept(inbound).await.map_err(store_fault)?;
            kernel.sessions.interrupt(&session, &accepted.superseded);
            // A duplicate, too: its first sender may have gone before it was queued.
            if let Some(queued) = accepted.queued {
                kernel.sessions.push(&kernel, queued);
            }
            drop(coming);
            Ok(Submitted { turn: accepted.turn, duplicate: accepted.duplicate })
        })
        .await
    }

    /// Why what an extension set off and nobody has begun with is not answered: it was turned off, quarantined or removed.
    /// One that fails, waits, or is left out by this start alone comes back.
    pub fn gone(&self, extension: &str) -> Option<String> {
        let whole = !self.start.safe_mode && self.start.fallback.is_none();
        whole.then(|| self.extensions.gone(extension)).flatten()
    }

    /// Refuses an agent that `--agent` does not let surfaces offer.
    pub fn offered(&self, agent: &AgentId) -> Result<(), Fault> {
        match &self.start.agents {
            Some(offered) if !offered.contains(agent) => {
                Err(Fault::not_found(format!("agent `{agent}` is not offered by this daemon"))
                    .help("it was started with `--agent`"))
            }
            _ => Ok(()),
        }
    }

    /// What extensions are looked at with.
    pub fn eyes(&self) -> Eyes<'_> {
        let Self { contents, layout, home, config, .. } = self;
        Eyes { contents, layout, home: home.root(), config }
    }

    /// The day that stands in prompts.
    pub fn day(&self) -> Day {
        Day::of(self.clock.now_ms())
    }

    /// The agent that somebody named, or why it is not there.
    pub fn agent<'a>(&self, snapshot: &'a Snapshot, id: &AgentId) -> Result<&'a AgentEntry, Fault> {
        self.offered(id)?;
        snapshot.agent(id).map_err(|fault| self.extensions.why_not(id).unwrap_or(fault))
    }

    /// Shows a text of an extension to the user, under its name: in a session of its own, in one in which it was called,
    /// or where the user was last.
    pub async fn notify(
        &self,
        by: &ExtensionId,
        session: Option<SessionId>,
        text: String,
    ) -> Result<(), Fault> {
        if text.len() > LONGEST_NOTICE {
            let message = format!("a notice has at most {LONGEST_NOTICE} bytes, and this one {}", text.len());
            return Err(Fault::invalid(message).help("say less, and where the rest is"));
        }
        let session = match session {
            Some(session) => {
                let own =
                    session.as_str().strip_prefix(by.as_str()).is_some_and(|rest| rest.starts_with(':'));
                if !own && !self.tokens.was_called_in(by, &session) {
                    let message = format!("extension `{by}` was not called in session `{session}`");
                    return Err(Fault::denied(message).help("leave the session out"));
                }
                session
            }
            None => {
                let sessions = self.store.sessions().await.map_err(store_fault)?;
                let latest = sessions.into_iter().max_by_key(|s| s.updated);
                latest.map(|s| s.id).ok_or_else(|| Fault::not_found("there is no session to show it in"))?
            }
        };
        self.notices.take(by, Instant::now())?;
        if self.store.notice(session, format!("`{by}`: {text}")).await.map_err(store_fault)? {
            self.deliveries.wake();
        }
        Ok(())
    }

    /// Why what the operator has written is not in force, where it was found to be refused.
    pub fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks whether a kernel could begin with what the operator has written; why not, if it could not.
    async fn look_at_settings(self: &Arc<Self>) -> Result<Option<Refusal>, Fault> {
        let kernel = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || {
            beginning::refusal(&kernel.settings, kernel.day(), &kernel.extensions.parts())
        });
        let refusal = looked.await.map_err(Fault::internal)?;
        let first = refusal.as_ref().map(|refusal| refusal.first.clone());
        self.set_refused(first);
        Ok(refusal)
    }

    pub(crate) fn set_refused(&self, why: Option<String>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Records that somebody wants a restart. It happens when the turn that asked, if one did, has ended. Refused where
    /// the next kernel could not begin with its configuration; one that no person watches counts against the bound on
    /// such restarts.
    pub async fn request_restart(
        self: &Arc<Self>,
        reason: String,
        by: Option<&Run>,
        unattended: bool,
    ) -> Result<(), Fault> {
        if let Some(refusal) = self.look_at_settings().await? {
            let message =
                format!("the configuration has faults, so the running kernel stays:\n{}", refusal.whole);
            return Err(Fault::new(FaultCode::NotConfigured, message).help("correct it, then restart again"));
        }
        let session = by.map(|run| run.scope.session.clone());
        let turn = by.map(|run| run.scope.turn.clone());
        let kernel = Arc::clone(self);
        self.whole(async move {
            let verdict =
                kernel.store.request_restart(reason.clone(), session, turn.clone(), unattended).await;
            match verdict.map_err(store_fault)? {
                RestartVerdict::Accepted => {
                    // A turn that has ended meanwhile is not waited for.
                    let after = turn.filter(|turn| kernel.sessions.has(turn));
                    kernel.ending.request(Why::Restart { reason }, after);
                    Ok(())
                }
                RestartVerdict::TooMany { count, window_ms } => {
                    let minutes = window_ms / 60_000;
                    let message = format!("{count} restarts were requested within {minutes} minutes already");
                    Err(Fault::new(FaultCode::Busy, message)
                        .help("the operator can restart with `drupe restart`"))
                }
            }
        })
        .await
    }
}

/// A fault of the journal, as callers see it.
pub fn store_fault(error: StoreError) -> Fault {
    let code = match &error {
        StoreError::Withdrawn { .. }
        | StoreError::AmbiguousApproval(_)
        | StoreError::AmbiguousQuestion(_)
        | StoreError::NotAsShown(_)
        | StoreError::Settled { .. } => FaultCode::Invalid,
        _ => FaultCode::Unavailable,
    };
    let mut fault = Fault::new(code, error.to_string());
    let for_good = matches!(
        error,
        StoreError::Corrupt(_)
            | StoreError::Newer { .. }
            | StoreError::UnsafeSqlite(_)
            | StoreError::Record(_)
            | StoreError::Database(_)
    );
    fault.retriable &= !for_good;
    fault
}
