//! What the parts of a running kernel share.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use drupe_agent::{Clock, Run};
use drupe_config::{Config, Sources};
use drupe_extension_api::{
    AgentId, ExtensionId, Fault, FaultCode, SessionId,
    control::ExitRecord,
    wire::{Capability, Submit, Submitted},
};
use drupe_journal::{Inbound, InboundKind, RestartVerdict, Store, StoreError};
use drupe_models::Models;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    bus::Bus,
    ending::{Ending, Why},
    extension::{Extensions, handles::Handles, tokens::Tokens},
    sessions::Sessions,
    snapshot::Snapshot,
};

/// A running kernel.
pub struct Kernel {
    /// Its folders.
    pub home: Folders,
    /// Its configuration.
    pub config: Arc<Config>,
    /// Where the configuration came from.
    pub settings: Sources,
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
    /// Proofs of running calls.
    pub tokens: Arc<Tokens>,
    /// What extensions pull from.
    pub handles: Handles,
    /// The extensions and their states.
    pub extensions: Extensions,
    /// Turns that wait and run.
    pub sessions: Sessions,
    /// Whether and why it is to end.
    pub ending: Ending,
    /// Every task of the kernel.
    pub tasks: TaskTracker,
    /// Cancelled when what still runs is to end now.
    pub cancel: CancellationToken,
    pub(crate) snapshot: RwLock<Arc<Snapshot>>,
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
    /// The agents that surfaces may offer; none for all.
    pub agents: Option<Vec<AgentId>>,
    /// When it began, in milliseconds since 1970.
    pub began_ms: i64,
    /// The program.
    pub exe: PathBuf,
}

/// The folders of a home that the kernel uses.
#[derive(Debug, Clone)]
pub struct Folders {
    root: PathBuf,
    workspace: PathBuf,
}

impl Folders {
    /// The folders beneath a home.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), workspace: root.join("workspace") }
    }

    /// The home.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where operators and the builder put extensions.
    pub fn extensions(&self) -> PathBuf {
        self.root.join("extensions")
    }

    /// What one extension may write.
    pub fn data(&self, extension: &ExtensionId) -> PathBuf {
        self.root.join("data").join(extension.as_str())
    }

    /// The root of the file tools.
    pub fn workspace(&self) -> &PathBuf {
        &self.workspace
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal.db")
    }

    /// Copies of libraries, by the hash of their content.
    pub fn libraries(&self) -> PathBuf {
        self.root.join("run").join("libraries")
    }

    /// Verdicts about libraries.
    pub fn probes(&self) -> PathBuf {
        self.root.join("data").join(".probes.json")
    }
}

impl Kernel {
    /// What is wired now. Whoever begins something keeps it to the end.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_snapshot(&self, snapshot: Snapshot) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// Takes a message in. Once this returns it will be answered, whatever happens to this process.
    pub async fn submit(self: &Arc<Self>, submit: Submit) -> Result<Submitted, Fault> {
        if submit.text.trim().is_empty() {
            return Err(Fault::invalid("the message is empty"));
        }
        let snapshot = self.snapshot();
        if let Some(agent) = &submit.agent {
            self.offered(agent)?;
            snapshot.agent(agent)?;
        }
        if let Some(model) = &submit.model {
            self.models.resolve(std::slice::from_ref(model)).map_err(|e| Fault::invalid(e.to_string()))?;
        }
        let inbound = Inbound {
            channel: submit.channel,
            external_id: submit.external_id,
            session: submit.session,
            address: submit.address,
            text: submit.text,
            agent: submit.agent,
            model: submit.model,
            output: submit.output,
            time_budget_ms: submit.time_budget_ms,
            kind: InboundKind::User,
        };
        self.sessions.check_room()?;
        let accepted = self.store.accept(inbound).await.map_err(store_fault)?;
        if !accepted.duplicate {
            self.sessions.enqueue(self, &accepted.turn).await?;
        }
        Ok(Submitted { turn: accepted.turn, duplicate: accepted.duplicate })
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

    /// Shows a text to the user, in a session, or where the user was last.
    pub async fn notify(&self, session: Option<SessionId>, text: String) -> Result<(), Fault> {
        let session = match session {
            Some(session) => session,
            None => {
                let sessions = self.store.sessions().await.map_err(store_fault)?;
                let latest = sessions.into_iter().max_by_key(|s| s.updated);
                latest.map(|s| s.id).ok_or_else(|| Fault::not_found("there is no session to show it in"))?
            }
        };
        let body = drupe_extension_api::EventBody::Diagnostic { code: "notice".into(), message: text };
        self.store.record_events(session, None, vec![(None, body)]).await.map_err(store_fault)
    }

    /// Records that somebody wants a restart. It happens when the turn that asked, if one did, has ended. One that no
    /// person watches counts against the bound on such restarts.
    pub async fn request_restart(
        &self,
        reason: String,
        by: Option<&Run>,
        unattended: bool,
    ) -> Result<(), Fault> {
        let session = by.map(|run| run.scope.session.clone());
        let turn = by.map(|run| run.scope.turn.clone());
        let verdict = self.store.request_restart(reason.clone(), session, turn.clone(), unattended).await;
        match verdict.map_err(store_fault)? {
            RestartVerdict::Accepted => {
                self.ending.request(Why::Restart { reason }, turn);
                Ok(())
            }
            RestartVerdict::TooMany { count, window_ms } => {
                let message =
                    format!("{count} restarts were requested within {} minutes already", window_ms / 60_000);
                Err(Fault::new(FaultCode::Busy, message)
                    .help("the operator can restart with `drupe restart`"))
            }
        }
    }

    /// An extension's tools have changed: wires everything again.
    pub async fn rewire(self: &Arc<Self>, extension: &ExtensionId) -> Result<(), Fault> {
        self.extensions.describe_again(extension, Capability::Tool)?;
        crate::boot::wire_all(self).await
    }
}

/// A fault of the journal, as callers see it.
pub fn store_fault(error: StoreError) -> Fault {
    let mut fault = Fault::new(FaultCode::Unavailable, error.to_string());
    fault.retriable = !matches!(error, StoreError::Corrupt { .. });
    fault
}
