//! The extensions that were found, and what became of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use drupe_config::{Isolation, Manifest, Scope};
use drupe_extension_api::{
    AgentId, ExtensionId, Fault,
    control::{ExtensionDetail, ExtensionState, ExtensionStatus, StateChange, ToolSize},
    wire::{Capability, Description},
};
use drupe_folders::{
    content::Content,
    discovery::{Found, Origin, PassedOver},
};
use drupe_host::{Faults, Instance};
use jiff::Timestamp;
use parking_lot::Mutex;

use drupe_gate::{
    check::{self, Ask},
    order::{self, Key},
    state::{Action, Event, Out, State},
};
use drupe_wiring::{Away, Part};

/// Steps of an extension's life that are kept: as many as the journal has. One that breaks again and again makes no end.
const KEPT_STEPS: usize = 128;

/// One folder, and what became of it.
pub struct Record {
    /// Where it is.
    pub found: Found,
    /// What it is, if its manifest can be read.
    pub manifest: Option<Arc<Manifest>>,
    /// Where in its life it is.
    pub state: State,
    /// The states that it went through.
    pub history: Vec<StateChange>,
    /// What it provides, once it is loaded.
    pub part: Option<Part>,
    /// Its files and their hash; none where they cannot be read.
    pub content: Option<Arc<Content>>,
    /// What of it the operator is asked for.
    pub ask: Option<Ask>,
    /// Where its native code runs.
    pub isolation: Option<Isolation>,
    /// Remarks that stop nothing.
    pub notes: Vec<String>,
    /// Why what is on the disk now is not what runs.
    pub pending: Option<String>,
    /// How often it failed of late.
    pub faults: Faults,
    /// When it is tried again, where it broke.
    pub again: Option<Timestamp>,
    /// Whether its present instance came to work.
    pub worked: bool,
    /// Whether a step of it goes on that nobody waits for: what changes it meanwhile is looked at when that has ended.
    pub late: bool,
}

/// All records, by a key that is unique among folders.
#[derive(Default)]
pub struct Extensions {
    records: Mutex<BTreeMap<Key, Record>>,
    passed: Mutex<Vec<PassedOver>>,
    /// Those that have worked in this home: what they have is not taken from them by those that come.
    established: Mutex<BTreeSet<String>>,
}

impl Record {
    /// A folder that was found.
    pub fn new(found: Found, now: Timestamp) -> Self {
        let first = StateChange { time: now, state: State::Discovered.shown().0, reason: None };
        Self {
            found,
            manifest: None,
            state: State::Discovered,
            history: vec![first],
            part: None,
            content: None,
            ask: None,
            isolation: None,
            notes: Vec::new(),
            pending: None,
            faults: Faults::default(),
            again: None,
            worked: false,
            late: false,
        }
    }

    /// The hash of its content; empty where it cannot be read.
    pub fn hash(&self) -> &str {
        self.content.as_ref().map_or("", |content| &content.hash)
    }

    /// What is compared to see whether it has changed: its content, with what it takes from elsewhere.
    pub fn identity(&self) -> &str {
        self.ask.as_ref().map_or_else(|| self.hash(), |ask| &ask.hash)
    }

    /// Whether it has code of its own.
    pub fn is_native(&self) -> bool {
        self.manifest.as_ref().is_some_and(|m| m.entrypoint.is_some())
    }

    /// What runs of its code.
    pub fn instance(&self) -> Option<&Arc<Instance>> {
        self.part.as_ref()?.instance.as_ref()
    }

    /// Its key.
    pub fn key(&self) -> Key {
        (self.found.name.clone(), self.found.folder.clone())
    }

    /// Why it is in its state, and when that changes by itself.
    fn reason(&self) -> Option<String> {
        let why = self.state.shown().1?.to_owned();
        let again = self.again.filter(|_| matches!(self.state, State::Degraded(_)));
        Some(match again {
            Some(again) => format!("{why}; it is started again at {} UTC", again.strftime("%H:%M:%S")),
            None => why,
        })
    }

