//! What a daemon would make of the extensions that lie on the disk, without one: by the same survey, the same order and the
//! same wiring. Nothing is written, and no code of an extension is opened: what only that tells (its tools, whether it
//! starts) is taken to be right.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use drupe_config::Manifest;
use drupe_extension_api::{
    ExtensionId, ToolSpec,
    control::{Approval, ApprovalState, CheckReport, ExtensionState, ToolSize},
    wire::Description,
};
use drupe_folders::discovery::{Found, Kind, Origin};
use drupe_link::Quarantined;
use drupe_models::Models;
use drupe_prompts::{Day, Fill, Prompt};
use drupe_wiring::{self as wiring, Part, Schemas};

use crate::{
    order::{self, Key},
    state::{Event, Out, State},
    survey::{self, Decided, Eyes, Looked, Named},
};

/// What an extension would come to.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Its id, or its folder's name.
    pub id: String,
    pub folder: PathBuf,
    /// The state in which it would stay.
    pub state: ExtensionState,
    /// Why, where it would not work.
    pub reason: Option<String>,
    /// What was seen of it.
    pub looked: Looked,
    /// Whether all that it lacks is its library.
    pub unbuilt: bool,
}

impl Expected {
    /// Whether it comes to work, or waits for what the operator says.
    pub fn works(&self) -> bool {
        use ExtensionState::{Active, AwaitingApproval, Disabled};
        matches!(self.state, Active | AwaitingApproval | Disabled)
    }

    /// What it brings, by what its code says of itself: what each tool adds to a request, and why it would not be taken.
    pub fn brings(&self, description: Description) -> (Vec<ToolSize>, Option<String>) {
        let size = |tool: &ToolSpec| ToolSize {
            tool: tool.name.to_string(),
            extension: self.id.clone(),
            bytes: wiring::bounds::size(tool),
            on_demand: false,
        };
        let sizes = description.tools.iter().map(size).collect();
        let part = self.looked.manifest.clone().map(|manifest| Part {
            manifest,
            description,
            instance: None,
            prompt: None,
        });
        (sizes, part.as_ref().and_then(|part| wiring::unfit(part, &Schemas::default())))
    }

    /// A report of one that was looked at in `path`, told as if it lay at `named`.
    pub fn report(&self, path: &Path, named: &Path) -> CheckReport {
        let told = |text: String, shown: fn(&Path) -> String| {
            let text = text.replace(&shown(&self.folder), &shown(named));
            text.replace(&shown(path), &shown(named))
        };
        let plain = |path: &Path| path.display().to_string();
        let quoted = |path: &Path| {
            let text = serde_json::to_string(&path.to_string_lossy()).unwrap_or_default();
            text.trim_matches('"').to_owned()
        };
        let diagnostics = &self.looked.diagnostics;
        let faulty = diagnostics.has_errors();
        let mut rendered = diagnostics.render(false);
        // Where there are faults, they are the reason.
        rendered.extend(self.reason.as_deref().filter(|_| !faulty));
        let diagnostics = serde_json::to_string(diagnostics).unwrap_or_default();
        CheckReport {
            ok: self.works() && !faulty,
            diagnostics: serde_json::from_str(&told(diagnostics, quoted)).unwrap_or_default(),
            rendered: told(rendered, plain),
            state: Some(self.state),
            reason: self.reason.clone().map(|reason| told(reason, plain)),
            agent: self.looked.manifest.as_ref().is_some_and(|manifest| manifest.agent.is_some()),
        }
    }
}

/// A folder, or the file of an agent, as if it lay in the home.
pub fn named(path: &Path) -> Found {
    // `.` has no name of its own.
    let folder = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (kind, name) = match folder.is_file() {
        true => (Kind::File, folder.file_stem()),
        false => (Kind::Folder, folder.file_name()),
    };
    let name = name.map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
    Found { name, folder, origin: Origin::Home, kind }
}

/// What was decided of extensions in a home.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    /// Those that the operator turned on or off.
    pub enabled: BTreeMap<String, bool>,
    /// What the operator was asked, and answered.
    pub approvals: Vec<Approval>,
    pub worked: BTreeSet<String>,
    /// What the supervisor holds against contents.
    pub quarantined: Vec<Quarantined>,
}

