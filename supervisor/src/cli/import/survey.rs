//! What there is at the places of other assistants, as a plan.

use std::path::{Path, PathBuf};

use drupe_config::Config;
use drupe_extension_api::ExtensionId;
use serde_json::{Map, Value, json};

use super::{
    adopt::{self, TakenAgent},
    forms,
    gather::{Beneath, NotImported},
    places::{AgentForm, Chosen, ForeignPlace, Holds},
    plan::{ImportKind, ImportState, ImportWork, PlannedItem},
    servers::{self, Written},
    skills, staged,
};
use crate::cli::{Context, failure::Failure};

/// What is imported at a time.
const MOST_ITEMS: usize = 512;

/// Looks at all places of a folder.
pub struct Survey<'a> {
    beneath: Beneath<'a>,
    config: &'a Config,
    context: &'a Context,
    file: PathBuf,
    /// Where the servers stand; why it cannot be read, else.
    written: Result<Written, NotImported>,
    items: Vec<PlannedItem>,
    /// Agents, each with its place in the list.
    agents: Vec<(usize, TakenAgent)>,
    pub remarks: Vec<String>,
}

impl<'a> Survey<'a> {
    pub fn new(chosen: &'a Chosen, config: &'a Config, context: &'a Context) -> Self {
        let file = context.config.clone().unwrap_or_else(|| context.home().path().join("drupe.yaml"));
        let written = Written::read(&file);
        let (items, agents, remarks) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            beneath: Beneath { root: &chosen.root },
            config,
            context,
            file,
            written,
            items,
            agents,
            remarks,
        }
    }

    /// The plan, and the configuration as it was read, with the text that it gets.
    pub fn plan(mut self, places: &[ForeignPlace]) -> Result<ImportPlan, Failure> {
        for place in places {
            self.place(place);
        }
        let most = self.items.len().min(MOST_ITEMS);
        if self.items.len() > most {
            self.remarks.push(format!("there is more than {MOST_ITEMS}; the rest is not imported"));
            self.items.truncate(most);
            self.agents.retain(|(at, _)| *at < most);
        }
        self.settle_agents()?;
        self.settle_skills();
        let text = self.settle_servers();
        let Self { items, remarks, file, written, .. } = self;
        Ok(ImportPlan { items, remarks, file, written, text })
    }

    fn place(&mut self, place: &ForeignPlace) {
        let path = Path::new(place.path);
        let meta = match self.beneath.look(path) {
            Ok(Some(meta)) => meta,
            Ok(None) => return,
            Err(why) => return self.items.push(PlannedItem::unread(place.system, place.path.into(), why)),
        };
        match place.holds {
            Holds::Agents(form) if meta.is_dir() => self.agents_in(place.system, path, form),
            Holds::Skills if meta.is_dir() => self.skills_in(place.system, path),
            Holds::Agents(_) | Holds::Skills => {}
            Holds::Servers(key) => self.servers_in(place, |text| {
                let settings = forms::json(text)?;
                Ok(settings.as_object().cloned().map(|map| (key, map)))
            }),
            Holds::TomlServers => {
                self.servers_in(place, |text| Ok(Some(("mcp_servers", forms::toml(text)?))));
            }
            Holds::Opencode => {
                self.servers_in(place, |text| {
                    Ok(forms::json(text)?.as_object().cloned().map(|map| ("mcp", map)))
                });
                self.opencode_agents(place);
            }
        }
    }

    fn agents_in(&mut self, system: &'static str, folder: &Path, form: AgentForm) {
        let ending = if form == AgentForm::Toml { "toml" } else { "md" };
        let (mut found, mut passed) = (Vec::new(), Vec::new());
        self.beneath.files(folder, ending, &mut found, &mut passed);
        for (path, why) in passed {
            self.items.push(PlannedItem::unread(system, path.display().to_string(), why));
        }
        for path in found {
            let whole = self.beneath.root.join(&path);
            let text = adopt::read(&whole, form);
            let taken = text.and_then(|text| adopt::adopt(&path, text, None, self.config));
            self.agent(system, path.display().to_string(), taken);
        }
    }

    fn agent(&mut self, system: &'static str, from: String, taken: Result<TakenAgent, adopt::UnfitAgent>) {
        let item = PlannedItem::new(ImportKind::Agent, system, from);
        match taken {
            Ok(taken) => {
                self.agents.push((self.items.len(), taken));
                self.items.push(item);
            }
            Err(unfit) => self.items.push(item.refused(unfit.short())),
        }
    }

    /// Agents of opencode's settings, whose prompts may lie in files beside them.
    fn opencode_agents(&mut self, place: &ForeignPlace) {
        let path = Path::new(place.path);
        let Some(settings) = self.beneath.settings(path).ok().and_then(|text| forms::json(&text).ok()) else {
            return;
        };
        // The second version has them under another key, in other words.
        let of = |key: &'static str| {
            settings[key].as_object().into_iter().flatten().map(move |(name, keys)| (key, name, keys))
        };
        for (key, name, keys) in of("agent").chain(of("agents")) {
            let from = format!("{}#{key}.{name}", place.path);
            let keys = keys.as_object().cloned().unwrap_or_default();
            let taken = self.opencode_keys(path, keys).map_err(adopt::UnfitAgent::Why);
            let taken = taken.and_then(|keys| {
                let id = adopt::slug(name);
                adopt::adopt(&PathBuf::from(name), forms::frontmatter(&keys), id, self.config)
            });
            self.agent(place.system, from, taken);
        }
    }

    fn opencode_keys(
        &self,
        settings: &Path,
        mut keys: Map<String, Value>,
    ) -> Result<Map<String, Value>, NotImported> {
        for key in ["prompt", "system"] {
            let file = keys.get(key).and_then(Value::as_str).and_then(|text| {
                text.trim().strip_prefix("{file:")?.strip_suffix('}').map(str::trim).map(str::to_owned)
            });
            let Some(file) = file else { continue };
            let path = settings.parent().unwrap_or(settings).join(file.trim_start_matches("./"));
            let is_plain = |part| matches!(part, std::path::Component::Normal(_));
            if !path.components().all(is_plain) {
                let message = format!("its prompt is the file `{file}`, which is not beneath the settings");
                return Err(NotImported(message));
            }
            keys.insert(key.into(), self.beneath.settings(&path)?.into());
        }
        Ok(keys)
    }

    fn skills_in(&mut self, system: &'static str, folder: &Path) {
        match self.beneath.list(folder) {
            Ok((names, _)) => {
                let home = self.context.home().path();
                let found =
                    names.iter().filter_map(|path| skills::planned(system, &self.beneath, path, home));
                self.items.extend(found);
            }
            Err(why) => self.items.push(PlannedItem::unread(system, folder.display().to_string(), why)),
        }
    }

    fn servers_in<'k>(
        &mut self,
        place: &ForeignPlace,
        parsed: impl FnOnce(&str) -> Result<Option<(&'k str, Map<String, Value>)>, NotImported>,
    ) {
        let path = Path::new(place.path);
        let settings = self.beneath.settings(path).and_then(|text| parsed(&text));
        let (key, settings) = match settings {
            Ok(Some(both)) => both,
            Ok(None) => return,
            Err(why) => return self.items.push(PlannedItem::unread(place.system, place.path.into(), why)),
        };
        let projects = settings.get("projects").and_then(Value::as_object).into_iter().flatten();
        let own =
            projects.filter(|(_, one)| one["mcpServers"].as_object().is_some_and(|map| !map.is_empty()));
        if let count @ 1.. = own.count() {
            self.remarks.push(format!(
                "`{}` has servers of {count} projects beside its own, which are not imported: each project's `.mcp.json` is",
                place.path
            ));
        }
        let Some(list) = settings.get(key).filter(|list| list.as_object().is_some_and(|map| !map.is_empty()))
        else {
            return;
        };
        let Ok(read) = drupe_mcp_import::read(&json!({key: list})) else { return };
        for note in read.notes {
            self.items.push(PlannedItem::new(ImportKind::McpServer, place.system, place.path).refused(note));
        }
        for server in read.servers {
            let item = match &self.written {
                Ok(written) => {
                    let at = (self.file.as_path(), self.config);
                    servers::planned(place.system, place.path, server, written, at)
                }
                Err(why) => {
                    let from = format!("{}#{}", place.path, server.given);
                    PlannedItem::new(ImportKind::McpServer, place.system, from).refused(why.0.clone())
                }
            };
            self.items.push(item);
        }
    }

    /// Which of the agents come over: each as a daemon would judge it, beside all others.
    fn settle_agents(&mut self) -> Result<(), Failure> {
        let (there, root) = (staged::taken(self.config, self.context), self.beneath.root);
        let extensions = self.context.home().path().join("extensions");
        let file = |id: &ExtensionId| extensions.join(format!("{id}.md"));
        let mut agents = std::mem::take(&mut self.agents);
        let mut ids: Vec<ExtensionId> = Vec::new();
        agents.retain_mut(|(at, taken)| {
            let (item, id, to) = (&mut self.items[*at], &taken.id, file(&taken.id));
            (item.id, item.to) = (id.to_string(), Some(to.clone()));
            item.left_out = std::mem::take(&mut taken.left_out);
            item.notes = std::mem::take(&mut taken.notes);
            let elsewhere = there.iter().find(|(other, path)| *other == id.as_str() && *path != to);
            match (drupe_kernel::kept_id(id.as_str()), elsewhere) {
                (Some(why), _) => item.refuse(why.to_string()),
                (None, Some((_, path))) => {
                    item.refuse(format!(
                        "there is an extension `{id}` already: `{}`{}",
                        path.display(),
                        renamed(root, &item.from)
                    ));
                }
                (None, None) if ids.contains(id) => {
                    item.refuse(format!(
                        "another agent of this plan is `{id}` already{}",
                        renamed(root, &item.from)
                    ));
                }
                (None, None) => match taken.lacks(self.config) {
                    Some(why) => item.refuse(why),
                    None => ids.push(id.clone()),
                },
            }
            item.state != ImportState::Refused
        });
        // One that cannot come over is none that others may call.
        loop {
            let coming: Vec<String> = agents.iter().map(|(_, taken)| taken.id.to_string()).collect();
            let is_there =
                |id: &str| coming.iter().any(|one| one == id) || there.iter().any(|(one, _)| one == id);
            for (at, taken) in &mut agents {
                taken.call_only(is_there);
                self.items[*at].left_out.append(&mut taken.left_out);
            }
            let new = agents.iter().filter(|(_, taken)| file(&taken.id).symlink_metadata().is_err());
            let new: Vec<_> = new.map(|(_, taken)| (taken.id.clone(), taken.adopted.file())).collect();
            let judged =
                if new.is_empty() { Vec::new() } else { staged::judge(&new, self.config, self.context)? };
            let before = agents.len();
            agents.retain(|(at, taken)| {
                let one = judged.iter().find(|one| one.id == taken.id.as_str() && !one.works);
                if let Some(one) = one {
                    let item = &mut self.items[*at];
                    let named =
                        if one.diagnostics.has_errors() { String::new() } else { renamed(root, &item.from) };
                    item.refuse(one.why() + &named);
                }
                one.is_none()
            });
            if agents.len() == before {
                self.place_agents(&agents, &judged, file);
                return Ok(());
            }
        }
    }

    /// Agents that come over, or are there.
    fn place_agents(
        &mut self,
        agents: &[(usize, TakenAgent)],
        judged: &[staged::Judged],
        file: impl Fn(&ExtensionId) -> PathBuf,
    ) {
        let root = self.beneath.root;
        for (at, taken) in agents {
            let (item, text, file) = (&mut self.items[*at], taken.adopted.file(), file(&taken.id));
            match judged.iter().find(|one| one.id == taken.id.as_str()) {
                Some(one) => {
                    if one.waits {
                        item.notes.push(format!("it waits for your agreement: {}", one.why()));
                    }
                    item.work = ImportWork::Agent(text);
                }
                None if drupe_config::read_text_file(&file).is_ok_and(|there| there == text) => {
                    item.is_there()
                }
                None => item.refuse(format!(
                    "`{}` is there already, and is another one{}",
                    file.display(),
                    renamed(root, &item.from)
                )),
            }
        }
    }

    fn settle_skills(&mut self) {
        for at in 0..self.items.len() {
            let (before, rest) = self.items.split_at_mut(at);
            let Some(item) = rest.first_mut() else { continue };
            let (ImportWork::Skill(parts), Some(to)) = (&item.work, item.to.clone()) else { continue };
            let other = before
                .iter()
                .find(|other| other.kind == ImportKind::Skill && other.id == item.id && other.to.is_some());
            if to.symlink_metadata().is_ok() {
                match skills::is_there(&to, parts) {
                    true => item.is_there(),
                    false => item.refuse(format!("`{}` is there already, and is another one", to.display())),
                }
            } else if let Some(other) = other {
                let is_same = matches!(&other.work, ImportWork::Skill(others) if others == parts);
                match is_same {
                    true => {
                        item.why = Some(format!("the same as `{}`", other.from));
                        item.is_there();
                    }
                    false => item.refuse(format!(
                        "`{}` of this plan has the same name, and is another one",
                        other.from
                    )),
                }
            }
        }
    }

    /// The text that the configuration gets, where servers come over.
    fn settle_servers(&mut self) -> Option<String> {
        for at in 0..self.items.len() {
            let (before, rest) = self.items.split_at_mut(at);
            let Some(item) = rest.first_mut() else { continue };
            let ImportWork::McpServer(settings) = &item.work else { continue };
            let same_name =
                |other: &&PlannedItem| other.id == item.id && matches!(other.work, ImportWork::McpServer(_));
            let Some(other) = before.iter().find(same_name) else { continue };
            let is_same = matches!(&other.work, ImportWork::McpServer(others) if others == settings);
            match is_same {
                true => {
                    item.why = Some(format!("the same as `{}`", other.from));
                    item.is_there();
                }
                false => item
                    .refuse(format!("`{}` of this plan has the same name, and is another one", other.from)),
            }
        }
        let new: Vec<(&str, &Map<String, Value>)> = self
            .items
            .iter()
            .filter_map(|item| match &item.work {
                ImportWork::McpServer(settings) => Some((item.id.as_str(), settings)),
                _ => None,
            })
            .collect();
        let written = self.written.as_ref().ok().filter(|_| !new.is_empty())?;
        match servers::with_servers(written, &new) {
            Ok(text) => Some(text),
            Err(why) => {
                let first = NotImported("lines cannot be put into the configuration".into());
                self.remarks.push(why.0);
                servers::settle(&mut self.items, Err(first));
                None
            }
        }
    }
}