    /// As clients see it.
    pub fn status(&self) -> ExtensionStatus {
        let state = self.state.shown().0;
        let native = self.is_native();
        let mut capabilities: Vec<String> =
            self.part.as_ref().map(|p| p.description.capabilities.clone()).unwrap_or_default();
        if !native && self.manifest.as_ref().is_some_and(|m| m.agent.is_some()) {
            capabilities.push(Capability::Agent.name().into());
        }
        let notes: Vec<&str> = self.pending.iter().chain(&self.notes).map(String::as_str).collect();
        let notes = (!notes.is_empty()).then(|| notes.join("; "));
        ExtensionStatus {
            id: self.found.name.clone(),
            version: self.manifest.as_ref().map(|m| m.version.to_string()),
            state,
            reason: self.reason().or(notes),
            capabilities,
            isolation: self.isolation.filter(|_| native).map(|i| i.name().to_owned()),
            source: self.found.folder.display().to_string(),
            since: self.history.last().map_or(Timestamp::UNIX_EPOCH, |c| c.time),
        }
    }

    /// As clients see it, in full.
    pub fn detail(&self) -> ExtensionDetail {
        let manifest = self.manifest.as_ref();
        let text = |get: fn(&Manifest) -> &String| manifest.map(|m| get(m).clone()).unwrap_or_default();
        let tools = self.part.iter().flat_map(|p| &p.description.tools);
        let sizes: Vec<ToolSize> = tools
            .map(|tool| ToolSize {
                tool: tool.name.to_string(),
                extension: self.found.name.clone(),
                bytes: drupe_wiring::bounds::size(tool),
                on_demand: false,
            })
            .collect();
        let instance = self.part.iter().flat_map(|part| &part.instance);
        let sockets = instance.flat_map(|instance| instance.listening());
        ExtensionDetail {
            status: self.status(),
            name: text(|m| &m.name),
            summary: text(|m| &m.summary),
            description: text(|m| &m.description),
            tools: sizes.iter().map(|size| size.tool.clone()).collect(),
            sizes,
            depends_on: manifest.iter().flat_map(|m| &m.depends_on).map(ToString::to_string).collect(),
            rights: manifest.iter().flat_map(|m| &m.rights).map(check::name).collect(),
            listening: sockets.filter_map(|(socket, _)| socket.local_addr().ok()).collect(),
            setup_instructions: manifest.and_then(|m| m.setup_instructions.clone()),
            content: Some(self.identity().to_owned()).filter(|hash| !hash.is_empty()),
            history: self.history.clone(),
        }
    }
}

impl Extensions {
    /// What was passed over, as remarks.
    pub fn passed_over(&self) -> Vec<String> {
        let passed = self.passed.lock();
        // Whoever named it may have meant to draw on a terminal.
        let shown = |p: &PassedOver| p.path.display().to_string().escape_debug().to_string();
        passed.iter().map(|p| format!("`{}` was passed over: {}", shown(p), p.reason)).collect()
    }

    /// Lets something happen to an extension; what the driver does next.
    pub fn step(&self, key: &Key, event: Event, now: Timestamp) -> (Action, Option<StateChange>) {
        let mut records = self.records.lock();
        let Some(record) = records.get_mut(key) else { return (Action::None, None) };
        let before = record.state.clone();
        let (state, action) = before.clone().step(event);
        record.state = state;
        if record.state == before {
            return (action, None);
        }
        let (state, reason) = record.state.shown();
        let change = StateChange { time: now, state, reason: reason.map(str::to_owned) };
        record.history.push(change.clone());
        let old = record.history.len().saturating_sub(KEPT_STEPS);
        record.history.drain(..old);
        (action, Some(change))
    }

    /// Takes a record in, in place of one of the same key, which is given back.
    pub fn insert(&self, record: Record) -> Option<Record> {
        self.records.lock().insert(record.key(), record)
    }

    /// Forgets a record.
    pub fn remove(&self, key: &Key) {
        self.records.lock().remove(key);
    }

    /// What was passed over, from now on.
    pub fn set_passed_over(&self, passed: Vec<PassedOver>) {
        *self.passed.lock() = passed;
    }