/// What wiring needs beside the extensions.
pub struct Surroundings<'a> {
    pub models: &'a Models,
    pub orchestrator: &'a Prompt,
    pub day: Day,
    pub fill: Fill<'a>,
}

/// What would become of each that was found.
pub fn forecast(
    eyes: Eyes<'_>,
    found: Vec<Found>,
    decisions: &Decisions,
    surroundings: &Surroundings<'_>,
) -> Vec<Expected> {
    let mut seen: Vec<Looked> = found.into_iter().map(|found| eyes.look(found)).collect();
    for one in &mut seen {
        if let (None, Some(manifest)) = (&one.out, one.manifest.clone()) {
            one.out = rejected(eyes, one, &manifest, decisions);
        }
    }
    let seen = survey::one_of_a_name(
        seen,
        |one| Named { found: &one.found, manifest: one.manifest.as_deref(), usable: one.out.is_none() },
        |one, out| Looked { out: Some(out), ..one },
    );
    let mut all = Records::new(seen, &decisions.worked);
    all.bring_up(eyes, surroundings);
    all.wire(eyes, surroundings);
    all.expected(eyes)
}

fn rejected(eyes: Eyes<'_>, looked: &Looked, manifest: &Manifest, decisions: &Decisions) -> Option<Out> {
    let third_party = looked.is_third_party();
    let mut held = decisions.quarantined.iter();
    let decided = Decided {
        third_party,
        enabled: decisions.enabled.get(manifest.id.as_str()).copied(),
        safe_mode: false,
        quarantined: held.find(|q| q.extension == looked.found.name && q.hash == looked.hash()),
    };
    eyes.refused(&looked.found, manifest, decided).or_else(|| {
        let ask =
            looked.ask.as_ref().filter(|ask| survey::is_asked(manifest, ask, eyes.config, third_party))?;
        let known = |hash: &str| {
            decisions.approvals.iter().find(|a| a.extension == manifest.id.as_str() && a.hash == hash)
        };
        let mut asked = known(&ask.hash);
        let more = asked.zip(looked.content.as_ref());
        if let Some(hash) = more.and_then(|(answered, content)| survey::asked_again(content, ask, answered)) {
            asked = known(&hash);
        }
        match asked {
            Some(asked) => survey::answered(manifest, ask, &asked.id, asked.state),
            // It would be asked now, and can be answered by its name.
            None => survey::answered(manifest, ask, manifest.id.as_str(), ApprovalState::Pending),
        }
    })
}
/// All extensions on their way.
struct Records<'a> {
    all: BTreeMap<Key, (Looked, State)>,
    parts: Vec<Part>,
    worked: &'a BTreeSet<String>,
}

impl<'a> Records<'a> {
    fn new(seen: Vec<Looked>, worked: &'a BTreeSet<String>) -> Self {
        let record = |one: Looked| {
            let key = (one.found.name.clone(), one.found.folder.clone());
            let state = one.out.clone().map_or(State::Discovered, State::Out);
            (key, (one, state))
        };
        Self { all: seen.into_iter().map(record).collect(), parts: Vec::new(), worked }
    }

    fn states(&self) -> BTreeMap<String, State> {
        order::used(self.all.iter().map(|((name, _), (_, state))| (name.clone(), state.clone())))
    }

    fn step(&mut self, key: &Key, event: Event) {
        if let Some((_, state)) = self.all.get_mut(key) {
            *state = state.clone().step(event).0;
        }
    }

    fn bring_up(&mut self, eyes: Eyes<'_>, surroundings: &Surroundings<'_>) {
        let waits = |(key, (record, state)): (&Key, &(Looked, State))| {
            let manifest = record.manifest.clone().filter(|_| *state == State::Discovered)?;
            Some((key.clone(), manifest))
        };
        let mut waiting: BTreeMap<Key, Arc<Manifest>> = self.all.iter().filter_map(waits).collect();
        while !waiting.is_empty() {
            let mut wave = order::wave(&self.states(), &mut waiting);
            if wave.ready.is_empty() && wave.lost.is_empty() {
                wave.lost = order::circle(&mut waiting);
            }
            for (key, event) in wave.lost {
                self.step(&key, event);
            }
            for (key, manifest) in wave.ready {
                match Self::prepare(eyes, &manifest, surroundings) {
                    Ok(part) => {
                        self.step(&key, Event::Done);
                        self.step(&key, Event::Done);
                        self.parts.extend(part);
                    }
                    Err(why) => self.step(&key, Event::Rejected(Out::Failed(why))),
                }
            }
        }
    }

