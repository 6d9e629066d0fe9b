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

use crate::{
    config::ServerSettings,
    definition::ToolText,
    names,
    skills::{SKILLS, SkillList, SkillText},
};

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
    pub skills: KnownSkills,
}

/// What is known of the skills of a server, by their addresses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownSkills {
    /// It says that it has some.
    pub declared: bool,
    /// It was just seen for the first time and has listed none yet: what it lists next is what it says first.
    pub awaited: bool,
    pub agreed: BTreeMap<String, SkillText>,
    pub seen: BTreeMap<String, SkillText>,
    /// Those of `seen` that it does not list, but told when it was asked for them by their addresses.
    pub unlisted: BTreeSet<String>,
    /// Those that cannot be loaded, and why.
    pub unfit: BTreeMap<String, String>,
    /// Those that are offered as they were told first, and at which the operator has not looked.
    pub unread: BTreeSet<String>,
    /// Why it could not list them when it was asked last.
    pub error: Option<String>,
}

impl KnownServer {
    /// Takes in what the server says now. Its tools are offered where it says so for the first time.
    pub fn learn(&mut self, told: Told) {
        if !self.gathered {
            self.agreed.clone_from(&told.tools);
            self.unread = told.tools.keys().cloned().collect();
            self.gathered = true;
            self.skills.awaited = told.skills;
        }
        self.skills.declared = told.skills;
        self.seen = told.tools;
        self.unfit = told.unfit;
        (self.resources, self.prompts) = (told.resources, told.prompts);
    }

    /// Whether a tool may be offered and called: it is there, and as it was agreed to.
    pub fn stands(&self, tool: &str) -> bool {
        self.seen.get(tool).is_some_and(|seen| self.agreed.get(tool) == Some(seen))
    }

    /// The operator has looked at what a tool or a skill says of itself, and agrees to it. No tool has the address of a skill.
    pub fn agree(&mut self, what: &str) {
        self.unread.remove(what);
        if let Some(seen) = self.seen.get(what).cloned() {
            self.agreed.insert(what.to_owned(), seen);
        }
        self.skills.agree(what);
    }

    /// All that the operator may agree to: tools by their names and skills by their addresses, with what stands for each.
    pub fn open(&self, server: &ServerSettings) -> BTreeMap<String, String> {
        let tools = self.waiting().map(|(tool, new, _)| (tool, new)).chain(self.unread());
        let skills = self.skills.waiting().map(|(uri, new, _)| (uri, new)).chain(self.skills.unread());
        let tools = tools.map(|(tool, text)| (tool.clone(), text.digest()));
        let skills = skills.filter(|_| server.skills).map(|(uri, text)| (uri.clone(), text.digest.clone()));
        tools.chain(skills).collect()
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

impl KnownSkills {
    /// Takes in what the server lists now.
    pub fn learn(&mut self, list: SkillList) {
        if self.awaited {
            self.agreed.clone_from(&list.skills);
            self.unread = list.skills.keys().cloned().collect();
            self.awaited = false;
        }
        // A list need not name all that there are.
        self.unlisted.retain(|uri| !list.skills.contains_key(uri));
        self.seen.retain(|uri, _| self.unlisted.contains(uri));
        self.seen.extend(list.skills);
        self.unfit = list.unfit;
        self.error = None;
    }

    /// Takes in what it says of one skill. Of those that it does not list, so many are kept and no more.
    pub fn learn_one(&mut self, uri: &str, text: &SkillText) {
        if !self.seen.contains_key(uri) {
            if self.unlisted.len() >= SKILLS {
                let first = self.unlisted.iter().find(|uri| !self.agreed.contains_key(*uri)).cloned();
                let Some(first) = first else { return };
                self.unlisted.remove(&first);
                self.seen.remove(&first);
            }
            self.unlisted.insert(uri.to_owned());
        }
        self.seen.insert(uri.to_owned(), text.clone());
    }

    /// Whether one may be loaded: it is there, and as it was agreed to.
    pub fn stands(&self, uri: &str) -> bool {
        self.seen.get(uri).is_some_and(|seen| self.agreed.get(uri) == Some(seen))
    }

    /// Those that a model is told of.
    pub fn offered(&self) -> impl Iterator<Item = (&String, &SkillText)> {
        self.seen.iter().filter(|(uri, _)| self.stands(uri) && !self.unlisted.contains(*uri))
    }

    /// Those that are offered and at which the operator has not looked.
    pub fn unread(&self) -> impl Iterator<Item = (&String, &SkillText)> {
        self.seen.iter().filter(|(uri, _)| self.unread.contains(*uri) && self.stands(uri))
    }

    /// Those that wait for the operator, with what was agreed to, where anything was.
    pub fn waiting(&self) -> impl Iterator<Item = (&String, &SkillText, Option<&SkillText>)> {
        let waits = self.seen.iter().filter(|(uri, _)| !self.stands(uri));
        waits.map(|(uri, seen)| (uri, seen, self.agreed.get(uri)))
    }

    fn agree(&mut self, uri: &str) {
        self.unread.remove(uri);
        if let Some(seen) = self.seen.get(uri).cloned() {
            self.agreed.insert(uri.to_owned(), seen);
        }
    }
}

/// What a server said of itself.
#[derive(Debug, Default)]
pub struct Told {
    pub tools: BTreeMap<String, ToolText>,
    pub unfit: BTreeMap<String, String>,
    pub resources: bool,
    pub prompts: bool,
    pub skills: bool,
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