/// How one gets another id. What stands in settings is no file.
fn renamed(root: &Path, from: &str) -> String {
    match from.contains('#') {
        true => String::new(),
        false => {
            let file = root.join(from);
            format!("; `drupe ext new agent --file {} --id ID` gives it another id", file.display())
        }
    }
}

/// What is to be done, and the text that the configuration gets.
pub struct ImportPlan {
    pub items: Vec<PlannedItem>,
    pub remarks: Vec<String>,
    file: PathBuf,
    written: Result<Written, NotImported>,
    text: Option<String>,
}

impl ImportPlan {
    /// Does it. Each item is made whole or not at all, and nothing is put over what is there.
    pub fn apply(&mut self, context: &Context) -> Result<(), Failure> {
        if self.items.iter().all(|item| matches!(item.work, ImportWork::Nothing)) {
            return Ok(());
        }
        let home = context.home().path();
        drupe_link::Home::create(home)?;
        for item in &mut self.items {
            let Some(to) = item.to.clone() else { continue };
            let done = match &item.work {
                ImportWork::Agent(text) => make_agent(&to, text),
                ImportWork::Skill(parts) => skills::make(&to, parts),
                ImportWork::McpServer(_) | ImportWork::Nothing => continue,
            };
            match done {
                Ok(()) => item.state = ImportState::Made,
                Err(error) => item.refuse(format!("`{}` cannot be made: {error}", to.display())),
            }
        }
        if let (Some(text), Ok(written)) = (&self.text, &self.written) {
            let done = servers::write(&self.file, written, text);
            servers::settle(&mut self.items, done);
        }
        Ok(())
    }
}

/// Makes the file of an agent; the daemon never sees half of it.
pub fn make_agent(to: &Path, text: &str) -> std::io::Result<()> {
    let root = to.parent().unwrap_or(to);
    std::fs::create_dir_all(root)?;
    let made = staged::beside(root);
    staged::create(&made, text.as_bytes(), false).and_then(|()| staged::place(&made, to)).inspect_err(|_| {
        // The error that is told is the one that matters.
        let _ = std::fs::remove_file(&made);
    })
}