    /// What of it can be wired here: an agent without code.
    fn prepare(
        eyes: Eyes<'_>,
        manifest: &Arc<Manifest>,
        surroundings: &Surroundings<'_>,
    ) -> Result<Option<Part>, String> {
        let prompt = drupe_prompts::of(eyes.config, manifest, &[], surroundings.day, surroundings.fill)?;
        if manifest.entrypoint.is_some() {
            return Ok(None);
        }
        let (manifest, description) = (Arc::clone(manifest), Description::default());
        let part = Part { manifest, description, instance: None, prompt };
        wiring::unfit(&part, &Schemas::default()).map_or(Ok(Some(part)), Err)
    }

    /// Wires the agents without code, as far as they do not need what code brings.
    fn wire(&mut self, eyes: Eyes<'_>, surroundings: &Surroundings<'_>) {
        let workspace = eyes.home.join("workspace");
        let context = wiring::Context {
            config: eyes.config,
            models: surroundings.models,
            lasting: &Arc::default(),
            orchestrator: surroundings.orchestrator,
            workspace: &workspace,
            day: surroundings.day,
            away: &[],
        };
        while let Err(fault) = wiring::wire(&self.wireable(), &context) {
            // A fault of the orchestrator itself is one of the configuration.
            let Some(id) = fault.extension else { return };
            self.parts.retain(|part| *part.id() != id);
            self.out(id.as_str(), &Event::Rejected(Out::Unwired(fault.reason)));
        }
    }

    fn wireable(&self) -> Vec<Part> {
        let ids: BTreeSet<&ExtensionId> = self.parts.iter().map(Part::id).collect();
        let mut parts: Vec<Part> = self.parts.clone();
        for part in &mut parts {
            let mut manifest = Manifest::clone(&part.manifest);
            if let Some(agent) = &mut manifest.agent {
                agent.uses_tools.clear();
                agent.uses_agents.retain(|other| ids.contains(&ExtensionId::from(other.clone())));
            }
            part.manifest = Arc::new(manifest);
        }
        let rank = |part: &Part| {
            let origin = self.all.iter().find(|((name, _), _)| name == part.id().as_str());
            let origin = origin.map(|(_, (looked, _))| looked.found.origin);
            (origin, !self.worked.contains(part.id().as_str()), part.id().clone())
        };
        parts.sort_by_key(rank);
        parts
    }

    /// It goes out, and what depends on it with it.
    fn out(&mut self, name: &str, event: &Event) {
        let there: Vec<Key> = self.all.keys().filter(|(known, _)| known == name).cloned().collect();
        for key in there {
            self.step(&key, event.clone());
        }
        let states = self.states();
        let lost: Vec<(String, String)> = self
            .all
            .iter()
            .filter(|(_, (_, state))| !state.is_out())
            .filter_map(|((dependent, _), (record, _))| {
                let needs = order::dependencies(record.manifest.as_ref()?);
                let field = needs.into_iter().find(|(needed, _)| needed == name)?.1;
                Some((dependent.clone(), order::lost(field, name, states.get(name))))
            })
            .collect();
        for (dependent, why) in lost {
            self.parts.retain(|part| part.id().as_str() != dependent);
            self.out(&dependent, &Event::DependencyLost(why));
        }
    }

    fn expected(self, eyes: Eyes<'_>) -> Vec<Expected> {
        let expected = |((id, folder), (looked, state)): (Key, (Looked, State))| {
            let lacks = looked.manifest.as_ref().and_then(|manifest| eyes.unbuilt(&looked.found, manifest));
            let unbuilt = lacks.is_some_and(|out| state == State::Out(out));
            let (state, reason) = match &state {
                State::Out(_) => state.shown(),
                _ => (ExtensionState::Active, None),
            };
            let reason = reason.map(str::to_owned);
            Expected { id, folder, state, reason, looked, unbuilt }
        };
        self.all.into_iter().map(expected).collect()
    }
}