    /// Reads or changes one record.
    pub fn with<T>(&self, key: &Key, act: impl FnOnce(&mut Record) -> T) -> Option<T> {
        self.records.lock().get_mut(key).map(act)
    }

    /// Reads all records, sorted by name.
    pub fn read<T>(&self, act: impl FnMut(&Record) -> T) -> Vec<T> {
        self.records.lock().values().map(act).collect()
    }

    /// Whether a step of this one goes on that nobody waits for.
    pub fn is_late(&self, key: &Key) -> bool {
        self.with(key, |r| r.late).unwrap_or_default()
    }

    /// Whether another folder of that name works: its change may wait for an answer, and until then it stays.
    pub fn is_taken(&self, key: &Key) -> bool {
        let works = |r: &Record| matches!(r.state, State::Loaded | State::Initialized | State::Active);
        self.records.lock().iter().any(|(other, r)| other.0 == key.0 && other != key && works(r))
    }

    /// Whether one that is late is initialized and does not work yet, or is not initialized.
    pub fn any_late(&self, initialized: bool) -> bool {
        self.records.lock().values().any(|r| r.late && (r.state == State::Initialized) == initialized)
    }

    /// These have worked in this home.
    pub fn establish(&self, names: impl IntoIterator<Item = String>) {
        self.established.lock().extend(names);
    }

    /// What is initialized: shipped extensions first, then those of the home, then others; of each, those that have worked
    /// before the new ones; each sorted by id. Where two cannot be wired together the later one is at fault.
    pub fn parts(&self) -> Vec<Part> {
        let established = self.established.lock().clone();
        let alive = |r: &Record| {
            let rank = (r.found.origin, !established.contains(&r.found.name), r.found.name.clone());
            let there = matches!(r.state, State::Initialized | State::Active);
            there.then(|| Some((rank, r.part.clone()?))).flatten()
        };
        let mut parts: Vec<((Origin, bool, String), Part)> =
            self.records.lock().values().filter_map(alive).collect();
        parts.sort_by(|(a, _), (b, _)| a.cmp(b));
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// Those that broke while they worked and come back by themselves.
    pub fn away(&self) -> Vec<Away> {
        let away = self.read(|r| {
            let part = r.part.as_ref().filter(|_| matches!(r.state, State::Degraded(_)))?;
            let shared = part.manifest.scope == Scope::Shared;
            let tools = part
                .description
                .tools
                .iter()
                .filter(|tool| shared && tool.annotations.only_for.is_none())
                .map(|tool| tool.name.clone());
            let reason = format!("does not work: {}", r.reason()?);
            Some(Away { extension: part.id().clone(), tools: tools.collect(), reason })
        });
        away.into_iter().flatten().collect()
    }

    /// The states by name.
    pub fn states(&self) -> BTreeMap<String, State> {
        order::used(self.read(|r| (r.found.name.clone(), r.state.clone())))
    }

    /// Those in a state, in waves: each after what it depends on, those of one wave independent of each other.
    pub fn waves(&self, state: &State) -> Vec<Vec<Key>> {
        let all = self.read(|r| {
            let manifest = r.manifest.as_ref().filter(|_| r.state == *state)?;
            let needs = order::dependencies(manifest).into_iter().map(|(id, _)| id);
            Some((r.key(), needs.collect::<BTreeSet<_>>()))
        });
        let mut rest: Vec<(Key, BTreeSet<String>)> = all.into_iter().flatten().collect();
        let mut waves = Vec::new();
        while !rest.is_empty() {
            let names: BTreeSet<String> = rest.iter().map(|((name, _), _)| name.clone()).collect();
            let (ready, waiting): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|(_, needs)| needs.is_disjoint(&names));
            // Loaded extensions have no circle; were there one, its members go together.
            let (ready, waiting) = if ready.is_empty() { (waiting, Vec::new()) } else { (ready, waiting) };
            waves.push(ready.into_iter().map(|(key, _)| key).collect());
            rest = waiting;
        }
        waves
    }

