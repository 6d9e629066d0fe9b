//! The extensions of a kernel: what is there, what became of each, and how they are wired.
//!
//! [`Roster`] is the handle: who wants to know what there is, or to change it, takes that. It knows neither turns nor
//! doors. What an extension may ask of the kernel is given to it as a table that somebody above makes.

mod records;
pub mod survey;

mod initialize;
pub mod lifecycle;
pub mod load;
pub mod rollback;
mod service;

mod wire;

pub mod change;
mod follow;
pub mod generations;
pub mod recovery;
mod restart;
pub mod servers;

use std::sync::Arc;

use drupe_agent::one_line;
use drupe_bus::{Bus, Deliveries};
use drupe_config::Manifest;
use drupe_extension_abi::HostBox;
use drupe_extension_api::{AgentId, Fault};
use drupe_folders::{content::Contents, discovery::Layout, generation::Generations, held::Held};
use drupe_gate::survey::Eyes;
pub use drupe_gate::{order::Key, state};
use drupe_handles::Holder;
use drupe_host::Instance;
use drupe_journal::Store;
use drupe_link::Up;
use drupe_wiring::{AgentEntry, NOTICE, Snapshot};
pub use records::{Extensions, Record};
use tokio::sync::Mutex;
pub use wire::Wired;

use crate::{base::Base, life::Life, supervision::Supervision};

/// What an extension calls, made for each of them when it is loaded.
pub type MakeTable = Box<dyn Fn(Arc<Manifest>, Holder) -> HostBox + Send + Sync>;

/// What is there, and wired.
pub struct Roster {
    pub base: Arc<Base>,
    pub life: Life,
    pub supervision: Arc<Supervision>,
    pub store: Store,
    pub bus: Arc<Bus>,
    /// Messages of topics on their way to agents and extensions.
    pub topics: Deliveries,
    /// The folders that were found, and what became of each.
    pub extensions: Extensions,
    pub wired: Arc<Wired>,
    /// What the extension for MCP servers knows of those of agents.
    pub servers: servers::ToldServers,
    pub disk: Disk,
    pub table: MakeTable,
    /// One change of the extensions at a time.
    pub changing: Mutex<()>,
}

/// What is known of folders.
pub struct Disk {
    /// Where extensions are looked for, and whose they are.
    pub layout: Layout,
    /// Hashes of the extensions' files.
    pub contents: Contents,
    /// Sets of extensions that worked.
    pub generations: Generations,
    /// Where the contents lie that are quarantined.
    pub held: Held,
}

impl Disk {
    /// Of this home.
    pub fn of(base: &Base) -> Self {
        let home = &base.home;
        Self {
            layout: Layout::new(&base.start.exe, home.root(), &base.config.extensions.paths),
            contents: Contents::open(home.contents()),
            generations: Generations::new(home.generations()),
            held: Held::open(home.held()),
        }
    }
}

impl Roster {
    /// What is wired now. Whoever begins something keeps it to the end.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.wired.snapshot()
    }

    /// What runs of the code of an extension that works: none of one that has no code. None at all where it does not work.
    pub fn working(&self, id: &str) -> Option<Option<Arc<Instance>>> {
        let works = |r: &Record| {
            (r.found.name == id && r.state == state::State::Active).then(|| r.instance().cloned())
        };
        self.extensions.read(works).into_iter().flatten().next()
    }

    /// What extensions are looked at with.
    pub fn eyes(&self) -> Eyes<'_> {
        let Disk { contents, layout, .. } = &self.disk;
        Eyes { contents, layout, home: self.base.home.root(), config: &self.base.config }
    }

    /// The agent that somebody named, or why it is not there.
    pub fn agent<'a>(&self, snapshot: &'a Snapshot, id: &AgentId) -> Result<&'a AgentEntry, Fault> {
        self.base.offered(id)?;
        snapshot.agent(id).map_err(|fault| self.extensions.why_not(id).unwrap_or(fault))
    }

    /// Why what an extension set off and nobody has begun with is not answered: it was turned off, quarantined or removed.
    /// One that fails, waits, or is left out by this start alone comes back.
    pub fn gone(&self, extension: &str) -> Option<String> {
        self.base.takes_all().then(|| self.extensions.gone(extension)).flatten()
    }

    /// What tells the supervisor that this kernel serves; with the name of its set of extensions once that is kept.
    pub fn ready_frame(&self, extensions: Option<String>) -> Up {
        let snapshot = self.snapshot();
        Up::Ready {
            drain_timeout_ms: u64::try_from(self.base.config.drain_timeout.as_millis()).unwrap_or(u64::MAX),
            config: self.base.config_text.clone(),
            model: Some(snapshot.orchestrator.model().profile().name.clone()),
            notices: snapshot.notices.clone(),
            extensions,
            config_refused: self.supervision.refused().map(|why| one_line(&why, NOTICE)),
        }
    }
}

#[cfg(test)]
pub mod tests;
