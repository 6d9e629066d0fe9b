//! What is known of the servers over restarts: what each said of itself when it was seen first or when the operator approved it,
//! and what it said last. Only what is the same in both is offered.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::prelude::*;
use serde::Serialize;

use crate::{config::ServerSettings, definition::ToolText, names};

/// What is known of one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownServer {
    /// The hash of its command, arguments and address that is agreed to.
    pub definition: String,
    /// It has told its tools at least once.
    pub gathered: bool,
    /// It is begun with `initialize`, as it did not answer the probe of the newer revision.
    pub initialize: bool,
    pub resources: bool,
    pub prompts: bool,
    /// Its tools as they are agreed to.
    pub agreed: BTreeMap<String, ToolText>,
    /// Its tools as it told them last.
    pub seen: BTreeMap<String, ToolText>,
    /// Tools that cannot be offered, and why.
    pub unfit: BTreeMap<String, String>,
    /// Tools that are offered as they were told first, and at which the operator has not looked.
    pub unread: BTreeSet<String>,
}

impl KnownServer {
    /// Takes in what the server says now. Its tools are offered where it says so for the first time.
    pub fn learn(&mut self, told: Told) {
        if !self.gathered {
            self.agreed.clone_from(&told.tools);
            self.unread = told.tools.keys().cloned().collect();
            self.gathered = true;
        }
        self.seen = told.tools;
        self.unfit = told.unfit;
        (self.resources, self.prompts) = (told.resources, told.prompts);
    }

    /// Whether a tool may be offered and called: it is there, and as it was agreed to.
    pub fn stands(&self, tool: &str) -> bool {
        self.seen.get(tool).is_some_and(|seen| self.agreed.get(tool) == Some(seen))
    }

    /// The operator has looked at what a tool says of itself, and agrees to it.
    pub fn agree(&mut self, tool: &str) {
        self.unread.remove(tool);
        if let Some(seen) = self.seen.get(tool).cloned() {
            self.agreed.insert(tool.to_owned(), seen);
        }
    }

    /// Tools that are offered and at which the operator has not looked.
    pub fn unread(&self) -> impl Iterator<Item = (&String, &ToolText)> {
        self.agreed.iter().filter(|(tool, _)| self.unread.contains(*tool) && self.stands(tool))
    }

    /// Tools that wait for the operator, with what was agreed to, where anything was.
    pub fn waiting(&self) -> impl Iterator<Item = (&String, &ToolText, Option<&ToolText>)> {
        let waits = self.seen.iter().filter(|(tool, _)| !self.stands(tool));
        waits.map(|(tool, seen)| (tool, seen, self.agreed.get(tool)))
    }
}

/// What a server said of itself.
#[derive(Debug, Default)]
pub struct Told {
    pub tools: BTreeMap<String, ToolText>,
    pub unfit: BTreeMap<String, String>,
    pub resources: bool,
    pub prompts: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownServers {
    pub servers: BTreeMap<String, KnownServer>,
    /// Names that the kernel did not take, and why, so that a start does not fail by them.
    pub refused: BTreeMap<String, String>,
}

/// The state, in memory and in a file that is replaced as a whole.
#[derive(Debug)]
pub struct Pins {
    file: PathBuf,
    state: Mutex<KnownServers>,
    /// One writer at a time: an older state must not replace a newer one.
    writing: Mutex<()>,
}

impl Pins {
    /// Reads the file. One that cannot be read is a fault: to begin anew would agree to whatever the servers say now.
    pub fn open(folder: &Path) -> Result<Self, Fault> {
        let file = folder.join("servers.json");
        let state = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Fault::invalid(format!("`{}` cannot be read: {error}", file.display())).help(
                    "it says which tools you agreed to; when it is gone, all that the servers say is agreed to again",
                )
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => KnownServers::default(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { file, state: Mutex::new(state), writing: Mutex::new(()) })
    }

    pub fn state(&self) -> MutexGuard<'_, KnownServers> {
        // Each change under the lock is one assignment, so that a panic leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a server; nothing of one that is new.
    pub fn known(&self, server: &str) -> KnownServer {
        self.state().servers.get(server).cloned().unwrap_or_default()
    }

    /// Notes whom the operator named where nobody was known by that name, and forgets refusals of names whose server is gone.
    pub fn begin(&self, servers: &BTreeMap<String, ServerSettings>) {
        let mut state = self.state();
        for (name, server) in servers {
            let known = state.servers.entry(name.clone()).or_default();
            let definition = server.definition();
            // What an agent names was agreed to with its manifest, as often as that changed.
            if known.definition.is_empty() || server.only_for.is_some() && known.definition != definition {
                *known = KnownServer { definition, ..KnownServer::default() };
            }
        }
        let names: BTreeSet<String> = servers.keys().map(|name| names::prefix(name)).collect();
        // What was refused of an agent's server is found again when its agent names it.
        state.refused.retain(|refused, _| names.iter().any(|name| refused.starts_with(name)));
    }

    /// Writes the state down. It blocks.
    pub fn save(&self) -> Result<(), Fault> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let text = serde_json::to_vec(&*self.state())?;
        let new = self.file.with_extension("new");
        let mut file = fs::File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        Ok(())
    }
}