    /// Why an extension does not work until somebody decides otherwise.
    pub fn gone(&self, name: &str) -> Option<String> {
        let records = self.records.lock();
        let mut why = format!("extension `{name}` is not there any more");
        for record in records.values().filter(|r| r.found.name == name) {
            let State::Out(Out::Disabled(out) | Out::Denied(out) | Out::Quarantined(out)) = &record.state
            else {
                return None;
            };
            why = format!("extension `{name}` does not work: {out}");
        }
        Some(why)
    }

    /// Why an agent that somebody named is not there, where there is an extension of that name.
    pub fn why_not(&self, id: &AgentId) -> Option<Fault> {
        let status = self.status(id.as_str()).ok().filter(|status| status.state != ExtensionState::Active)?;
        let state = serde_json::to_value(status.state).unwrap_or_default();
        let state = state.as_str().unwrap_or_default().replace('_', " ");
        let why = status.reason.map(|why| format!(": {why}")).unwrap_or_default();
        let fault = Fault::not_found(format!("agent `{id}` is not there: its extension is {state}{why}"));
        Some(fault.help(format!("`drupe ext show {id}` shows it")))
    }

    /// One in full.
    pub fn detail(&self, name: &str) -> Result<ExtensionDetail, Fault> {
        let records = self.records.lock();
        let record = records.values().find(|r| r.found.name == name);
        record.map(Record::detail).ok_or_else(|| {
            Fault::not_found(format!("there is no extension `{name}`"))
                .help("`drupe ext list` shows what there is")
        })
    }

    /// As clients see the one of that name.
    pub fn status(&self, name: &str) -> Result<ExtensionStatus, Fault> {
        self.detail(name).map(|detail| detail.status)
    }

    /// The keys of the records of that name.
    pub fn named(&self, name: &str) -> Vec<Key> {
        self.records.lock().keys().filter(|(known, _)| known == name).cloned().collect()
    }

    /// A running extension that has tools.
    pub fn announcer(&self, id: &ExtensionId) -> Result<(Key, Part), Fault> {
        let records = self.records.lock();
        let record = records.values().find(|r| r.found.name == id.as_str() && !r.state.is_out());
        let part = record.and_then(|r| Some((r.key(), r.part.clone()?)));
        let out = || Fault::not_found(format!("extension `{id}` does not run"));
        let (key, part) = part.ok_or_else(|| out().help(format!("`drupe ext show {id}` says why")))?;
        if !part.can(Capability::Tool) {
            return Err(Fault::denied(format!("extension `{id}` has no tools")));
        }
        Ok((key, part))
    }

    /// Replaces what an instance says of itself; what it said before, or none if another one works now.
    pub fn set_description(&self, key: &Key, of: &Part, description: Description) -> Option<Description> {
        let mut records = self.records.lock();
        let part = records.get_mut(key).and_then(|r| r.part.as_mut()).filter(|part| part.is(of))?;
        Some(std::mem::replace(&mut part.description, description))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use drupe_folders::discovery::Kind;

    use super::*;

    #[test]
    fn the_steps_of_an_extension_that_breaks_again_and_again_are_kept_up_to_a_bound() {
        let all = Extensions::default();
        let (name, folder) = ("x".to_owned(), PathBuf::from("/x"));
        let found = Found { name, folder, origin: Origin::Home, kind: Kind::Folder };
        let key = (found.name.clone(), found.folder.clone());
        all.insert(Record::new(found, Timestamp::UNIX_EPOCH));
        for n in 0..=2 * KEPT_STEPS {
            let (_, change) =
                all.step(&key, Event::Rejected(Out::Disabled(n.to_string())), Timestamp::UNIX_EPOCH);
            assert!(change.is_some(), "{n}");
        }
        let history = all.detail("x").expect("it is there").history;
        let reasons: Vec<_> = history.iter().filter_map(|change| change.reason.as_deref()).collect();
        assert_eq!(reasons.len(), KEPT_STEPS);
        assert_eq!(reasons.last(), Some(&(2 * KEPT_STEPS).to_string().as_str()), "the oldest go");
    }
}
